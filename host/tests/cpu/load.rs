//! What is refused, and in which words.

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

use crate::common::{
    SEGMENT_DYNAMIC, SEGMENT_LOAD, c_library, c_plugin, c_plugin_with, lines, segments, set_mode, temporary,
};
use crossdock::load::{Load, PluginFile, inspect};
use crossdock::metadata::{Metadata, MetadataError, Needs};

/// The reason's name and the whole sentence.
fn refusal(path: &Path) -> (&'static str, String) {
    let refused = PluginFile::new(path).load().expect_err("a refusal");
    (refused.reason.id(), refused.to_string())
}

fn refusal_of(definitions: &[&str]) -> (&'static str, String) {
    let directory = temporary();
    refusal(&c_plugin(directory.path(), "plugin.so", definitions))
}

fn assert_refused(definitions: &[&str], id: &str, words: &[&str]) {
    let (got, sentence) = refusal_of(definitions);
    assert_eq!(got, id, "{sentence}");
    for word in words {
        assert!(sentence.contains(word), "'{word}' is not in: {sentence}");
    }
}

#[test]
fn a_plugin_in_c_loads_and_says_who_it_is() {
    let directory = temporary();
    let loaded = PluginFile::new(c_plugin(directory.path(), "plugin.so", &[])).load().unwrap();
    assert_eq!(loaded.metadata.name, "c-nothing");
    assert_eq!(loaded.metadata.version, semver::Version::new(1, 0, 0));
    assert_eq!(loaded.metadata.licence, "Apache-2.0");
}

#[test]
fn a_missing_file_is_called_missing() {
    let (id, sentence) = refusal(Path::new("/nowhere/plugin.so"));
    assert_eq!(id, "missing");
    assert!(sentence.contains("/nowhere/plugin.so"), "{sentence}");
}

#[test]
fn directories_and_named_pipes_are_no_plugin_files() {
    let directory = temporary();
    assert_eq!(refusal(directory.path()).0, "not-a-file");
    let pipe = directory.path().join("pipe.so");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let (id, sentence) = refusal(&pipe);
    assert_eq!(id, "not-a-file");
    assert!(sentence.contains("a named pipe"), "{sentence}");
}

#[test]
fn a_text_file_is_not_an_elf_file() {
    let directory = temporary();
    let path = directory.path().join("plugin.so");
    for content in ["hello, world", "", "\x7fEL"] {
        std::fs::write(&path, content).unwrap();
        assert_eq!(refusal(&path).0, "not-elf");
    }
}

#[test]
fn tables_of_more_entries_than_any_library_has_are_refused_before_they_are_read() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    let whole = std::fs::read(&path).unwrap();
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap());
    let changed = |changes: &[(usize, &[u8])]| {
        let mut bytes = whole.clone();
        changes.iter().for_each(|(at, new)| bytes[*at..*at + new.len()].copy_from_slice(new));
        std::fs::write(&path, bytes).unwrap();
        // Room enough for whatever is counted.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 32).unwrap();
        refusal(&path)
    };
    // The field of the file's header, and the first section's by which more are counted than have room in it.
    let (sections, many) = (word(0x28) as usize, (1u32 << 24).to_le_bytes());
    let (id, sentence) = changed(&[(0x38, &[0xff, 0xff]), (sections + 44, &many)]);
    assert!(
        id == "damaged" && sentence.contains("65535 program headers, expected at most 1024"),
        "{sentence}"
    );
    let (id, sentence) = changed(&[(0x38, &1025u16.to_le_bytes())]);
    assert!(id == "damaged" && sentence.contains("1025 program headers"), "{sentence}");
    // How long the dynamic segment's program header says that it is.
    let dynamic = segments(&whole, SEGMENT_DYNAMIC)[0];
    let (id, sentence) = changed(&[(dynamic + 32, &(4097u64 * 16).to_le_bytes())]);
    assert!(id == "damaged" && sentence.contains("4097 entries in its dynamic segment"), "{sentence}");
}

#[test]
fn a_file_that_others_may_write_is_refused_with_its_mode_and_the_remedy() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    for mode in [0o775, 0o757] {
        set_mode(&path, mode);
        let (id, sentence) = refusal(&path);
        assert_eq!(id, "writable");
        assert!(sentence.contains(&format!("{mode:03o}")) && sentence.contains("chmod go-w"), "{sentence}");
        assert_eq!(inspect(&path).unwrap().refusal.unwrap().id(), "writable");
    }
}

