//! The subject of a test: an instance of the plugin with a host that watches it.

use std::mem::ManuallyDrop;

use crossdock::api::{
    CallSettings, CallStream, EncoderHandle, EncodingHandle, Error, ExporterHandle, ImporterHandle, Instance,
    OpenerHandle, abi,
};
use crossdock::memory::Backend;
use crossdock_memory::Stream;

use super::verdict::{Check, Stop, failed, not_offered};
use super::watch::Watch;

/// A watched instance.
pub struct Subject {
    instance: ManuallyDrop<Instance>,
    pub watch: Watch,
    stream: Stream,
    backend: Backend,
}

impl Subject {
    /// Calls the entry's `create`.
    ///
    /// # Safety
    /// As for [`Instance::create`].
    pub unsafe fn create(
        entry: &'static abi::PluginEntry,
        watch: Watch,
        stream: Stream,
        backend: &Backend,
    ) -> Result<Self, Error> {
        // SAFETY: the caller fulfils the requirements of `Instance::create`, and the host of a
        // `Watch` is valid.
        let instance = unsafe { Instance::create(entry, watch.as_ptr()) }?;
        Ok(Self { instance: ManuallyDrop::new(instance), watch, stream, backend: backend.clone() })
    }

    pub fn importer(&self) -> Check<ImporterHandle<'_>> {
        self.instance.importer().ok_or_else(|| not_offered("the plugin has no importer"))
    }

    pub fn exporter(&self) -> Check<ExporterHandle<'_>> {
        self.instance.exporter().ok_or_else(|| not_offered("the plugin has no exporter"))
    }

    pub fn encoding(&self) -> Check<EncodingHandle<'_>> {
        self.instance.encoding().ok_or_else(|| not_offered("the plugin has no encodings"))
    }

    pub fn encoder(&self) -> Check<EncoderHandle<'_>> {
        self.instance.encoder().ok_or_else(|| not_offered("the plugin encodes no columns"))
    }

    pub fn opener(&self) -> Check<OpenerHandle<'_>> {
        self.instance.opener().ok_or_else(|| not_offered("the plugin opens no URIs"))
    }

    /// A call on the case's device, with the subject's own stream.
    pub fn call(&self) -> CallSettings {
        // SAFETY: the stream lives as long as the subject, and calls are made through the subject's
        // instance.
        let stream = unsafe { CallStream::new(self.stream.raw()) };
        CallSettings { stream, ..CallSettings::new(self.stream.device()) }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Destroys the instance if its host has at most as many references as the host of `fresh`, an
    /// instance that exported nothing. If the host has more references, a host must keep the
    /// instance, so the function returns the subject.
    pub fn end_early(self, fresh: &Subject) -> Option<Subject> {
        (self.watch.references() > fresh.watch.references()).then_some(self)
    }

    /// Destroys the instance and returns its watch.
    pub fn end(self) -> Watch {
        self.watch
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // SAFETY: only `drop` drops the instance, and no code uses the instance afterwards.
        unsafe { ManuallyDrop::drop(&mut self.instance) };
        self.backend.settle();
        self.watch.end();
    }
}

/// Fails the case because the suite could not read an array or schema that the plugin returned.
pub fn invalid_array(place: &str) -> impl Fn(Error) -> Stop + '_ {
    move |error| failed(place, "a valid array", error)
}
