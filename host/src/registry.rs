//! Chooses the plugin and the format for an input or an output: by name, first bytes, or file
//! extension.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_plugin_api::Format;

use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::sink::STANDARD_OUTPUT;

/// The maximum number of bytes from the start of an input, and from its end, by which its format is
/// recognised.
pub(crate) const MAX_MAGIC_BYTES: u64 = 4096;

/// A plugin and one of its formats.
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

/// The direction in which a format is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The format is read.
    In,
    /// The format is written.
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

    /// The text of the option that selects a format, without the value: `format=` in Python,
    /// `--from ` or `--to ` on the command line.
    fn option(self) -> &'static str {
        match self {
            _ if is_python() => "format=",
            Way::In => "--from ",
            Way::Out => "--to ",
        }
    }
}

/// Whether errors name arguments of Python instead of flags of the command.
static IS_PYTHON: AtomicBool = AtomicBool::new(false);

/// Makes errors name arguments of Python (`format=`) instead of flags of the command (`--from`).
pub fn use_python_arguments() {
    IS_PYTHON.store(true, Ordering::Relaxed);
}

fn is_python() -> bool {
    IS_PYTHON.load(Ordering::Relaxed)
}

/// The formats of a session's plugins, in the plugins' order of precedence.
pub struct Registry<'a> {
    plugins: &'a [Arc<Plugin>],
}

impl<'a> Registry<'a> {
    pub(crate) fn new(plugins: &'a [Arc<Plugin>]) -> Self {
        Self { plugins }
    }

    /// All formats of one direction.
    pub fn formats(&self, way: Way) -> impl Iterator<Item = Choice> {
        self.plugins.iter().flat_map(move |plugin| {
            way.formats(plugin).iter().map(|format| Choice { plugin: plugin.clone(), format: format.clone() })
        })
    }

    /// The numbers of bytes from the start and from the end of an input that suffice to check the
    /// magic numbers of all formats.
    pub(crate) fn magic_bytes(&self) -> (usize, usize) {
        let (mut head, mut tail) = (0, 0);
        for choice in self.formats(Way::In) {
            for (offset, magic) in &choice.format.magics {
                let distance = offset.unsigned_abs();
                let (longest, bytes) = match offset {
                    0.. => (&mut head, distance.saturating_add(magic.len() as u64)),
                    _ => (&mut tail, distance),
                };
                if bytes <= MAX_MAGIC_BYTES {
                    *longest = bytes.max(*longest);
                }
            }
        }
        (head as usize, tail as usize)
    }

    /// Returns the formats that `name` selects: first the format with this name, then all other
    /// formats of a plugin with this name.
    fn named(&self, name: &str, way: Way, option: &str) -> Result<Vec<Choice>> {
        let (mut hits, rest): (Vec<_>, Vec<_>) = self.formats(way).partition(|c| c.format.name == name);
        hits.extend(rest.into_iter().filter(|c| c.plugin.name() == name));
        if !hits.is_empty() {
            return Ok(hits);
        }
        if self.plugins.iter().any(|plugin| plugin.name() == name) {
            return Err(Error::usage(format!(
                "{option}{name}: the plugin '{name}' {} no format",
                way.verb()
            )));
        }
        let known = self.formats(way).map(|c| c.format.name).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".into() } else { known };
        Err(Error::usage(format!(
            "{option}{name}: no plugin or format has this name; expected one of the formats that a plugin {}: \
             {known}",
            way.verb()
        )))
    }

