//! Tests isolated plugins on a CUDA device. Arrays must stay on the device, and nothing may leak.
//! The tests run with a real or a simulated driver.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossdock::api::Device;
use crossdock::isolation::Isolation;
use crossdock::memory::{Backend, BackendBuilder, CopyTraffic};
use crossdock::source::Input;
use crossdock::{Host, NodePlan, ReadOptions, Session};
use crossdock_arrays::{DeviceBatch, first_difference};
use crossdock_tests::{built, crossdock, sample, sample_tree};

const GPU: Device = Device::cuda(0);

/// Whether `test` must be skipped, because this system cannot isolate plugins or has no CUDA
/// device. Reports the reason.
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

fn direct_session() -> Session {
    Host::builder().plugins(built()).build().unwrap().session().device(GPU).open().unwrap()
}

/// Copies a batch to host memory.
fn to_host(batch: &DeviceBatch, session: &Session) -> DeviceBatch {
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
        let (a, b) = (to_host(a, left.1), to_host(b, right.1));
        assert_eq!((a.schema(), a.metadata()), (b.schema(), b.metadata()));
        assert_eq!(first_difference(&a, &b, &cpu).unwrap(), None);
    }
}

/// The copied bytes of all accounts of a host, summed.
fn copied(host: &Host) -> CopyTraffic {
    let accounts = host.backend().ledger().accounts;
    accounts.into_iter().fold(CopyTraffic::default(), |mut sum, account| {
        sum += account.copied;
        sum
    })
}

/// Asserts that nothing leaked, and that no shared segment is mapped in this process.
fn assert_nothing_leaked(host: Host) {
    assert_eq!(host.settle(), [], "leaks");
    assert_eq!(
        mapped_segments(&PathBuf::from("/proc/self")),
        0,
        "shared segments are mapped in this process"
    );
}

/// The number of shared segments that a process has mapped, with the simulated driver; 0 with a
/// real one.
fn mapped_segments(process: &std::path::Path) -> usize {
    let maps = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains("memfd:crossdock-sim-cuda")).count()
}

#[test]
fn isolated_plugin_reads_the_same_tables_on_the_device() {
    if skips("isolated_plugin_reads_the_same_tables_on_the_device") {
        return;
    }
    let _lock = crate::lock_process();
    let direct = direct_session();
    let expected = read(&direct, Input::open(sample(), direct.cancel_flag()).unwrap());
    let (host, isolated) = isolated(crate::isolation());
    let batches = read(&isolated, Input::open(sample(), isolated.cancel_flag()).unwrap());
    let bytes: u64 = batches.iter().map(DeviceBatch::buffer_bytes).sum();
    assert!(batches.iter().all(|batch| batch.device() == GPU) && bytes > 1 << 20);
    let CopyTraffic { host_to_device, device_to_device, .. } = copied(&host);
    assert!(
        host_to_device.bytes < bytes / 10,
        "the host copied {host_to_device:?} of {bytes} bytes to the device"
    );
    assert!(
        device_to_device.bytes >= bytes,
        "only {device_to_device:?} of {bytes} bytes were copied out of the shared segment"
    );
    assert_same((&expected, &direct), (&batches, &isolated));
    drop((batches, isolated));
    assert_nothing_leaked(host);
}

#[test]
fn isolated_plugin_writes_the_same_files_from_the_device() {
    if skips("isolated_plugin_writes_the_same_files_from_the_device") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let tree = path("tree.cdenc");
    std::fs::write(&tree, sample_tree()).unwrap();
    for from in [sample().to_str().unwrap(), &tree] {
        let (direct, isolated) = (path("direct.arrows"), path("isolated.arrows"));
        for (isolate, to) in [(&[][..], &direct), (&["--isolate"], &isolated)] {
            let arguments = ["convert", "--quiet", "--device", "cuda:0", from, to];
            let out = crossdock(&[&arguments[..], isolate].concat());
            assert!(out.status.success(), "{out:?}");
        }
        assert!(std::fs::read(&direct).unwrap() == std::fs::read(&isolated).unwrap(), "{from}");
    }
}

