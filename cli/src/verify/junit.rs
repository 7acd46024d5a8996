//! Writes the report as JUnit XML.

use std::fmt::Write;

use super::case::Outcome;
use super::report::Report;
use super::schedule::CaseResult;

pub fn xml(report: &Report) -> String {
    let failures = report.count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let errors = report.count(Outcome::is_bad) - failures;
    let skipped = report.count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let not_exercised = report.not_exercised();
    let (failures, skipped) = if report.is_strict() {
        (failures + not_exercised.len(), skipped)
    } else {
        (failures, skipped + not_exercised.len())
    };
    let seconds: f64 = report.results.iter().map(|result| result.seconds).sum();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{}\" tests=\"{}\" \
         failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">\n",
        escaped(&report.plugin.display().to_string()),
        report.results.len() + not_exercised.len()
    );
    report.results.iter().for_each(|result| add(&mut text, result));
    for (part, need) in not_exercised {
        let (name, need) = (escaped(&part.label()), escaped(need));
        let outcome = if report.is_strict() { "failure" } else { "skipped" };
        let _ = writeln!(
            text,
            "<testcase classname=\"exercised\" name=\"{name}\"><{outcome} message=\"not exercised: needs {need}\"/></testcase>"
        );
    }
    text + "</testsuite>\n</testsuites>\n"
}

fn add(text: &mut String, result: &CaseResult) {
    let (group, name) = result.run.case.name.split_once('.').unwrap_or(("", result.run.case.name));
    let device = result.run.device.map(|device| format!(" on {device}")).unwrap_or_default();
    let words = escaped(&result.outcome.details());
    let _ = write!(
        text,
        "<testcase classname=\"{group}\" name=\"{}\" time=\"{:.3}\">",
        escaped(&format!("{name}{device}")),
        result.seconds
    );
    let _ = match &result.outcome {
        Outcome::Passed => Ok(()),
        Outcome::Skipped(_) => write!(text, "<skipped message=\"{words}\"/>"),
        Outcome::Failed(_) => {
            write!(text, "<failure message=\"{words}\">{}</failure>", escaped(&result.replay))
        }
        other => {
            let kind = other.name();
            write!(text, "<error type=\"{kind}\" message=\"{words}\">{}</error>", escaped(&result.replay))
        }
    };
    if result.outcome.is_bad() {
        let _ = write!(
            text,
            "<system-out>{}</system-out><system-err>{}</system-err>",
            escaped(&result.stdout),
            escaped(&result.stderr)
        );
    }
    text.push_str("</testcase>\n");
}

/// Escapes text for XML 1.0, and replaces the characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_markup_and_replaces_characters_that_xml_forbids() {
        assert_eq!(
            escaped("<a b=\"c\">&\n\u{1b}[0m\u{ffff}ö"),
            "&lt;a b=&quot;c&quot;&gt;&amp;&#10;\u{fffd}[0m\u{fffd}ö"
        );
    }
}
