//! Runs sixty-four threads while plugin files change. Some threads add, replace and remove files in
//! a folder. At the same time, the other threads build hosts on this folder, inspect and load
//! plugins, convert tables, and drop the hosts. A removed or replaced file may only cause a
//! documented rejection. At the end nothing may have leaked, and the only additional open files are
//! the files of loaded plugins, which stay open.
//!
//! `CROSSDOCK_STRESS_SECONDS` sets the duration, and `CROSSDOCK_STRESS_SEED` the seed.
//!
//! The test needs a process of its own, because it counts open files, and aborts the process if
//! there is no progress.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crossdock::discovery::Search;
use crossdock::load::{Refused, inspect};
use crossdock::policy::{Allowed, Policy};
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Error, Host, ReadOptions, Session};
use crossdock_arrays::DeviceBatch;
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::Device;
use crossdock_test_support::Random;
use crossdock_tests::stress::{Progress, setting};
use crossdock_tests::{built, built_file, sample, sample_tree};

const THREADS: u64 = 64;
const SECONDS: u64 = 5;
/// The minimum number of rounds of each thread, so that a slow machine also tests something.
const MIN_ROUNDS: u64 = 4;
const SAMPLE_ROWS: usize = 27_004;
const TREE_ROWS: usize = 3000;
/// Columns that tensors can represent.
const NUMBERS: [&str; 3] = ["year", "distance", "cancelled"];

const BUILT: [&str; 4] = ["arrow_ipc", "arrow_c_device", "dlpack", "encodings"];
const COPIES: usize = 2;
/// Sorted file names. If two files are copies of one plugin, the host uses the first one.
const FILE_NAMES: [&str; 8] =
    ["a.so", "b.so", "c.so", "d.so", "libcrossdock_e_plugin.so", "f.so", "g.so", "libcrossdock_h_plugin.so"];

/// The ids of the permitted reasons to reject a file. The reason depends on timing.
const REASONS: [&str; 9] = [
    "missing",
    "not-a-file",
    "not-elf",
    "damaged",
    "not-a-plugin",
    "writable",
    "changed",
    "shadowed",
    "not-allowed",
];

/// The folder with the changing plugins. Its files are links to copies. The copies are created only
/// once, because a library that was loaded stays mapped until the process ends.
struct ChangingFolder {
    folder: tempfile::TempDir,
    copies: Vec<PathBuf>,
    /// A truncated plugin, and a file that is not a plugin.
    junk: Vec<PathBuf>,
    next: AtomicU64,
    rejections: Mutex<BTreeMap<&'static str, u64>>,
}

