//! Modules, functions, and launching a kernel's host twin.

use std::collections::HashMap;
use std::ffi::{CString, c_void};

use crossdock_kernels::table::check_launch;
use crossdock_plugin_api::abi;

use crate::codes::{ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, Outcome};
use crate::image::Image;
use crate::memory::{BlockId, Kind, Spot};
use crate::report::{Violation, say_plain};
use crate::run::{Launch, Op, Place};
use crate::state::{Handle, Sim};
use crate::touch::Touch;

pub(crate) struct Module {
    device: usize,
    image: Image,
    functions: HashMap<String, Handle>,
}

pub(crate) struct Function {
    device: usize,
    name: String,
    /// Bytes of shared memory that a launch may ask for.
    shared_limit: u32,
}

/// A launch's size.
pub(crate) struct Shape {
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    pub shared_bytes: u32,
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`, what it is from the start, and what compute capability 9.0 allows.
const MAX_DYNAMIC_SHARED: i32 = 8;
const SHARED_FROM_START: u32 = 48 << 10;
const SHARED_AT_MOST: i32 = 227 << 10;
const MAX_THREADS: u64 = 1024;
const MAX_BLOCKS: [u32; 3] = [i32::MAX as u32, 65535, 65535];

impl Sim {
    pub(crate) fn load_module(&mut self, image: Image) -> Outcome<Handle> {
        let device = self.current()?;
        let handle = self.new_handle();
        self.modules.insert(handle, Module { device, image, functions: HashMap::new() });
        Ok(handle)
    }

    pub(crate) fn unload_module(&mut self, handle: Handle) -> Outcome {
        self.current()?;
        let Some(module) = self.modules.remove(&handle) else { return Err(self.stale("module", handle)) };
        module.functions.values().for_each(|function| drop(self.functions.remove(function)));
        Ok(())
    }

    pub(crate) fn function(&mut self, handle: Handle, name: &str) -> Outcome<Handle> {
        self.current()?;
        if !self.modules.contains_key(&handle) {
            return Err(self.stale("module", handle));
        }
        let new = self.new_handle();
        let module = self.modules.get_mut(&handle).ok_or(INVALID_HANDLE)?;
        if let Some(known) = module.functions.get(name) {
            return Ok(*known);
        }
        if !module.image.has(name) {
            return Err(NOT_FOUND);
        }
        module.functions.insert(name.to_owned(), new);
        let device = module.device;
        let function = Function { device, name: name.to_owned(), shared_limit: SHARED_FROM_START };
        self.functions.insert(new, function);
        Ok(new)
    }

    pub(crate) fn set_function_attribute(&mut self, handle: Handle, which: i32, value: i32) -> Outcome {
        self.current()?;
        let Some(function) = self.functions.get_mut(&handle) else {
            return Err(self.stale("function", handle));
        };
        if which == MAX_DYNAMIC_SHARED {
            if !(0..=SHARED_AT_MOST).contains(&value) {
                return Err(INVALID_VALUE);
            }
            function.shared_limit = value as u32;
        }
        Ok(())
    }

    /// Queues the twin of a kernel whose one parameter is a `crossdock_kernel_args`.
    ///
    /// # Safety
    /// `params` is null, or the address of such a parameter's address.
    pub(crate) unsafe fn launch(
        &mut self,
        handle: Handle,
        shape: &Shape,
        slot: usize,
        params: *mut *mut c_void,
    ) -> Outcome {
        let Some(function) = self.functions.get(&handle) else {
            return Err(self.stale("function", handle));
        };
        if function.device != self.streams[slot].device {
            return Err(INVALID_HANDLE);
        }
        if !shape.fits() || shape.shared_bytes > function.shared_limit.max(SHARED_FROM_START) {
            return Err(INVALID_VALUE);
        }
        let name = function.name.clone();
        // SAFETY: by this function's own contract.
        let (twin, args) = unsafe { read_args(params) }?;
        self.check_table(&name, shape, &args);
        let Some(twin) = twin else {
            if !self.without_twin.contains(&name) {
                say_plain(&format!("skipped: kernel {name}: no host twin"));
                self.without_twin.push(name);
            }
            return Err(NOT_SUPPORTED);
        };
        if self.is_captured(slot)? {
            return Ok(());
        }
        let device = self.streams[slot].device;
        let mut touches = Vec::new();
        let mut placed = Vec::with_capacity(args.len());
        for (index, arg) in args.into_iter().enumerate() {
            let mut place = None;
            if arg.kind != abi::ARG_VALUE && arg.bytes > 0 {
                let Some(spot) = self.argument(device, &name, index, &arg) else {
                    self.push(slot, Op::Fault(ILLEGAL_ADDRESS));
                    return Ok(());
                };
                place = Some(Place::Block(spot));
                touches.push(Touch { spot, bytes: arg.bytes, writes: arg.kind == abi::ARG_WRITE });
            }
            placed.push((arg, place));
        }
        self.enter(slot, touches);
        self.push(slot, Op::Launch(Box::new(Launch { name, twin, args: placed })));
        Ok(())
    }

    /// A kernel of ours is launched with what the one table of kernels says; others are not in it.
    fn check_table(&mut self, name: &str, shape: &Shape, args: &[abi::Arg]) {
        let checked = CString::new(name).ok().and_then(|name| check_launch(&name, shape.blocks[0], args));
        if let Some(Err(what)) = checked {
            let site = self.here();
            self.violation(Violation::WrongArguments, &what, &[("the launch", site)]);
        }
    }

    /// Where an argument's bytes are, if the device may reach them; else it has been reported.
    fn argument(&mut self, device: usize, kernel: &str, index: usize, arg: &abi::Arg) -> Option<Spot> {
        let found = self.locate(arg.value, arg.bytes);
        if let Ok(Some(spot)) = found
            && self.reaches(device, spot.id)
        {
            return Some(spot);
        }
        // A range that is no block's was reported with its call sites already.
        if found.is_ok() || arg.value == 0 {
            let site = self.here();
            let text = format!(
                "argument {index} of kernel {kernel} is {} bytes at {:#x}, which device {device} cannot reach",
                arg.bytes, arg.value
            );
            self.violation(Violation::NotReachable, &text, &[("the launch", site)]);
        }
        None
    }

    /// Whether a kernel on `device` may touch a block.
    fn reaches(&self, device: usize, id: BlockId) -> bool {
        let block = self.blocks.get(&id);
        if block.is_some_and(|block| block.managed) {
            return true;
        }
        match block.map(|block| block.kind) {
            Some(Kind::Device { device: home, pool }) => {
                let shared = |pool: Handle| self.pools.get(&pool).is_some_and(|p| p.peers.contains(&device));
                home == device || (self.config.peer && pool.is_some_and(shared))
            }
            Some(Kind::Pinned | Kind::Registered) => true,
            None => false,
        }
    }
}

impl Shape {
    fn fits(&self) -> bool {
        let threads: u64 = self.threads.iter().map(|n| u64::from(*n)).product();
        let blocks = self.blocks.iter().zip(MAX_BLOCKS).all(|(n, most)| (1..=most).contains(n));
        blocks && (1..=MAX_THREADS).contains(&threads)
    }
}

type Twin = Option<unsafe extern "C" fn(*const abi::Arg, usize) -> abi::Code>;

/// The twin, and as many arguments as there are.
///
/// # Safety
/// `params` is null, or the address of the address of a `crossdock_kernel_args` whose first `n_args` arguments are there.
unsafe fn read_args(params: *mut *mut c_void) -> Outcome<(Twin, Vec<abi::Arg>)> {
    if params.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by this function's own contract.
    let one = unsafe { *params }.cast::<abi::KernelArgs>().cast_const();
    if one.is_null() || !one.is_aligned() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: as above.
    let (n_args, twin) = unsafe { ((*one).n_args, (*one).host_twin) };
    let n_args = usize::try_from(n_args).ok().filter(|n| *n <= abi::MAX_KERNEL_ARGS).ok_or(INVALID_VALUE)?;
    // SAFETY: as above; the struct need not be there beyond `n_args`, so no reference to all of it is made.
    let args = unsafe { std::slice::from_raw_parts((&raw const (*one).args).cast::<abi::Arg>(), n_args) };
    Ok((twin, args.to_vec()))
}
