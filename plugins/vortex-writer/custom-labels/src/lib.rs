//! An empty crate in place of the crate `custom-labels`, which labels threads for profilers. The
//! crate `vortex-io` depends on it, but uses it only if its feature `tokio` is enabled.
