//! Reads types from the texts that `type_name` prints.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, UnionFields, UnionMode};

use crate::layout::shown;
use crate::type_name::{NAMES, UNITS};
use crate::{Error, MAX_DEPTH, Result};

/// Other names of types, as in `pyarrow.type_for_alias`, and for each the name that is printed.
const ALIASES: [(&str, &str); 21] = [
    ("boolean", "bool"),
    ("i1", "int8"),
    ("i2", "int16"),
    ("i4", "int32"),
    ("i8", "int64"),
    ("u1", "uint8"),
    ("u2", "uint16"),
    ("u4", "uint32"),
    ("u8", "uint64"),
    ("f2", "halffloat"),
    ("f4", "float"),
    ("f8", "double"),
    ("float16", "halffloat"),
    ("float32", "float"),
    ("float64", "double"),
    ("str", "string"),
    ("utf8", "string"),
    ("large_str", "large_string"),
    ("large_utf8", "large_string"),
    ("date32", "date32[day]"),
    ("date64", "date64[ms]"),
];

/// Reads a type as [`type_name`](crate::type_name) prints it, or one of the aliases of pyarrow,
/// such as `float32`. The names of types may be in upper case.
///
/// The text does not contain everything. Values of maps, and the values and run ends of run-end
/// encoded arrays, get the usual nullability, and the latter the usual names. Whether the outermost
/// dictionary is ordered is not a property of its type. A field's name ends at the first `": "`,
/// and does not begin with `>`.
///
/// # Errors
///
/// Returns an error if the text is not a type, or if the type has more than [`MAX_DEPTH`] levels.
pub fn parse_type(text: &str) -> Result<DataType> {
    let mut parser = Parser { text, at: text.len() - text.trim_start().len() };
    let (data_type, _) = parser.data_type(1)?;
    if !parser.rest().trim_end().is_empty() {
        return Err(parser.expected("the end of the type"));
    }
    Ok(data_type)
}

struct Parser<'a> {
    text: &'a str,
    /// The number of bytes that are read.
    at: usize,
}

impl<'a> Parser<'a> {
    /// Reads a type, and whether it is an ordered dictionary.
    fn data_type(&mut self, depth: usize) -> Result<(DataType, bool)> {
        if depth > MAX_DEPTH {
            return Err(Error::unsupported(format!(
                "the type '{}' nests deeper than {MAX_DEPTH} levels",
                shown(self.text)
            )));
        }
        let start = self.at;
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_').to_ascii_lowercase();
        Ok((
            match word.as_str() {
                "list" => DataType::List(self.item(depth)?),
                "large_list" => DataType::LargeList(self.item(depth)?),
                "list_view" => DataType::ListView(self.item(depth)?),
                "large_list_view" => DataType::LargeListView(self.item(depth)?),
                "fixed_size_list" => {
                    let item = self.item(depth)?;
                    DataType::FixedSizeList(item, self.size()?)
                }
                "struct" => DataType::Struct(self.fields(depth)?),
                "sparse_union" => self.union(depth, UnionMode::Sparse)?,
                "dense_union" => self.union(depth, UnionMode::Dense)?,
                "map" => self.map(depth)?,
                "dictionary" => return self.dictionary(depth),
                "run_end_encoded" => self.run_end_encoded(depth)?,
                "fixed_size_binary" => DataType::FixedSizeBinary(self.size()?),
                "timestamp" => self.timestamp()?,
                "decimal32" => self.decimal(9, DataType::Decimal32)?,
                "decimal64" => self.decimal(18, DataType::Decimal64)?,
                "decimal128" => self.decimal(38, DataType::Decimal128)?,
                "decimal256" => self.decimal(76, DataType::Decimal256)?,
                _ => self.named(word, start)?,
            },
            false,
        ))
    }

