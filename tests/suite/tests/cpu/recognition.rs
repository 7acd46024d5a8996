//! Tests how content, file extension, `--from`, `--to` and `--via` select a format, and how errors
//! explain conflicts.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use crossdock_tests::{assert_nothing_left, command, crossdock, csv_plugin, sample};

struct Fixture {
    folder: tempfile::TempDir,
    plugin: PathBuf,
}

fn fixture() -> Fixture {
    Fixture { folder: tempfile::tempdir().unwrap(), plugin: csv_plugin() }
}

impl Fixture {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn convert(&self, from: &Path, to: &Path, more: &[&str]) -> Output {
        let [from, to, plugin] = [from, to, &self.plugin].map(|path| path.to_str().unwrap());
        crossdock(&[&["convert", from, to, "--plugins", plugin, "--quiet"], more].concat())
    }

    #[track_caller]
    fn convert_successfully(&self, from: &Path, to: &Path, more: &[&str]) -> String {
        let out = self.convert(from, to, more);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{stderr}");
        stderr
    }

    #[track_caller]
    fn assert_rejected(&self, from: &Path, to: &Path, more: &[&str], status: i32, expected: &[&str]) {
        let out = self.convert(from, to, more);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(status), "{stderr}");
        for part in expected {
            assert!(stderr.contains(part), "{stderr:?} does not contain {part:?}");
        }
        assert_nothing_left(to);
    }
}

#[test]
fn from_option_overrides_content_and_content_overrides_file_extension() {
    let fixture = fixture();
    let (misnamed, stream) = (fixture.at("sample.csv"), fixture.at("a.arrows"));
    std::fs::copy(sample(), &misnamed).unwrap();
    assert_eq!(fixture.convert_successfully(&misnamed, &stream, &[]), "", "the content selects the reader");
    assert!(std::fs::read(&stream).unwrap().starts_with(&[0xff; 4]), "the extension selects the writer");
    let file = fixture.at("b.arrow");
    assert_eq!(fixture.convert_successfully(&stream, &file, &["--to", "arrow-ipc-stream"]), "");
    assert!(std::fs::read(&file).unwrap().starts_with(&[0xff; 4]), "--to selects the writer");
}

#[test]
fn error_explains_conflict_between_from_option_and_content() {
    let fixture = fixture();
    let out = fixture.at("out.arrow");
    let expected = [
        "--from arrow-ipc-stream",
        "are those of arrow-ipc-file",
        "omit the option, or pass --from arrow-ipc-file",
    ];
    fixture.assert_rejected(&sample(), &out, &["--from", "arrow-ipc-stream"], 2, &expected);
    let expected = ["are those of arrow-ipc-file, but it is read as csv because of --from csv", "NUL byte"];
    fixture.assert_rejected(&sample(), &out, &["--from", "csv"], 1, &expected);
    // A text that begins like an Arrow file is read as CSV with `--from csv`.
    let text = fixture.at("text");
    std::fs::write(&text, "ARROW1,b\n1,2\n").unwrap();
    let warning = fixture.convert_successfully(&text, &out, &["--from", "csv"]);
    assert!(warning.contains("warning") && warning.contains("because of --from csv"), "{warning}");
}

#[test]
fn error_for_unknown_format_lists_the_known_formats() {
    let fixture = fixture();
    let text = fixture.at("in.txt");
    std::fs::write(&text, "a,b\n1,2\n").unwrap();
    let known = ["csv (.csv)", "arrow-ipc-file (.arrow .feather .ipc)", "--from"];
    fixture.assert_rejected(&text, &fixture.at("out.arrow"), &[], 1, &known);
    fixture.assert_rejected(&sample(), &fixture.at("out.xyz"), &[], 2, &["csv (.csv)", "--to"]);
    fixture.assert_rejected(
        &sample(),
        &fixture.at("out.csv"),
        &["--to", "arrow-ipc"],
        2,
        &["arrow-ipc-stream (.arrows -)"],
    );
    fixture.assert_rejected(
        &sample(),
        &fixture.at("out.x"),
        &["--to", "dlpack"],
        2,
        &["capsules", "--via dlpack"],
    );
    fixture.assert_rejected(&sample(), &fixture.at("out.csv"), &["--from", "dlpack"], 2, &["capsules"]);
    fixture.assert_rejected(
        &sample(),
        &fixture.at("out.csv"),
        &["--from", "nope"],
        2,
        &["--from nope", "arrow-ipc-file"],
    );
    let options = ["--via", "dlpack", "--via-option", "bool=bits", "--columns", "year"];
    fixture.assert_rejected(
        &sample(),
        &fixture.at("out.csv"),
        &options,
        2,
        &["option 'bool'", "the formats are: dlpack"],
    );
    let options = ["--to-option", "compression=lz4"];
    fixture.assert_rejected(
        &sample(),
        &fixture.at("out.csv"),
        &options,
        1,
        &["csv", "no option 'compression'", "delimiter"],
    );
}

#[test]
fn ipc_streams_of_any_framing_are_recognised_by_content() {
    let fixture = fixture();
    let batch = FileReader::try_new(File::open(sample()).unwrap(), None).unwrap().next().unwrap().unwrap();
    for (is_legacy, version) in [(true, MetadataVersion::V4), (false, MetadataVersion::V5)] {
        let (options, mut stream) = (IpcWriteOptions::try_new(8, is_legacy, version).unwrap(), Vec::new());
        let mut writer = StreamWriter::try_new_with_options(&mut stream, &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let (bare, out) = (fixture.at("bare"), fixture.at("out.ipc"));
        let rows = |file: &Path| {
            let reader = FileReader::try_new(File::open(file).unwrap(), None).unwrap();
            reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>()
        };
        for (bytes, times) in [(stream.clone(), 1), ([&stream[..], &stream].concat(), 2)] {
            std::fs::write(&bare, bytes).unwrap();
            assert_eq!(fixture.convert_successfully(&bare, &out, &[]), "");
            assert_eq!(rows(&out), times * batch.num_rows());
            let mut command = command(&["convert", "-", out.to_str().unwrap(), "--quiet"]);
            let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(&std::fs::read(&bare).unwrap()).unwrap();
            let done = child.wait_with_output().unwrap();
            assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
            assert_eq!(rows(&out), times * batch.num_rows());
        }
    }
}

#[test]
fn via_option_converts_through_bytes_if_the_format_has_no_capsules() {
    let fixture = fixture();
    let columns = "year,dep_time,tailnum,cancelled,speed_mph";
    let (direct, through) = (fixture.at("direct.arrow"), fixture.at("through.arrow"));
    fixture.convert_successfully(&sample(), &direct, &["--columns", columns]);
    let vias = ["--via", "csv", "--via", "arrow-ipc", "--via", "arrow-ipc-stream", "--columns", columns];
    for device in ["cpu", "untouchable"] {
        fixture.convert_successfully(&sample(), &through, &[&vias[..], &["--device", device]].concat());
        assert!(std::fs::read(&direct).unwrap() == std::fs::read(&through).unwrap(), "{device}");
    }
    // The error for a column that the format cannot represent names the format and the column.
    let expected = ["csv", "carrier"];
    fixture.assert_rejected(&sample(), &fixture.at("no.arrow"), &["--via", "csv"], 1, &expected);
}
