//! A plugin that has something decoded before the session's plugins are all made, itself among them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use arrow_schema::{DataType, Field, Schema};
use crossdock::api::{
    About, CallSettings, Device, EncodedArray, Host as HostHandle, LogicalType, NodeParts, Plugin, Result,
    abi, entry,
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

impl Plugin for Early {
    fn create(host: HostHandle) -> Result<Self> {
        let schema = Schema::new(vec![Field::new("v", DataType::Int32, false)]);
        let node = NodeParts {
            encoding: "early".into(),
            logical_type: LogicalType::Schema(export_schema(&schema)?),
            length: 0,
            metadata: Vec::new(),
            n_buffers: 0,
            n_children: 0,
        };
        let array = EncodedArray::new(vec![node], Vec::new())?;
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
