//! Modules, functions, and launches of kernels, which run as their CPU implementations.

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
    /// The maximum number of bytes of shared memory that a launch may request.
    shared_limit: u32,
}

/// The grid, block and shared memory sizes of a launch.
pub(crate) struct Shape {
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    /// Blocks per cluster; 0 for no clusters.
    pub cluster: [u32; 3],
    pub shared_bytes: u32,
}

/// The attribute `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`. The next two constants are the
/// attribute's default, and its maximum for compute capability 9.0.
const MAX_DYNAMIC_SHARED_ATTRIBUTE: i32 = 8;
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;
const MAX_SHARED_BYTES: i32 = 227 << 10;
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
        let function = Function { device, name: name.to_owned(), shared_limit: DEFAULT_SHARED_BYTES };
        self.functions.insert(new, function);
        Ok(new)
    }

    pub(crate) fn set_function_attribute(&mut self, handle: Handle, which: i32, value: i32) -> Outcome {
        self.current()?;
        let Some(function) = self.functions.get_mut(&handle) else {
            return Err(self.stale("function", handle));
        };
        if which == MAX_DYNAMIC_SHARED_ATTRIBUTE {
            if !(0..=MAX_SHARED_BYTES).contains(&value) {
                return Err(INVALID_VALUE);
            }
            function.shared_limit = value as u32;
        }
        Ok(())
    }

    /// Queues the CPU implementation of a kernel whose only parameter is a `crossdock_kernel_args`.
    ///
    /// # Safety
    /// `params` satisfies the contract of [`read_args`].
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
        if !shape.fits() || shape.shared_bytes > function.shared_limit.max(DEFAULT_SHARED_BYTES) {
            return Err(INVALID_VALUE);
        }
        let name = function.name.clone();
        // SAFETY: by this function's contract, `params` satisfies the contract of `read_args`.
        let Parameter { cpu_implementation, args, device_copy } = unsafe { read_args(params) }?;
        self.check_table(&name, shape, &args);
        let Some(cpu_implementation) = cpu_implementation else {
            if !self.skipped_kernels.contains(&name) {
                say_plain(&format!("skipped: kernel {name}: no CPU implementation"));
                self.skipped_kernels.push(name);
            }
            return Err(NOT_SUPPORTED);
        };
        if self.is_captured(slot)? {
            return Ok(());
        }
        let device = self.streams[slot].device;
        let mut touches = Vec::new();
        let mut list = None;
        if device_copy != 0 {
            let bytes = size_of_val(args.as_slice()) as u64;
            let arg = abi::Arg { value: device_copy, bytes, kind: abi::ARG_READ, reserved: 0 };
            let Some(spot) = self.argument(device, &name, args.len(), &arg) else {
                self.push(slot, Op::Fault(ILLEGAL_ADDRESS));
                return Ok(());
            };
            touches.push(Touch { spot, bytes, writes: false });
            list = Some((Place::Block(spot), args.clone()));
        }
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
        self.record_accesses(slot, touches);
        self.push(slot, Op::Launch(Box::new(Launch { name, cpu_implementation, args: placed, list })));
        Ok(())
    }

    /// Checks a launch against the table of the host's kernels. A kernel that is not in the table
    /// is not checked.
    fn check_table(&mut self, name: &str, shape: &Shape, args: &[abi::Arg]) {
        let checked = CString::new(name).ok().and_then(|name| check_launch(&name, shape.blocks[0], args));
        if let Some(Err(what)) = checked {
            let site = self.here();
            self.violation(Violation::WrongArguments, &what, &[("the launch", site)]);
        }
    }

    /// Returns the place of an argument's bytes. If the device cannot access the bytes, reports a
    /// violation and returns `None`.
    fn argument(&mut self, device: usize, kernel: &str, index: usize, arg: &abi::Arg) -> Option<Spot> {
        let spot = self.locate(arg.value, arg.bytes);
        if let Ok(Some(spot)) = spot
            && self.reaches(device, spot.id)
        {
            return Some(spot);
        }
        // `locate` reports invalid ranges itself, but not the null address.
        if spot.is_ok() || arg.value == 0 {
            let site = self.here();
            let text = format!(
                "argument {index} of kernel {kernel} has {} bytes at {:#x}, which device {device} cannot access",
                arg.bytes, arg.value
            );
            self.violation(Violation::NotReachable, &text, &[("the launch", site)]);
        }
        None
    }

    /// Whether a kernel on `device` may access a block.
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
        let has_clusters = self.cluster != [0; 3];
        let mut clusters = self.blocks.iter().zip(self.cluster);
        if has_clusters && !clusters.all(|(blocks, n)| n > 0 && blocks % n == 0) {
            return false;
        }
        let blocks = self.blocks.iter().zip(MAX_BLOCKS).all(|(n, max)| (1..=max).contains(n));
        blocks && (1..=MAX_THREADS).contains(&threads)
    }
}

type CpuImplementation = Option<unsafe extern "C" fn(*const abi::Arg, usize) -> abi::Code>;

/// The parameter of a launch.
struct Parameter {
    cpu_implementation: CpuImplementation,
    args: Vec<abi::Arg>,
    /// The address of a copy of the arguments on the device, or 0.
    device_copy: u64,
}

/// Reads the CPU implementation and the arguments of a launch.
///
/// # Safety
/// `params` is null, or points to the address of a `crossdock_kernel_args` that is readable up to
/// the end of its first `n_args` arguments. If `all_args` is not null, `host_args` points to
/// `n_args` arguments.
unsafe fn read_args(params: *mut *mut c_void) -> Outcome<Parameter> {
    if params.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: `params` is not null, so it points to an address by this function's contract.
    let parameter = unsafe { *params }.cast::<abi::KernelArgs>().cast_const();
    if parameter.is_null() || !parameter.is_aligned() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the parameter is aligned, as checked above, and both fields are readable by this
    // function's contract.
    let (n_args, cpu_implementation) = unsafe { ((*parameter).n_args, (*parameter).host_function) };
    let n_args = usize::try_from(n_args).map_err(|_| INVALID_VALUE)?;
    // SAFETY: the parameter is aligned, and both fields are readable by this function's contract.
    let (device_copy, host_args) = unsafe { ((*parameter).all_args, (*parameter).host_args) };
    if (n_args > abi::MAX_KERNEL_ARGS) == device_copy.is_null()
        || device_copy.is_null() != host_args.is_null()
    {
        return Err(INVALID_VALUE);
    }
    if !host_args.is_null() {
        // SAFETY: by this function's contract, `host_args` points to `n_args` arguments.
        let args = unsafe { std::slice::from_raw_parts(host_args, n_args) }.to_vec();
        return Ok(Parameter { cpu_implementation, args, device_copy: device_copy as u64 });
    }
    // SAFETY: by this function's contract, the first `n_args` arguments are readable. The rest of
    // the struct may be unreadable, so the code creates no reference to the whole struct.
    let args =
        unsafe { std::slice::from_raw_parts((&raw const (*parameter).args).cast::<abi::Arg>(), n_args) };
    Ok(Parameter { cpu_implementation, args: args.to_vec(), device_copy: 0 })
}
