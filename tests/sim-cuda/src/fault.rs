//! Calls that are counted, and made to fail.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::codes::Code;

/// Apart from the simulator's own lock, so that a test may ask while a call is under way elsewhere.
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

#[derive(Default)]
struct Plan {
    calls: HashMap<String, u64>,
    faults: Vec<Fault>,
}

struct Fault {
    name: String,
    code: Code,
    /// How many calls from now it is; 0 for every call.
    nth: u64,
}

/// Counts a call; the code that it shall fail with.
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

/// The `nth` call of `name` from now fails with `code`; each, where `nth` is 0.
pub(crate) fn add(name: String, code: Code, nth: u64, from_environment: &str) {
    if let Some(plan) = lock(from_environment).as_mut() {
        plan.faults.push(Fault { name, code, nth });
    }
}

/// How often `name` was called.
pub(crate) fn calls(name: &str) -> u64 {
    lock("").as_ref().and_then(|plan| plan.calls.get(name).copied()).unwrap_or(0)
}

/// Forgets counts and what was still to fail.
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

/// `name:code:nth` with commas in between. What cannot be read is left out, and said.
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
                "CROSSDOCK_SIM_CUDA_FAIL: expected name:code:nth, got '{one}'; it is left out"
            )),
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_a_name_a_code_and_an_occurrence() {
        let faults = parse("cuInit:999:2, cuMemAlloc_v2:-4242,, junk,a:b:c");
        let seen: Vec<_> = faults.iter().map(|f| (f.name.as_str(), f.code, f.nth)).collect();
        assert_eq!(seen, [("cuInit", 999, 2), ("cuMemAlloc_v2", -4242, 1)]);
    }
}
