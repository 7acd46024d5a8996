//! Tests code images, functions, and kernels, which run as their CPU implementations.

use crate::common::*;
use crossdock_plugin_api::abi::{ARG_READ, ARG_VALUE, ARG_WRITE, Arg, Code};

const BYTES: u64 = 256;

/// A CPU implementation: `to[i] = from[i] + value`.
unsafe extern "C" fn add(args: *const Arg, n_args: usize) -> Code {
    // SAFETY: the tests launch this kernel with three arguments, whose ranges are valid.
    unsafe {
        let args = std::slice::from_raw_parts(args, n_args);
        let (to, from) = (args[0].value as *mut u8, args[1].value as *const u8);
        (0..args[0].bytes as usize).for_each(|at| *to.add(at) = *from.add(at) + args[2].value as u8);
    }
    0
}

unsafe extern "C" fn fails(_: *const Arg, _: usize) -> Code {
    5
}

#[test]
fn cpu_implementation_receives_host_addresses_and_unchanged_values() {
    let gpu = Gpu::get();
    let home = stream();
    let (block, host) = (alloc(2 * BYTES as usize, home), pinned(BYTES as usize));
    let add_function = function("add");
    fill(host as u64, 3, BYTES as usize, home);
    let to = block + BYTES;
    let args = [(to, BYTES, ARG_WRITE), (host as u64, BYTES, ARG_READ), (4, 0, ARG_VALUE)];
    assert_eq!(Params::new(Some(add), &args).launch(add_function, home), 0);
    assert_eq!(read(to, BYTES as usize, home), [7; BYTES as usize]);
    assert_eq!(gpu.violations(), 0);
    free(block, home);
    ok!(cuMemFreeHost(host));
}

#[test]
fn reports_kernel_read_not_ordered_after_a_write() {
    let gpu = Gpu::get();
    let (home, other) = (stream(), stream());
    let block = alloc(2 * BYTES as usize, home);
    let add_function = function("add");
    order(home, other);
    fill(block, 1, BYTES as usize, home);
    let args = [(block + BYTES, BYTES, ARG_WRITE), (block, BYTES, ARG_READ), (4, 0, ARG_VALUE)];
    assert_eq!(Params::new(Some(add), &args).launch(add_function, other), 0);
    gpu.expect("read after write");
    order(other, home);
    free(block, home);
}

#[test]
fn write_past_the_end_of_a_block_is_reported_at_its_free() {
    unsafe extern "C" fn write_past_the_end(args: *const Arg, _: usize) -> Code {
        // SAFETY: the simulator's guard follows the block, so the byte past its end is writable.
        unsafe { ((*args).value as *mut u8).add((*args).bytes as usize).write(0) };
        0
    }
    let gpu = Gpu::get();
    let (home, bad) = (stream(), function("bad"));
    let block = alloc(BYTES as usize, home);
    assert_eq!(Params::new(Some(write_past_the_end), &[(block, BYTES, ARG_WRITE)]).launch(bad, home), 0);
    free(block, home);
    sync(home);
    gpu.expect("out of bounds");
}

#[test]
fn empty_argument_may_have_any_address() {
    let gpu = Gpu::get();
    let home = stream();
    let add_function = function("add");
    let args = [(0, 0, ARG_WRITE), (0xdead, 0, ARG_READ), (4, 0, ARG_VALUE)];
    assert_eq!(Params::new(Some(add), &args).launch(add_function, home), 0);
    sync(home);
    assert_eq!(gpu.violations(), 0);
}

#[test]
fn launch_without_cpu_implementation_fails_and_is_reported_once() {
    let case = "kernels::launch_without_cpu_implementation_fails_and_is_reported_once";
    if is_child(case) {
        Gpu::start();
        let (home, skipped_kernel) = (stream(), function("skipped_kernel"));
        assert_eq!(Params::new(None, &[]).launch(skipped_kernel, home), 801);
        assert_eq!(Params::new(None, &[]).launch(skipped_kernel, home), 801);
        sync(home);
        return;
    }
    let (output, text) = in_child(case, &[]);
    assert!(output.status.success(), "{text}");
    let n_reports =
        text.lines().filter(|line| *line == "skipped: kernel skipped_kernel: no CPU implementation").count();
    assert_eq!(n_reports, 1, "{text}");
}

