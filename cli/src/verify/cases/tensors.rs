//! DLPack tensors that the plugin reads.

use crossdock::api::{CallSettings, Capsules, Code, Device, Error, Format, Input, Validate, abi};

use super::super::case::{Case, Check, failed, not_offered};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::malformed::{judge, read_and_validate};
use super::super::round_trip;
use super::super::subject::{Subject, invalid_array};
use super::super::tensors::{
    LATER_VERSION, LAYOUTS, Layout, MALFORMATIONS, NUMBERS, TensorStruct, TestTensor,
};

pub const CASES: &[Case] = &[
    Case {
        name: "tensors.values",
        rule: "A tensor becomes a column of its rows, with any strides, at any address, and also without elements. Or it is \
               rejected as CROSSDOCK_UNSUPPORTED or CROSSDOCK_INVALID_ARGUMENT.",
        spec_ref: "crossdock_capsule, \"dltensor\", \"dltensor_versioned\"",
        depends_on: &["errors.unknown_format", "errors.message"],
        on_devices: true,
        check: values,
    },
    Case {
        name: "tensors.releases",
        rule: "A tensor's deleter is called once: after the last use of its memory, or when the tensor is rejected.",
        spec_ref: "crossdock_capsule",
        depends_on: &["tensors.values"],
        on_devices: true,
        check: releases,
    },
    Case {
        name: "tensors.hostile",
        rule: "A malformed tensor is rejected; an unusual one gives valid batches or an error.",
        spec_ref: "CROSSDOCK_BAD_DATA",
        depends_on: &["tensors.releases"],
        on_devices: true,
        check: hostile,
    },
];

/// The formats of tensors, each with a struct that it accepts.
fn formats(subject: &Subject) -> Check<Vec<(Format, TensorStruct)>> {
    let formats = subject.importer()?.formats().map_err(|error| failed("formats", "a list", error))?;
    let known: Vec<_> = formats
        .iter()
        .flat_map(|format| TensorStruct::of(format).map(|kind| (format.clone(), kind)))
        .collect();
    if known.is_empty() { Err(not_offered("the plugin reads no tensors")) } else { Ok(known) }
}

fn is_rejection(error: &Error) -> bool {
    matches!(error.code(), Code::UNSUPPORTED | Code::INVALID_ARGUMENT)
}

/// The devices of tensors for a format: the host, and the case's device if DLPack has a device type
/// for it.
fn devices(context: &CaseContext, format: &Format) -> Vec<Device> {
    let on_device = context.device.r#type == abi::DEVICE_CUDA && format.accepts_device(abi::DEVICE_CUDA);
    std::iter::once(Device::CPU).chain(on_device.then_some(context.device)).collect()
}

/// Visits a tensor of each type, in each layout and on each device.
fn each(
    context: &CaseContext,
    subject: &Subject,
    mut visit: impl FnMut(&str, &Format, TensorStruct, &dyn Fn() -> Check<TestTensor>) -> Check,
) -> Check {
    for (format, kind) in formats(subject)? {
        for (number, (_, _, data_type)) in NUMBERS.iter().enumerate() {
            for layout in &LAYOUTS {
                if !layout.fits(kind) {
                    continue;
                }
                for device in devices(context, &format) {
                    let what = format!("a {kind:?} tensor of {data_type}, {}, on {device}", layout.name);
                    let place = format!("'{}', {what}", format.name);
                    visit(&place, &format, kind, &|| new_tensor(context, number, layout, device))?;
                }
            }
        }
    }
    Ok(())
}

fn new_tensor(context: &CaseContext, number: usize, layout: &Layout, device: Device) -> Check<TestTensor> {
    let tensor = TestTensor::new(&mut context.random(), number, layout);
    if device == Device::CPU {
        return Ok(tensor);
    }
    tensor
        .on_device(context.session(device)?)
        .map_err(|error| failed("the suite's own tensor", "a tensor", error))
}

fn input(tensor: TestTensor, kind: TensorStruct, counts: &ReleaseCounts) -> Input {
    Input::Capsules(Capsules::from(vec![tensor.capsule(kind, counts)]))
}

fn values(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut n_read = 0;
    each(context, &subject, |place, format, kind, make| {
        let read = round_trip::read(
            context,
            &subject,
            format,
            input(make()?, kind, &ReleaseCounts::default()),
            None,
        );
        let read = match read {
            Ok(read) => read,
            Err(error) if is_rejection(&error) => return Ok(()),
            Err(error) => return Err(failed(place, "a column, or CROSSDOCK_UNSUPPORTED", error)),
        };
        n_read += 1;
        let tensor = make()?;
        let rows: Vec<_> =
            read.schema.fields().iter().map(|field| TestTensor::row_of(field.data_type())).collect();
        if rows != [tensor.row()] {
            let expected = format!("one column, with values per row and type {:?}", tensor.row());
            return Err(failed(place, expected, format!("{rows:?}")));
        }
        let expected = tensor.column(read.schema.field(0).clone());
        let expected = expected.ok_or_else(|| failed("the suite's own column", "a column", "none"))?;
        let expected_batches = context.table(&expected, Device::CPU)?;
        let difference =
            round_trip::difference(&subject, &read, &expected_batches).map_err(invalid_array(place))?;
        difference.map_or(Ok(()), |details| Err(failed(place, "the same values", details)))
    })?;
    if n_read == 0 { Err(not_offered("the plugin rejects tensors of every type and layout")) } else { Ok(()) }
}

fn deleted(context: &CaseContext, place: &str, counts: &ReleaseCounts) -> Check {
    context.backend.settle();
    counts.violation().map_or(Ok(()), |details| Err(failed(place, "a deleter called once", details)))
}

fn releases(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    each(context, &subject, |place, format, kind, make| {
        let counts = ReleaseCounts::default();
        drop(round_trip::read(context, &subject, format, input(make()?, kind, &counts), None));
        deleted(context, place, &counts)
    })
}

fn hostile(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for (format, kind) in formats(&subject)? {
        let version = (kind == TensorStruct::Versioned).then_some(&LATER_VERSION);
        for malformation in MALFORMATIONS.iter().chain(version) {
            let place = format!("'{}', a {kind:?} tensor {}", format.name, malformation.name);
            // The elements have 64 bits. A plugin that reads them as elements of an unusual type
            // therefore stays within the tensor's memory.
            let mut tensor = TestTensor::new(&mut context.random(), 3, &LAYOUTS[0]);
            (malformation.change)(&mut tensor);
            let counts = ReleaseCounts::default();
            let call = CallSettings { validate: Validate::Full, ..subject.call() };
            let input = input(tensor, kind, &counts);
            let read = read_and_validate(context, &subject, &call, &format, None, input);
            judge(&place, read, malformation.must_fail)?;
            deleted(context, &place, &counts)?;
        }
    }
    super::entry::no_leaks(subject.end(), "after hostile tensors")
}