    /// Chooses the format of bytes to read. The candidates are the formats that `wanted` selects,
    /// or all formats. The input's first and last bytes decide; `tail` is empty if the last bytes
    /// are unknown. If they do not decide, the extension of the input's name decides. If the
    /// extension does not decide either, the only candidate is chosen.
    pub fn choose_input(&self, wanted: Option<&str>, head: &[u8], tail: &[u8], name: &str) -> Result<Choice> {
        let all = self.candidates(wanted, Way::In)?;
        let longest = |c: &Choice| c.format.longest_match(head, tail);
        let best = all.iter().map(longest).max().unwrap_or(0);
        if let Some(wanted) = wanted {
            self.check_bytes(wanted, &all, best, (head, tail), name)?;
        }
        if best > 0 {
            let hits = all.iter().filter(|c| longest(c) == best).cloned().collect();
            return one(hits, &format!("the first or last bytes of '{name}' match"), Way::In);
        }
        self.by_extension(&all, wanted, name, Way::In)?.ok_or_else(|| {
            let known = texts(&all, with_extensions);
            Error::Unrecognised(format!(
                "no plugin recognises '{name}': expected the first bytes or the extension of one of these formats: \
                 {known}; pass {}NAME",
                Way::In.option()
            ))
        })
    }

    /// Compares the format that the caller named with the input's first bytes. If these bytes are
    /// the magic number of another format, the named format is rejected if it has magic numbers. If
    /// it has no magic numbers, the input is read and a warning is logged.
    fn check_bytes(
        &self,
        wanted: &str,
        all: &[Choice],
        best: usize,
        (head, tail): (&[u8], &[u8]),
        name: &str,
    ) -> Result<()> {
        if best > 0 {
            return Ok(());
        }
        let Some(other) = self.formats(Way::In).find(|c| c.format.bytes && c.format.matches(head, tail))
        else {
            return Ok(());
        };
        let option = Way::In.option();
        let mismatch = format!("the first bytes of '{name}' are those of {}", other.format.name);
        if all.iter().all(|c| !c.format.magics.is_empty()) {
            return Err(Error::usage(format!(
                "{option}{wanted}: {mismatch}; omit the option, or pass {option}{}",
                other.format.name
            )));
        }
        tracing::warn!("{mismatch}, but it is read as {wanted} because of {option}{wanted}");
        Ok(())
    }

    /// Chooses the format of bytes to write. The candidates are the formats that `wanted` selects,
    /// or all formats. The output's extension decides; standard output has the extension "-". If
    /// the extension does not decide, the only candidate is chosen.
    pub fn choose_output(&self, wanted: Option<&str>, name: &str) -> Result<Choice> {
        let all = self.candidates(wanted, Way::Out)?;
        self.by_extension(&all, wanted, name, Way::Out)?.ok_or_else(|| {
            let known = texts(&all, with_extensions);
            Error::usage(format!(
                "cannot tell the format of the output '{name}' from its extension; pass {}NAME, with one of: {known}",
                Way::Out.option()
            ))
        })
    }

    /// Chooses a format that one plugin both writes and reads. The order of preference is: a format
    /// of capsules for the device, a format of bytes, and a format of capsules for other devices,
    /// to which the host moves batches.
    pub fn choose_via(&self, wanted: &str, device_type: i32) -> Result<Choice> {
        let named = self.named(wanted, Way::Out, "--via ")?;
        let both = |c: &&Choice, kind: fn(&Format) -> bool| {
            let back = c.plugin.importer_formats().iter().find(|f| f.name == c.format.name);
            kind(&c.format) && back.is_some_and(kind)
        };
        let capsules = || named.iter().filter(|c| both(c, |f| !f.capsules.is_empty()));
        let on_device = capsules().find(|c| c.format.accepts_device(device_type));
        let choice =
            on_device.or_else(|| named.iter().find(|c| both(c, |f| f.bytes))).or_else(|| capsules().next());
        choice.cloned().ok_or_else(|| {
            Error::usage(format!("--via {wanted}: expected a format that its plugin both writes and reads"))
        })
    }

    /// Chooses the format of capsules that `wanted` selects: the format with this name, or the
    /// first format of the plugin with this name that accepts the device.
    pub fn choose_capsules(&self, wanted: &str, way: Way, device_type: i32) -> Result<Choice> {
        let named = self.named(wanted, way, "format ")?;
        let capsules = || named.iter().filter(|c| !c.format.capsules.is_empty());
        let choice = capsules().find(|c| c.format.accepts_device(device_type)).or_else(|| capsules().next());
        choice.cloned().ok_or_else(|| {
            Error::usage(format!(
                "format {wanted}: the format {} bytes, not capsules; use a path, a source or a sink",
                way.verb()
            ))
        })
    }

