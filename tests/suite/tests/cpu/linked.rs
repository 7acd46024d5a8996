//! Compares plugins that are linked into the program with plugins that are loaded: both must behave
//! the same. Also injects failures into linked plugins.

use std::sync::LazyLock;

use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Host, Session};
use crossdock_encodings::kinds;
use crossdock_memory_backend::{Backend, Faults};
use crossdock_plugin_api::{Device, Options, PluginDescription, Validate, abi, entry};
use crossdock_test_support::replay;
use crossdock_tests::failing::{OPERATIONS, error_chain};
use crossdock_tests::golden::{Golden, one_of_each};
use crossdock_tests::{built_file, faults, sample};

static IPC: abi::PluginEntry = entry::<crossdock_arrow_ipc::ArrowIpc>();
static C_DEVICE: abi::PluginEntry = entry::<crossdock_arrow_c_device::ArrowCDevice>();
static ENCODINGS: abi::PluginEntry = entry::<crossdock_encodings::Encodings>();

const fn about(name: &'static str) -> PluginDescription {
    PluginDescription {
        name,
        version: env!("CARGO_PKG_VERSION"),
        description: "linked in",
        licence: "Apache-2.0",
        interfaces: "crossdock.importer/1 crossdock.exporter/1",
        formats: "",
        encodings: "",
        requires: "",
        api_range: abi::API_RANGE,
    }
}

fn about_encodings() -> PluginDescription {
    static IDS: LazyLock<String> =
        LazyLock::new(|| kinds::all().map(|kind| kind.id).collect::<Vec<_>>().join(" "));
    let interfaces = "crossdock.importer/1 crossdock.exporter/1 crossdock.encoding/1";
    PluginDescription { interfaces, encodings: &IDS, ..about("encodings") }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Linkage {
    Linked,
    Loaded,
}

fn host(linkage: Linkage, faults: Faults) -> Host {
    let backend = Backend::builder().untouchable(true).faults(faults).build();
    let search = match linkage {
        Linkage::Linked => Search::nowhere()
            .linked(LinkedPlugin::new(&IPC, about("arrow-ipc").meta()))
            .linked(LinkedPlugin::new(&C_DEVICE, about("arrow-c-device").meta()))
            .linked(LinkedPlugin::new(&ENCODINGS, about_encodings().meta())),
        Linkage::Loaded => Search::nowhere()
            .with_path(built_file("libcrossdock_arrow_ipc_plugin.so"))
            .with_path(built_file("libcrossdock_arrow_c_device_plugin.so"))
            .with_path(built_file("libcrossdock_encodings_plugin.so")),
    };
    Host::builder().backend(backend).search(search).threads(2).build().unwrap()
}

fn session(host: &Host, device: Device) -> Session {
    host.session().device(device).validate(Validate::Full).open().unwrap()
}

fn convert(session: &Session, to: &str, compression: &str) -> crossdock::Result<Vec<u8>> {
    let sink = VecSink::new();
    session
        .conversion()
        .via("arrow-c-device")
        .to(to)
        .write_options(Options::new().with("compression", compression))
        .run(Input::open(sample(), session.cancel_flag())?, Output::Memory(sink.clone()))?;
    Ok(sink.take())
}

#[test]
fn linked_and_loaded_plugins_write_the_same_bytes() {
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        for (to, compression) in
            [("arrow-ipc-file", "none"), ("arrow-ipc-stream", "zstd"), ("arrow-ipc-stream", "lz4")]
        {
            let written = [Linkage::Linked, Linkage::Loaded].map(|linkage| {
                let host = host(linkage, Faults::new());
                let session = session(&host, device);
                let bytes = convert(&session, to, compression).unwrap();
                drop(session);
                assert!(host.settle().is_empty(), "{linkage:?} {device}: {:?}", host.settle());
                bytes
            });
            assert!(written[0].len() > 100_000);
            assert!(written[0] == written[1], "{to} {compression} {device}");
        }
    }
}

#[test]
fn linked_and_loaded_plugins_decode_to_the_same_bytes() {
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let decoded = [Linkage::Linked, Linkage::Loaded].map(|linkage| {
            let host = host(linkage, Faults::new());
            let session = session(&host, device);
            let decode = |tree: Golden| {
                let sink = VecSink::new();
                let conversion = session.conversion().to("arrow-ipc-stream").via("encoded-array");
                conversion.run(Input::bytes(tree.tree), Output::Memory(sink.clone())).expect(&tree.name);
                (tree.name, sink.take())
            };
            let bytes: Vec<_> = one_of_each().into_iter().map(decode).collect();
            drop(session);
            assert!(host.settle().is_empty(), "{linkage:?} {device}: {:?}", host.settle());
            bytes
        });
        for (linked, loaded) in decoded[0].iter().zip(&decoded[1]) {
            assert!(linked == loaded, "{} on {device}", linked.0);
        }
    }
}

#[test]
fn linked_and_loaded_plugins_have_the_same_errors() {
    let messages = [Linkage::Linked, Linkage::Loaded].map(|linkage| {
        let host = host(linkage, Faults::new());
        let session = session(&host, Device::CPU);
        [("arrow-ipc-file", "gzip"), ("arrow-c-dream", "none")]
            .map(|(to, compression)| error_chain(&convert(&session, to, compression).unwrap_err()))
    });
    assert_eq!(messages[0], messages[1]);
    assert!(messages[0][0].contains("gzip") && messages[0][1].contains("arrow-c-dream"), "{messages:?}");
}

/// Makes memory operations fail at the first and some later occurrences, or with
/// `CROSSDOCK_FAULTS=all` at every occurrence. The result must be an error without leaks, and the
/// next conversion must work.
#[test]
fn memory_failures_are_errors_without_leaks() {
    let _replay = replay::on_failure();
    for operation in faults::part("memory_failures_are_errors_without_leaks", OPERATIONS.len(), 4)
        .into_iter()
        .map(|i| OPERATIONS[i])
    {
        let faults = Faults::new();
        let host = host(Linkage::Loaded, faults.clone());
        let session = session(&host, Device::UNTOUCHABLE);
        convert(&session, "arrow-ipc-stream", "none").unwrap();
        let occurrences = faults.count(operation);
        assert!(occurrences > 10, "{operation:?}");
        let mut failed = 0;
        for nth in faults::chosen(occurrences, 40, 16) {
            faults.fail(operation, nth);
            failed += u64::from(convert(&session, "arrow-ipc-stream", "none").is_err());
            faults.fail(operation, 0);
        }
        assert!(failed > 5, "{operation:?}: {failed} of {occurrences} failures were errors");
        let whole = convert(&session, "arrow-ipc-stream", "none").unwrap();
        assert!(whole.len() > 100_000);
        drop(session);
        assert!(host.settle().is_empty(), "{operation:?}: {:?}", host.settle());
    }
}
