//! What a policy can say, and what it lets load.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{c_plugin, lines, policy, policy_file, refusal_under, set_mode, temporary};
use crossdock::discovery::Search;
use crossdock::load::{Load, PluginFile, Signature, signature_file};
use crossdock::policy::{Lock, Locked, Sha256};
use crossdock::{Host, Policy};
use minisign::KeyPair;

fn sha256(file: &Path) -> Sha256 {
    Sha256::of(&std::fs::read(file).unwrap())
}

fn loads(plugin: &Path, policy: &Arc<Policy>) -> bool {
    PluginFile::under(plugin, policy.clone()).load().is_ok()
}

/// What the policy of this text is refused with.
fn complaint(text: &str) -> String {
    policy(temporary().path(), text).expect_err("a complaint").to_string()
}

fn sign(plugin: &Path, keys: &KeyPair) {
    let content = std::fs::File::open(plugin).unwrap();
    let signature = minisign::sign(Some(&keys.pk), &keys.sk, content, None, None).unwrap();
    std::fs::write(signature_file(plugin), signature.into_string()).unwrap();
}

fn signed_policy(directory: &Path, keys: &[&KeyPair]) -> Arc<Policy> {
    let keys: Vec<_> = keys.iter().map(|pair| format!("'{}'", pair.pk.to_base64())).collect();
    policy(directory, &format!("require_signature = true\nkeys = [{}]", keys.join(", "))).unwrap()
}

#[test]
fn an_empty_policy_lets_every_plugin_load_that_fits() {
    let directory = temporary();
    let plugin = c_plugin(directory.path(), "a.so", &[]);
    assert!(loads(&plugin, &policy(directory.path(), "").unwrap()));
}

#[test]
fn mistakes_in_a_policy_are_errors_with_the_file_and_the_line() {
    let unknown = complaint("# what may run\nalow = ['a']\n");
    for word in ["crossdock.toml', line 2", "alow", "allow"] {
        assert!(unknown.contains(word), "{unknown}");
    }
    let broken = complaint("allow = [\n'a'\nlibraries = []");
    assert!(broken.contains("line 3"), "{broken}");
    let hash = complaint("\nallow = ['a', 'sha256:12']");
    assert!(hash.contains("line 2") && hash.contains("64 hexadecimal digits"), "{hash}");
    let name = complaint("allow = ['a/b']");
    assert!(name.contains("line 1") && name.contains("'a/b'"), "{name}");
    let key = complaint("require_signature = true\nkeys = ['RWnonsense']");
    assert!(key.contains("line 2") && key.contains("RWnonsense"), "{key}");
    assert!(complaint("libraries = 'a.so'").contains("line 1"));
    let both = complaint(&format!("isolate = ['a']\nisolate_all_but = ['{}']", Sha256::of(b"")));
    assert!(both.contains("expected one of them"), "{both}");
}

/// A typing mistake would isolate nothing, and say nothing.
#[test]
fn a_name_to_isolate_that_no_file_of_a_plugin_has_is_an_error() {
    let directory = temporary();
    let plugin = c_plugin(directory.path(), "a.so", &[]);
    let name = crossdock::load::inspect(&plugin).unwrap().metadata.name;
    let build = |isolated: &str| {
        let policy = Policy::clone(&policy(directory.path(), &format!("isolate = ['{isolated}']")).unwrap());
        let search = Search::nowhere().given(&plugin).linked(crate::common::mini::linked());
        Host::builder().search(search).policy(policy).build()
    };
    assert!(build(&name).is_ok() && build("*").is_ok());
    for wrong in ["typo", "mini"] {
        let error = build(wrong).err().unwrap().to_string();
        assert!(error.contains(&format!("'{wrong}' is to be isolated")) && error.contains(&name), "{error}");
    }
}

#[test]
fn all_but_files_of_some_hashes_can_be_isolated() {
    let directory = temporary();
    let (here, apart) = (c_plugin(directory.path(), "a.so", &[]), c_plugin(directory.path(), "b.so", &[]));
    let text = format!("isolate_all_but = ['{}']", sha256(&here));
    let which = policy(directory.path(), &text).unwrap().isolation.which.clone();
    assert!(!which.includes("a", Some(&sha256(&here))));
    assert!(which.includes("a", Some(&Sha256::of(b"another file"))) && which.includes("a", None));
    assert_eq!(sha256(&here) == sha256(&apart), !which.includes("b", Some(&sha256(&apart))));
    assert!(loads(&here, &policy(directory.path(), &text).unwrap()));
}

