//! Loads plugin files, and checks refusals and their messages.

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

use crate::common::{
    SEGMENT_DYNAMIC, SEGMENT_LOAD, c_library, c_plugin, c_plugin_with, lines, segments, set_mode, temporary,
};
use crossdock::api::abi;
use crossdock::load::{Load, PluginFile, inspect};
use crossdock::metadata::{Metadata, MetadataError, Needs};

/// The id and the message of a file's refusal.
fn refusal(path: &Path) -> (&'static str, String) {
    let refused = PluginFile::new(path).load().expect_err("a refusal");
    (refused.reason.id(), refused.to_string())
}

fn refusal_of(definitions: &[&str]) -> (&'static str, String) {
    let directory = temporary();
    refusal(&c_plugin(directory.path(), "plugin.so", definitions))
}

fn assert_refused(definitions: &[&str], id: &str, parts: &[&str]) {
    let (got, sentence) = refusal_of(definitions);
    assert_eq!(got, id, "{sentence}");
    for part in parts {
        assert!(sentence.contains(part), "'{part}' is not in: {sentence}");
    }
}

#[test]
fn loads_a_plugin_in_c_with_its_metadata() {
    let directory = temporary();
    let loaded = PluginFile::new(c_plugin(directory.path(), "plugin.so", &[])).load().unwrap();
    assert_eq!(loaded.metadata.name, "c-nothing");
    assert_eq!(loaded.metadata.version, semver::Version::new(1, 0, 0));
    assert_eq!(loaded.metadata.licence, "Apache-2.0");
}

#[test]
fn rejects_a_missing_file() {
    let (id, sentence) = refusal(Path::new("/nowhere/plugin.so"));
    assert_eq!(id, "missing");
    assert!(sentence.contains("/nowhere/plugin.so"), "{sentence}");
}

#[test]
fn rejects_directories_and_named_pipes() {
    let directory = temporary();
    assert_eq!(refusal(directory.path()).0, "not-a-file");
    let pipe = directory.path().join("pipe.so");
    let status = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(status.success());
    let (id, sentence) = refusal(&pipe);
    assert_eq!(id, "not-a-file");
    assert!(sentence.contains("a named pipe"), "{sentence}");
}

#[test]
fn rejects_files_that_are_not_elf() {
    let directory = temporary();
    let path = directory.path().join("plugin.so");
    for content in ["hello, world", "", "\x7fEL"] {
        std::fs::write(&path, content).unwrap();
        assert_eq!(refusal(&path).0, "not-elf");
    }
}

#[test]
fn rejects_tables_with_too_many_entries() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    let whole = std::fs::read(&path).unwrap();
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap());
    let changed = |changes: &[(usize, &[u8])]| {
        let mut bytes = whole.clone();
        changes.iter().for_each(|(at, new)| bytes[*at..*at + new.len()].copy_from_slice(new));
        std::fs::write(&path, bytes).unwrap();
        // The file becomes so large that a table of any length fits into it.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 32).unwrap();
        refusal(&path)
    };
    // The file header's count of program headers is set to PN_XNUM. The count is then in a field of
    // the first section header, which is set to a large number.
    let (sections, many) = (word(0x28) as usize, (1u32 << 24).to_le_bytes());
    let (id, sentence) = changed(&[(0x38, &[0xff, 0xff]), (sections + 44, &many)]);
    assert!(
        id == "damaged" && sentence.contains("65535 program headers, expected at most 1024"),
        "{sentence}"
    );
    let (id, sentence) = changed(&[(0x38, &1025u16.to_le_bytes())]);
    assert!(id == "damaged" && sentence.contains("1025 program headers"), "{sentence}");
    // A program header contains the length of its segment at offset 32.
    let dynamic = segments(&whole, SEGMENT_DYNAMIC)[0];
    let (id, sentence) = changed(&[(dynamic + 32, &(4097u64 * 16).to_le_bytes())]);
    assert!(id == "damaged" && sentence.contains("4097 entries in the dynamic segment"), "{sentence}");
}