    /// Chooses the format of bytes or of capsules that `wanted` selects for export: the format with
    /// this name, or the first format of the plugin with this name that accepts the device.
    pub fn choose_export(&self, wanted: &str, device_type: i32) -> Result<Choice> {
        let option = if is_python() { "to=" } else { "--to " };
        let named = self.named(wanted, Way::Out, option)?;
        let first = named.first().cloned();
        let on_device = named.into_iter().find(|c| c.format.accepts_device(device_type));
        on_device
            .or(first)
            .ok_or_else(|| Error::usage(format!("{option}{wanted}: the plugin writes no format")))
    }

    fn candidates(&self, wanted: Option<&str>, way: Way) -> Result<Vec<Choice>> {
        let all: Vec<_> = match wanted {
            Some(name) => self.named(name, way, way.option())?,
            None => self.formats(way).collect(),
        };
        let mut bytes: Vec<_> = all.into_iter().filter(|c| c.format.bytes).collect();
        // A plugin that the user chose has precedence over an installed one with the same format.
        let chosen = bytes.iter().filter(|c| !c.plugin.is_installed());
        let chosen: Vec<_> = chosen.map(|c| c.format.name.clone()).collect();
        bytes.retain(|c| !c.plugin.is_installed() || !chosen.contains(&c.format.name));
        // If a format has exactly this name, the other formats of its plugin are not considered.
        if let Some(name) = wanted
            && bytes.iter().any(|c| c.format.name == name)
        {
            bytes.retain(|c| c.format.name == name);
        }
        match wanted {
            Some(name) if bytes.is_empty() => {
                let via = match is_python() {
                    true => String::new(),
                    false => format!("; to convert through it, use --via {name}"),
                };
                Err(Error::usage(format!(
                    "{}{name}: the format passes batches through capsules, in memory, not through files{via}",
                    way.option()
                )))
            }
            _ => Ok(bytes),
        }
    }

    fn by_extension(
        &self,
        all: &[Choice],
        wanted: Option<&str>,
        name: &str,
        way: Way,
    ) -> Result<Option<Choice>> {
        let hits: Vec<_> = all
            .iter()
            .filter(|c| c.format.extensions.iter().any(|extension| has_extension(name, extension)))
            .cloned()
            .collect();
        if !hits.is_empty() {
            return one(hits, &format!("the extension of '{name}' matches"), way).map(Some);
        }
        Ok(match all {
            [only] if wanted.is_some() => Some(only.clone()),
            _ => None,
        })
    }
}

/// Whether a file name has this extension. The extension "-" means standard output.
fn has_extension(name: &str, extension: &str) -> bool {
    match extension {
        "" => false,
        STANDARD_OUTPUT => name == STANDARD_OUTPUT,
        _ => name.ends_with(extension),
    }
}

fn one(mut hits: Vec<Choice>, why: &str, way: Way) -> Result<Choice> {
    match hits.len() {
        1 => Ok(hits.remove(0)),
        _ => Err(Error::usage(format!(
            "{why} several formats: {}; pass {}NAME",
            texts(&hits, |c| format!("{} of {}", c.format.name, c.plugin.name())),
            way.option()
        ))),
    }
}

fn with_extensions(choice: &Choice) -> String {
    match choice.format.extensions.as_slice() {
        [] => choice.format.name.clone(),
        extensions => format!("{} ({})", choice.format.name, extensions.join(" ")),
    }
}

/// Advice for a user whose plugin was not found.
pub(crate) fn search_advice() -> &'static str {
    match is_python() {
        true => "pass plugins= to Session to search more folders",
        false => "`crossdock plugins --explain` lists the searched paths",
    }
}

fn texts(choices: &[Choice], text: impl Fn(&Choice) -> String) -> String {
    if choices.is_empty() {
        return format!("none, because no plugin was found ({})", search_advice());
    }
    choices.iter().map(text).collect::<Vec<_>>().join(", ")
}
