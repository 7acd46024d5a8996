//! The record of calls has those in a plugin's own process too.

use std::collections::HashMap;

use crossdock_tests::{command, sample};
use serde_json::Value;

/// A call: the process, its name, from when to when (microseconds), and the bytes that it was about.
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
        let of_thread = open.entry((number("pid"), number("tid"))).or_default();
        if event["ph"] == "B" {
            of_thread.push(event);
            continue;
        }
        let begin = of_thread.pop().expect("a call ends that began");
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
fn a_call_is_recorded_here_and_where_the_plugin_runs() {
    if crate::skips("a_call_is_recorded_here_and_where_the_plugin_runs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (to, trace) = (folder.path().join("out.arrows"), folder.path().join("trace.json"));
    let mut convert = command(&["convert", "--quiet", "--isolate=arrow-ipc"]);
    convert.arg("--trace").arg(&trace).arg(sample()).arg(to);
    let child = convert.spawn().unwrap();
    let here = u64::from(child.id());
    assert!(child.wait_with_output().unwrap().status.success());
    let calls = calls(&std::fs::read_to_string(&trace).unwrap());
    for what in ["importer.open", "stream.get_next", "exporter.begin", "writer.write", "writer.finish"] {
        let (ours, theirs): (Vec<&Call>, Vec<&Call>) = calls
            .iter()
            .filter(|call| call.name.starts_with("arrow-ipc") && call.name.ends_with(what))
            .partition(|call| call.process == here);
        assert!(
            !ours.is_empty() && ours.len() == theirs.len(),
            "{what}: {} and {}",
            ours.len(),
            theirs.len()
        );
        // One after the other, here around there, and of as many bytes.
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!(
                ours.begin <= theirs.begin && theirs.begin <= theirs.end && theirs.end <= ours.end,
                "{what}"
            );
            assert_eq!(ours.bytes.is_some(), theirs.bytes.is_some(), "{what}");
        }
    }
    let asks = |call: &&Call| call.process != here && call.name == "host: memory.alloc";
    assert!(calls.iter().any(|call| asks(&call)), "what the plugin asks for there is not recorded");
}
