//! Reads and reports the results of mutants.

use super::equivalent::Equivalent;
use super::list::Mutant;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::HashMap;

/// The result of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Caught,
    /// The tests timed out. The mutant counts as caught.
    TimedOut,
    Missed,
    /// The mutant does not compile.
    Unviable,
}

/// The results of all mutants.
pub struct Report {
    seed: u64,
    /// The number of mutants from which the sample was taken.
    of: usize,
    equivalent: Equivalent,
    fates: Vec<(Mutant, Fate)>,
}

impl Report {
    pub fn new(seed: u64, of: usize, equivalent: Equivalent) -> Self {
        Self { seed, of, equivalent, fates: Vec::new() }
    }

    /// Adds the results that cargo-mutants reports for these mutants.
    pub fn add(&mut self, mutants: Vec<Mutant>, outcomes: &[u8]) -> Result<()> {
        let fates = read(outcomes)?;
        for mutant in mutants {
            let fate = fates.get(&mutant.place).copied();
            let fate = fate.with_context(|| format!("cargo-mutants did not test {}", mutant.place))?;
            self.fates.push((mutant, fate));
        }
        Ok(())
    }

    fn count(&self, fate: Fate) -> usize {
        self.fates.iter().filter(|(_, of)| *of == fate).count()
    }

    fn missed(&self) -> impl Iterator<Item = (&Mutant, Option<&str>)> {
        let missed = self.fates.iter().filter(|(_, fate)| *fate == Fate::Missed);
        missed.map(|(mutant, _)| (mutant, self.equivalent.reason(&mutant.name)))
    }

    /// The number of caught mutants, including timeouts.
    pub fn caught(&self) -> usize {
        self.count(Fate::Caught) + self.count(Fate::TimedOut)
    }

    /// The missed mutants, without known equivalent mutants.
    pub fn unexplained(&self) -> Vec<String> {
        self.missed().filter(|(_, reason)| reason.is_none()).map(|(mutant, _)| mutant.name.clone()).collect()
    }

    /// The lines of the report: a line for each missed mutant, and a line with the totals.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .missed()
            .map(|(mutant, reason)| match reason {
                Some(reason) => format!("equivalent: {}: {reason}", mutant.name),
                None => format!("missed: {} ({})", mutant.name, mutant.place),
            })
            .collect();
        let (caught, missed) = (self.caught(), self.count(Fate::Missed));
        let share = (caught * 1000).checked_div(caught + missed).unwrap_or(1000);
        lines.push(format!(
            "seed {}: {} of {} mutants: {caught} caught ({} by timeout), {missed} missed ({} of them equivalent), {} unviable: \
             {}.{} % of the mutants that compile were caught",
            self.seed,
            self.fates.len(),
            self.of,
            self.count(Fate::TimedOut),
            missed - self.unexplained().len(),
            self.count(Fate::Unviable),
            share / 10,
            share % 10,
        ));
        lines
    }

    /// Checks the results.
    ///
    /// # Errors
    /// Returns an error if a mutant was missed and is not known to be equivalent.
    pub fn check(&self) -> Result<()> {
        match self.unexplained().len() {
            0 => Ok(()),
            n => bail!(
                "{n} mutants were missed: each needs a test, or a reason in tests/mutants/equivalent.txt"
            ),
        }
    }
}

/// Parses outcomes.json. The keys of the result are the places of the mutants.
fn read(json: &[u8]) -> Result<HashMap<String, Fate>> {
    let json: Value = serde_json::from_slice(json).context("outcomes.json of cargo-mutants: not JSON")?;
    let all = json["outcomes"].as_array().context("outcomes.json of cargo-mutants: no outcomes")?;
    let mut fates = HashMap::new();
    for outcome in all {
        // Skips the run without a mutant, which has no place.
        let Some(place) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
        let fate = match outcome["summary"].as_str() {
            Some("CaughtMutant") => Fate::Caught,
            Some("MissedMutant") => Fate::Missed,
            Some("Timeout") => Fate::TimedOut,
            Some("Unviable") => Fate::Unviable,
            other => bail!("outcomes.json of cargo-mutants: unexpected result {other:?} for {place}"),
        };
        fates.insert(place.to_owned(), fate);
    }
    Ok(fates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str) -> Mutant {
        Mutant { package: "a".into(), place: format!("{name} at 1:1"), name: name.into() }
    }

    fn outcomes(all: &[(&str, &str)]) -> Vec<u8> {
        let outcomes = all.iter().map(|(name, summary)| {
            serde_json::json!({"scenario": {"Mutant": {"name": format!("{name} at 1:1")}}, "summary": summary})
        });
        let baseline = serde_json::json!({"scenario": "Baseline", "summary": "Success"});
        let all: Vec<_> = std::iter::once(baseline).chain(outcomes).collect();
        serde_json::json!({"outcomes": all}).to_string().into_bytes()
    }

    fn report(all: &[(&str, &str)]) -> Report {
        let mut report = Report::new(7, 100, Equivalent::default());
        report.add(all.iter().map(|(name, _)| mutant(name)).collect(), &outcomes(all)).unwrap();
        report
    }

    #[test]
    fn timeouts_count_as_caught_and_uncompilable_mutants_are_not_counted() {
        let report =
            report(&[("a", "CaughtMutant"), ("b", "Timeout"), ("c", "MissedMutant"), ("d", "Unviable")]);
        let expected = "seed 7: 4 of 100 mutants: 2 caught (1 by timeout), 1 missed (0 of them equivalent), 1 unviable: \
                        66.6 % of the mutants that compile were caught";
        assert_eq!(report.lines(), ["missed: c (c at 1:1)", expected]);
        assert_eq!(report.unexplained(), ["c"]);
        assert!(report.check().unwrap_err().to_string().starts_with("1 mutants were missed"));
    }

    #[test]
    fn accepts_results_without_missed_mutants() {
        let report = report(&[("a", "CaughtMutant")]);
        assert!(
            report.lines()[0].ends_with("100.0 % of the mutants that compile were caught"),
            "{:?}",
            report.lines()
        );
        report.check().unwrap();
    }

    #[test]
    fn rejects_results_without_a_mutant() {
        let mut report = Report::new(7, 100, Equivalent::default());
        let error = report.add(vec![mutant("a")], &outcomes(&[("b", "CaughtMutant")])).unwrap_err();
        assert_eq!(error.to_string(), "cargo-mutants did not test a at 1:1");
    }
}
