//! A plugin that opens URIs of object stores and of HTTP servers: `s3://`, `gs://`, `az://`,
//! `http://` and others.
//!
//! A source is read in ranges. A large read is split into parts, which are requested in parallel; a
//! small read gets a whole block, which is kept for the next reads. All work of an instance runs on
//! one runtime, which the first URI starts.

mod blocks;
mod error;
mod settings;
mod source;
mod store;

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{
    ByteSource, Call, Error, Host, Opener, Options, Plugin, Result, crossdock_plugin,
};
use tokio::runtime::{Builder, Runtime};

use settings::Settings;
use source::ObjectSource;

const SCHEMES: [&str; 10] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https"];

crossdock_plugin!(
    ObjectStores,
    name: "object-store",
    description: "opens URIs of S3, Google Cloud Storage, Azure Blob Storage and HTTP servers",
    interfaces: "crossdock.opener/1",
    formats: "",
    schemes: "s3 s3a gs az azure abfs abfss adl http https",
);

/// An instance of the plugin.
pub struct ObjectStores {
    runtime: Mutex<Option<Runtime>>,
}

impl Plugin for ObjectStores {
    fn create(_host: Host) -> Result<Self> {
        Ok(Self { runtime: Mutex::default() })
    }

    fn opener(&self) -> Option<&dyn Opener> {
        Some(self)
    }
}

impl ObjectStores {
    /// The runtime's handle. The runtime is started at the first call, because many sessions open
    /// no URI.
    fn handle(&self) -> Result<tokio::runtime::Handle> {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let builder = &mut Builder::new_multi_thread();
        let builder = builder.worker_threads(2).thread_name("crossdock-object-store").enable_all();
        let new = builder
            .build()
            .map_err(|error| Error::io(format!("cannot start the threads for requests: {error}")))?;
        Ok(runtime.insert(new).handle().clone())
    }
}

impl Drop for ObjectStores {
    fn drop(&mut self) {
        // Does not wait for requests without an answer. Their results are not needed any more.
        if let Some(runtime) = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}

impl Opener for ObjectStores {
    fn schemes(&self) -> &[&'static str] {
        &SCHEMES
    }

    fn open(&self, call: &Call<'_>, uri: &str, options: &Options) -> Result<Arc<dyn ByteSource>> {
        call.check_cancelled()?;
        let settings = Settings::new(options)?;
        let location = store::locate(uri, &settings)?;
        Ok(Arc::new(ObjectSource::open(call, self.handle()?, location, &settings)?))
    }
}
