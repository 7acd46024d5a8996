//! Tests that an isolated plugin gets all sources of an input, with their versions, and is
//! recognised by the last bytes of an input.

use std::path::Path;
use std::sync::Arc;

use crossdock::isolation::Isolation;
use crossdock::source::{Input, read_from};
use crossdock::{ReadOptions, Session};
use crossdock_plugin_api::{ByteSource, Result};
use crossdock_tests::compile_plugin;

/// A source that is not mapped, so that the plugin's process reads it through the host.
struct Versioned(&'static str, &'static [u8]);

impl ByteSource for Versioned {
    fn name(&self) -> &str {
        self.0
    }

    fn len(&self) -> Option<u64> {
        Some(self.1.len() as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        Ok(read_from(self.1, offset, to))
    }

    fn version(&self) -> &str {
        "\"tag\""
    }
}

#[test]
fn isolated_plugin_gets_all_sources_and_their_versions() {
    if crate::skips("isolated_plugin_gets_all_sources_and_their_versions") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/isolation/sources.c");
    let plugin = compile_plugin(&source, folder.path(), "sources");
    let file = folder.path().join("second");
    std::fs::write(&file, b"second file").unwrap();
    let session = |isolation| crate::host(&plugin, isolation).build().unwrap().session().open().unwrap();
    let described = |session: &Session, first: &'static [u8]| {
        let inputs = vec![
            Input::Bytes(Arc::new(Versioned("first", first))),
            Input::open(&file, session.cancel_flag()).unwrap(),
            Input::Bytes(Arc::new(Versioned("third", b"3"))),
        ];
        let line = session.read_several(inputs, &ReadOptions::default()).err().unwrap().one_line();
        line[line.find('[').unwrap_or_else(|| panic!("{line}"))..].to_owned()
    };
    let (direct, isolated) = (session(Isolation::default()), session(crate::isolation()));
    assert!(isolated.plugin("sources").unwrap().is_isolated());
    for first in [&b"PART of it"[..], b"it is the LAST"] {
        let text = described(&isolated, first);
        assert_eq!(text, described(&direct, first));
        let (n, begin) = (first.len(), String::from_utf8_lossy(&first[..7]));
        assert!(text.starts_with(&format!("[first: {n} bytes, version '\"tag\"', {begin}]")), "{text}");
        assert!(text.contains("second: 11 bytes, version '', second ]"), "{text}");
        assert!(text.ends_with("[third: 1 bytes, version '\"tag\"', 3]"), "{text}");
    }
}
