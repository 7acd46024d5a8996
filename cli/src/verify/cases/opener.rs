//! Openers of URIs, and the sources that they return.

use std::sync::Barrier;

use crossdock::api::{CallSettings, CancelFlag, Code, Error, OpenerHandle, Options, Source, is_scheme};

use super::super::case::{Case, Check, Stop, failed, missing_sample};
use super::super::context::CaseContext;
use super::super::coverage::{self, Part};
use super::super::raw::NO_OPTION;
use super::super::subject::Subject;

pub const CASES: &[Case] = &[
    Case {
        name: "opener.schemes",
        rule: "A URI scheme has only lower-case letters, digits, '+', '-' and '.', and begins with a letter.",
        spec_ref: "crossdock_opener.schemes",
        depends_on: &["interfaces.metadata"],
        on_devices: false,
        check: schemes,
    },
    Case {
        name: "opener.refusals",
        rule: "An opener returns an error for an unknown option, and for a URI without content.",
        spec_ref: "crossdock_opener.open",
        depends_on: &["opener.schemes", "errors.message"],
        on_devices: false,
        check: refusals,
    },
    Case {
        name: "opener.length",
        rule: "A source of an opener has a known length.",
        spec_ref: "crossdock_opener.open, crossdock_source.bytes",
        depends_on: &["opener.schemes"],
        on_devices: false,
        check: length,
    },
    Case {
        name: "opener.reads",
        rule: "A read of a source returns fewer bytes than requested only at the end of the source.",
        spec_ref: "crossdock_source.read_at",
        depends_on: &["opener.length"],
        on_devices: false,
        check: reads,
    },
    Case {
        name: "opener.concurrent_reads",
        rule: "Reads of one source by several threads at a time return the same bytes as reads by one thread.",
        spec_ref: "crossdock_source.read_at",
        depends_on: &["opener.reads"],
        on_devices: false,
        check: concurrent_reads,
    },
    Case {
        name: "opener.version",
        rule: "Two sources of a URI whose content does not change have the same version.",
        spec_ref: "crossdock_source.version",
        depends_on: &["opener.reads"],
        on_devices: false,
        check: version,
    },
    Case {
        name: "opener.cleared",
        rule: "`release` of a source sets the field `release` to NULL.",
        spec_ref: "crossdock_source.release",
        depends_on: &["opener.length"],
        on_devices: false,
        check: cleared,
    },
    Case {
        name: "opener.releases",
        rule: "A released source holds no memory and no reference to the host.",
        spec_ref: "crossdock_source.release, crossdock_host.release",
        depends_on: &["opener.cleared", "opener.reads"],
        on_devices: false,
        check: releases,
    },
    Case {
        name: "opener.cancelled",
        rule: "An `open` call that is cancelled returns CROSSDOCK_CANCELLED.",
        spec_ref: "crossdock_call.cancel, crossdock_opener.open",
        depends_on: &["opener.refusals"],
        on_devices: false,
        check: cancelled,
    },
];

fn schemes(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let schemes = schemes_of(&subject.opener()?)?;
    match schemes.iter().find(|scheme| !is_scheme(scheme)) {
        Some(scheme) => Err(failed("opener.schemes", "a scheme in lower case", format!("{scheme:?}"))),
        None => Ok(()),
    }
}

fn schemes_of(opener: &OpenerHandle<'_>) -> Check<Vec<String>> {
    opener.schemes().map_err(|error| failed("opener.schemes", "a list", error))
}

/// The URIs among the samples whose schemes the plugin opens.
fn uris<'a>(context: &'a CaseContext, opener: &OpenerHandle<'_>) -> Check<Vec<&'a str>> {
    let schemes = schemes_of(opener)?;
    let is_own = |uri: &&str| crossdock::scheme_of(uri).is_some_and(|scheme| schemes.contains(&scheme));
    let uris: Vec<_> = context.uris().filter(is_own).collect();
    match uris.is_empty() {
        true => Err(missing_sample(format!("a URI with content: --sample {}://…", schemes.join("://… or ")))),
        false => Ok(uris),
    }
}

fn open(opener: &OpenerHandle<'_>, call: &CallSettings, uri: &str) -> Check<Source> {
    coverage::record_data_call();
    opener.open(call, uri, &Options::new()).map_err(unopened(uri))
}

fn unopened(uri: &str) -> impl Fn(Error) -> Stop + '_ {
    move |error| failed(format!("open of '{uri}'"), "a source", error)
}

fn refusals(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let (opener, call) = (subject.opener()?, subject.call());
    coverage::record_data_call();
    let unknown = Options::new().with(NO_OPTION, "1");
    let own: Vec<_> = uris(context, &opener).unwrap_or_default();
    for uri in &own {
        if opener.open(&call, uri, &unknown).is_ok() {
            return Err(failed(format!("open of '{uri}' with an unknown option"), "an error", "a source"));
        }
    }
    for scheme in schemes_of(&opener)? {
        // The name cannot be resolved, so that the opener contacts no server.
        let uri = format!("{scheme}://");
        if opener.open(&call, &uri, &Options::new()).is_ok() {
            return Err(failed(format!("open of '{uri}'"), "an error", "a source"));
        }
    }
    Ok(())
}

fn length(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let (opener, call) = (subject.opener()?, subject.call());
    for uri in uris(context, &opener)? {
        // The handle itself rejects a source of unknown length.
        drop(open(&opener, &call, uri)?);
        if let Some(scheme) = crossdock::scheme_of(uri) {
            coverage::record_exercised(Part::open(&scheme));
        }
    }
    Ok(())
}

