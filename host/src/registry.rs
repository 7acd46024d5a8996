//! Which plugin reads or writes what: by name, by the first bytes, by the file's ending.

use std::sync::Arc;

use crossdock_plugin_api::Format;

use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::sink::STANDARD_OUTPUT;

/// How much of an input is looked at to recognise it.
pub(crate) const HEAD_BYTES: u64 = 4096;

/// A plugin, and which of its formats.
#[derive(Clone)]
pub struct Choice {
    /// The plugin.
    pub plugin: Arc<Plugin>,
    /// The format.
    pub format: Format,
}

impl std::fmt::Debug for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.format.name, self.plugin)
    }
}

/// Which way a format is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Read.
    In,
    /// Written.
    Out,
}

impl Way {
    fn formats(self, plugin: &Plugin) -> &[Format] {
        match self {
            Way::In => plugin.importer_formats(),
            Way::Out => plugin.exporter_formats(),
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Way::In => "reads",
            Way::Out => "writes",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Way::In => "--from",
            Way::Out => "--to",
        }
    }
}

/// All formats of a session's plugins, in the plugins' order of precedence.
pub struct Registry<'a> {
    plugins: &'a [Arc<Plugin>],
}

impl<'a> Registry<'a> {
    pub(crate) fn new(plugins: &'a [Arc<Plugin>]) -> Self {
        Self { plugins }
    }

    /// Every format that is used this way.
    pub fn formats(&self, way: Way) -> impl Iterator<Item = Choice> {
        self.plugins.iter().flat_map(move |plugin| {
            way.formats(plugin).iter().map(|format| Choice { plugin: plugin.clone(), format: format.clone() })
        })
    }

    /// How many of an input's first bytes tell all formats apart.
    pub(crate) fn head_bytes(&self) -> usize {
        let end = |(offset, magic): &(u64, Vec<u8>)| offset.saturating_add(magic.len() as u64);
        let ends = self.formats(Way::In).flat_map(|c| c.format.magics.iter().map(end).collect::<Vec<_>>());
        ends.filter(|end| *end <= HEAD_BYTES).max().unwrap_or(0) as usize
    }

    /// Those that `name` means: a format's name, then all others of a plugin of that name.
    fn named(&self, name: &str, way: Way, option: &str) -> Result<Vec<Choice>> {
        let (mut hits, rest): (Vec<_>, Vec<_>) = self.formats(way).partition(|c| c.format.name == name);
        hits.extend(rest.into_iter().filter(|c| c.plugin.name() == name));
        if !hits.is_empty() {
            return Ok(hits);
        }
        if self.plugins.iter().any(|plugin| plugin.name() == name) {
            return Err(Error::usage(format!("{option} {name}: this plugin {} no format", way.verb())));
        }
        let known = self.formats(way).map(|c| c.format.name).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".into() } else { known };
        Err(Error::usage(format!(
            "{option} {name}: no plugin or format has this name; formats that a plugin {}: {known}",
            way.verb()
        )))
    }

    /// The format of bytes to read: among those that `wanted` names, or all, by the input's first bytes, then by its
    /// name's ending, then as the only one there is.
    pub fn choose_input(&self, wanted: Option<&str>, head: &[u8], name: &str) -> Result<Choice> {
        let all = self.candidates(wanted, Way::In)?;
        let longest = |c: &Choice| {
            let hits = c.format.magics.iter().filter(|(offset, magic)| {
                usize::try_from(*offset)
                    .ok()
                    .and_then(|o| head.get(o..))
                    .is_some_and(|rest| rest.starts_with(magic))
            });
            hits.map(|(_, magic)| magic.len()).max().unwrap_or(0)
        };
        let best = all.iter().map(longest).max().unwrap_or(0);
        if let Some(wanted) = wanted {
            self.check_bytes(wanted, &all, best, head, name)?;
        }
        if best > 0 {
            let hits = all.iter().filter(|c| longest(c) == best).cloned().collect();
            return one(hits, &format!("the first bytes of '{name}' are those of"), Way::In);
        }
        self.by_ending(&all, wanted, name, Way::In)?.ok_or_else(|| {
            let known = texts(&all, with_endings);
            Error::Unrecognised(format!(
                "no plugin recognises '{name}': expected the first bytes or the ending of one of its formats ({known}), or \
                 --from"
            ))
        })
    }

    /// What was asked for against what the first bytes say: a format that is known by its bytes is refused where they are
    /// another's, and one that is not is read with a warning.
    fn check_bytes(&self, wanted: &str, all: &[Choice], best: usize, head: &[u8], name: &str) -> Result<()> {
        if best > 0 {
            return Ok(());
        }
        let Some(other) = self.formats(Way::In).find(|c| c.format.bytes && c.format.matches(head)) else {
            return Ok(());
        };
        let says = format!("the first bytes of '{name}' are those of {}", other.format.name);
        if all.iter().all(|c| !c.format.magics.is_empty()) {
            return Err(Error::usage(format!(
                "--from {wanted}: {says}; leave --from out, or say --from {}",
                other.format.name
            )));
        }
        tracing::warn!("{says}, and it is read as {wanted} as --from says");
        Ok(())
    }

