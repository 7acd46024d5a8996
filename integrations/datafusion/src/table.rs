//! The table provider.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use crossdock::{ColumnName, ScanOptions, ScanSource, Session};
use datafusion::catalog::{Session as QuerySession, TableProvider};
use datafusion::common::Result;
use datafusion::common::stats::{Precision, Statistics};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::StreamingTableExec;
use tokio::runtime::Handle;

use crate::batches;
use crate::filters::predicate;
use crate::partitions::{divide, external};

/// A table of DataFusion that reads from a scan. Batches on a GPU are copied to the host.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use crossdock::{Host, ScanOptions, ScanSource};
/// use crossdock_datafusion::ScanTable;
/// use datafusion::prelude::SessionContext;
///
/// let session = Host::builder().build()?.session().open()?;
/// let source = ScanSource::Files(vec!["flights.vortex".into()]);
/// let table = ScanTable::try_new(&session, source, ScanOptions::default())?;
/// let context = SessionContext::new();
/// context.register_table("flights", Arc::new(table))?;
/// let query = context.sql("SELECT count(*) FROM flights WHERE distance > 500").await?;
/// query.show().await?;
/// # Ok(())
/// # }
/// ```
pub struct ScanTable {
    session: Session,
    source: ScanSource,
    options: ScanOptions,
    schema: SchemaRef,
    n_rows: Option<u64>,
    runtime: Option<Handle>,
}

impl ScanTable {
    /// Describes a table. Opens the first input to read its schema.
    ///
    /// # Errors
    /// The errors of [`Session::scan`], and types that DataFusion's version of Arrow lacks.
    pub fn try_new(session: &Session, source: ScanSource, options: ScanOptions) -> Result<Self> {
        let scan = session.scan(source.clone(), options.clone()).map_err(external)?;
        if scan.is_once() {
            return Err(DataFusionError::Plan(
                "a table that is read several times, but its input can be read only once: expected files"
                    .into(),
            ));
        }
        let (schema, n_rows) = (batches::schema(scan.schema())?, scan.n_rows());
        Ok(Self { session: session.clone(), source, options, schema, n_rows, runtime: None })
    }

    /// Opens files on threads of this runtime. By default, they are those of the runtime of the
    /// query, which must be a runtime of this module's version of Tokio.
    pub fn with_runtime(self, runtime: Handle) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// Whether comparisons may be passed to the scan. A limit of the scan counts the rows that
    /// fulfil the scan's own filter, so that another filter would change the result.
    fn accepts_filters(&self) -> bool {
        self.options.read.limit.is_none()
    }
}

impl fmt::Debug for ScanTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanTable").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for ScanTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match predicate(filter) {
            Some((_, support)) if self.accepts_filters() => support,
            _ => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        let rows = usize::try_from(self.n_rows?).ok()?;
        let is_whole = self.options.read.filter.is_empty();
        let unknown = Statistics::new_unknown(&self.schema);
        Some(Statistics {
            num_rows: if is_whole { Precision::Exact(rows) } else { Precision::Absent },
            ..unknown
        })
    }

    async fn scan(
        &self,
        state: &dyn QuerySession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut options = self.options.clone();
        let mut schema = self.schema.clone();
        if let Some(indices) = projection {
            schema = Arc::new(schema.project(indices)?);
            options.read.columns = Some(match &self.options.read.columns {
                Some(columns) => indices.iter().filter_map(|i| columns.get(*i)).cloned().collect(),
                None => schema.fields().iter().map(|f| ColumnName::Path(vec![f.name().clone()])).collect(),
            });
        }
        let predicates = filters.iter().filter_map(predicate).map(|(predicate, _)| predicate);
        options.read.filter.extend(predicates.filter(|_| self.accepts_filters()));
        if options.read.filter.is_empty() {
            let rows = limit.map(|rows| rows as u64);
            options.read.limit = options.read.limit.into_iter().chain(rows).min();
        }
        let (session, source) = (self.session.clone(), self.source.clone());
        let n = state.config().target_partitions();
        let of_partitions = schema.clone();
        // Opening files blocks.
        let open = move || {
            let scan = session.scan(source, options).map_err(external)?;
            divide(&scan, &of_partitions, n)
        };
        let partitions = match &self.runtime {
            Some(runtime) => runtime.spawn_blocking(open),
            None => tokio::task::spawn_blocking(open),
        };
        let partitions = partitions.await.map_err(|error| DataFusionError::External(error.into()))??;
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, None, false, limit)?))
    }
}
