//! Selects and loads kernel images. Images with equal contents are loaded once.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crossdock_plugin_api::{Error, Result, abi};

use super::context::Gpu;
use super::driver::{Function, Module, SUCCESS};

/// The modules of one device. Several plugins may contain the same kernels, so images are compared
/// by content.
pub(crate) struct Modules {
    gpu: Arc<Gpu>,
    /// Functions by image and name.
    functions: RwLock<HashMap<ImageRange, HashMap<CString, Handle>>>,
    /// Modules by image. Comparing the contents of an image takes milliseconds, so it is compared
    /// only once.
    modules: Mutex<HashMap<ImageRange, Handle>>,
    /// Modules by the hash of the contents.
    loaded: Mutex<HashMap<u64, Vec<Loaded>>>,
}

/// The address and length of an image. They identify the image, because plugins stay mapped until
/// the process ends.
type ImageRange = (usize, usize);

struct Loaded {
    image: Box<[u8]>,
    module: Handle,
}

#[derive(Clone, Copy)]
struct Handle(*mut c_void);

// SAFETY: the driver accepts modules and functions on any thread.
unsafe impl Send for Handle {}
// SAFETY: the driver accepts modules and functions on several threads at the same time.
unsafe impl Sync for Handle {}

/// Maximum dynamic shared memory in bytes that a kernel can use without a change of its attributes.
const MAX_DEFAULT_SHARED_BYTES: u32 = 48 << 10;

impl Modules {
    pub(crate) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, functions: RwLock::default(), modules: Mutex::default(), loaded: Mutex::default() }
    }

    /// The kernel's function on this device. The context must be current.
    pub(crate) fn function(&self, kernel: &abi::Kernel, shared_bytes: u32) -> Result<Function> {
        if kernel.image.is_null() || kernel.name.is_null() {
            return Err(Error::unsupported(format!(
                "the kernel has no CUDA image, so {} cannot run the kernel",
                self.gpu.device
            )));
        }
        let range = (kernel.image as usize, kernel.image_bytes);
        // SAFETY: by the documentation of `crossdock_kernel` the name is NUL-terminated.
        let name = unsafe { CStr::from_ptr(kernel.name) };
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        let cached = functions.get(&range).and_then(|of_image| of_image.get(name)).copied();
        drop(functions);
        let function = match cached {
            Some(function) => function.0,
            None => {
                let function = self.load(kernel, name)?;
                let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
                functions.entry(range).or_default().insert(name.into(), Handle(function));
                function
            }
        };
        if shared_bytes > MAX_DEFAULT_SHARED_BYTES {
            let driver = &self.gpu.driver;
            let attribute = super::driver::FUNCTION_MAX_DYNAMIC_SHARED;
            let bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            // SAFETY: `function` belongs to this context.
            let code = unsafe { (driver.func_set_attribute)(function, attribute, bytes) };
            driver.check("cuFuncSetAttribute", code).map_err(|e| {
                e.context(format_args!("cannot reserve {shared_bytes} bytes of shared memory"))
            })?;
        }
        Ok(function)
    }

    fn load(&self, kernel: &abi::Kernel, name: &CStr) -> Result<Function> {
        // SAFETY: by the documentation of `crossdock_kernel` the image has `image_bytes` bytes.
        let image = unsafe { std::slice::from_raw_parts(kernel.image.cast::<u8>(), kernel.image_bytes) };
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let range = (kernel.image as usize, kernel.image_bytes);
        let module = match modules.get(&range) {
            Some(module) => module.0,
            None => {
                let module = self.module(image)?;
                modules.insert(range, Handle(module));
                module
            }
        };
        drop(modules);
        let driver = &self.gpu.driver;
        let mut function: Function = std::ptr::null_mut();
        // SAFETY: the pointer points to a local variable, the module is loaded, and the name is
        // NUL-terminated.
        let code = unsafe { (driver.module_get_function)(&mut function, module, name.as_ptr()) };
        driver.check("cuModuleGetFunction", code).map_err(|e| e.context("the image has no such function"))?;
        Ok(function)
    }

    fn module(&self, image: &[u8]) -> Result<Module> {
        let mut hasher = DefaultHasher::new();
        image.hash(&mut hasher);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let candidates = loaded.entry(hasher.finish()).or_default();
        if let Some(equal) = candidates.iter().find(|candidate| *candidate.image == *image) {
            return Ok(equal.module.0);
        }
        let chosen = choose(image, self.gpu.capability)
            .map_err(|e| e.context(format_args!("an image for {}", self.gpu.device)))?;
        if chosen.is_empty() {
            return Err(Error::bad_data(format!("an image for {} has no bytes", self.gpu.device)));
        }
        // Copies the image for two reasons: it may be at any address in a plugin's constants,
        // whereas a driver may expect ELF files to be aligned; and it may lack the NUL up to which
        // the driver reads PTX.
        let mut aligned = vec![0u64; chosen.len() / 8 + 1];
        // SAFETY: `aligned` has at least `chosen.len()` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(chosen.as_ptr(), aligned.as_mut_ptr().cast(), chosen.len());
        }
        let mut module: Module = std::ptr::null_mut();
        let driver = &self.gpu.driver;
        // SAFETY: `aligned` contains the whole image. The driver reads the length of an ELF file
        // from the file itself, and reads PTX up to the NUL that `aligned` appends.
        let code = unsafe { (driver.module_load_data)(&mut module, aligned.as_ptr().cast()) };
        driver.check("cuModuleLoadData", code)?;
        candidates.push(Loaded { image: image.into(), module: Handle(module) });
        Ok(module)
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        let driver = &self.gpu.driver;
        // SAFETY: the context is current. The wait is necessary because a module may be unloaded
        // only when none of its kernels runs.
        if unsafe { (driver.ctx_synchronize)() } != SUCCESS {
            return;
        }
        let loaded = self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner);
        for module in loaded.values().flatten() {
            // SAFETY: `Modules::module` loaded the module, and none of its kernels runs or will be
            // launched.
            unsafe { (driver.module_unload)(module.module.0) };
        }
    }
}

