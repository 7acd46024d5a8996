//! `crossdock lock`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use crossdock::policy::{self, Locked, Policy};
use crossdock::{Error, Result};

use crate::answer::{Failure, answer};
use crate::{options, text};

#[derive(Args)]
#[command(after_help = "\
Writes the name, version, file and SHA-256 hash of each plugin that is found and may be loaded. A policy that says
  lock = \"crossdock.lock\"
lets none load whose hash is not in that file. --check compares it with what there is now, and is status 1 if they differ.")]
pub struct Lock {
    #[command(flatten)]
    plugins: options::PluginPaths,
    /// The lock file [default: the policy's lock, else crossdock.lock]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Writes nothing, and says what differs
    #[arg(long)]
    check: bool,
}

impl Lock {
    pub fn run(self) -> Result<(), Failure> {
        let mut policy = self.plugins.policy()?;
        // What it holds is what is asked here.
        let old = policy.lock.take();
        let file =
            self.output.clone().or(old.map(|lock| lock.file)).unwrap_or_else(|| "crossdock.lock".into());
        let new = policy::Lock::of(&file, self.find(policy)?);
        if self.check {
            let lines = differences(&policy::Lock::read(&file).map_err(Error::from)?, &new);
            if lines.is_empty() {
                return answer(&format!("'{}' has what there is", file.display()));
            }
            answer(&lines.join("\n"))?;
            return Err(Failure::No);
        }
        new.write()?;
        let row =
            |p: &Locked| vec![p.name.clone(), p.version.to_string(), p.file.clone(), p.sha256.to_string()];
        let rows: Vec<_> = new.plugins.iter().map(row).collect();
        let table = text::table(&["plugin", "version", "file", "sha256"], &rows, &[]);
        answer(&format!("{table}written to '{}'\n", file.display()))
    }

    /// The plugins that would be used.
    fn find(&self, policy: Policy) -> Result<Vec<Locked>> {
        let host = self.plugins.host(policy).build()?;
        let policy = host.catalog().policy();
        let lock = |path: &Path| {
            let plugin = crossdock::load::PluginFile::under(path, policy.clone());
            let inspection = plugin.inspect().map_err(|refused| Error::Refused(refused.into()))?;
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(Locked {
                name: inspection.metadata.name,
                version: inspection.metadata.version,
                file,
                sha256: inspection.fingerprint.sha256,
            })
        };
        host.catalog().chosen().filter_map(|(candidate, _)| candidate.path()).map(lock).collect()
    }
}

/// A line for each plugin that is not the same in both.
fn differences(old: &policy::Lock, new: &policy::Lock) -> Vec<String> {
    let mut all: BTreeMap<&str, (Vec<&Locked>, Vec<&Locked>)> = BTreeMap::new();
    old.plugins.iter().for_each(|plugin| all.entry(&plugin.name).or_default().0.push(plugin));
    new.plugins.iter().for_each(|plugin| all.entry(&plugin.name).or_default().1.push(plugin));
    let words = |plugins: &[&Locked]| {
        let each = plugins.iter().map(|plugin| format!("{} sha256:{}", plugin.version, plugin.sha256));
        each.collect::<Vec<_>>().join(" or ")
    };
    let line = |(name, (locked, found)): (&str, (Vec<&Locked>, Vec<&Locked>))| match found[..] {
        [] => Some(format!("{name}: locked, and not found")),
        _ if locked.is_empty() => Some(format!("{name}: not locked, found {}", words(&found))),
        [found] if locked.iter().any(|locked| locked.sha256 == found.sha256) => None,
        _ => Some(format!("{name}: locked {}, found {}", words(&locked), words(&found))),
    };
    all.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_locked_as_it_was_found_is_a_difference() {
        let plugin = |name: &str, digit: &str| Locked {
            name: name.into(),
            version: semver::Version::new(1, 0, 0),
            file: "x.so".into(),
            sha256: digit.repeat(64).parse().unwrap(),
        };
        let lock = |plugins: &[&Locked]| {
            policy::Lock::of("x.lock", plugins.iter().map(|plugin| (*plugin).clone()).collect())
        };
        let of = |old: &[&Locked], new: &[&Locked]| differences(&lock(old), &lock(new));
        let (one, two) = (plugin("a", "1"), plugin("a", "2"));
        let words = |digit: &str| format!("1.0.0 sha256:{}", digit.repeat(64));
        let (first, second) = (words("1"), words("2"));
        assert!(of(&[], &[]).is_empty());
        assert!(of(&[&one], &[&one]).is_empty());
        assert!(of(&[&two, &one], &[&one]).is_empty(), "any that is locked will do");
        assert_eq!(of(&[&one], &[]), ["a: locked, and not found"]);
        assert_eq!(of(&[], &[&one]), [format!("a: not locked, found {first}")]);
        assert_eq!(of(&[&one], &[&two]), [format!("a: locked {first}, found {second}")]);
        let both = [format!("a: locked {first}, found {first} or {second}")];
        assert_eq!(of(&[&one], &[&one, &two]), both);
    }
}
