//! Tests commands with the example plugin in C. The plugin reads and writes text, and decodes an
//! encoding.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

use serde_json::json;

use crate::command_dir::{CommandDir, json, stdout};
use crate::common::c_library;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/c-plugin");

/// The path of the example plugin, which is compiled once.
fn csv() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        compile(Path::new(env!("CARGO_TARGET_TMPDIR")), "csv.so", &format!("{EXAMPLE}/plugin.c"))
    })
}

/// Compiles the example with the file `plugin_c` in place of the example's `plugin.c`.
fn compile(directory: &Path, file: &str, plugin_c: &str) -> String {
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugin-api/include");
    let sources = ["read", "scaled", "tools", "types", "write"].map(|name| format!("{EXAMPLE}/{name}.c"));
    let mut args = vec!["-I", include, "-I", EXAMPLE, plugin_c];
    args.extend(sources.iter().map(String::as_str));
    c_library(directory, file, &args).display().to_string()
}

/// A directory in which `in.csv` has three rows.
fn with_rows() -> CommandDir {
    let dir = CommandDir::new();
    std::fs::write(dir.path().join("in.csv"), "a,b\n1,x\n2,y\n3,z\n").unwrap();
    dir
}

fn content(dir: &CommandDir, file: &str) -> String {
    std::fs::read_to_string(dir.path().join(file)).unwrap()
}

#[test]
fn convert_command_writes_the_selected_columns_and_reports_each_stage() {
    let dir = with_rows();
    let convert = |more: &[&str]| {
        stdout(&dir.run(&[&["convert", "in.csv", "out.csv", "--plugins", csv()], more].concat()))
    };
    let report = convert(&["--columns", "b"]);
    assert_eq!(content(&dir, "out.csv"), "b\nx\ny\nz\n");
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), 4, "{report}");
    assert!(lines[0].starts_with("stage      rows  bytes "), "{report}");
    assert!(lines[1].starts_with("read csv      3   16 B "), "{report}");
    assert!(lines[2].starts_with("write csv     3    8 B "), "{report}");
    assert!(lines[3].starts_with("total "), "{report}");
    assert_eq!(convert(&["--quiet"]), "");
    assert_eq!(content(&dir, "out.csv"), content(&dir, "in.csv"));
    let report: serde_json::Value = serde_json::from_str(&convert(&["--json", "--no-map"])).unwrap();
    assert_eq!(report["leaks"], json!([]));
    assert!(report["peak_account_bytes"].as_u64().unwrap() >= 32, "{report}");
    let stages = report["stages"].as_array().unwrap();
    let fields = |stage: &serde_json::Value| {
        ["stage", "plugin", "format", "rows", "batches", "bytes"].map(|key| stage[key].clone())
    };
    assert_eq!(
        fields(&stages[0])[..],
        [json!("read"), json!("csv"), json!("csv"), json!(3), json!(1), json!(32)]
    );
    assert_eq!(
        fields(&stages[1])[..],
        [json!("write"), json!("csv"), json!("csv"), json!(3), json!(1), json!(16)]
    );
}

#[test]
fn show_command_prints_the_first_rows_of_all_files() {
    let dir = with_rows();
    std::fs::copy(dir.path().join("in.csv"), dir.path().join("more.csv")).unwrap();
    let types = "types=int64,utf8";
    let show = |more: &[&str]| {
        stdout(&dir.run(&[&["show", "in.csv", "--plugins", csv(), "--from-option", types], more].concat()))
    };
    assert_eq!(show(&[]), "a      b\nint64  string\n1      x\n2      y\n3      z\n");
    assert_eq!(show(&["--rows", "1"]), "a      b\nint64  string\n1      x\n... more rows\n");
    assert_eq!(show(&["more.csv", "--columns", "b", "--rows", "4"]).lines().count(), 2 + 4 + 1);
    assert_eq!(show(&["--schema"]).lines().count(), 2);
    let shown: serde_json::Value = serde_json::from_str(&show(&["--json", "--rows", "2"])).unwrap();
    assert_eq!(shown["rows"], json!([{ "a": 1, "b": "x" }, { "a": 2, "b": "y" }]));
    assert_eq!(shown["columns"][1]["name"], "b");
    let shown: serde_json::Value = serde_json::from_str(&show(&["--json", "--schema"])).unwrap();
    assert_eq!((shown["rows"].is_null(), shown["columns"].as_array().unwrap().len()), (true, 2));
    let (status, line) = dir.fails(&["show", "none.csv", "--plugins", csv()]);
    assert!(status == 1 && line.contains("none.csv"), "{line}");
}

