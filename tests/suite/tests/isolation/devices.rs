//! Isolated plugins on a CUDA device: arrays stay there on their way, and nothing of them is left. Over any driver, a real one or the
//! simulated one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossdock::api::Device;
use crossdock::isolation::Isolation;
use crossdock::memory::{Backend, BackendBuilder, Copied};
use crossdock::source::Input;
use crossdock::{Host, NodePlan, ReadOptions, Session};
use crossdock_arrays::{DeviceBatch, first_difference};
use crossdock_tests::{built, crossdock, sample, sample_tree};

const GPU: Device = Device::cuda(0);

/// Whether this system can isolate and has a device; else says why `test` is skipped.
fn skips(test: &str) -> bool {
    match Backend::builder().build().cuda() {
        Ok(_) => crate::skips(test),
        Err(missing) => {
            crate::skip(test, &missing.to_string());
            true
        }
    }
}

fn isolated_with(isolation: Isolation, backend: BackendBuilder) -> (Host, Session) {
    let host = crate::host(&built(), isolation).backend(backend.build()).build().unwrap();
    let session = host.session().device(GPU).open().unwrap();
    (host, session)
}

fn isolated(isolation: Isolation) -> (Host, Session) {
    isolated_with(isolation, Backend::builder())
}

fn here() -> Session {
    Host::builder().plugins(built()).build().unwrap().session().device(GPU).open().unwrap()
}

/// In host memory.
fn fetched(batch: &DeviceBatch, session: &Session) -> DeviceBatch {
    let batch = batch.move_to(session.stream(), Device::CPU).unwrap();
    session.stream().synchronize().unwrap();
    batch
}

fn read(session: &Session, input: Input) -> Vec<DeviceBatch> {
    session.read(input, &ReadOptions::default()).unwrap().map(Result::unwrap).collect()
}

fn assert_same(left: (&[DeviceBatch], &Session), right: (&[DeviceBatch], &Session)) {
    let cpu = left.1.memory().default_stream(Device::CPU).unwrap();
    assert_eq!(left.0.len(), right.0.len());
    for (a, b) in left.0.iter().zip(right.0) {
        let (a, b) = (fetched(a, left.1), fetched(b, right.1));
        assert_eq!((a.schema(), a.metadata()), (b.schema(), b.metadata()));
        assert_eq!(first_difference(&a, &b, &cpu).unwrap(), None);
    }
}

/// What all accounts of a host have copied.
fn copied(host: &Host) -> Copied {
    let accounts = host.backend().ledger().accounts;
    accounts.into_iter().fold(Copied::default(), |mut sum, account| {
        sum += account.copied;
        sum
    })
}

/// Nobody holds anything of the host's, and no room is mapped here.
fn assert_nothing_left(host: Host) {
    assert_eq!(host.settle(), [], "leaks");
    assert_eq!(rooms_mapped(&PathBuf::from("/proc/self")), 0, "rooms are mapped here");
}

/// How many rooms a process sees. Of a real device there is nothing to be seen so.
fn rooms_mapped(process: &std::path::Path) -> usize {
    let maps = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains("memfd:crossdock-sim-cuda")).count()
}

#[test]
fn tables_are_read_the_same_and_stay_on_the_device() {
    if skips("tables_are_read_the_same_and_stay_on_the_device") {
        return;
    }
    let _turn = crate::turn();
    let here = here();
    let expected = read(&here, Input::open(sample(), here.cancel_flag()).unwrap());
    let (host, there) = isolated(crate::isolation());
    let batches = read(&there, Input::open(sample(), there.cancel_flag()).unwrap());
    let bytes: u64 = batches.iter().map(DeviceBatch::bytes).sum();
    assert!(batches.iter().all(|batch| batch.device() == GPU) && bytes > 1 << 20);
    let Copied { host_to_device, device_to_device, .. } = copied(&host);
    assert!(host_to_device.bytes < bytes / 10, "the host brought {host_to_device:?} of {bytes} bytes there");
    assert!(device_to_device.bytes >= bytes, "{device_to_device:?} of {bytes} bytes were made its own");
    assert_same((&expected, &here), (&batches, &there));
    drop((batches, there));
    assert_nothing_left(host);
}

