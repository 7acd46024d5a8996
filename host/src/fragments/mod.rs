//! Lists the pieces of an input that can be read independently.

mod statistics;
mod token;

use std::ops::Range;
use std::sync::Arc;

use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::{Input as ApiInput, ReadRequest, Source};

use crate::error::Result;
use crate::plugin::Plugin;
use crate::read_options::ReadOptions;
use crate::registry::Choice;
use crate::session::Session;
use crate::source::Input;
use crate::tracing_hooks;
use crate::whole_ranges;
pub use statistics::check_schema as check_statistics_schema;
pub(crate) use token::{ReaderName, Token};

/// A piece of an input.
pub(crate) struct Piece {
    pub token: Token,
    /// The number of rows, if it is known.
    pub n_rows: Option<u64>,
    /// The bytes of the input to read for all columns; 0 if unknown.
    pub bytes: u64,
    pub statistics: Option<DeviceBatch>,
}

impl ReaderName {
    pub fn new(plugin: &Plugin, format: &str) -> Self {
        let metadata = plugin.metadata();
        Self {
            plugin: metadata.name.clone(),
            version: metadata.version.to_string(),
            format: format.to_owned(),
        }
    }
}

impl Session {
    /// Lists the pieces of an input. `options` select a format and, with a token, a piece. The rows
    /// and the limit are ignored.
    ///
    /// # Errors
    /// Like [`Session::read`].
    pub(crate) fn pieces(&self, input: &Input, options: &ReadOptions) -> Result<Vec<Piece>> {
        let identity = input.identity()?;
        let choice = self.recognise(input, options.from.as_deref())?;
        let Choice { plugin, format } = Choice { plugin: self.working_instance(choice.plugin)?, ..choice };
        let reader = ReaderName::new(&plugin, &format.name);
        let whole = |piece, rows| Token { reader: reader.clone(), input: identity.clone(), piece, rows };
        if options.fragment.is_none() && plugin.importer()?.has_fragments() {
            let what = format!("list the fragments of '{}'", input.name());
            let failed = |error| plugin.failed(&*what, error);
            let source =
                Source::new(tracing_hooks::source(whole_ranges::source(input.shared()), plugin.account()));
            let request = ReadRequest::new(&format.name).with_options(&options.options);
            let importer = plugin.importer()?;
            let input = match format.several {
                true => ApiInput::Sources(vec![source]),
                false => ApiInput::Source(source),
            };
            let list = || importer.fragments(&self.call_for_bytes(), input, &request);
            let list = plugin.account().trace_host_call("importer.fragments", list).map_err(failed)?;
            let piece = |fragment: crossdock_plugin_api::Fragment| {
                let statistics = fragment.statistics.map(|batch| self.import_statistics(&plugin, batch));
                Ok(Piece {
                    token: whole(Some(fragment.token), None),
                    n_rows: fragment.n_rows,
                    bytes: fragment.bytes,
                    statistics: statistics.transpose()?,
                })
            };
            return list.into_iter().map(piece).collect();
        }
        let token = match &options.fragment {
            None => whole(None, None),
            Some(bytes) => Token::from_bytes(bytes)?,
        };
        // Opening also checks the token.
        let n_rows = self.count_rows(input, options)?;
        let bytes = input.source().len().unwrap_or(0);
        Ok(vec![Piece { token, n_rows, bytes, statistics: None }])
    }

    /// The number of rows of an input, if its metadata contains it. The rows, the filter and the
    /// limit of the options are ignored.
    pub(crate) fn count_rows(&self, input: &Input, options: &ReadOptions) -> Result<Option<u64>> {
        let options =
            ReadOptions { rows: None, limit: None, filter: Vec::new(), row_count: true, ..options.clone() };
        Ok(self.read_shared(input.clone(), &options)?.n_rows())
    }

    /// Checks the token of the options. Returns the plugin's token, and the rows of the piece.
    #[allow(clippy::type_complexity)]
    pub(crate) fn checked_piece(
        &self,
        input: &Input,
        plugin: &Plugin,
        format: &str,
        token: Option<&Arc<[u8]>>,
    ) -> Result<(Option<Vec<u8>>, Option<Vec<Range<u64>>>)> {
        let Some(bytes) = token else { return Ok((None, None)) };
        let token = Token::from_bytes(bytes)?;
        token.check(input.name(), &ReaderName::new(plugin, format), &input.identity()?)?;
        Ok((token.piece, token.rows))
    }
}
