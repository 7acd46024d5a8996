//! The template files of a new plugin.

use super::language::Language;

/// A template: the path of a file in the new folder, and the text of the file with placeholders.
pub type File = (&'static str, &'static str);

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!("../../templates/", $path))
    };
}

const RUST_ENCODING: &[File] = &[
    ("Cargo.toml", template!("rust/manifest.toml")),
    (".gitignore", template!("rust/ignored")),
    ("README.md", template!("rust/readme.md")),
    ("src/lib.rs", template!("rust/encoding.rs")),
    ("tests/in_a_host.rs", template!("rust/encoding_test.rs")),
];

const RUST_FORMAT: &[File] = &[
    ("Cargo.toml", template!("rust/manifest.toml")),
    (".gitignore", template!("rust/ignored")),
    ("README.md", template!("rust/readme.md")),
    ("src/lib.rs", template!("rust/format.rs")),
    ("tests/in_a_host.rs", template!("rust/format_test.rs")),
];

const C_ENCODING: &[File] = &[
    ("Makefile", template!("c/encoding.mk")),
    (".gitignore", template!("c/ignored")),
    ("README.md", template!("c/readme.md")),
    ("plugin.c", template!("c/encoding.c")),
    ("test.c", template!("c/encoding_test.c")),
    ("crossdock.h", crossdock::api::HEADER),
];

const C_FORMAT: &[File] = &[
    ("Makefile", template!("c/format.mk")),
    (".gitignore", template!("c/ignored")),
    ("README.md", template!("c/readme.md")),
    ("plugin.c", template!("c/format.c")),
    ("crossdock.h", crossdock::api::HEADER),
];

pub fn files(language: Language, decodes: bool) -> &'static [File] {
    match (language, decodes) {
        (Language::Rust, true) => RUST_ENCODING,
        (Language::Rust, false) => RUST_FORMAT,
        (Language::C, true) => C_ENCODING,
        (Language::C, false) => C_FORMAT,
    }
}
