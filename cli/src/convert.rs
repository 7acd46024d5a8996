//! `crossdock convert`: converts a table from one format to another.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use crossdock::convert::{Report, Stage};
use crossdock::memory::Leak;
use crossdock::sink::Output;
use crossdock::{Host, Predicate, Session};
use serde_json::json;

use super::options::{SessionArgs, is_standard, open_input, parse_option, to_options};
use super::terminal::{self, Progress};
use crate::output::{Failure, write_output};
use crate::{inputs, text, truncated_input};

/// The value of `--columns`.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnNames(pub Vec<String>);

impl ColumnNames {
    pub fn parse(text: &str) -> Result<Self, std::convert::Infallible> {
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

/// The value of `--rows`.
#[derive(Clone, Debug, PartialEq)]
struct RowRanges(Vec<Range<u64>>);

impl RowRanges {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| format!("'{part}': expected ascending ranges A:B of row numbers");
        let number = |part: &str, default: u64| match part {
            "" => Some(default),
            _ => part.parse().ok(),
        };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for part in text.split(',') {
            let (begin, end) = part.split_once(':').ok_or_else(|| wrong(part))?;
            let (Some(begin), Some(end)) = (number(begin, 0), number(end, u64::MAX)) else {
                return Err(wrong(part));
            };
            if end < begin || ranges.last().is_some_and(|last| begin < last.end) {
                return Err(wrong(part));
            }
            ranges.push(begin..end);
        }
        Ok(Self(ranges))
    }
}

/// Parses a comparison.
pub fn parse_filter(text: &str) -> Result<Predicate, String> {
    Predicate::parse(text).map_err(|error| error.to_string())
}

#[derive(Args)]
#[command(after_help = "\
The format of IN is recognised by its first bytes, or by its file extension if these do not suffice. The format of OUT is
chosen by its file extension. --from and --to choose other formats. '-' is standard input or output; the default format of
standard output is an Arrow IPC stream. OUT is created only if the conversion succeeds.

Several input files must have the same schema. A path that does not exist and contains *, ? or [ is a pattern; ** stands for
any number of folders. The files of a pattern are ordered by their paths.

Examples:
  crossdock convert a.arrow b.arrows
  crossdock convert 'parts/*.arrow' whole.arrow
  crossdock convert --via arrow-c-device a.arrow b.arrow   Export each batch to that format and import it again
  crossdock convert --columns name,price --json a.arrow b.arrow
  crossdock convert --rows 100:200 a.arrow b.arrow
  crossdock convert --filter 'day >= 2024-02-29' --filter 'point.x < 1.5' a.arrow b.arrow
  crossdock convert a.arrow - | consumer

--json prints one object, on standard error if OUT is standard output:
  stages              The stages in order, each with
    stage             read, via, move (between devices, by the host) or write
    plugin, format    The plugin and the format
    rows, batches     The output of the stage
    bytes             Bytes of the output's buffers; for write, bytes of OUT
    time_ns, gb_per_s The time of the stage, and its bytes per time
    copied_bytes      Bytes that the stage copied: h2d (host to device), d2h, d2d, h2h
  time_ns             The total time
  peak_account_bytes  The largest peak of memory of one plugin
  leaks               Memory that was not freed, each with account, device, bytes, blocks. Not empty only if a plugin
                      has a bug")]
pub struct Convert {
    /// The input files, or '-' for standard input. Several files are read one after another
    #[arg(value_name = "IN", required = true)]
    inputs: Vec<PathBuf>,
    /// The output file, or '-' for standard output
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// The plugin or format to read with
    #[arg(long, value_name = "PLUGIN")]
    from: Option<String>,
    /// The plugin or format to write with
    #[arg(long, value_name = "PLUGIN")]
    to: Option<String>,
    /// A plugin or format to export every batch to and import it from again. May be given several
    /// times
    #[arg(long, value_name = "PLUGIN")]
    via: Vec<String>,
    /// The columns to convert, in this order and separated by commas; \, is a comma in a name and
    /// \\ a backslash. a.b is the field b of the struct a, or, without such a field, the column a.b
    #[arg(long, value_name = "NAMES", value_parser = ColumnNames::parse)]
    columns: Option<ColumnNames>,
    /// The rows to convert, as positions in all of IN: A:B, without the row B; A: to the end; :B
    /// from the start. Several ranges are ascending and separated by commas
    #[arg(long, value_name = "A:B,...", value_parser = RowRanges::parse)]
    rows: Option<RowRanges>,
    /// Converts only the rows that fulfil a comparison: a column, one of == != < <= > >=, and a
    /// value of the column's type. May be given several times; all comparisons must hold. --rows
    /// are positions before the filter
    #[arg(long, value_name = "COMPARISON", value_parser = parse_filter)]
    filter: Vec<Predicate>,
    /// The maximum number of rows to convert
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Reads IN instead of mapping it, which costs a copy but allows other processes to change or
    /// truncate IN
    #[arg(long)]
    no_map: bool,
    /// The treatment of nulls in formats that cannot represent them: an error, or data and a mask
    #[arg(long, value_name = "HOW", value_parser = ["error", "mask"])]
    nulls: Option<String>,
    /// An option of the format of IN; see crossdock plugins --explain. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option)]
    from_option: Vec<(String, String)>,
    /// An option of the format of OUT. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option)]
    to_option: Vec<(String, String)>,
    /// An option of the formats of --via. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option)]
    via_option: Vec<(String, String)>,
    /// The compression of buffers, if the format of OUT supports it. By default, OUT has the
    /// compression of IN if the same plugin reads and writes them, and IN is not a pipe
    #[arg(long, value_name = "CODEC", value_parser = ["none", "lz4", "zstd"])]
    compression: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
    /// Prints no progress and no table
    #[arg(long, short)]
    quiet: bool,
}

impl Convert {
    pub fn run(self) -> Result<(), Failure> {
        let (host, session) = self.session.open()?;
        let to_stdout = is_standard(&self.output);
        let (json, quiet) = (self.json, self.quiet);
        let result = self.convert(&session);
        drop(session);
        let leaks = host.settle();
        for leak in &leaks {
            terminal::report("warning", &format!("memory leak: {leak}"));
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
        write_output(&text)
    }

    fn convert(self, session: &Session) -> Result<Report, Failure> {
        let cancel = session.cancel_flag().clone();
        let files = inputs::expand(&self.inputs)?;
        let input = match files.as_slice() {
            [file] => {
                let input = open_input(file, &cancel)?;
                Some(if self.no_map { input.without_mapping() } else { input })
            }
            _ => None,
        };
        let output = match is_standard(&self.output) {
            true => Output::stdout(&cancel)?,
            false => Output::create(&self.output, &cancel)?,
        };
        if let Some(path) = output.temporary_path() {
            truncated_input::remove_on_signal(path);
        }
        let mut write_options = to_options(self.to_option);
        if let Some(codec) = self.compression {
            write_options = write_options.with("compression", codec);
        }
        let mut conversion = session.conversion().keep_options();
        if let Some(how) = self.nulls {
            conversion = conversion.nulls(how);
        }
        conversion = conversion.read_options(to_options(self.from_option)).write_options(write_options);
        conversion = conversion.via_options(to_options(self.via_option));
        if let Some(name) = self.from {
            conversion = conversion.from(name);
        }
        if let Some(name) = self.to {
            conversion = conversion.to(name);
        }
        if let Some(ColumnNames(columns)) = self.columns {
            conversion = conversion.columns(columns);
        }
        if let Some(RowRanges(rows)) = self.rows {
            conversion = conversion.rows(rows);
        }
        conversion = conversion.filter(self.filter);
        if let Some(rows) = self.limit {
            conversion = conversion.limit(rows);
        }
        for name in self.via {
            conversion = conversion.via(name);
        }
        let bar = if self.quiet { None } else { Progress::show() };
        if let Some(bar) = &bar {
            conversion = conversion.progress(Arc::new(bar.listener()));
        }
        let pipe = match &output {
            Output::Stream(pipe) if is_standard(&self.output) => Some(pipe.clone()),
            _ => None,
        };
        let report = match input {
            Some(input) => conversion.run(input, output),
            None => conversion.run_files(files, !self.no_map, output),
        };
        report.map_err(|error| match pipe {
            Some(pipe) if pipe.reader_closed() => Failure::ReaderClosed,
            _ => error.into(),
        })
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
    use super::{ColumnNames, RowRanges};

    #[test]
    fn row_ranges_may_be_open_but_must_ascend() {
        let rows = |text| RowRanges::parse(text).map(|RowRanges(rows)| rows);
        assert_eq!(rows("2:5"), Ok(vec![2..5]));
        assert_eq!(rows(":3,3:4,7:"), Ok(vec![0..3, 3..4, 7..u64::MAX]));
        for text in ["", "5", "5:2", "0:3,2:4", "a:b", "1:2:3", "-1:2"] {
            assert!(rows(text).unwrap_err().contains("ascending"), "{text}");
        }
    }

    #[test]
    fn column_names_may_contain_commas_and_backslashes() {
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