#[test]
fn convert_and_show_read_the_files_of_patterns_as_one_table() {
    let dir = with_rows();
    for name in ["part-2.csv", "part-1.csv"] {
        std::fs::copy(dir.path().join("in.csv"), dir.path().join(name)).unwrap();
    }
    let convert = |inputs: &[&str]| {
        let options = ["out.csv", "--quiet", "--plugins", csv(), "--rows", "2:4"];
        stdout(&dir.run(&[&["convert"], inputs, &options].concat()));
        content(&dir, "out.csv")
    };
    let expected = "a,b\n3,z\n1,x\n";
    assert_eq!(convert(&["part-*.csv"]), expected);
    assert_eq!(convert(&["in.csv", "part-[2].csv"]), expected);
    let shown = stdout(&dir.run(&["show", "part-?.csv", "--plugins", csv(), "--rows", "9"]));
    assert_eq!(shown.lines().count(), 2 + 6, "{shown}");
    let (status, line) = dir.fails(&["convert", "part-9*.csv", "out.csv", "--plugins", csv()]);
    assert!(status == 2 && line.contains("'part-9*.csv': no file matches the pattern"), "{status} {line}");
    let (status, line) = dir.fails(&["convert", "in.csv", "-", "out.csv", "--plugins", csv()]);
    assert!(status == 2 && line.contains("standard input can only be the only input"), "{status} {line}");
    std::fs::write(dir.path().join("part-3.csv"), "a,other\n1,2\n").unwrap();
    let (_, line) = dir.fails(&["convert", "part-*.csv", "new.csv", "--plugins", csv()]);
    assert!(line.contains("'part-3.csv' does not have the schema") && line.contains("other"), "{line}");
    assert!(!dir.path().join("new.csv").exists());
}

#[test]
fn filter_keeps_the_rows_that_fulfil_all_comparisons() {
    let dir = with_rows();
    let plugin = ["--plugins", csv(), "--from-option", "types=int64,utf8"];
    let show = |more: &[&str]| stdout(&dir.run(&[&["show", "in.csv"], &plugin[..], more].concat()));
    assert_eq!(show(&["--filter", "a >= 1.5"]), "a      b\nint64  string\n2      y\n3      z\n");
    assert_eq!(show(&["--columns", "b", "--filter", "a>1", "--filter", "b!=z"]), "b\nstring\ny\n");
    let convert = |more: &[&str]| {
        let files = ["convert", "in.csv", "-", "--to", "csv", "--quiet"];
        dir.run(&[&files[..], &plugin[..], more].concat())
    };
    assert_eq!(stdout(&convert(&["--filter", "a>1", "--limit", "1"])), "a,b\n2,y\n");
    for (filter, expected) in [
        ("a", "'a' is not a filter"),
        ("none > 1", "there is no column 'none'"),
        ("a > x", "column 'a': 'x' is not a value of type int64, expected a number"),
    ] {
        let output = convert(&["--filter", filter]);
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && line.contains(expected), "{filter}: {line}");
    }
}

#[test]
fn convert_to_standard_output_reports_on_standard_error() {
    let dir = with_rows();
    let output = dir.run(&["convert", "in.csv", "-", "--to", "csv", "--plugins", csv(), "--json"]);
    assert_eq!(stdout(&output), content(&dir, "in.csv"));
    let report: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(report["stages"].as_array().unwrap().len(), 2);
}

