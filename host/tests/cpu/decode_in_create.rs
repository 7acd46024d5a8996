//! Plugins that decode an array inside `create`, before the session has created all plugins.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use arrow_schema::DataType;
use crossdock::api::{
    Call, CallSettings, Device, EncodedArray, EncodedNode, Encoding, Host as HostHandle, Owned, Plugin,
    Result, abi, entry,
};
use crossdock::memory::Backend;

use crate::common::encoding::{self, node};

/// The duration after which a test counts as hanging.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// The results of decoding inside `create` of [`Early`].
static EARLY_RESULTS: Mutex<Vec<std::result::Result<(), String>>> = Mutex::new(Vec::new());

struct Early;

/// An array of one node.
fn tree(encoding: &str) -> EncodedArray {
    encoding::tree(vec![node(encoding, DataType::Int32, 0, 0, 0)], Vec::new())
}

impl Plugin for Early {
    fn create(host: HostHandle) -> Result<Self> {
        let array = tree("early");
        let decoded = CallSettings::new(Device::CPU).enter(|call| host.decode(call, array, None));
        EARLY_RESULTS.lock().unwrap().push(decoded.map(drop).map_err(|error| error.to_string()));
        Ok(Self)
    }
}

#[test]
fn decoding_inside_create_returns_an_error_without_a_deadlock() {
    static ENTRY: abi::PluginEntry = entry::<Early>();
    let plugin = (&ENTRY, encoding::description("early", ""));
    let host = encoding::host(Backend::builder().build(), [plugin]);
    let (done, ended) = channel();
    std::thread::spawn(move || {
        done.send(host.session().open().unwrap().plugins().len()).unwrap();
    });
    assert_eq!(ended.recv_timeout(HANGS_AFTER).expect("the session deadlocks"), 1);
    let results = EARLY_RESULTS.lock().unwrap();
    assert!(matches!(&results[..], [Err(error)] if error.contains("are being created")), "{results:?}");
}

/// The results of decoding inside `create` of [`Again`].
static AGAIN_RESULTS: Mutex<Vec<std::result::Result<(), String>>> = Mutex::new(Vec::new());

/// A plugin that decodes its own encoding inside `create`. Every decoding panics.
struct Again;

impl Plugin for Again {
    fn create(host: HostHandle) -> Result<Self> {
        let array = tree("again");
        let decoded = CallSettings::new(Device::CPU).enter(|call| host.decode(call, array, None));
        AGAIN_RESULTS.lock().unwrap().push(decoded.map(drop).map_err(|error| error.to_string()));
        Ok(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Again {
    fn ids(&self) -> &[&'static str] {
        &["again"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        _: &Call<'_>,
        _: EncodedNode<'_>,
        _: Range<u64>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        panic!("injected panic")
    }
}

#[test]
fn decoding_while_a_replacement_instance_is_created_is_an_error() {
    static ENTRY: abi::PluginEntry = entry::<Again>();
    let plugin = (&ENTRY, encoding::description("again", "again"));
    let host = encoding::host(Backend::builder().build(), [plugin]);
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let session = host.session().open().unwrap();
        for _ in 0..3 {
            done.send(session.decode(tree("again")).unwrap_err().one_line()).unwrap();
        }
    });
    for _ in 0..3 {
        let error = ended.recv_timeout(HANGS_AFTER).expect("the session creates instances without end");
        assert!(error.contains("injected panic"), "{error}");
    }
    let results = AGAIN_RESULTS.lock().unwrap();
    let is_expected = |result: &std::result::Result<(), String>| {
        result.as_ref().is_err_and(|error| error.contains("are being created"))
    };
    assert!(results.len() == 3 && results.iter().all(is_expected), "{results:?}");
}
