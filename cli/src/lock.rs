//! `crossdock lock`: writes or checks a lock file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use crossdock::policy::{self, Locked, Policy};
use crossdock::{Error, Result};

use crate::output::{Failure, write_output};
use crate::{options, text};

#[derive(Args)]
#[command(after_help = "\
The lock file has the name, version, file and SHA-256 hash of each plugin that is found and may be loaded. A policy with
  lock = \"crossdock.lock\"
allows only plugins whose hash is in that file. --check compares the file with the present plugins. The exit
status is 1 if they differ.")]
pub struct Lock {
    #[command(flatten)]
    plugins: options::PluginArgs,
    /// The lock file [default: the policy's lock, else crossdock.lock]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Prints the differences from the lock file, and writes nothing
    #[arg(long)]
    check: bool,
}

impl Lock {
    pub fn run(self) -> Result<(), Failure> {
        let mut policy = self.plugins.policy()?;
        // The old lock is removed from the policy. Otherwise it would exclude all plugins that it
        // does not contain.
        let old = policy.lock.take();
        let file =
            self.output.clone().or(old.map(|lock| lock.file)).unwrap_or_else(|| "crossdock.lock".into());
        let new = policy::Lock::new(&file, self.find(policy)?);
        if self.check {
            let lines = differences(&policy::Lock::read(&file).map_err(Error::from)?, &new);
            if lines.is_empty() {
                return write_output(&format!("'{}' is up to date", file.display()));
            }
            write_output(&lines.join("\n"))?;
            return Err(Failure::Negative);
        }
        new.write()?;
        let row =
            |p: &Locked| vec![p.name.clone(), p.version.to_string(), p.file.clone(), p.sha256.to_string()];
        let rows: Vec<_> = new.plugins.iter().map(row).collect();
        let table = text::table(&["plugin", "version", "file", "sha256"], &rows, &[]);
        write_output(&format!("{table}written to '{}'\n", file.display()))
    }

    /// Returns the lock entries of the plugins that a host with this policy would use.
    fn find(&self, policy: Policy) -> Result<Vec<Locked>> {
        let host = self.plugins.host(policy).build()?;
        let policy = host.catalog().policy();
        let lock = |path: &Path| {
            let plugin = crossdock::load::PluginFile::with_policy(path, policy.clone());
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

/// Returns one line for each plugin that differs between the two locks.
fn differences(old: &policy::Lock, new: &policy::Lock) -> Vec<String> {
    let mut all: BTreeMap<&str, (Vec<&Locked>, Vec<&Locked>)> = BTreeMap::new();
    old.plugins.iter().for_each(|plugin| all.entry(&plugin.name).or_default().0.push(plugin));
    new.plugins.iter().for_each(|plugin| all.entry(&plugin.name).or_default().1.push(plugin));
    let describe = |plugins: &[&Locked]| {
        let each = plugins.iter().map(|plugin| format!("{} sha256:{}", plugin.version, plugin.sha256));
        each.collect::<Vec<_>>().join(" or ")
    };
    let line = |(name, (locked, present)): (&str, (Vec<&Locked>, Vec<&Locked>))| match present[..] {
        [] => Some(format!("{name}: locked, but not found")),
        _ if locked.is_empty() => Some(format!("{name}: not locked, found {}", describe(&present))),
        [present] if locked.iter().any(|locked| locked.sha256 == present.sha256) => None,
        _ => Some(format!("{name}: locked {}, found {}", describe(&locked), describe(&present))),
    };
    all.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_comparison_lists_missing_unlocked_and_changed_plugins() {
        let plugin = |name: &str, digit: &str| Locked {
            name: name.into(),
            version: semver::Version::new(1, 0, 0),
            file: "x.so".into(),
            sha256: digit.repeat(64).parse().unwrap(),
        };
        let lock = |plugins: &[&Locked]| {
            policy::Lock::new("x.lock", plugins.iter().map(|plugin| (*plugin).clone()).collect())
        };
        let between = |old: &[&Locked], new: &[&Locked]| differences(&lock(old), &lock(new));
        let (one, two) = (plugin("a", "1"), plugin("a", "2"));
        let described = |digit: &str| format!("1.0.0 sha256:{}", digit.repeat(64));
        let (first, second) = (described("1"), described("2"));
        assert!(between(&[], &[]).is_empty());
        assert!(between(&[&one], &[&one]).is_empty());
        assert!(between(&[&two, &one], &[&one]).is_empty(), "one of several locked hashes is present");
        assert_eq!(between(&[&one], &[]), ["a: locked, but not found"]);
        assert_eq!(between(&[], &[&one]), [format!("a: not locked, found {first}")]);
        assert_eq!(between(&[&one], &[&two]), [format!("a: locked {first}, found {second}")]);
        let both = [format!("a: locked {first}, found {first} or {second}")];
        assert_eq!(between(&[&one], &[&one, &two]), both);
    }
}
