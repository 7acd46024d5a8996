//! Types out of the first rows: only those that lose nothing.

use arrow_array::{Array, cast::AsArray};
use arrow_schema::{DataType, TimeUnit};

use crate::bench::Bench;
use crate::tables::{UNITS, batch, columns};

fn utc(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, Some("UTC".into()))
}

#[test]
fn a_type_is_chosen_only_if_every_value_has_it_and_loses_nothing_by_it() {
    use DataType::{Boolean, Date32, Float64, Int64, Utf8};
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let local = |unit| DataType::Timestamp(unit, None);
    let cases: &[(&[&str], DataType)] = &[
        (&["1", "-2", "", "9223372036854775807"], Int64),
        (&["\"1\"", "2"], Int64),
        (&["1", "9223372036854775808"], Utf8),
        (&["1", "007"], Utf8),
        (&["1", "+1"], Utf8),
        (&["1", "-0"], Float64),
        (&["1", " 2"], Utf8),
        (&["1", "\"\""], Utf8),
        (&["1", "2.5"], Float64),
        (&["9007199254740992", "2.5"], Float64),
        (&["9007199254740993", "2.5"], Utf8),
        (&["1e5", ".5", "5.", "-inf", "NaN"], Float64),
        (&["1.5", "01.5"], Utf8),
        (&["1.5", "1e999"], Utf8),
        (&["1.5", "0x10"], Utf8),
        (&["1.5", "1,5"], Utf8),
        (&["true", "False", "", "TRUE"], Boolean),
        (&["true", "1"], Utf8),
        (&["true", "yes"], Utf8),
        (&["2013-01-31", "", "-0044-03-15"], Date32),
        (&["2013-01-31", "2013-02-29"], Utf8),
        (&["2013-01-31", "2013-01-31T00:00"], Utf8),
        (&["2013-01-31T10:00", "2013-01-31 10:00:59"], local(Second)),
        (&["2013-01-31T10:00:00.5", "2013-01-31T10:00:00"], local(Millisecond)),
        (&["2013-01-31T10:00:00.1234", "2013-01-31T10:00:00.5"], local(Microsecond)),
        (&["2013-01-31T10:00:00.1234567"], local(Nanosecond)),
        (&["2013-01-31T10:00:00.1234567", "1066-10-14T10:00:00"], Utf8),
        (&["2013-01-31T10:00Z", "2013-01-31T10:00:00+05:30"], utc(Second)),
        (&["2013-01-31T10:00:00.123456Z"], utc(Microsecond)),
        (&["2013-01-31T10:00Z", "2013-01-31T10:00"], Utf8),
        (&["2013-01-31T24:00"], Utf8),
        (&["", ""], Utf8),
        (&["a \"\"b\"\""], Utf8),
    ];
    let bench = Bench::new();
    for (values, expected) in cases {
        // A second column, so that no line is blank.
        let quoted = |v: &&str| {
            if v.contains(',') || v.contains("\"\"b") { format!("\"{v}\"") } else { v.to_string() }
        };
        let rows: String = values.iter().map(|v| format!("{},x\n", quoted(v))).collect();
        let read = bench.read(format!("a,b\n{rows}"), &[]).unwrap();
        assert_eq!(read.schema.field(0).data_type(), expected, "{values:?}");
        assert_eq!(read.rows(), values.len());
        assert!(read.schema.field(0).is_nullable());
    }
    bench.end();
}

#[test]
fn values_of_inferred_types_are_right() {
    let text = "b,i,f,d,t,z\ntrue,-7,0.1,1970-01-02,1970-01-01T00:00:01.5,1970-01-01T01:00:00+01:00\n";
    let bench = Bench::new();
    let read = bench.read(text, &[]).unwrap();
    let batch = read.batch();
    use arrow_array::types::*;
    assert!(batch.column(0).as_boolean().value(0));
    assert_eq!(batch.column(1).as_primitive::<Int64Type>().value(0), -7);
    assert_eq!(batch.column(2).as_primitive::<Float64Type>().value(0), 0.1);
    assert_eq!(batch.column(3).as_primitive::<Date32Type>().value(0), 1);
    assert_eq!(batch.column(4).as_primitive::<TimestampMillisecondType>().value(0), 1500);
    assert_eq!(batch.column(5).as_primitive::<TimestampSecondType>().value(0), 0);
    drop(read);
    bench.end();
}

