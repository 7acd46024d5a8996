//! Plans what a conversion would copy, column by column.

use crossdock_arrays::field_type_name;
use crossdock_plugin_api::{ColumnPlan, Device, Options, Verdict};

use super::via::Via;
use crate::decode::Watch;
use crate::error::Result;
use crate::read_options::ReadOptions;
use crate::reader::Reader;
use crate::session::Session;
use crate::source::Input;

/// The plan for an input.
#[derive(Clone, Debug)]
pub struct PlanReport {
    /// The name of the plugin that would write the output.
    pub plugin: String,
    /// The name of the format that the plugin would write.
    pub format: String,
    /// The device of the batches before the conversion.
    pub from: Device,
    /// The number of rows in the input.
    pub rows: u64,
    /// The number of batches in the input.
    pub batches: u64,
    /// One entry for each column, in the schema's order.
    pub columns: Vec<ColumnReport>,
}

/// The plan for one column.
#[derive(Clone, Debug)]
pub struct ColumnReport {
    /// The column's name.
    pub name: String,
    /// The column's Arrow type, as `type_name` of crossdock-arrays prints it.
    pub data_type: String,
    /// What would happen to the column's bytes.
    pub verdict: Verdict,
    /// The device of the column's bytes after the conversion.
    pub to: Device,
    /// The plugin's explanation of the verdict; may be empty.
    pub reason: String,
    /// The number of bytes in the column's buffers; `None` if the length of a buffer is unknown.
    pub bytes: Option<u64>,
    /// The encodings of the column that are decoded on the CPU although the batches are on another
    /// device. Includes columns of the same name in other reads of the session at the same time.
    pub decoded_on_host: Vec<String>,
}

impl PlanReport {
    /// The number of bytes in all columns that would be converted or copied. Columns of unknown
    /// length are not counted.
    pub fn bytes_moved(&self) -> u64 {
        let moved = self.columns.iter().filter(|c| matches!(c.verdict, Verdict::Converted | Verdict::Copied));
        moved.filter_map(|c| c.bytes).sum()
    }
}

impl Session {
    /// Returns what an exporter would do to the batches of `input`. `to` is the name of the
    /// exporter's plugin or of its format, which may be a format of capsules or of bytes. Reads the
    /// input to its end to add up the bytes of each column.
    pub fn plan(&self, input: Input, read: &ReadOptions, to: &str, options: &Options) -> Result<PlanReport> {
        let named = std::iter::once(to).chain(read.from.as_deref());
        self.plugins_without_warnings(&named.collect::<Vec<_>>());
        let choice = self.choose(Some(to), |registry| registry.choose_export(to, self.device().r#type))?;
        let (plugin, format) = (choice.plugin.name().to_string(), choice.format.name.clone());
        let decodes = self.host_decodes().watch();
        let mut reader = self.read(input, read)?;
        let columns = self.plan_columns_of(&choice, reader.schema(), self.device(), options)?;
        self.report(&mut reader, &decodes, (plugin, format), columns)
    }

    /// Like [`Self::plan`], for batches that pass through the format `via` as in
    /// [`Conversion::via`](super::Conversion::via). The plan reports a column as unsupported if
    /// `via` would change the column.
    pub fn plan_via(
        &self,
        input: Input,
        read: &ReadOptions,
        via: &str,
        options: &Options,
    ) -> Result<PlanReport> {
        let named = std::iter::once(via).chain(read.from.as_deref());
        self.plugins_without_warnings(&named.collect::<Vec<_>>());
        let decodes = self.host_decodes().watch();
        let mut reader = self.read(input, read)?;
        let via = Via::choose(self, via, reader.schema(), options)?;
        let (plugin, format) = (via.plugin().name().to_string(), via.format().to_string());
        self.report(&mut reader, &decodes, (plugin, format), via.plan()?)
    }

    fn report(
        &self,
        reader: &mut Reader,
        decodes: &Watch<'_>,
        (plugin, format): (String, String),
        columns: Vec<ColumnPlan>,
    ) -> Result<PlanReport> {
        let schema = reader.schema().clone();
        let mut columns: Vec<_> = columns
            .into_iter()
            .zip(schema.fields())
            .map(|(verdict, field)| ColumnReport {
                name: field.name().clone(),
                data_type: field_type_name(field),
                verdict: verdict.verdict,
                to: verdict.to,
                reason: verdict.reason,
                bytes: Some(0),
                decoded_on_host: Vec::new(),
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
        for column in &mut columns {
            column.decoded_on_host = decodes.encodings(&column.name);
        }
        Ok(PlanReport { plugin, format, from: self.device(), rows, batches, columns })
    }
}
