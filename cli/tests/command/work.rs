//! What the command does and says with a plugin that reads and writes: the example in C, whose format is text.

use std::path::Path;
use std::sync::OnceLock;

use serde_json::json;

use crate::alone::{Alone, json, stdout};
use crate::common::c_library;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/c-plugin");

/// The plugin, built once.
fn csv() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        built(Path::new(env!("CARGO_TARGET_TMPDIR")), "csv.so", &format!("{EXAMPLE}/plugin.c"))
    })
}

/// The plugin with this in the place of its first source.
fn built(directory: &Path, file: &str, first: &str) -> String {
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugin-api/include");
    let sources = ["read", "scaled", "tools", "types", "write"].map(|name| format!("{EXAMPLE}/{name}.c"));
    let mut args = vec!["-I", include, "-I", EXAMPLE, first];
    args.extend(sources.iter().map(String::as_str));
    c_library(directory, file, &args).display().to_string()
}

/// A directory in which `in.csv` has three rows.
fn with_rows() -> Alone {
    let alone = Alone::new();
    std::fs::write(alone.path().join("in.csv"), "a,b\n1,x\n2,y\n3,z\n").unwrap();
    alone
}

fn content(alone: &Alone, file: &str) -> String {
    std::fs::read_to_string(alone.path().join(file)).unwrap()
}

#[test]
fn convert_writes_the_columns_that_were_asked_for_and_reports_each_stage() {
    let alone = with_rows();
    let convert = |more: &[&str]| {
        stdout(&alone.run(&[&["convert", "in.csv", "out.csv", "--plugins", csv()], more].concat()))
    };
    let report = convert(&["--columns", "b"]);
    assert_eq!(content(&alone, "out.csv"), "b\nx\ny\nz\n");
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), 4, "{report}");
    assert!(lines[0].starts_with("stage      rows  bytes "), "{report}");
    assert!(lines[1].starts_with("read csv      3   32 B "), "{report}");
    assert!(lines[2].starts_with("write csv     3    8 B "), "{report}");
    assert!(lines[3].starts_with("total "), "{report}");
    assert_eq!(convert(&["--quiet"]), "");
    assert_eq!(content(&alone, "out.csv"), content(&alone, "in.csv"));
    let report: serde_json::Value = serde_json::from_str(&convert(&["--json", "--no-map"])).unwrap();
    assert_eq!(report["leaks"], json!([]));
    assert!(report["peak_account_bytes"].as_u64().unwrap() >= 32, "{report}");
    let stages = report["stages"].as_array().unwrap();
    let said = |stage: &serde_json::Value| {
        ["stage", "plugin", "format", "rows", "batches", "bytes"].map(|key| stage[key].clone())
    };
    assert_eq!(
        said(&stages[0])[..],
        [json!("read"), json!("csv"), json!("csv"), json!(3), json!(1), json!(32)]
    );
    assert_eq!(
        said(&stages[1])[..],
        [json!("write"), json!("csv"), json!("csv"), json!(3), json!(1), json!(16)]
    );
}

#[test]
fn convert_to_standard_output_reports_on_standard_error() {
    let alone = with_rows();
    let output = alone.run(&["convert", "in.csv", "-", "--to", "csv", "--plugins", csv(), "--json"]);
    assert_eq!(stdout(&output), content(&alone, "in.csv"));
    let report: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(report["stages"].as_array().unwrap().len(), 2);
}

