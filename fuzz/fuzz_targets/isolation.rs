//! Reads messages from an isolated plugin process, and the files that are sent with them, as a host
//! does. The result must be an error, or a batch on which all operations succeed.
#![no_main]

use std::sync::OnceLock;

use crossdock::Session;
use crossdock::isolation::hostile::{Connection, Harness, file};
use crossdock_encodings::Encodings;
use crossdock_fuzz::Bytes;
use crossdock_plugin_api::{abi, entry};
use libfuzzer_sys::fuzz_target;

static ENTRY: abi::PluginEntry = entry::<Encodings>();
const MAX_FILES: u8 = 4;
/// The maximum is low, because handling a message takes long.
const MAX_MESSAGES: usize = 16;

/// Takes a file or a message from the fuzzer's bytes: a kind, a length, and that number of bytes.
fn piece(from: &mut Bytes<'_>) -> (u8, Vec<u8>) {
    let kind = from.byte();
    let length = usize::from(u16::from_le_bytes([from.byte(), from.byte()])).min(from.0.len());
    (kind, from.take(length))
}

fn send(
    session: &Session,
    connection: &mut Connection<'_>,
    from: &mut Bytes<'_>,
) -> crossdock::api::Result<()> {
    let files: Vec<_> = (0..from.byte() % MAX_FILES).map(|_| piece(from)).collect();
    for _ in 0..MAX_MESSAGES {
        if from.is_empty() {
            break;
        }
        let (kind, bytes) = piece(from);
        let files = files.iter().map(|(kind, bytes)| file(*kind, bytes)).collect::<std::io::Result<_>>()?;
        match kind % 4 {
            0 => connection.receive_raw(&bytes)?,
            1 => connection.receive_callback(bytes, files),
            // An error is a valid result.
            _ => {
                if let Ok(Some(batch)) = connection.receive_response(bytes, files) {
                    let stream = session.memory().default_stream(batch.device())?;
                    drop(crossdock_fuzz::exercise(&batch, &stream));
                }
            }
        }
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    static SESSION: OnceLock<(Session, Harness)> = OnceLock::new();
    let (session, harness) = SESSION.get_or_init(|| {
        let interfaces = "crossdock.importer/1 crossdock.encoding/1";
        let session = crossdock_fuzz::session("encodings", interfaces, &ENTRY);
        let host = session.host_handle("hostile").expect("the session has a host");
        let harness = Harness::new(host).expect("the session has the device");
        (session, harness)
    });
    let result = send(session, &mut harness.connect(), &mut Bytes(bytes));
    result.expect("sockets and files can be created");
});
