//! Sixty-four threads, and plugins that come and go under them: files appear, are replaced and vanish while hosts are built
//! on their folder, look at them, load them, convert, and end. What a vanished or replaced file gives is one of the host's own
//! refusals. At the end nothing is alive, and no file is open that is not a plugin's for good.
//!
//! `CROSSDOCK_STRESS_SECONDS` says for how long, `CROSSDOCK_STRESS_SEED` with which choices.
//!
//! It needs a process of its own: it counts the files that the process has open, and ends it when nothing moves.
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
/// So many each, however slow the machine.
const FEWEST_ROUNDS: u64 = 4;
const SAMPLE_ROWS: usize = 27_004;
const TREE_ROWS: usize = 3000;
/// What tensors have a place for.
const NUMBERS: [&str; 3] = ["year", "distance", "cancelled"];

const BUILT: [&str; 4] = ["arrow_ipc", "arrow_c_device", "dlpack", "encodings"];
const COPIES: usize = 2;
/// In the order of their names: which of two copies of a plugin is the one to use changes as well.
const PLACES: [&str; 8] =
    ["a.so", "b.so", "c.so", "d.so", "libcrossdock_e_plugin.so", "f.so", "g.so", "libcrossdock_h_plugin.so"];

/// What may be said of a file here, by the names that programs go by. Which of them is a matter of the moment.
const REFUSALS: [&str; 9] = [
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

/// The folder whose plugins come and go. What is put there is linked to copies made beforehand: what is mapped stays mapped
/// for good, one image for each file.
struct Stage {
    folder: tempfile::TempDir,
    copies: Vec<PathBuf>,
    /// Not a whole plugin, and none at all.
    junk: Vec<PathBuf>,
    next: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

impl Stage {
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
        // As far as an installation had come that was broken off.
        let mut half = fs::read(&copies[0]).unwrap();
        half.truncate(half.len() / 8);
        let junk = vec![at("junk/half".into()), at("junk/text".into())];
        fs::write(&junk[0], half).unwrap();
        fs::write(&junk[1], "not a plugin, and not even a library").unwrap();
        Self { folder, copies, junk, next: AtomicU64::new(0), refused: Mutex::default() }
    }

    fn plugins(&self) -> PathBuf {
        self.folder.path().join("plugins")
    }

    fn place(&self, c: &mut Random) -> PathBuf {
        self.plugins().join(c.pick(&PLACES))
    }

    /// In the place of whatever is there, from one moment to the next.
    fn put(&self, make: impl FnOnce(&PathBuf) -> std::io::Result<()>, place: &PathBuf) {
        let fresh = self.folder.path().join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        make(&fresh).unwrap();
        if fs::rename(&fresh, place).is_err() {
            // A folder is there, unless somebody else took it away just now.
            let _ = fs::remove_dir(place);
            let _ = fs::rename(&fresh, place).or_else(|_| fs::remove_file(&fresh));
        }
    }

    /// Somebody installs, upgrades, breaks or removes something.
    fn change(&self, c: &mut Random) {
        let place = self.place(c);
        let copy = c.pick(&self.copies).clone();
        match c.below(12) {
            0..6 => self.put(|fresh| fs::hard_link(&copy, fresh), &place),
            6 => self.put(|fresh| symlink(&copy, fresh), &place),
            7 => self.put(|fresh| symlink("nowhere", fresh), &place),
            8 => self.put(|fresh| fs::hard_link(c.pick(&self.junk), fresh), &place),
            // Fails where something is, or nothing.
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
            let _ = fs::remove_file(self.place(c));
        }
    }

    fn refused(&self, refused: &Refused) {
        let id = refused.reason.id();
        assert!(REFUSALS.contains(&id), "{refused}");
        *self.refused.lock().unwrap().entry(id).or_default() += 1;
    }

    /// What using plugins that come and go may give.
    fn failed(&self, error: &Error) {
        match error {
            Error::Refused(refused) => self.refused(refused),
            // The plugins that would do are not there just now.
            Error::Unrecognised(_) | Error::Usage(_) => {}
            other => panic!("{}", other.one_line()),
        }
    }

    /// All that the copies are, but for one of them.
    fn allowed(&self) -> Vec<Allowed> {
        let hash = |copy: &PathBuf| Allowed::Hash(inspect(copy).unwrap().fingerprint.sha256);
        self.copies[..self.copies.len() - COPIES].iter().map(hash).collect()
    }
}

/// A plugin that was touched since it was mapped is refused, until it is as it was.
fn touch(copy: &PathBuf, late: bool) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1 + u64::from(late));
    fs::File::open(copy).unwrap().set_modified(time).unwrap();
}