#[test]
fn files_are_written_the_same_from_the_device() {
    if skips("files_are_written_the_same_from_the_device") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let tree = path("tree.cdenc");
    std::fs::write(&tree, sample_tree()).unwrap();
    for from in [sample().to_str().unwrap(), &tree] {
        let (here, there) = (path("here.arrows"), path("there.arrows"));
        for (isolate, to) in [(&[][..], &here), (&["--isolate"], &there)] {
            let arguments = ["convert", "--quiet", "--device", "cuda:0", from, to];
            let out = crossdock(&[&arguments[..], isolate].concat());
            assert!(out.status.success(), "{out:?}");
        }
        assert!(std::fs::read(&here).unwrap() == std::fs::read(&there).unwrap(), "{from}");
    }
}

#[test]
fn encoded_arrays_are_decoded_the_same_on_the_device() {
    if skips("encoded_arrays_are_decoded_the_same_on_the_device") {
        return;
    }
    let _turn = crate::turn();
    let (here, (host, there)) = (here(), isolated(crate::isolation()));
    let input = Input::bytes(sample_tree());
    let plan = there.plan_decoding(&there.read_encoded(&input).unwrap(), GPU).unwrap();
    let by_plugin = plan.contains(&NodePlan::Plugin(GPU));
    assert!(by_plugin, "nothing is decoded on the device by the plugin: {plan:?}");
    let decode = |session: &Session| session.decode(session.read_encoded(&input).unwrap()).unwrap();
    let (ours, theirs) = (decode(&here), decode(&there));
    assert_eq!(theirs.device(), GPU);
    let nulls: usize =
        theirs.columns()[0].children().iter().map(|c| c.count_nulls(there.stream()).unwrap()).sum();
    assert!(nulls > 0, "nothing is null");
    assert_same((&[ours], &here), (&[theirs], &there));
    // Through its importer too, whose own session decodes.
    assert_same((&read(&here, input.clone()), &here), (&read(&there, input.clone()), &there));
    drop(there);
    assert_nothing_left(host);
}

#[test]
fn a_process_that_ends_between_two_batches_is_an_error_and_takes_nothing_along() {
    if skips("a_process_that_ends_between_two_batches_is_an_error_and_takes_nothing_along") {
        return;
    }
    let _turn = crate::turn();
    let here = here();
    let expected = read(&here, Input::open(sample(), here.cancel_flag()).unwrap());
    let (host, there) = isolated(crate::marked("device-ends"));
    let mut reader =
        there.read(Input::open(sample(), there.cancel_flag()).unwrap(), &ReadOptions::default()).unwrap();
    let first = reader.next().unwrap().unwrap();
    for process in crate::all_processes().filter(|process| crate::is_marked(process, "device-ends")) {
        let id = process.file_name().unwrap().to_str().unwrap().parse().unwrap();
        // SAFETY: numbers: a process that this test has started.
        assert_eq!(unsafe { libc::kill(id, libc::SIGKILL) }, 0);
    }
    let said = reader.next().unwrap_err().one_line();
    assert!(said.contains("the process of") && said.contains("signal 9"), "{said}");
    drop(reader);
    // What it gave is the host's.
    assert_same((&expected[..1], &here), (&[first], &there));
    let again = read(&there, Input::open(sample(), there.cancel_flag()).unwrap());
    assert_same((&expected, &here), (&again, &there));
    drop((again, there));
    assert_nothing_left(host);
}

