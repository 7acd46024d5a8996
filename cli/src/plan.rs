//! `crossdock plan`.

use std::path::PathBuf;

use clap::Args;
use crossdock::ReadOptions;
use crossdock::convert::{ColumnReport, PlanReport};
use serde_json::json;

use super::options::{Work, open_input, parse_option, wishes};
use crate::answer::{Failure, answer};
use crate::text;

#[derive(Args)]
#[command(after_help = "\
The input is read to its end, for the bytes of each column.

--to asks what writing would do to each column; --via what convert --via would: the batches go out and come back in, and a
column that would not come back as it was is unsupported.

Examples:
  crossdock plan flights.arrow --to arrow-c-device
  crossdock plan flights.arrow --via dlpack --via-option nulls=mask

--json prints one object:
  plugin, format, from   who would write, as what, and the device where batches would come from
  rows, batches          of the input
  bytes_moved            bytes of the columns that would be converted or copied
  columns                in order, each with
    name, type, bytes    as in the input; bytes is null where a length is unknown
    verdict              zero-copy, converted, copied or unsupported
    to, reason           the device where it would be, and by what or why")]
pub struct Plan {
    /// What to read; '-' for standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    #[command(flatten)]
    asked: Asked,
    /// The plugin or format to read with
    #[arg(long, value_name = "PLUGIN")]
    from: Option<String>,
    /// What the format that is read understands; see crossdock plugins --explain. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option)]
    from_option: Vec<(String, String)>,
    /// What the format that would write understands
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option, requires = "to")]
    to_option: Vec<(String, String)>,
    /// What the format that batches would be sent through understands
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option, requires = "via")]
    via_option: Vec<(String, String)>,
    #[command(flatten)]
    work: Work,
    /// Prints the plan as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Asked {
    /// The plugin or format that would write
    #[arg(long, value_name = "PLUGIN")]
    to: Option<String>,
    /// The plugin or format that batches would be sent through
    #[arg(long, value_name = "PLUGIN")]
    via: Option<String>,
}

impl Plan {
    pub fn run(self) -> Result<(), Failure> {
        let (_host, session) = self.work.session()?;
        let input = open_input(&self.input, session.cancel_flag())?;
        let options = wishes(self.from_option);
        let read = ReadOptions { from: self.from, options, ..ReadOptions::default() };
        let (plan, done) = match (self.asked.to, self.asked.via) {
            (_, Some(via)) => {
                (session.plan_via(input, &read, &via, &wishes(self.via_option))?, "sent through")
            }
            (to, None) => {
                let to = to.unwrap_or_default();
                (session.plan(input, &read, &to, &wishes(self.to_option))?, "written as")
            }
        };
        answer(&if self.json { json_plan(&plan).to_string() } else { table(&plan, done) })
    }
}

fn table(plan: &PlanReport, done: &str) -> String {
    let row = |column: &ColumnReport| {
        vec![
            column.name.clone(),
            column.data_type.clone(),
            column.bytes.map_or_else(|| "unknown".into(), text::bytes),
            column.verdict.to_string(),
            column.to.to_string(),
            column.reason.clone(),
        ]
    };
    let rows: Vec<_> = plan.columns.iter().map(row).collect();
    let table = text::table(&["column", "type", "bytes", "verdict", "to", "reason"], &rows, &["bytes"]);
    format!(
        "{} rows in {} batches on {}, {done} {} by {}: {} to be moved\n{table}",
        text::count(plan.rows),
        text::count(plan.batches),
        plan.from,
        plan.format,
        plan.plugin,
        text::bytes(plan.bytes_moved())
    )
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
