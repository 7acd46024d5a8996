//! `crossdock inspect`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use crossdock::api::Device;
use crossdock::api::encoded::blob;
use crossdock::load::{PluginFile, Refusal, Signature};
use crossdock::metadata::{Metadata, MetadataError, Needs};
use crossdock::printable;
use serde_json::json;

use crate::answer::{Failure, answer};
use crate::{inspect_table, inspect_tree, options};

#[derive(Args)]
#[command(after_help = "\
Of a plugin it shows what the file says of itself, what would be loaded with it, its hash and its signature, without running it, and
whether it would be loaded here. Of an encoded array it shows each node: its encoding, values, bytes of metadata, bytes of each
buffer, the plugin that decodes it, and its type; with --device also where and how. Of a table it shows the format, the plugin that
reads it, and its columns. For trees and tables plugins are loaded; --plugins says where to look for them.

--json prints of a table: format, plugin, columns (each with name, type, nullable, metadata), metadata.")]
pub struct Inspect {
    /// A plugin's file, an encoded array, or a table
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    plugins: options::PluginPaths,
    /// Says of each node of an encoded array how it would be decoded for cpu, cuda or cuda:N, which need not be there
    #[arg(long, value_name = "DEVICE", value_parser = options::parse_device)]
    device: Option<Device>,
    /// Prints it as JSON
    #[arg(long)]
    json: bool,
}

/// Whether an encoded array begins here. What cannot be read is left to whoever reads plugins to explain.
fn is_tree(path: &Path) -> bool {
    let mut first = [0; blob::MAGIC.len()];
    // What is no file may keep its reader waiting.
    let is_file = std::fs::metadata(path).is_ok_and(|there| there.is_file());
    let mut read = |path| File::open(path).and_then(|mut file| file.read_exact(&mut first));
    is_file && read(path).is_ok() && first == blob::MAGIC
}

impl Inspect {
    pub fn run(self) -> Result<(), Failure> {
        if is_tree(&self.file) {
            return answer(&inspect_tree::of_file(&self.file, &self.plugins, self.device, self.json)?);
        }
        let inspection = match PluginFile::under(&self.file, self.plugins.policy()?.into()).inspect() {
            Ok(inspection) => inspection,
            Err(refused) => {
                if matches!(refused.reason, Refusal::Metadata(MetadataError::NotElf))
                    && let Some(table) = inspect_table::of_file(&self.file, &self.plugins, self.json)?
                {
                    return answer(&table);
                }
                return Err(crossdock::Error::Refused(refused.into()).into());
            }
        };
        let refusal = inspection.refusal.map(|reason| (reason.id(), reason.to_string()));
        if self.json {
            let mut out = json_metadata(&inspection.metadata);
            out["needs"] = json_needs(&inspection.needs);
            out["sha256"] = json!(inspection.fingerprint.sha256);
            out["signature"] = json_signature(&inspection.fingerprint.signature);
            out["loads"] = json!(refusal.is_none());
            out["reason"] = json!(refusal.as_ref().map(|(id, _)| id));
            out["message"] = json!(refusal.as_ref().map(|(_, words)| words));
            return answer(&out.to_string());
        }
        let (m, needs) = (&inspection.metadata, &inspection.needs);
        let glibc =
            needs.glibc.map_or("any".to_string(), |(major, minor)| format!("{major}.{minor} or newer"));
        let list = |list: &[String]| if list.is_empty() { "none".to_string() } else { list.join(", ") };
        let verdict = refusal.map_or_else(|| "yes".to_string(), |(id, words)| format!("no ({id}): {words}"));
        let lines = [
            ("name", m.name.clone()),
            ("version", m.version.to_string()),
            ("description", m.description.clone()),
            ("licence", m.licence.clone()),
            ("abi", format!("{}.{}, works with {}", m.abi.0, m.abi.1, m.api_range)),
            ("interfaces", list(&m.interfaces)),
            ("formats", list(&m.formats)),
            ("encodings", list(&m.encodings)),
            ("toolchain", m.toolchain.clone()),
            ("panics", m.panic.clone()),
            ("needs", list(&needs.libraries)),
            ("glibc", glibc),
            ("sha256", inspection.fingerprint.sha256.to_string()),
            ("signature", signature_words(&inspection.fingerprint.signature)),
            ("loads here", verdict),
        ];
        answer(&lines.map(|(name, value)| format!("{name:<12} {}\n", printable(&value))).concat())
    }
}

fn signature_words(signature: &Signature) -> String {
    match signature {
        Signature::Missing => "none".into(),
        Signature::By(key) => format!("by {key}, a key of the policy's"),
        Signature::Unknown => "by no key of the policy's".into(),
        Signature::Bad(why) => format!("bad: {why}"),
    }
}

fn json_signature(signature: &Signature) -> serde_json::Value {
    match signature {
        Signature::Missing => json!({ "state": "none" }),
        Signature::By(key) => json!({ "state": "valid", "key": key.to_string() }),
        Signature::Unknown => json!({ "state": "unknown-key" }),
        Signature::Bad(why) => json!({ "state": "bad", "message": why }),
    }
}

/// What would be loaded with it.
fn json_needs(needs: &Needs) -> serde_json::Value {
    let glibc = needs.glibc.map(|(major, minor)| format!("{major}.{minor}"));
    json!({ "libraries": needs.libraries, "search_paths": needs.search_paths, "glibc": glibc })
}

/// What a plugin says of itself.
pub fn json_metadata(m: &Metadata) -> serde_json::Value {
    let sizes: serde_json::Map<String, serde_json::Value> = crossdock::load::struct_names()
        .zip(&m.sizes)
        .map(|(name, size)| (name.to_string(), json!(size)))
        .collect();
    json!({
        "name": m.name,
        "version": m.version.to_string(),
        "description": m.description,
        "licence": m.licence,
        "abi": { "major": m.abi.0, "minor": m.abi.1, "range": m.api_range.to_string() },
        "interfaces": m.interfaces,
        "formats": m.formats,
        "encodings": m.encodings,
        "toolchain": m.toolchain,
        "panic": m.panic,
        "struct_sizes": sizes,
    })
}
