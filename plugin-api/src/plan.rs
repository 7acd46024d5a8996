//! Plans of exports.

use std::fmt;

use crate::abi;
use crate::device::Device;
use crate::door::Poison;
use crate::error::Result;
use crate::owned::Owned;
use crate::sized_struct;

/// The plan for the export of one top-level column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPlan {
    /// The name of the column in the schema.
    pub name: String,
    /// What the export does with the bytes of the column.
    pub verdict: Verdict,
    /// The device of the exported bytes.
    pub to: Device,
    /// The conversion, or the reason why the export is not possible.
    pub reason: String,
}

/// What an export does with the bytes of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The export uses the existing bytes without a copy.
    ZeroCopy,
    /// The export converts the bytes to new ones on the same device.
    Converted,
    /// The export copies the bytes to another device without a conversion.
    Copied,
    /// The export is not possible.
    Unsupported,
}

const VERDICTS: [(Verdict, u32, &str); 4] = [
    (Verdict::ZeroCopy, abi::ZERO_COPY, "zero-copy"),
    (Verdict::Converted, abi::CONVERTED, "converted"),
    (Verdict::Copied, abi::COPIED, "copied"),
    (Verdict::Unsupported, abi::CANNOT, "unsupported"),
];

impl Verdict {
    fn raw(self) -> u32 {
        VERDICTS.iter().find(|(v, ..)| *v == self).map_or(abi::CANNOT, |(_, raw, _)| *raw)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(VERDICTS.iter().find(|(v, ..)| v == self).map_or("", |(.., text)| text))
    }
}

struct Table {
    raw: Vec<abi::ColumnPlan>,
    _columns: Vec<ColumnPlan>,
}

pub(crate) fn export_plan(columns: Vec<ColumnPlan>) -> Owned<abi::Plan> {
    let raw: Vec<_> = columns
        .iter()
        .map(|c| abi::ColumnPlan {
            struct_size: size_of::<abi::ColumnPlan>(),
            name: abi::Str::new(&c.name),
            verdict: c.verdict.raw(),
            reserved: 0,
            to: c.to,
            reason: abi::Str::new(&c.reason),
        })
        .collect();
    let mut plan = abi::Plan::new();
    plan.columns = raw.as_ptr();
    plan.n_columns = raw.len();
    plan.release = Some(release);
    // The pointers in the plan refer to the heap blocks of `raw` and `columns`. These blocks stay
    // in place when the `Vec`s are moved.
    plan.private_data = Box::into_raw(Box::new(Table { raw, _columns: columns })).cast();
    // SAFETY: this function created the plan with its release function, and there is no other copy
    // of it.
    unsafe { Owned::new(plan) }
}

unsafe extern "C" fn release(plan: *mut abi::Plan) {
    // SAFETY: only `export_plan` sets this function, with a boxed `Table` in `private_data`.
    // Clearing `release` ensures that this runs only once.
    unsafe {
        (*plan).release = None;
        let table = Box::from_raw((*plan).private_data.cast::<Table>());
        Poison::new().run_release(move || drop(table.raw));
    }
}

/// The maximum number of columns of a plan. A longer list is considered implausible and is
/// rejected.
const MAX_COLUMNS: usize = 1 << 20;

/// Copies the columns of a plan.
///
/// # Safety
/// The list and the strings of the plan are valid until its release.
pub(crate) unsafe fn read_plan(plan: Owned<abi::Plan>) -> Result<Vec<ColumnPlan>> {
    let read = |raw: abi::ColumnPlan| {
        let verdict = VERDICTS.iter().find(|(_, v, _)| *v == raw.verdict).map(|(v, ..)| *v);
        // SAFETY: the caller guarantees that the strings are valid until the plan is released,
        // which happens after this call.
        let (name, reason) = unsafe { (raw.name.get()?.to_string(), raw.reason.get()?.to_string()) };
        let unknown = || (Verdict::Unsupported, format!("unknown verdict {}: {reason}", raw.verdict));
        let (verdict, reason) = verdict.map(|verdict| (verdict, reason.clone())).unwrap_or_else(unknown);
        Ok(ColumnPlan { name, verdict, to: raw.to, reason })
    };
    // SAFETY: the caller guarantees that the list has `n_columns` columns.
    unsafe { sized_struct::read_list(plan.columns, plan.n_columns, MAX_COLUMNS, "columns of a plan", read) }
}
