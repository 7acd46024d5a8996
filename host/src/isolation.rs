//! Implements the host's side of [`crossdock_isolation`]: plugins in separate processes
//! (docs/security.md, "Isolation").

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
pub use crossdock_isolation::{Deadlines, INHERITED_VARIABLES, Program, SERVE_ARGUMENT, serve_with};

pub use crate::policy::{Isolation, Which};

use crate::discovery::Search;
use crate::error::Error;
use crate::host::Host;
use crate::load::PassedFile;
use crate::plugin::Plugin;
use crate::reclaimer;
use crate::session::Session;
use crate::tracing_hooks::{self, Producer};

/// Serves the host that started this process, over standard input, until the host closes it.
/// [`Program`] describes how the host starts the process. First, this function drops the rights
/// that a plugin does not need: access to files, the network and other processes. A privileged
/// process refuses to serve.
pub fn serve() -> ExitCode {
    crossdock_isolation::serve(Library)
}

/// The functions of this library that the process of an isolated plugin calls.
struct Library;

impl HostLibrary for Library {
    fn stream(&self, device: Device) -> ApiResult<Stream> {
        let host = Host::builder().search(Search::nowhere()).build();
        let session = host.and_then(|host| host.session().device(device).open());
        session.map(|session| session.stream().clone()).map_err(|error| ApiError::device(error.one_line()))
    }

    fn load(&self, file: File, label: String, backend: Backend) -> ApiResult<Box<dyn LoadedPlugin>> {
        let search = Search::nowhere().handed(PassedFile::new(file, label));
        let host = Host::builder().search(search).backend(backend).build().map_err(internal)?;
        let name = host.plugins().next().map(|metadata| metadata.name.clone());
        let name = name.ok_or_else(|| ApiError::internal("the plugin was refused in its process"))?;
        host.load(&name).map_err(internal)?;
        Ok(Box::new(SinglePluginHost { host, name }))
    }

    fn settle_within(&self, time: Duration) {
        reclaimer::settle_within(time);
    }
}

/// A host with one plugin.
struct SinglePluginHost {
    host: Host,
    name: String,
}

impl LoadedPlugin for SinglePluginHost {
    fn stream(&self, device: Device) -> ApiResult<Stream> {
        let session = self.host.session().device(device).open().map_err(internal)?;
        Ok(session.stream().clone())
    }

    fn create(
        &self,
        device: Device,
        settings: SessionSettings,
        decoder: Arc<dyn Decoder>,
    ) -> ApiResult<Box<dyn PluginInstance>> {
        let session = self.host.session().device(device).decoder(decoder).threads(settings.threads);
        let session = session.open().map_err(internal)?;
        let plugin = session.instance(&self.name, &self.name, settings).map_err(internal)?;
        Ok(Box::new(Served { plugin, _session: session }))
    }
}

/// An instance of the plugin, in its own session.
struct Served {
    // The plugin is dropped before its session.
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

    fn batch_from_plugin(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch> {
        tracing_hooks::batch(batch, self.plugin.account(), Producer::Plugin)
    }

    fn batch_to_plugin(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch> {
        tracing_hooks::batch(batch, self.plugin.account(), Producer::Host)
    }
}

/// Converts an error of the host to an error of the plugin interface. An error that the plugin
/// reported keeps its code.
fn internal(error: Error) -> ApiError {
    match error {
        Error::Plugin { source, .. } => source,
        other => ApiError::unsupported(other.one_line()),
    }
}
