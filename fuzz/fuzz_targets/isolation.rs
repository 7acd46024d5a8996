//! Messages of an isolated plugin's process, and the files that come with them, as a host reads them: an error, or a batch that is used
//! in all ways. Nothing else.
#![no_main]

use std::sync::OnceLock;

use crossdock::Session;
use crossdock::isolation::hostile::{Conversation, Listener, file};
use crossdock_encodings::Encodings;
use crossdock_fuzz::Bytes;
use crossdock_plugin_api::{abi, entry};
use libfuzzer_sys::fuzz_target;

static ENTRY: abi::PluginEntry = entry::<Encodings>();
const MOST_FILES: u8 = 4;
/// Each takes a while.
const MOST_MESSAGES: usize = 16;

/// A kind, a length, and so many bytes: a file, or a message.
fn piece(from: &mut Bytes<'_>) -> (u8, Vec<u8>) {
    let kind = from.byte();
    let length = usize::from(u16::from_le_bytes([from.byte(), from.byte()])).min(from.0.len());
    (kind, from.some(length))
}

fn says(session: &Session, process: &mut Conversation<'_>, from: &mut Bytes<'_>) -> crossdock::api::Result<()> {
    let files: Vec<_> = (0..from.byte() % MOST_FILES).map(|_| piece(from)).collect();
    for _ in 0..MOST_MESSAGES {
        if from.is_empty() {
            break;
        }
        let (kind, bytes) = piece(from);
        let files = files.iter().map(|(kind, bytes)| file(*kind, bytes)).collect::<std::io::Result<_>>()?;
        match kind % 4 {
            0 => process.hears(&bytes)?,
            1 => process.is_asked(bytes, files),
            // An error is an answer.
            _ => {
                if let Ok(Some(batch)) = process.is_told(bytes, files) {
                    let stream = session.memory().default_stream(batch.device())?;
                    drop(crossdock_fuzz::use_up(&batch, &stream));
                }
            }
        }
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    static SESSION: OnceLock<(Session, Listener)> = OnceLock::new();
    let (session, listener) = SESSION.get_or_init(|| {
        let interfaces = "crossdock.importer/1 crossdock.encoding/1";
        let session = crossdock_fuzz::session("encodings", interfaces, &ENTRY);
        let host = session.host_handle("a stranger").expect("a session lends its host");
        let listener = Listener::new(host).expect("the session has the device");
        (session, listener)
    });
    let said = says(session, &mut listener.conversation(), &mut Bytes(bytes));
    said.expect("what the messages come through is there");
});
