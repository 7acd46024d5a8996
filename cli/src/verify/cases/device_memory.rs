//! Checks that the plugin allocates device memory only from the host, and not from the driver.
//! Compares the memory in use according to the driver with the memory that the host allocated.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crossdock::api::{Device, abi};
use crossdock::memory::Backend;

use super::super::case::{Case, Check, failed, require_input, skipped};
use super::super::context::CaseContext;
use super::super::counted_objects::{ReleaseCounts, batch};
use super::super::encoded_trees::trees;
use super::super::host_calls::{HostCall, with_visitor};
use super::super::round_trip;
use super::super::tables::FORMS;
use super::super::test_io::TestSink;
use super::exporter;

pub const CASES: &[Case] = &[Case {
    name: "memory.device",
    rule: "The plugin allocates memory of a CUDA device only from the host, never from the driver.",
    spec_ref: "crossdock_memory.alloc",
    depends_on: &["memory.blocks", "memory.references", "importer.abandoned"],
    on_devices: true,
    check: device,
}];

/// The number of rounds. Memory that is in use in every round but not between rounds is attributed
/// to the plugin.
const ROUNDS: usize = 3;

/// The maximum of the measured external memory in bytes, and the call in which it was measured.
#[derive(Default)]
struct Peak {
    bytes: u64,
    place: String,
}

/// Measures the device memory in use that the host did not allocate.
struct Meter {
    backend: Backend,
    device: Device,
    peak: Mutex<Peak>,
}

impl Meter {
    fn bytes(&self) -> Check<u64> {
        let bytes = self.backend.external_bytes(self.device);
        let bytes =
            bytes.map_err(|error| skipped(format!("the driver does not report its memory: {error}")))?;
        bytes.ok_or_else(|| skipped(format!("{} was not used", self.device)))
    }

    fn measure(&self, place: &str) {
        let Ok(bytes) = self.bytes() else { return };
        let mut peak = self.peak.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > peak.bytes {
            *peak = Peak { bytes, place: place.into() };
        }
    }

    /// Returns the peak and resets it to 0.
    fn take_peak(&self) -> Peak {
        std::mem::take(&mut *self.peak.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn device(context: &CaseContext) -> Check {
    if context.device.r#type != abi::DEVICE_CUDA {
        return Err(skipped("only memory of a CUDA device is measured"));
    }
    let meter = Meter { backend: context.backend.clone(), device: context.device, peak: Mutex::default() };
    let meter = Arc::new(meter);
    // The first round also loads kernels and initialises libraries.
    require_input(run_once(context, &meter)?, "reads, writes or decodes")?;
    let mut least = u64::MAX;
    let mut place = String::new();
    for _ in 0..ROUNDS {
        let (before, started) = (meter.bytes()?, Instant::now());
        meter.take_peak();
        run_once(context, &meter)?;
        let peak = meter.take_peak();
        context.backend.settle();
        let after = meter.bytes()?;
        std::thread::sleep(started.elapsed());
        if meter.bytes()? != after {
            return Err(skipped(format!("another process changes the memory in use on {}", context.device)));
        }
        least = least.min(peak.bytes.saturating_sub(before));
        place = peak.place;
    }
    if least > 0 {
        let got = format!("{least} bytes from the driver");
        return Err(failed(place, format!("only the host's memory on {}", context.device), got));
    }
    Ok(())
}

/// Reads, writes and decodes with a new instance. Measures the external memory during each call to
/// the host and after each of the plugin's functions returns. Returns whether there was any input.
fn run_once(context: &CaseContext, meter: &Arc<Meter>) -> Check<bool> {
    let visitor_meter = meter.clone();
    let visitor = move |call: HostCall| visitor_meter.measure(&format!("in the host's '{}'", call.function));
    with_visitor(Arc::new(visitor), || {
        let subject = context.subject()?;
        meter.measure("after create");
        let (call, mut has_run) = (subject.call(), false);
        for readable in round_trip::readable(context, &subject).unwrap_or_default() {
            let Some(table) = context.first_table(&subject, &readable, FORMS[0])? else { continue };
            let batches = context.table_for(&readable.batch_format, &table)?;
            let expected_schema = round_trip::expected_schema(&readable, &table.schema());
            let input =
                round_trip::input(&subject, &readable, &table.schema(), &batches, &ReleaseCounts::default());
            let open =
                |input| round_trip::open(&subject, &call, &readable.format, input, expected_schema.as_ref());
            let Ok(mut stream) = input.and_then(open) else { continue };
            has_run = true;
            let mut batches = Vec::new();
            while let Ok(Some(batch)) = stream.next(&call) {
                batches.push(batch);
                meter.measure(&format!("'{}', after get_next", readable.format.name));
            }
        }
        for format in round_trip::writable(context, &subject).unwrap_or_default() {
            for column in exporter::accepted(context, &subject, &format, FORMS[0])?.iter().take(3) {
                let sink = Arc::new(TestSink::default());
                let Ok(mut writer) = round_trip::begin(&subject, &call, &format, &column.schema(), &sink)
                else {
                    continue;
                };
                has_run = true;
                let mut capsules = Vec::new();
                for device_batch in context.table_for(&format, column)? {
                    let exported = batch(&device_batch, subject.stream(), &ReleaseCounts::default());
                    let exported =
                        exported.map_err(|error| failed("the suite's own batch", "a batch", error))?;
                    capsules.extend(writer.write(&call, exported).unwrap_or_default());
                    meter.measure(&format!("'{}', after write", format.name));
                }
                capsules.extend(writer.finish(&call).unwrap_or_default());
                meter.measure(&format!("'{}', after finish", format.name));
            }
        }
        for tree in trees(context, &subject)? {
            let decoded = tree.decode_once(context, &subject);
            meter.measure(&format!("{}, after decode", tree.place));
            drop(decoded);
            has_run = true;
        }
        Ok(has_run)
    })
}