/// Writing prints floats with a point and timestamps with all their digits: what is read back has the same type.
#[test]
fn written_columns_of_inferable_types_are_inferred_again() {
    let bench = Bench::new();
    for (name, array) in columns() {
        let inferable = match array.data_type() {
            DataType::Boolean | DataType::Int64 | DataType::Float64 | DataType::Date32 => true,
            DataType::Timestamp(unit, zone) => {
                UNITS.contains(unit) && zone.as_deref() != Some("Europe/Berlin")
            }
            _ => false,
        };
        if !inferable {
            continue;
        }
        let written = crate::tables::single(&name, array.clone());
        let text = bench.write(std::slice::from_ref(&written), &[]).unwrap();
        let read = bench.read(text, &[]).unwrap();
        assert_eq!(read.schema.field(0).data_type(), array.data_type());
        assert_eq!(read.batch().column(0), &array, "{name}");
    }
    bench.end();
}

#[test]
fn infer_rows_bounds_the_look_and_types_replaces_it() {
    let bench = Bench::new();
    let text = "a,b\n1,2\nx,3\n";
    let types = |options| {
        let read = bench.read(text, options).unwrap();
        read.schema.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>()
    };
    assert_eq!(types(&[]), [DataType::Utf8, DataType::Int64]);
    assert_eq!(types(&[("infer_rows", "0")]), [DataType::Utf8, DataType::Utf8]);
    assert_eq!(types(&[("types", "b:uint8")]), [DataType::Utf8, DataType::UInt8]);
    assert_eq!(
        types(&[("infer_rows", "1"), ("types", "a:large_utf8")]),
        [DataType::LargeUtf8, DataType::Int64]
    );
    let error = bench.read(text, &[("infer_rows", "1")]).unwrap_err();
    for part in ["line 3", "'a'", "int64", "'x'", "types=", "infer_rows"] {
        assert!(error.contains(part), "{error:?} does not contain {part:?}");
    }
    bench.end();
}

#[test]
fn types_takes_every_type_by_its_name() {
    let bench = Bench::new();
    let named = [
        ("null", ""),
        ("bool", "1"),
        ("int8", "-1"),
        ("int16", "+1"),
        ("int32", "007"),
        ("int64", "1"),
        ("uint8", "255"),
        ("uint16", "1"),
        ("uint32", "1"),
        ("uint64", "18446744073709551615"),
        ("float32", "1"),
        ("float64", "1"),
        ("utf8", "1"),
        ("large_utf8", "1"),
        ("date32", "2013-01-31"),
        ("time32[s]", "10:00"),
        ("time32[ms]", "10:00:00.5"),
        ("time64[us]", "10:00"),
        ("time64[ns]", "10:00"),
        ("timestamp[s]", "2013-01-31 10:00"),
        ("timestamp[ms]", "2013-01-31T10:00"),
        ("timestamp[us]", "2013-01-31T10:00"),
        ("timestamp[ns]", "2013-01-31T10:00"),
        ("timestamp[s, UTC]", "2013-01-31T10:00Z"),
        ("timestamp[ms,Asia/Tokyo]", "2013-01-31T10:00+09"),
        ("timestamp[us, UTC]", "2013-01-31T10:00Z"),
        ("timestamp[ns, UTC]", "2013-01-31T10:00-0130"),
    ];
    let schema = batch(&columns()).schema();
    let names: Vec<_> = (0..named.len()).map(|i| format!("c:{i}")).collect();
    let types: Vec<_> =
        named.iter().zip(&names).map(|((name, _), column)| format!("{column}:{name}")).collect();
    let values: Vec<_> = named.iter().map(|(_, value)| *value).collect();
    let text = format!("{}\n{}\n", names.join(","), values.join(","));
    let read = bench.read(text, &[("types", &types.join(","))]).unwrap();
    assert_eq!(read.rows(), 1);
    for field in schema.fields() {
        let there = read.schema.fields().iter().any(|f| match (f.data_type(), field.data_type()) {
            (DataType::Timestamp(a, x), DataType::Timestamp(b, y)) => a == b && x.is_some() == y.is_some(),
            (a, b) => a == b,
        });
        assert!(there, "{} has no name", field.data_type());
    }
    assert_eq!(read.batch().column(0).len(), 1);
    drop(read);
    bench.end();
}