/// The greatest number of bytes that a case reads.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a source from its beginning, in pieces that are multiples of `piece` bytes.
fn content(source: &Source, uri: &str, piece: usize) -> Check<Vec<u8>> {
    let bytes = source.len().unwrap_or(0).min(MAX_BYTES) as usize;
    let mut all = vec![0; bytes];
    for (i, to) in all.chunks_mut(piece.max(1)).enumerate() {
        let offset = (i * piece) as u64;
        read_whole(source, uri, offset, to)?;
    }
    Ok(all)
}

/// Reads bytes that lie within the source.
fn read_whole(source: &Source, uri: &str, offset: u64, to: &mut [u8]) -> Check {
    let place = format!("read_at of '{uri}', {} bytes at {offset}", to.len());
    let expected = format!("{} bytes", to.len());
    match source.read_at(offset, to) {
        Ok(n) if n == to.len() => Ok(()),
        Ok(n) => Err(failed(place, expected, format!("{n} bytes"))),
        Err(error) => Err(failed(place, expected, error)),
    }
}

fn reads(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let (opener, call) = (subject.opener()?, subject.call());
    for uri in uris(context, &opener)? {
        let source = open(&opener, &call, uri)?;
        let len = source.len().unwrap_or(0);
        let whole = content(&source, uri, usize::MAX)?;
        let pieces = content(&source, uri, 997)?;
        if whole != pieces {
            return Err(failed(
                format!("'{uri}'"),
                "the same bytes in one read and in several",
                "other bytes",
            ));
        }
        for (offset, expected) in [(len, 0), (len + 1000, 0), (len.saturating_sub(3), len.min(3))] {
            let mut to = [0; 16];
            match source.read_at(offset, &mut to) {
                Ok(n) if n as u64 == expected => {}
                result => {
                    let got = result.map_or_else(|error| error.to_string(), |n| format!("{n} bytes"));
                    let place = format!("read_at of '{uri}', 16 bytes at {offset} of {len}");
                    return Err(failed(place, format!("{expected} bytes"), got));
                }
            }
        }
    }
    Ok(())
}

fn concurrent_reads(context: &CaseContext) -> Check {
    const N_THREADS: usize = 4;
    let subject = context.subject()?;
    let (opener, call) = (subject.opener()?, subject.call());
    for uri in uris(context, &opener)? {
        let source = open(&opener, &call, uri)?;
        let expected = content(&source, uri, usize::MAX)?;
        let (barrier, piece) = (Barrier::new(N_THREADS), expected.len().div_ceil(N_THREADS).max(1));
        let read = |offset: usize| {
            barrier.wait();
            let part = expected.get(offset..(offset + piece).min(expected.len())).unwrap_or_default();
            let mut to = vec![0; part.len()];
            for _ in 0..4 {
                read_whole(&source, uri, offset as u64, &mut to)?;
                if to != part {
                    let place = format!("read_at of '{uri}' by several threads, at {offset}");
                    return Err(failed(place, "the bytes that one thread reads", "other bytes"));
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..N_THREADS).map(|i| scope.spawn(move || read(i * piece))).collect();
            let lost = || failed("the suite's own thread", "a result", "a panic");
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(lost())))
        })?;
    }
    Ok(())
}

fn version(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let (opener, call) = (subject.opener()?, subject.call());
    for uri in uris(context, &opener)? {
        let [first, second] = [open(&opener, &call, uri)?, open(&opener, &call, uri)?];
        if first.version() != second.version() {
            let place = format!("the version of '{uri}', opened again");
            return Err(failed(place, format!("{:?}", first.version()), format!("{:?}", second.version())));
        }
    }
    Ok(())
}

fn cleared(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let (opener, call) = (subject.opener()?, subject.call());
    for uri in uris(context, &opener)? {
        let mut raw = open(&opener, &call, uri)?.into_raw().into_raw();
        let Some(release) = raw.release else { continue };
        // SAFETY: the source is not released yet, and is not used afterwards.
        unsafe { release(&mut raw) };
        if raw.release.is_some() {
            return Err(failed(format!("release of the source of '{uri}'"), "`release` set to NULL", "not"));
        }
    }
    Ok(())
}

fn releases(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    open_and_read(context, &subject)?;
    super::entry::no_leaks(subject.end(), "after the sources were released")
}

fn open_and_read(context: &CaseContext, subject: &Subject) -> Check {
    let (opener, call) = (subject.opener()?, subject.call());
    for uri in uris(context, &opener)? {
        let source = open(&opener, &call, uri)?;
        content(&source, uri, usize::MAX)?;
        drop(source);
        // A source may be released without having been read.
        drop(open(&opener, &call, uri)?);
    }
    Ok(())
}

fn cancelled(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let opener = subject.opener()?;
    let cancel = CancelFlag::new();
    cancel.cancel();
    let call = CallSettings { cancel, ..subject.call() };
    coverage::record_data_call();
    for uri in uris(context, &opener)? {
        let got = match opener.open(&call, uri, &Options::new()) {
            Err(error) if error.code() == Code::CANCELLED => continue,
            Err(error) => format!("{:?}: {error}", error.code()),
            Ok(_) => "a source".into(),
        };
        return Err(failed(format!("open of '{uri}', cancelled"), "CROSSDOCK_CANCELLED", got));
    }
    Ok(())
}