impl ChangingFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["plugins", "copies", "junk"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let at = |name: String| folder.path().join(name);
        let mut copies = Vec::new();
        for name in BUILT {
            for n in 0..COPIES {
                let copy = at(format!("copies/{name}-{n}"));
                fs::copy(built_file(&format!("libcrossdock_{name}_plugin.so")), &copy).unwrap();
                touch(&copy, false);
                copies.push(copy);
            }
        }
        // A plugin whose installation was interrupted.
        let mut truncated = fs::read(&copies[0]).unwrap();
        truncated.truncate(truncated.len() / 8);
        let junk = vec![at("junk/truncated".into()), at("junk/text".into())];
        fs::write(&junk[0], truncated).unwrap();
        fs::write(&junk[1], "not a plugin, and not even a library").unwrap();
        Self { folder, copies, junk, next: AtomicU64::new(0), rejections: Mutex::default() }
    }

    fn plugins(&self) -> PathBuf {
        self.folder.path().join("plugins")
    }

    fn random_path(&self, c: &mut Random) -> PathBuf {
        self.plugins().join(c.pick(&FILE_NAMES))
    }

    /// Replaces a file atomically.
    fn put(&self, create: impl FnOnce(&PathBuf) -> std::io::Result<()>, place: &PathBuf) {
        let fresh = self.folder.path().join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        create(&fresh).unwrap();
        if fs::rename(&fresh, place).is_err() {
            // The rename fails if the path is a folder. Another thread may remove this folder at
            // the same time, so an error of `remove_dir` is ignored.
            let _ = fs::remove_dir(place);
            let _ = fs::rename(&fresh, place).or_else(|_| fs::remove_file(&fresh));
        }
    }

    /// Installs, upgrades, damages or removes a file.
    fn change(&self, c: &mut Random) {
        let place = self.random_path(c);
        let copy = c.pick(&self.copies).clone();
        match c.below(12) {
            0..6 => self.put(|fresh| fs::hard_link(&copy, fresh), &place),
            6 => self.put(|fresh| symlink(&copy, fresh), &place),
            7 => self.put(|fresh| symlink("nowhere", fresh), &place),
            8 => self.put(|fresh| fs::hard_link(c.pick(&self.junk), fresh), &place),
            // Both calls fail if the file exists already.
            9 => _ = fs::create_dir(&place).or_else(|_| fs::remove_dir(&place)),
            10 => {
                let mode = if c.below(8) == 0 { 0o777 } else { 0o755 };
                fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
            }
            _ => {
                touch(&copy, c.below(8) == 0);
            }
        }
        if c.below(4) == 0 {
            let _ = fs::remove_file(self.random_path(c));
        }
    }

    fn count_rejection(&self, refused: &Refused) {
        let id = refused.reason.id();
        assert!(REASONS.contains(&id), "{refused}");
        *self.rejections.lock().unwrap().entry(id).or_default() += 1;
    }

    /// Checks that the changes to the plugin files can have caused the error.
    fn check_error(&self, error: &Error) {
        match error {
            Error::Refused(refused) => self.count_rejection(refused),
            // The folder has no suitable plugin at this time.
            Error::Unrecognised(_) | Error::Usage(_) => {}
            other => panic!("{}", other.one_line()),
        }
    }

    /// The hashes of all copies except those of one plugin.
    fn allowed(&self) -> Vec<Allowed> {
        let hash = |copy: &PathBuf| Allowed::Hash(inspect(copy).unwrap().fingerprint.sha256);
        self.copies[..self.copies.len() - COPIES].iter().map(hash).collect()
    }
}

/// Changes the modification time of a copy. The host rejects a mapped plugin as long as the
/// modification time differs from the time when the plugin was mapped.
fn touch(copy: &PathBuf, is_changed: bool) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1 + u64::from(is_changed));
    fs::File::open(copy).unwrap().set_modified(time).unwrap();
}

struct Work {
    folder_state: ChangingFolder,
    backend: Backend,
    allowed: Vec<Allowed>,
    /// The host that several threads share until one of the threads replaces it.
    shared: Mutex<Host>,
    dropped_batches: Sender<Vec<DeviceBatch>>,
    completed: Completed,
}

/// The numbers of completed operations.
#[derive(Default, Debug)]
struct Completed {
    read: AtomicU64,
    converted: AtomicU64,
    decoded: AtomicU64,
    tensors: AtomicU64,
}

fn host(folder_state: &ChangingFolder, backend: &Backend, policy: Policy, c: &mut Random) -> Option<Host> {
    let mut builder = Host::builder().backend(backend.clone()).search(Search::nowhere());
    builder = builder.threads(2).policy(policy);
    for _ in 0..c.below(3) {
        builder = builder.plugins(folder_state.random_path(c));
    }
    builder = builder.plugins(folder_state.plugins());
    if c.below(2) == 0 {
        return Some(builder.build_lenient());
    }
    builder.build().inspect_err(|error| folder_state.check_error(error)).ok()
}

impl Work {
    fn policy(&self, c: &mut Random) -> Policy {
        match c.below(16) {
            // With an allow list, the host copies the file, hashes the copy and loads it.
            0 => Policy { allow: Some(self.allowed.clone()), ..Policy::default() },
            1..4 => {
                Policy { crashes: Some(self.folder_state.folder.path().join("marks")), ..Policy::default() }
            }
            _ => Policy::default(),
        }
    }

