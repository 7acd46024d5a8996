//! A plugin that has something decoded before the session's plugins are all made, itself among them.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use arrow_schema::{DataType, Field, Schema};
use crossdock::api::{
    About, Call, CallSettings, Device, EncodedArray, EncodedNode, Encoding, Host as HostHandle, LogicalType,
    NodeParts, Owned, Plugin, Result, abi, entry,
};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock_arrays::export_schema;

/// Nothing that ends takes as long, on any machine.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// What it was told.
static ANSWERS: Mutex<Vec<std::result::Result<(), String>>> = Mutex::new(Vec::new());

static ENTRY: abi::PluginEntry = entry::<Early>();

struct Early;

fn tree(encoding: &str) -> Result<EncodedArray> {
    let schema = Schema::new(vec![Field::new("v", DataType::Int32, false)]);
    let node = NodeParts {
        encoding: encoding.into(),
        logical_type: LogicalType::Schema(export_schema(&schema)?),
        length: 0,
        metadata: Vec::new(),
        n_buffers: 0,
        n_children: 0,
    };
    EncodedArray::new(vec![node], Vec::new())
}

impl Plugin for Early {
    fn create(host: HostHandle) -> Result<Self> {
        let array = tree("early")?;
        let decoded = CallSettings::new(Device::CPU).enter(|call| host.decode(call, array));
        ANSWERS.lock().unwrap().push(decoded.map(drop).map_err(|error| error.to_string()));
        Ok(Self)
    }
}

#[test]
fn a_plugin_that_has_something_decoded_while_it_is_made_is_told_so_and_does_not_wait_for_itself() {
    let about = About {
        name: "early",
        version: "0.1.0",
        description: "too early",
        licence: "Apache-2.0",
        interfaces: "",
        formats: "",
        encodings: "",
    };
    let plugin = LinkedPlugin::new(&ENTRY, about.meta());
    let host = crossdock::Host::builder().search(Search::nowhere().linked(plugin)).build().unwrap();
    let (done, ended) = channel();
    std::thread::spawn(move || {
        done.send(host.session().open().unwrap().plugins().len()).unwrap();
    });
    assert_eq!(ended.recv_timeout(HANGS_AFTER).expect("it waits for itself"), 1);
    let answers = ANSWERS.lock().unwrap();
    assert!(matches!(&answers[..], [Err(told)] if told.contains("are being made")), "{answers:?}");
}

/// What the other one was told, each time that it was made.
static AGAIN: Mutex<Vec<std::result::Result<(), String>>> = Mutex::new(Vec::new());

/// Has its own encoding decoded while it is made, and panics whenever it decodes.
struct Again;

impl Plugin for Again {
    fn create(host: HostHandle) -> Result<Self> {
        let array = tree("again")?;
        let decoded = CallSettings::new(Device::CPU).enter(|call| host.decode(call, array));
        AGAIN.lock().unwrap().push(decoded.map(drop).map_err(|error| error.to_string()));
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

    fn size(&self, _: EncodedNode<'_>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        _: &Call<'_>,
        _: EncodedNode<'_>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        panic!("as it always does")
    }
}

#[test]
fn one_that_is_made_again_after_a_panic_is_told_so_too() {
    static ENTRY: abi::PluginEntry = entry::<Again>();
    let about = About {
        name: "again",
        version: "0.1.0",
        description: "panics",
        licence: "Apache-2.0",
        interfaces: "crossdock.encoding/1",
        formats: "",
        encodings: "again",
    };
    let plugin = LinkedPlugin::new(&ENTRY, about.meta());
    let host = crossdock::Host::builder().search(Search::nowhere().linked(plugin)).build().unwrap();
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let session = host.session().open().unwrap();
        for _ in 0..3 {
            done.send(session.decode(tree("again").unwrap()).unwrap_err().one_line()).unwrap();
        }
    });
    for _ in 0..3 {
        let said = ended.recv_timeout(HANGS_AFTER).expect("it goes round");
        assert!(said.contains("as it always does"), "{said}");
    }
    let answers = AGAIN.lock().unwrap();
    let was_told = |answer: &std::result::Result<(), String>| {
        answer.as_ref().is_err_and(|told| told.contains("are being made"))
    };
    assert!(answers.len() == 3 && answers.iter().all(was_told), "{answers:?}");
}