#[test]
fn neither_side_keeps_what_has_crossed() {
    if skips("neither_side_keeps_what_has_crossed") {
        return;
    }
    let _turn = crate::turn();
    // On a simulated device of the process there is no room for what is not given back.
    let mut isolation = crate::marked("device-keeps");
    let small = ("CROSSDOCK_SIM_CUDA_MEMORY".into(), (48 << 20).to_string().into());
    isolation.program.as_mut().unwrap().environment.push(small);
    let (host, there) = isolated(isolation);
    for _ in 0..20 {
        read(&there, Input::open(sample(), there.cancel_flag()).unwrap());
        there.decode(there.read_encoded(&Input::bytes(sample_tree())).unwrap()).unwrap();
    }
    let start = Instant::now();
    let kept = |process: &PathBuf| crate::is_marked(process, "device-keeps") && rooms_mapped(process) > 0;
    while crate::all_processes().any(|process| kept(&process)) {
        assert!(start.elapsed() < Duration::from_secs(60), "the process keeps rooms");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(there);
    assert_nothing_left(host);
}

#[test]
fn a_limit_is_one_on_the_device_too_and_is_told_as_one() {
    if skips("a_limit_is_one_on_the_device_too_and_is_told_as_one") {
        return;
    }
    let _turn = crate::turn();
    let (host, there) = isolated_with(crate::isolation(), Backend::builder().limit_bytes(256 << 10));
    let read = || -> Result<Vec<DeviceBatch>, crossdock::Error> {
        there.read(Input::open(sample(), there.cancel_flag())?, &ReadOptions::default())?.collect()
    };
    let said = read().unwrap_err().one_line();
    assert!(said.contains("the limit of 262144 bytes"), "{said}");
    drop(there);
    assert_nothing_left(host);
}

#[test]
fn sessions_on_the_device_and_on_the_cpu_have_processes_of_their_own() {
    if skips("sessions_on_the_device_and_on_the_cpu_have_processes_of_their_own") {
        return;
    }
    let _turn = crate::turn();
    let host = crate::host(&built(), crate::marked("device-both")).build().unwrap();
    let on = |device| host.session().device(device).open().unwrap();
    let (gpu, cpu) = (on(GPU), on(Device::CPU));
    let open = |session: &Session| {
        session.read(Input::open(sample(), session.cancel_flag()).unwrap(), &ReadOptions::default()).unwrap()
    };
    let (mut a, mut b) = (open(&gpu), open(&cpu));
    assert_eq!(a.next().unwrap().unwrap().device(), GPU);
    assert_eq!(b.next().unwrap().unwrap().device(), Device::CPU);
    let has_driver = |process: &PathBuf| {
        std::fs::read_to_string(process.join("maps")).unwrap_or_default().contains("libcuda")
    };
    let of_reader = |process: &PathBuf| crate::is_marked(process, "device-both");
    let (with, without): (Vec<_>, Vec<_>) = crate::all_processes().filter(of_reader).partition(has_driver);
    assert!(
        !with.is_empty() && !without.is_empty(),
        "{} with a driver, {} without",
        with.len(),
        without.len()
    );
    drop((a, b, gpu, cpu));
    assert_nothing_left(host);
}

/// How many bytes the host holds for its plugins' processes.
fn held_for_processes(host: &Host) -> u64 {
    let accounts = host.backend().ledger().accounts;
    let of_process = accounts.iter().filter(|account| account.name.ends_with("(its process)"));
    of_process.flat_map(|account| &account.devices).map(|used| used.live_bytes).sum()
}

#[test]
fn what_the_driver_refuses_the_process_is_an_error_with_its_words_and_the_next_call_works() {
    const TEST: &str = "what_the_driver_refuses_the_process_is_an_error_with_its_words";
    if skips(TEST) {
        return;
    }
    let backend = Backend::builder().build();
    if !backend.cuda().unwrap().devices[0].name.contains("Simulated") {
        return crate::skip(TEST, "only the simulated driver refuses what it is told to refuse");
    }
    let _turn = crate::turn();
    for (function, code, word) in [
        ("cuMemImportFromShareableHandle", 999, "UNKNOWN"),
        ("cuMemGetAllocationPropertiesFromHandle", 1, "INVALID_VALUE"),
        ("cuMemAddressReserve", 2, "OUT_OF_MEMORY"),
        ("cuMemMap", 801, "NOT_SUPPORTED"),
        ("cuMemSetAccess", 4242, "4242"),
    ] {
        let mut isolation = crate::isolation();
        let fail = ("CROSSDOCK_SIM_CUDA_FAIL".into(), format!("{function}:{code}:1").into());
        isolation.program.as_mut().unwrap().environment.push(fail);
        let (host, there) = isolated(isolation);
        let read = || -> Result<Vec<DeviceBatch>, crossdock::Error> {
            there.read(Input::open(sample(), there.cancel_flag())?, &ReadOptions::default())?.collect()
        };
        let said = read().unwrap_err().one_line();
        assert!(said.contains(function) && said.contains(word), "{said}");
        host.backend().settle();
        assert_eq!(held_for_processes(&host), 0, "{function}: a room that nothing comes in is kept");
        assert!(!read().unwrap().is_empty(), "{function}: the next call");
        drop(there);
        assert_nothing_left(host);
    }
}
