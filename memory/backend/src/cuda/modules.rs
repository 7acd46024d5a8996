//! Kernels' images: chosen, loaded once, shared by content.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crossdock_plugin_api::{Error, Result, abi};

use super::context::Gpu;
use super::driver::{Function, Module, SUCCESS};

/// What is loaded on one device. Plugins that were built apart bring the same kernels: an image is loaded once for its
/// content, wherever it lies.
pub(crate) struct Modules {
    gpu: Arc<Gpu>,
    /// What a launch looks up: by where the image lies in the plugin, which is mapped for good, and the name.
    functions: RwLock<HashMap<Place, HashMap<CString, Handle>>>,
    loaded: Mutex<HashMap<u64, Vec<Loaded>>>,
}

type Place = (usize, usize);

struct Loaded {
    image: Box<[u8]>,
    module: Handle,
}

#[derive(Clone, Copy)]
struct Handle(*mut c_void);

// SAFETY: the driver takes modules and functions on every thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Beyond this a kernel must say that it wants the more.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

impl Modules {
    pub(crate) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, functions: RwLock::default(), loaded: Mutex::default() }
    }

    /// The kernel's function on this device. The context is current.
    pub(crate) fn function(&self, kernel: &abi::Kernel, shared_bytes: u32) -> Result<Function> {
        if kernel.image.is_null() || kernel.name.is_null() {
            return Err(Error::unsupported(format!(
                "it has no CUDA image, so {} cannot run it",
                self.gpu.device
            )));
        }
        let place = (kernel.image as usize, kernel.image_bytes);
        // SAFETY: the struct's author gives a NUL-terminated name.
        let name = unsafe { CStr::from_ptr(kernel.name) };
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        let known = functions.get(&place).and_then(|of_image| of_image.get(name)).copied();
        drop(functions);
        let function = match known {
            Some(function) => function.0,
            None => {
                let function = self.load(kernel, name)?;
                let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
                functions.entry(place).or_default().insert(name.into(), Handle(function));
                function
            }
        };
        if shared_bytes > PLAIN_SHARED_BYTES {
            let driver = &self.gpu.driver;
            let most = super::driver::FUNCTION_MAX_DYNAMIC_SHARED;
            let bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            // SAFETY: a function of this context.
            let code = unsafe { (driver.func_set_attribute)(function, most, bytes) };
            driver
                .check("cuFuncSetAttribute", code)
                .map_err(|e| e.context(format_args!("{shared_bytes} bytes of shared memory")))?;
        }
        Ok(function)
    }

    fn load(&self, kernel: &abi::Kernel, name: &CStr) -> Result<Function> {
        // SAFETY: the struct's author gives the image's true length.
        let image = unsafe { std::slice::from_raw_parts(kernel.image.cast::<u8>(), kernel.image_bytes) };
        let module = self.module(image)?;
        let driver = &self.gpu.driver;
        let mut function: Function = std::ptr::null_mut();
        // SAFETY: a pointer to a local, a live module, a C string.
        let code = unsafe { (driver.module_get_function)(&mut function, module, name.as_ptr()) };
        driver.check("cuModuleGetFunction", code).map_err(|e| e.context("its image has no such function"))?;
        Ok(function)
    }

    fn module(&self, image: &[u8]) -> Result<Module> {
        let mut hasher = DefaultHasher::new();
        image.hash(&mut hasher);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let same = loaded.entry(hasher.finish()).or_default();
        if let Some(known) = same.iter().find(|known| *known.image == *image) {
            return Ok(known.module.0);
        }
        let chosen = choose(image, self.gpu.capability)
            .map_err(|e| e.context(format_args!("an image for {}", self.gpu.device)))?;
        if chosen.is_empty() {
            return Err(Error::bad_data(format!("an image for {} has no bytes", self.gpu.device)));
        }
        // An image in a plugin's constants may begin anywhere; a driver may expect an ELF file where one may lie. Of PTX it reads
        // as far as a NUL, which its author may have left out.
        let mut aligned = vec![0u64; chosen.len() / 8 + 1];
        // SAFETY: `aligned` has at least as many bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(chosen.as_ptr(), aligned.as_mut_ptr().cast(), chosen.len());
        }
        let mut module: Module = std::ptr::null_mut();
        let driver = &self.gpu.driver;
        // SAFETY: a whole image, which the driver reads the length of out of itself; PTX ends with a NUL.
        let code = unsafe { (driver.module_load_data)(&mut module, aligned.as_ptr().cast()) };
        driver.check("cuModuleLoadData", code)?;
        same.push(Loaded { image: image.into(), module: Handle(module) });
        Ok(module)
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        let driver = &self.gpu.driver;
        // SAFETY: the context is current. A module goes only when none of its kernels runs.
        if unsafe { (driver.ctx_synchronize)() } != SUCCESS {
            return;
        }
        let loaded = self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner);
        for known in loaded.values().flatten() {
            // SAFETY: loaded here, and nobody launches from it any more.
            unsafe { (driver.module_unload)(known.module.0) };
        }
    }
}

