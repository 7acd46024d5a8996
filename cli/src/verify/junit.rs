//! The report as the XML that JUnit made common.

use std::fmt::Write;

use super::case::Outcome;
use super::report::Report;
use super::schedule::Done;

pub fn xml(report: &Report) -> String {
    let failures = report.count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let errors = report.count(Outcome::is_bad) - failures;
    let skipped = report.count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let left = report.not_exercised();
    let (failures, skipped) =
        if report.is_strict() { (failures + left.len(), skipped) } else { (failures, skipped + left.len()) };
    let seconds: f64 = report.done.iter().map(|done| done.seconds).sum();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{}\" tests=\"{}\" \
         failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">\n",
        escaped(&report.plugin.display().to_string()),
        report.done.len() + left.len()
    );
    report.done.iter().for_each(|done| add(&mut text, done));
    for (part, give) in left {
        let (name, give) = (escaped(&part.words()), escaped(give));
        let outcome = if report.is_strict() { "failure" } else { "skipped" };
        let _ = writeln!(
            text,
            "<testcase classname=\"exercised\" name=\"{name}\"><{outcome} message=\"not exercised: needs {give}\"/></testcase>"
        );
    }
    text + "</testsuite>\n</testsuites>\n"
}

fn add(text: &mut String, done: &Done) {
    let (group, name) = done.run.case.name.split_once('.').unwrap_or(("", done.run.case.name));
    let device = done.run.device.map(|device| format!(" on {device}")).unwrap_or_default();
    let words = escaped(&done.outcome.words());
    let _ = write!(
        text,
        "<testcase classname=\"{group}\" name=\"{}\" time=\"{:.3}\">",
        escaped(&format!("{name}{device}")),
        done.seconds
    );
    let _ = match &done.outcome {
        Outcome::Passed => Ok(()),
        Outcome::Skipped(_) => write!(text, "<skipped message=\"{words}\"/>"),
        Outcome::Failed(_) => {
            write!(text, "<failure message=\"{words}\">{}</failure>", escaped(&done.replay))
        }
        other => {
            let kind = other.word();
            write!(text, "<error type=\"{kind}\" message=\"{words}\">{}</error>", escaped(&done.replay))
        }
    };
    if done.outcome.is_bad() {
        let _ = write!(
            text,
            "<system-out>{}</system-out><system-err>{}</system-err>",
            escaped(&done.stdout),
            escaped(&done.stderr)
        );
    }
    text.push_str("</testcase>\n");
}

/// As XML 1.0 has characters; those that it does not have are replaced.
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
    fn no_character_ends_a_text_or_is_unknown_to_xml() {
        assert_eq!(
            escaped("<a b=\"c\">&\n\u{1b}[0m\u{ffff}ö"),
            "&lt;a b=&quot;c&quot;&gt;&amp;&#10;\u{fffd}[0m\u{fffd}ö"
        );
    }
}
