//! `crossdock show`: prints the first rows of tables.

use std::path::PathBuf;

use clap::Args;
use crossdock::{Predicate, ReadOptions, Scan, ScanOptions, ScanSource};

use crate::convert::{ColumnNames, parse_filter};
use crate::inputs;
use crate::inspect_table::{json_schema, text_schema};
use crate::options::{SessionArgs, is_standard, open_input, parse_option, to_options};
use crate::output::{Failure, write_output};

#[derive(Args)]
#[command(after_help = "\
The command reads no more of the files than it needs. Several files must have the same schema, and are shown as one table.
A path may be a pattern, as in crossdock convert.

Examples:
  crossdock show flights.arrow
  crossdock show --rows 3 --columns carrier,distance *.arrow
  crossdock show --schema flights.arrow
  crossdock show --json flights.arrow | jq .rows[0]

--json prints one object: columns (each with name, type, nullable, metadata), metadata and, without --schema, rows (each an
object). Decimals, dates, times and floats that are not finite are strings; binary values are hexadecimal digits.")]
pub struct Show {
    /// The files of the table, or '-' for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The maximum number of rows to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    rows: u64,
    /// The columns to show, as in crossdock convert
    #[arg(long, value_name = "NAMES", value_parser = ColumnNames::parse)]
    columns: Option<ColumnNames>,
    /// Shows only the rows that fulfil a comparison, as in crossdock convert
    #[arg(long, value_name = "COMPARISON", value_parser = parse_filter)]
    filter: Vec<Predicate>,
    /// Shows only the names and types of the columns
    #[arg(long)]
    schema: bool,
    /// The plugin or format to read with
    #[arg(long, value_name = "PLUGIN")]
    from: Option<String>,
    /// An option of the format; see crossdock plugins --explain. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_option)]
    from_option: Vec<(String, String)>,
    #[command(flatten)]
    session: SessionArgs,
    /// Prints the result as JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    pub fn run(self) -> Result<(), Failure> {
        let (_, session) = self.session.open()?;
        let read = ReadOptions {
            from: self.from.clone(),
            options: to_options(self.from_option.clone()),
            columns: self
                .columns
                .clone()
                .map(|ColumnNames(names)| names.into_iter().map(Into::into).collect()),
            filter: self.filter.clone(),
            ..ReadOptions::default()
        };
        let files = inputs::expand(&self.files)?;
        let source = match files.as_slice() {
            [file] if is_standard(file) => ScanSource::Input(open_input(file, session.cancel_flag())?),
            _ => ScanSource::Files(files),
        };
        let scan = session.scan(source, ScanOptions { read, prefetch: 0, ..ScanOptions::default() })?;
        write_output(&if self.json { self.as_json(&scan)? } else { self.as_text(&scan)? })
    }

    fn as_text(&self, scan: &Scan) -> Result<String, Failure> {
        if self.schema {
            return Ok(text_schema(scan.schema()));
        }
        // One more row is read, to find out whether there are more rows.
        let table = scan.head(self.rows.saturating_add(1))?;
        let mut text = table.slice(0, self.rows)?.format(usize::try_from(self.rows).unwrap_or(usize::MAX))?;
        if table.rows() > self.rows {
            match scan.n_rows() {
                Some(n_rows) => text += &format!("... {} more rows\n", n_rows - self.rows),
                None => text += "... more rows\n",
            }
        }
        Ok(text)
    }

    fn as_json(&self, scan: &Scan) -> Result<String, Failure> {
        let mut text = json_schema(scan.schema()).to_string();
        if !self.schema {
            let rows = scan.head(self.rows)?.json_rows()?;
            text.pop();
            text += &format!(",\"rows\":[{}]}}", rows.join(","));
        }
        Ok(text)
    }
}
