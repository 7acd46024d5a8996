//! Tests that recorded calls include calls in isolated processes.

use std::collections::HashMap;

use crossdock_tests::{command, sample};
use serde_json::Value;

/// A recorded call: process, name, begin and end in microseconds, and number of bytes.
struct Call {
    process: u64,
    name: String,
    begin: f64,
    end: f64,
    bytes: Option<u64>,
}

fn calls(text: &str) -> Vec<Call> {
    let events: Vec<Value> = serde_json::from_str(&format!("{}]", text.trim_end_matches(",\n"))).unwrap();
    let mut open = HashMap::<(u64, u64), Vec<Value>>::new();
    let mut calls = Vec::new();
    for event in events {
        let number = |key: &str| event[key].as_u64().unwrap();
        let calls_of_thread = open.entry((number("pid"), number("tid"))).or_default();
        if event["ph"] == "B" {
            calls_of_thread.push(event);
            continue;
        }
        let begin = calls_of_thread.pop().expect("the end of a call follows its begin");
        calls.push(Call {
            process: number("pid"),
            name: begin["name"].as_str().unwrap().to_string(),
            begin: begin["ts"].as_f64().unwrap(),
            end: event["ts"].as_f64().unwrap(),
            bytes: event["args"]["bytes"].as_u64(),
        });
    }
    calls
}

#[test]
fn calls_are_recorded_in_both_processes() {
    if crate::skips("calls_are_recorded_in_both_processes") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (to, trace) = (folder.path().join("out.arrows"), folder.path().join("trace.json"));
    let mut convert = command(&["convert", "--quiet", "--isolate=arrow-ipc"]);
    convert.arg("--trace").arg(&trace).arg(sample()).arg(to);
    let child = convert.spawn().unwrap();
    let host_process = u64::from(child.id());
    assert!(child.wait_with_output().unwrap().status.success());
    let calls = calls(&std::fs::read_to_string(&trace).unwrap());
    for what in ["importer.open", "stream.get_next", "exporter.begin", "writer.write", "writer.finish"] {
        let (host_calls, plugin_calls): (Vec<&Call>, Vec<&Call>) = calls
            .iter()
            .filter(|call| call.name.starts_with("arrow-ipc") && call.name.ends_with(what))
            .partition(|call| call.process == host_process);
        assert!(
            !host_calls.is_empty() && host_calls.len() == plugin_calls.len(),
            "{what}: {} and {}",
            host_calls.len(),
            plugin_calls.len()
        );
        // A call of the host encloses the call of the process. Only for batches that the process
        // reads ahead, it may enclose several calls or none, and batches are written by the process
        // after the call of the host has begun.
        let encloses = |host_call: &Call, plugin_call: &Call| {
            host_call.begin <= plugin_call.begin
                && plugin_call.begin <= plugin_call.end
                && plugin_call.end <= host_call.end
        };
        for (host_call, plugin_call) in host_calls.iter().zip(plugin_calls) {
            let are_ordered = match what {
                "stream.get_next" => host_calls.iter().any(|host_call| encloses(host_call, plugin_call)),
                "writer.write" => host_call.begin <= plugin_call.begin,
                _ => encloses(host_call, plugin_call),
            };
            assert!(are_ordered, "{what}");
            assert_eq!(host_call.bytes.is_some(), plugin_call.bytes.is_some(), "{what}");
        }
    }
    let is_allocation = |call: &&Call| call.process != host_process && call.name == "host: memory.alloc";
    assert!(
        calls.iter().any(|call| is_allocation(&call)),
        "callbacks of the isolated plugin are not recorded"
    );
}
