//! Images, functions, and kernels by their host twins.

use crate::common::*;
use crossdock_plugin_api::abi::{ARG_READ, ARG_VALUE, ARG_WRITE, Arg, Code};

const BYTES: u64 = 256;

/// `to[i] = from[i] + value`
unsafe extern "C" fn add(args: *const Arg, n_args: usize) -> Code {
    // SAFETY: called with the arguments that the tests launch it with.
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
fn a_twin_gets_addresses_that_it_may_use_and_numbers_as_they_are() {
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
fn what_a_kernel_touches_is_checked_like_a_copy() {
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
fn a_twin_that_writes_behind_what_it_was_given_is_found_when_the_block_goes() {
    unsafe extern "C" fn one_too_many(args: *const Arg, _: usize) -> Code {
        // SAFETY: one byte too many, which is what the test is about; the simulator keeps room for it.
        unsafe { ((*args).value as *mut u8).add((*args).bytes as usize).write(0) };
        0
    }
    let gpu = Gpu::get();
    let (home, bad) = (stream(), function("bad"));
    let block = alloc(BYTES as usize, home);
    assert_eq!(Params::new(Some(one_too_many), &[(block, BYTES, ARG_WRITE)]).launch(bad, home), 0);
    free(block, home);
    sync(home);
    gpu.expect("out of bounds");
}

#[test]
fn an_empty_argument_may_have_any_address() {
    let gpu = Gpu::get();
    let home = stream();
    let add_function = function("add");
    let args = [(0, 0, ARG_WRITE), (0xdead, 0, ARG_READ), (4, 0, ARG_VALUE)];
    assert_eq!(Params::new(Some(add), &args).launch(add_function, home), 0);
    sync(home);
    assert_eq!(gpu.violations(), 0);
}

#[test]
fn a_kernel_without_a_twin_is_skipped_by_name_and_fails() {
    let case = "kernels::a_kernel_without_a_twin_is_skipped_by_name_and_fails";
    if is_child(case) {
        Gpu::start();
        let (home, lonely) = (stream(), function("lonely"));
        assert_eq!(Params::new(None, &[]).launch(lonely, home), 801);
        assert_eq!(Params::new(None, &[]).launch(lonely, home), 801);
        sync(home);
        return;
    }
    let (output, text) = in_child(case, &[]);
    assert!(output.status.success(), "{text}");
    let said = text.lines().filter(|line| *line == "skipped: kernel lonely: no host twin").count();
    assert_eq!(said, 1, "{text}");
}

#[test]
fn a_kernel_that_fails_breaks_the_context_for_good() {
    let case = "kernels::a_kernel_that_fails_breaks_the_context_for_good";
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
    assert!(text.contains("kernel bad failed: its host twin returned 5"), "{text}");
}

#[test]
fn a_kernel_that_reaches_beyond_a_block_is_named_and_breaks_the_context() {
    let case = "kernels::a_kernel_that_reaches_beyond_a_block_is_named_and_breaks_the_context";
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
fn a_kernel_that_is_given_pageable_memory_is_named() {
    let case = "kernels::a_kernel_that_is_given_pageable_memory_is_named";
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

/// A cubin with one function and no code, as CUDA 12 (ELF ABI version 7) and 13 (8) write it.
fn cubin(architecture: u32, abi: u8, name: &str) -> Vec<u8> {
    let mut bytes = vec![0u8; 64 + 4 * 64];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let flags = if abi >= 8 { architecture << 8 } else { architecture };
    put(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1, 0x33, abi]);
    put(0x10, &2u16.to_le_bytes());
    put(0x12, &190u16.to_le_bytes());
    put(0x14, &0x7au32.to_le_bytes()); // CUDA 12.2, where other ELF files have a 1
    put(0x28, &64u64.to_le_bytes());
    put(0x30, &flags.to_le_bytes());
    put(0x34, &64u16.to_le_bytes());
    put(0x3a, &64u16.to_le_bytes());
    put(0x3c, &4u16.to_le_bytes());
    put(0x3e, &1u16.to_le_bytes());
    let strings = format!("\0.strtab\0.symtab\0.text\0{name}\0").into_bytes();
    let mut symbols = vec![0u8; 48];
    symbols[24..28].copy_from_slice(&23u32.to_le_bytes()); // its name
    symbols[28] = 0x12; // a global function
    symbols[30..32].copy_from_slice(&3u16.to_le_bytes()); // in section 3
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
fn a_cubin_runs_on_its_own_major_architecture_from_its_minor_up() {
    let _gpu = Gpu::get();
    // The device has 9.0.
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
fn an_image_that_is_none_is_refused() {
    let _gpu = Gpu::get();
    let mut module = 0;
    assert_eq!(code!(cuModuleLoadData(&mut module, c"junk".as_ptr().cast())), 200);
    assert_eq!(code!(cuModuleLoadData(&mut module, std::ptr::null())), 1);
    let mut not_cuda = cubin(90, 7, "work");
    not_cuda[0x12] = 62;
    assert_eq!(code!(cuModuleLoadData(&mut module, not_cuda.as_ptr().cast())), 200);
}

#[test]
fn a_launch_of_a_shape_that_no_device_has_is_refused() {
    let _gpu = Gpu::get();
    let (home, work) = (stream(), function("work"));
    let null = std::ptr::null_mut();
    let launch = |blocks, threads, shared| {
        code!(cuLaunchKernel(work, blocks, 1, 1, threads, 1, 1, shared, home, null, null))
    };
    assert_eq!((launch(0, 1, 0), launch(1, 1025, 0), launch(1, 1, (48 << 10) + 1)), (1, 1, 1));
}

#[test]
fn a_kernel_of_the_table_is_launched_with_what_the_table_says() {
    let gpu = Gpu::get();
    let home = stream();
    let block = alloc(BYTES as usize, home);
    fill(block, 1, BYTES as usize, home);
    let shift = function("crossdock_shift_bits");
    // One job of all four arguments behind its head, for the launch's one block.
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
