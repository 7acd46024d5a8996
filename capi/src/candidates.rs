//! `crossdock_host_candidates`: what was found, and what became of it.

use std::os::unix::ffi::OsStrExt;

use crossdock::discovery::Candidate as Found;
use crossdock::load::{FAILED, Refusal, Refused};
use crossdock::metadata::Metadata;
use crossdock::{Error as HostError, Session};
use crossdock_plugin_api::{Error, Owned, Result, abi as api};

use crate::abi::{CANDIDATE_CHOSEN, CANDIDATE_REFUSED, CANDIDATE_SHADOWED, Candidate, Candidates};
use crate::host::HostHandle;
use crate::lists::{self, Holder, Texts};
use crate::{arguments, door, error};

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_candidates(
    host: *mut HostHandle,
    load: u32,
    out: *mut Candidates,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &HostHandle| {
        // SAFETY: the caller's out parameter.
        unsafe { arguments::place(out) }?;
        let load = match load {
            0 => false,
            1 => true,
            other => return Err(Error::invalid_argument(format!("load is {other}, expected 0 or 1"))),
        };
        let candidates = list(handle, load)?;
        // SAFETY: the caller's out parameter.
        unsafe { candidates.put(out, "crossdock_host_candidates") }
    };
    // SAFETY: the caller's handle and error struct.
    unsafe { door::with(host, err, body) }
}

fn list(handle: &HostHandle, load: bool) -> Result<Owned<Candidates>> {
    let session = match load {
        true => Some(handle.host.session().open().map_err(error::of_host)?),
        false => None,
    };
    let catalog = handle.host.catalog();
    let mut texts = Texts::default();
    let rows = catalog.candidates.iter().map(|found| row(found, session.as_ref(), &mut texts)).collect();
    let warnings = catalog.warnings.iter().map(|warning| texts.keep(warning)).collect();
    let holder = Holder::new(rows, warnings, texts);
    let (candidates, n_candidates) = holder.rows();
    let (warnings, n_warnings) = holder.more();
    let raw = Candidates {
        struct_size: size_of::<Candidates>(),
        candidates,
        n_candidates,
        warnings,
        n_warnings,
        release: Some(lists::release::<Candidates>),
        private_data: Box::into_raw(holder).cast(),
    };
    // SAFETY: made above; nobody else has it.
    Ok(unsafe { Owned::new(raw) })
}

fn row(found: &Found, session: Option<&Session>, texts: &mut Texts) -> Candidate {
    let mut row = Candidate {
        struct_size: size_of::<Candidate>(),
        path: match found.path() {
            Some(path) => texts.keep_bytes(path.as_os_str().as_bytes()),
            None => texts.keep(&found.who()),
        },
        origin: texts.keep(&found.origin.to_string()),
        status: CANDIDATE_CHOSEN,
        ..Candidate::default()
    };
    match &found.metadata {
        Ok(metadata) => {
            describe(&mut row, metadata, texts);
            match session.map(|session| session.plugin(&metadata.name)) {
                None | Some(Ok(_)) => {}
                Some(Err(HostError::Refused(refused))) => refuse(&mut row, &refused, texts),
                Some(Err(error)) => {
                    row.status = CANDIDATE_REFUSED;
                    row.reason = texts.keep(FAILED);
                    row.message = texts.keep(&error.one_line());
                }
            }
        }
        Err(refused) => {
            // It may say who it is, refused or not.
            if let Some(says) = found.inspect() {
                describe(&mut row, &says.metadata, texts);
            }
            refuse(&mut row, refused, texts);
        }
    }
    row
}

fn describe(row: &mut Candidate, metadata: &Metadata, texts: &mut Texts) {
    row.name = texts.keep(&metadata.name);
    row.version = texts.keep(&metadata.version.to_string());
    row.description = texts.keep(&metadata.description);
    row.formats = texts.keep(&metadata.formats.join(" "));
}

fn refuse(row: &mut Candidate, refused: &Refused, texts: &mut Texts) {
    row.status = match refused.reason {
        Refusal::Shadowed { .. } => CANDIDATE_SHADOWED,
        _ => CANDIDATE_REFUSED,
    };
    row.reason = texts.keep(refused.reason.id());
    row.message = texts.keep(&crossdock::one_line(&refused.reason.to_string()));
}
