//! `crossdock convert`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use crossdock::convert::{Report, Stage};
use crossdock::memory::Leak;
use crossdock::sink::Output;
use crossdock::{Host, Session};
use serde_json::json;

use super::options::{Work, is_standard, open_input, parse_option, wishes};
use super::terminal::{self, Progress, complain};
use crate::answer::{Failure, answer};
use crate::{cut_short, text};

/// What `--columns` names.
#[derive(Clone, Debug, PartialEq)]
struct ColumnNames(Vec<String>);

impl ColumnNames {
    fn parse(text: &str) -> Result<Self, std::convert::Infallible> {
        let (mut names, mut name, mut letters) = (Vec::new(), String::new(), text.chars().peekable());
        while let Some(letter) = letters.next() {
            match (letter, letters.peek()) {
                (',', _) => names.push(std::mem::take(&mut name)),
                ('\\', Some(&(',' | '\\'))) => name.extend(letters.next()),
                _ => name.push(letter),
            }
        }
        names.push(name);
        Ok(Self(names))
    }
}

#[derive(Args)]
#[command(after_help = "\
IN is recognised by its first bytes, then by its ending; OUT by its ending; --from and --to say otherwise. '-' is standard
input or output, which is written as the format that claims it: an Arrow IPC stream. OUT appears whole or not at all.

Examples:
  crossdock convert a.arrow b.arrows
  crossdock convert --via arrow-c-device a.arrow b.arrow   out through that plugin and back in
  crossdock convert --columns name,price --json a.arrow b.arrow
  crossdock convert a.arrow - | consumer

--json prints one object, on standard error where standard output is OUT:
  stages              in order, each with
    stage             read, via, move (between devices, by the host) or write
    plugin, format    by whom, as what
    rows, batches     that came out of it
    bytes             of their buffers; of a write, bytes of OUT
    time_ns, gb_per_s spent in it, and bytes over that time
    copied_bytes      what it copied: h2d (host to device), d2h, d2d, h2h
  time_ns             from start to end
  peak_account_bytes  the most that one of the plugins' accounts held at once
  leaks               what was not given back, each with account, device, bytes, blocks; empty unless a plugin is at fault")]
pub struct Convert {
    /// What to read; '-' for standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// What to write; '-' for standard output
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// The plugin or format to read with
    #[arg(long, value_name = "PLUGIN")]
    from: Option<String>,
    /// The plugin or format to write with
    #[arg(long, value_name = "PLUGIN")]
    to: Option<String>,
    /// Sends every batch out through this plugin or format and back in. May be given several times
    #[arg(long, value_name = "PLUGIN")]
    via: Vec<String>,
    /// Only these columns, in this order, with commas between them; \, is a comma of a name and \\ a backslash
    #[arg(long, value_name = "NAMES", value_parser = ColumnNames::parse)]
    columns: Option<ColumnNames>,
    /// Reads IN and never maps it: others may then write to it or cut it short meanwhile, in return for a copy
    #[arg(long)]
    no_map: bool,
    /// What to do with nulls in formats that have none: error, or data and mask
    #[arg(long, value_name = "HOW", value_parser = ["error", "mask"])]
    nulls: Option<String>,
    /// What the format that is read understands; see crossdock plugins --explain. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option)]
    from_option: Vec<(String, String)>,
    /// What the format that is written understands
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option)]
    to_option: Vec<(String, String)>,
    /// What formats that batches are sent through understand
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option)]
    via_option: Vec<(String, String)>,
    /// How to compress buffers, where the target can
    #[arg(long, value_name = "CODEC", value_parser = ["none", "lz4", "zstd"])]
    compression: Option<String>,
    #[command(flatten)]
    work: Work,
    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
    /// Prints no progress and no table
    #[arg(long, short)]
    quiet: bool,
}

impl Convert {
    pub fn run(self) -> Result<(), Failure> {
        let (host, session) = self.work.session()?;
        let to_stdout = is_standard(&self.output);
        let (json, quiet) = (self.json, self.quiet);
        let result = self.convert(&session);
        drop(session);
        let leaks = host.settle();
        for leak in &leaks {
            complain("warning", &format!("not given back: {leak}"));
        }
        let report = result?;
        let text = match () {
            () if json => json_report(&report, &leaks, &host).to_string(),
            () if quiet => return Ok(()),
            () => table(&report),
        };
        if to_stdout {
            terminal::print(&text);
            return Ok(());
        }
        answer(&text)
    }

