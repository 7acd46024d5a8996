//! Plugins in processes of their own (docs/security.md, "Isolation"): this library's part of [`crossdock_isolation`].

use std::fs::File;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crossdock_isolation::{Decoder, HostLibrary, LoadedPlugin, PluginInstance};
use crossdock_memory::Stream;
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{
    Device, EncodingHandle, Error as ApiError, ExporterHandle, Format, ImporterHandle, Owned,
    Result as ApiResult, SessionSettings, abi,
};

#[cfg(fuzzing)]
#[doc(hidden)]
pub use crossdock_isolation::hostile;
pub use crossdock_isolation::{ARGUMENT, Deadlines, INHERITED, Program, serve_with};

pub use crate::policy::{Isolation, Which};

use crate::discovery::Search;
use crate::error::Error;
use crate::host::Host;
use crate::janitor;
use crate::load::Handed;
use crate::plugin::Plugin;
use crate::session::Session;
use crate::traced::{self, Maker};

/// Serves the host that started this process as [`Program`] says, over standard input, until that closes it. It gives up what a
/// plugin has no use for first: files, network, other processes. A process with rights that its caller need not have serves
/// nobody.
pub fn serve() -> ExitCode {
    crossdock_isolation::serve(Library)
}

/// This library, to the process of an isolated plugin.
struct Library;

impl HostLibrary for Library {
    fn stream(&self, device: Device) -> ApiResult<Stream> {
        let host = Host::builder().search(Search::nowhere()).build();
        let session = host.and_then(|host| host.session().device(device).open());
        session.map(|session| session.stream().clone()).map_err(|error| ApiError::device(error.one_line()))
    }

    fn load(&self, file: File, who: String, backend: Backend) -> ApiResult<Box<dyn LoadedPlugin>> {
        let search = Search::nowhere().handed(Handed::new(file, who));
        let host = Host::builder().search(search).backend(backend).build().map_err(internal)?;
        let name = host.plugins().next().map(|metadata| metadata.name.clone());
        let name = name.ok_or_else(|| ApiError::internal("the plugin was refused"))?;
        host.load(&name).map_err(internal)?;
        Ok(Box::new(Alone { host, name }))
    }

    fn settle_within(&self, time: Duration) {
        janitor::settle_within(time);
    }
}

/// A host with one plugin.
struct Alone {
    host: Host,
    name: String,
}

impl LoadedPlugin for Alone {
    fn stream(&self, device: Device) -> ApiResult<Stream> {
        let session = self.host.session().device(device).open().map_err(internal)?;
        Ok(session.stream().clone())
    }

    fn create(
        &self,
        device: Device,
        settings: SessionSettings,
        decoder: Arc<Decoder>,
    ) -> ApiResult<Box<dyn PluginInstance>> {
        let session = self.host.session().device(device).decoder(decoder).open().map_err(internal)?;
        let plugin = session.instance(&self.name, &self.name, settings).map_err(internal)?;
        Ok(Box::new(Served { plugin, _session: session }))
    }
}

/// An instance of it, in a session of its own.
struct Served {
    // Before the session in which it is.
    plugin: Arc<Plugin>,
    _session: Session,
}

impl PluginInstance for Served {
    fn account(&self) -> &Account {
        self.plugin.account()
    }

    fn importer_formats(&self) -> &[Format] {
        self.plugin.importer_formats()
    }

    fn exporter_formats(&self) -> &[Format] {
        self.plugin.exporter_formats()
    }

    fn encodings(&self) -> &[String] {
        self.plugin.encodings()
    }

    fn importer(&self) -> ApiResult<ImporterHandle<'_>> {
        self.plugin.importer().map_err(internal)
    }

    fn exporter(&self) -> ApiResult<ExporterHandle<'_>> {
        self.plugin.exporter().map_err(internal)
    }

    fn encoding(&self) -> Option<EncodingHandle<'_>> {
        self.plugin.encoding()
    }

    fn given(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch> {
        traced::crossing(batch, self.plugin.account(), Maker::Plugin)
    }

    fn taken(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch> {
        traced::crossing(batch, self.plugin.account(), Maker::Host)
    }
}

/// The host's error as a plugin's, with the plugin's own code where it has one.
fn internal(error: Error) -> ApiError {
    match error {
        Error::Plugin { source, .. } => source,
        other => ApiError::unsupported(other.one_line()),
    }
}
