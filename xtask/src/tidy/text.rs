//! The text files that the rules check.

/// A text file of the repository.
pub struct Text {
    /// The path relative to the root, with `/`.
    pub path: String,
    pub content: String,
}

#[cfg(test)]
pub fn text(path: &str, content: &str) -> Text {
    Text { path: path.to_owned(), content: content.to_owned() }
}