#[test]
fn a_policy_that_asks_for_signatures_of_nobody_or_names_keys_for_nothing_is_refused() {
    assert!(complaint("require_signature = true").contains("keys names no key"));
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let idle = complaint(&format!("keys = ['{}']", pair.pk.to_base64()));
    assert!(idle.contains("require_signature is not true"), "{idle}");
}

#[test]
fn a_policy_that_others_may_write_or_replace_or_that_is_missing_is_not_used() {
    let directory = temporary();
    let file = policy_file(directory.path(), "");
    let words = || Policy::from_file(&file).unwrap_err().to_string();
    set_mode(&file, 0o664);
    assert!(words().contains("crossdock.toml' is not used") && words().contains("chmod go-w"), "{}", words());
    set_mode(&file, 0o644);
    set_mode(directory.path(), 0o777);
    assert!(words().contains("chmod o-w"), "{}", words());
    set_mode(directory.path(), 0o755);
    assert!(Policy::from_file(&file).is_ok());
    std::fs::remove_file(&file).unwrap();
    assert!(words().contains("there is no such file"), "{}", words());
}

#[test]
fn only_plugins_load_that_are_allowed_by_name_or_by_hash() {
    let directory = temporary();
    let plugin = c_plugin(directory.path(), "a.so", &["NAME=\"a\""]);
    let hash = sha256(&plugin);
    let allow = |list: &str| policy(directory.path(), &format!("allow = [{list}]")).unwrap();
    assert!(loads(&plugin, &allow("'b', 'a'")));
    assert!(loads(&plugin, &allow(&format!("'sha256:{hash}'"))));
    for list in ["", "'b'"] {
        let (id, sentence) = refusal_under(&plugin, &allow(list));
        assert_eq!(id, "not-allowed");
        assert!(sentence.contains("`allow` does not name 'a'"), "{sentence}");
    }
    let other = Sha256::of(b"another file");
    let (id, sentence) = refusal_under(&plugin, &allow(&format!("'sha256:{other}'")));
    assert_eq!(id, "not-allowed");
    assert!(sentence.contains(&format!("sha256:{hash}")), "{sentence}");
}

#[test]
fn only_plugins_below_the_policy_s_folders_load_and_links_are_followed() {
    let directory = temporary();
    let at = |name: &str| directory.path().join(name);
    for folder in ["in", "in/deep", "out", "in-name-only"] {
        std::fs::create_dir(at(folder)).unwrap();
    }
    let policy = policy(directory.path(), "folders = ['in', 'nowhere']").unwrap();
    let plugin = |folder: &str| c_plugin(&at(folder), "a.so", &[]);
    assert!(loads(&plugin("in"), &policy));
    assert!(loads(&plugin("in/deep"), &policy));
    let outside = plugin("out");
    let link = at("in/link.so");
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    for path in [outside, plugin("in-name-only"), link, at("in/../out/a.so")] {
        let (id, sentence) = refusal_under(&path, &policy);
        assert_eq!(id, "folder", "{}", path.display());
        assert!(sentence.contains(&at("in").display().to_string()), "{sentence}");
    }
}

#[test]
fn only_plugins_load_that_one_of_the_keys_signed() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    let plugin = c_plugin(directory.path(), "a.so", &[&format!("RAN=\"{}\"", ran.display())]);
    let [ours, other, stranger] = [(); 3].map(|()| KeyPair::generate_unencrypted_keypair().unwrap());
    let policy = signed_policy(directory.path(), &[&other, &ours]);
    let file = signature_file(&plugin);
    assert_eq!(file, directory.path().join("a.so.minisig"));
    let refused_with = |id: &str, words: &str| {
        let (got, sentence) = refusal_under(&plugin, &policy);
        assert_eq!(got, id, "{sentence}");
        assert!(sentence.contains(words) && sentence.contains("a.so.minisig"), "{sentence}");
    };
    refused_with("unsigned", "expected it in");
    sign(&plugin, &stranger);
    refused_with("signature", "by none of the policy's `keys`");
    std::fs::write(&file, "a scribble").unwrap();
    refused_with("signature", "does not count");

    // Of other bytes, by the right key.
    let copy = c_plugin(directory.path(), "copy.so", &["VERSION=\"2.0.0\""]);
    sign(&copy, &ours);
    std::fs::rename(signature_file(&copy), &file).unwrap();
    refused_with("signature", "does not count");

    // By the right key in the manner of old, in which the whole file is signed instead of its hash.
    sign(&plugin, &ours);
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good.replacen("\nRU", "\nRW", 1)).unwrap();
    refused_with("signature", "does not count");
    // With another comment than the one that was signed.
    std::fs::write(&file, good.replacen("trusted comment: ", "trusted comment: not ", 2)).unwrap();
    refused_with("signature", "does not count");

    assert_eq!(lines(&ran), [""; 0], "nothing has run");
    std::fs::write(&file, good).unwrap();
    assert!(loads(&plugin, &policy));
    let inspection = PluginFile::under(&plugin, policy).inspect().unwrap();
    assert!(
        matches!(inspection.fingerprint.signature, Signature::By(key) if key.to_string() == ours.pk.to_base64())
    );
    assert_eq!(inspection.fingerprint.sha256, sha256(&plugin));
}

