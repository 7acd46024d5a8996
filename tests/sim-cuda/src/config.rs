//! Reads the simulator's configuration from environment variables.

/// The configuration. The name of each environment variable begins with `CROSSDOCK_SIM_CUDA_`.
pub(crate) struct Config {
    /// `SEED`: determines the order in which work runs, and how often a query returns "not ready".
    pub seed: u64,
    /// `DEVICES`: number of devices.
    pub devices: usize,
    /// `CAPABILITY`: compute capability, such as 90 for 9.0.
    pub capability: u32,
    /// `MEMORY`: memory size of each device, in bytes.
    pub memory_bytes: u64,
    /// `PEER`: 1 if devices can access each other's memory.
    pub peer: bool,
    /// `VERSION`: driver version, such as 12020 for CUDA 12.2.
    pub version: i32,
    /// `TRACE`: whether each call is printed.
    pub trace: bool,
    /// `LEAKS=ignore`: leaks are not reported at the end of the process.
    pub ignore_leaks: bool,
    /// `FAIL`: failures to inject, as `name:code:nth,...`.
    pub fail: String,
}

impl Config {
    pub(crate) fn from_environment() -> Self {
        let text = |name: &str| std::env::var(format!("CROSSDOCK_SIM_CUDA_{name}")).unwrap_or_default();
        let number = |name: &str, otherwise: u64| text(name).trim().parse().unwrap_or(otherwise);
        Self {
            seed: number("SEED", 1),
            devices: number("DEVICES", 1).min(64) as usize,
            capability: number("CAPABILITY", 90) as u32,
            memory_bytes: number("MEMORY", 8 << 30),
            peer: number("PEER", 0) != 0,
            version: number("VERSION", 12020) as i32,
            trace: !matches!(text("TRACE").as_str(), "" | "0"),
            ignore_leaks: text("LEAKS") == "ignore",
            fail: text("FAIL"),
        }
    }
}