#[test]
fn failed_kernel_breaks_the_context() {
    let case = "kernels::failed_kernel_breaks_the_context";
    if is_child(case) {
        Gpu::start();
        let (home, bad) = (stream(), function("bad"));
        let block = alloc(BYTES as usize, home);
        assert_eq!(Params::new(Some(fails), &[]).launch(bad, home), 0);
        assert_eq!(code!(cuStreamSynchronize(home)), 719);
        assert_eq!(code!(cuMemFreeAsync(block, home)), 719);
        assert_eq!(code!(cuCtxSynchronize()), 719);
        return;
    }
    let (output, text) = in_child(case, &[]);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("kernel bad failed: its CPU implementation returned 5"), "{text}");
}

#[test]
fn kernel_access_past_the_end_of_a_block_is_reported_and_breaks_the_context() {
    let case = "kernels::kernel_access_past_the_end_of_a_block_is_reported_and_breaks_the_context";
    if is_child(case) {
        let gpu = Gpu::get();
        let (home, add_function) = (stream(), function("add"));
        let block = alloc(BYTES as usize, home);
        let args = [(block + 1, BYTES, ARG_WRITE), (block, 8, ARG_READ), (0, 0, ARG_VALUE)];
        assert_eq!(Params::new(Some(add), &args).launch(add_function, home), 0);
        gpu.expect("out of bounds");
        assert_eq!(code!(cuStreamSynchronize(home)), 700);
        return;
    }
    let (output, text) = in_child(case, &[]);
    assert!(output.status.success(), "{text}");
}

#[test]
fn reports_kernel_argument_in_pageable_memory() {
    let case = "kernels::reports_kernel_argument_in_pageable_memory";
    if is_child(case) {
        let gpu = Gpu::get();
        let (home, add_function) = (stream(), function("add"));
        let host = [0u8; 64];
        let args = [(0, 0, ARG_WRITE), (host.as_ptr() as u64, 64, ARG_READ), (0, 0, ARG_VALUE)];
        assert_eq!(Params::new(Some(add), &args).launch(add_function, home), 0);
        gpu.expect("not reachable");
        assert_eq!(code!(cuStreamSynchronize(home)), 700);
        return;
    }
    let (output, text) = in_child(case, &[]);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("argument 1 of kernel add"), "{text}");
}

/// Builds a cubin with one function and no code. `abi` is the ELF ABI version: 7 for CUDA 12, and 8
/// for CUDA 13.
fn cubin(architecture: u32, abi: u8, name: &str) -> Vec<u8> {
    let mut bytes = vec![0u8; 64 + 4 * 64];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let flags = if abi >= 8 { architecture << 8 } else { architecture };
    put(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1, 0x33, abi]);
    put(0x10, &2u16.to_le_bytes());
    put(0x12, &190u16.to_le_bytes());
    put(0x14, &0x7au32.to_le_bytes()); // the toolkit's version, 12.2; 1 in other ELF files
    put(0x28, &64u64.to_le_bytes());
    put(0x30, &flags.to_le_bytes());
    put(0x34, &64u16.to_le_bytes());
    put(0x3a, &64u16.to_le_bytes());
    put(0x3c, &4u16.to_le_bytes());
    put(0x3e, &1u16.to_le_bytes());
    let strings = format!("\0.strtab\0.symtab\0.text\0{name}\0").into_bytes();
    let mut symbols = vec![0u8; 48];
    symbols[24..28].copy_from_slice(&23u32.to_le_bytes()); // the offset of the function's name
    symbols[28] = 0x12; // a global function
    symbols[30..32].copy_from_slice(&3u16.to_le_bytes()); // the function is in section 3
    let (strings_at, symbols_at) = (64 + 4 * 64, 64 + 4 * 64 + strings.len());
    // (name, type, offset, bytes, link, info, entry bytes)
    let sections = [
        (1u32, 3u32, strings_at, strings.len(), 0u32, 0u32, 0u64),
        (9, 2, symbols_at, symbols.len(), 1, 1, 24),
        (17, 1, symbols_at, 0, 0, 0, 0),
    ];
    for (index, (name, kind, offset, length, link, info, entry)) in sections.into_iter().enumerate() {
        let at = 64 + (index + 1) * 64;
        put(at, &name.to_le_bytes());
        put(at + 4, &kind.to_le_bytes());
        put(at + 0x18, &(offset as u64).to_le_bytes());
        put(at + 0x20, &(length as u64).to_le_bytes());
        put(at + 0x28, &link.to_le_bytes());
        put(at + 0x2c, &info.to_le_bytes());
        put(at + 0x30, &1u64.to_le_bytes());
        put(at + 0x38, &entry.to_le_bytes());
    }
    bytes.extend(strings);
    bytes.extend(symbols);
    bytes
}

