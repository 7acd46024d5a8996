//! Finds the columns that are decoded on the CPU, although their values are needed on a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_arrays::import_field_ref;
use crossdock_plugin_api::{Device, EncodedArray};

use super::plan::Step;

/// The encodings that a session decodes on the CPU. They are only noted while a plan is made,
/// because the names of columns are not needed otherwise.
#[derive(Default)]
pub(crate) struct HostDecodes {
    is_watched: AtomicBool,
    columns: Mutex<Columns>,
    /// Held by the plan that is being made.
    watching: Mutex<()>,
}

/// The encodings by the name of the column.
type Columns = BTreeMap<String, BTreeSet<String>>;

/// Notes encodings until it is dropped. Includes those of other reads of the session that run at
/// the same time.
pub(crate) struct Watch<'a> {
    decodes: &'a HostDecodes,
    _guard: MutexGuard<'a, ()>,
}

impl HostDecodes {
    pub(crate) fn watch(&self) -> Watch<'_> {
        let guard = lock(&self.watching);
        lock(&self.columns).clear();
        self.is_watched.store(true, Ordering::Relaxed);
        Watch { decodes: self, _guard: guard }
    }

    /// Notes the nodes that are decoded on the CPU for another device. The name of the root's type
    /// is the name of the column.
    pub(super) fn note(&self, array: &EncodedArray, steps: &[Step<'_>], wanted: Device) {
        if wanted == Device::CPU || !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        let (mut encodings, mut below_until) = (BTreeSet::new(), 0);
        for (index, step) in steps.iter().enumerate() {
            let Step::Decoded(step) = step else { continue };
            // The descendants of a node on the CPU are on the CPU only because of this node.
            if index < below_until || step.device != Device::CPU || step.rows.is_empty() {
                continue;
            }
            if let Ok(node) = array.node(index) {
                encodings.insert(node.encoding().to_owned());
                below_until = node.end();
            }
        }
        if encodings.is_empty() {
            return;
        }
        // SAFETY: `EncodedArray` checked the tree: each node's schema lives as long as the array.
        let field = array.root().and_then(|root| unsafe { import_field_ref(root.schema()?) });
        if let Ok(field) = field {
            lock(&self.columns).entry(field.name().clone()).or_default().extend(encodings);
        }
    }
}

impl Watch<'_> {
    /// The encodings of a column that were decoded on the CPU so far.
    pub(crate) fn encodings(&self, column: &str) -> Vec<String> {
        lock(&self.decodes.columns).get(column).into_iter().flatten().cloned().collect()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.decodes.is_watched.store(false, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