    fn round(&self, c: &mut Random) {
        match c.below(8) {
            0 => self.folder_state.change(c),
            1 => {
                let inspection = inspect(self.folder_state.random_path(c));
                let refused = inspection
                    .map(|inspection| inspection.refusal.map(|reason| reason.into_refused("a plugin")));
                if let Err(refused) | Ok(Some(refused)) = refused {
                    self.folder_state.count_rejection(&refused);
                }
            }
            2 => {
                let policy = self.policy(c);
                if let Some(host) = host(&self.folder_state, &self.backend, policy, c) {
                    *self.shared.lock().unwrap() = host;
                }
            }
            3 | 4 => {
                let policy = self.policy(c);
                if let Some(host) = host(&self.folder_state, &self.backend, policy, c) {
                    self.work_with(&host, c);
                }
            }
            _ => {
                let host = self.shared.lock().unwrap().clone();
                self.work_with(&host, c);
            }
        }
    }

    fn work_with(&self, host: &Host, c: &mut Random) {
        for candidate in &host.catalog().candidates {
            if let Err(refused) = &candidate.metadata {
                self.folder_state.count_rejection(refused);
            }
        }
        if c.below(4) == 0 {
            for name in ["arrow-ipc", "arrow-c-device", "dlpack", "encodings"] {
                if let Err(error) = host.load(name) {
                    self.folder_state.check_error(&error);
                }
            }
        }
        let device = *c.pick(&[Device::CPU, Device::UNTOUCHABLE]);
        let session = host.session().device(device).open().unwrap();
        let sample = || Input::open(sample(), session.cancel_flag()).unwrap();
        let (result, count) = match c.below(8) {
            0..2 => (self.read(&session, sample(), c), &self.completed.read),
            2..4 => (convert(&session, sample(), c), &self.completed.converted),
            4..6 => (tensors(&session, sample()), &self.completed.tensors),
            _ => (decode(&session, c).map(|batch| self.drop_later(vec![batch], c)), &self.completed.decoded),
        };
        match result {
            Ok(()) => _ = count.fetch_add(1, Ordering::Relaxed),
            Err(error) => self.folder_state.check_error(&error),
        }
    }

    fn read(&self, session: &Session, input: Input, c: &mut Random) -> Result<(), Error> {
        let mut reader = session.read(input, &ReadOptions::default())?;
        let mut batches = Vec::new();
        for _ in 0..c.below(12) {
            match reader.next()? {
                Some(batch) => batches.push(batch),
                None => break,
            }
        }
        self.drop_later(batches, c);
        Ok(())
    }

    /// Sometimes drops batches on another thread, so that they outlive the reader, the session or
    /// the host.
    fn drop_later(&self, batches: Vec<DeviceBatch>, c: &mut Random) {
        if c.below(2) == 0 {
            self.dropped_batches.send(batches).unwrap();
        }
    }
}

fn convert(session: &Session, input: Input, c: &mut Random) -> Result<(), Error> {
    let mut conversion = session.conversion().to("arrow-ipc-stream");
    if c.below(2) == 0 {
        conversion = conversion.via(*c.pick(&["arrow-c-device", "arrow-c-device-stream", "arrow-c-stream"]));
    }
    conversion.run(input, Output::Memory(VecSink::new())).map(drop)
}

/// Decodes a tree, sometimes after a round trip through the exporter.
fn decode(session: &Session, c: &mut Random) -> Result<DeviceBatch, Error> {
    static TREE: LazyLock<Vec<u8>> = LazyLock::new(sample_tree);
    let mut reader = session.read(Input::bytes(TREE.clone()), &ReadOptions::default())?;
    let Some(mut batch) = reader.next()? else { panic!("a tree without a batch") };
    if c.below(2) == 0 {
        let array = session.encode_uncompressed(batch.schema(), std::slice::from_ref(&batch))?;
        batch = session.decode(session.with_arrow_types(array)?)?;
    }
    assert_eq!(batch.len(), TREE_ROWS);
    Ok(batch)
}

/// Converts columns to tensors and back.
fn tensors(session: &Session, input: Input) -> Result<(), Error> {
    let conversion = session.conversion().to("arrow-ipc-stream").via("dlpack").columns(NUMBERS).nulls("mask");
    conversion.run(input, Output::Memory(VecSink::new())).map(drop)
}

/// The paths of the open files.
fn open_files() -> Vec<PathBuf> {
    let files = fs::read_dir("/proc/self/fd").unwrap();
    files.filter_map(|file| fs::read_link(file.ok()?.path()).ok()).collect()
}

