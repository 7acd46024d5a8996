//! Reads from a file to the device, and writes from the device.

use std::sync::Arc;

use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_schema, import_batch, import_schema};
use crossdock_plugin_api::{ByteSource, CallSettings, Device, Input, Options, ReadRequest, Sink};

use super::bench::Bench;
use super::data::{self, NullSink};
use crate::Result;

/// Reads all batches of the file to the device.
pub fn batches(bench: &Bench, source: &Arc<dyn ByteSource>) -> Result<Vec<DeviceBatch>> {
    let mut batches = Vec::new();
    each_batch(bench, source, |batch| batches.push(batch.clone()))?;
    Ok(batches)
}

/// Reads all batches of the file, and waits until their arrays are ready on the device.
pub fn read(bench: &Bench, source: &Arc<dyn ByteSource>) -> Result<()> {
    each_batch(bench, source, |_| ())
}

/// Copies batches to pageable host memory.
pub fn to_arrays(bench: &Bench, batches: &[DeviceBatch]) -> Result<()> {
    let stream = bench.session.memory().default_stream(bench.gpu)?;
    for batch in batches {
        drop(batch.move_to(&stream, Device::CPU)?);
    }
    Ok(())
}

/// Writes batches to a sink in Arrow IPC format.
pub fn to_sink(bench: &Bench, batches: &[DeviceBatch], codec: &str) -> Result<()> {
    let Some(first) = batches.first() else { return Ok(()) };
    let stream = bench.session.memory().default_stream(bench.gpu)?;
    let plugin = bench.session.plugin("arrow-ipc")?;
    let call = CallSettings::new(bench.gpu);
    let options = Options::new().with("compression", codec);
    let schema = export_schema(first.schema())?;
    let sink = Some(Sink::new(Box::new(NullSink)));
    let mut writer = plugin.exporter()?.begin(&call, "arrow-ipc-stream", &schema, &options, sink)?;
    for batch in batches {
        writer.write(&call, export_batch(batch, false, &stream)?)?;
    }
    writer.finish(&call)?;
    Ok(())
}

/// Reads all batches, and waits until they are ready on the device.
fn each_batch(bench: &Bench, source: &Arc<dyn ByteSource>, mut f: impl FnMut(&DeviceBatch)) -> Result<()> {
    let memory = bench.session.memory();
    let stream = memory.default_stream(bench.gpu)?;
    let plugin = bench.session.plugin("arrow-ipc")?;
    let call = CallSettings::new(bench.gpu);
    let input = Input::Source(data::share(source));
    let mut reader = plugin.importer()?.open(&call, input, &ReadRequest::new("arrow-ipc-file"))?;
    let schema = Arc::new(import_schema(&reader.schema()?)?);
    while let Some(batch) = reader.next(&call)? {
        let batch = import_batch(batch, &schema, memory)?;
        for buffer in batch.columns().iter().flat_map(DeviceArray::buffers).flatten() {
            stream.wait(buffer.ready())?;
        }
        f(&batch);
    }
    Ok(stream.synchronize()?)
}
