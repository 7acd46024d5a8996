//! Memory of a device that is not the host's: what the driver has given away is compared with what the host has of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crossdock::api::{Device, abi};
use crossdock::memory::Backend;

use super::super::case::{Case, Check, failed, ran, skipped};
use super::super::inside::{Called, visited};
use super::super::lent::{Counts, Written, batch};
use super::super::subject::Ground;
use super::super::tables::FORMS;
use super::super::tour;
use super::super::trees::trees;
use super::exporter;

pub const CASES: &[Case] = &[Case {
    name: "memory.device",
    rule: "Memory of a CUDA device is the host's: the driver is asked for none.",
    stands: "crossdock_memory.alloc",
    ground: &["memory.blocks", "memory.references", "importer.abandoned"],
    on_devices: true,
    check: device,
}];

/// What is taken in each of so many rounds, and never between them, is the plugin's doing and nobody else's.
const ROUNDS: usize = 3;

/// The most that was seen taken elsewhere, and where.
#[derive(Default)]
struct Most {
    bytes: u64,
    place: String,
}

/// Looks at what the driver has given away.
struct Look {
    backend: Backend,
    device: Device,
    most: Mutex<Most>,
}

impl Look {
    fn bytes(&self) -> Check<u64> {
        let bytes = self.backend.foreign_bytes(self.device);
        let bytes =
            bytes.map_err(|error| skipped(format!("the driver does not say what it has: {error}")))?;
        bytes.ok_or_else(|| skipped(format!("nothing was done on {}", self.device)))
    }

    fn at(&self, place: &str) {
        let Ok(bytes) = self.bytes() else { return };
        let mut most = self.most.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > most.bytes {
            *most = Most { bytes, place: place.into() };
        }
    }

    fn take(&self) -> Most {
        std::mem::take(&mut *self.most.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn device(ground: &Ground) -> Check {
    if ground.device.r#type != abi::DEVICE_CUDA {
        return Err(skipped("memory of the host is anybody's; on a CUDA device this is looked at"));
    }
    let look = Look { backend: ground.backend.clone(), device: ground.device, most: Mutex::default() };
    let look = Arc::new(look);
    // The first time loads what kernels there are, and starts what there is to start.
    ran(once(ground, &look)?, "reads, writes or decodes")?;
    let mut least = u64::MAX;
    let mut place = String::new();
    for _ in 0..ROUNDS {
        let (before, started) = (look.bytes()?, Instant::now());
        look.take();
        once(ground, &look)?;
        let most = look.take();
        ground.backend.settle();
        let left = look.bytes()?;
        std::thread::sleep(started.elapsed());
        if look.bytes()? != left {
            return Err(skipped(format!("others take and give back memory of {} too", ground.device)));
        }
        least = least.min(most.bytes.saturating_sub(before));
        place = most.place;
    }
    if least > 0 {
        let got = format!("{least} bytes that the driver gave somebody else");
        return Err(failed(place, format!("no memory of {} but the host's", ground.device), got));
    }
    Ok(())
}

/// An instance that reads, writes and decodes, looked at whenever it calls the host and whenever it returns; whether it did any of
/// these.
fn once(ground: &Ground, look: &Arc<Look>) -> Check<bool> {
    let own = look.clone();
    let visit = move |call: Called| own.at(&format!("in the host's '{}'", call.function));
    visited(Arc::new(visit), || {
        let subject = ground.subject()?;
        look.at("after create");
        let (call, mut has_run) = (subject.call(), false);
        for readable in tour::readable(ground, &subject).unwrap_or_default() {
            let Some(table) = ground.first_table(&subject, &readable, FORMS[0])? else { continue };
            let given = ground.table_for(&readable.taker, &table)?;
            let asked = tour::expected(&readable, &table.schema());
            let input = tour::input(&subject, &readable, &table.schema(), &given, &Counts::default());
            let open = |input| tour::open(&subject, &call, &readable.format, input, asked.as_ref());
            let Ok(mut stream) = input.and_then(open) else { continue };
            has_run = true;
            let mut batches = Vec::new();
            while let Ok(Some(batch)) = stream.next(&call) {
                batches.push(batch);
                look.at(&format!("'{}', after get_next", readable.format.name));
            }
        }
        for format in tour::writable(ground, &subject).unwrap_or_default() {
            for column in exporter::accepted(ground, &subject, &format, FORMS[0])?.iter().take(3) {
                let to = Arc::new(Written::default());
                let Ok(mut writer) = tour::begin(&subject, &call, &format, &column.schema(), &to) else {
                    continue;
                };
                has_run = true;
                let mut capsules = Vec::new();
                for own in ground.table_for(&format, column)? {
                    let own = batch(&own, subject.stream(), &Counts::default());
                    let own = own.map_err(|error| failed("the suite's own batch", "a batch", error))?;
                    capsules.extend(writer.write(&call, own).unwrap_or_default());
                    look.at(&format!("'{}', after write", format.name));
                }
                capsules.extend(writer.finish(&call).unwrap_or_default());
                look.at(&format!("'{}', after finish", format.name));
            }
        }
        for tree in trees(ground, &subject)? {
            let decoded = tree.decode_once(ground, &subject);
            look.at(&format!("{}, after decode", tree.place));
            drop(decoded);
            has_run = true;
        }
        Ok(has_run)
    })
}
