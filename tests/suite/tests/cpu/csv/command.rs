//! Runs the command with the plugin `csv`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crossdock_tests::{assert_rejected, command, crossdock, csv_plugin, sample};

fn test_paths() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (csv, arrow) = (folder.path().join("a.csv"), folder.path().join("a.arrow"));
    (folder, csv, arrow)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn convert(from: &Path, to: &Path, more: &[&str]) -> Output {
    let plugin = csv_plugin();
    let arguments = ["convert", text(from), text(to), "--plugins", text(&plugin), "--quiet"];
    crossdock(&[&arguments[..], more].concat())
}

#[track_caller]
fn assert_success(out: &Output) {
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Columns of the sample that CSV can represent, and their types.
const COLUMNS: [&str; 2] = ["--columns", "year,month,dep_time,tailnum,cancelled,speed_mph"];
const TYPES: [&str; 2] = ["--from-option", "types=int16,int8,int16,utf8,bool,float64"];

#[test]
fn sample_round_trips_through_csv_by_file_extension() {
    let (folder, csv, arrow) = test_paths();
    assert_success(&convert(&sample(), &csv, &COLUMNS));
    let first = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(first.lines().count(), 27_005);
    assert!(first.starts_with("year,month,dep_time,"));
    // The values round-trip, and the second CSV file has the same text as the first one.
    let expected = folder.path().join("again.csv");
    assert_success(&convert(&csv, &arrow, &TYPES));
    assert_success(&convert(&arrow, &expected, &["--from", "arrow-ipc", "--to", "csv"]));
    assert!(first == std::fs::read_to_string(&expected).unwrap());
    // From CSV to CSV with another delimiter, and back.
    let other = folder.path().join("other.txt");
    assert_success(&convert(&csv, &other, &["--to", "csv", "--to-option", "delimiter=tab"]));
    assert!(std::fs::read_to_string(&other).unwrap().starts_with("year\tmonth\t"));
    let back = ["--from", "csv", "--from-option", "delimiter=tab"];
    assert_success(&convert(&other, &expected, &back));
    assert!(first == std::fs::read_to_string(&expected).unwrap());
}

#[test]
fn reads_and_writes_pipes_on_every_device() {
    let (_folder, csv, _) = test_paths();
    assert_success(&convert(&sample(), &csv, &COLUMNS));
    let whole = std::fs::read(&csv).unwrap();
    for device in ["cpu", "untouchable"] {
        let plugin = csv_plugin();
        let arguments = [
            "convert",
            "-",
            "-",
            "--from",
            "csv",
            "--to",
            "csv",
            "--plugins",
            text(&plugin),
            "--quiet",
            "--device",
            device,
        ];
        let mut child = command(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes = whole.clone();
        let feeder =
            std::thread::spawn(move || bytes.chunks(777).for_each(|chunk| stdin.write_all(chunk).unwrap()));
        let out = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        assert_success(&out);
        assert!(out.stdout == whole, "{device}");
    }
}

#[test]
fn plan_states_supported_and_unsupported_columns() {
    let plugin = csv_plugin();
    let sample = sample();
    let out = crossdock(&["plan", text(&sample), "--to", "csv", "--plugins", text(&plugin), "--json"]);
    assert_success(&out);
    let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let columns = plan["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 21);
    for column in columns {
        let data_type = column["type"].as_str().unwrap();
        let is_supported = !data_type.starts_with("dictionary<") && !data_type.starts_with("timestamp[");
        assert_eq!(column["verdict"], if is_supported { "converted" } else { "unsupported" }, "{column}");
        assert_eq!(column["reason"].as_str().unwrap().contains("leave it out"), !is_supported, "{column}");
    }
}

#[test]
fn errors_print_one_line_and_leave_no_file() {
    let (_folder, csv, arrow) = test_paths();
    std::fs::write(&csv, "a,b\n1,2\n3,\"4\n").unwrap();
    assert_rejected(&convert(&csv, &arrow, &[]), &["csv 0.1.0", "a.csv", "line 3", "never closed"], &arrow);
    std::fs::write(&csv, format!("a,b\n{}x,1\n", "1,2\n".repeat(20_000))).unwrap();
    let types = ["--from-option", "types=int64,int64"];
    let expected = ["a.csv", "line 20002", "column 'a'", "expected int64", "got 'x'"];
    assert_rejected(&convert(&csv, &arrow, &types), &expected, &arrow);
    assert_success(&convert(&csv, &arrow, &[]));
    std::fs::remove_file(&arrow).unwrap();
    std::fs::write(&csv, "a,b\n1,2\n").unwrap();
    let out = convert(&csv, &arrow, &["--memory", "4kB"]);
    assert_rejected(&out, &["csv 0.1.0", "4000"], &arrow);
    std::fs::write(&csv, "").unwrap();
    assert_rejected(&convert(&csv, &arrow, &[]), &["a.csv", "expected a header"], &arrow);
}

#[test]
fn command_lists_options_and_rejects_unknown_options() {
    let plugin = csv_plugin();
    let out = crossdock(&["plugins", "--explain", "--plugins", text(&plugin)]);
    let text_output = String::from_utf8(out.stdout).unwrap();
    for key in ["delimiter", "types"] {
        assert!(text_output.contains(key), "{text_output} does not list {key}");
    }
    let (_folder, csv, arrow) = test_paths();
    std::fs::write(&csv, "a\n1\n").unwrap();
    let out = convert(&csv, &arrow, &["--from-option", "colour=red"]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_ne!(out.status.code(), Some(0));
    assert!(stderr.contains("colour") && stderr.contains("delimiter"), "{stderr}");
    assert!(!arrow.exists());
}
