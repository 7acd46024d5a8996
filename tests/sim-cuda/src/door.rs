//! The FFI door. The body of each exported driver function is one call of [`call`] or [`guarded`].

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::codes::{NOT_INITIALIZED, Outcome, SUCCESS, UNKNOWN};
use crate::config::Config;
use crate::fault;
use crate::report::say;
use crate::state::Sim;

static CONFIG: OnceLock<Config> = OnceLock::new();
static SIM: Mutex<Option<Sim>> = Mutex::new(None);

/// The configuration, read at the first call.
pub(crate) fn config() -> &'static Config {
    CONFIG.get_or_init(Config::from_environment)
}

/// Counts the call. Returns a failure if one must be injected; otherwise runs `work` under the
/// simulator's lock.
///
/// CPU implementations of kernels run while the lock is held, so they must not call the driver.
pub(crate) fn call(name: &'static str, work: impl FnOnce(&mut Sim) -> Outcome) -> c_int {
    guarded(name, || {
        with(|sim| {
            if sim.started || matches!(name, "cuInit" | "cuDriverGetVersion") {
                sim.call = name;
                work(sim)
            } else {
                Err(NOT_INITIALIZED)
            }
        })
    })
}

/// Like [`call`], but does not lock the simulator. For functions that do not use its state.
pub(crate) fn guarded(name: &'static str, work: impl FnOnce() -> Outcome) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let config = config();
        match fault::called(name, &config.fail) {
            Some(code) => Err(code),
            None => work(),
        }
    }));
    let code = match result {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => code,
        Err(payload) => {
            std::mem::forget(payload);
            say(&format!("{name} panicked; this is a bug of the simulator"));
            UNKNOWN
        }
    };
    if config().trace {
        say(&format!("{name} = {code}"));
    }
    code
}

/// Runs `work` under the simulator's lock. The first call creates the simulator.
pub(crate) fn with<T>(work: impl FnOnce(&mut Sim) -> T) -> T {
    let mut sim = SIM.lock().unwrap_or_else(PoisonError::into_inner);
    work(sim.get_or_insert_with(|| Sim::new(config())))
}

/// Runs `work` if the simulator exists and no other thread has locked it.
pub(crate) fn at_the_end(work: impl FnOnce(&mut Sim)) {
    match SIM.try_lock() {
        Ok(mut sim) => {
            if let Some(sim) = sim.as_mut() {
                work(sim);
            }
        }
        Err(_) => {
            say("leaks were not checked, because a thread is calling the driver while the process exits")
        }
    }
}
