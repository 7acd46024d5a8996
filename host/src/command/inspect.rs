//! `crossdock inspect`.

use std::path::PathBuf;

use clap::Args;
use crossdock::load;
use crossdock::metadata::Metadata;
use serde_json::json;

use super::{Failure, answer};

#[derive(Args)]
pub struct Inspect {
    /// The plugin's file
    #[arg(value_name = "PLUGIN.so")]
    file: PathBuf,
    /// Prints it as JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub fn run(self) -> Result<(), Failure> {
        let inspection =
            load::inspect(&self.file).map_err(|refused| crossdock::Error::Refused(refused.into()))?;
        let refusal = inspection.refusal.map(|reason| (reason.id(), reason.to_string()));
        if self.json {
            let mut out = json_metadata(&inspection.metadata);
            out["loads"] = json!(refusal.is_none());
            out["reason"] = json!(refusal.as_ref().map(|(id, _)| id));
            out["message"] = json!(refusal.as_ref().map(|(_, words)| words));
            return answer(&out.to_string());
        }
        let m = &inspection.metadata;
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
            ("loads here", verdict),
        ];
        answer(&lines.map(|(name, value)| format!("{name:<12} {value}\n")).concat())
    }
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