#[test]
fn error_for_a_file_that_others_can_write_states_mode_and_advice() {
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
fn rejects_files_in_directories_that_all_users_can_write() {
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
    // These modes are accepted: with the sticky bit, only the owner of a file can replace it, and
    // the group may be the user's private group.
    for mode in [0o1777, 0o775, 0o755] {
        set_mode(&open, mode);
        assert!(PluginFile::new(&path).check().is_ok(), "{mode:o}");
    }
}

#[test]
fn inspection_opens_the_file_once() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: `inotify_init1` takes only flags.
    let watch = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
    assert!(watch >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call returned a new descriptor, which has no other owner.
    let mut watch = unsafe { std::fs::File::from_raw_fd(watch) };
    let what = libc::IN_OPEN | libc::IN_ACCESS;
    // SAFETY: the descriptor is an inotify instance and the path is NUL-terminated.
    let watched = unsafe { libc::inotify_add_watch(watch.as_raw_fd(), name.as_ptr(), what) };
    assert!(watched >= 0, "{}", std::io::Error::last_os_error());
    assert!(inspect(&path).unwrap().refusal.is_none());
    // Equal consecutive events are merged, but read events separate two open events.
    let mut buffer = [0; 1 << 16];
    let bytes = watch.read(&mut buffer).unwrap();
    // In an inotify event, the mask follows the watch descriptor.
    let events = buffer[..bytes].chunks(size_of::<libc::inotify_event>());
    let opened = events.filter(|event| u32::from_ne_bytes(event[4..8].try_into().unwrap()) == libc::IN_OPEN);
    assert_eq!(opened.count(), 1);
}

#[test]
fn error_for_a_file_of_another_user_names_both_users() {
    // SAFETY: `geteuid` has no requirements.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!(
            "skipped: error_for_a_file_of_another_user_names_both_users: only root can change owners"
        );
    }
    const OTHER_USER: u32 = 54_321;
    let directory = temporary();
    let folder = directory.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let path = c_plugin(&folder, "plugin.so", &[]);
    assert!(PluginFile::new(&path).check().is_ok());
    for (changed, refused_as) in [(&path, "owner"), (&folder, "directory-owner")] {
        std::os::unix::fs::chown(changed, Some(OTHER_USER), None).unwrap();
        let (id, sentence) = refusal(&path);
        assert_eq!(id, refused_as);
        assert!(sentence.contains("user 0") && sentence.contains("owner 54321"), "{sentence}");
        std::os::unix::fs::chown(changed, Some(0), None).unwrap();
    }
    assert!(PluginFile::new(&path).check().is_ok());
}