#[test]
fn cubin_loads_on_same_major_and_same_or_higher_minor_capability() {
    let _gpu = Gpu::get();
    // The device has the compute capability 9.0.
    for (architecture, abi, expected) in
        [(90, 7, 0), (90, 8, 0), (80, 7, 209), (89, 8, 209), (100, 8, 209), (91, 7, 209)]
    {
        let mut module = 0;
        let image = cubin(architecture, abi, "work");
        let code = code!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
        assert_eq!(code, expected, "sm_{architecture}, ABI version {abi}");
        if expected == 0 {
            let mut function = 0;
            ok!(cuModuleGetFunction(&mut function, module, c"work".as_ptr()));
            assert_eq!(code!(cuModuleGetFunction(&mut function, module, c"wor".as_ptr())), 500);
            ok!(cuModuleUnload(module));
        }
    }
}

#[test]
fn rejects_invalid_images() {
    let _gpu = Gpu::get();
    let mut module = 0;
    assert_eq!(code!(cuModuleLoadData(&mut module, c"junk".as_ptr().cast())), 200);
    assert_eq!(code!(cuModuleLoadData(&mut module, std::ptr::null())), 1);
    let mut not_cuda = cubin(90, 7, "work");
    not_cuda[0x12] = 62;
    assert_eq!(code!(cuModuleLoadData(&mut module, not_cuda.as_ptr().cast())), 200);
}

#[test]
fn rejects_launch_sizes_outside_the_limits() {
    let _gpu = Gpu::get();
    let (home, work) = (stream(), function("work"));
    let null = std::ptr::null_mut();
    let launch = |blocks, threads, shared| {
        code!(cuLaunchKernel(work, blocks, 1, 1, threads, 1, 1, shared, home, null, null))
    };
    assert_eq!((launch(0, 1, 0), launch(1, 1025, 0), launch(1, 1, (48 << 10) + 1)), (1, 1, 1));
}

#[test]
fn reports_launches_that_do_not_match_the_table_of_kernels() {
    let gpu = Gpu::get();
    let home = stream();
    let block = alloc(BYTES as usize, home);
    fill(block, 1, BYTES as usize, home);
    let shift = function("crossdock_shift_bits");
    // One job consists of a head and four arguments. The launch has one block.
    let head = |n: u64, end: u64| (((n + 1) << 32) | end, 0, ARG_VALUE);
    let (from, to) = ((block, 64, ARG_READ), (block + 64, 64, ARG_WRITE));
    let (bit, len) = ((0, 0, ARG_VALUE), (512, 0, ARG_VALUE));
    let good = [head(4, 1), from, bit, len, to];
    assert_eq!(Params::new(Some(nothing), &good).launch(shift, home), 0);
    ok!(cuStreamSynchronize(home));
    assert_eq!(gpu.violations(), 0);
    let wrong = [
        &[head(4, 1), from, bit, to, len][..],
        &[head(3, 1), from, bit, len],
        &[head(4, 2), from, bit, len, to],
    ];
    for (i, wrong) in wrong.iter().enumerate() {
        assert_eq!(Params::new(Some(nothing), wrong).launch(shift, home), 0);
        ok!(cuStreamSynchronize(home));
        assert_eq!(gpu.violations(), i as u64 + 1);
    }
    free(block, home);
}

unsafe extern "C" fn nothing(_: *const Arg, _: usize) -> Code {
    0
}
