//! A simulated CUDA driver, to run programs that use CUDA where there is none, and to catch what a real one lets pass.
//!
//! `cargo xtask sim-cuda` builds it as `libcuda.so` and prints the folder:
//! `LD_LIBRARY_PATH=$(cargo xtask sim-cuda) program`. What it does about it all:
//!
//! - **Device memory is out of reach.** Addresses lie in reserved address space; a host that dereferences one faults.
//! - **Work is lazy.** Nothing runs before somebody synchronises or asks, then only what is required, in an order that
//!   the seed decides. So host code that reads a result too early reads nonsense, each time. Only where a lot has piled
//!   up (64 MiB held for it, or 1024 operations on a stream) is the older half worked off.
//! - **Order is checked**, by vector clocks: an access that is not ordered after what it needs (by the same stream, an
//!   event that was waited for, or a synchronisation) is reported with both call sites, whether or not it did harm.
//! - **Kernels** are run by their host twins, which `crossdock_kernel_args` carries. A kernel without one is skipped,
//!   says so, and its launch fails with CUDA_ERROR_NOT_SUPPORTED. Twins run while the simulator is locked: they do not
//!   call the driver.
//! - **Memory by handle** (`cuMemCreate`) goes to other processes as files; what CUDA IPC is asked for it has not.
//! - **Failures** are injected by name, code and occurrence.
//! - **Leaks** are told at the end of the process, whose exit code is then 86.
//!
//! A violation is reported on stderr and ends the process.
//!
//! | variable | default | |
//! |---|---|---|
//! | `CROSSDOCK_SIM_CUDA_SEED` | 1 | what runs when |
//! | `CROSSDOCK_SIM_CUDA_DEVICES` | 1 | how many devices, up to 64 |
//! | `CROSSDOCK_SIM_CUDA_CAPABILITY` | 90 | compute capability, 90 for 9.0 |
//! | `CROSSDOCK_SIM_CUDA_MEMORY` | 8 GiB | bytes on each device |
//! | `CROSSDOCK_SIM_CUDA_PEER` | 0 | 1: devices reach each other's memory |
//! | `CROSSDOCK_SIM_CUDA_VERSION` | 12020 | the driver's version, 12020 for CUDA 12.2 |
//! | `CROSSDOCK_SIM_CUDA_FAIL` | | `name:code:nth,...`: the nth call of that function fails (0: each) |
//! | `CROSSDOCK_SIM_CUDA_LEAKS` | | `ignore`: say nothing about leaks |
//! | `CROSSDOCK_SIM_CUDA_TRACE` | 0 | 1: print each call and what it answered |
//!
//! Tests in the same process find functions of the simulator's own, by symbol where it was loaded: see
//! [`exports::control`]. A driver that lacks a function is made by `cargo xtask sim-cuda --lack cuCtxRecordEvent`.
//!
//! What calls answer in corners (under graph capture, without a current context, to sizes of 0, about pointers) is what an
//! H200 under driver 580 was seen to answer. Simplified: a device has its primary context and no other; every stream is
//! non-blocking, the legacy default one too; the host's threads share one clock; a captured graph is never launched; a
//! pool takes exactly the bytes that it needs.

mod capture;
mod codes;
mod config;
mod copies;
mod door;
pub mod exports;
mod fault;
mod frees;
mod image;
mod launch;
mod leaks;
mod mapped;
mod memory;
mod order;
mod pools;
// The driver must not depend on the backend that loads it, which the test support depends on.
#[path = "../../support/src/random.rs"]
mod random;
mod real;
mod report;
mod run;
mod space;
mod state;
mod streams;
mod touch;
