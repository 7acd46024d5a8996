//! The statistics of zones: which columns the table of a zoned layout has.
//!
//! A zoned layout divides the rows of a column into zones of equal length. A table with one row for
//! each zone contains statistics, such as the minimum.

use arrow_schema::{DataType, Field, Fields};
use crossdock_plugin_api::Result;
use crossdock_vortex_types::PType;
use crossdock_vortex_types::protobuf::fields;

/// The statistics that a table of zones contains.
#[derive(Debug, PartialEq)]
pub struct ZoneTable {
    /// The number of rows of a zone. The last zone may have fewer rows.
    pub zone_rows: u64,
    /// The columns of the table.
    pub columns: Vec<Stat>,
    /// The type of the table: a struct.
    pub field: Field,
}

/// A column of a table of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// A value that is at least the greatest value.
    Max,
    /// A struct of such a value, and whether it is unknown.
    BoundedMax,
    /// A value that is at most the least value.
    Min,
    /// The number of nulls.
    NullCount,
    /// A statistic that is not used.
    Other,
}

/// The version of the metadata of `vortex.zoned`.
const VERSION: u8 = 1;

impl ZoneTable {
    /// Reads the metadata of a layout `vortex.zoned` with values of type `of`. Returns `None` if
    /// the types of the columns are unknown.
    pub fn read(metadata: &[u8], of: &Field) -> Result<Option<Self>> {
        let Some((&VERSION, metadata)) = metadata.split_first() else { return Ok(None) };
        let (mut zone_rows, mut columns) = (0, Vec::new());
        for field in fields(metadata) {
            match field? {
                (1, value) => zone_rows = value.u64()?,
                (2, value) => {
                    let mut id: &[u8] = &[];
                    for field in fields(value.bytes()?) {
                        if let (1, value) = field? {
                            id = value.bytes()?;
                        }
                    }
                    let Some(column) = aggregate(id, of.data_type()) else { return Ok(None) };
                    columns.extend(column);
                }
                _ => {}
            }
        }
        Ok(Self::new(zone_rows, columns, of))
    }

    /// Reads the metadata of a layout `vortex.stats`, which older versions write.
    pub fn read_legacy(metadata: &[u8], of: &Field) -> Option<Self> {
        let (zone_rows, bits) = metadata.split_first_chunk::<4>()?;
        let mut columns = Vec::new();
        let set = bits
            .iter()
            .zip(0u32..)
            .flat_map(|(byte, i)| (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| 8 * i + bit));
        for number in set {
            let flag = || (Stat::Other, DataType::Boolean, false);
            match number {
                0..=2 => columns.push((Stat::Other, DataType::Boolean, true)),
                3 => columns.extend([(Stat::Max, of.data_type().clone(), true), flag()]),
                4 => columns.extend([(Stat::Min, of.data_type().clone(), true), flag()]),
                5 => columns.extend(sum(of.data_type())?),
                6 => columns.push((Stat::NullCount, DataType::UInt64, true)),
                7 => columns.push((Stat::Other, DataType::UInt64, true)),
                8 => columns.extend(nan_count(of.data_type())),
                _ => return None,
            }
        }
        Self::new(u32::from_le_bytes(*zone_rows).into(), columns, of)
    }

    fn new(zone_rows: u64, columns: Vec<(Stat, DataType, bool)>, of: &Field) -> Option<Self> {
        if zone_rows == 0 || !is_comparable(of.data_type()) {
            return None;
        }
        let field = |(i, (_, data_type, nullable)): (usize, &(Stat, DataType, bool))| {
            Field::new(i.to_string(), data_type.clone(), *nullable)
        };
        let fields: Fields = columns.iter().enumerate().map(field).collect();
        let field = Field::new("", DataType::Struct(fields), false);
        let columns = columns.into_iter().map(|(stat, ..)| stat).collect();
        Some(Self { zone_rows, columns, field })
    }
}

