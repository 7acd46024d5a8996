//! Chooses a format of capsules once, for callers that pass many small objects.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use crossdock_plugin_api::{Capsule, Format, Input, Options};

use crate::error::Result;
use crate::plugin::Plugin;
use crate::reader::{Columns, Reader};
use crate::registry::{Choice, Registry, Way};
use crate::selection::Request;
use crate::session::Session;
use crate::writer::Writer;

/// A format of capsules in a session. Choosing a format takes time. All later reads and writes use
/// the chosen instance of the plugin.
#[derive(Clone)]
pub struct CapsuleFormat {
    session: Session,
    plugin: Arc<Plugin>,
    format: Format,
    name: Arc<str>,
    what: Arc<str>,
}

impl Session {
    /// Returns the format of capsules that `wanted` names. `wanted` is the name of a format or a
    /// plugin.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) if no format of capsules has this name.
    pub fn capsule_format(&self, wanted: &str, way: Way) -> Result<CapsuleFormat> {
        let device_type = self.device().r#type;
        let choose = |registry: &Registry<'_>| registry.choose_capsules(wanted, way, device_type);
        let Choice { plugin, format } = self.choose(Some(wanted), choose)?;
        let plugin = self.working_instance(plugin)?;
        let what = match way {
            Way::In => format!("read capsules as {}", format.name),
            Way::Out => format!("write batches as {}", format.name),
        };
        let name = format.name.as_str().into();
        Ok(CapsuleFormat { session: self.clone(), plugin, format, name, what: what.into() })
    }
}

impl CapsuleFormat {
    /// The plugin that reads or writes the format.
    pub fn plugin(&self) -> &Arc<Plugin> {
        &self.plugin
    }

    /// Whether the plugin's instance can still be called. After a panic, the instance cannot be
    /// called. Choosing the format again returns a new instance.
    pub fn is_usable(&self) -> bool {
        !self.plugin.is_poisoned()
    }

    /// The description of the format.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Returns the same format, with `plugin` as the instance of its plugin.
    pub(crate) fn with_plugin(self, plugin: Arc<Plugin>) -> Self {
        Self { plugin, ..self }
    }

    /// Opens external objects. `schema` is required if the format's objects do not contain a
    /// schema.
    pub fn read(&self, capsules: Vec<Capsule>, schema: Option<&Schema>, options: &Options) -> Result<Reader> {
        self.open(capsules, schema.map_or(Columns::Unknown, Columns::Expected), options)
    }

    fn open(&self, capsules: Vec<Capsule>, columns: Columns<'_>, options: &Options) -> Result<Reader> {
        let (session, input) = (&self.session, Input::Capsules(capsules.into()));
        let call = session.call_for_structs();
        let (name, what) = (self.name.clone(), self.what.clone());
        Reader::open(
            session,
            self.plugin.clone(),
            call,
            name,
            input,
            columns,
            options,
            &mut Request::default(),
            what,
        )
    }

    /// Creates a writer that exports batches of `schema`.
    pub fn write(&self, schema: &SchemaRef, options: &Options) -> Result<Writer> {
        let (plugin, format) = (self.plugin.clone(), self.format.clone());
        Writer::begin(&self.session, plugin, format, schema, options, None, self.what.to_string())
    }
}