#[test]
fn isolated_plugin_decodes_the_same_arrays_on_the_device() {
    if skips("isolated_plugin_decodes_the_same_arrays_on_the_device") {
        return;
    }
    let _lock = crate::lock_process();
    let (direct, (host, isolated)) = (direct_session(), isolated(crate::isolation()));
    let input = Input::bytes(sample_tree());
    let plan = isolated.plan_decoding(&isolated.read_encoded(&input).unwrap(), GPU).unwrap();
    let by_plugin = plan.contains(&NodePlan::Plugin(GPU));
    assert!(by_plugin, "the plugin decodes nothing on the device: {plan:?}");
    let decode = |session: &Session| session.decode(session.read_encoded(&input).unwrap()).unwrap();
    let (expected, actual) = (decode(&direct), decode(&isolated));
    assert_eq!(actual.device(), GPU);
    let nulls: usize =
        actual.columns()[0].children().iter().map(|c| c.count_nulls(isolated.stream()).unwrap()).sum();
    assert!(nulls > 0, "there are no nulls");
    assert_same((&[expected], &direct), (&[actual], &isolated));
    // Tests a second path to the decoder: the importer asks the session to decode.
    assert_same((&read(&direct, input.clone()), &direct), (&read(&isolated, input.clone()), &isolated));
    drop(isolated);
    assert_nothing_leaked(host);
}

#[test]
fn earlier_batches_stay_valid_if_the_process_ends() {
    if skips("earlier_batches_stay_valid_if_the_process_ends") {
        return;
    }
    let _lock = crate::lock_process();
    let direct = direct_session();
    let expected = read(&direct, Input::open(sample(), direct.cancel_flag()).unwrap());
    let (host, isolated) = isolated(crate::marked("device-ends"));
    let mut reader = isolated
        .read(Input::open(sample(), isolated.cancel_flag()).unwrap(), &ReadOptions::default())
        .unwrap();
    let first = reader.next().unwrap().unwrap();
    for process in crate::all_processes().filter(|process| crate::is_marked(process, "device-ends")) {
        let id = process.file_name().unwrap().to_str().unwrap().parse().unwrap();
        // SAFETY: `kill` takes integers; the process was started by this test's host.
        assert_eq!(unsafe { libc::kill(id, libc::SIGKILL) }, 0);
    }
    let error = reader.next().unwrap_err().one_line();
    assert!(error.contains("the process of") && error.contains("signal 9"), "{error}");
    drop(reader);
    // The first batch stays valid, because the host owns its memory.
    assert_same((&expected[..1], &direct), (&[first], &isolated));
    let again = read(&isolated, Input::open(sample(), isolated.cancel_flag()).unwrap());
    assert_same((&expected, &direct), (&again, &isolated));
    drop((again, isolated));
    assert_nothing_leaked(host);
}