    /// The format of bytes to write: among those that `wanted` names, or all, by the output's ending ("-" for standard
    /// output), then as the only one there is.
    pub fn choose_output(&self, wanted: Option<&str>, name: &str) -> Result<Choice> {
        let all = self.candidates(wanted, Way::Out)?;
        self.by_ending(&all, wanted, name, Way::Out)?.ok_or_else(|| {
            let known = texts(&all, with_endings);
            Error::usage(format!("what to write to '{name}' is unclear: name a format with --to: {known}"))
        })
    }

    /// A format that a plugin both writes and reads: one of capsules for the device, else one of bytes, else one of capsules
    /// for other devices, to and from which the host moves batches.
    pub fn choose_via(&self, wanted: &str, device_type: i32) -> Result<Choice> {
        let named = self.named(wanted, Way::Out, "--via")?;
        let both = |c: &&Choice, kind: fn(&Format) -> bool| {
            let back = c.plugin.importer_formats().iter().find(|f| f.name == c.format.name);
            kind(&c.format) && back.is_some_and(kind)
        };
        let capsules = || named.iter().filter(|c| both(c, |f| !f.capsules.is_empty()));
        let here = capsules().find(|c| c.format.takes(device_type));
        let found =
            here.or_else(|| named.iter().find(|c| both(c, |f| f.bytes))).or_else(|| capsules().next());
        found.cloned().ok_or_else(|| {
            Error::usage(format!("--via {wanted}: it has no format that it both writes and reads"))
        })
    }

    /// The format of capsules that `wanted` means: the one of that name, or the plugin's first one that takes the device.
    pub fn choose_capsules(&self, wanted: &str, way: Way, device_type: i32) -> Result<Choice> {
        let named = self.named(wanted, way, "the format")?;
        let capsules = || named.iter().filter(|c| !c.format.capsules.is_empty());
        let found = capsules().find(|c| c.format.takes(device_type)).or_else(|| capsules().next());
        found.cloned().ok_or_else(|| {
            Error::usage(format!(
                "the format {wanted}: it {} bytes, and no capsules: use a path, a source or a sink",
                way.verb()
            ))
        })
    }

    /// The format of any kind that `wanted` means for export: the format of that name, or the plugin's first one that
    /// takes the device.
    pub fn choose_export(&self, wanted: &str, device_type: i32) -> Result<Choice> {
        let named = self.named(wanted, Way::Out, "--to")?;
        let first = named.first().cloned();
        let takes = named.into_iter().find(|c| c.format.takes(device_type));
        takes.or(first).ok_or_else(|| Error::usage(format!("--to {wanted}: it writes no format")))
    }

    fn candidates(&self, wanted: Option<&str>, way: Way) -> Result<Vec<Choice>> {
        let all: Vec<_> = match wanted {
            Some(name) => self.named(name, way, way.option())?,
            None => self.formats(way).collect(),
        };
        let mut bytes: Vec<_> = all.into_iter().filter(|c| c.format.bytes).collect();
        // A format of exactly this name leaves the others of its plugin out.
        if let Some(name) = wanted
            && bytes.iter().any(|c| c.format.name == name)
        {
            bytes.retain(|c| c.format.name == name);
        }
        match wanted {
            Some(name) if bytes.is_empty() => Err(Error::usage(format!(
                "{} {name}: it speaks through capsules, in memory, and not through files; --via {name} goes through it",
                way.option()
            ))),
            _ => Ok(bytes),
        }
    }

    fn by_ending(
        &self,
        all: &[Choice],
        wanted: Option<&str>,
        name: &str,
        way: Way,
    ) -> Result<Option<Choice>> {
        let hits: Vec<_> = all
            .iter()
            .filter(|c| c.format.endings.iter().any(|ending| claims(ending, name)))
            .cloned()
            .collect();
        if !hits.is_empty() {
            return one(hits, &format!("the ending of '{name}' is that of"), way).map(Some);
        }
        Ok(match all {
            [only] if wanted.is_some() => Some(only.clone()),
            _ => None,
        })
    }
}

/// Whether a format with this ending is meant by this name. "-" is no ending: it stands for standard output.
fn claims(ending: &str, name: &str) -> bool {
    match ending {
        "" => false,
        STANDARD_OUTPUT => name == STANDARD_OUTPUT,
        _ => name.ends_with(ending),
    }
}

fn one(mut hits: Vec<Choice>, why: &str, way: Way) -> Result<Choice> {
    match hits.len() {
        1 => Ok(hits.remove(0)),
        _ => Err(Error::usage(format!(
            "{why} several formats: {}; choose one with {}",
            texts(&hits, |c| format!("{} of {}", c.format.name, c.plugin.name())),
            way.option()
        ))),
    }
}

fn with_endings(choice: &Choice) -> String {
    match choice.format.endings.as_slice() {
        [] => choice.format.name.clone(),
        endings => format!("{} ({})", choice.format.name, endings.join(" ")),
    }
}

fn texts(choices: &[Choice], text: impl Fn(&Choice) -> String) -> String {
    if choices.is_empty() {
        return "no plugin was found: see crossdock plugins --explain".into();
    }
    choices.iter().map(text).collect::<Vec<_>>().join(", ")
}