    /// Reads the unit of a type, if it has one, and finds the type in the lists of names.
    fn named(&mut self, mut name: String, start: usize) -> Result<DataType> {
        if let Some(unit) = self.rest().strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            name += &format!("[{unit}]");
            self.at += unit.len() + 1;
            self.expect("]")?;
        }
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name.as_str(), |(_, name)| name);
        match NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, data_type)) => Ok(data_type.clone()),
            None => {
                self.at = start;
                Err(self.expected("a type, such as int64, string, timestamp[us] or list<item: double>"))
            }
        }
    }

    fn timestamp(&mut self) -> Result<DataType> {
        self.expect("[")?;
        let start = self.at;
        let word = self.take_while(|c| c.is_ascii_alphabetic());
        let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == word) else {
            self.at = start;
            return Err(self.expected("a unit: s, ms, us or ns"));
        };
        let mut zone = None;
        if self.skip_comma() {
            self.expect("tz=")?;
            zone = Some(self.take_while(|c| c != ']')).filter(|zone| !zone.is_empty());
            if zone.is_none() {
                return Err(self.expected("a time zone"));
            }
        }
        self.expect("]")?;
        Ok(DataType::Timestamp(*unit, zone.map(Arc::from)))
    }

    fn decimal(&mut self, max_precision: u8, of: fn(u8, i8) -> DataType) -> Result<DataType> {
        self.expect("(")?;
        let precision = self.number(1, max_precision.into())?;
        self.comma()?;
        let scale = self.number(i8::MIN.into(), i8::MAX.into())?;
        self.expect(")")?;
        match (u8::try_from(precision), i8::try_from(scale)) {
            (Ok(precision), Ok(scale)) => Ok(of(precision, scale)),
            _ => Err(self.expected("a precision and a scale")),
        }
    }

    /// Reads a number in brackets.
    fn size(&mut self) -> Result<i32> {
        self.expect("[")?;
        let size = self.number(0, i32::MAX)?;
        self.expect("]")?;
        Ok(size)
    }

    fn item(&mut self, depth: usize) -> Result<FieldRef> {
        self.expect("<")?;
        let item = self.field(depth + 1)?;
        self.expect(">")?;
        Ok(item)
    }

    fn fields(&mut self, depth: usize) -> Result<Fields> {
        self.expect("<")?;
        let mut fields = Vec::new();
        while !self.skip(">") {
            if !fields.is_empty() {
                self.comma()?;
            }
            fields.push(self.field(depth + 1)?);
        }
        Ok(fields.into())
    }

    fn union(&mut self, depth: usize, mode: UnionMode) -> Result<DataType> {
        let start = self.at;
        self.expect("<")?;
        let (mut codes, mut fields) = (Vec::new(), Vec::new());
        while !self.skip(">") {
            if !fields.is_empty() {
                self.comma()?;
            }
            fields.push(self.field(depth + 1)?);
            self.expect("=")?;
            codes.extend(i8::try_from(self.number(0, i8::MAX.into())?));
        }
        match UnionFields::try_new(codes, fields) {
            Ok(fields) => Ok(DataType::Union(fields, mode)),
            Err(_) => {
                self.at = start;
                Err(self.expected("a different type code for each field"))
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<DataType> {
        self.expect("<")?;
        // The entries are a struct, which is a level of its own.
        let (key, ordered) = self.data_type(depth + 2)?;
        let key_name = self.name_in_quotes()?.unwrap_or("key");
        let key = Field::new(key_name, key, false).with_dict_is_ordered(ordered);
        self.comma()?;
        let (value, ordered) = self.data_type(depth + 2)?;
        let value_name = self.name_in_quotes()?.unwrap_or("value");
        let value = Field::new(value_name, value, true).with_dict_is_ordered(ordered);
        let sorted = self.skip_comma();
        if sorted {
            self.expect("keys_sorted")?;
        }
        let name = self.name_in_quotes()?.unwrap_or("entries");
        self.expect(">")?;
        let entries = Field::new(name, DataType::Struct(vec![key, value].into()), false);
        Ok(DataType::Map(Arc::new(entries), sorted))
    }

    /// Reads a name such as ` ('k')`.
    fn name_in_quotes(&mut self) -> Result<Option<&'a str>> {
        if !self.skip(" ('") {
            return Ok(None);
        }
        let Some((name, _)) = self.rest().split_once("')") else {
            return Err(self.expected("a name that ends with \"')\""));
        };
        self.at += name.len() + 2;
        Ok(Some(name))
    }

    fn dictionary(&mut self, depth: usize) -> Result<(DataType, bool)> {
        self.expect("<values=")?;
        let (values, _) = self.data_type(depth + 1)?;
        self.comma()?;
        self.expect("indices=")?;
        let indices = self.type_that("an integer type", depth + 1, DataType::is_integer)?;
        let mut ordered = false;
        if self.skip_comma() {
            self.expect("ordered=")?;
            ordered = self.number(0, 1)? == 1;
        }
        self.expect(">")?;
        Ok((DataType::Dictionary(Box::new(indices), Box::new(values)), ordered))
    }

    fn run_end_encoded(&mut self, depth: usize) -> Result<DataType> {
        self.expect("<run_ends: ")?;
        let run_ends = self.type_that("int16, int32 or int64", depth + 1, DataType::is_run_ends_type)?;
        self.comma()?;
        self.expect("values: ")?;
        let (values, ordered) = self.data_type(depth + 1)?;
        self.expect(">")?;
        let values = Field::new("values", values, true).with_dict_is_ordered(ordered);
        Ok(DataType::RunEndEncoded(Arc::new(Field::new("run_ends", run_ends, false)), Arc::new(values)))
    }

    fn type_that(&mut self, expected: &str, depth: usize, fits: fn(&DataType) -> bool) -> Result<DataType> {
        let start = self.at;
        let (data_type, _) = self.data_type(depth)?;
        if !fits(&data_type) {
            self.at = start;
            return Err(self.expected(expected));
        }
        Ok(data_type)
    }

    fn field(&mut self, depth: usize) -> Result<FieldRef> {
        let Some((name, _)) = self.rest().split_once(": ") else {
            return Err(self.expected("a name and a type, such as \"a: int64\""));
        };
        self.at += name.len() + 2;
        let (data_type, ordered) = self.data_type(depth)?;
        let nullable = !self.skip(" not null");
        Ok(Arc::new(Field::new(name, data_type, nullable).with_dict_is_ordered(ordered)))
    }

    fn number(&mut self, min: i32, max: i32) -> Result<i32> {
        let start = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit() || c == '-');
        match digits.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => {
                self.at = start;
                Err(self.expected(&format!("a number from {min} to {max}")))
            }
        }
    }

    fn comma(&mut self) -> Result<()> {
        if self.skip_comma() { Ok(()) } else { Err(self.expected("','")) }
    }

    /// Reads a comma, and the space after it.
    fn skip_comma(&mut self) -> bool {
        let found = self.skip(",");
        if found {
            self.skip(" ");
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.skip(token) { Ok(()) } else { Err(self.expected(&format!("'{token}'"))) }
    }

    fn skip(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn take_while(&mut self, accept: fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = rest.find(|c| !accept(c)).and_then(|end| rest.get(..end)).unwrap_or(rest);
        self.at += taken.len();
        taken
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// An error at the current position.
    fn expected(&self, what: &str) -> Error {
        let rest: String = self.rest().chars().take(24).collect();
        let got = if rest.is_empty() { "the end".to_owned() } else { format!("'{}'", shown(&rest)) };
        let before = self.text.get(..self.at).unwrap_or_default().chars().count();
        Error::invalid_argument(format!(
            "the type '{}': expected {what} at character {}, got {got}",
            shown(self.text),
            before + 1
        ))
    }
}