/// Which code of a set of images a device of this compute capability runs: "sm_90", or "compute_70" where it is compiled as
/// it is loaded.
///
/// # Errors
/// There is none for it, or `images` is no set.
pub fn code_for(images: &[u8], capability: (u32, u32)) -> Result<String> {
    match pick(images, capability)? {
        Some((best, _)) => Ok(name(&best)),
        None => Err(Error::bad_data("no set of CUDA images")),
    }
}

fn name(image: &abi::Image) -> String {
    let kind = if image.kind == abi::IMAGE_PTX { "compute" } else { "sm" };
    format!("{kind}_{}", image.architecture)
}

/// The image in `bytes` for a device of this compute capability: the one of a set, or all of it where it is no set.
pub(crate) fn choose(bytes: &[u8], capability: (u32, u32)) -> Result<&[u8]> {
    Ok(pick(bytes, capability)?.map_or(bytes, |(_, image)| image))
}

/// The best of a set; `None` where `bytes` are no set.
fn pick(bytes: &[u8], (major, minor): (u32, u32)) -> Result<Option<(abi::Image, &[u8])>> {
    const HEAD: usize = size_of::<abi::ImageSet>();
    let Some(head) = bytes.get(..HEAD).filter(|head| head.starts_with(&abi::IMAGE_SET_MAGIC.to_ne_bytes()))
    else {
        return Ok(None);
    };
    // SAFETY: as many bytes as an `ImageSet` has, which is integers alone.
    let head = unsafe { head.as_ptr().cast::<abi::ImageSet>().read_unaligned() };
    let wrong = |what: &str| Error::bad_data(format!("a set of CUDA images {what}"));
    if head.bytes != bytes.len() as u64 {
        return Err(wrong(&format!("says that it has {} bytes, and has {}", head.bytes, bytes.len())));
    }
    let entries = (head.n_images as usize)
        .checked_mul(size_of::<abi::Image>())
        .and_then(|n| bytes.get(HEAD..HEAD.checked_add(n)?))
        .ok_or_else(|| wrong("is shorter than its list"))?;
    let images: Vec<abi::Image> = entries
        .chunks_exact(size_of::<abi::Image>())
        // SAFETY: as many bytes as an `Image` has, which is integers alone.
        .map(|entry| unsafe { entry.as_ptr().cast::<abi::Image>().read_unaligned() })
        .collect();
    let own = major * 10 + minor;
    let cubins = images.iter().filter(|image| {
        image.kind == abi::IMAGE_CUBIN && image.architecture / 10 == major && image.architecture <= own
    });
    let ptx = images.iter().filter(|image| image.kind == abi::IMAGE_PTX && image.architecture <= own);
    let best = cubins.max_by_key(|image| image.architecture);
    let Some(best) = best.or_else(|| ptx.max_by_key(|image| image.architecture)) else {
        let has: Vec<String> = images.iter().map(name).collect();
        return Err(Error::unsupported(format!(
            "the device has compute capability {major}.{minor}, and the set has {}",
            has.join(", ")
        )));
    };
    let range = usize::try_from(best.offset).ok().zip(usize::try_from(best.bytes).ok());
    let range = range.and_then(|(offset, n)| bytes.get(offset..offset.checked_add(n)?));
    let image = range.ok_or_else(|| wrong("points outside itself"))?;
    if best.kind == abi::IMAGE_PTX && image.last() != Some(&0) {
        return Err(wrong("holds PTX without a NUL at its end"));
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
    fn the_cubin_of_the_own_major_and_the_highest_minor_is_taken_and_ptx_last() {
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
        let refused = choose(&set, (6, 1)).unwrap_err();
        assert_eq!(
            refused.message(),
            "the device has compute capability 6.1, and the set has compute_70, sm_80, sm_86, sm_90, compute_80"
        );
    }

    #[test]
    fn what_is_no_set_is_an_image_itself_and_a_broken_set_is_refused() {
        assert_eq!(choose(b"\x7fELF", (9, 0)).unwrap(), b"\x7fELF");
        let whole = set(&[(CUBIN, 90, b"sm90"), (PTX, 70, b"no end")]);
        for cut in 24..whole.len() {
            assert!(choose(&whole[..cut], (9, 0)).is_err(), "{cut} bytes");
        }
        assert!(choose(&whole, (8, 0)).unwrap_err().message().contains("NUL"));
        let mut far = whole.clone();
        far[24 + 8..24 + 16].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(choose(&far, (9, 0)).unwrap_err().message().contains("outside itself"));
    }
}
