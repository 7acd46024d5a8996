//! Queries on scans, compared with the same queries on the same values in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use crossdock::{ColumnName, Host, IpcForm, ScanOptions, ScanSource, Session, Table};
use crossdock_datafusion::ScanTable;
use datafusion::catalog::MemTable;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};

fn flights() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/flights-january.arrow")
}

/// A session with the plugins that `cargo build` of the workspace has built.
fn session() -> Session {
    let folder =
        std::env::var_os("CROSSDOCK_PLUGINS").expect("CROSSDOCK_PLUGINS names the folder of the plugins");
    Host::builder().plugins(folder).build().unwrap().session().open().unwrap()
}

fn context(partitions: usize) -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions))
}

/// Contexts with the table `t`: in memory, in one file, and in five files.
async fn contexts(folder: &Path, options: ScanOptions) -> [SessionContext; 3] {
    let session = session();
    let whole = Table::from_ipc_bytes(&session, std::fs::read(flights()).unwrap()).unwrap();
    let names: Vec<PathBuf> = (0..5).map(|i| folder.join(format!("{i}.arrow"))).collect();
    let rows = whole.rows().div_ceil(5);
    for (i, name) in names.iter().enumerate() {
        let part = whole.slice(i as u64 * rows, rows).unwrap();
        std::fs::write(name, part.to_ipc_bytes(IpcForm::File).unwrap()).unwrap();
    }
    let [memory, one, five] = [(); 3].map(|()| context(3));
    for (context, files) in [(&one, vec![flights()]), (&five, names)] {
        let table = ScanTable::try_new(&session, ScanSource::Files(files), options.clone()).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
    }
    let batches = one.table("t").await.unwrap().collect().await.unwrap();
    let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
    memory.register_table("t", Arc::new(table)).unwrap();
    [memory, one, five]
}

async fn run(context: &SessionContext, query: &str) -> String {
    let batches = context.sql(query).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

const QUERIES: [&str; 16] = [
    "SELECT count(*) FROM t",
    "SELECT * FROM t WHERE day = 3 AND month = 1 ORDER BY flight, dep_time, carrier LIMIT 5",
    "SELECT carrier, count(*) AS n FROM t WHERE distance > 500 GROUP BY carrier ORDER BY carrier",
    "SELECT day, tailnum FROM t WHERE tailnum = 'N14228' OR distance < 100 ORDER BY day, tailnum",
    "SELECT max(speed_mph) FROM t WHERE speed_mph < 400.5 AND day >= 7",
    "SELECT count(*) FROM t WHERE speed_mph > 400.5",
    "SELECT count(*) FROM t WHERE 5 < day AND NOT cancelled",
    "SELECT count(*) FROM t WHERE cancelled = true",
    "SELECT count(*) FROM t WHERE carrier = 'UA' AND origin <> 'EWR'",
    "SELECT count(*) FROM t WHERE tailnum IS NULL",
    "SELECT count(*) FROM t WHERE carrier IN ('UA', 'AA')",
    "SELECT count(*) FROM t WHERE time_hour < TIMESTAMP '2013-01-03 05:00:00Z'",
    "SELECT sum(distance) FROM (SELECT distance FROM t ORDER BY time_hour, flight, carrier LIMIT 100)",
    "SELECT count(*) FROM (SELECT day FROM t LIMIT 100)",
    "SELECT count(*) FROM (SELECT day FROM t WHERE day > 3 LIMIT 100)",
    "SELECT a.day, count(*) FROM t a JOIN t b ON a.tailnum = b.tailnum AND a.day = b.day GROUP BY a.day ORDER BY a.day",
];

async fn assert_equal_results([memory, one, five]: &[SessionContext; 3], query: &str) {
    let expected = run(memory, query).await;
    assert_eq!(run(one, query).await, expected, "one file: {query}");
    assert_eq!(run(five, query).await, expected, "five files: {query}");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_equal_those_of_a_table_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let contexts = contexts(folder.path(), ScanOptions::default()).await;
    for query in QUERIES {
        assert_equal_results(&contexts, query).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_of_the_scan_apply() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = ScanOptions::default();
    options.read.columns = Some(["day", "distance", "speed_mph"].map(ColumnName::from).to_vec());
    options.read.filter = vec![crossdock::Predicate::parse("distance > 1000").unwrap()];
    options.read.limit = Some(500);
    let contexts = contexts(folder.path(), options).await;
    for query in [
        "SELECT count(*), min(distance) FROM t",
        "SELECT * FROM t WHERE day > 1 ORDER BY day, distance, speed_mph LIMIT 3",
        "SELECT count(*) FROM t WHERE distance < 1100",
        "SELECT count(*) FROM (SELECT day FROM t LIMIT 700)",
    ] {
        assert_equal_results(&contexts, query).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_filters_and_fragments_reach_the_scan() {
    let folder = tempfile::tempdir().unwrap();
    let [_, _, context] = contexts(folder.path(), ScanOptions::default()).await;
    let plan = |query: &'static str| {
        let context = context.clone();
        async move {
            let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
            displayable(plan.as_ref()).indent(false).to_string()
        }
    };
    let exact = plan("SELECT flight FROM t WHERE distance > 500 AND tailnum = 'N14228'").await;
    assert!(!exact.contains("FilterExec") && exact.contains("partition_sizes=3"), "{exact}");
    let inexact = plan("SELECT flight FROM t WHERE speed_mph < 300").await;
    assert!(
        inexact.contains("FilterExec") && inexact.contains("projection=[flight, speed_mph]"),
        "{inexact}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_file() {
    let session = session();
    let missing = ScanSource::Files(vec!["/no/such/file.arrow".into()]);
    let error = ScanTable::try_new(&session, missing, ScanOptions::default()).unwrap_err();
    assert!(error.to_string().contains("/no/such/file.arrow"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.arrow");
    std::fs::copy(flights(), &file).unwrap();
    let table =
        ScanTable::try_new(&session, ScanSource::Files(vec![file.clone()]), ScanOptions::default()).unwrap();
    let context = context(2);
    context.register_table("removed", Arc::new(table)).unwrap();
    std::fs::remove_file(&file).unwrap();
    let error = context.sql("SELECT day FROM removed").await.unwrap().collect().await.unwrap_err();
    assert!(error.to_string().contains("a.arrow"), "{error}");
}
