//! The texts that the rules look at.

/// A text file of ours.
pub struct Text {
    /// Relative to the root, with `/`.
    pub path: String,
    pub content: String,
}

#[cfg(test)]
pub fn text(path: &str, content: &str) -> Text {
    Text { path: path.to_owned(), content: content.to_owned() }
}
