//! Opens URIs through plugins.

use std::path::Path;
use std::sync::Arc;

use crossdock_plugin_api::{ByteSource, Code, Error as ApiError, Map, Options, Result as ApiResult, Source};

use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::session::Session;
use crate::source::Input;
use crate::uri::{scheme_of, without_secrets};

/// The plugin that opens well-known schemes, and these schemes.
const WELL_KNOWN: (&str, [&str; 10]) =
    ("object-store", ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https"]);

impl Session {
    /// Opens a URI with the first plugin that opens its scheme. `options` are the plugin's, for
    /// example credentials.
    ///
    /// # Errors
    /// [`Error::Usage`] if no plugin opens the scheme, or if the plugin is isolated;
    /// [`Error::Refused`] if the plugin cannot be loaded; [`Error::Plugin`] if it cannot open the
    /// URI.
    pub fn open_uri(&self, uri: &str, options: &Options) -> Result<Input> {
        let scheme = scheme_of(uri).ok_or_else(|| {
            Error::usage(format!("'{}': expected a URI, such as https://host/path", without_secrets(uri)))
        })?;
        let name = self.opener_of(&scheme).ok_or_else(|| self.no_opener(uri, &scheme))?;
        self.check_cancelled()?;
        let plugin = self.working_plugin(&name)?;
        let shown = without_secrets(uri);
        if plugin.is_isolated() {
            return Err(Error::usage(format!(
                "cannot open '{shown}': the plugin '{name}' runs in a process of its own, which has no access to \
                 the network: exclude it from the isolated plugins"
            )));
        }
        let account = plugin.account();
        let call = self.call_for_bytes();
        let opener = plugin.opener()?;
        let opened = account.trace_host_call("opener.open", || opener.open(&call, uri, options));
        let source = opened.map_err(|error| plugin.failed(format!("open '{shown}'"), error))?;
        Ok(Input::Bytes(Arc::new(OpenedSource { map: source.map(), source, plugin })))
    }

    /// Opens a path, or a URI if a plugin opens its scheme. A path that begins like a URI, of a
    /// scheme that no plugin opens, is a path if the file exists. `options` are those of URIs.
    ///
    /// # Errors
    /// The errors of [`Session::open_uri`] and [`Input::open`]; [`Error::Usage`] if there are
    /// options for a path.
    pub fn open_input(&self, location: impl AsRef<Path>, options: &Options) -> Result<Input> {
        let path = location.as_ref();
        if let Some((uri, scheme)) = path.to_str().and_then(|text| Some((text, scheme_of(text)?)))
            && (self.opener_of(&scheme).is_some() || !path.exists())
        {
            return self.open_uri(uri, options);
        }
        if let Some((key, _)) = options.iter().next() {
            return Err(Error::usage(format!(
                "'{}' is a path, and the storage option '{key}' applies only to URIs",
                path.display()
            )));
        }
        Input::open(path, self.cancel_flag())
    }

    /// Whether [`Session::open_input`] opens this text as a URI and not as a path.
    pub fn is_uri(&self, text: &str) -> bool {
        scheme_of(text).is_some_and(|scheme| self.opener_of(&scheme).is_some() || !Path::new(text).exists())
    }

    /// The name of the first plugin whose metadata has the scheme.
    fn opener_of(&self, scheme: &str) -> Option<String> {
        let has = |schemes: &[String]| schemes.iter().any(|known| known == scheme);
        let mut plugins = self.host().plugins();
        plugins.find(|metadata| has(&metadata.schemes)).map(|metadata| metadata.name.clone())
    }

    fn no_opener(&self, uri: &str, scheme: &str) -> Error {
        let shown = without_secrets(uri);
        let advice = crate::registry::search_advice();
        let (plugin, well_known) = WELL_KNOWN;
        if scheme == "file" {
            return Error::usage(format!("cannot open '{shown}': pass the path without 'file://'"));
        }
        if well_known.contains(&scheme) {
            return Error::usage(format!(
                "cannot open '{shown}': no plugin opens {scheme}:// URIs: install the plugin '{plugin}' ({advice})"
            ));
        }
        let known: Vec<_> = self.host().plugins().flat_map(|metadata| metadata.schemes.clone()).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        Error::usage(format!(
            "cannot open '{shown}': it is no file, and no plugin opens {scheme}:// URIs; expected one of the schemes \
             that a plugin opens: {known} ({advice})"
        ))
    }
}

/// A source that a plugin opened.
struct OpenedSource {
    // The source and its mapping are dropped before the instance that they belong to.
    map: Option<Map>,
    source: Source,
    plugin: Arc<Plugin>,
}

impl ByteSource for OpenedSource {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn len(&self) -> Option<u64> {
        self.source.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> ApiResult<usize> {
        let read = || self.source.read_at(offset, to);
        let result = self.plugin.account().trace_host_call("source.read_at", read);
        result.map_err(|error| {
            self.plugin.note_panic(&error);
            // The caller is another plugin, which must not seem to have panicked.
            let code = if error.code() == Code::PANICKED { Code::INTERNAL } else { error.code() };
            ApiError::new(code, format!("{}: {}", self.plugin, error.message()))
        })
    }

    fn map(&self) -> Option<&[u8]> {
        self.map.as_ref().map(Map::bytes)
    }

    fn version(&self) -> &str {
        self.source.version()
    }
}