struct Work {
    stage: Stage,
    backend: Backend,
    allowed: Vec<Allowed>,
    /// What several threads use at once, until one of them puts another in its place.
    shared: Mutex<Host>,
    graves: Sender<Vec<DeviceBatch>>,
    done: Done,
}

/// What came to its end.
#[derive(Default, Debug)]
struct Done {
    read: AtomicU64,
    converted: AtomicU64,
    decoded: AtomicU64,
    tensors: AtomicU64,
}

fn host(stage: &Stage, backend: &Backend, policy: Policy, c: &mut Random) -> Option<Host> {
    let mut builder = Host::builder().backend(backend.clone()).search(Search::nowhere());
    builder = builder.threads(2).policy(policy);
    for _ in 0..c.below(3) {
        builder = builder.plugins(stage.place(c));
    }
    builder = builder.plugins(stage.plugins());
    if c.below(2) == 0 {
        return Some(builder.build_lenient());
    }
    builder.build().inspect_err(|error| stage.failed(error)).ok()
}

impl Work {
    fn policy(&self, c: &mut Random) -> Policy {
        match c.below(16) {
            // Bytes are copied, hashed and loaded from the copy.
            0 => Policy { allow: Some(self.allowed.clone()), ..Policy::default() },
            1..4 => Policy { crashes: Some(self.stage.folder.path().join("marks")), ..Policy::default() },
            _ => Policy::default(),
        }
    }

