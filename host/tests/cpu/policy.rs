//! Tests of policies and of what they allow to load.

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
    PluginFile::with_policy(plugin, policy.clone()).load().is_ok()
}

/// The error of the policy `text`.
fn error_of(text: &str) -> String {
    policy(temporary().path(), text).expect_err("an error").to_string()
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
fn empty_policy_allows_all_compatible_plugins() {
    let directory = temporary();
    let plugin = c_plugin(directory.path(), "a.so", &[]);
    assert!(loads(&plugin, &policy(directory.path(), "").unwrap()));
}

#[test]
fn errors_in_a_policy_name_the_file_and_the_line() {
    let unknown = error_of("# what may run\nalow = ['a']\n");
    for word in ["crossdock.toml', line 2", "alow", "allow"] {
        assert!(unknown.contains(word), "{unknown}");
    }
    let broken = error_of("allow = [\n'a'\nlibraries = []");
    assert!(broken.contains("line 3"), "{broken}");
    let hash = error_of("\nallow = ['a', 'sha256:12']");
    assert!(hash.contains("line 2") && hash.contains("64 hexadecimal digits"), "{hash}");
    let name = error_of("allow = ['a/b']");
    assert!(name.contains("line 1") && name.contains("'a/b'"), "{name}");
    let key = error_of("require_signature = true\nkeys = ['RWnonsense']");
    assert!(key.contains("line 2") && key.contains("RWnonsense"), "{key}");
    assert!(error_of("libraries = 'a.so'").contains("line 1"));
    let both = error_of(&format!("isolate = ['a']\nisolate_all_but = ['{}']", Sha256::of(b"")));
    assert!(both.contains("expected one of them"), "{both}");
}

/// A name that no plugin has is rejected, because it may be misspelt, and then the intended plugin
/// would not be isolated.
#[test]
fn rejects_isolation_policy_for_unknown_plugin_name() {
    let directory = temporary();
    let plugin = c_plugin(directory.path(), "a.so", &[]);
    let name = crossdock::load::inspect(&plugin).unwrap().metadata.name;
    let build = |isolated: &str| {
        let policy = Policy::clone(&policy(directory.path(), &format!("isolate = ['{isolated}']")).unwrap());
        let search = Search::nowhere().with_path(&plugin).linked(crate::common::mini::linked());
        Host::builder().search(search).policy(policy).build()
    };
    assert!(build(&name).is_ok() && build("*").is_ok());
    for wrong in ["typo", "mini"] {
        let error = build(wrong).err().unwrap().to_string();
        assert!(error.contains(&format!("'{wrong}' is to be isolated")) && error.contains(&name), "{error}");
    }
}

#[test]
fn files_can_be_excluded_from_isolation_by_hash() {
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
fn rejects_signatures_without_keys_and_keys_without_signatures() {
    assert!(error_of("require_signature = true").contains("keys names no key"));
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let unused = error_of(&format!("keys = ['{}']", pair.pk.to_base64()));
    assert!(unused.contains("require_signature is not true"), "{unused}");
}

#[test]
fn rejects_missing_policy_file_and_policy_file_that_others_can_change() {
    let directory = temporary();
    let file = policy_file(directory.path(), "");
    let message = || Policy::from_file(&file).unwrap_err().to_string();
    set_mode(&file, 0o664);
    assert!(
        message().contains("crossdock.toml' is not trusted") && message().contains("chmod go-w"),
        "{}",
        message()
    );
    set_mode(&file, 0o644);
    set_mode(directory.path(), 0o777);
    assert!(message().contains("chmod o-w"), "{}", message());
    set_mode(directory.path(), 0o755);
    assert!(Policy::from_file(&file).is_ok());
    std::fs::remove_file(&file).unwrap();
    assert!(message().contains("there is no such file"), "{}", message());
}

#[test]
fn allow_list_matches_names_and_hashes() {
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
fn policy_folders_are_compared_with_the_targets_of_symbolic_links() {
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
fn rejects_plugins_without_a_valid_signature() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    let plugin = c_plugin(directory.path(), "a.so", &[&format!("RAN=\"{}\"", ran.display())]);
    let [signer, other, unknown] = [(); 3].map(|()| KeyPair::generate_unencrypted_keypair().unwrap());
    let policy = signed_policy(directory.path(), &[&other, &signer]);
    let file = signature_file(&plugin);
    assert_eq!(file, directory.path().join("a.so.minisig"));
    let refused_with = |id: &str, text: &str| {
        let (got, sentence) = refusal_under(&plugin, &policy);
        assert_eq!(got, id, "{sentence}");
        assert!(sentence.contains(text) && sentence.contains("a.so.minisig"), "{sentence}");
    };
    refused_with("unsigned", "expected in the file");
    sign(&plugin, &unknown);
    refused_with("signature", "with none of the policy's `keys`");
    std::fs::write(&file, "a scribble").unwrap();
    refused_with("signature", "is not valid");

    // This signature was made with the right key, but for different bytes.
    let copy = c_plugin(directory.path(), "copy.so", &["VERSION=\"2.0.0\""]);
    sign(&copy, &signer);
    std::fs::rename(signature_file(&copy), &file).unwrap();
    refused_with("signature", "is not valid");

    // This signature was made with the right key, but in the legacy format, which signs the whole
    // file instead of its hash.
    sign(&plugin, &signer);
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good.replacen("\nRU", "\nRW", 1)).unwrap();
    refused_with("signature", "is not valid");
    // The comment of this signature differs from the signed comment.
    std::fs::write(&file, good.replacen("trusted comment: ", "trusted comment: not ", 2)).unwrap();
    refused_with("signature", "is not valid");

    assert_eq!(lines(&ran), [""; 0], "code ran");
    std::fs::write(&file, good).unwrap();
    assert!(loads(&plugin, &policy));
    let inspection = PluginFile::with_policy(&plugin, policy).inspect().unwrap();
    assert!(
        matches!(inspection.fingerprint.signature, Signature::By(key) if key.to_string() == signer.pk.to_base64())
    );
    assert_eq!(inspection.fingerprint.sha256, sha256(&plugin));
}

fn locked(plugin: &Path, name: &str) -> Locked {
    let file = plugin.file_name().unwrap().to_string_lossy().into_owned();
    Locked { name: name.to_string(), version: semver::Version::new(1, 0, 0), file, sha256: sha256(plugin) }
}

fn write_lock(directory: &Path, plugins: Vec<Locked>) -> PathBuf {
    let file = directory.join("crossdock.lock");
    Lock::new(&file, plugins).write().unwrap();
    file
}

#[test]
fn lock_matches_names_and_hashes() {
    let directory = temporary();
    let a = c_plugin(directory.path(), "a.so", &["NAME=\"a\""]);
    let b = c_plugin(directory.path(), "b.so", &["NAME=\"b\""]);
    let under_lock = || policy(directory.path(), "lock = 'crossdock.lock'").unwrap();
    let (id, sentence) = refusal_under(&a, &under_lock());
    assert_eq!(id, "not-locked", "a missing lock file lists nothing: {sentence}");
    let file = write_lock(directory.path(), vec![locked(&b, "c"), locked(&a, "a")]);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o622, 0o600, "only the owner may write the lock file: {mode:o}");
    let policy = under_lock();
    assert_eq!(Lock::read(&file).unwrap().plugins, [locked(&a, "a"), locked(&b, "c")], "sorted");
    assert!(loads(&a, &policy));
    let (id, sentence) = refusal_under(&b, &policy);
    assert_eq!(id, "not-locked", "the lock lists the file under another name");
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
fn rejects_malformed_lock_file_and_lock_file_that_others_can_change() {
    let directory = temporary();
    let file = write_lock(directory.path(), Vec::new());
    let message = || policy(directory.path(), "lock = 'crossdock.lock'").unwrap_err().to_string();
    set_mode(&file, 0o666);
    assert!(message().contains("crossdock.lock' is not trusted"), "{}", message());
    set_mode(&file, 0o644);
    std::fs::write(&file, "version = 2\n").unwrap();
    assert!(message().contains("version is 2, expected 1"), "{}", message());
    std::fs::write(&file, "version = 1\n[[plugin]]\nname = 'a'\n").unwrap();
    assert!(message().contains("crossdock.lock', line 2"), "{}", message());
}

#[test]
fn catalog_lists_refused_plugins_and_loads_the_others() {
    let directory = temporary();
    let folder = directory.path().join("plugins");
    std::fs::create_dir(&folder).unwrap();
    for name in ["a", "b"] {
        c_plugin(&folder, &format!("{name}.so"), &[&format!("NAME=\"{name}\"")]);
    }
    c_plugin(&folder, "library.so", &["NO_META"]);
    let policy = policy(directory.path(), "allow = ['b']").unwrap();
    let host = Host::builder().policy(Policy::clone(&policy)).search(Search::nowhere().with_path(&folder));
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
