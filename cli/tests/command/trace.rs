//! Traces in several processes.

use crossdock::discovery::Search;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Host, trace_to};

use crate::command_dir::CommandDir;
use crate::common::mini::{bytes, linked};

#[test]
fn child_process_does_not_overwrite_the_trace_of_its_parent() {
    let dir = CommandDir::new();
    let path = dir.path().join("trace.json");
    std::fs::write(&path, "of another day").unwrap();
    std::fs::write(dir.path().join("in"), "x").unwrap();
    let trace = trace_to(&path).unwrap();
    let host =
        Host::builder().search(Search::nowhere().linked(linked())).trace(trace.clone()).build().unwrap();
    let conversion = host.session().open().unwrap().conversion().from("mini").to("mini");
    conversion.run(Input::bytes(bytes(&[1, 2])), Output::Memory(VecSink::new())).unwrap();
    assert_eq!(host.settle(), []);
    let recorded = std::fs::read(&path).unwrap();
    assert!(recorded.starts_with(b"[\n") && recorded.len() > 100);
    let convert = || {
        let out =
            dir.command().env("CROSSDOCK_TRACE", &path).args(["convert", "in", "out"]).output().unwrap();
        String::from_utf8(out.stderr).unwrap()
    };
    let stderr = convert();
    assert!(stderr.contains("CROSSDOCK_TRACE is ignored: another process records calls in"), "{stderr}");
    assert!(stderr.contains("no plugin recognises"), "the command stopped: {stderr}");
    let (_, stderr) = dir.fails(&["convert", "in", "out", "--trace", path.to_str().unwrap()]);
    assert!(stderr.contains("another trace is being written to this file"), "{stderr}");
    assert_eq!(std::fs::read(&path).unwrap(), recorded);
    drop((host, trace));
    assert!(!convert().contains("is ignored"));
    assert_ne!(std::fs::read(&path).unwrap(), recorded, "the trace was not replaced");
}
