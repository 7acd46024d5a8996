//! Tests trees that `crossdock encoded` composes from parts.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use crossdock::{Host, Table};
use crossdock_plugin_api::Device;
use crossdock_tests::{assert_rejected, built, command, crossdock};

#[test]
fn tree_composed_of_files_hex_digits_trees_and_columns_decodes() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let out = command(arguments).current_dir(folder.path()).output().unwrap();
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    std::fs::write(folder.path().join("codes.bin"), [0, 2, 1, 0]).unwrap();
    let numbers: Vec<u8> = [30i32, 10, 20].into_iter().flat_map(i32::to_le_bytes).collect();
    std::fs::write(folder.path().join("numbers.bin"), numbers).unwrap();
    let leaf = |file, name, length, buffer| {
        let basic = ["encoded", file, "--encoding", "vortex.primitive", "--type", name];
        run(&[&basic[..], &["--length", length, "--buffer", buffer]].concat())
    };
    leaf("codes.cdenc", "UInt8", "4", "codes.bin");
    leaf("values.cdenc", "Int32", "3", "numbers.bin");
    let again = leaf("values.cdenc", "Int32", "3", "hex:1e0000000a00000014000000");
    assert!(
        again.contains("vortex.primitive") && again.contains("int32") && again.contains("12 B"),
        "{again}"
    );
    run(&["convert", "values.cdenc", "values.arrow", "--quiet"]);
    for values in ["values.cdenc", "values.arrow"] {
        let basic =
            ["encoded", "dict.cdenc", "--encoding", "vortex.dict", "--type", "Int32", "--length", "4"];
        run(&[&basic[..], &["--metadata", "hex:0803", "--child", "codes.cdenc", "--child", values]].concat());
        let session =
            Host::builder().plugins(built()).build().unwrap().session().device(Device::CPU).open().unwrap();
        let batches = Table::read(&session, folder.path().join("dict.cdenc")).unwrap().to_record_batches();
        let column = batches.unwrap()[0].column(0).clone();
        assert_eq!(column.as_primitive::<Int32Type>().values(), &[30, 20, 10, 30], "{values}");
    }
}

#[test]
fn rejects_invalid_parts_of_a_tree_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.cdenc");
    let basic = ["encoded", file.to_str().unwrap(), "--encoding", "a.b", "--length", "1"];
    for (arguments, expected) in [
        (["--buffer", "/no/such/file"], "cannot open '/no/such/file'"),
        (["--child", "/no/such/file"], "cannot read '/no/such/file'"),
        (["--encoding", ""], "an id of 0 bytes"),
    ] {
        let basic = if arguments[0] == "--encoding" { &basic[..2] } else { &basic[..4] };
        let out = crossdock(&[basic, &arguments, &["--length", "1", "--type", "Int32"]].concat());
        assert_rejected(&out, &[expected], &file);
    }
    for (arguments, expected) in [
        (&["--type", "Int32", "--metadata", "hex:e"][..], "two hexadecimal digits"),
        (&["--type", "Int32", "--buffer", "hex:xy"], "two hexadecimal digits"),
        (&["--type", "Integer"], "the type 'Integer': expected a type"),
    ] {
        let out = crossdock(&[&basic[..], arguments].concat());
        assert_eq!(out.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&out.stderr).contains(expected) && !file.exists());
    }
}
