//! Measures variants of a feed from a file to a GPU: how the bytes reach pinned memory, the number
//! of threads, the sizes and the number of pinned chunks. The loader uses the best variant.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crossdock_memory::{BufferMut, Stream};
use crossdock_plugin_api::{Device, Error, Host, abi};

use crate::Result;
use crate::ipc::{Bench, link, median};
use crate::test_file::TestFile;

/// The variants to measure: all combinations of these values.
#[derive(Clone)]
pub struct Sweep {
    pub threads: Vec<usize>,
    pub chunk_kib: Vec<usize>,
    /// The number of chunks per thread.
    pub slots: Vec<usize>,
    pub methods: Vec<Method>,
}

/// How the bytes reach pinned memory.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// `pread`.
    Read,
    /// `memcpy` from a new mapping.
    Map,
    /// `memcpy` from a new mapping whose pages the thread populates for each chunk.
    Populate,
    /// Non-temporal stores from a new mapping whose pages the thread populates for each chunk.
    Stream,
    /// `memcpy` from memory.
    Memory,
    /// Non-temporal stores from memory.
    MemoryStream,
    /// `pread` with O_DIRECT, which reads from the storage.
    Direct,
    /// Copies to the GPU directly from a new mapping, whose pages each thread registers with the
    /// driver for each chunk.
    Register,
    /// Nothing: only the copies to the GPU.
    Nothing,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Map => "map",
            Self::Populate => "populate",
            Self::Stream => "populate, stream",
            Self::Memory => "memory",
            Self::MemoryStream => "memory, stream",
            Self::Direct => "direct",
            Self::Register => "register",
            Self::Nothing => "nothing",
        }
    }
}

