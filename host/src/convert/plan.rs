//! What a conversion would copy, column by column.

use crossdock_plugin_api::{Device, Options, Verdict};

use crate::error::Result;
use crate::reader::ReadOptions;
use crate::session::Session;
use crate::source::Input;

/// A plan for a whole input.
#[derive(Clone, Debug)]
pub struct PlanReport {
    /// Who would write.
    pub plugin: String,
    /// As what.
    pub format: String,
    /// Where the batches would come from.
    pub from: Device,
    /// Rows of the input.
    pub rows: u64,
    /// Batches of the input.
    pub batches: u64,
    /// In the schema's order.
    pub columns: Vec<ColumnReport>,
}

/// One column's fate.
#[derive(Clone, Debug)]
pub struct ColumnReport {
    /// Its name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: String,
    /// What would happen to its bytes.
    pub verdict: Verdict,
    /// Where they would be afterwards.
    pub to: Device,
    /// By what, or why; may be empty.
    pub reason: String,
    /// Bytes of its buffers; `None` where a length is unknown.
    pub bytes: Option<u64>,
}

impl PlanReport {
    /// Bytes of the columns that would be converted or copied; those of unknown length not counted.
    pub fn bytes_moved(&self) -> u64 {
        let moved = self.columns.iter().filter(|c| matches!(c.verdict, Verdict::Converted | Verdict::Copied));
        moved.filter_map(|c| c.bytes).sum()
    }
}

impl Session {
    /// Asks the exporter that `to` names (a plugin or a format, of capsules or bytes) what it would do to the batches of
    /// `input`, and adds up the bytes of each column, for which the input is read to its end.
    pub fn plan(&self, input: Input, read: &ReadOptions, to: &str, options: &Options) -> Result<PlanReport> {
        let named = std::iter::once(to).chain(read.from.as_deref());
        self.plugins_quiet_about(&named.collect::<Vec<_>>());
        let choice = self.choose(Some(to), |registry| registry.choose_export(to, self.device().r#type))?;
        let mut reader = self.read(input, read)?;
        let schema = reader.schema().clone();
        let verdicts = self.plan_columns(to, &schema, self.device(), options)?;
        let mut columns: Vec<_> = verdicts
            .into_iter()
            .zip(schema.fields())
            .map(|(verdict, field)| ColumnReport {
                name: field.name().clone(),
                data_type: field.data_type().to_string(),
                verdict: verdict.verdict,
                to: verdict.to,
                reason: verdict.reason,
                bytes: Some(0),
            })
            .collect();
        let (mut rows, mut batches) = (0, 0);
        while let Some(batch) = reader.next()? {
            rows += batch.len() as u64;
            batches += 1;
            for (i, column) in columns.iter_mut().enumerate() {
                column.bytes =
                    column.bytes.zip(batch.column_bytes(i)).map(|(sum, bytes)| sum.saturating_add(bytes));
            }
        }
        let (plugin, format) = (choice.plugin.name().to_string(), choice.format.name);
        Ok(PlanReport { plugin, format, from: self.device(), rows, batches, columns })
    }
}