#[test]
fn changing_plugins_under_64_threads_are_used_or_rejected_without_leaks() {
    let (seconds, seed) = (setting("CROSSDOCK_STRESS_SECONDS", SECONDS), setting("CROSSDOCK_STRESS_SEED", 1));
    let progress = Progress::start();
    let backend = Backend::builder().untouchable(true).build();
    let folder_state = ChangingFolder::new();
    let allowed = folder_state.allowed();
    let first = host(&folder_state, &backend, Policy::default(), &mut Random::of(&[seed, THREADS, 0]));
    // Opens the files that stay open after their first use, such as the files of a driver, before
    // the open files are counted.
    let warm_up = Host::builder().backend(backend.clone()).plugins(built()).build().unwrap();
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let session = warm_up.session().device(device).open().unwrap();
        tensors(&session, Input::open(sample(), session.cancel_flag()).unwrap()).unwrap();
        decode(&session, &mut Random::of(&[seed, THREADS, 2])).unwrap();
    }
    drop(warm_up);
    let before = open_files();
    let (dropped_batches, received) = channel::<Vec<DeviceBatch>>();
    let dropper =
        std::thread::spawn(move || received.into_iter().map(|batches| batches.len()).sum::<usize>());
    let shared =
        Mutex::new(first.unwrap_or_else(|| Host::builder().backend(backend.clone()).build_lenient()));
    let completed = Completed::default();
    let work = Arc::new(Work {
        folder_state,
        backend: backend.clone(),
        allowed,
        shared,
        dropped_batches,
        completed,
    });

    let end = Instant::now() + Duration::from_secs(seconds);
    let worker = |thread: u64| {
        let (work, progress) = (work.clone(), progress.clone());
        std::thread::spawn(move || {
            for n in (0..).take_while(|n| *n < MIN_ROUNDS || Instant::now() < end) {
                work.round(&mut Random::of(&[seed, thread, n]));
                progress.count_round();
            }
        })
    };
    let workers: Vec<_> = (0..THREADS).map(worker).collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let Work { folder_state, shared, dropped_batches, completed, .. } = Arc::into_inner(work).unwrap();
    drop((shared, dropped_batches));
    let batches = dropper.join().unwrap();
    println!("{completed:?}, {batches} batches, rejected {:?}", folder_state.rejections.lock().unwrap());
    let counts = [completed.read, completed.converted, completed.decoded, completed.tensors]
        .map(AtomicU64::into_inner);
    assert!(counts.iter().sum::<u64>() > 0 && batches > 0);

    // Intact plugins can be used again.
    for copy in &folder_state.copies {
        fs::set_permissions(copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::remove_dir_all(folder_state.plugins()).unwrap();
    fs::create_dir(folder_state.plugins()).unwrap();
    for (name, copy) in BUILT.iter().zip(folder_state.copies.iter().step_by(COPIES)) {
        fs::copy(copy, folder_state.plugins().join(format!("new-{name}.so"))).unwrap();
    }
    let search = Search::nowhere();
    let host =
        Host::builder().backend(backend).search(search).plugins(folder_state.plugins()).build().unwrap();
    let session = host.session().open().unwrap();
    let input = || Input::open(sample(), session.cancel_flag()).unwrap();
    let read: Result<Vec<_>, _> = session.read(input(), &ReadOptions::default()).unwrap().collect();
    assert_eq!(read.unwrap().iter().map(DeviceBatch::len).sum::<usize>(), SAMPLE_ROWS);
    let mut choices = Random::of(&[seed, THREADS, 1]);
    for _ in 0..4 {
        convert(&session, input(), &mut choices).unwrap();
        decode(&session, &mut choices).unwrap();
    }
    tensors(&session, input()).unwrap();
    drop(session);

    assert_eq!(host.settle(), []);
    // Every instance is destroyed, so each plugin name has only one account, which is the sum of
    // all closed accounts with the name.
    let mut names: Vec<_> = host.ledger().accounts.into_iter().map(|account| account.name).collect();
    names.sort();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    // The files of loaded plugins stay open. They are the copies in the folder, and for hashed
    // plugins both the original and its copy.
    let after = open_files();
    assert!(
        after.len() <= before.len() + folder_state.copies.len() + 2 * BUILT.len(),
        "{after:?}, expected little more than {before:?}"
    );
    progress.finish();
}
