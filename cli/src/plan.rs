//! `crossdock plan`: shows what a conversion would copy.

use std::path::PathBuf;

use clap::Args;
use crossdock::ReadOptions;
use crossdock::convert::{ColumnReport, PlanReport};
use serde_json::json;

use super::options::{SessionArgs, StorageArgs, open_input, parse_option, to_options};
use crate::output::{Failure, write_output};
use crate::text;

#[derive(Args)]
#[command(after_help = "\
The input is read to its end, to count the bytes of each column.

--to shows what writing would do to each column. --via shows what `crossdock convert --via` would do, which exports each
batch and imports it again. A column is unsupported if its type would change.

Examples:
  crossdock plan flights.arrow --to arrow-c-device
  crossdock plan flights.arrow --via dlpack --via-option nulls=mask

--json prints one object:
  plugin, format, from   The plugin and format that would write, and the device of the batches
  rows, batches          The size of the input
  bytes_moved            Bytes of the columns that would be converted or copied
  columns                The columns in order, each with
    name, type, bytes    As in the input; bytes is null if a length is unknown
    verdict              zero-copy, converted, copied or unsupported
    to, reason           The device of the result, and the reason of the verdict
    decoded_on_host      The encodings that are decoded on the host, although the batches are on another device")]
pub struct Plan {
    /// The input file, or '-' for standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    #[command(flatten)]
    target: Target,
    /// The plugin or format to read with
    #[arg(long, value_name = "PLUGIN")]
    from: Option<String>,
    /// An option of the format of IN; see crossdock plugins --explain. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option)]
    from_option: Vec<(String, String)>,
    /// An option of the format of --to. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option, requires = "to")]
    to_option: Vec<(String, String)>,
    /// An option of the format of --via. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option, requires = "via")]
    via_option: Vec<(String, String)>,
    #[command(flatten)]
    storage: StorageArgs,
    #[command(flatten)]
    session: SessionArgs,
    /// Prints the plan as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// The plugin or format to write with
    #[arg(long, value_name = "PLUGIN")]
    to: Option<String>,
    /// The plugin or format to export every batch to and import it from again
    #[arg(long, value_name = "PLUGIN")]
    via: Option<String>,
}

impl Plan {
    pub fn run(self) -> Result<(), Failure> {
        let (_host, session) = self.session.open()?;
        let input = open_input(&session, &self.input, &self.storage)?;
        let options = to_options(self.from_option);
        let read = ReadOptions { from: self.from, options, ..ReadOptions::default() };
        let (plan, action) = match (self.target.to, self.target.via) {
            (_, Some(via)) => {
                (session.plan_via(input, &read, &via, &to_options(self.via_option))?, "sent through")
            }
            (to, None) => {
                let to = to.unwrap_or_default();
                (session.plan(input, &read, &to, &to_options(self.to_option))?, "written as")
            }
        };
        write_output(&if self.json { json_plan(&plan).to_string() } else { table(&plan, action) })
    }
}

fn table(plan: &PlanReport, action: &str) -> String {
    let row = |column: &ColumnReport| {
        vec![
            column.name.clone(),
            column.data_type.clone(),
            column.bytes.map_or_else(|| "unknown".into(), text::bytes),
            column.verdict.to_string(),
            column.to.to_string(),
            reason(column),
        ]
    };
    let rows: Vec<_> = plan.columns.iter().map(row).collect();
    let table = text::table(&["column", "type", "bytes", "verdict", "to", "reason"], &rows, &["bytes"]);
    format!(
        "{} rows in {} batches on {}, {action} {} by {}: {} to be moved\n{table}",
        text::count(plan.rows),
        text::count(plan.batches),
        plan.from,
        plan.format,
        plan.plugin,
        text::bytes(plan.bytes_moved())
    )
}

/// The reason of the verdict, and the encodings that are decoded on the host.
fn reason(column: &ColumnReport) -> String {
    if column.decoded_on_host.is_empty() {
        return column.reason.clone();
    }
    let decoded = format!("decoded on the host: {}", column.decoded_on_host.join(", "));
    if column.reason.is_empty() { decoded } else { format!("{}; {decoded}", column.reason) }
}

fn json_plan(plan: &PlanReport) -> serde_json::Value {
    let column = |column: &ColumnReport| {
        json!({
            "name": column.name,
            "type": column.data_type,
            "bytes": column.bytes,
            "verdict": column.verdict.to_string(),
            "to": column.to.to_string(),
            "reason": column.reason,
            "decoded_on_host": column.decoded_on_host,
        })
    };
    json!({
        "plugin": plan.plugin,
        "format": plan.format,
        "from": plan.from.to_string(),
        "rows": plan.rows,
        "batches": plan.batches,
        "bytes_moved": plan.bytes_moved(),
        "columns": plan.columns.iter().map(column).collect::<Vec<_>>(),
    })
}
