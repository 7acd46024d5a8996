//! Counts driver calls, and injects failures into them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::codes::Code;

/// The plan has its own lock, so that a test can read counts while another thread holds the
/// simulator's lock.
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

#[derive(Default)]
struct Plan {
    calls: HashMap<String, u64>,
    faults: Vec<Fault>,
}

struct Fault {
    name: String,
    code: Code,
    /// The number of calls up to and including the call that fails, or 0 if every call fails.
    nth: u64,
}

/// Counts a call. Returns the code that the call must fail with, if any.
pub(crate) fn called(name: &str, from_environment: &str) -> Option<Code> {
    let mut plan = lock(from_environment);
    let plan = plan.as_mut()?;
    match plan.calls.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            plan.calls.insert(name.to_owned(), 1);
        }
    }
    if plan.faults.is_empty() {
        return None;
    }
    let mut code = None;
    plan.faults.retain_mut(|fault| {
        if fault.name != name || fault.nth == 0 {
            code = code.or((fault.name == name).then_some(fault.code));
            return true;
        }
        fault.nth -= 1;
        if fault.nth == 0 {
            code = Some(fault.code);
        }
        fault.nth > 0
    });
    code
}

/// Injects a failure: the `nth` call of `name` from now returns `code`. If `nth` is 0, every call
/// of `name` returns `code`.
pub(crate) fn add(name: String, code: Code, nth: u64, from_environment: &str) {
    if let Some(plan) = lock(from_environment).as_mut() {
        plan.faults.push(Fault { name, code, nth });
    }
}

/// The number of calls of `name` since the last reset.
pub(crate) fn calls(name: &str) -> u64 {
    lock("").as_ref().and_then(|plan| plan.calls.get(name).copied()).unwrap_or(0)
}

/// Resets the counts, and removes all failures that have not been injected yet.
pub(crate) fn reset() {
    if let Some(plan) = lock("").as_mut() {
        *plan = Plan::default();
    }
}

fn lock(from_environment: &str) -> MutexGuard<'static, Option<Plan>> {
    let mut plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
    if plan.is_none() {
        *plan = Some(Plan { calls: HashMap::new(), faults: parse(from_environment) });
    }
    plan
}

/// Parses a comma-separated list of `name:code:nth`. Malformed entries are reported and ignored.
fn parse(text: &str) -> Vec<Fault> {
    let parse_one = |one: &str| {
        let mut parts = one.split(':');
        let name = parts.next()?.trim().to_owned();
        let code = parts.next()?.trim().parse().ok()?;
        let nth = parts.next().map_or(Some(1), |nth| nth.trim().parse().ok())?;
        Some(Fault { name, code, nth })
    };
    let mut faults = Vec::new();
    for one in text.split(',').filter(|one| !one.trim().is_empty()) {
        match parse_one(one) {
            Some(fault) => faults.push(fault),
            None => crate::report::say(&format!(
                "CROSSDOCK_SIM_CUDA_FAIL: expected name:code:nth, got '{one}'; this entry is ignored"
            )),
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_faults_and_ignores_malformed_entries() {
        let faults = parse("cuInit:999:2, cuMemAlloc_v2:-4242,, junk,a:b:c");
        let parsed: Vec<_> = faults.iter().map(|f| (f.name.as_str(), f.code, f.nth)).collect();
        assert_eq!(parsed, [("cuInit", 999, 2), ("cuMemAlloc_v2", -4242, 1)]);
    }
}
