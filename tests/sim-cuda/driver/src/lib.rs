//! The simulated CUDA driver as a library. Everything is in `crossdock-sim-cuda`, whose exported
//! functions become this library's.

extern crate crossdock_sim_cuda as _;