/// Returns the name of the image that a device of this compute capability uses from the set
/// `images`. The name is "sm_90", for example, or "compute_70" if the image is PTX, which the
/// driver compiles when it loads it.
///
/// # Errors
/// If the set has no image for the compute capability, or `images` is not a set.
pub fn code_for(images: &[u8], capability: (u32, u32)) -> Result<String> {
    match pick(images, capability)? {
        Some((best, _)) => Ok(name(&best)),
        None => Err(Error::bad_data("expected a set of CUDA images")),
    }
}

fn name(image: &abi::Image) -> String {
    let kind = if image.kind == abi::IMAGE_PTX { "compute" } else { "sm" };
    format!("{kind}_{}", image.architecture)
}

/// Returns the image for a device of this compute capability: one image of the set if `bytes` is a
/// set, otherwise all of `bytes`.
pub(crate) fn choose(bytes: &[u8], capability: (u32, u32)) -> Result<&[u8]> {
    Ok(pick(bytes, capability)?.map_or(bytes, |(_, image)| image))
}

/// The best image of a set for the compute capability; `None` if `bytes` is not a set.
fn pick(bytes: &[u8], (major, minor): (u32, u32)) -> Result<Option<(abi::Image, &[u8])>> {
    const HEAD: usize = size_of::<abi::ImageSet>();
    let Some(head) = bytes.get(..HEAD).filter(|head| head.starts_with(&abi::IMAGE_SET_MAGIC.to_ne_bytes()))
    else {
        return Ok(None);
    };
    // SAFETY: `head` has the size of an `ImageSet`, whose fields are integers.
    let head = unsafe { head.as_ptr().cast::<abi::ImageSet>().read_unaligned() };
    let bad = |what: &str| Error::bad_data(format!("a set of CUDA images {what}"));
    if head.bytes != bytes.len() as u64 {
        return Err(bad(&format!("declares {} bytes, but has {}", head.bytes, bytes.len())));
    }
    let entries = (head.n_images as usize)
        .checked_mul(size_of::<abi::Image>())
        .and_then(|n| bytes.get(HEAD..HEAD.checked_add(n)?))
        .ok_or_else(|| bad("is shorter than its list"))?;
    let images: Vec<abi::Image> = entries
        .chunks_exact(size_of::<abi::Image>())
        // SAFETY: `entry` has the size of an `Image`, whose fields are integers.
        .map(|entry| unsafe { entry.as_ptr().cast::<abi::Image>().read_unaligned() })
        .collect();
    let architecture = major * 10 + minor;
    let cubins = images.iter().filter(|image| {
        image.kind == abi::IMAGE_CUBIN
            && image.architecture / 10 == major
            && image.architecture <= architecture
    });
    let ptx =
        images.iter().filter(|image| image.kind == abi::IMAGE_PTX && image.architecture <= architecture);
    let best = cubins.max_by_key(|image| image.architecture);
    let Some(best) = best.or_else(|| ptx.max_by_key(|image| image.architecture)) else {
        let has: Vec<String> = images.iter().map(name).collect();
        return Err(Error::unsupported(format!(
            "the device has compute capability {major}.{minor}, but the image set has only {}",
            has.join(", ")
        )));
    };
    let range = usize::try_from(best.offset).ok().zip(usize::try_from(best.bytes).ok());
    let range = range.and_then(|(offset, n)| bytes.get(offset..offset.checked_add(n)?));
    let image = range.ok_or_else(|| bad("points outside itself"))?;
    if best.kind == abi::IMAGE_PTX && image.last() != Some(&0) {
        return Err(bad("holds PTX without a NUL at its end"));
    }
    Ok(Some((*best, image)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(images: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut offset = (size_of::<abi::ImageSet>() + images.len() * size_of::<abi::Image>()) as u64;
        let total = offset + images.iter().map(|(_, _, bytes)| bytes.len() as u64).sum::<u64>();
        let mut out = Vec::new();
        out.extend(abi::IMAGE_SET_MAGIC.to_ne_bytes());
        out.extend(total.to_ne_bytes());
        out.extend((images.len() as u32).to_ne_bytes());
        out.extend(0u32.to_ne_bytes());
        for (kind, architecture, bytes) in images {
            out.extend(kind.to_ne_bytes());
            out.extend(architecture.to_ne_bytes());
            out.extend(offset.to_ne_bytes());
            out.extend((bytes.len() as u64).to_ne_bytes());
            offset += bytes.len() as u64;
        }
        images.iter().for_each(|(_, _, bytes)| out.extend(*bytes));
        out
    }

    const CUBIN: u32 = abi::IMAGE_CUBIN;
    const PTX: u32 = abi::IMAGE_PTX;

    #[test]
    fn prefers_cubins_of_the_same_major_then_ptx() {
        let images: [(u32, u32, &[u8]); 5] = [
            (PTX, 70, b"ptx70\0"),
            (CUBIN, 80, b"sm80"),
            (CUBIN, 86, b"sm86"),
            (CUBIN, 90, b"sm90"),
            (PTX, 80, b"ptx80\0"),
        ];
        let set = set(&images);
        let chosen = |capability| choose(&set, capability).unwrap();
        assert_eq!(chosen((8, 0)), b"sm80");
        assert_eq!(chosen((8, 6)), b"sm86");
        assert_eq!(chosen((8, 9)), b"sm86");
        assert_eq!(chosen((9, 0)), b"sm90");
        assert_eq!(chosen((7, 5)), b"ptx70\0");
        assert_eq!(chosen((12, 0)), b"ptx80\0");
        let error = choose(&set, (6, 1)).unwrap_err();
        assert_eq!(
            error.message(),
            "the device has compute capability 6.1, but the image set has only compute_70, sm_80, sm_86, sm_90, compute_80"
        );
    }

    #[test]
    fn accepts_single_images_and_rejects_malformed_sets() {
        assert_eq!(choose(b"\x7fELF", (9, 0)).unwrap(), b"\x7fELF");
        let whole = set(&[(CUBIN, 90, b"sm90"), (PTX, 70, b"no end")]);
        for cut in 24..whole.len() {
            assert!(choose(&whole[..cut], (9, 0)).is_err(), "{cut} bytes");
        }
        assert!(choose(&whole, (8, 0)).unwrap_err().message().contains("NUL"));
        let mut out_of_bounds = whole.clone();
        out_of_bounds[24 + 8..24 + 16].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(choose(&out_of_bounds, (9, 0)).unwrap_err().message().contains("outside itself"));
    }
}