#[test]
fn shared_segments_are_released_on_both_sides() {
    if skips("shared_segments_are_released_on_both_sides") {
        return;
    }
    let _lock = crate::lock_process();
    // The simulated device in the process has so little memory that leaks would exhaust it.
    let mut isolation = crate::marked("device-keeps");
    let small = ("CROSSDOCK_SIM_CUDA_MEMORY".into(), (48 << 20).to_string().into());
    isolation.program.as_mut().unwrap().environment.push(small);
    let (host, isolated) = isolated(isolation);
    for _ in 0..20 {
        read(&isolated, Input::open(sample(), isolated.cancel_flag()).unwrap());
        isolated.decode(isolated.read_encoded(&Input::bytes(sample_tree())).unwrap()).unwrap();
    }
    let start = Instant::now();
    let has_segments =
        |process: &PathBuf| crate::is_marked(process, "device-keeps") && mapped_segments(process) > 0;
    while crate::all_processes().any(|process| has_segments(&process)) {
        assert!(start.elapsed() < Duration::from_secs(60), "the process keeps shared segments");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(isolated);
    assert_nothing_leaked(host);
}

#[test]
fn memory_limit_applies_on_the_device() {
    if skips("memory_limit_applies_on_the_device") {
        return;
    }
    let _lock = crate::lock_process();
    let (host, isolated) = isolated_with(crate::isolation(), Backend::builder().limit_bytes(256 << 10));
    let read = || -> Result<Vec<DeviceBatch>, crossdock::Error> {
        isolated.read(Input::open(sample(), isolated.cancel_flag())?, &ReadOptions::default())?.collect()
    };
    let error = read().unwrap_err().one_line();
    assert!(error.contains("the limit of 262144 bytes"), "{error}");
    drop(isolated);
    assert_nothing_leaked(host);
}

#[test]
fn sessions_on_device_and_cpu_have_separate_processes() {
    if skips("sessions_on_device_and_cpu_have_separate_processes") {
        return;
    }
    let _lock = crate::lock_process();
    let host = crate::host(&built(), crate::marked("device-both")).build().unwrap();
    let open_session = |device| host.session().device(device).open().unwrap();
    let (gpu, cpu) = (open_session(GPU), open_session(Device::CPU));
    let open = |session: &Session| {
        session.read(Input::open(sample(), session.cancel_flag()).unwrap(), &ReadOptions::default()).unwrap()
    };
    let (mut a, mut b) = (open(&gpu), open(&cpu));
    assert_eq!(a.next().unwrap().unwrap().device(), GPU);
    assert_eq!(b.next().unwrap().unwrap().device(), Device::CPU);
    let has_driver = |process: &PathBuf| {
        std::fs::read_to_string(process.join("maps")).unwrap_or_default().contains("libcuda")
    };
    let is_of_reader = |process: &PathBuf| crate::is_marked(process, "device-both");
    let (with, without): (Vec<_>, Vec<_>) = crate::all_processes().filter(is_of_reader).partition(has_driver);
    assert!(
        !with.is_empty() && !without.is_empty(),
        "{} with a driver, {} without",
        with.len(),
        without.len()
    );
    drop((a, b, gpu, cpu));
    assert_nothing_leaked(host);
}

/// The bytes that the host's ledger counts for the processes of its plugins.
fn process_bytes(host: &Host) -> u64 {
    let accounts = host.backend().ledger().accounts;
    let of_process = accounts.iter().filter(|account| account.name.ends_with("(its process)"));
    of_process.flat_map(|account| &account.devices).map(|used| used.live_bytes).sum()
}

#[test]
fn driver_error_in_isolated_process_is_reported_and_next_call_succeeds() {
    const TEST: &str = "driver_error_in_isolated_process_is_reported_and_next_call_succeeds";
    if skips(TEST) {
        return;
    }
    let backend = Backend::builder().build();
    if !backend.cuda().unwrap().devices[0].name.contains("Simulated") {
        return crate::skip(TEST, "only the simulated driver injects failures");
    }
    let _lock = crate::lock_process();
    for (function, code, code_name) in [
        ("cuMemImportFromShareableHandle", 999, "UNKNOWN"),
        ("cuMemGetAllocationPropertiesFromHandle", 1, "INVALID_VALUE"),
        ("cuMemAddressReserve", 2, "OUT_OF_MEMORY"),
        ("cuMemMap", 801, "NOT_SUPPORTED"),
        ("cuMemSetAccess", 4242, "4242"),
    ] {
        let mut isolation = crate::isolation();
        let fail = ("CROSSDOCK_SIM_CUDA_FAIL".into(), format!("{function}:{code}:1").into());
        isolation.program.as_mut().unwrap().environment.push(fail);
        let (host, isolated) = isolated(isolation);
        let read = || -> Result<Vec<DeviceBatch>, crossdock::Error> {
            isolated.read(Input::open(sample(), isolated.cancel_flag())?, &ReadOptions::default())?.collect()
        };
        let error = read().unwrap_err().one_line();
        assert!(error.contains(function) && error.contains(code_name), "{error}");
        host.backend().settle();
        assert_eq!(process_bytes(&host), 0, "{function}: an unused shared segment is kept");
        assert!(!read().unwrap().is_empty(), "{function}: the next call");
        drop(isolated);
        assert_nothing_leaked(host);
    }
}
