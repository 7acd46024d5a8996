//! Tensors, in DLPack's structs.

use crossdock::api::{CallSettings, Capsules, Code, Device, Error, Format, Input, Validate, abi};

use super::super::case::{Case, Check, failed, not_offered};
use super::super::lent::Counts;
use super::super::lies::{judge, looked_through};
use super::super::subject::{Ground, Subject, looked};
use super::super::tensors::{Form, LATER_VERSION, LAYOUTS, LIES, Layout, Made, NUMBERS};
use super::super::tour;

pub const CASES: &[Case] = &[
    Case {
        name: "tensors.values",
        rule: "A tensor is a column of its rows, wherever its elements lie: strided, backwards, at any address, or nowhere \
               because there are none. Or it is refused as CROSSDOCK_UNSUPPORTED or CROSSDOCK_INVALID_ARGUMENT.",
        stands: "crossdock_capsule, \"dltensor\", \"dltensor_versioned\"",
        ground: &["errors.unknown_format", "errors.message"],
        on_devices: true,
        check: values,
    },
    Case {
        name: "tensors.releases",
        rule: "A tensor's deleter is called once, when nothing made of it is left; and where it is refused.",
        stands: "crossdock_capsule",
        ground: &["tensors.values"],
        on_devices: true,
        check: releases,
    },
    Case {
        name: "tensors.hostile",
        rule: "A tensor of which nothing can be made is refused; an unusual one gives batches that keep the specification, or \
               an error.",
        stands: "CROSSDOCK_BAD_DATA",
        ground: &["tensors.releases"],
        on_devices: true,
        check: hostile,
    },
];

/// The formats of tensors, each with the structs that it takes.
fn formats(subject: &Subject) -> Check<Vec<(Format, Form)>> {
    let formats = subject.importer()?.formats().map_err(|error| failed("formats", "a list", error))?;
    let known: Vec<_> =
        formats.iter().flat_map(|format| Form::of(format).map(|form| (format.clone(), form))).collect();
    if known.is_empty() { Err(not_offered("the plugin reads no tensors")) } else { Ok(known) }
}

fn is_refusal(error: &Error) -> bool {
    matches!(error.code(), Code::UNSUPPORTED | Code::INVALID_ARGUMENT)
}

/// Where tensors for a format may lie: on the host, and on the case's device if DLPack has a number for it.
fn devices(ground: &Ground, format: &Format) -> Vec<Device> {
    let on_device = ground.device.r#type == abi::DEVICE_CUDA && format.takes(abi::DEVICE_CUDA);
    std::iter::once(Device::CPU).chain(on_device.then_some(ground.device)).collect()
}

/// Visits a tensor of each type in each layout, wherever it may lie.
fn each(
    ground: &Ground,
    subject: &Subject,
    mut visit: impl FnMut(&str, &Format, Form, &dyn Fn() -> Check<Made>) -> Check,
) -> Check {
    for (format, form) in formats(subject)? {
        for (number, (_, _, data_type)) in NUMBERS.iter().enumerate() {
            for layout in &LAYOUTS {
                if !layout.fits(form) {
                    continue;
                }
                for device in devices(ground, &format) {
                    let what = format!("a {form:?} tensor of {data_type}, {}, on {device}", layout.name);
                    let place = format!("'{}', {what}", format.name);
                    visit(&place, &format, form, &|| made(ground, number, layout, device))?;
                }
            }
        }
    }
    Ok(())
}

fn made(ground: &Ground, number: usize, layout: &Layout, device: Device) -> Check<Made> {
    let made = Made::new(&mut ground.random(), number, layout);
    if device == Device::CPU {
        return Ok(made);
    }
    made.on_device(ground.session(device)?)
        .map_err(|error| failed("the suite's own tensor", "a tensor", error))
}

fn input(made: Made, form: Form, counts: &Counts) -> Input {
    Input::Capsules(Capsules::from(vec![made.capsule(form, counts)]))
}

fn values(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut n_read = 0;
    each(ground, &subject, |place, format, form, make| {
        let read = tour::read(ground, &subject, format, input(make()?, form, &Counts::default()), None);
        let read = match read {
            Ok(read) => read,
            Err(error) if is_refusal(&error) => return Ok(()),
            Err(error) => return Err(failed(place, "a column, or CROSSDOCK_UNSUPPORTED", error)),
        };
        n_read += 1;
        let made = make()?;
        let rows: Vec<_> = read.schema.fields().iter().map(|field| Made::row_of(field.data_type())).collect();
        if rows != [made.row()] {
            let expected = format!("one column, of as many values a row as {:?}", made.row());
            return Err(failed(place, expected, format!("{rows:?}")));
        }
        let expected = made.column(read.schema.field(0).clone());
        let expected = expected.ok_or_else(|| failed("the suite's own column", "a column", "none"))?;
        let given = ground.table(&expected, Device::CPU)?;
        let difference = tour::difference(&subject, &read, &given).map_err(looked(place))?;
        difference.map_or(Ok(()), |words| Err(failed(place, "the same values", words)))
    })?;
    if n_read == 0 { Err(not_offered("the plugin refuses tensors of every type and layout")) } else { Ok(()) }
}

fn deleted(ground: &Ground, place: &str, counts: &Counts) -> Check {
    ground.backend.settle();
    counts.wrong().map_or(Ok(()), |words| Err(failed(place, "a deleter called once", words)))
}

fn releases(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    each(ground, &subject, |place, format, form, make| {
        let counts = Counts::default();
        drop(tour::read(ground, &subject, format, input(make()?, form, &counts), None));
        deleted(ground, place, &counts)
    })
}

fn hostile(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    for (format, form) in formats(&subject)? {
        let version = (form == Form::Versioned).then_some(&LATER_VERSION);
        for lie in LIES.iter().chain(version) {
            let place = format!("'{}', a {form:?} tensor {}", format.name, lie.name);
            // 64 bits: an unusual type reads no more than there is.
            let mut made = Made::new(&mut ground.random(), 3, &LAYOUTS[0]);
            (lie.tell)(&mut made);
            let counts = Counts::default();
            let call = CallSettings { validate: Validate::Full, ..subject.call() };
            let input = input(made, form, &counts);
            let read = looked_through(ground, &subject, &call, &format, None, input);
            judge(&place, read, lie.is_nonsense)?;
            deleted(ground, &place, &counts)?;
        }
    }
    super::entry::nothing_left(subject.end(), "after hostile tensors")
}
