//! Schedules cases: each case runs after the cases that it depends on. It is skipped if one of
//! these cases fails, or is itself skipped because of a dependency.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

use super::case::{Outcome, Run, SkipKind, Skipped};
use super::coverage::Coverage;

/// The result of a case that was run or skipped.
pub struct CaseResult {
    pub run: Run,
    pub outcome: Outcome,
    pub coverage: Coverage,
    pub seconds: f64,
    pub stdout: String,
    pub stderr: String,
    /// The shell command that runs the case alone.
    pub replay: String,
}

impl CaseResult {
    fn skipped(run: Run, dependency: &str) -> Self {
        let (coverage, stdout, stderr, replay) = Default::default();
        let outcome = skipped_for(dependency);
        Self { run, outcome, coverage, seconds: 0.0, stdout, stderr, replay }
    }
}

struct State {
    pending: Vec<Run>,
    running: Vec<Run>,
    /// The cases whose dependents are skipped.
    bad: HashSet<&'static str>,
    error: Option<std::io::Error>,
    results: Vec<CaseResult>,
}

/// The next step of a free worker.
enum Next {
    Run(Run),
    /// Skips a case because of this dependency.
    Skip(Run, &'static str),
    Wait,
    End,
}

impl State {
    fn next(&mut self) -> Next {
        if self.error.is_some() || self.pending.is_empty() {
            return Next::End;
        }
        let bad = |run: &Run| run.case.depends_on.iter().copied().find(|name| self.bad.contains(name));
        if let Some((at, dependency)) =
            self.pending.iter().enumerate().find_map(|(at, run)| bad(run).map(|name| (at, name)))
        {
            return Next::Skip(self.pending.remove(at), dependency);
        }
        if self.running.iter().any(|run| run.is_exclusive) {
            return Next::Wait;
        }
        let is_unfinished = |name: &&str| {
            self.running.iter().any(|run| run.case.name == *name)
                || self.pending.iter().any(|other| other.case.name == *name)
        };
        let may_run = |run: &Run| {
            !run.case.depends_on.iter().any(&is_unfinished) && (!run.is_exclusive || self.running.is_empty())
        };
        match self.pending.iter().position(may_run) {
            Some(at) => {
                let run = self.pending.remove(at);
                self.running.push(run);
                Next::Run(run)
            }
            // This arm is reached only if dependencies form a cycle. A unit test of the cases
            // excludes cycles.
            None if self.running.is_empty() => Next::End,
            None => Next::Wait,
        }
    }

    fn finish(&mut self, result: CaseResult) {
        // If a case is skipped because of a dependency, the cases that depend on it are skipped
        // too. If it is skipped for another reason, the cases that depend on it run.
        if result.outcome.is_bad() || is_skipped_for_dependency(&result.outcome) {
            self.bad.insert(result.run.case.name);
        }
        self.results.push(result);
    }
}

fn is_skipped_for_dependency(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Skipped(Skipped { kind: SkipKind::Dependency, .. }))
}

fn skipped_for(dependency: &str) -> Outcome {
    let reason = format!("a required case did not pass: {dependency}");
    Outcome::Skipped(Skipped { kind: SkipKind::Dependency, reason })
}