#[test]
fn a_file_that_all_the_world_may_replace_is_refused_with_the_directory_and_its_mode() {
    let directory = temporary();
    let open = directory.path().join("open");
    std::fs::create_dir(&open).unwrap();
    let path = c_plugin(&open, "plugin.so", &[]);
    for mode in [0o777, 0o757, 0o703] {
        set_mode(&open, mode);
        let (id, sentence) = refusal(&path);
        assert_eq!(id, "directory-mode");
        for word in [format!("{mode:03o}"), open.display().to_string(), "chmod o-w".into()] {
            assert!(sentence.contains(&word), "{sentence}");
        }
        assert_eq!(inspect(&path).unwrap().refusal.unwrap().id(), "directory-mode");
    }
    // Files in it belong to their owners; a group that may be the user's own.
    for mode in [0o1777, 0o775, 0o755] {
        set_mode(&open, mode);
        assert!(PluginFile::new(&path).check().is_ok(), "{mode:o}");
    }
}

#[test]
fn a_file_that_is_inspected_is_opened_once_so_that_all_that_is_said_is_of_the_same() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a flag.
    let watch = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
    assert!(watch >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor, which nobody else has.
    let mut watch = unsafe { std::fs::File::from_raw_fd(watch) };
    let what = libc::IN_OPEN | libc::IN_ACCESS;
    // SAFETY: a descriptor of that kind and a NUL-terminated path.
    let watched = unsafe { libc::inotify_add_watch(watch.as_raw_fd(), name.as_ptr(), what) };
    assert!(watched >= 0, "{}", std::io::Error::last_os_error());
    assert!(inspect(&path).unwrap().refusal.is_none());
    // Of the same events on end one is told, but what is opened is read before it is opened again.
    let mut told = [0; 1 << 16];
    let bytes = watch.read(&mut told).unwrap();
    // Behind the number of the watch, what happened.
    let events = told[..bytes].chunks(size_of::<libc::inotify_event>());
    let opened = events.filter(|event| u32::from_ne_bytes(event[4..8].try_into().unwrap()) == libc::IN_OPEN);
    assert_eq!(opened.count(), 1);
}

#[test]
fn what_is_somebody_else_s_is_refused_with_both_users() {
    // SAFETY: no conditions.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!(
            "skipped: what_is_somebody_else_s_is_refused_with_both_users: only root gives files away"
        );
    }
    const SOMEBODY: u32 = 54_321;
    let directory = temporary();
    let theirs = directory.path().join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    let path = c_plugin(&theirs, "plugin.so", &[]);
    assert!(PluginFile::new(&path).check().is_ok());
    for (given, refused_as) in [(&path, "owner"), (&theirs, "directory-owner")] {
        std::os::unix::fs::chown(given, Some(SOMEBODY), None).unwrap();
        let (id, sentence) = refusal(&path);
        assert_eq!(id, refused_as);
        assert!(sentence.contains("user 0") && sentence.contains("owner 54321"), "{sentence}");
        std::os::unix::fs::chown(given, Some(0), None).unwrap();
    }
    assert!(PluginFile::new(&path).check().is_ok());
}

#[test]
fn a_link_is_refused_whose_own_directory_or_whose_target_s_all_the_world_may_write() {
    let directory = temporary();
    let at = |name: &str| directory.path().join(name);
    for name in ["open", "closed"] {
        std::fs::create_dir(at(name)).unwrap();
        c_plugin(&at(name), "plugin.so", &[]);
    }
    std::os::unix::fs::symlink(at("closed/plugin.so"), at("open/link.so")).unwrap();
    std::os::unix::fs::symlink(at("open/plugin.so"), at("closed/link.so")).unwrap();
    set_mode(&at("open"), 0o777);
    assert_eq!(refusal(&at("open/link.so")).0, "directory-mode");
    assert_eq!(refusal(&at("closed/link.so")).0, "directory-mode");
    set_mode(&at("open"), 0o755);
    assert!(PluginFile::new(at("open/link.so")).load().is_ok());
    assert!(PluginFile::new(at("closed/link.so")).load().is_ok());
}

