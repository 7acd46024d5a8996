//! Rebuilds an object from a header and buffers. The input is the length of the header as 2 bytes,
//! the header, and the bytes of all buffers, which repeat until each buffer has the length that the
//! header states. A table that was rebuilt must be valid, and must equal the table that is rebuilt
//! from its own parts. So must an encoded array.
#![no_main]

use std::sync::OnceLock;

use crossdock::api::{EncodedArray, Validate};
use crossdock::memory::Backend;
use crossdock::{Host, Parts, PartsHeader, Rebuilt, Session, received_bytes};
use crossdock_arrays::{Level, first_difference, validate};
use crossdock_memory::Buffer;
use libfuzzer_sys::fuzz_target;

/// The maximum length of all buffers of an input, in bytes.
const MAX_BYTES: u64 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    static SESSION: OnceLock<Session> = OnceLock::new();
    let session = SESSION.get_or_init(|| {
        let host = Host::builder().backend(Backend::builder().limit_bytes(64 << 20).build()).threads(1);
        host.build().expect("a host").session().validate(Validate::Full).open().expect("a session")
    });
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (header, contents) = rest.split_at(length);
    let Some(buffers) = buffers(header, contents) else { return };
    // An error is a valid result.
    match session.from_parts(header, buffers) {
        Err(_) | Ok(Rebuilt::Schema(_) | Rebuilt::Field(_)) => {}
        Ok(Rebuilt::Table(table) | Rebuilt::Column(table)) => {
            let parts = table.to_parts().expect("a valid table has parts");
            let Ok(Rebuilt::Table(again)) = session.from_parts(&parts.header, parts.buffers) else {
                panic!("the parts of a valid table are invalid");
            };
            assert_eq!(again.batches().len(), table.batches().len());
            for (got, expected) in again.batches().iter().zip(table.batches()) {
                validate(got, Level::Full, session.stream()).expect("a valid batch");
                let difference = first_difference(got, expected, session.stream()).expect("batches on the CPU");
                assert!(difference.is_none(), "{difference:?}");
            }
        }
        Ok(Rebuilt::Encoded(tree)) => {
            let parts = session.encoded_to_parts(tree).expect("an array whose buffers were not taken");
            let (first, second) = (encoded(session, &parts), encoded(session, &parts));
            let bytes = |tree| session.encoded_to_bytes(tree).ok();
            assert_eq!(bytes(first), bytes(second));
        }
    }
});

/// Buffers with the lengths that the header states, if there is a header and they are small.
fn buffers(header: &[u8], contents: &[u8]) -> Option<Vec<Buffer>> {
    let lengths = PartsHeader::read(header).ok()?.buffers().to_vec();
    let total = lengths.iter().try_fold(0u64, |sum, length| sum.checked_add(*length))?;
    if total > MAX_BYTES {
        return None;
    }
    let mut bytes = contents.iter().copied().cycle();
    let buffer = |length: u64| -> Buffer {
        let bytes: Vec<u8> = (0..length).map(|_| bytes.next().unwrap_or(0)).collect();
        received_bytes(bytes.into())
    };
    Some(lengths.into_iter().map(buffer).collect())
}

fn encoded(session: &Session, parts: &Parts) -> EncodedArray {
    match session.from_parts(&parts.header, parts.buffers.clone()) {
        Ok(Rebuilt::Encoded(tree)) => tree,
        _ => panic!("the parts of an encoded array are no encoded array"),
    }
}