/// Runs the cases, `jobs` at a time. A case runs after its dependencies, if they are in `runs`.
/// Passes each result to `report` when the case has ended.
///
/// # Errors
/// The first error of `start`. After this error, no further case is started.
pub fn run(
    runs: Vec<Run>,
    jobs: usize,
    start: &(dyn Fn(&Run) -> std::io::Result<CaseResult> + Sync),
    report: &mut dyn FnMut(CaseResult),
) -> std::io::Result<()> {
    let total = runs.len();
    let state =
        State { pending: runs, running: Vec::new(), bad: HashSet::new(), error: None, results: Vec::new() };
    let (state, changed) = (Mutex::new(state), Condvar::new());
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let mut state = lock();
        loop {
            match state.next() {
                Next::End => break,
                Next::Wait => state = changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Next::Skip(run, dependency) => {
                    state.finish(CaseResult::skipped(run, dependency));
                    changed.notify_all();
                }
                Next::Run(run) => {
                    drop(state);
                    let result = start(&run);
                    state = lock();
                    if let Some(at) = state.running.iter().position(|other| other.is_same(&run)) {
                        state.running.swap_remove(at);
                    }
                    match result {
                        Ok(result) => state.finish(result),
                        Err(error) => state.error = Some(error),
                    }
                    changed.notify_all();
                }
            }
        }
        changed.notify_all();
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, total.max(1)) {
            scope.spawn(work);
        }
        let mut n_reported = 0;
        let mut state = lock();
        while n_reported < total && state.error.is_none() {
            if state.results.is_empty() {
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let results = std::mem::take(&mut state.results);
            n_reported += results.len();
            drop(state);
            results.into_iter().for_each(&mut *report);
            state = lock();
        }
    });
    state.into_inner().unwrap_or_else(PoisonError::into_inner).error.map_or(Ok(()), Err)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::super::case::{Case, Failed};
    use super::*;

    static CASES: [Case; 4] = [
        case("top", &["middle"]),
        case("middle", &["base"]),
        case("base", &[]),
        case("apart", &["elsewhere"]),
    ];

    const fn case(name: &'static str, depends_on: &'static [&'static str]) -> Case {
        Case { name, rule: "", spec_ref: "", depends_on, on_devices: false, check: |_| Ok(()) }
    }

    fn outcomes(jobs: usize, base: Outcome) -> Vec<(&'static str, Outcome)> {
        let runs =
            CASES.iter().map(|case| Run { case, device: None, seed: 1, is_exclusive: false }).collect();
        let start = |run: &Run| {
            let outcome = if run.case.name == "base" { base.clone() } else { Outcome::Passed };
            let (coverage, stdout, stderr, replay) = Default::default();
            Ok(CaseResult { run: *run, outcome, coverage, seconds: 0.0, stdout, stderr, replay })
        };
        let mut results = Vec::new();
        run(runs, jobs, &start, &mut |result| results.push((result.run.case.name, result.outcome))).unwrap();
        results
    }

    #[test]
    fn case_runs_after_its_dependencies_and_only_if_they_pass() {
        for jobs in [1, 3, 9] {
            let results = outcomes(jobs, Outcome::Passed);
            let at = |name| results.iter().position(|(other, _)| *other == name).unwrap();
            assert!(at("base") < at("middle") && at("middle") < at("top"));
            assert!(results.iter().all(|(_, outcome)| *outcome == Outcome::Passed) && results.len() == 4);

            let (place, expected, got) = Default::default();
            let results = outcomes(jobs, Outcome::Failed(Failed { place, expected, got }));
            let of = |name| results.iter().find(|(other, _)| *other == name).unwrap().1.clone();
            assert_eq!(of("middle"), skipped_for("base"));
            assert_eq!(of("top"), skipped_for("middle"));
            assert_eq!(of("apart"), Outcome::Passed);

            let absent_device = Skipped { kind: SkipKind::Machine, reason: "no device".into() };
            let results = outcomes(jobs, Outcome::Skipped(absent_device));
            assert!(results.iter().filter(|(_, outcome)| *outcome == Outcome::Passed).count() == 3);
        }
    }

    #[test]
    fn exclusive_case_runs_alone() {
        // Each case that is not exclusive waits until a second such case runs at the same time.
        let runs = CASES.iter().filter(|case| case.name != "middle");
        let runs = runs
            .map(|case| Run { case, device: None, seed: 1, is_exclusive: case.name == "apart" })
            .collect();
        let (running, changed) = (Mutex::new(Vec::new()), Condvar::new());
        let beside = Mutex::new(Vec::new());
        let start = |run: &Run| {
            let name = run.case.name;
            let mut names = running.lock().unwrap();
            names.push(name);
            changed.notify_all();
            let is_alone = |names: &mut Vec<_>| names.len() == 1;
            let timeout = Duration::from_millis(if run.is_exclusive { 100 } else { 20_000 });
            (names, _) = changed.wait_timeout_while(names, timeout, is_alone).unwrap();
            beside
                .lock()
                .unwrap()
                .extend(names.iter().filter(|other| **other != name).map(|other| (name, *other)));
            drop(names);
            std::thread::sleep(Duration::from_millis(20));
            running.lock().unwrap().retain(|other| *other != name);
            let (coverage, stdout, stderr, replay) = Default::default();
            Ok(CaseResult {
                run: *run,
                outcome: Outcome::Passed,
                coverage,
                seconds: 0.0,
                stdout,
                stderr,
                replay,
            })
        };
        let mut results = Vec::new();
        super::run(runs, 3, &start, &mut |result| results.push(result.run.case.name)).unwrap();
        assert_eq!(results.last(), Some(&"apart"));
        let beside = beside.into_inner().unwrap();
        assert!(!beside.is_empty(), "jobs do not run in parallel");
        assert!(beside.iter().all(|(a, b)| *a != "apart" && *b != "apart"), "{beside:?}");
    }

    #[test]
    fn run_returns_the_error_of_a_process_that_cannot_start() {
        let runs =
            CASES.iter().map(|case| Run { case, device: None, seed: 1, is_exclusive: false }).collect();
        let start = |_: &Run| Err(std::io::Error::other("no process"));
        assert_eq!(run(runs, 2, &start, &mut |_| {}).unwrap_err().to_string(), "no process");
    }
}