/// The column of an aggregate function, or none if the function has no result for the type. Returns
/// `None` if the function is unknown.
fn aggregate(id: &[u8], of: &DataType) -> Option<Option<(Stat, DataType, bool)>> {
    let column = match id {
        b"vortex.max" => (Stat::Max, of.clone(), true),
        b"vortex.min" | b"vortex.bounded_min" => (Stat::Min, of.clone(), true),
        b"vortex.bounded_max" => {
            let fields =
                vec![Field::new("bound", of.clone(), true), Field::new("unknown", DataType::Boolean, false)];
            (Stat::BoundedMax, DataType::Struct(fields.into()), true)
        }
        b"vortex.null_count" => (Stat::NullCount, DataType::UInt64, true),
        b"vortex.uncompressed_size_in_bytes" => (Stat::Other, DataType::UInt64, true),
        b"vortex.nan_count" => return Some(nan_count(of)),
        b"vortex.sum" => return sum(of),
        _ => return None,
    };
    Some(Some(column))
}

fn nan_count(of: &DataType) -> Option<(Stat, DataType, bool)> {
    of.is_floating().then_some((Stat::Other, DataType::UInt64, true))
}

/// The column of a sum; none if the type has no sum. Returns `None` if the type is unknown.
fn sum(of: &DataType) -> Option<Option<(Stat, DataType, bool)>> {
    let data_type = match of {
        DataType::Boolean => DataType::UInt64,
        other if other.is_unsigned_integer() => DataType::UInt64,
        other if other.is_floating() => DataType::Float64,
        DataType::Utf8View | DataType::BinaryView => return Some(None),
        other if PType::stored_as(other).is_some_and(PType::is_int) => DataType::Int64,
        _ => return None,
    };
    Some(Some((Stat::Other, data_type, true)))
}

/// Whether values of the type can be compared with a literal.
fn is_comparable(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean | DataType::Utf8View | DataType::BinaryView => true,
        other => other.primitive_width().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_depend_on_the_aggregates_and_the_type() {
        // The zones of 8192 rows have a maximum, a minimum, a number of NaN, and one of nulls.
        let metadata = b"\x01\x08\x80\x40\x12\x10\x0a\x0avortex.max\x12\x02\x08\x01\x12\x10\x0a\x0avortex.min\x12\x02\x08\x01\
                         \x12\x12\x0a\x10vortex.nan_count\x12\x13\x0a\x11vortex.null_count";
        let read =
            |data_type: DataType| ZoneTable::read(metadata, &Field::new("a", data_type, true)).unwrap();
        let floats = read(DataType::Float32).unwrap();
        assert_eq!(floats.zone_rows, 8192);
        assert_eq!(floats.columns, [Stat::Max, Stat::Min, Stat::Other, Stat::NullCount]);
        assert_eq!(read(DataType::Int8).unwrap().columns, [Stat::Max, Stat::Min, Stat::NullCount]);
        assert_eq!(read(DataType::Null), None);
        let unknown = b"\x01\x08\x80\x40\x12\x0a\x0a\x08vortex.x";
        assert_eq!(ZoneTable::read(unknown, &Field::new("a", DataType::Int8, true)).unwrap(), None);
        assert!(ZoneTable::read(&metadata[..20], &Field::new("a", DataType::Int8, true)).is_err());
    }

    #[test]
    fn legacy_columns_follow_the_bits() {
        let read =
            |metadata: &[u8]| ZoneTable::read_legacy(metadata, &Field::new("a", DataType::Int16, true));
        let table = read(&[0, 0x20, 0, 0, 0x58, 0]).unwrap();
        assert_eq!(table.zone_rows, 8192);
        assert_eq!(table.columns, [Stat::Max, Stat::Other, Stat::Min, Stat::Other, Stat::NullCount]);
        assert_eq!(read(&[0, 0x20, 0, 0, 0, 2]), None, "an unknown statistic");
        assert_eq!(read(&[0, 0, 0, 0, 0x58, 0]), None, "zones without rows");
        assert_eq!(read(&[0, 0, 0]), None);
    }
}
