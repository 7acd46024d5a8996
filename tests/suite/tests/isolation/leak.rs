//! Tests that an isolated plugin can read the columns that it receives, but not the other columns
//! of the same file.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_ipc::writer::FileWriter;
use crossdock_tests::{built, compile_plugin, crossdock};

#[test]
fn isolated_exporter_cannot_read_columns_that_it_does_not_receive() {
    if crate::skips("isolated_exporter_cannot_read_columns_that_it_does_not_receive") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/isolation/leak.c");
    let plugin = compile_plugin(&source, folder.path(), "leak");
    let (input, output) = (folder.path().join("secret.arrow"), folder.path().join("out.leak"));
    let column = |text: &str| Arc::new(StringArray::from(vec![text; 1000])) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("public", column("for all")), ("hidden", column("TOP-SECRET"))])
        .unwrap();
    let mut file = FileWriter::try_new(std::fs::File::create(&input).unwrap(), &batch.schema()).unwrap();
    file.write(&batch).unwrap();
    file.finish().unwrap();
    let leaks = |columns: &str| {
        let paths =
            [&plugin, built().as_path(), &input, &output].map(|path| path.to_str().unwrap().to_owned());
        let [plugin, built, input, output] = &paths;
        let arguments = ["convert", "-q", "--isolate=leak", "--plugins", plugin, "--plugins", built];
        let out = crossdock(&[&arguments[..], &["--columns", columns, input, output]].concat());
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(stderr.contains("received a batch of 1 columns"), "{stderr}");
        stderr.contains("leaked: ")
    };
    assert!(leaks("hidden"), "the plugin does not find a column that it receives");
    assert!(!leaks("public"));
}
