//! Sixty-four threads, and plugins that come and go under them: files appear, are replaced and vanish while hosts are built
//! on their folder, look at them, load them, convert, and end. What a vanished or replaced file gives is one of the host's own
//! refusals. At the end nothing is alive, and no file is open that is not a plugin's for good.
//!
//! `CROSSDOCK_STRESS_SECONDS` says for how long, `CROSSDOCK_STRESS_SEED` with which choices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
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
use crossdock_tests::stress::{Choices, Progress, setting};
use crossdock_tests::{built, built_file, sample};

const THREADS: u64 = 64;
const SECONDS: u64 = 5;
/// So many each, however slow the machine.
const FEWEST_ROUNDS: u64 = 4;
const SAMPLE_ROWS: usize = 27_004;

const BUILT: [&str; 3] = ["arrow_ipc", "arrow_c_device", "dlpack"];
const COPIES: usize = 2;
/// In the order of their names: which of two copies of a plugin is the one to use changes as well.
const PLACES: [&str; 6] = ["a.so", "b.so", "c.so", "d.so", "libcrossdock_e_plugin.so", "f.so"];

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

    fn place(&self, c: &mut Choices) -> PathBuf {
        self.plugins().join(c.one_of(&PLACES))
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
    fn change(&self, c: &mut Choices) {
        let place = self.place(c);
        let copy = c.one_of(&self.copies).clone();
        match c.below(12) {
            0..6 => self.put(|fresh| fs::hard_link(&copy, fresh), &place),
            6 => self.put(|fresh| symlink(&copy, fresh), &place),
            7 => self.put(|fresh| symlink("nowhere", fresh), &place),
            8 => self.put(|fresh| fs::hard_link(c.one_of(&self.junk), fresh), &place),
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
}

fn host(stage: &Stage, backend: &Backend, policy: Policy, c: &mut Choices) -> Option<Host> {
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
    fn policy(&self, c: &mut Choices) -> Policy {
        match c.below(16) {
            // Bytes are copied, hashed and loaded from the copy.
            0 => Policy { allow: Some(self.allowed.clone()), ..Policy::default() },
            1..4 => Policy { crashes: Some(self.stage.folder.path().join("marks")), ..Policy::default() },
            _ => Policy::default(),
        }
    }

    /// Whether a conversion or a read came to its end.
    fn round(&self, c: &mut Choices) -> bool {
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
                let host = host(&self.stage, &self.backend, policy, c);
                return host.is_some_and(|host| self.work_with(&host, c));
            }
            _ => {
                let host = self.shared.lock().unwrap().clone();
                return self.work_with(&host, c);
            }
        }
        false
    }

    fn work_with(&self, host: &Host, c: &mut Choices) -> bool {
        for candidate in &host.catalog().candidates {
            if let Err(refused) = &candidate.metadata {
                self.stage.refused(refused);
            }
        }
        if c.below(4) == 0 {
            for name in ["arrow-ipc", "arrow-c-device", "dlpack"] {
                if let Err(error) = host.load(name) {
                    self.stage.failed(&error);
                }
            }
        }
        let device = *c.one_of(&[Device::CPU, Device::UNTOUCHABLE]);
        let session = host.session().device(device).open().unwrap();
        let input = Input::open(sample(), session.cancel_flag()).unwrap();
        let done = if c.below(2) == 0 { self.read(&session, input, c) } else { convert(&session, input, c) };
        done.inspect_err(|error| self.stage.failed(error)).is_ok()
    }

    fn read(&self, session: &Session, input: Input, c: &mut Choices) -> Result<(), Error> {
        let mut reader = session.read(input, &ReadOptions::default())?;
        let mut batches = Vec::new();
        for _ in 0..c.below(12) {
            match reader.next()? {
                Some(batch) => batches.push(batch),
                None => break,
            }
        }
        if c.below(2) == 0 {
            // They outlive the reader, mostly the session, and some the host.
            self.graves.send(batches).unwrap();
        }
        Ok(())
    }
}

fn convert(session: &Session, input: Input, c: &mut Choices) -> Result<(), Error> {
    let mut conversion = session.conversion().to("arrow-ipc-stream");
    if c.below(2) == 0 {
        conversion =
            conversion.via(*c.one_of(&["arrow-c-device", "arrow-c-device-stream", "arrow-c-stream"]));
    }
    conversion.run(input, Output::Memory(VecSink::new())).map(drop)
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn plugins_that_come_and_go_under_64_threads_are_used_or_refused_and_nothing_is_left() {
    let (seconds, seed) = (setting("CROSSDOCK_STRESS_SECONDS", SECONDS), setting("CROSSDOCK_STRESS_SEED", 1));
    let progress = Progress::watched();
    let backend = Backend::builder().untouchable(true).build();
    let stage = Stage::new();
    let allowed = stage.allowed();
    let first = host(&stage, &backend, Policy::default(), &mut Choices::of(seed, THREADS, 0));
    // Whatever comes with the first session and stays.
    drop(Host::builder().plugins(built()).build().unwrap().session().open().unwrap().plugins());
    let before = open_files();
    let (graves, buried) = channel::<Vec<DeviceBatch>>();
    let digger = std::thread::spawn(move || buried.into_iter().map(|batches| batches.len()).sum::<usize>());
    let shared =
        Mutex::new(first.unwrap_or_else(|| Host::builder().backend(backend.clone()).build_lenient()));
    let work = Arc::new(Work { stage, backend: backend.clone(), allowed, shared, graves });

    let end = Instant::now() + Duration::from_secs(seconds);
    let worker = |thread: u64| {
        let (work, progress) = (work.clone(), progress.clone());
        std::thread::spawn(move || {
            let mut whole = 0;
            for n in (0..).take_while(|n| *n < FEWEST_ROUNDS || Instant::now() < end) {
                whole += u64::from(work.round(&mut Choices::of(seed, thread, n)));
                progress.one_more();
            }
            whole
        })
    };
    let workers: Vec<_> = (0..THREADS).map(worker).collect();
    let whole: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    let Work { stage, shared, graves, .. } = Arc::into_inner(work).unwrap();
    drop((shared, graves));
    let batches = digger.join().unwrap();
    println!("{whole} reads and conversions, {batches} batches, refused {:?}", stage.refused.lock().unwrap());
    assert!(whole > 0 && batches > 0);

    // What is whole is used again.
    for copy in &stage.copies {
        fs::set_permissions(copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::remove_dir_all(stage.plugins()).unwrap();
    fs::create_dir(stage.plugins()).unwrap();
    let ipc = stage.plugins().join("new.so");
    fs::copy(&stage.copies[0], &ipc).unwrap();
    let host = Host::builder().backend(backend).search(Search::nowhere()).plugins(ipc).build().unwrap();
    let session = host.session().open().unwrap();
    let input = Input::open(sample(), session.cancel_flag()).unwrap();
    let read: Result<Vec<_>, _> = session.read(input, &ReadOptions::default()).unwrap().collect();
    assert_eq!(read.unwrap().iter().map(DeviceBatch::len).sum::<usize>(), SAMPLE_ROWS);
    drop(session);

    assert_eq!(host.settle(), []);
    // Of each name there is the sum of what is closed, and none that is open beside it: every instance has ended.
    let mut names: Vec<_> = host.ledger().accounts.into_iter().map(|account| account.name).collect();
    names.sort();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    // A plugin's file stays open with its image: each copy, what it was copied from for its hash, and the new one.
    assert!(
        open_files() <= before + stage.copies.len() + BUILT.len() + 1,
        "{} files, {before} before",
        open_files()
    );
    progress.is_over();
}