fn locked(plugin: &Path, name: &str) -> Locked {
    let file = plugin.file_name().unwrap().to_string_lossy().into_owned();
    Locked { name: name.to_string(), version: semver::Version::new(1, 0, 0), file, sha256: sha256(plugin) }
}

fn write_lock(directory: &Path, plugins: Vec<Locked>) -> PathBuf {
    let file = directory.join("crossdock.lock");
    Lock::of(&file, plugins).write().unwrap();
    file
}

#[test]
fn only_plugins_load_that_the_lock_has_with_their_hash() {
    let directory = temporary();
    let a = c_plugin(directory.path(), "a.so", &["NAME=\"a\""]);
    let b = c_plugin(directory.path(), "b.so", &["NAME=\"b\""]);
    let under_lock = || policy(directory.path(), "lock = 'crossdock.lock'").unwrap();
    let (id, sentence) = refusal_under(&a, &under_lock());
    assert_eq!(id, "not-locked", "a lock that is not there holds nothing: {sentence}");
    let file = write_lock(directory.path(), vec![locked(&b, "c"), locked(&a, "a")]);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o622, 0o600, "only its owner may write it: {mode:o}");
    let policy = under_lock();
    assert_eq!(Lock::read(&file).unwrap().plugins, [locked(&a, "a"), locked(&b, "c")], "sorted");
    assert!(loads(&a, &policy));
    let (id, sentence) = refusal_under(&b, &policy);
    assert_eq!(id, "not-locked", "it is not locked under its name");
    assert!(sentence.contains("crossdock.lock") && sentence.contains("'b'"), "{sentence}");
    let old = sha256(&a);
    let a = c_plugin(directory.path(), "a.so", &["NAME=\"a\"", "VERSION=\"1.0.1\""]);
    let (id, sentence) = refusal_under(&a, &policy);
    assert_eq!(id, "lock-hash");
    for word in [old.to_string(), sha256(&a).to_string(), "crossdock lock".to_string()] {
        assert!(sentence.contains(&word), "{sentence}");
    }
}

#[test]
fn a_lock_that_is_none_or_that_others_may_write_is_not_used() {
    let directory = temporary();
    let file = write_lock(directory.path(), Vec::new());
    let words = || policy(directory.path(), "lock = 'crossdock.lock'").unwrap_err().to_string();
    set_mode(&file, 0o666);
    assert!(words().contains("crossdock.lock' is not used"), "{}", words());
    set_mode(&file, 0o644);
    std::fs::write(&file, "version = 2\n").unwrap();
    assert!(words().contains("version 2, expected 1"), "{}", words());
    std::fs::write(&file, "version = 1\n[[plugin]]\nname = 'a'\n").unwrap();
    assert!(words().contains("crossdock.lock', line 2"), "{}", words());
}

#[test]
fn a_host_s_catalog_holds_what_its_policy_refuses_and_loads_the_rest() {
    let directory = temporary();
    let folder = directory.path().join("plugins");
    std::fs::create_dir(&folder).unwrap();
    for name in ["a", "b"] {
        c_plugin(&folder, &format!("{name}.so"), &[&format!("NAME=\"{name}\"")]);
    }
    c_plugin(&folder, "library.so", &["NO_META"]);
    let policy = policy(directory.path(), "allow = ['b']").unwrap();
    let host = Host::builder().policy(Policy::clone(&policy)).search(Search::nowhere().given(&folder));
    let host = host.build().unwrap();
    let names: Vec<_> = host.plugins().map(|metadata| metadata.name.clone()).collect();
    assert_eq!(names, ["b"]);
    let refused: Vec<_> = host
        .catalog()
        .candidates
        .iter()
        .filter_map(|c| c.metadata.as_ref().err())
        .map(|r| r.reason.id())
        .collect();
    assert_eq!(refused, ["not-allowed", "not-a-plugin"]);
    assert!(host.load("a").is_err() && host.load("b").is_ok());
}
