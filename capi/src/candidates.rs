//! Lists the candidates of a host.

use std::os::unix::ffi::OsStrExt;

use crossdock::discovery::Candidate as HostCandidate;
use crossdock::load::{FAILED, Refusal, Refused};
use crossdock::metadata::Metadata;
use crossdock::{Error as HostError, Session};
use crossdock_plugin_api::{Error, Owned, Result, abi as api};

use crate::abi::{CANDIDATE_CHOSEN, CANDIDATE_REFUSED, CANDIDATE_SHADOWED, Candidate, Candidates};
use crate::host::HostHandle;
use crate::lists::{self, ListStorage, Texts};
use crate::{arguments, door};

/// `crossdock_host_candidates` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_candidates(
    host: *mut HostHandle,
    load: u32,
    out: *mut Candidates,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &HostHandle| {
        // SAFETY: the header requires an `out` that is NULL or has its `struct_size`.
        unsafe { arguments::check_out(out) }?;
        let load = match load {
            0 => false,
            1 => true,
            other => return Err(Error::invalid_argument(format!("load is {other}, expected 0 or 1"))),
        };
        let candidates = list(handle, load)?;
        // SAFETY: the header requires a writable `out` that begins with its `struct_size`.
        // `check_out` has checked that it is not null and large enough.
        unsafe { candidates.put(out, "crossdock_host_candidates") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(host, err, body) }
}

fn list(handle: &HostHandle, load: bool) -> Result<Owned<Candidates>> {
    let session = match load {
        true => Some(handle.host.session().open()?),
        false => None,
    };
    let catalog = handle.host.catalog();
    let mut texts = Texts::default();
    let rows =
        catalog.candidates.iter().map(|candidate| row(candidate, session.as_ref(), &mut texts)).collect();
    let warnings = catalog.warnings.iter().map(|warning| texts.add(warning)).collect();
    let storage = ListStorage::new(rows, warnings, texts);
    let (candidates, n_candidates) = storage.rows();
    let (warnings, n_warnings) = storage.extra_texts();
    let raw = Candidates {
        struct_size: size_of::<Candidates>(),
        candidates,
        n_candidates,
        warnings,
        n_warnings,
        release: Some(lists::release::<Candidates>),
        private_data: Box::into_raw(storage).cast(),
    };
    // SAFETY: `raw` is a valid struct that was created above, and only the result owns it.
    Ok(unsafe { Owned::new(raw) })
}

fn row(candidate: &HostCandidate, session: Option<&Session>, texts: &mut Texts) -> Candidate {
    let mut row = Candidate {
        struct_size: size_of::<Candidate>(),
        path: match candidate.path() {
            Some(path) => texts.add_bytes(path.as_os_str().as_bytes()),
            None => texts.add(&candidate.label()),
        },
        origin: texts.add(&candidate.origin.to_string()),
        status: CANDIDATE_CHOSEN,
        ..Candidate::default()
    };
    match &candidate.metadata {
        Ok(metadata) => {
            describe(&mut row, metadata, texts);
            match session.map(|session| session.plugin(&metadata.name)) {
                None | Some(Ok(_)) => {}
                Some(Err(HostError::Refused(refused))) => refuse(&mut row, &refused, texts),
                Some(Err(error)) => {
                    row.status = CANDIDATE_REFUSED;
                    row.reason = texts.add(FAILED);
                    row.message = texts.add(&error.one_line());
                }
            }
        }
        Err(refused) => {
            // The metadata of a file may be readable although the file is refused.
            if let Some(inspected) = candidate.inspect() {
                describe(&mut row, &inspected.metadata, texts);
            }
            refuse(&mut row, refused, texts);
        }
    }
    row
}

fn describe(row: &mut Candidate, metadata: &Metadata, texts: &mut Texts) {
    row.name = texts.add(&metadata.name);
    row.version = texts.add(&metadata.version.to_string());
    row.description = texts.add(&metadata.description);
    row.formats = texts.add(&metadata.formats.join(" "));
}

fn refuse(row: &mut Candidate, refused: &Refused, texts: &mut Texts) {
    row.status = match refused.reason {
        Refusal::Shadowed { .. } => CANDIDATE_SHADOWED,
        _ => CANDIDATE_REFUSED,
    };
    row.reason = texts.add(refused.reason.id());
    row.message = texts.add(&crossdock::one_line(&refused.reason.to_string()));
}