#[test]
fn convert_tells_formats_what_they_were_asked_for() {
    let alone = with_rows();
    let convert = |more: &[&str]| {
        alone.run(&[&["convert", "in.csv", "out.csv", "--plugins", csv(), "--quiet"], more].concat())
    };
    assert!(convert(&["--to-option", "delimiter=;", "--from-option", "types=int32,utf8"]).status.success());
    assert_eq!(content(&alone, "out.csv"), "a;b\n1;x\n2;y\n3;z\n");
    // One column of numbers, of which one is none.
    let refused = convert(&["--from-option", "types=int32,int32"]);
    assert_eq!(refused.status.code(), Some(1));
    let line = String::from_utf8(refused.stderr).unwrap();
    assert!(line.starts_with("crossdock: error: ") && line.contains("int32"), "{line}");
    let refused = convert(&["--compression", "lz4"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("compression"));
}

#[test]
fn plan_gives_each_column_its_bytes_and_what_becomes_of_it() {
    let alone = with_rows();
    let plan = |more: &[&str]| {
        alone.run(
            &[&["plan", "in.csv", "--plugins", csv(), "--from-option", "types=int32,utf8"], more].concat(),
        )
    };
    let text = "3 rows in 1 batches on cpu, written as csv by csv: 12 B to be moved
column  type     bytes  verdict    to   reason
a       Int32     12 B  converted  cpu  printed as text
b       Utf8   unknown  converted  cpu  printed as text
";
    assert_eq!(stdout(&plan(&["--to", "csv"])), text);
    let column = |name, data_type, bytes: Option<u64>| {
        json!({ "name": name, "type": data_type, "bytes": bytes, "verdict": "converted", "to": "cpu",
                "reason": "printed as text" })
    };
    let expected = json!({
        "plugin": "csv", "format": "csv", "from": "cpu", "rows": 3, "batches": 1, "bytes_moved": 12,
        "columns": [column("a", "Int32", Some(12)), column("b", "Utf8", None)],
    });
    assert_eq!(json(&plan(&["--to", "csv", "--json"])), expected);
    assert!(stdout(&plan(&["--via", "csv"])).contains(" on cpu, sent through csv by csv: "));
    assert_eq!(plan(&[]).status.code(), Some(2), "--to or --via");
}

#[test]
fn plugins_lists_what_each_reads_writes_and_decodes() {
    let alone = Alone::new();
    let plugins = |more: &[&str]| stdout(&alone.run(&[&["plugins", "--plugins", csv()], more].concat()));
    let head =
        "csv 0.1.0: comma-separated text, both ways, and example.scaled\n  reads: csv\n  writes: csv\n";
    assert_eq!(plugins(&[]), format!("{head}  decodes: 1 encodings\n  from: {}\n", csv()));
    let explained = plugins(&["--explain"]);
    let expected = format!("{head}  decodes: example.scaled\n  from: {}\n  found: given\n", csv());
    assert!(explained.starts_with(&expected), "{explained}");
    let rest: Vec<&str> = explained[expected.len()..].lines().collect();
    // The format is read and written, and said once; the options of each way are said for each.
    let begins = [
        "    format  endings  holds",
        "    csv     .csv     comma-separated text (RFC 4180)",
        "    format         option     meaning",
        "    csv (read)     delimiter  ",
        "    csv (read)     types      ",
        "    csv (written)  delimiter  ",
    ];
    assert_eq!(rest.len(), begins.len(), "{explained}");
    assert!(rest.iter().zip(begins).all(|(line, begin)| line.starts_with(begin)), "{explained}");
    let out: serde_json::Value = serde_json::from_str(&plugins(&["--json"])).unwrap();
    let plugin = &out["plugins"][0];
    assert_eq!(plugin["decodes"], json!(["example.scaled"]));
    assert_eq!((&plugin["isolated"], &plugin["status"]), (&json!(false), &json!("chosen")));
    assert_eq!(plugin["reads"][0]["endings"], json!([".csv"]));
    let keys = plugin["reads"][0]["options"].as_array().unwrap().iter().map(|option| &option["key"]);
    assert_eq!(keys.collect::<Vec<_>>(), ["delimiter", "types"]);
    assert_eq!(plugin["writes"][0]["options"].as_array().unwrap().len(), 1);
}

#[test]
fn of_several_plugins_that_decode_the_same_the_first_is_asked() {
    let alone = Alone::new();
    let source = std::fs::read_to_string(format!("{EXAMPLE}/plugin.c")).unwrap();
    let twin = alone.path().join("twin.c");
    std::fs::write(&twin, source.replace(".name = \"csv\",", ".name = \"twin\",")).unwrap();
    let twin = built(alone.path(), "twin.so", &twin.display().to_string());
    let text = stdout(&alone.run(&["plugins", "--explain", "--plugins", csv(), "--plugins", &twin]));
    let note = "note: several plugins decode example.scaled, the first is asked: csv, twin\n";
    assert!(text.ends_with(note), "{text}");
}

#[test]
fn encoded_makes_a_tree_of_parts_and_inspect_shows_its_nodes() {
    let alone = Alone::new();
    let encoded = |args: &[&str]| alone.run(&[&["encoded"], args].concat());
    std::fs::write(alone.path().join("bytes"), [1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let leaf = ["leaf.cdenc", "--encoding", "a.b", "--type", "Int32", "--length", "1200"];
    let parts = ["--metadata", "hex:0102", "--buffer", "bytes", "--buffer", "hex:ff"];
    let text = stdout(&encoded(&[&leaf[..], &parts].concat()));
    let expected = "an encoded array, version 1: 1 node, 2 buffers, 257 B
node  values  metadata  buffers   decoded by  type
a.b    1,200  0102      8 B, 1 B  no plugin   Int32
";
    assert_eq!(text, expected);
    let root =
        ["root.cdenc", "--encoding", "example.scaled", "--type", "Float32", "--length", "0", "--nullable"];
    let children = ["--child", "leaf.cdenc", "--child", "leaf.cdenc", "--metadata", "bytes"];
    assert!(encoded(&[&root[..], &children].concat()).status.success());
    let text = stdout(&alone.run(&["inspect", "root.cdenc", "--plugins", csv()]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("an encoded array, version 1: 3 nodes, 4 buffers, "), "{text}");
    assert_eq!(
        lines[1..],
        [
            "node            values  metadata          buffers   decoded by  type",
            "example.scaled       0  0102030405060708  -         csv         Float32, nullable",
            "  a.b            1,200  0102              8 B, 1 B  no plugin   Int32",
            "  a.b            1,200  0102              8 B, 1 B  no plugin   Int32",
        ]
    );
    let out = json(&alone.run(&["inspect", "root.cdenc", "--json"]));
    let nodes = out["nodes"].as_array().unwrap();
    let of = |key: &str| nodes.iter().map(|node| node[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("depth"), [0, 1, 1]);
    assert_eq!(of("children"), [2, 0, 0]);
    assert_eq!(of("length"), [0, 1200, 1200]);
    assert_eq!(nodes[1]["buffers"][0]["bytes"], 8);
    assert_eq!(nodes[1]["metadata"], "0102");
    assert_eq!((&nodes[0]["type"], &nodes[0]["nullable"]), (&json!("Float32"), &json!(true)));
    for wrong in [
        &["--metadata", "hex:0"][..],
        &["--buffer", "hex:xy"],
        &["--buffer", "nowhere"],
        &["--metadata", "nowhere"],
        &["--child", "nowhere"],
        &["--child", "bytes"],
    ] {
        let leaf = ["wrong.cdenc", "--encoding", "a.b", "--type", "Int32", "--length", "1"];
        let output = encoded(&[&leaf[..], wrong].concat());
        assert!(!output.status.success(), "{wrong:?}");
        assert!(!alone.path().join("wrong.cdenc").exists(), "{wrong:?}");
    }
}

#[test]
fn a_table_of_one_column_is_a_child_as_it_is_stored() {
    let alone = with_rows();
    std::fs::write(alone.path().join("one.csv"), "v\nx\n").unwrap();
    let node = ["--encoding", "a.b", "--type", "Utf8", "--length", "1", "--plugins", csv()];
    let child = |file: &str| alone.run(&[&["encoded", "out.cdenc", "--child", file], &node[..]].concat());
    let refused = String::from_utf8(child("in.csv").stderr).unwrap();
    assert!(refused.contains("'in.csv' has 2 columns, expected one: a, b"), "{refused}");
    // A session encodes where a plugin writes encoded arrays, and none does here.
    let refused = String::from_utf8(child("one.csv").stderr).unwrap();
    assert!(refused.contains("the format encoded-array: no plugin or format has this name"), "{refused}");
}

#[test]
fn new_makes_a_folder_once_and_says_what_is_in_it() {
    let alone = Alone::new();
    let new = |args: &[&str]| alone.run(&[&["new"], args].concat());
    let text = stdout(&new(&["lines", "--language", "c"]));
    let expected = "lines: a plugin in C that reads files that end in .lines
  made: Makefile, .gitignore, README.md, plugin.c, crossdock.h, sample.lines
  try it: cd lines && make test
";
    assert_eq!(text, expected);
    assert_eq!(content(&alone, "lines/sample.lines"), "1\n-20\n300\n");
    assert!(content(&alone, "lines/plugin.c").contains("`lines`"));
    let text = stdout(&new(&["packer", "--encoding", "packer.bits"]));
    let expected = "packer: a plugin in Rust that decodes packer.bits
  made: Cargo.toml, .gitignore, README.md, src/lib.rs, tests/in_a_host.rs, sample.cdenc
  try it: cd packer && cargo test
";
    assert_eq!(text, expected);
    let manifest = content(&alone, "packer/Cargo.toml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(manifest.contains(&format!("crossdock-plugin-api = \"{version}\"\n")), "{manifest}");
    let text = stdout(&alone.run(&["inspect", "packer/sample.cdenc"]));
    assert!(text.contains("\npacker.bits       3  e8030000  12 B     no plugin   Int32\n"), "{text}");
    for (args, words) in [
        (&["lines", "--language", "c"][..], "'lines' exists already"),
        (&["b", "--language", "c", "--checkout", "."], "a plugin in C needs no crates"),
        (&["b", "--checkout", "."], "it has no arrays/Cargo.toml"),
    ] {
        let (status, line) = alone.fails(&[&["new"], args].concat());
        assert_eq!(status, 2, "{line}");
        assert!(line.contains(words), "{line}");
        assert!(!alone.path().join("b").exists());
    }
}