#[test]
fn every_link_on_the_way_to_a_plugin_is_looked_at() {
    let directory = temporary();
    let at = |name: &str| directory.path().join(name);
    for name in ["first", "open", "last"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    c_plugin(&at("last"), "plugin.so", &[]);
    // A file by a link in the middle, a directory by one, and both by relative paths.
    std::os::unix::fs::symlink("../last/plugin.so", at("open/middle.so")).unwrap();
    std::os::unix::fs::symlink("../open/middle.so", at("first/link.so")).unwrap();
    std::os::unix::fs::symlink(at("last"), at("open/folder")).unwrap();
    std::os::unix::fs::symlink(at("open/folder"), at("first/folder")).unwrap();
    std::os::unix::fs::symlink("endless.so", at("first/endless.so")).unwrap();
    let ways = [at("first/link.so"), at("first/folder/plugin.so"), at("first/../open/folder/plugin.so")];
    for way in &ways {
        assert!(PluginFile::new(way).check().is_ok(), "{way:?}");
    }
    set_mode(&at("open"), 0o777);
    for way in &ways {
        let (id, sentence) = refusal(way);
        assert_eq!(id, "directory-mode", "{way:?}");
        assert!(sentence.contains(at("open").to_str().unwrap()), "{sentence}");
    }
    assert_eq!(refusal(&at("first/endless.so")).0, "unreadable");
    set_mode(&at("open"), 0o1777);
    assert!(PluginFile::new(&ways[0]).check().is_ok());
    // SAFETY: no conditions.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::lchown(at("open/middle.so"), Some(54_321), None).unwrap();
        assert_eq!(refusal(&ways[0]).0, "link-owner");
    }
}

#[test]
fn a_library_without_the_metadata_symbol_is_not_a_plugin() {
    assert_refused(&["NO_META"], "not-a-plugin", &["crossdock_plugin_meta_v1"]);
}

#[test]
fn another_abi_version_is_refused_with_both_versions() {
    assert_refused(&["MAJOR=2"], "abi-version", &["ABI 2.0", "expected 1.0"]);
    assert_refused(&["MINOR=2"], "abi-version", &["ABI 1.2", "expected 1.0"]);
    assert_refused(&["ENTRY_MAJOR=3"], "abi-version", &["ABI 3.0"]);
}

#[test]
fn a_range_that_leaves_this_host_out_is_refused() {
    assert_refused(&["RANGE=\"^0.2.0\""], "abi-range", &["^0.2.0", "1.0.0"]);
}

#[test]
fn metadata_that_makes_no_sense_is_refused_with_the_field() {
    assert_refused(&["META_MAGIC=1"], "bad-metadata", &["magic"]);
    assert_refused(&["META_SIZE=16"], "bad-metadata", &["16 bytes"]);
    assert_refused(&["N_SIZES=129"], "bad-metadata", &["129 struct sizes"]);
    assert_refused(&["VERSION=\"one\""], "bad-metadata", &["'version'", "one"]);
    assert_refused(&["RANGE=\"some\""], "bad-metadata", &["'api_range'", "some"]);
    assert_refused(&["NAME=\"a/b\""], "bad-metadata", &["name", "a/b"]);
    assert_refused(&["NAME=\"\""], "bad-metadata", &["name"]);
    assert_refused(&["NAME=\"a\\xff\""], "bad-metadata", &["'name' is not UTF-8"]);
    let unterminated = format!("VERSION=\"{}\"", "1".repeat(32));
    assert_refused(&[&unterminated], "bad-metadata", &["'version' has no terminating NUL"]);
}

#[test]
fn structs_of_another_size_are_named_with_both_sizes() {
    assert_refused(
        &["SIZES={72,80,128,49}"],
        "struct-sizes",
        &["crossdock_error expected at least 48 bytes, got 49"],
    );
    assert_refused(&["N_SIZES=25"], "struct-sizes", &["25 structs, expected at least 26"]);
}

#[test]
fn metadata_of_another_release_is_read_as_far_as_it_goes() {
    let directory = temporary();
    let load = |name: &str, definitions: &[&str]| {
        PluginFile::new(c_plugin(directory.path(), name, definitions)).load().map(|l| l.metadata.sizes.len())
    };
    let all = "sizeof(crossdock_plugin_meta)";
    let no_more = "META_SIZE=offsetof(crossdock_plugin_meta,sizes)+104";
    assert_eq!(load("short.so", &[no_more]).unwrap(), 26);
    assert_eq!(load("more.so", &["N_SIZES=27"]).unwrap(), 27, "a later release lists more structs");
    let longer = format!("META_SIZE={all}+32");
    assert_eq!(
        load("long.so", &[&longer, "N_SIZES=136"]).unwrap(),
        128,
        "and more than there is room for here"
    );
    let words = ["lists 27 struct sizes, expected at most 26"];
    assert_refused(&[no_more, "N_SIZES=27"], "bad-metadata", &words);
}

