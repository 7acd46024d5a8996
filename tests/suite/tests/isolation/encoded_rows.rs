//! Tests that an isolated plugin decodes the same rows of encoded arrays as a plugin in the host's
//! process.

use crossdock::api::EncodedArray;
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session};
use crossdock_arrays::{DeviceBatch, first_difference};
use crossdock_tests::{built, sample};

#[test]
fn isolated_plugin_decodes_the_same_rows() {
    if crate::skips("isolated_plugin_decodes_the_same_rows") {
        return;
    }
    let host = crate::host(&built(), crate::marked("same")).build().unwrap();
    let direct = Host::builder().plugins(built()).build().unwrap().session().open().unwrap();
    let isolated = host.session().open().unwrap();
    let input = Input::open(sample(), direct.cancel_flag()).unwrap();
    let batches: Vec<DeviceBatch> =
        direct.read(input, &ReadOptions::default()).unwrap().map(Result::unwrap).collect();
    assert!(batches.len() > 1, "the array has chunks");
    let array = direct.encode_uncompressed(batches[0].schema(), &batches).unwrap();
    // An isolated plugin cannot convert Vortex types, which it would get in a capsule.
    let array = direct.with_arrow_types(array).unwrap();
    let (len, bytes) = (array.root().unwrap().length(), direct.encoded_to_bytes(array).unwrap());
    let tree =
        |session: &Session| -> EncodedArray { session.read_encoded(&Input::bytes(bytes.clone())).unwrap() };
    let first = batches[0].len() as u64;
    let all = direct.decode(tree(&direct)).unwrap();
    for rows in [0..0, 0..1, first - 3..first + 3, len - 1..len, 0..len] {
        let got = isolated.decode_rows(tree(&isolated), rows.clone()).unwrap();
        let expected = all.slice(rows.start as usize, (rows.end - rows.start) as usize).unwrap();
        assert_eq!(first_difference(&got, &expected, direct.stream()).unwrap(), None, "{rows:?}");
    }
    let error = isolated.decode_rows(tree(&isolated), len..len + 1).unwrap_err().to_string();
    assert!(error.contains(&format!("got the rows from {len} to {}", len + 1)), "{error}");
    drop(isolated);
    host.settle();
}

#[test]
fn isolated_plugin_does_not_encode() {
    if crate::skips("isolated_plugin_does_not_encode") {
        return;
    }
    let host = crate::host(&built(), crate::marked("same")).build().unwrap();
    let session = host.session().open().unwrap();
    let input = Input::open(sample(), session.cancel_flag()).unwrap();
    let batch = session
        .read(input, &ReadOptions { columns: Some(vec!["distance".into()]), ..ReadOptions::default() })
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let error = session.encode(&batch, "fastlanes.for", &Default::default()).err().unwrap().to_string();
    assert!(error.contains("'encodings' runs in a process of its own, which cannot encode"), "{error}");
    drop((batch, session));
    host.settle();
}
