//! Checks type ids and offsets of unions.

use crossdock_memory::{Buffer, Error, Result};

use crate::Checks;
use crate::jobs::{JobArg, long_blocks};
use crate::limits::NO_CHILD;
use crate::rows::CHECK_UNION;

/// Number of type ids, which are 0 to 127.
const IDS: usize = 128;

impl<'a> Checks<'a> {
    /// Finds the first invalid value of `len` values, from value `first` on. A value is invalid if
    /// its type id is unknown or, in a dense union (`offsets`), if its offset is outside of its
    /// child. `children` has the type id and the length of each child.
    pub fn union(
        &mut self,
        type_ids: &'a Buffer,
        offsets: Option<&'a Buffer>,
        first: usize,
        len: usize,
        children: &[(i8, usize)],
    ) -> Result<usize> {
        let mut lens = [NO_CHILD; IDS];
        let mut ids = 0;
        for (id, len) in children {
            let id = usize::try_from(*id).map_err(|_| {
                Error::bad_data(format!("a union's type id is {id}, expected 0 to {}", IDS - 1))
            })?;
            if let Some(slot) = lens.get_mut(id) {
                *slot = *len as u64;
            }
            ids = ids.max(id + 1);
        }
        let cell = self.cells(1);
        let offsets = match offsets {
            Some(buffer) => JobArg::Read(buffer, first.saturating_mul(4), len.saturating_mul(4)),
            None => JobArg::Read(type_ids, 0, 0),
        };
        let args = [JobArg::Read(type_ids, first, len), offsets, JobArg::Cells(cell, 1)];
        let lens = lens.iter().take(ids).map(|len| JobArg::Value(*len));
        self.push(&CHECK_UNION, long_blocks(len.saturating_mul(4)), args.into_iter().chain(lens))?;
        Ok(cell)
    }
}