#[test]
fn structs_that_have_grown_or_lack_their_ends_are_no_reason_to_refuse_a_plugin() {
    let directory = temporary();
    let sizes = |change: &dyn Fn(&str, u32) -> u32| {
        let all = crossdock::api::abi::BUILT_SIZES.map(|size| change(size.name, size.bytes).to_string());
        format!("SIZES={{{}}}", all.join(","))
    };
    let grown = sizes(&|name, bytes| bytes + if name.starts_with("crossdock_") { 24 } else { 0 });
    let shorter = sizes(&|name, bytes| if name == "crossdock_format" { bytes - 16 } else { bytes });
    for (file, definition) in [("grown.so", &grown), ("shorter.so", &shorter)] {
        let plugin = PluginFile::new(c_plugin(directory.path(), file, &[definition]));
        assert!(plugin.load().is_ok(), "{definition}");
    }
    let arrow = sizes(&|name, bytes| if name == "ArrowArray" { bytes + 8 } else { bytes });
    assert_refused(&[&arrow], "struct-sizes", &["ArrowArray expected 80 bytes, got 88"]);
    let odd = sizes(&|name, bytes| if name == "crossdock_call" { bytes + 4 } else { bytes });
    assert_refused(&[&odd], "struct-sizes", &["crossdock_call expected at least 24 bytes, got"]);
}

#[test]
fn metadata_with_pointers_in_it_is_refused_unread() {
    assert_refused(&["META_POINTERS"], "bad-metadata", &["pointers"]);
}

#[test]
fn an_unresolved_symbol_is_named() {
    assert_refused(&["UNRESOLVED"], "dlopen", &["a_function_that_nobody_has"]);
}

#[test]
fn an_entry_that_cannot_be_used_is_refused() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    let leaves = format!("RAN=\"{}\"", ran.display());
    for (definition, id, words) in [
        ("NO_ENTRY", "no-entry", "crossdock_plugin_v1"),
        ("ENTRY_MAGIC=7", "bad-entry", "magic"),
        ("ENTRY_MAJOR=7", "abi-version", "built for ABI 7."),
        ("DESTROY=0", "bad-entry", "'destroy' is NULL"),
    ] {
        assert_refused(&[definition, &leaves], id, &[words]);
    }
    assert_eq!(lines(&ran), [""; 0], "none of its code ran");
    PluginFile::new(c_plugin(directory.path(), "good.so", &[&leaves])).load().unwrap();
    assert_eq!(lines(&ran), ["c-nothing"]);
}

#[test]
fn a_library_that_can_be_read_in_two_ways_is_damaged() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    let good = std::fs::read(&path).unwrap();
    let patched = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        refusal(&path)
    };
    let dynamic = segments(&good, SEGMENT_DYNAMIC)[0];
    // The loader goes on to the entry that ends it, past what its header says (the length is 32 bytes into it).
    let (id, sentence) = patched(dynamic + 32, 16);
    assert!(id == "damaged" && sentence.contains("DT_NULL"), "{sentence}");
    // The second segment's address is the first one's (16 bytes into its header).
    let (id, sentence) = patched(segments(&good, SEGMENT_LOAD)[1] + 16, 0);
    assert!(id == "damaged" && sentence.contains("lie on one another"), "{sentence}");
}

#[test]
fn a_needed_library_s_name_does_not_steer_a_terminal() {
    let directory = temporary();
    c_library(directory.path(), "lib\x1b[2Jx.so", &["-x", "c", "/dev/null"]);
    let at = format!("-L{}", directory.path().display());
    let linked = ["-Wl,--no-as-needed", &at, "-l:lib\x1b[2Jx.so"];
    let (id, sentence) = refusal(&c_plugin_with(directory.path(), "plugin.so", &[], &linked));
    assert!(id == "damaged" && sentence.contains("lib\\u{1b}[2Jx.so"), "{sentence}");
}

#[test]
fn a_library_for_another_machine_is_named() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    let good = std::fs::read(&path).unwrap();
    let patched = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        std::fs::write(&path, bytes).unwrap();
        refusal(&path)
    };
    let other = if cfg!(target_arch = "x86_64") { (0xb7, "aarch64") } else { (0x3e, "x86-64") };
    for (at, byte, got) in [(4, 1, "32-bit"), (5, 2, "big-endian"), (18, other.0, other.1)] {
        let (id, sentence) = patched(at, byte);
        assert_eq!(id, "wrong-machine", "{sentence}");
        assert!(sentence.contains(got), "{sentence}");
    }
}

