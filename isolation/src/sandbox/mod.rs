//! Confines a plugin's process: system calls, files, memory, environment.

pub(crate) mod cgroup;
pub(crate) mod confine;
pub(crate) mod environment;
mod system_calls;
