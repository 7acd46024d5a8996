//! A simulated CUDA driver, to run programs without a GPU and to detect errors that a real driver
//! does not report.
//!
//! `cargo xtask sim-cuda` builds it as `libcuda.so` and prints the folder, for
//! `LD_LIBRARY_PATH=$(cargo xtask sim-cuda) program`. Its properties:
//!
//! - **Device memory is inaccessible to the host.** Its addresses are reserved address space.
//!   Dereferencing one faults.
//! - **Work is lazy.** Nothing runs before a synchronization or query. Then only the required work
//!   runs, in an order that the seed determines, so that host code which reads a result too early
//!   always reads invalid data. If more than 64 MiB are held for pending work, or more than 1024
//!   operations are pending on a stream, the older half runs.
//! - **Order is checked** with vector clocks. An access must be ordered after the accesses that it
//!   depends on, by its stream, a wait for an event, or a synchronization. Otherwise it is reported
//!   with both call sites, whether or not it caused harm.
//! - **Kernels** run as their CPU implementations, which `crossdock_kernel_args` contains. A launch
//!   of a kernel without one is reported as skipped and fails with CUDA_ERROR_NOT_SUPPORTED. CPU
//!   implementations run while the simulator is locked, so they must not call the driver.
//! - **Memory by handle** (`cuMemCreate`) is shared with other processes as files. CUDA IPC is not
//!   supported.
//! - **Failures** are injected by name, code and occurrence.
//! - **Leaks** are reported at the end of the process, which then exits with code 86.
//!
//! A violation is reported on stderr and ends the process.
//!
//! | variable | default | |
//! |---|---|---|
//! | `CROSSDOCK_SIM_CUDA_SEED` | 1 | determines the order of work |
//! | `CROSSDOCK_SIM_CUDA_DEVICES` | 1 | number of devices, up to 64 |
//! | `CROSSDOCK_SIM_CUDA_CAPABILITY` | 90 | compute capability, 90 for 9.0 |
//! | `CROSSDOCK_SIM_CUDA_MEMORY` | 8 GiB | bytes of each device |
//! | `CROSSDOCK_SIM_CUDA_PEER` | 0 | 1: devices can access each other's memory |
//! | `CROSSDOCK_SIM_CUDA_VERSION` | 12020 | the driver's version, 12020 for CUDA 12.2 |
//! | `CROSSDOCK_SIM_CUDA_FAIL` | | `name:code:nth,...`: the nth call fails (0: every call) |
//! | `CROSSDOCK_SIM_CUDA_LEAKS` | | `ignore`: do not report leaks |
//! | `CROSSDOCK_SIM_CUDA_TRACE` | 0 | 1: print each call and its result |
//!
//! Tests in the same process control the simulator with the functions of [`exports::control`],
//! which they look up as symbols if the driver was loaded as a library.
//! `cargo xtask sim-cuda --lack cuCtxRecordEvent` builds a driver without a function.
//!
//! The results of calls under graph capture, without a current context, for sizes of 0 and about
//! pointers are those of an H200 with driver 580. Simplifications: a device has only its primary
//! context; every stream is non-blocking, including the legacy default stream; the host's threads
//! share one clock; a captured graph is never launched; a pool reserves exactly the bytes that it
//! needs.

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
