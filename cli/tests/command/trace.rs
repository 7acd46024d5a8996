//! The record of calls, where more than one process is asked for it.

use crossdock::discovery::Search;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Host, trace_to};

use crate::alone::Alone;
use crate::common::mini::{bytes, linked};

#[test]
fn a_process_that_another_one_started_does_not_write_over_its_record() {
    let alone = Alone::new();
    let path = alone.path().join("trace.json");
    std::fs::write(&path, "of another day").unwrap();
    std::fs::write(alone.path().join("in"), "x").unwrap();
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
            alone.command().env("CROSSDOCK_TRACE", &path).args(["convert", "in", "out"]).output().unwrap();
        String::from_utf8(out.stderr).unwrap()
    };
    let said = convert();
    assert!(said.contains("CROSSDOCK_TRACE is ignored: another process records calls in"), "{said}");
    assert!(said.contains("no plugin recognises"), "it went on: {said}");
    let (_, said) = alone.fails(&["convert", "in", "out", "--trace", path.to_str().unwrap()]);
    assert!(said.contains("another record of calls is being written to it"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), recorded);
    drop((host, trace));
    assert!(!convert().contains("is ignored"));
    assert_ne!(std::fs::read(&path).unwrap(), recorded, "its own record is there now");
}
