//! Which plugin reads and writes what: by bytes, by endings, by `--from`, `--to` and `--via`; conflicts are explained.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use crossdock_tests::{assert_nothing_left, command, crossdock, csv_plugin, sample};

struct Place {
    folder: tempfile::TempDir,
    plugin: PathBuf,
}

fn place() -> Place {
    Place { folder: tempfile::tempdir().unwrap(), plugin: csv_plugin() }
}

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn convert(&self, from: &Path, to: &Path, more: &[&str]) -> Output {
        let [from, to, plugin] = [from, to, &self.plugin].map(|path| path.to_str().unwrap());
        crossdock(&[&["convert", from, to, "--plugins", plugin, "--quiet"], more].concat())
    }

    #[track_caller]
    fn done(&self, from: &Path, to: &Path, more: &[&str]) -> String {
        let out = self.convert(from, to, more);
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{words}");
        words
    }

    #[track_caller]
    fn refused(&self, from: &Path, to: &Path, more: &[&str], status: i32, words: &[&str]) {
        let out = self.convert(from, to, more);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(status), "{said}");
        for word in words {
            assert!(said.contains(word), "{said:?} does not contain {word:?}");
        }
        assert_nothing_left(to);
    }
}

#[test]
fn bytes_go_before_endings_and_from_before_both() {
    let place = place();
    let (misnamed, stream) = (place.at("sample.csv"), place.at("a.arrows"));
    std::fs::copy(sample(), &misnamed).unwrap();
    assert_eq!(place.done(&misnamed, &stream, &[]), "", "known by its bytes");
    assert!(std::fs::read(&stream).unwrap().starts_with(&[0xff; 4]), "written as the ending says");
    let file = place.at("b.arrow");
    assert_eq!(place.done(&stream, &file, &["--to", "arrow-ipc-stream"]), "");
    assert!(std::fs::read(&file).unwrap().starts_with(&[0xff; 4]), "written as --to says");
}

#[test]
fn what_was_asked_for_against_what_the_bytes_say_is_explained() {
    let place = place();
    let out = place.at("out.arrow");
    let words = ["--from arrow-ipc-stream", "are those of arrow-ipc-file", "leave --from out"];
    place.refused(&sample(), &out, &["--from", "arrow-ipc-stream"], 2, &words);
    let words = ["are those of arrow-ipc-file, and it is read as csv as --from says", "NUL byte"];
    place.refused(&sample(), &out, &["--from", "csv"], 1, &words);
    // A text that begins as an Arrow file does is text if its reader is told so.
    let text = place.at("text");
    std::fs::write(&text, "ARROW1,b\n1,2\n").unwrap();
    let warning = place.done(&text, &out, &["--from", "csv"]);
    assert!(warning.contains("warning") && warning.contains("--from says"), "{warning}");
}

#[test]
fn what_nobody_claims_is_named_with_what_there_is() {
    let place = place();
    let text = place.at("in.txt");
    std::fs::write(&text, "a,b\n1,2\n").unwrap();
    let known = ["csv (.csv)", "arrow-ipc-file (.arrow .feather .ipc)", "--from"];
    place.refused(&text, &place.at("out.arrow"), &[], 1, &known);
    place.refused(&sample(), &place.at("out.xyz"), &[], 2, &["csv (.csv)", "--to"]);
    place.refused(
        &sample(),
        &place.at("out.csv"),
        &["--to", "arrow-ipc"],
        2,
        &["arrow-ipc-stream (.arrows -)"],
    );
    place.refused(&sample(), &place.at("out.x"), &["--to", "dlpack"], 2, &["capsules", "--via dlpack"]);
    place.refused(&sample(), &place.at("out.csv"), &["--from", "dlpack"], 2, &["capsules"]);
    place.refused(
        &sample(),
        &place.at("out.csv"),
        &["--from", "nope"],
        2,
        &["--from nope", "arrow-ipc-file"],
    );
    let wish = ["--via", "dlpack", "--via-option", "bool=bits", "--columns", "year"];
    place.refused(&sample(), &place.at("out.csv"), &wish, 2, &["option 'bool'", "(dlpack)"]);
    let wish = ["--to-option", "compression=lz4"];
    place.refused(
        &sample(),
        &place.at("out.csv"),
        &wish,
        1,
        &["csv", "no option 'compression'", "delimiter"],
    );
}

#[test]
fn streams_of_any_framing_are_known_by_their_bytes_and_through_a_pipe() {
    let place = place();
    let batch = FileReader::try_new(File::open(sample()).unwrap(), None).unwrap().next().unwrap().unwrap();
    for (is_legacy, version) in [(true, MetadataVersion::V4), (false, MetadataVersion::V5)] {
        let (options, mut stream) = (IpcWriteOptions::try_new(8, is_legacy, version).unwrap(), Vec::new());
        let mut writer = StreamWriter::try_new_with_options(&mut stream, &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let (bare, out) = (place.at("bare"), place.at("out.ipc"));
        let rows = |file: &Path| {
            let reader = FileReader::try_new(File::open(file).unwrap(), None).unwrap();
            reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>()
        };
        for (bytes, times) in [(stream.clone(), 1), ([&stream[..], &stream].concat(), 2)] {
            std::fs::write(&bare, bytes).unwrap();
            assert_eq!(place.done(&bare, &out, &[]), "");
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
fn a_via_goes_through_bytes_where_there_are_no_capsules() {
    let place = place();
    let columns = "year,dep_time,tailnum,cancelled,speed_mph";
    let (direct, through) = (place.at("direct.arrow"), place.at("through.arrow"));
    place.done(&sample(), &direct, &["--columns", columns]);
    let vias = ["--via", "csv", "--via", "arrow-ipc", "--via", "arrow-ipc-stream", "--columns", columns];
    for device in ["cpu", "untouchable"] {
        place.done(&sample(), &through, &[&vias[..], &["--device", device]].concat());
        assert!(std::fs::read(&direct).unwrap() == std::fs::read(&through).unwrap(), "{device}");
    }
    // What the format cannot hold is said as always.
    let words = ["csv", "carrier"];
    place.refused(&sample(), &place.at("no.arrow"), &["--via", "csv"], 1, &words);
}
