//! From a file to the device, and from the device back.

use std::path::Path;
use std::sync::Arc;

use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_schema, import_batch, import_schema};
use crossdock_plugin_api::{ByteSource, CallSettings, Device, Input, Options, Sink};

use super::data::{self, Nowhere, Wish};
use super::{Bench, speed};
use crate::Result;

/// GB/s from the file to arrays that are ready on the device; `None` where the file cannot be had so.
pub fn read(bench: &Bench, path: &Path, bytes: u64, wish: Wish) -> Result<Option<f64>> {
    let Some(source) = data::source(bench, path, wish)? else { return Ok(None) };
    speed(bench.runs, bytes, || each_batch(bench, &source, |_| Ok(()))).map(Some)
}

/// GB/s from arrays on the device to arrays in ordinary memory, and to a sink of Arrow IPC.
pub fn back(bench: &Bench, path: &Path, bytes: u64, codec: &str) -> Result<(f64, f64)> {
    let Some(source) = data::source(bench, path, Wish::Mapped)? else { return Err("no file".into()) };
    let mut batches = Vec::new();
    each_batch(bench, &source, |batch| {
        batches.push(batch.clone());
        Ok(())
    })?;
    let stream = bench.session.memory().default_stream(bench.gpu)?;
    let arrays = speed(bench.runs, bytes, || {
        for batch in &batches {
            drop(batch.move_to(&stream, Device::CPU)?);
        }
        Ok(())
    })?;
    let plugin = bench.session.plugin("arrow-ipc")?;
    let call = CallSettings::new(bench.gpu);
    let options = Options::new().with("compression", codec);
    let ipc = speed(bench.runs, bytes, || {
        let Some(first) = batches.first() else { return Ok(()) };
        let schema = export_schema(first.schema())?;
        let sink = Some(Sink::new(Box::new(Nowhere)));
        let mut writer = plugin.exporter()?.begin(&call, "arrow-ipc-stream", &schema, &options, sink)?;
        for batch in &batches {
            writer.write(&call, export_batch(batch, false, &stream)?)?;
        }
        writer.finish(&call)?;
        Ok(())
    })?;
    Ok((arrays, ipc))
}

/// Reads all of it; returns when the last batch is there.
fn each_batch(
    bench: &Bench,
    source: &Arc<dyn ByteSource>,
    mut f: impl FnMut(&DeviceBatch) -> Result<()>,
) -> Result<()> {
    let memory = bench.session.memory();
    let stream = memory.default_stream(bench.gpu)?;
    let plugin = bench.session.plugin("arrow-ipc")?;
    let call = CallSettings::new(bench.gpu);
    let input = Input::Source(data::share(source));
    let mut reader = plugin.importer()?.open(&call, "arrow-ipc-file", input, None, &Options::new())?;
    let schema = Arc::new(import_schema(&reader.schema()?)?);
    while let Some(batch) = reader.next(&call)? {
        let batch = import_batch(batch, &schema, memory)?;
        for buffer in batch.columns().iter().flat_map(DeviceArray::buffers).flatten() {
            stream.wait(buffer.ready())?;
        }
        f(&batch)?;
    }
    Ok(stream.synchronize()?)
}
