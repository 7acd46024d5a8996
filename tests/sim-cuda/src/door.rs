//! The one way in: every exported function is one call of [`call`].

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

/// What the environment said when it was first asked.
pub(crate) fn config() -> &'static Config {
    CONFIG.get_or_init(Config::from_environment)
}

/// Counts the call, fails it where that is asked for, and does `work` under the simulator's lock.
///
/// Twins of kernels run in here, with the lock held: they do not call the driver.
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

/// The same for what needs no simulator: names of errors.
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
            say(&format!("{name} panicked, which is a fault of the simulator"));
            UNKNOWN
        }
    };
    if config().trace {
        say(&format!("{name} = {code}"));
    }
    code
}

/// The simulator, made at first use.
pub(crate) fn with<T>(work: impl FnOnce(&mut Sim) -> T) -> T {
    let mut sim = SIM.lock().unwrap_or_else(PoisonError::into_inner);
    work(sim.get_or_insert_with(|| Sim::new(config())))
}

/// The simulator, if it was made and nobody is in it.
pub(crate) fn at_the_end(work: impl FnOnce(&mut Sim)) {
    match SIM.try_lock() {
        Ok(mut sim) => {
            if let Some(sim) = sim.as_mut() {
                work(sim);
            }
        }
        Err(_) => {
            say("a thread is still calling the driver while the process ends; leaks were not looked for")
        }
    }
}
