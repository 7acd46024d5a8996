//! Parses the imports of a module: `use` declarations, and paths that begin with `crate`, `self`,
//! `super` or the name of a child module.

/// A name that a `use` declaration brings into a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The path of the name, such as `["crate", "load", "Loaded"]`.
    pub path: Vec<String>,
    /// The name in this module. `None` for all names of another module (`*`).
    pub name: Option<String>,
    /// Whether other modules can use the name.
    pub is_public: bool,
    /// Whether the module itself mentions the name outside of `use` declarations.
    pub is_mentioned: bool,
}

/// The imports and items of one file, without comments, literals and tests.
#[derive(Debug, Default)]
pub struct Imports {
    pub uses: Vec<Use>,
    /// Paths of at least two segments outside of `use` declarations.
    pub paths: Vec<Vec<String>>,
    /// Modules that are declared only for tests: `#[cfg(test)] mod tests;`.
    pub for_tests: Vec<String>,
    /// Items that this file defines.
    pub items: Vec<String>,
}

const DEFINES: &[&str] =
    &["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "macro_rules"];

impl Imports {
    pub fn parse(text: &str) -> Self {
        let mut reader = Reader { tokens: tokens(text), at: 0, inline: Vec::new(), depth: 0 };
        let mut imports = Self::default();
        let mut mentioned = Vec::new();
        while let Some(token) = reader.peek(0) {
            match token {
                "#" if reader.is_for_tests() => reader.skip_test_item(&mut imports.for_tests),
                // Excludes `impl Trait + use<'a>`, which is not a declaration.
                "use" if reader.peek(1) != Some("<") => imports.uses.extend(reader.use_declaration()),
                _ => reader.step(&mut imports, &mut mentioned),
            }
        }
        for used in &mut imports.uses {
            used.is_mentioned = used.name.as_ref().is_some_and(|name| mentioned.contains(name));
        }
        imports
    }
}

struct Reader<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    /// For each open inline module, the depth of braces at which it begins.
    inline: Vec<usize>,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn previous(&self) -> Option<&'a str> {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at).copied())
    }

    fn is_for_tests(&self) -> bool {
        let tokens = self.tokens.get(self.at..self.at + 7).unwrap_or_default();
        tokens == ["#", "[", "cfg", "(", "test", ")", "]"]
    }

    /// Skips an item and its attributes. Stores the name of `mod NAME;`.
    fn skip_test_item(&mut self, names: &mut Vec<String>) {
        while self.peek(0) == Some("#") {
            self.skip_balanced("[", "]");
        }
        let mut previous = "";
        while let Some(token) = self.peek(0) {
            match token {
                ";" => {
                    self.at += 1;
                    return;
                }
                "{" if previous != "::" => return self.skip_balanced("{", "}"),
                _ if previous == "mod" => names.push(token.to_owned()),
                _ => {}
            }
            previous = token;
            self.at += 1;
        }
    }

    /// Skips from the next `open` to the matching `close`.
    fn skip_balanced(&mut self, open: &str, close: &str) {
        let mut depth = 0usize;
        while let Some(token) = self.peek(0) {
            self.at += 1;
            if token == open {
                depth += 1;
            } else if token == close {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return;
                }
            }
        }
    }

    fn use_declaration(&mut self) -> Vec<Use> {
        let is_public = match self.previous() {
            Some("pub") => true,
            // pub(crate), pub(super), pub(in path)
            Some(")") => {
                self.tokens[..self.at].iter().rev().skip_while(|t| **t != "(").nth(1) == Some(&"pub")
            }
            _ => false,
        };
        self.at += 1;
        let mut uses = Vec::new();
        self.use_tree(Vec::new(), is_public, &mut uses);
        let depth = self.inline.len();
        uses.into_iter().filter_map(|used| Some(Use { path: from_file(used.path, depth)?, ..used })).collect()
    }

    fn use_tree(&mut self, mut path: Vec<String>, is_public: bool, uses: &mut Vec<Use>) {
        let mut name = None;
        while let Some(token) = self.peek(0) {
            match token {
                "{" => {
                    self.at += 1;
                    while !matches!(self.peek(0), None | Some("}" | ";")) {
                        self.use_tree(path.clone(), is_public, uses);
                        if self.peek(0) == Some(",") {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "," | "}" | ";" => break,
                "*" => {
                    uses.push(Use { path: path.clone(), name: None, is_public, is_mentioned: false });
                    self.at += 1;
                    return;
                }
                "as" => {
                    name = self.peek(1).map(str::to_owned);
                    self.at += 1;
                }
                "::" => {}
                // In `a::{self}`, `self` refers to the module `a`, so the path stays the same.
                "self" if !path.is_empty() => {}
                segment => path.push(segment.to_owned()),
            }
            self.at += 1;
        }
        let name = name.or_else(|| path.last().cloned());
        uses.push(Use { path, name, is_public, is_mentioned: false });
    }

    /// Reads one token or one path outside of `use` declarations.
    fn step(&mut self, imports: &mut Imports, mentioned: &mut Vec<String>) {
        let Some(token) = self.peek(0) else { return };
        match token {
            "{" => self.depth += 1,
            "}" => {
                self.depth = self.depth.saturating_sub(1);
                if self.inline.last() == Some(&self.depth) {
                    self.inline.pop();
                }
            }
            "mod" if self.peek(2) == Some("{") => self.inline.push(self.depth),
            // Excludes a word after one of these tokens, because such a word does not begin a path.
            _ if is_word(token) && !matches!(self.previous(), Some("::" | "$" | "." | "mod" | "fn")) => {
                mentioned.push(token.to_owned());
                let mut path = vec![token.to_owned()];
                while self.peek(1) == Some("::")
                    && let Some(next) = self.peek(2).filter(|next| is_word(next))
                {
                    path.push(next.to_owned());
                    self.at += 2;
                }
                if path.len() > 1 {
                    imports.paths.extend(from_file(path, self.inline.len()));
                }
            }
            _ => {}
        }
        if DEFINES.contains(&token) && self.inline.is_empty() {
            let name = if token == "macro_rules" { self.peek(2) } else { self.peek(1) };
            imports.items.extend(name.map(str::to_owned));
        }
        self.at += 1;
    }
}

/// Converts a path inside `inline` nested inline modules to the equivalent path in the module of
/// the file. `None` if the path refers to an item in the inline modules.
fn from_file(mut path: Vec<String>, inline: usize) -> Option<Vec<String>> {
    if inline == 0 {
        return Some(path);
    }
    match path.first().map(String::as_str) {
        Some("crate") => Some(path),
        Some("super") => {
            let supers = path.iter().take_while(|segment| *segment == "super").count();
            path.drain(..inline.min(supers));
            (supers > inline).then_some(path)
        }
        _ => None,
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits source code into words, `::`, and single characters. Omits spaces, comments, string
/// literals, character literals and lifetimes.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            _ if c.is_whitespace() => c.len_utf8(),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest),
            'r' | 'b' | 'c' if literal(rest).is_some() => literal(rest).unwrap_or(1),
            '\'' => character(rest),
            _ if c.is_alphanumeric() || c == '_' => {
                let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                tokens.push(&rest[..length]);
                length
            }
            ':' if rest.starts_with("::") => {
                tokens.push(&rest[..2]);
                2
            }
            _ => {
                tokens.push(&rest[..c.len_utf8()]);
                c.len_utf8()
            }
        };
        rest = &rest[length.min(rest.len())..];
    }
    tokens
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of a string literal that begins with its quotation mark.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a string literal with a prefix, such as `r"..."`, `br#"..."#`, `b"..."` or
/// `c"..."`. `None` if the text does not begin with such a literal.
fn literal(text: &str) -> Option<usize> {
    let prefix = text.find(|c| !matches!(c, 'r' | 'b' | 'c'))?;
    let hashes = text[prefix..].find(|c| c != '#')?;
    let begin = prefix + hashes;
    if !text[begin..].starts_with('"') || prefix > 2 {
        return None;
    }
    if !text[..prefix].contains('r') {
        return (hashes == 0).then(|| begin + quoted(&text[begin..]));
    }
    let end = format!("\"{}", "#".repeat(hashes));
    Some(text[begin + 1..].find(&end).map_or(text.len(), |at| begin + 1 + at + end.len()))
}

/// The length of a character literal or a lifetime.
fn character(text: &str) -> usize {
    let within = &text[1..];
    if let Some(escaped) = within.strip_prefix('\\') {
        // The escaped character may be a quotation mark.
        let end = escaped.char_indices().skip(1).find(|(_, c)| *c == '\'');
        return end.map_or(text.len(), |(at, _)| at + 3);
    }
    let mut chars = within.char_indices();
    match (chars.next(), chars.next()) {
        (Some(_), Some((at, '\''))) => at + 2,
        _ => 1 + within.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(within.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let imports = Imports::parse(text);
        let uses = imports.uses.iter().map(|used| used.path.join("::"));
        uses.chain(imports.paths.iter().map(|p| p.join("::"))).collect()
    }

    #[test]
    fn reads_nested_use_trees() {
        let text = "use crate::{a::{self, B as C}, d::*, e}; pub(crate) use super::f::G;";
        let imports = Imports::parse(text);
        let names: Vec<_> = imports.uses.iter().map(|used| used.name.as_deref().unwrap_or("*")).collect();
        assert_eq!(paths(text), ["crate::a", "crate::a::B", "crate::d", "crate::e", "super::f::G"]);
        assert_eq!(names, ["a", "C", "*", "e", "G"]);
        assert_eq!(
            imports.uses.iter().map(|used| used.is_public).collect::<Vec<_>>(),
            [false, false, false, false, true]
        );
    }

    #[test]
    fn reads_paths_outside_of_use_declarations() {
        assert_eq!(
            paths("fn f() -> crate::a::B { super::c::d(self::e::F, $crate::g::h) }"),
            ["crate::a::B", "super::c::d", "self::e::F"]
        );
    }

    #[test]
    fn ignores_comments_texts_characters_and_lifetimes() {
        let text = "// crate::a\n/* crate::b /* */ crate::c */ \"crate::d \\\" crate::e\" r#\"crate::f\"# b\"crate::g\"
            '\"' '\\'' '\\u{22}' fn f<'a>(x: &'a crate::h::I) {}";
        assert_eq!(paths(text), ["crate::h::I"]);
        assert_eq!(Imports::parse("fn f(x: &'static Text, y: char) -> u8 { '\\'' }").items, ["f"]);
    }

    #[test]
    fn ignores_imports_of_test_items_and_lists_test_modules() {
        let text = "#[cfg(test)] #[allow(x)] mod tests { use crate::a::B; fn f() { } }
            #[cfg(test)] mod apart; #[cfg(test)] use crate::{c, d}; #[cfg(test)] fn g() { crate::e::f() } use crate::h::I;";
        assert_eq!(paths(text), ["crate::h::I"]);
        assert_eq!(Imports::parse(text).for_tests, ["tests", "apart"]);
    }

    #[test]
    fn ignores_captures_of_return_types() {
        assert_eq!(paths("fn f<'a>() -> impl X + use<'a> { a; b } use crate::c;"), ["crate::c"]);
    }

    #[test]
    fn resolves_super_in_inline_modules() {
        let text = "mod inner { use super::X; use super::super::y::Z; fn f() {} } use super::w::V;";
        assert_eq!(paths(text), ["super::y::Z", "super::w::V"]);
    }

    #[test]
    fn detects_which_imported_names_the_module_uses() {
        let imports = Imports::parse("mod c; pub use a::{B, c, d}; fn d(b: B) { b.c() }");
        let mentioned: Vec<_> = imports.uses.iter().map(|used| used.is_mentioned).collect();
        assert_eq!(mentioned, [true, false, false]);
    }
}