#[test]
fn convert_passes_options_to_the_formats() {
    let dir = with_rows();
    let convert = |more: &[&str]| {
        dir.run(&[&["convert", "in.csv", "out.csv", "--plugins", csv(), "--quiet"], more].concat())
    };
    assert!(convert(&["--to-option", "delimiter=;", "--from-option", "types=int32,utf8"]).status.success());
    assert_eq!(content(&dir, "out.csv"), "a;b\n1;x\n2;y\n3;z\n");
    // The values of the second column are not integers.
    let failed = convert(&["--from-option", "types=int32,int32"]);
    assert_eq!(failed.status.code(), Some(1));
    let line = String::from_utf8(failed.stderr).unwrap();
    assert!(line.starts_with("error: ") && line.contains("int32"), "{line}");
    let failed = convert(&["--compression", "lz4"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8(failed.stderr).unwrap().contains("compression"));
}

#[test]
fn plan_command_shows_the_bytes_and_the_verdict_of_each_column() {
    let dir = with_rows();
    let plan = |more: &[&str]| {
        dir.run(
            &[&["plan", "in.csv", "--plugins", csv(), "--from-option", "types=int32,utf8"], more].concat(),
        )
    };
    let text = "3 rows in 1 batches on cpu, written as csv by csv: 12 B to be moved
column  type      bytes  verdict    to   reason
a       int32      12 B  converted  cpu  printed as text
b       string  unknown  converted  cpu  printed as text
";
    assert_eq!(stdout(&plan(&["--to", "csv"])), text);
    let column = |name, data_type, bytes: Option<u64>| {
        json!({ "name": name, "type": data_type, "bytes": bytes, "verdict": "converted", "to": "cpu",
                "reason": "printed as text", "decoded_on_host": [] })
    };
    let expected = json!({
        "plugin": "csv", "format": "csv", "from": "cpu", "rows": 3, "batches": 1, "bytes_moved": 12,
        "columns": [column("a", "int32", Some(12)), column("b", "string", None)],
    });
    assert_eq!(json(&plan(&["--to", "csv", "--json"])), expected);
    assert!(stdout(&plan(&["--via", "csv"])).contains(" on cpu, sent through csv by csv: "));
    assert_eq!(plan(&[]).status.code(), Some(2), "either --to or --via is required");
}

#[test]
fn plugins_command_lists_formats_options_and_encodings() {
    let dir = CommandDir::new();
    let plugins = |more: &[&str]| stdout(&dir.run(&[&["plugins", "--plugins", csv()], more].concat()));
    let head =
        "csv 0.1.0: comma-separated text (read and write), and example.scaled\n  reads: csv\n  writes: csv\n";
    assert_eq!(plugins(&[]), format!("{head}  decodes: 1 encodings\n  from: {}\n", csv()));
    let explained = plugins(&["--explain"]);
    let expected = format!(
        "{head}  decodes: example.scaled\n  from: {}\n  found: given\n  requires: crossdock.host.memory/1\n",
        csv()
    );
    assert!(explained.starts_with(&expected), "{explained}");
    let rest: Vec<&str> = explained[expected.len()..].lines().collect();
    // A format that is both read and written has one row. An option has one row for each direction
    // (read, written) that accepts it.
    let begins = [
        "    format  extensions  description",
        "    csv     .csv        comma-separated text (RFC 4180)",
        "    format         option     meaning",
        "    csv (read)     delimiter  ",
        "    csv (read)     types      ",
        "    csv (written)  delimiter  ",
    ];
    assert_eq!(rest.len(), begins.len(), "{explained}");
    assert!(rest.iter().zip(begins).all(|(line, begin)| line.starts_with(begin)), "{explained}");
    let listed: serde_json::Value = serde_json::from_str(&plugins(&["--json"])).unwrap();
    let plugin = &listed["plugins"][0];
    assert_eq!(plugin["decodes"], json!(["example.scaled"]));
    assert_eq!((&plugin["isolated"], &plugin["status"]), (&json!(false), &json!("chosen")));
    assert_eq!(plugin["reads"][0]["extensions"], json!([".csv"]));
    let keys = plugin["reads"][0]["options"].as_array().unwrap().iter().map(|option| &option["key"]);
    assert_eq!(keys.collect::<Vec<_>>(), ["delimiter", "types"]);
    assert_eq!(plugin["writes"][0]["options"].as_array().unwrap().len(), 1);
}

#[test]
fn plugins_command_prints_note_if_several_plugins_decode_an_encoding() {
    let dir = CommandDir::new();
    let source = std::fs::read_to_string(format!("{EXAMPLE}/plugin.c")).unwrap();
    let renamed = dir.path().join("second.c");
    std::fs::write(&renamed, source.replace(".name = \"csv\",", ".name = \"second\",")).unwrap();
    let second = compile(dir.path(), "second.so", &renamed.display().to_string());
    let text = stdout(&dir.run(&["plugins", "--explain", "--plugins", csv(), "--plugins", &second]));
    let note = "note: several plugins decode example.scaled, the first is used: csv, second\n";
    assert!(text.ends_with(note), "{text}");
}

#[test]
fn inspect_shows_the_nodes_of_an_array_that_encoded_command_wrote() {
    let dir = CommandDir::new();
    let encoded = |args: &[&str]| dir.run(&[&["encoded"], args].concat());
    std::fs::write(dir.path().join("bytes"), [1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let leaf = ["leaf.cdenc", "--encoding", "a.b", "--type", "int32", "--length", "1200"];
    let parts = ["--metadata", "hex:0102", "--buffer", "bytes", "--buffer", "hex:ff"];
    let text = stdout(&encoded(&[&leaf[..], &parts].concat()));
    let expected = "an encoded array, version 1: 1 node, 2 buffers, 257 B
node  values  metadata  buffers   decoded by  type
a.b    1,200  0102      8 B, 1 B  no plugin   int32
";
    assert_eq!(text, expected);
    let root =
        ["root.cdenc", "--encoding", "example.scaled", "--type", "float32", "--length", "0", "--nullable"];
    let children = ["--child", "leaf.cdenc", "--child", "leaf.cdenc", "--metadata", "bytes"];
    assert!(encoded(&[&root[..], &children].concat()).status.success());
    let text = stdout(&dir.run(&["inspect", "root.cdenc", "--plugins", csv()]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("an encoded array, version 1: 3 nodes, 4 buffers, "), "{text}");
    assert_eq!(
        lines[1..],
        [
            "node            values  metadata          buffers   decoded by  type",
            "example.scaled       0  0102030405060708  -         csv         float, nullable",
            "  a.b            1,200  0102              8 B, 1 B  no plugin   int32",
            "  a.b            1,200  0102              8 B, 1 B  no plugin   int32",
        ]
    );
    let inspected = json(&dir.run(&["inspect", "root.cdenc", "--json"]));
    let nodes = inspected["nodes"].as_array().unwrap();
    let fields = |key: &str| nodes.iter().map(|node| node[key].clone()).collect::<Vec<_>>();
    assert_eq!(fields("depth"), [0, 1, 1]);
    assert_eq!(fields("children"), [2, 0, 0]);
    assert_eq!(fields("length"), [0, 1200, 1200]);
    assert_eq!(nodes[1]["buffers"][0]["bytes"], 8);
    assert_eq!(nodes[1]["metadata"], "0102");
    assert_eq!((&nodes[0]["type"], &nodes[0]["nullable"]), (&json!("float"), &json!(true)));
    for invalid in [
        &["--metadata", "hex:0"][..],
        &["--buffer", "hex:xy"],
        &["--buffer", "nowhere"],
        &["--metadata", "nowhere"],
        &["--child", "nowhere"],
        &["--child", "bytes"],
    ] {
        let leaf = ["invalid.cdenc", "--encoding", "a.b", "--type", "Int32", "--length", "1"];
        let output = encoded(&[&leaf[..], invalid].concat());
        assert!(!output.status.success(), "{invalid:?}");
        assert!(!dir.path().join("invalid.cdenc").exists(), "{invalid:?}");
    }
}

#[test]
fn encoded_command_accepts_only_tables_of_one_column_as_children() {
    let dir = with_rows();
    std::fs::write(dir.path().join("one.csv"), "v\nx\n").unwrap();
    let node = ["--encoding", "a.b", "--type", "Utf8", "--length", "1", "--plugins", csv()];
    let child = |file: &str| dir.run(&[&["encoded", "out.cdenc", "--child", file], &node[..]].concat());
    let error = String::from_utf8(child("in.csv").stderr).unwrap();
    assert!(error.contains("'in.csv' has 2 columns, expected one: a, b"), "{error}");
    // The column itself is accepted, but no plugin here writes encoded arrays.
    let error = String::from_utf8(child("one.csv").stderr).unwrap();
    assert!(error.contains("format encoded-array: no plugin or format has this name"), "{error}");
}

#[test]
fn new_command_creates_a_folder_and_lists_its_files() {
    let dir = CommandDir::new();
    let new = |args: &[&str]| dir.run(&[&["new"], args].concat());
    let text = stdout(&new(&["lines", "--language", "c"]));
    let expected = "lines: a plugin in C that reads files with the extension .lines
  created: Makefile, .gitignore, README.md, plugin.c, crossdock.h, sample.lines
  test: cd lines && make test
";
    assert_eq!(text, expected);
    assert_eq!(content(&dir, "lines/sample.lines"), "1\n-20\n300\n");
    assert!(content(&dir, "lines/plugin.c").contains("`lines`"));
    let text = stdout(&new(&["packer", "--encoding", "packer.bits"]));
    let expected = "packer: a plugin in Rust that decodes packer.bits
  created: Cargo.toml, .gitignore, README.md, src/lib.rs, tests/in_a_host.rs, sample.cdenc
  test: cd packer && cargo test
";
    assert_eq!(text, expected);
    let page = include_str!("../../../docs/encoding-plugins.md");
    let blocks = page.split("\n```rust\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let code =
        |text: &str| text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let shown = blocks.flat_map(code).collect::<Vec<_>>();
    assert_eq!(code(&content(&dir, "packer/src/lib.rs")), shown, "docs/encoding-plugins.md shows other code");
    let manifest = content(&dir, "packer/Cargo.toml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(manifest.contains(&format!("crossdock-plugin-api = \"{version}\"\n")), "{manifest}");
    let text = stdout(&dir.run(&["inspect", "packer/sample.cdenc"]));
    assert!(text.contains("\npacker.bits       3  e8030000  12 B     no plugin   int32\n"), "{text}");
    for (args, words) in [
        (&["lines", "--language", "c"][..], "'lines' already exists"),
        (&["b", "--language", "c", "--checkout", "."], "--checkout cannot be used with --language c"),
        (&["b", "--checkout", "."], "there is no arrays/Cargo.toml"),
    ] {
        let (status, line) = dir.fails(&[&["new"], args].concat());
        assert_eq!(status, 2, "{line}");
        assert!(line.contains(words), "{line}");
        assert!(!dir.path().join("b").exists());
    }
}

/// Runs the command with a terminal as its standard error, and returns what appears there.
fn shown_on_terminal(dir: &CommandDir, args: &[&str]) -> String {
    let (mut terminal, mut program_side) = (-1, -1);
    let (null, size) =
        (std::ptr::null_mut(), libc::winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 });
    // SAFETY: the descriptors and the size are locals of the right types, and `openpty` permits
    // NULL for the other pointers.
    let result =
        unsafe { libc::openpty(&mut terminal, &mut program_side, null, std::ptr::null(), &raw const size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `openpty` opened both descriptors, and nothing else owns them.
    let (terminal, program_side) =
        unsafe { (OwnedFd::from_raw_fd(terminal), OwnedFd::from_raw_fd(program_side)) };
    let mut command = dir.command();
    command.args(args).env("TERM", "xterm").stdout(Stdio::null()).stderr(program_side);
    let mut child = command.spawn().unwrap();
    // Closes this process's copy of the descriptor, so that the output ends when the child exits.
    drop(command);
    let (mut shown, mut part) = (Vec::new(), [0; 4096]);
    let mut terminal = File::from(terminal);
    // Linux reports the end of a terminal's output as EIO.
    while let Ok(n @ 1..) = terminal.read(&mut part) {
        shown.extend_from_slice(&part[..n]);
    }
    assert!(child.wait().unwrap().success(), "{}", String::from_utf8_lossy(&shown));
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn verify_shows_the_number_of_completed_cases_on_a_terminal() {
    let dir = with_rows();
    let verify = ["verify", csv(), "--case", "entry.*", "--seeds", "1"];
    let shown = shown_on_terminal(&dir, &verify);
    assert!(shown.contains("░ ") || shown.contains("█ "), "{shown:?}");
    let counts = shown.split_whitespace().filter_map(|word| word.split_once('/'));
    assert!(
        counts.clone().any(|(done, all)| done == all && all.parse::<u32>().is_ok_and(|n| n > 0)),
        "{shown:?}"
    );
}