    fn round(&self, c: &mut Random) {
        match c.below(8) {
            0 => self.stage.change(c),
            1 => {
                let looked = inspect(self.stage.place(c));
                let refused = looked.map(|looked| looked.refusal.map(|reason| reason.of("a plugin")));
                if let Err(refused) | Ok(Some(refused)) = refused {
                    self.stage.refused(&refused);
                }
            }
            2 => {
                let policy = self.policy(c);
                if let Some(host) = host(&self.stage, &self.backend, policy, c) {
                    *self.shared.lock().unwrap() = host;
                }
            }
            3 | 4 => {
                let policy = self.policy(c);
                if let Some(host) = host(&self.stage, &self.backend, policy, c) {
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
                self.stage.refused(refused);
            }
        }
        if c.below(4) == 0 {
            for name in ["arrow-ipc", "arrow-c-device", "dlpack", "encodings"] {
                if let Err(error) = host.load(name) {
                    self.stage.failed(&error);
                }
            }
        }
        let device = *c.pick(&[Device::CPU, Device::UNTOUCHABLE]);
        let session = host.session().device(device).open().unwrap();
        let sample = || Input::open(sample(), session.cancel_flag()).unwrap();
        let (done, count) = match c.below(8) {
            0..2 => (self.read(&session, sample(), c), &self.done.read),
            2..4 => (convert(&session, sample(), c), &self.done.converted),
            4..6 => (tensors(&session, sample()), &self.done.tensors),
            _ => (decoded(&session, c).map(|batch| self.bury(vec![batch], c)), &self.done.decoded),
        };
        match done {
            Ok(()) => _ = count.fetch_add(1, Ordering::Relaxed),
            Err(error) => self.stage.failed(&error),
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
        self.bury(batches, c);
        Ok(())
    }

    /// They outlive the reader, mostly the session, and some the host.
    fn bury(&self, batches: Vec<DeviceBatch>, c: &mut Random) {
        if c.below(2) == 0 {
            self.graves.send(batches).unwrap();
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

/// What a tree holds, or what it does after it went out and in again.
fn decoded(session: &Session, c: &mut Random) -> Result<DeviceBatch, Error> {
    static TREE: LazyLock<Vec<u8>> = LazyLock::new(sample_tree);
    let mut reader = session.read(Input::bytes(TREE.clone()), &ReadOptions::default())?;
    let Some(mut batch) = reader.next()? else { panic!("a tree without a batch") };
    if c.below(2) == 0 {
        let array = session.encode_as_it_is(batch.schema(), std::slice::from_ref(&batch))?;
        batch = session.decode(session.with_arrow_types(array)?)?;
    }
    assert_eq!(batch.len(), TREE_ROWS);
    Ok(batch)
}

/// Numbers, each column of which becomes a tensor, and a column again.
fn tensors(session: &Session, input: Input) -> Result<(), Error> {
    let columns = NUMBERS.map(str::to_owned).into();
    let conversion = session.conversion().to("arrow-ipc-stream").via("dlpack").columns(columns).nulls("mask");
    conversion.run(input, Output::Memory(VecSink::new())).map(drop)
}

/// What the open files are.
fn open_files() -> Vec<PathBuf> {
    let files = fs::read_dir("/proc/self/fd").unwrap();
    files.filter_map(|file| fs::read_link(file.ok()?.path()).ok()).collect()
}

#[test]
fn plugins_that_come_and_go_under_64_threads_are_used_or_refused_and_nothing_is_left() {
    let (seconds, seed) = (setting("CROSSDOCK_STRESS_SECONDS", SECONDS), setting("CROSSDOCK_STRESS_SEED", 1));
    let progress = Progress::watched();
    let backend = Backend::builder().untouchable(true).build();
    let stage = Stage::new();
    let allowed = stage.allowed();
    let first = host(&stage, &backend, Policy::default(), &mut Random::of(&[seed, THREADS, 0]));
    // Whatever comes with the first of all this and stays, as a driver's files.
    let whole = Host::builder().backend(backend.clone()).plugins(built()).build().unwrap();
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let session = whole.session().device(device).open().unwrap();
        tensors(&session, Input::open(sample(), session.cancel_flag()).unwrap()).unwrap();
        decoded(&session, &mut Random::of(&[seed, THREADS, 2])).unwrap();
    }
    drop(whole);
    let before = open_files();
    let (graves, buried) = channel::<Vec<DeviceBatch>>();
    let digger = std::thread::spawn(move || buried.into_iter().map(|batches| batches.len()).sum::<usize>());
    let shared =
        Mutex::new(first.unwrap_or_else(|| Host::builder().backend(backend.clone()).build_lenient()));
    let done = Done::default();
    let work = Arc::new(Work { stage, backend: backend.clone(), allowed, shared, graves, done });

    let end = Instant::now() + Duration::from_secs(seconds);
    let worker = |thread: u64| {
        let (work, progress) = (work.clone(), progress.clone());
        std::thread::spawn(move || {
            for n in (0..).take_while(|n| *n < FEWEST_ROUNDS || Instant::now() < end) {
                work.round(&mut Random::of(&[seed, thread, n]));
                progress.one_more();
            }
        })
    };
    let workers: Vec<_> = (0..THREADS).map(worker).collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let Work { stage, shared, graves, done, .. } = Arc::into_inner(work).unwrap();
    drop((shared, graves));
    let batches = digger.join().unwrap();
    println!("{done:?}, {batches} batches, refused {:?}", stage.refused.lock().unwrap());
    let whole = [done.read, done.converted, done.decoded, done.tensors].map(AtomicU64::into_inner);
    assert!(whole.iter().sum::<u64>() > 0 && batches > 0);

    // What is whole is used again.
    for copy in &stage.copies {
        fs::set_permissions(copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::remove_dir_all(stage.plugins()).unwrap();
    fs::create_dir(stage.plugins()).unwrap();
    for (name, copy) in BUILT.iter().zip(stage.copies.iter().step_by(COPIES)) {
        fs::copy(copy, stage.plugins().join(format!("new-{name}.so"))).unwrap();
    }
    let search = Search::nowhere();
    let host = Host::builder().backend(backend).search(search).plugins(stage.plugins()).build().unwrap();
    let session = host.session().open().unwrap();
    let input = || Input::open(sample(), session.cancel_flag()).unwrap();
    let read: Result<Vec<_>, _> = session.read(input(), &ReadOptions::default()).unwrap().collect();
    assert_eq!(read.unwrap().iter().map(DeviceBatch::len).sum::<usize>(), SAMPLE_ROWS);
    let mut choices = Random::of(&[seed, THREADS, 1]);
    for _ in 0..4 {
        convert(&session, input(), &mut choices).unwrap();
        decoded(&session, &mut choices).unwrap();
    }
    tensors(&session, input()).unwrap();
    drop(session);

    assert_eq!(host.settle(), []);
    // Of each name there is the sum of what is closed, and none that is open beside it: every instance has ended.
    let mut names: Vec<_> = host.ledger().accounts.into_iter().map(|account| account.name).collect();
    names.sort();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    // A plugin's file stays open with its image: each copy, what it was copied from for its hash, and the new ones.
    let after = open_files();
    assert!(
        after.len() <= before.len() + stage.copies.len() + 2 * BUILT.len(),
        "{after:?}, and before {before:?}"
    );
    progress.is_over();
}
