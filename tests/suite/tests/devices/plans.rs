//! Tests that plans predict the results of conversions, for every format of the shipped plugins and
//! a column of every type.

#[path = "../../../../arrays/tests/common/samples.rs"]
mod samples;

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use crossdock::api::{Device, Options, Verdict};
use crossdock::convert::PlanReport;
use crossdock::memory::Backend;
use crossdock::registry::Way;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Error, Host, IpcForm, ReadOptions, Result, Session, Table, WriteOptions};
use crossdock_test_support::devices;
use crossdock_tests::built;

/// The first three rows of each sample column, with a field for each.
fn columns() -> Vec<(Field, ArrayRef)> {
    let all = samples::all().into_iter().enumerate();
    all.map(|(i, array)| {
        let field = Field::new(format!("column {i}"), array.data_type().clone(), true);
        (field, array.slice(0, 3))
    })
    .collect()
}

/// The columns as an Arrow IPC stream.
fn bytes_of(session: &Session, columns: &[(Field, ArrayRef)]) -> Vec<u8> {
    let schema = Arc::new(Schema::new(columns.iter().map(|(field, _)| field.clone()).collect::<Vec<_>>()));
    let arrays = columns.iter().map(|(_, array)| array.clone()).collect();
    let batch = RecordBatch::try_new(schema, arrays).unwrap();
    Table::from_record_batch(session, &batch).unwrap().to_ipc_bytes(IpcForm::Stream).unwrap()
}

fn input(bytes: &[u8]) -> Input {
    Input::bytes(bytes.to_vec())
}

fn mask() -> Options {
    Options::new().with("nulls", "mask")
}

fn is_unsupported(plan: &PlanReport, i: usize) -> bool {
    plan.columns[i].verdict == Verdict::Unsupported
}

/// Asserts that the error names the plan's column and its reason.
fn assert_as_planned(result: Result<impl Sized>, plan: &PlanReport, i: usize) {
    let (column, format) = (&plan.columns[i], &plan.format);
    let Err(error) = result else { panic!("{format} accepts {column:?}") };
    assert!(matches!(error, Error::Plugin { .. }), "{error:?}");
    let line = error.one_line();
    assert!(line.contains(&format!("'{}'", column.name)), "{format}: {line}");
    let reason = column.reason.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(line.contains(&reason), "{format}: {line}\ndoes not contain: {reason}");
}

/// The names of the shipped plugins. The test needs the list, because the folder also contains
/// plugins of other tests.
const PLUGINS: [&str; 4] = ["arrow-ipc", "arrow-c-device", "dlpack", "encodings"];

/// The name of every format that the plugins write, and whether they also read it.
fn formats(session: &Session) -> Vec<(String, bool)> {
    let all = session.plugins();
    let plugins: Vec<_> = all.iter().filter(|plugin| PLUGINS.contains(&plugin.name())).collect();
    let read: Vec<_> = plugins.iter().flat_map(|plugin| plugin.importer_formats()).collect();
    let written = plugins.iter().flat_map(|plugin| plugin.exporter_formats());
    written.map(|format| (format.name.clone(), read.iter().any(|f| f.name == format.name))).collect()
}

fn host_and_session(device: Device) -> (Host, Session) {
    let backend = Backend::builder().untouchable(true).build();
    let host = Host::builder().backend(backend).plugins(built()).build().unwrap();
    let session = host.session().device(device).open().unwrap();
    (host, session)
}

#[test]
fn plans_predict_the_results_of_round_trips() {
    for device in devices().iter().copied() {
        let (host, session) = host_and_session(device);
        let columns = columns();
        let all = bytes_of(&session, &columns);
        let formats = formats(&session);
        assert!(formats.len() >= 9, "{formats:?}");
        for (via, _) in formats.iter().filter(|(_, is_read)| *is_read) {
            let convert = |bytes: &[u8]| {
                let sink = VecSink::new();
                let conversion = session.conversion().to("arrow-ipc-stream").via(via).nulls("mask");
                conversion.run(input(bytes), Output::Memory(sink.clone())).map(|_| sink.take())
            };
            let plan = session.plan_via(input(&all), &ReadOptions::default(), via, &mask()).unwrap();
            for (i, column) in columns.iter().enumerate().filter(|(i, _)| is_unsupported(&plan, *i)) {
                assert_as_planned(convert(&bytes_of(&session, std::slice::from_ref(column))), &plan, i);
            }
            let supported = columns.iter().enumerate().filter(|(i, _)| !is_unsupported(&plan, *i));
            let supported: Vec<_> =
                supported.map(|(_, column)| column.clone()).filter(|c| fits(via, c)).collect();
            assert!(supported.len() >= 9, "{via} supports {} columns", supported.len());
            let bytes = bytes_of(&session, &supported);
            let out = convert(&bytes).unwrap_or_else(|error| panic!("{via}: {}", error.one_line()));
            let read = |bytes: Vec<u8>| Table::from_ipc_bytes(&session, bytes).unwrap();
            let (actual, expected) = (read(out), read(bytes));
            assert_eq!(actual.schema(), expected.schema(), "{via}");
            assert_eq!(actual.to_record_batches().unwrap(), expected.to_record_batches().unwrap(), "{via}");
        }
        drop(session);
        assert_eq!(host.settle(), []);
    }
}

/// Whether the format can represent the values and not only the type. A tensor cannot represent
/// nulls within a row.
fn fits(via: &str, (field, array): &(Field, ArrayRef)) -> bool {
    let is_list = matches!(field.data_type(), arrow_schema::DataType::FixedSizeList(..));
    !(via.starts_with("dlpack") && is_list && !array.is_empty())
}

#[test]
fn plans_predict_the_results_of_writers() {
    for device in devices().iter().copied() {
        let (host, session) = host_and_session(device);
        let columns = columns();
        let all = bytes_of(&session, &columns);
        for (to, _) in formats(&session) {
            let none = Options::new();
            let plan = session.plan(input(&all), &ReadOptions::default(), &to, &none).unwrap();
            for (i, (field, _)) in columns.iter().enumerate() {
                let schema = Arc::new(Schema::new(vec![field.clone()]));
                let options = WriteOptions { to: Some(to.clone()), ..WriteOptions::default() };
                let result = if session.capsule_format(&to, Way::Out).is_ok() {
                    session.write_capsules(&to, &schema, &none)
                } else {
                    session.write(Output::Memory(VecSink::new()), &schema, &options)
                };
                match is_unsupported(&plan, i) {
                    true => assert_as_planned(result, &plan, i),
                    false => drop(result.unwrap()),
                }
            }
        }
        drop(session);
        assert_eq!(host.settle(), []);
    }
}
