//! What an export would do to each column.

use std::fmt;

use crate::abi;
use crate::door::Poison;
use crate::error::Result;
use crate::owned::Owned;
use crate::told;
use crate::words::Device;

/// One column's fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPlan {
    /// As the schema has it.
    pub name: String,
    /// What happens to its bytes.
    pub verdict: Verdict,
    /// Where they are afterwards.
    pub to: Device,
    /// By what, or why.
    pub reason: String,
}

/// What happens to a column's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They stay where they are.
    ZeroCopy,
    /// New bytes on the same device.
    Converted,
    /// The same bytes elsewhere.
    Copied,
    /// It cannot be done.
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
    // Moving the Vecs into the Box leaves their heap blocks, and so the pointers into them, where they are.
    plan.private_data = Box::into_raw(Box::new(Table { raw, _columns: columns })).cast();
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(plan) }
}

unsafe extern "C" fn release(plan: *mut abi::Plan) {
    // SAFETY: set by `export_plan` only; released once because `release` is cleared.
    unsafe {
        (*plan).release = None;
        let table = Box::from_raw((*plan).private_data.cast::<Table>());
        Poison::new().leave(move || drop(table.raw));
    }
}

/// More than any table has columns.
const MOST: usize = 1 << 20;

/// # Safety
/// The plan's list and strings are valid until it is released.
pub(crate) unsafe fn read_plan(plan: Owned<abi::Plan>) -> Result<Vec<ColumnPlan>> {
    let read = |raw: abi::ColumnPlan| {
        let verdict = VERDICTS.iter().find(|(_, v, _)| *v == raw.verdict).map(|(v, ..)| *v);
        // SAFETY: the caller's word.
        let (name, reason) = unsafe { (raw.name.get()?.to_string(), raw.reason.get()?.to_string()) };
        let unknown =
            || (Verdict::Unsupported, format!("verdict {} of a later release: {reason}", raw.verdict));
        let (verdict, reason) = verdict.map(|verdict| (verdict, reason.clone())).unwrap_or_else(unknown);
        Ok(ColumnPlan { name, verdict, to: raw.to, reason })
    };
    // SAFETY: as above.
    unsafe { told::list(plan.columns, plan.n_columns, MOST, "columns of a plan", read) }
}