#[test]
fn rejects_links_from_or_to_directories_that_all_users_can_write() {
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
fn checks_every_link_on_the_path() {
    let directory = temporary();
    let at = |name: &str| directory.path().join(name);
    for name in ["first", "open", "last"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    c_plugin(&at("last"), "plugin.so", &[]);
    // Two relative links lead to the file, and two absolute links lead to its directory.
    std::os::unix::fs::symlink("../last/plugin.so", at("open/middle.so")).unwrap();
    std::os::unix::fs::symlink("../open/middle.so", at("first/link.so")).unwrap();
    std::os::unix::fs::symlink(at("last"), at("open/folder")).unwrap();
    std::os::unix::fs::symlink(at("open/folder"), at("first/folder")).unwrap();
    std::os::unix::fs::symlink("endless.so", at("first/endless.so")).unwrap();
    let paths = [at("first/link.so"), at("first/folder/plugin.so"), at("first/../open/folder/plugin.so")];
    for path in &paths {
        assert!(PluginFile::new(path).check().is_ok(), "{path:?}");
    }
    set_mode(&at("open"), 0o777);
    for path in &paths {
        let (id, sentence) = refusal(path);
        assert_eq!(id, "directory-mode", "{path:?}");
        assert!(sentence.contains(at("open").to_str().unwrap()), "{sentence}");
    }
    assert_eq!(refusal(&at("first/endless.so")).0, "unreadable");
    set_mode(&at("open"), 0o1777);
    assert!(PluginFile::new(&paths[0]).check().is_ok());
    // SAFETY: `geteuid` has no requirements.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::lchown(at("open/middle.so"), Some(54_321), None).unwrap();
        assert_eq!(refusal(&paths[0]).0, "link-owner");
    }
}

#[test]
fn rejects_libraries_without_metadata_as_not_a_plugin() {
    assert_refused(&["NO_META"], "not-a-plugin", &["crossdock_plugin_meta_v1"]);
}

#[test]
fn error_for_another_abi_version_states_both_versions() {
    let (major, minor, next) = (abi::ABI_MAJOR, abi::ABI_MINOR, abi::ABI_MINOR + 1);
    let expected = format!("expected {major}.{minor}");
    assert_refused(&["MAJOR=2"], "abi-version", &[&format!("ABI 2.{minor}"), &expected]);
    assert_refused(&[&format!("MINOR={next}")], "abi-version", &[&format!("ABI {major}.{next}"), &expected]);
    assert_refused(&["ENTRY_MAJOR=3"], "abi-version", &[&format!("ABI 3.{minor}")]);
}

#[test]
fn rejects_plugins_whose_abi_range_excludes_this_host() {
    let host = format!("{}.{}.{}", abi::ABI_MAJOR, abi::ABI_MINOR, abi::ABI_PATCH);
    assert_refused(&["RANGE=\"^0.1.0\""], "abi-range", &["^0.1.0", &host]);
    // The third number counts: the host lacks an addition that the plugin needs.
    let later = format!("^{}.{}.{}", abi::ABI_MAJOR, abi::ABI_MINOR, abi::ABI_PATCH + 1);
    assert_refused(&[&format!("RANGE=\"{later}\"")], "abi-range", &[&later, &host]);
}

#[test]
fn rejects_plugins_that_require_an_interface_that_the_host_lacks() {
    let all = "crossdock.host.memory/1 crossdock.host.log/1 crossdock.host.session/1 crossdock.host.decode/1 \
               crossdock.host.kernels/1 crossdock.host.loader/1 crossdock.host.tasks/1";
    let directory = temporary();
    let load = |required: &str| {
        let definition = format!("REQUIRED=\"{required}\"");
        PluginFile::new(c_plugin(directory.path(), "plugin.so", &[&definition])).load()
    };
    assert_eq!(load(all).unwrap().metadata.required.join(" "), all);
    let lacking = "REQUIRED=\"crossdock.host.memory/1 crossdock.host.mind-reader/3\"";
    // A constructor would end the process, so the plugin is refused before its code runs.
    let expected = ["requires 'crossdock.host.mind-reader/3', which this host does not offer"];
    assert_refused(&[lacking], "missing-interface", &expected);
}

#[test]
fn rejects_malformed_metadata_and_names_the_field() {
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
fn error_for_another_struct_size_states_both_sizes() {
    assert_refused(
        &["SIZES={72,80,128,49}"],
        "struct-sizes",
        &["crossdock_error: expected at least 64 bytes, got 49"],
    );
    let (few, needed) = (abi::MIN_META_SIZES - 1, abi::MIN_META_SIZES);
    let expected = format!("{few} structs, expected at least {needed}");
    assert_refused(&[&format!("N_SIZES={few}")], "struct-sizes", &[&expected]);
}

#[test]
fn reads_shorter_and_longer_metadata_of_other_versions() {
    let directory = temporary();
    let load = |name: &str, definitions: &[&str]| {
        PluginFile::new(c_plugin(directory.path(), name, definitions)).load().map(|l| l.metadata.sizes.len())
    };
    let all = "sizeof(crossdock_plugin_meta)";
    let n = abi::BUILT_SIZES.len();
    let no_more = &format!("META_SIZE=offsetof(crossdock_plugin_meta,sizes)+{}", n * size_of::<u32>());
    assert_eq!(load("short.so", &[no_more]).unwrap(), n);
    let more = format!("N_SIZES={}", n + 1);
    assert_eq!(load("more.so", &[&more]).unwrap(), n + 1, "a later version lists more structs");
    let longer = format!("META_SIZE={all}+32");
    assert_eq!(
        load("long.so", &[&longer, "N_SIZES=136"]).unwrap(),
        128,
        "more sizes than this version's struct has room for"
    );
    let expected = format!("lists {} struct sizes, expected at most {n}", n + 1);
    assert_refused(&[no_more, &more], "bad-metadata", &[&expected]);
}

#[test]
fn accepts_plugins_with_longer_or_shorter_crossdock_structs() {
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
    assert_refused(&[&arrow], "struct-sizes", &["ArrowArray: expected 80 bytes, got 88"]);
    let odd = sizes(&|name, bytes| if name == "crossdock_call" { bytes + 4 } else { bytes });
    assert_refused(&[&odd], "struct-sizes", &["crossdock_call: expected at least 24 bytes, got"]);
}

#[test]
fn rejects_metadata_with_pointers() {
    assert_refused(&["META_POINTERS"], "bad-metadata", &["pointers"]);
}

#[test]
fn refusal_names_an_unresolved_symbol() {
    assert_refused(&["UNRESOLVED"], "dlopen", &["undefined_function"]);
}

#[test]
fn rejects_malformed_entries_without_running_code() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    let records_runs = format!("RAN=\"{}\"", ran.display());
    for (definition, id, part) in [
        ("NO_ENTRY", "no-entry", "crossdock_plugin_v1"),
        ("ENTRY_MAGIC=7", "bad-entry", "magic"),
        ("ENTRY_MAJOR=7", "abi-version", "built for ABI 7."),
        ("DESTROY=0", "bad-entry", "'destroy' is NULL"),
    ] {
        assert_refused(&[definition, &records_runs], id, &[part]);
    }
    assert_eq!(lines(&ran), [""; 0], "code ran");
    PluginFile::new(c_plugin(directory.path(), "good.so", &[&records_runs])).load().unwrap();
    assert_eq!(lines(&ran), ["c-nothing"]);
}

#[test]
fn libraries_with_contradictory_headers_are_refused_as_damaged() {
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
    // The loader ignores the length that the header declares at offset 32, and reads the dynamic
    // segment up to its DT_NULL entry.
    let (id, sentence) = patched(dynamic + 32, 16);
    assert!(id == "damaged" && sentence.contains("DT_NULL"), "{sentence}");
    // The second segment gets the address of the first segment. A header contains the address at
    // offset 16.
    let (id, sentence) = patched(segments(&good, SEGMENT_LOAD)[1] + 16, 0);
    assert!(id == "damaged" && sentence.contains("segments overlap"), "{sentence}");
}

#[test]
fn error_escapes_control_characters_in_names_of_needed_libraries() {
    let directory = temporary();
    c_library(directory.path(), "lib\x1b[2Jx.so", &["-x", "c", "/dev/null"]);
    let at = format!("-L{}", directory.path().display());
    let linked = ["-Wl,--no-as-needed", &at, "-l:lib\x1b[2Jx.so"];
    let (id, sentence) = refusal(&c_plugin_with(directory.path(), "plugin.so", &[], &linked));
    assert!(id == "damaged" && sentence.contains("lib\\u{1b}[2Jx.so"), "{sentence}");
}

#[test]
fn refusal_of_library_for_another_machine_names_that_machine() {
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
fn metadata_survives_stripping_and_missing_section_headers() {
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

/// The end of the last loadable segment in the file.
fn end_of_segments(library: &[u8]) -> usize {
    let number = |at: usize| u64::from_le_bytes(library[at..at + 8].try_into().unwrap()) as usize;
    segments(library, SEGMENT_LOAD).into_iter().map(|at| number(at + 8) + number(at + 32)).max().unwrap()
}

#[test]
fn rejects_truncated_libraries_of_every_length() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &["RAN=\"/nowhere/ran\""]);
    let bytes = std::fs::read(&path).unwrap();
    let whole = (Metadata::from_bytes(&bytes).unwrap(), Needs::from_bytes(&bytes).unwrap());
    assert!(whole.1.glibc.is_some());
    let end = end_of_segments(&bytes);
    for length in (0..bytes.len()).step_by(7) {
        let read = |bytes| Ok((Metadata::from_bytes(bytes)?, Needs::from_bytes(bytes)?));
        match read(&bytes[..length]) {
            // The section headers at the end of the file may be missing, but all segments must be
            // complete.
            Ok(read) => assert!(read == whole && length >= end, "{length} bytes, segments end at {end}"),
            Err(MetadataError::NotElf) => assert!(length < 4),
            Err(error) => assert!(matches!(error, MetadataError::Damaged(_)), "{length}: {error}"),
        }
    }
}

#[test]
fn no_single_wrong_byte_in_the_headers_causes_a_panic() {
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
fn symbol_hash_table_is_read_up_to_the_next_table() {
    let directory = temporary();
    let path = c_plugin_with(directory.path(), "plugin.so", &[], &["-Wl,--hash-style=gnu"]);
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(Metadata::from_bytes(&bytes).is_ok());
    // The symbol table follows the hash table. In a hash of the hash table, bit 0 marks the end of
    // a chain. Without the last mark, the chain would continue in the symbol table.
    let address_of = |tag: u64| {
        let dynamic = segments(&bytes, SEGMENT_DYNAMIC)[0];
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let (at, length) = (word(dynamic + 8) as usize, word(dynamic + 32) as usize);
        let entry = (at..at + length).step_by(16).find(|entry| word(*entry) == tag).unwrap();
        word(entry + 8) as usize
    };
    // DT_GNU_HASH and DT_SYMTAB.
    let (hashes, symbols) = (address_of(0x6fff_fef5), address_of(6));
    assert!(hashes < symbols, "the linker ordered the tables differently");
    for at in [symbols - 8, symbols - 4] {
        bytes[at] &= !1;
    }
    assert!(matches!(Metadata::from_bytes(&bytes), Err(MetadataError::NotAPlugin)));
}

#[test]
fn loading_a_file_again_returns_the_same_entry() {
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
fn rejects_a_file_that_was_rewritten_after_loading() {
    let directory = temporary();
    let path = c_plugin(directory.path(), "plugin.so", &[]);
    PluginFile::new(&path).load().unwrap();
    // Only the modification time changes, because different bytes in a mapped library would crash
    // this process.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let (id, sentence) = refusal(&path);
    assert_eq!(id, "changed", "{sentence}");
}
