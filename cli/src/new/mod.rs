//! `crossdock new`.

mod language;
mod sample;
mod templates;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use crossdock::{Error, Result};

use crate::answer::{Failure, answer};
use language::Language;

#[derive(Args)]
#[command(after_help = "\
Examples:
  crossdock new weather                                reads files that end in .weather
  crossdock new packer --encoding packer.bits          decodes nodes of packer.bits in encoded arrays
  crossdock new packer --language c --encoding packer.bits

What the plugin does at first is little, to be replaced, and its test shows that it works: `cargo test`, or `make test`. In Rust
it is built with the crates of Crossdock, of this command's version, or from a checkout.")]
pub struct New {
    /// The plugin's name, and that of the folder that is made: a-z, 0-9 and -, beginning with a letter
    #[arg(value_name = "NAME", value_parser = parse_name)]
    name: String,
    /// What it is written in
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value_t = Language::Rust)]
    language: Language,
    /// The id of an encoding that it decodes [default: it reads a format, which is called as the plugin]
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    encoding: Option<String>,
    /// A checkout of Crossdock to take its crates from, rather than from the registry
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,
}

/// With room for what libraries and messages add to it, and as the metadata can hold it.
const LONGEST_NAME: usize = 40;
const LONGEST_ID: usize = 200;

fn parse_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let whole =
        text.starts_with(|c: char| c.is_ascii_lowercase()) && !text.ends_with('-') && !text.contains("--");
    if whole && text.chars().all(fits) && text.len() <= LONGEST_NAME {
        return Ok(text.to_string());
    }
    Err(format!("expected a-z, 0-9 and single -, beginning with a letter, {LONGEST_NAME} characters at most"))
}

fn parse_id(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.contains('.') && text.chars().all(fits) && text.len() <= LONGEST_ID {
        return Ok(text.to_string());
    }
    Err(format!(
        "expected letters, digits, '_', '-' and a '.' between whose it is and what it is, as in packer.bits, {LONGEST_ID} \
         characters at most"
    ))
}

impl New {
    pub fn run(self) -> Result<(), Failure> {
        if self.checkout.is_some() && self.language == Language::C {
            return Err(Error::Usage("--checkout: a plugin in C needs no crates".into()).into());
        }
        let words = self.words()?;
        let folder = Path::new(&self.name);
        let filled = |(path, text): &templates::File| (path.to_string(), filled(text, &words).into_bytes());
        let mut files: Vec<_> =
            templates::files(self.language, self.encoding.is_some()).iter().map(filled).collect();
        let sample = self.encoding.as_deref().map_or_else(|| Ok(sample::LINES.to_vec()), sample::tree)?;
        files.push((self.sample(), sample));
        fs::create_dir(folder).map_err(|error| cannot_make(folder, error))?;
        for (path, content) in &files {
            if let Err(error) = write(&folder.join(path), content) {
                // A part of a project is worse than none; the folder is this command's own.
                let _ = fs::remove_dir_all(folder);
                return Err(error.into());
            }
        }
        answer(&self.made(&files))
    }

    /// The file that `crossdock verify` has the plugin read or decode.
    fn sample(&self) -> String {
        self.encoding.as_ref().map_or_else(|| format!("sample.{}", self.name), |_| "sample.cdenc".into())
    }

    /// What stands for what in the templates.
    fn words(&self) -> Result<Vec<(&'static str, String)>> {
        let snake = self.name.replace('-', "_");
        let (what, more) = match &self.encoding {
            Some(id) => (
                format!("Decodes nodes of `{id}` in encoded arrays"),
                ",\nand how arrays are decoded in docs/encodings.md",
            ),
            None => (format!("Reads the format `{}`", self.name), ""),
        };
        let built = match self.language {
            Language::Rust => format!("target/release/libcrossdock_{snake}_plugin.so"),
            Language::C => format!("libcrossdock_{snake}_plugin.so"),
        };
        let inspect = format!("crossdock inspect {built}");
        let attempt = match &self.encoding {
            Some(_) => format!("{inspect}\ncrossdock convert --plugins {built} {} OUT.arrow", self.sample()),
            None => format!("crossdock convert --plugins {built} {} OUT.arrow", self.sample()),
        };
        Ok(vec![
            ("@NAME@", self.name.clone()),
            ("@SNAKE@", snake),
            ("@ID@", self.encoding.clone().unwrap_or_default()),
            ("@WHAT@", what),
            ("@MORE@", more.to_string()),
            ("@TRY@", attempt),
            ("@SAMPLE@", self.sample()),
            ("@ARRAYS@", self.dependency("arrays")?),
            ("@MEMORY@", self.dependency("memory/client")?),
            ("@PLUGIN_API@", self.dependency("plugin-api")?),
            ("@HOST@", self.dependency("host")?),
        ])
    }