    fn convert(self, session: &Session) -> Result<Report, Failure> {
        let cancel = session.cancel_flag().clone();
        let input = open_input(&self.input, &cancel)?;
        let input = if self.no_map { input.without_mapping() } else { input };
        let output = match is_standard(&self.output) {
            true => Output::stdout(&cancel)?,
            false => Output::create(&self.output, &cancel)?,
        };
        if let Some(path) = output.unfinished() {
            cut_short::removes(path);
        }
        let mut to = wishes(self.to_option);
        if let Some(codec) = self.compression {
            to = to.with("compression", codec);
        }
        let mut conversion = session.conversion();
        if let Some(how) = self.nulls {
            conversion = conversion.nulls(how);
        }
        conversion = conversion.read_options(wishes(self.from_option)).write_options(to);
        conversion = conversion.via_options(wishes(self.via_option));
        if let Some(name) = self.from {
            conversion = conversion.from(name);
        }
        if let Some(name) = self.to {
            conversion = conversion.to(name);
        }
        if let Some(ColumnNames(columns)) = self.columns {
            conversion = conversion.columns(columns);
        }
        for name in self.via {
            conversion = conversion.via(name);
        }
        let bar = if self.quiet { None } else { Progress::show() };
        if let Some(bar) = &bar {
            conversion = conversion.progress(Arc::new(bar.listener()));
        }
        Ok(conversion.run(input, output)?)
    }
}

fn table(report: &Report) -> String {
    let row = |stage: &Stage| {
        let copied = &stage.copied;
        vec![
            format!("{} {}", stage.kind, stage.format),
            text::count(stage.rows),
            text::bytes(stage.bytes),
            text::time(stage.time),
            format!("{:.2}", stage.gigabytes_per_second()),
            text::bytes(copied.host_to_device.bytes),
            text::bytes(copied.device_to_host.bytes),
            text::bytes(copied.device_to_device.bytes),
            text::bytes(copied.host_to_host.bytes),
        ]
    };
    let rows: Vec<_> = report.stages.iter().map(row).collect();
    let numbers = ["rows", "bytes", "time", "GB/s", "H2D", "D2H", "D2D", "H2H"];
    let heading = ["stage", "rows", "bytes", "time", "GB/s", "H2D", "D2H", "D2D", "H2H"];
    text::table(&heading, &rows, &numbers) + &format!("total {}\n", text::time(report.time))
}

fn json_report(report: &Report, leaks: &[Leak], host: &Host) -> serde_json::Value {
    let stage = |stage: &Stage| {
        json!({
            "stage": stage.kind,
            "plugin": stage.plugin,
            "format": stage.format,
            "rows": stage.rows,
            "batches": stage.batches,
            "bytes": stage.bytes,
            "time_ns": u64::try_from(stage.time.as_nanos()).unwrap_or(u64::MAX),
            "gb_per_s": stage.gigabytes_per_second(),
            "copied_bytes": {
                "h2d": stage.copied.host_to_device.bytes,
                "d2h": stage.copied.device_to_host.bytes,
                "d2d": stage.copied.device_to_device.bytes,
                "h2h": stage.copied.host_to_host.bytes,
            },
        })
    };
    let leak = |leak: &Leak| {
        json!({
            "account": leak.account,
            "device": leak.device.to_string(),
            "bytes": leak.bytes,
            "blocks": leak.blocks,
            "streams": leak.streams,
            "events": leak.events,
            "references": leak.references,
        })
    };
    let peaks = host.ledger().accounts;
    let peak: u64 = peaks.iter().flat_map(|a| &a.devices).map(|d| d.peak_bytes).max().unwrap_or(0);
    json!({
        "stages": report.stages.iter().map(stage).collect::<Vec<_>>(),
        "time_ns": u64::try_from(report.time.as_nanos()).unwrap_or(u64::MAX),
        "peak_account_bytes": peak,
        "leaks": leaks.iter().map(leak).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::ColumnNames;

    #[test]
    fn names_of_columns_may_have_commas_and_backslashes() {
        for (text, names) in [
            ("a,b", &["a", "b"][..]),
            (r"a\,b,c", &["a,b", "c"]),
            (r"a\\,b", &[r"a\", "b"]),
            (r"a\b,", &[r"a\b", ""]),
            (r"a\", &[r"a\"]),
        ] {
            assert_eq!(
                ColumnNames::parse(text),
                Ok(ColumnNames(names.iter().map(|&n| n.to_owned()).collect()))
            );
        }
    }
}
