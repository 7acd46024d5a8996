//! `crossdock plugins`: lists plugins.

use std::sync::Arc;

use clap::Args;
use crossdock::api::{Format, OptionInfo};
use crossdock::discovery::Candidate;
use crossdock::load::{FAILED, PluginFile};
use crossdock::{Error, Plugin, Session, printable};
use serde_json::{Value, json};

use crate::output::{Failure, write_output};
use crate::{options, text};

#[derive(Args)]
#[command(after_help = "\
Plugins are searched in this order: --plugins files, --plugins directories, CROSSDOCK_PLUGIN_PATH, the executable's
directory (files named libcrossdock_*_plugin.so), ../lib/crossdock/plugins and ../lib/crossdock relative to it. Of several plugins with the same name, the first is used. --explain
shows the status of each file that was found: chosen, shadowed by an earlier plugin, or refused. A refused file is listed
with the id of the reason (docs/security.md).")]
pub struct Plugins {
    #[command(flatten)]
    plugins: options::PluginArgs,
    /// Loads this plugin file again although a process crashed while loading it. May be given
    /// several times
    #[arg(long, value_name = "FILE")]
    retry: Vec<std::path::PathBuf>,
    /// Shows all candidates, including refused and shadowed candidates with the reason
    #[arg(long)]
    explain: bool,
    /// Prints the result as JSON
    #[arg(long)]
    json: bool,
}

/// A candidate and its outcome: the loaded plugin, or the id and the message of the reason why the
/// candidate is not used.
struct Verdict<'a> {
    candidate: &'a Candidate,
    outcome: Result<Arc<Plugin>, (String, String)>,
}

impl Plugins {
    pub fn run(self) -> Result<(), Failure> {
        let policy = self.plugins.policy()?;
        for file in &self.retry {
            PluginFile::with_policy(file, Arc::new(policy.clone())).forget_crash()?;
        }
        let host = self.plugins.host(policy).build_lenient();
        let session = host.session().open()?;
        let verdicts: Vec<_> = host.catalog().candidates.iter().map(|c| judge(&session, c)).collect();
        if self.json {
            let list: Vec<_> = verdicts.iter().map(json_verdict).collect();
            let policy = host.catalog().policy().file.as_deref().map(|file| file.display().to_string());
            let all = json!({ "plugins": list, "policy": policy, "warnings": host.catalog().warnings });
            return write_output(&all.to_string());
        }
        let mut out = String::new();
        for verdict in &verdicts {
            match &verdict.outcome {
                Ok(plugin) => out += &chosen(verdict.candidate, plugin, self.explain),
                Err((id, message)) if self.explain => {
                    let status = status(id);
                    let (label, message) = (printable(&verdict.candidate.label()), printable(message));
                    out += &format!("{label}\n  {status} ({id}): {message}\n");
                    out += &format!("  found: {}\n", verdict.candidate.origin);
                }
                Err(_) => {}
            }
        }
        if self.explain {
            if let Some(file) = &host.catalog().policy().file {
                out += &format!("policy: {}\n", printable(&file.display().to_string()));
            }
            for warning in &host.catalog().warnings {
                out += &format!("note: {}\n", printable(warning));
            }
            for (id, plugins) in session.encodings().iter().filter(|(_, plugins)| plugins.len() > 1) {
                let names: Vec<_> = plugins.iter().map(|plugin| plugin.name()).collect();
                out += &format!(
                    "note: several plugins decode {}, the first is used: {}\n",
                    printable(id),
                    names.join(", ")
                );
            }
        } else if let refused @ 1.. = verdicts.iter().filter(|v| v.outcome.is_err()).count() {
            out += &format!("{refused} more refused or shadowed: see --explain\n");
        }
        write_output(if out.is_empty() {
            "no plugin was found: see --help for the places that are searched"
        } else {
            &out
        })
    }
}

fn judge<'a>(session: &Session, candidate: &'a Candidate) -> Verdict<'a> {
    let refused =
        |refused: &crossdock::load::Refused| (refused.reason.id().to_string(), refused.reason.to_string());
    let outcome = match &candidate.metadata {
        Err(reason) => Err(refused(reason)),
        Ok(metadata) => session.plugin(&metadata.name).map_err(|error| match &error {
            Error::Refused(reason) => refused(reason),
            other => (FAILED.to_string(), other.one_line()),
        }),
    };
    Verdict { candidate, outcome }
}

