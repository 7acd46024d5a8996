//! Traces of calls between the host and plugins.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use crate::common::mini::{bytes, linked};
use crossdock::api::Device;
use crossdock::discovery::Search;
use crossdock::memory::{Backend, Trace};
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Host, trace_to};
use serde_json::Value;

fn host(trace: Arc<Trace>) -> Host {
    let backend = Backend::builder().untouchable(true).trace(trace).build();
    Host::builder().search(Search::nowhere().linked(linked())).backend(backend).build().unwrap()
}

fn convert(trace: Arc<Trace>, input: Vec<u8>, device: Device) -> crossdock::Result<Vec<u8>> {
    let host = host(trace);
    let session = host.session().device(device).open().unwrap();
    let sink = VecSink::new();
    let conversion = session.conversion().from("mini").to("mini").via("mini-capsules");
    let result = conversion.run(Input::bytes(input), Output::Memory(sink.clone()));
    drop(session);
    assert_eq!(host.settle(), []);
    result.map(|_| sink.take())
}

/// A completed call.
struct Call {
    name: String,
    /// The names of the enclosing calls, the outermost first.
    within: Vec<String>,
    kind: String,
    ns: f64,
    args: Value,
}

/// All calls in the file. Each call must have ended, and must have ended after the calls inside it.
fn calls(path: &Path) -> Vec<Call> {
    let text = std::fs::read_to_string(path).unwrap();
    let events: Vec<Value> = serde_json::from_str(&format!("{}]", text.trim_end_matches(",\n"))).unwrap();
    let (mut open, mut ended) = (HashMap::<u64, Vec<Value>>::new(), Vec::new());
    for event in events {
        let of_thread = open.entry(event["tid"].as_u64().unwrap()).or_default();
        if event["ph"] == "B" {
            assert_eq!(event["pid"], std::process::id());
            of_thread.push(event);
            continue;
        }
        assert_eq!(event["ph"], "E");
        let begin = of_thread.pop().expect("a call that began");
        let text = |value: &Value| value.as_str().unwrap().to_string();
        ended.push(Call {
            name: text(&begin["name"]),
            within: of_thread.iter().map(|call| text(&call["name"])).collect(),
            kind: text(&begin["cat"]),
            ns: (event["ts"].as_f64().unwrap() - begin["ts"].as_f64().unwrap()) * 1000.0,
            args: event["args"].clone(),
        });
    }
    assert!(open.values().all(Vec::is_empty), "a call has not ended");
    ended
}

fn of<'a>(calls: &'a [Call], name: &str) -> Vec<&'a Call> {
    calls.iter().filter(|call| call.name == name).collect()
}

fn sum(calls: &[&Call]) -> u64 {
    calls.iter().map(|call| call.args["bytes"].as_u64().unwrap()).sum()
}

#[test]
fn trace_has_each_call_with_caller_name_time_and_bytes() {
    let folder = crate::common::temporary();
    let path = folder.path().join("trace.json");
    let values: Vec<i32> = (0..11).collect();
    let out = convert(trace_to(&path).unwrap(), bytes(&values), Device::UNTOUCHABLE).unwrap();
    assert_eq!(out, bytes(&values));
    let calls = calls(&path);
    assert!(calls.iter().all(|call| call.ns >= 0.0));
    assert!(calls.iter().all(|call| (call.kind == "callback") == call.name.starts_with("host: ")));
    for plugin in ["mini", "mini (read)", "mini (via)", "mini (write)"] {
        for what in ["create", "importer.formats", "exporter.formats", "destroy"] {
            assert_eq!(of(&calls, &format!("{plugin}: {what}")).len(), 1, "{plugin}: {what}");
        }
    }
    for (name, times) in [
        ("mini (read): importer.open", 1),
        ("mini (read): stream.get_schema", 1),
        // Three calls return a batch, and one call returns the end.
        ("mini (read): stream.get_next", 4),
        ("mini (read): array.release", 3),
        ("mini (read): stream.release", 1),
        // The check of the schema writes one more batch, which has no rows.
        ("mini (via): exporter.plan", 1),
        ("mini (via): exporter.begin", 2),
        ("mini (via): writer.write", 4),
        ("mini (via): writer.finish", 2),
        ("mini (write): exporter.begin", 1),
        ("mini (write): writer.write", 3),
        ("mini (write): writer.finish", 1),
    ] {
        assert_eq!(of(&calls, name).len(), times, "{name}");
    }
    // Four batches are passed to the intermediate plugin, and three batches to the plugin that
    // writes.
    assert_eq!(of(&calls, "host: array.release").len(), 7);
    assert_eq!(sum(&of(&calls, "host: sink.write")), out.len() as u64);
    // The host reads the first bytes itself, which is not a callback.
    assert_eq!(sum(&of(&calls, "host: source.read_at")), 4 * values.len() as u64);
    let by_writer = |call: &&Call| call.within.iter().any(|name| name.starts_with("mini (write): "));
    assert!(of(&calls, "host: sink.write").iter().all(by_writer));
    let copied = of(&calls, "host: memory.copy");
    assert!(!copied.is_empty() && copied.iter().all(|call| call.args["bytes"].as_u64().unwrap() > 0));
}

#[test]
fn trace_has_the_error_of_a_failed_call() {
    let folder = crate::common::temporary();
    let path = folder.path().join("trace.json");
    let error = convert(trace_to(&path).unwrap(), b"no mini".to_vec(), Device::CPU).unwrap_err();
    let calls = calls(&path);
    let failed: Vec<_> = calls.iter().filter(|call| call.args["error"].is_string()).collect();
    let [failed] = &failed[..] else { panic!("{} calls failed", failed.len()) };
    assert!(failed.name.starts_with("mini (read): "), "{}", failed.name);
    let message = failed.args["error"].as_str().unwrap();
    assert!(error.to_string().contains(message) || error.one_line().contains(message), "{message}: {error}");
}

#[test]
fn conversion_continues_after_a_failed_write_of_the_trace() {
    let (reader, writer) = std::io::pipe().unwrap();
    let trace = trace_to(Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd()))).unwrap();
    assert!(trace.is_complete());
    drop((reader, writer));
    let values = [1, 2, 3];
    assert_eq!(convert(trace.clone(), bytes(&values), Device::CPU).unwrap(), bytes(&values));
    assert!(!trace.is_complete());
}

#[test]
fn error_names_a_trace_file_that_cannot_be_created() {
    let Err(error) = trace_to(Path::new("/none/such/trace.json")) else { panic!("no error") };
    assert!(error.one_line().contains("'/none/such/trace.json'"), "{}", error.one_line());
}
