//! Checks launches against the table of kernels.

use std::ffi::CStr;

use crossdock_plugin_api::abi;

use crate::table::{Kind, Row, TABLE};

/// Checks the arguments of a launch, for a simulated driver: each head leads to the head of the
/// next job, the arguments match the kernel's row, and the jobs cover all blocks. Returns `None`
/// for a kernel that is not in the table.
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
            let job = rest.get(..n.wrapping_sub(1));
            let Some(job) = job.filter(|job| head.kind == abi::ARG_VALUE && self.accepts(job.len())) else {
                return Err(format!("{name}: a job has {n} of the remaining {} arguments", args.len()));
            };
            if end <= before || end > blocks {
                return Err(format!(
                    "{name}: a job has blocks {before}..{end}, but the launch has {blocks} blocks"
                ));
            }
            let wrong =
                job.iter().enumerate().find(|(i, arg)| self.kind(*i).map(Kind::code) != Some(arg.kind));
            if let Some((i, arg)) = wrong {
                return Err(format!(
                    "{name}: argument {i} is of kind {}, expected {:?}",
                    arg.kind,
                    self.kind(i)
                ));
            }
            before = end;
            args = rest.get(job.len()..).unwrap_or(&[]);
        }
        if before == blocks {
            Ok(())
        } else {
            Err(format!("{name}: the launch has {blocks} blocks, but the jobs have {before} blocks"))
        }
    }
}
