//! Reads changed bytes and runs all operations of a host on the result.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, export_batch, first_difference, format_batch, import_batch};
use crossdock_arrow_c_device::ArrowCDevice;
use crossdock_memory::{Device, Result};
use crossdock_plugin_api::{CallSettings, Input, Options, Plugin, ReadRequest, Validate};

use crate::common::{CODECS, FORMS, Rig, SOURCE_KINDS};
use crate::mutate::Mutator;

const DEVICES: [Device; 2] = [Device::CPU, Device::UNTOUCHABLE];
/// The maximum number of batches that are used. No unchanged input has more batches, but a change
/// may repeat batches.
const MAX_BATCHES: usize = 16;

pub struct Fixture {
    rig: Rig,
    c_device: ArrowCDevice,
}

impl Fixture {
    pub fn new() -> Self {
        let rig = Rig::new();
        let c_device = ArrowCDevice::create(rig.host.host()).unwrap();
        Self { rig, c_device }
    }

    /// Runs a case. Returns whether the bytes could be read.
    pub fn case(&self, bytes: &[u8], mutator: &mut Mutator) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.try_case(bytes, mutator))).unwrap_or(false)
    }

    fn try_case(&self, bytes: &[u8], mutator: &mut Mutator) -> bool {
        let mut settings = CallSettings::new(mutator.choose(&DEVICES));
        settings.validate = if mutator.one_in(3) { Validate::Full } else { Validate::Layout };
        let source_kind = mutator.choose(&SOURCE_KINDS);
        let Ok((schema, mut batches)) = self.rig.read_with(bytes, source_kind, &settings) else {
            return false;
        };
        batches.truncate(MAX_BATCHES);
        for batch in &batches {
            // Errors are ignored, because changed bytes may be invalid.
            let _ = self.use_batch(batch, mutator);
        }
        let (form, codec) = (mutator.choose(&FORMS), mutator.choose(&CODECS));
        let _ = self.rig.write(&schema, &batches, form, codec);
        let _ = self.through_c_device(&schema, &batches, &settings, form);
        true
    }

    fn use_batch(&self, batch: &DeviceBatch, mutator: &mut Mutator) -> Result<()> {
        let stream = self.rig.host.stream(batch.device());
        let start = mutator.below(batch.len().min(40) + 1);
        let part = batch.slice(start, mutator.below((batch.len() - start).min(40) + 1))?;
        let other = if batch.device() == Device::CPU { Device::UNTOUCHABLE } else { Device::CPU };
        let _ = part.move_to(&stream, other);
        let _ = part.compact(&stream);
        let _ = batch.move_to(&stream, other);
        let _ = format_batch(&part, 10, &stream);
        let _ = first_difference(&part, &part.compact(&stream)?, &stream);
        let schema = part.schema().clone();
        let again = import_batch(export_batch(&part, false, &stream)?, &schema, &self.rig.host.memory())?;
        let _ = self.rig.write(&schema, &[again], mutator.choose(&FORMS), mutator.choose(&CODECS));
        Ok(())
    }

    /// Passes batches through Arrow structs, which have no buffer sizes. The host computes the
    /// sizes from the contents, which may be malformed.
    fn through_c_device(
        &self,
        schema: &SchemaRef,
        batches: &[DeviceBatch],
        settings: &CallSettings,
        form: &str,
    ) -> Result<()> {
        let (exporter, importer) = (self.c_device.exporter().unwrap(), self.c_device.importer().unwrap());
        let raw = crossdock_arrays::export_schema(schema)?;
        let options = Options::new();
        let mut writer =
            settings.enter(|call| exporter.begin(call, "arrow-c-device", &raw, &options, None))?;
        let mut capsules = Vec::new();
        for batch in batches {
            let raw = export_batch(batch, false, &self.rig.host.stream(batch.device()))?;
            capsules.extend(settings.enter(|call| writer.write(call, raw))?);
        }
        capsules.extend(settings.enter(|call| writer.finish(call))?);
        let input = Input::Capsules(capsules.into());
        let mut stream = settings.enter(|call| {
            importer.open(call, input, &ReadRequest::new("arrow-c-device").with_options(&options))
        })?;
        let mut back = Vec::new();
        while let Some(batch) = settings.enter(|call| stream.next(call))? {
            back.push(import_batch(batch, schema, &self.rig.host.memory())?);
        }
        self.rig.write(schema, &back, form, "none").map(drop)
    }

    /// The sum of the peaks of all devices, in bytes.
    pub fn peak_bytes(&self) -> usize {
        let ledger = self.rig.host.backend().ledger();
        ledger.accounts.iter().flat_map(|a| &a.devices).map(|d| d.peak_bytes as usize).sum()
    }

    /// Descriptions of the blocks that leaked.
    pub fn leaks(&self) -> impl Iterator<Item = String> {
        self.rig.host.backend().leaks().into_iter().map(|leak| format!("leaked: {leak}"))
    }
}
