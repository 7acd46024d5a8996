//! Launches, held to the table of kernels.

use std::ffi::CStr;

use crossdock_plugin_api::abi;

use crate::table::{Kind, Row, TABLE};

/// Holds the arguments of a launch to the table, as a driver that has no device may: jobs whose heads lead from one to the
/// next, with the arguments that the kernel's row says, for as many blocks as there are. `None` for a kernel that is not in
/// the table.
pub fn check_launch(name: &CStr, blocks: u32, args: &[abi::Arg]) -> Option<Result<(), String>> {
    let row = TABLE.iter().find(|row| row.name == name)?;
    Some(row.check_jobs(blocks, args))
}

impl Row {
    fn check_jobs(&self, blocks: u32, mut args: &[abi::Arg]) -> Result<(), String> {
        let name = self.name.to_string_lossy();
        let mut before = 0;
        while let Some((head, rest)) = args.split_first() {
            let (n, end) = ((head.value >> 32) as usize, head.value as u32);
            let own = rest.get(..n.wrapping_sub(1));
            let Some(own) = own.filter(|own| head.kind == abi::ARG_VALUE && self.takes(own.len())) else {
                return Err(format!("{name}: a job of {n} of {} arguments", args.len()));
            };
            if end <= before || end > blocks {
                return Err(format!("{name}: a job for blocks {before}..{end} of {blocks}"));
            }
            let wrong =
                own.iter().enumerate().find(|(i, arg)| self.kind(*i).map(Kind::code) != Some(arg.kind));
            if let Some((i, arg)) = wrong {
                return Err(format!(
                    "{name}: argument {i} is of kind {}, expected {:?}",
                    arg.kind,
                    self.kind(i)
                ));
            }
            before = end;
            args = rest.get(own.len()..).unwrap_or(&[]);
        }
        if before == blocks { Ok(()) } else { Err(format!("{name}: {blocks} blocks for jobs of {before}")) }
    }
}
