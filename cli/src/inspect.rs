//! `crossdock inspect`: shows the metadata of a plugin, an encoded array or a table.

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

use crate::output::{Failure, write_output};
use crate::{inspect_table, inspect_tree, options};

#[derive(Args)]
#[command(after_help = "\
For a plugin, the command shows the metadata, the libraries it needs, its hash, its signature, and whether this host would
load it. The plugin does not run. For each node of an encoded array, it shows the encoding, the number of values, the
metadata, the bytes of each buffer, the plugin that decodes the node, and the type. With --device it also shows where and
how the node is decoded. For a table, it shows the format, the plugin that reads it, and the columns. Encoded arrays and
tables are read with plugins; --plugins adds places to search for plugins.

--json prints for a table: format, plugin, columns (each with name, type, nullable, metadata), metadata.")]
pub struct Inspect {
    /// A plugin's file, an encoded array, or a table
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    plugins: options::PluginArgs,
    /// Shows how each node of an encoded array would be decoded for this device: cpu, cuda, cuda:N.
    /// The device need not exist
    #[arg(long, value_name = "DEVICE", value_parser = options::parse_device)]
    device: Option<Device>,
    /// Prints the result as JSON
    #[arg(long)]
    json: bool,
}

/// Returns whether the file is an encoded array. Returns `false` if the file cannot be read,
/// because the caller reports that error.
fn is_encoded_array(path: &Path) -> bool {
    let mut magic = [0; blob::MAGIC.len()];
    // Only regular files are read, because reading a pipe or a terminal could block.
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let mut read = |path| File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    is_file && read(path).is_ok() && magic == blob::MAGIC
}

impl Inspect {
    pub fn run(self) -> Result<(), Failure> {
        if is_encoded_array(&self.file) {
            return write_output(&inspect_tree::of_file(&self.file, &self.plugins, self.device, self.json)?);
        }
        let inspection = match PluginFile::with_policy(&self.file, self.plugins.policy()?.into()).inspect() {
            Ok(inspection) => inspection,
            Err(refused) => {
                if matches!(refused.reason, Refusal::Metadata(MetadataError::NotElf))
                    && let Some(table) = inspect_table::of_file(&self.file, &self.plugins, self.json)?
                {
                    return write_output(&table);
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
            out["message"] = json!(refusal.as_ref().map(|(_, message)| message));
            return write_output(&out.to_string());
        }
        let (m, needs) = (&inspection.metadata, &inspection.needs);
        let glibc =
            needs.glibc.map_or("any".to_string(), |(major, minor)| format!("{major}.{minor} or newer"));
        let list = |list: &[String]| if list.is_empty() { "none".to_string() } else { list.join(", ") };
        let verdict =
            refusal.map_or_else(|| "yes".to_string(), |(id, message)| format!("no ({id}): {message}"));
        let lines = [
            ("name", m.name.clone()),
            ("version", m.version.to_string()),
            ("description", m.description.clone()),
            ("licence", m.licence.clone()),
            ("abi", format!("{}.{}, works with {}", m.abi.0, m.abi.1, m.api_range)),
            ("interfaces", list(&m.interfaces)),
            ("formats", list(&m.formats)),
            ("encodings", list(&m.encodings)),
            ("requires", list(&m.required)),
            ("toolchain", m.toolchain.clone()),
            ("panics", m.panic.clone()),
            ("needs", list(&needs.libraries)),
            ("glibc", glibc),
            ("sha256", inspection.fingerprint.sha256.to_string()),
            ("signature", describe_signature(&inspection.fingerprint.signature)),
            ("loads here", verdict),
        ];
        write_output(&lines.map(|(name, value)| format!("{name:<12} {}\n", printable(&value))).concat())
    }
}

fn describe_signature(signature: &Signature) -> String {
    match signature {
        Signature::Missing => "none".into(),
        Signature::By(key) => format!("by {key}, a key of the policy"),
        Signature::Unknown => "not by a key of the policy".into(),
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

/// Formats the libraries that the loader would load together with a plugin.
fn json_needs(needs: &Needs) -> serde_json::Value {
    let glibc = needs.glibc.map(|(major, minor)| format!("{major}.{minor}"));
    json!({ "libraries": needs.libraries, "search_paths": needs.search_paths, "glibc": glibc })
}

/// A plugin's metadata.
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
        "requires": m.required,
        "toolchain": m.toolchain,
        "panic": m.panic,
        "struct_sizes": sizes,
    })
}
