//! Bindings to the required functions of NVRTC, NVIDIA's compiler library.

use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Cubin,
    Ptx,
}

/// The compiler options for all images. They make the compiler read only the sources that are
/// passed to it, so that the output is the same on every machine.
pub const OPTIONS: [&str; 3] = ["--std=c++17", "--device-as-default-execution-space", "--no-source-include"];

pub struct Compiled {
    pub image: Vec<u8>,
    /// The messages of the compiler and the assembler.
    pub log: String,
}

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Bytes = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

pub struct Compiler {
    nvrtc: Library,
    /// `open` loads this library first, because the compiler opens the library without a path.
    _builtins: Library,
}

impl Compiler {
    /// Loads the libraries in `folder`.
    pub fn open(folder: &Path) -> Result<Self> {
        let open = |name: &str| -> Result<Library> {
            let path = folder.join(name);
            // SAFETY: `Library::open` requires that the library's constructors may run. NVIDIA's
            // constructors have no preconditions.
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }
                .with_context(|| format!("cannot load {}", path.display()))
        };
        let builtins = open("libnvrtc-builtins.so.12.2")?;
        Ok(Self { nvrtc: open("libnvrtc.so.12")?, _builtins: builtins })
    }

    fn symbol<T: Copy>(&self, name: &str) -> Result<T> {
        // SAFETY: `get` requires the type of the symbol. Callers pass the type in NVRTC's
        // documentation.
        let symbol = unsafe { self.nvrtc.get::<T>(name.as_bytes()) };
        Ok(*symbol.with_context(|| format!("the compiler has no {name}"))?)
    }

    /// Compiles a program, with headers by name, for a compute capability.
    pub fn compile(
        &self,
        program: &str,
        headers: &[(&str, &str)],
        output: Output,
        architecture: u32,
        verbose: bool,
    ) -> Result<Compiled> {
        let kind = if output == Output::Cubin { "sm" } else { "compute" };
        let mut options = vec![format!("--gpu-architecture={kind}_{architecture}")];
        options.extend(OPTIONS.map(str::to_owned));
        if verbose {
            options.push("--ptxas-options=-v".to_owned());
        }
        let options = c_strings(options.iter().map(String::as_str))?;
        let names = c_strings(headers.iter().map(|(name, _)| *name))?;
        let contents = c_strings(headers.iter().map(|(_, content)| *content))?;
        let source = CString::new(program)?;

        let create: Create = self.symbol("nvrtcCreateProgram")?;
        let compile: Compile = self.symbol("nvrtcCompileProgram")?;
        let destroy: Destroy = self.symbol("nvrtcDestroyProgram")?;
        let mut handle: Program = std::ptr::null_mut();
        let (names, contents) = (pointers(&names), pointers(&contents));
        let n = c_int::try_from(headers.len())?;
        // SAFETY: the strings and the lists of `n` pointers live until the call returns.
        let code = unsafe {
            create(
                &mut handle,
                source.as_ptr(),
                c"crossdock.cu".as_ptr(),
                n,
                contents.as_ptr(),
                names.as_ptr(),
            )
        };
        if code != 0 {
            bail!("nvrtcCreateProgram returned {code}");
        }
        let list = pointers(&options);
        // SAFETY: `create` initialized `handle`, and the strings live until the call returns.
        let code = unsafe { compile(handle, c_int::try_from(list.len())?, list.as_ptr()) };
        let log = self.text(handle, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
        let image = match (code, output) {
            (0, Output::Cubin) => self.bytes(handle, "nvrtcGetCUBINSize", "nvrtcGetCUBIN"),
            (0, Output::Ptx) => self.bytes(handle, "nvrtcGetPTXSize", "nvrtcGetPTX"),
            _ => Err(anyhow::anyhow!("{kind}_{architecture}: the compiler returned {code}")),
        };
        // SAFETY: `create` initialized `handle`, and `handle` is not used afterwards.
        unsafe { destroy(&mut handle) };
        let log = log.unwrap_or_default();
        let image = image.with_context(|| log.clone())?;
        Ok(Compiled { image, log })
    }

    fn bytes(&self, program: Program, size: &str, get: &str) -> Result<Vec<u8>> {
        let size: Size = self.symbol(size)?;
        let get: Bytes = self.symbol(get)?;
        let mut n = 0;
        // SAFETY: `compile` destroys the program only after this call, and `n` is valid for writes.
        if unsafe { size(program, &mut n) } != 0 {
            bail!("the compiler does not return the size of its output");
        }
        let mut bytes = vec![0u8; n];
        // SAFETY: `compile` destroys the program only after this call, and the buffer has the size
        // that the compiler returned.
        if unsafe { get(program, bytes.as_mut_ptr().cast()) } != 0 {
            bail!("the compiler does not return its output");
        }
        Ok(bytes)
    }

    fn text(&self, program: Program, size: &str, get: &str) -> Result<String> {
        let bytes = self.bytes(program, size, get)?;
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }
}

fn c_strings<'a>(strings: impl Iterator<Item = &'a str>) -> Result<Vec<CString>> {
    strings.map(|s| CString::new(s).context("a source contains NUL")).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).collect()
}