/// Returns the status of a candidate that is not used for the reason with this id.
fn status(reason: &str) -> &'static str {
    if reason == "shadowed" { "shadowed" } else { "refused" }
}

fn names(formats: &[Format]) -> String {
    if formats.is_empty() {
        return "nothing".into();
    }
    printable(&formats.iter().map(|format| format.name.as_str()).collect::<Vec<_>>().join(", "))
}

/// A line with the plugin's encodings, if it has any.
fn decodes(plugin: &Plugin, explain: bool) -> String {
    match plugin.encodings() {
        [] => String::new(),
        ids if explain => format!("  decodes: {}\n", printable(&ids.join(", "))),
        ids => format!("  decodes: {} encodings\n", ids.len()),
    }
}

/// A line with the URI schemes that the plugin opens, if there are any.
fn opens(plugin: &Plugin) -> String {
    match plugin.metadata().schemes.as_slice() {
        [] => String::new(),
        schemes => {
            let uris: Vec<_> = schemes.iter().map(|scheme| format!("{scheme}://")).collect();
            format!("  opens: {}\n", printable(&uris.join(", ")))
        }
    }
}

fn chosen(candidate: &Candidate, plugin: &Plugin, explain: bool) -> String {
    let metadata = plugin.metadata();
    let mut out = format!(
        "{} {}: {}\n  reads: {}\n  writes: {}\n{}{}  from: {}\n",
        metadata.name,
        metadata.version,
        metadata.description,
        names(plugin.importer_formats()),
        names(plugin.exporter_formats()),
        decodes(plugin, explain),
        opens(plugin),
        printable(&candidate.label())
    );
    if explain {
        out += &format!("  found: {}\n", candidate.origin);
        if !metadata.required.is_empty() {
            out += &format!("  requires: {}\n", printable(&metadata.required.join(", ")));
        }
        if plugin.is_isolated() {
            out += "  runs: in a separate process\n";
        }
        let formats = plugin.importer_formats().iter().chain(plugin.exporter_formats());
        let mut rows: Vec<Vec<String>> = Vec::new();
        for format in formats {
            let row =
                vec![format!("    {}", format.name), format.extensions.join(" "), format.description.clone()];
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        out += &text::table(&["    format", "extensions", "description"], &rows, &[]);
        let uses = [("read", plugin.importer_formats()), ("written", plugin.exporter_formats())];
        let option = |format: &Format, usage: &str, option: &OptionInfo| {
            vec![format!("    {} ({usage})", format.name), option.key.clone(), option.description.clone()]
        };
        let rows: Vec<_> = uses
            .iter()
            .flat_map(|(usage, formats)| formats.iter().map(move |format| (usage, format)))
            .flat_map(|(usage, format)| format.options.iter().map(move |o| option(format, usage, o)))
            .collect();
        if !rows.is_empty() {
            out += &text::table(&["    format", "option", "meaning"], &rows, &[]);
        }
    }
    out
}

fn json_format(format: &Format) -> Value {
    json!({
        "name": format.name,
        "description": format.description,
        "bytes": format.bytes,
        "several": format.several,
        "capsules": format.capsules,
        "extensions": format.extensions,
        "device_types": format.device_types,
        "options": format.options.iter().map(|o| json!({ "key": o.key, "description": o.description }))
            .collect::<Vec<_>>(),
    })
}

fn json_verdict(verdict: &Verdict<'_>) -> Value {
    let mut out = json!({ "path": verdict.candidate.label(), "found": verdict.candidate.origin.to_string() });
    match &verdict.outcome {
        Err((id, message)) => {
            out["status"] = json!(status(id));
            out["reason"] = json!(id);
            out["message"] = json!(message);
        }
        Ok(plugin) => {
            out["status"] = json!("chosen");
            out["isolated"] = json!(plugin.is_isolated());
            out["metadata"] = super::inspect::json_metadata(plugin.metadata());
            out["reads"] = plugin.importer_formats().iter().map(json_format).collect();
            out["writes"] = plugin.exporter_formats().iter().map(json_format).collect();
            out["decodes"] = json!(plugin.encodings());
            out["opens"] = json!(plugin.metadata().schemes);
        }
    }
    out
}