#[test]
fn metadata_survives_stripping_and_the_loss_of_all_section_headers() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    let expected = inspect(&path).unwrap().metadata;
    let stripped = std::process::Command::new("strip").arg(&path).status().unwrap();
    assert!(stripped.success());
    assert_eq!(inspect(&path).unwrap().metadata, expected);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3a..0x40].fill(0);
    assert_eq!(Metadata::from_bytes(&bytes).unwrap(), expected);
}

/// Up to where the loadable segments need the file.
fn end_of_what_is_mapped(library: &[u8]) -> usize {
    let number = |at: usize| u64::from_le_bytes(library[at..at + 8].try_into().unwrap()) as usize;
    segments(library, SEGMENT_LOAD).into_iter().map(|at| number(at + 8) + number(at + 32)).max().unwrap()
}

#[test]
fn a_truncated_library_is_an_error_at_every_length() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &["RAN=\"/nowhere/ran\""]);
    let bytes = std::fs::read(&path).unwrap();
    let whole = (Metadata::from_bytes(&bytes).unwrap(), Needs::from_bytes(&bytes).unwrap());
    assert!(whole.1.glibc.is_some());
    let mapped = end_of_what_is_mapped(&bytes);
    for length in (0..bytes.len()).step_by(7) {
        let read = |bytes| Ok((Metadata::from_bytes(bytes)?, Needs::from_bytes(bytes)?));
        match read(&bytes[..length]) {
            // Section headers come last, and nobody needs them. What is mapped and not there ends the process.
            Ok(read) => assert!(read == whole && length >= mapped, "{length} bytes, {mapped} mapped"),
            Err(MetadataError::NotElf) => assert!(length < 4),
            Err(error) => assert!(matches!(error, MetadataError::Damaged(_)), "{length}: {error}"),
        }
    }
}

#[test]
fn no_single_wrong_byte_in_the_headers_makes_the_reader_panic() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &["RAN=\"/nowhere/ran\""]);
    let mut bytes = std::fs::read(&path).unwrap();
    let tables = bytes.len().min(6 << 10);
    for i in 0..tables {
        let good = bytes[i];
        for bad in [0, 0xff, good ^ 0x80, good.wrapping_add(1)] {
            bytes[i] = bad;
            let _ = (Metadata::from_bytes(&bytes), Needs::from_bytes(&bytes));
        }
        bytes[i] = good;
    }
}

#[test]
fn a_table_of_symbols_ends_where_the_next_table_begins() {
    let directory = temporary();
    let path = c_plugin_with(directory.path(), "plugin.so", &[], &["-Wl,--hash-style=gnu"]);
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(Metadata::from_bytes(&bytes).is_ok());
    // The table of symbols follows the one of their hashes, of which the last word says that it is the last.
    let entry = |tag: u64| {
        let dynamic = segments(&bytes, SEGMENT_DYNAMIC)[0];
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let (at, length) = (word(dynamic + 8) as usize, word(dynamic + 32) as usize);
        let entry = (at..at + length).step_by(16).find(|entry| word(*entry) == tag).unwrap();
        word(entry + 8) as usize
    };
    let (hashes, symbols) = (entry(0x6fff_fef5), entry(6));
    assert!(hashes < symbols, "the linker has put them in another order");
    for at in [symbols - 8, symbols - 4] {
        bytes[at] &= !1;
    }
    assert!(matches!(Metadata::from_bytes(&bytes), Err(MetadataError::NotAPlugin)));
}

#[test]
fn one_file_is_one_image_and_two_files_are_two() {
    let directory = temporary();
    let first = c_plugin(directory.path(), "a.so", &["NAME=\"a\""]);
    let second = c_plugin(directory.path(), "b.so", &["NAME=\"b\""]);
    let a = PluginFile::new(&first).load().unwrap();
    let b = PluginFile::new(&second).load().unwrap();
    let again = PluginFile::new(&first).load().unwrap();
    assert!(std::ptr::eq(a.entry.unwrap(), again.entry.unwrap()));
    assert!(!std::ptr::eq(a.entry.unwrap(), b.entry.unwrap()));
    assert_eq!((a.metadata.name.as_str(), b.metadata.name.as_str()), ("a", "b"));
}

#[test]
fn a_file_that_was_rewritten_after_loading_is_refused() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    PluginFile::new(&path).load().unwrap();
    // The same bytes at another time: other bytes under a mapped library would end this very process.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let (id, sentence) = refusal(&path);
    assert_eq!(id, "changed", "{sentence}");
}
