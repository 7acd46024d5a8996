//! A simulated CUDA driver. It runs programs without a GPU, and detects errors that a real driver
//! does not report.
//!
//! `cargo xtask sim-cuda` builds the driver as `libcuda.so` and prints the folder that contains it.
//! Run a program with `LD_LIBRARY_PATH=$(cargo xtask sim-cuda) program`. The simulated driver has
//! these properties:
//!
//! - **Device memory is inaccessible to the host.** Device addresses are reserved but inaccessible,
//!   so the host faults when it dereferences a device address.
//! - **Work is lazy.** Queued work runs only when a synchronization or query requires it, in an
//!   order that the seed determines. So host code that reads a result too early always reads
//!   invalid data. If pending work holds more than 64 MiB of host memory, or more than 1024
//!   operations are pending on a stream, the older half of the pending work runs.
//! - **Order is checked** with vector clocks. Each access must be ordered after the accesses that
//!   it depends on: by its stream, by a wait for an event, or by a synchronization. An access that
//!   is not ordered is reported with the call sites of both accesses, even if the program's results
//!   are correct.
//! - **Kernels** run as their CPU implementations. The caller passes the CPU implementation in
//!   `crossdock_kernel_args`. If a kernel has no CPU implementation, its launch is reported as
//!   skipped and fails with CUDA_ERROR_NOT_SUPPORTED. CPU implementations run while the simulator
//!   is locked, so they must not call the driver.
//! - **Memory with handles** (from `cuMemCreate`) is shared with other processes as files. CUDA IPC
//!   is not supported.
//! - **Failures** can be injected: the nth call of a function fails with a chosen code.
//! - **Leaks** are reported at the end of the process, which then exits with code 86.
//!
//! A violation is reported on stderr and ends the process.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `CROSSDOCK_SIM_CUDA_SEED` | 1 | determines the order of work |
//! | `CROSSDOCK_SIM_CUDA_DEVICES` | 1 | number of devices, up to 64 |
//! | `CROSSDOCK_SIM_CUDA_CAPABILITY` | 90 | compute capability, such as 90 for 9.0 |
//! | `CROSSDOCK_SIM_CUDA_MEMORY` | 8 GiB | memory size of each device, in bytes |
//! | `CROSSDOCK_SIM_CUDA_PEER` | 0 | 1: devices can access each other's memory |
//! | `CROSSDOCK_SIM_CUDA_VERSION` | 12020 | the driver's version, such as 12020 for CUDA 12.2 |
//! | `CROSSDOCK_SIM_CUDA_FAIL` | | `name:code:nth,...`: the nth call fails; 0: every call |
//! | `CROSSDOCK_SIM_CUDA_LEAKS` | | `ignore`: do not report leaks |
//! | `CROSSDOCK_SIM_CUDA_TRACE` | 0 | 1: print each call and its result |
//!
//! Tests in the same process control the simulator with the functions of [`exports::control`],
//! which they look up as symbols if the driver was loaded as a library.
//! `cargo xtask sim-cuda --lack cuCtxRecordEvent` builds a driver that lacks this function.
//!
//! The simulated driver returns the same results as driver 580 on an H200 for calls under graph
//! capture, calls without a current context, calls with a size of 0, and queries of pointer
//! attributes. It differs from a real driver in these points:
//!
//! - A device has only its primary context.
//! - Every stream is non-blocking, including the legacy default stream.
//! - All threads of the host share one clock.
//! - A captured graph is never launched.
//! - A pool reserves exactly the bytes that it needs.

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
// The file is included by its path because the test support depends on the backend, which loads
// this driver. This crate must not depend on the backend.
#[path = "../../support/src/random.rs"]
mod random;
mod real;
mod report;
mod run;
mod space;
mod state;
mod streams;
mod touch;
