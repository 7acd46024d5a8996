//! The simulated CUDA driver as a shared library. It exports the functions of the crate
//! `crossdock-sim-cuda`.

extern crate crossdock_sim_cuda as _;