/// Prints a line for each variant.
pub fn figures(bench: &Bench, bytes: usize, files: &[TestFile], sweep: &Sweep) -> Result<()> {
    let feed = Feed::new(bench, bytes)?;
    println!("| source | method | threads | chunk KiB | chunks per thread | streams | GB/s | of the link |");
    println!("|---|---|---|---|---|---|---|---|");
    let memory = sweep.methods.iter().any(|m| matches!(m, Method::Memory | Method::MemoryStream));
    let memory = if memory { std::fs::read(&files.first().ok_or("no folder")?.path)? } else { Vec::new() };
    for method in &sweep.methods {
        for (i, file) in files.iter().enumerate() {
            let of_memory = matches!(method, Method::Memory | Method::MemoryStream | Method::Nothing);
            if of_memory && i > 0 {
                continue;
            }
            for &threads in &sweep.threads {
                for &kib in &sweep.chunk_kib {
                    for &slots in &sweep.slots {
                        for is_shared in [true, false] {
                            let variant =
                                Variant { method: *method, threads, chunk: kib << 10, slots, is_shared };
                            // O_DIRECT is not supported everywhere.
                            if let Err(error) = line(bench, &feed, file, &memory, variant) {
                                println!("| {} | {} | {error} |", file.folder, method.name());
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Variant {
    method: Method,
    threads: usize,
    chunk: usize,
    slots: usize,
    /// Whether all threads use one stream.
    is_shared: bool,
}

fn line(bench: &Bench, feed: &Feed, file: &TestFile, memory: &[u8], variant: Variant) -> Result<()> {
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    let link = link::to_device(bench)?;
    for run in 0..=bench.runs {
        let open = file.open()?;
        let rate = feed.run(&open, file, memory, variant)?;
        if run > 0 {
            rates.push(rate);
            ratios.push(rate / link);
        }
    }
    let of_memory = matches!(variant.method, Method::Memory | Method::MemoryStream | Method::Nothing);
    println!(
        "| {} | {} | {} | {} | {} | {} | {:.1} | {:.0}% |",
        if of_memory { "memory" } else { &file.folder },
        variant.method.name(),
        variant.threads,
        variant.chunk >> 10,
        variant.slots,
        if variant.is_shared { "1" } else { "each" },
        median(&rates),
        100.0 * median(&ratios)
    );
    Ok(())
}

struct Feed {
    _host: Host,
    object: *const abi::Memory,
    table: abi::Memory,
    bytes: usize,
    target: BufferMut,
    pinned: std::cell::RefCell<BufferMut>,
    streams: Vec<Stream>,
    /// `None` if the driver lacks the functions, as the simulated driver does.
    driver: Option<Registration>,
}

/// The driver's functions that pin existing memory. The host does not use them.
struct Registration {
    register: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int,
    unregister: unsafe extern "C" fn(*mut c_void) -> c_int,
    set_current: unsafe extern "C" fn(*mut c_void) -> c_int,
    context: *mut c_void,
}

/// `CU_MEMHOSTREGISTER_PORTABLE` and `CU_MEMHOSTREGISTER_READ_ONLY`.
const REGISTER_FLAGS: c_uint = 1 | 8;

impl Registration {
    fn load() -> Result<Self> {
        // SAFETY: the host has already loaded the driver by this name.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        let symbol = |name: &CStr| {
            // SAFETY: the library is open, and the name is NUL-terminated.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            if symbol.is_null() { Err(format!("the driver has no {name:?}")) } else { Ok(symbol) }
        };
        let (register, unregister) = (symbol(c"cuMemHostRegister_v2")?, symbol(c"cuMemHostUnregister")?);
        let (retain, set_current) = (symbol(c"cuDevicePrimaryCtxRetain")?, symbol(c"cuCtxSetCurrent")?);
        let mut context = std::ptr::null_mut();
        // SAFETY: the types are the functions' signatures in the driver's header.
        unsafe {
            let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int = std::mem::transmute(retain);
            check("cuDevicePrimaryCtxRetain", retain(&mut context, 0))?;
            Ok(Self {
                register: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int,
                >(register),
                unregister: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(
                    unregister,
                ),
                set_current: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(
                    set_current,
                ),
                context,
            })
        }
    }
}

fn check(what: &str, code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(format!("{what} returned {code}").into()) }
}

/// The maximum size of all chunks together in bytes.
const MAX_PINNED_BYTES: usize = 1 << 30;

/// The source of one run.
struct Input<'a> {
    file: &'a File,
    /// The mapping or the memory; null if it is not used.
    start: *const u8,
    /// Whether each part of the mapping is populated before it is copied.
    method: Method,
}

// SAFETY: the pointer refers to memory that outlives the run and is only read.
unsafe impl Sync for Input<'_> {}

/// A chunk with the event of its last copy.
struct Chunk {
    address: *mut u8,
    event: *mut abi::Event,
    is_registered: bool,
}

impl Feed {
    fn new(bench: &Bench, bytes: usize) -> Result<Self> {
        let host = bench.session.host_handle("feed benchmark")?;
        let memory = bench.session.memory();
        let streams =
            (0..64).map(|_| memory.create_stream(bench.gpu)).collect::<std::result::Result<Vec<_>, _>>()?;
        // SAFETY: the header defines `Memory` for this id.
        let interface = unsafe { host.interface::<abi::Memory>(abi::HOST_MEMORY_ID) };
        let (object, table) = interface.ok_or("no memory")?;
        let target = memory.alloc(&streams[0], bytes)?;
        streams[0].synchronize()?;
        let driver = Registration::load().ok();
        let mut pinned = memory.alloc_pinned(MAX_PINNED_BYTES)?;
        pinned.host_slice_mut().ok_or("pinned memory is not accessible")?.fill(1);
        Ok(Self {
            object: object.as_ptr(),
            _host: host,
            table,
            bytes,
            target,
            pinned: pinned.into(),
            streams,
            driver,
        })
    }

    /// Returns the rate in GB/s.
    fn run(&self, file: &File, named: &TestFile, memory: &[u8], variant: Variant) -> Result<f64> {
        let Variant { method, threads, chunk, slots, is_shared } = variant;
        let needed = threads.saturating_mul(slots).saturating_mul(chunk);
        if threads > self.streams.len() || needed > MAX_PINNED_BYTES {
            return Err("too many threads or chunks".into());
        }
        let direct = if method == Method::Direct { Some(open_direct(named)?) } else { None };
        let file = direct.as_ref().unwrap_or(file);
        let pinned = self.pinned.borrow_mut().host_slice_mut().ok_or("no pinned memory")?.as_mut_ptr();
        let begin = Instant::now();
        let mapping = match method {
            Method::Map | Method::Populate | Method::Stream | Method::Register => {
                Some(Mapping::new(file, self.bytes)?)
            }
            _ => None,
        };
        let start = match (&mapping, method) {
            (Some(mapping), _) => mapping.0.cast_const(),
            (None, Method::Memory | Method::MemoryStream) => memory.as_ptr(),
            _ => std::ptr::null(),
        };
        let input = Input { file, start, method };
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Shared(self, &input, pinned as usize);
        std::thread::scope(|scope| {
            for i in 0..threads {
                let (shared, next, has_failed) = (&shared, &next, &has_failed);
                scope.spawn(move || {
                    let stream = if is_shared { 0 } else { i };
                    let first = shared.2 + i * slots * chunk;
                    if shared.0.feed(shared.1, next, stream, first, slots, chunk).is_err() {
                        has_failed.store(true, Ordering::Relaxed);
                    }
                });
            }
        });
        for stream in &self.streams {
            stream.synchronize()?;
        }
        let ns = begin.elapsed().as_nanos().max(1);
        drop(mapping);
        if has_failed.load(Ordering::Relaxed) {
            return Err("a thread failed".into());
        }
        Ok(self.bytes as f64 / ns as f64)
    }

    /// The work of one thread, whose chunks begin at `first`.
    fn feed(
        &self,
        input: &Input<'_>,
        next: &AtomicUsize,
        stream: usize,
        first: usize,
        slots: usize,
        chunk_bytes: usize,
    ) -> Result<()> {
        let stream = self.streams.get(stream).ok_or("no stream")?;
        let chunk = |i| Chunk {
            address: (first + i * chunk_bytes) as *mut u8,
            event: std::ptr::null_mut(),
            is_registered: false,
        };
        let mut chunks: Vec<Chunk> = (0..slots).map(chunk).collect();
        for chunk in (0..slots).cycle() {
            let at = next.fetch_add(chunk_bytes, Ordering::Relaxed);
            if at >= self.bytes {
                break;
            }
            let bytes = chunk_bytes.min(self.bytes - at);
            let chunk = chunks.get_mut(chunk).ok_or("no chunk")?;
            self.wait(chunk)?;
            if input.method == Method::Register {
                self.unregister(chunk)?;
                self.register(chunk, input.start.wrapping_add(at).cast_mut(), bytes)?;
                self.send(chunk, at, bytes, stream)?;
                continue;
            }
            // SAFETY: the chunk is in the pinned block, and only this thread uses it.
            let to = unsafe { std::slice::from_raw_parts_mut(chunk.address, bytes) };
            input.read(at, to)?;
            self.send(chunk, at, bytes, stream)?;
        }
        chunks.iter_mut().try_for_each(|chunk| self.wait(chunk).and_then(|()| self.unregister(chunk)))
    }

    fn register(&self, chunk: &mut Chunk, start: *mut u8, bytes: usize) -> Result<()> {
        let driver = self.driver.as_ref().ok_or("the driver cannot register memory")?;
        // SAFETY: the range is in the mapping, which exists until all threads have ended.
        unsafe {
            check("cuCtxSetCurrent", (driver.set_current)(driver.context))?;
            check("cuMemHostRegister", (driver.register)(start.cast(), bytes, REGISTER_FLAGS))?;
        }
        (chunk.address, chunk.is_registered) = (start, true);
        Ok(())
    }

    fn unregister(&self, chunk: &mut Chunk) -> Result<()> {
        if !std::mem::take(&mut chunk.is_registered) {
            return Ok(());
        }
        let driver = self.driver.as_ref().ok_or("the driver cannot register memory")?;
        // SAFETY: the chunk was registered, and the copy from it has run.
        check("cuMemHostUnregister", unsafe { (driver.unregister)(chunk.address.cast()) })
    }

    fn send(&self, chunk: &mut Chunk, at: usize, bytes: usize, stream: &Stream) -> Result<()> {
        let copy = abi::Copy {
            to: (self.target.address() + at as u64) as *mut _,
            from: chunk.address.cast(),
            bytes,
            to_device: self.target.device(),
            from_device: Device::CPU,
        };
        let (enqueue, record) = (self.table.copy.ok_or("copy")?, self.table.event_record.ok_or("record")?);
        // SAFETY: the functions belong to the object, the ranges are in live blocks, and the chunk
        // is not used again before its event has occurred.
        Error::check(|err| unsafe { enqueue(self.object, stream.raw(), &copy, 1, err) })?;
        // SAFETY: as above.
        Error::check(|err| unsafe { record(self.object, stream.raw(), &mut chunk.event, err) })?;
        Ok(())
    }

    fn wait(&self, chunk: &mut Chunk) -> Result<()> {
        let event = std::mem::replace(&mut chunk.event, std::ptr::null_mut());
        if event.is_null() {
            return Ok(());
        }
        let wait = self.table.event_synchronize.ok_or("event_synchronize")?;
        // SAFETY: the event is live.
        Error::check(|err| unsafe { wait(self.object, event, err) })?;
        let destroy = self.table.event_destroy.ok_or("event_destroy")?;
        // SAFETY: the event is destroyed only here.
        unsafe { destroy(self.object, event) };
        Ok(())
    }
}

/// What the threads of a run share: the feed, the input and the address of the pinned block.
struct Shared<'a>(&'a Feed, &'a Input<'a>, usize);

// SAFETY: the memory interface may be called on any thread, and the cell of the pinned block is not
// used by the threads.
unsafe impl Sync for Shared<'_> {}

impl Input<'_> {
    fn read(&self, at: usize, to: &mut [u8]) -> Result<()> {
        let from = self.start.wrapping_add(at);
        if matches!(self.method, Method::Populate | Method::Stream) {
            // SAFETY: the range is in the mapping. An error is ignored, because the pages are then
            // populated one by one.
            unsafe { libc::madvise(from.cast_mut().cast(), to.len(), libc::MADV_POPULATE_READ) };
        }
        match self.method {
            Method::Nothing | Method::Register => {}
            Method::Read | Method::Direct => self.file.read_exact_at(to, at as u64)?,
            // SAFETY: the source has at least `at + to.len()` bytes.
            Method::Map | Method::Populate | Method::Memory => unsafe {
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len());
            },
            // SAFETY: as above.
            Method::Stream | Method::MemoryStream => unsafe { copy_around_caches(from, to) },
        }
        Ok(())
    }
}

/// Copies with stores that bypass the caches.
///
/// # Safety
/// `from` has `to.len()` readable bytes.
unsafe fn copy_around_caches(from: *const u8, to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") && to.as_ptr().has_alignment_32() {
        // SAFETY: the processor has AVX, `to` is aligned, and the ranges are valid by this
        // function's contract.
        return unsafe { copy_with_avx(from, to) };
    }
    // SAFETY: the range is valid by this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
}

trait Alignment {
    fn has_alignment_32(self) -> bool;
}

impl Alignment for *const u8 {
    fn has_alignment_32(self) -> bool {
        self.addr().is_multiple_of(32)
    }
}

/// # Safety
/// The processor has AVX, `to` is aligned to 32 bytes, and `from` has `to.len()` readable bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_with_avx(from: *const u8, to: &mut [u8]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    let whole = to.len() / 128 * 128;
    let start = to.as_mut_ptr();
    for at in (0..whole).step_by(128) {
        // SAFETY: the 128 bytes at `at` are in both ranges, and the target is aligned.
        unsafe {
            let from = from.add(at).cast::<__m256i>();
            let to = start.add(at).cast::<__m256i>();
            let parts = [0, 1, 2, 3].map(|i| _mm256_loadu_si256(from.add(i)));
            parts.into_iter().enumerate().for_each(|(i, part)| _mm256_stream_si256(to.add(i), part));
        }
    }
    // SAFETY: the rest is in both ranges.
    unsafe { std::ptr::copy_nonoverlapping(from.add(whole), start.add(whole), to.len() - whole) };
    _mm_sfence();
}

fn open_direct(file: &TestFile) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    Ok(File::options().read(true).custom_flags(libc::O_DIRECT).open(&file.path)?)
}

/// A new mapping of a file.
struct Mapping(*mut u8, usize);

impl Mapping {
    fn new(file: &File, bytes: usize) -> Result<Self> {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: the system chooses the address, so the call changes no other mapping.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(Self(start.cast(), bytes))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped these bytes, and no thread uses them any more.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}
