//! `crossdock new`: creates a plugin project.

mod language;
mod sample;
mod templates;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use crossdock::{Error, Result};

use crate::output::{Failure, write_output};
use language::Language;

#[derive(Args)]
#[command(after_help = "\
Examples:
  crossdock new weather                                A plugin that reads files with the extension .weather
  crossdock new packer --encoding packer.bits          A plugin that decodes the encoding packer.bits
  crossdock new packer --language c --encoding packer.bits

The new plugin has a minimal implementation, which you replace, and a test: `cargo test` or `make test`. A plugin in Rust
uses Crossdock's crates, either in the version of this command or from a checkout.")]
pub struct New {
    /// The name of the plugin and of the new folder: a-z, 0-9 and -, beginning with a letter
    #[arg(value_name = "NAME", value_parser = parse_name)]
    name: String,
    /// The plugin's programming language
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value_t = Language::Rust)]
    language: Language,
    /// The id of an encoding that the plugin decodes [default: the plugin reads a format with its
    /// own name]
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    encoding: Option<String>,
    /// A checkout of Crossdock whose crates the plugin uses, instead of those in the registry
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,
}

/// Plugin metadata, library names and messages have space for names of up to 40 bytes.
const MAX_NAME_LEN: usize = 40;
const MAX_ID_LEN: usize = 200;

fn parse_name(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_well_formed =
        text.starts_with(|c: char| c.is_ascii_lowercase()) && !text.ends_with('-') && !text.contains("--");
    if is_well_formed && text.chars().all(is_allowed) && text.len() <= MAX_NAME_LEN {
        return Ok(text.to_string());
    }
    Err(format!("expected at most {MAX_NAME_LEN} characters a-z, 0-9 and single -, beginning with a letter"))
}

fn parse_id(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.contains('.') && text.chars().all(is_allowed) && text.len() <= MAX_ID_LEN {
        return Ok(text.to_string());
    }
    Err(format!(
        "expected OWNER.NAME, as in packer.bits: at most {MAX_ID_LEN} letters, digits, '.', '_' and '-', with a '.'"
    ))
}

impl New {
    pub fn run(self) -> Result<(), Failure> {
        if self.checkout.is_some() && self.language == Language::C {
            return Err(Error::Usage("--checkout cannot be used with --language c".into()).into());
        }
        let values = self.placeholder_values()?;
        let folder = Path::new(&self.name);
        let fill = |(path, text): &templates::File| (path.to_string(), fill(text, &values).into_bytes());
        let mut files: Vec<_> =
            templates::files(self.language, self.encoding.is_some()).iter().map(fill).collect();
        let sample = self.encoding.as_deref().map_or_else(|| Ok(sample::LINES.to_vec()), sample::tree)?;
        files.push((self.sample(), sample));
        fs::create_dir(folder).map_err(|error| cannot_create(folder, error))?;
        for (path, content) in &files {
            if let Err(error) = write(&folder.join(path), content) {
                // This command created the folder, so it may remove the incomplete project.
                let _ = fs::remove_dir_all(folder);
                return Err(error.into());
            }
        }
        write_output(&self.summary(&files))
    }

    /// The name of the sample for `crossdock verify`.
    fn sample(&self) -> String {
        self.encoding.as_ref().map_or_else(|| format!("sample.{}", self.name), |_| "sample.cdenc".into())
    }

    /// The placeholders in the templates, and their values.
    fn placeholder_values(&self) -> Result<Vec<(&'static str, String)>> {
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

    /// The dependency on one of Crossdock's crates in a manifest: its path in the checkout, or its
    /// version.
    fn dependency(&self, folder: &str) -> Result<String> {
        let Some(checkout) = &self.checkout else {
            return Ok(format!("\"{}\"", env!("CARGO_PKG_VERSION")));
        };
        let path = checkout.join(folder);
        let path = path.canonicalize().ok().filter(|path| path.join("Cargo.toml").is_file());
        let path = path.ok_or_else(|| {
            Error::Usage(format!(
                "--checkout {}: there is no {folder}/Cargo.toml; expected the root folder of a checkout of Crossdock",
                checkout.display()
            ))
        })?;
        // A JSON string is also a valid TOML string.
        Ok(format!("{{ path = {} }}", serde_json::Value::from(path.to_string_lossy())))
    }

    fn summary(&self, files: &[(String, Vec<u8>)]) -> String {
        let (language, test) = match self.language {
            Language::Rust => ("Rust", "cargo test"),
            Language::C => ("C", "make test"),
        };
        let what = match &self.encoding {
            Some(id) => format!("decodes {id}"),
            None => format!("reads files with the extension .{}", self.name),
        };
        let names: Vec<_> = files.iter().map(|(path, _)| path.as_str()).collect();
        let name = &self.name;
        format!(
            "{name}: a plugin in {language} that {what}\n  created: {}\n  test: cd {name} && {test}\n",
            names.join(", ")
        )
    }
}

fn fill(text: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(text.to_string(), |text, (placeholder, value)| text.replace(placeholder, value))
}

fn cannot_create(folder: &Path, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        return Error::Usage(format!("'{}' already exists; choose another name", folder.display()));
    }
    Error::file("cannot create the folder", folder, error)
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, content));
    written.map_err(|source| Error::file("cannot write", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_well_formed_names_and_ids() {
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
    fn every_placeholder_has_a_value() {
        for language in [Language::Rust, Language::C] {
            for encoding in [None, Some("packer.bits".to_string())] {
                let new = New { name: "a-b".into(), language, encoding, checkout: None };
                let values = new.placeholder_values().unwrap_or_default();
                for (path, text) in templates::files(language, new.encoding.is_some()) {
                    let text = fill(text, &values);
                    let unfilled = text.split('@').skip(1).step_by(2).find(|word| {
                        !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                    });
                    assert_eq!(unfilled, None, "{path}");
                }
            }
        }
    }

    #[test]
    fn dependencies_use_this_version_or_the_path_of_the_checkout() {
        let dependency = |checkout: Option<&str>| {
            let checkout = checkout.map(PathBuf::from);
            let new = New { name: "a".into(), language: Language::Rust, encoding: None, checkout };
            new.dependency("host").map_err(|error| error.to_string())
        };
        assert_eq!(dependency(None), Ok(format!("\"{}\"", env!("CARGO_PKG_VERSION"))));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().canonicalize().unwrap();
        let expected = format!("{{ path = \"{}\" }}", root.join("host").display());
        assert_eq!(dependency(Some(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))), Ok(expected));
        // This folder is not the root of a checkout.
        let error = dependency(Some(env!("CARGO_MANIFEST_DIR"))).unwrap_err();
        assert!(error.contains("there is no host/Cargo.toml"), "{error}");
    }
}