    /// What a manifest says about a crate of ours: where it lies in the checkout, or which release it is of.
    fn dependency(&self, folder: &str) -> Result<String> {
        let Some(checkout) = &self.checkout else {
            return Ok(format!("\"{}\"", env!("CARGO_PKG_VERSION")));
        };
        let path = checkout.join(folder);
        let path = path.canonicalize().ok().filter(|path| path.join("Cargo.toml").is_file());
        let path = path.ok_or_else(|| {
            Error::Usage(format!(
                "--checkout {}: it has no {folder}/Cargo.toml; give the folder that a checkout of Crossdock lies in",
                checkout.display()
            ))
        })?;
        // As JSON writes it, which TOML reads.
        Ok(format!("{{ path = {} }}", serde_json::Value::from(path.to_string_lossy())))
    }

    fn made(&self, files: &[(String, Vec<u8>)]) -> String {
        let (language, test) = match self.language {
            Language::Rust => ("Rust", "cargo test"),
            Language::C => ("C", "make test"),
        };
        let what = match &self.encoding {
            Some(id) => format!("decodes {id}"),
            None => format!("reads files that end in .{}", self.name),
        };
        let names: Vec<_> = files.iter().map(|(path, _)| path.as_str()).collect();
        let name = &self.name;
        format!(
            "{name}: a plugin in {language} that {what}\n  made: {}\n  try it: cd {name} && {test}\n",
            names.join(", ")
        )
    }
}

fn filled(text: &str, words: &[(&str, String)]) -> String {
    words.iter().fold(text.to_string(), |text, (word, meaning)| text.replace(word, meaning))
}

fn cannot_make(folder: &Path, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        return Error::Usage(format!(
            "'{}' exists already: choose another name, or another folder to be in",
            folder.display()
        ));
    }
    Error::Io { what: format!("cannot make the folder {}", folder.display()), source: error }
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, content));
    made.map_err(|source| Error::Io { what: format!("cannot write {}", path.display()), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_are_those_that_files_metadata_and_languages_can_hold() {
        for name in ["a", "weather", "a-b-2"] {
            assert_eq!(parse_name(name).as_deref(), Ok(name));
        }
        for name in ["", "A", "2a", "-a", "a-", "a--b", "a_b", "../a", "a/b", "a b", "é", &"a".repeat(41)] {
            assert!(parse_name(name).is_err(), "{name}");
        }
        assert_eq!(parse_id("packer.bits.v2").as_deref(), Ok("packer.bits.v2"));
        for id in ["", "packer", "packer.\"", "packer.a b", "packer.\n", &format!("a.{}", "b".repeat(200))] {
            assert!(parse_id(id).is_err(), "{id}");
        }
    }

    #[test]
    fn nothing_is_left_to_be_filled_in() {
        for language in [Language::Rust, Language::C] {
            for encoding in [None, Some("packer.bits".to_string())] {
                let new = New { name: "a-b".into(), language, encoding, checkout: None };
                let words = new.words().unwrap_or_default();
                for (path, text) in templates::files(language, new.encoding.is_some()) {
                    let text = filled(text, &words);
                    let left = text.split('@').skip(1).step_by(2).find(|word| {
                        !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                    });
                    assert_eq!(left, None, "{path}");
                }
            }
        }
    }

    #[test]
    fn crates_are_of_this_release_or_of_the_checkout_that_is_given() {
        let dependency = |checkout: Option<&str>| {
            let checkout = checkout.map(PathBuf::from);
            let new = New { name: "a".into(), language: Language::Rust, encoding: None, checkout };
            new.dependency("host").map_err(|error| error.to_string())
        };
        assert_eq!(dependency(None), Ok(format!("\"{}\"", env!("CARGO_PKG_VERSION"))));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().canonicalize().unwrap();
        let expected = format!("{{ path = \"{}\" }}", root.join("host").display());
        assert_eq!(dependency(Some(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))), Ok(expected));
        // It is there, and has no crates.
        let refused = dependency(Some(env!("CARGO_MANIFEST_DIR"))).unwrap_err();
        assert!(refused.contains("it has no host/Cargo.toml"), "{refused}");
    }
}
