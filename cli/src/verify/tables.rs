//! Makes random columns of every Arrow type.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, IntervalDayTime, IntervalMonthDayNano, NullBuffer, OffsetBuffer,
    ScalarBuffer, i256,
};
use arrow_schema::{DataType, Field, Fields, Metadata, Schema, SchemaRef, UnionFields};

use super::random::Random;

/// The form of a table's columns.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub rows: usize,
    /// Whether fields are nullable, some values are null, and texts contain quotes and line breaks.
    pub nulls: bool,
    /// Whether the columns are slices of longer columns, with offsets other than 0.
    pub sliced: bool,
}

/// The forms that cases try: without nulls and with whole words in bitmaps, with nulls, without
/// rows, and as slices.
pub const FORMS: [Form; 4] = [
    Form { rows: 64, nulls: false, sliced: false },
    Form { rows: 37, nulls: true, sliced: false },
    Form { rows: 0, nulls: false, sliced: false },
    Form { rows: 21, nulls: true, sliced: true },
];

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nulls = if self.nulls { " with nulls" } else { "" };
        let sliced = if self.sliced { ", a slice" } else { "" };
        write!(f, "{} rows{nulls}{sliced}", self.rows)
    }
}

struct Generator<'a> {
    random: &'a mut Random,
    rows: usize,
    nulls: bool,
}

/// A column of each type, each in a batch of its own.
pub fn columns(random: &mut Random, form: Form) -> Vec<RecordBatch> {
    let rows = if form.sliced { form.rows + 13 } else { form.rows };
    let mut generator = Generator { random, rows, nulls: form.nulls };
    let slice = |array: ArrayRef| if form.sliced { array.slice(5, form.rows) } else { array };
    let arrays: Vec<ArrayRef> = generator.all().into_iter().map(slice).collect();
    arrays.into_iter().enumerate().filter_map(|(i, array)| single_column(i, array, form.nulls)).collect()
}

fn single_column(i: usize, array: ArrayRef, nulls: bool) -> Option<RecordBatch> {
    let nullable = nulls || *array.data_type() == DataType::Null;
    let field = Field::new(format!("column {i}"), array.data_type().clone(), nullable);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![array]).ok()
}

/// One batch with all the columns, and with metadata of the schema and the fields.
pub fn together(columns: &[RecordBatch]) -> Option<RecordBatch> {
    let metadata = |of: &str| Metadata::from([("verify".to_string(), of.to_string())]);
    let fields = columns.iter().flat_map(|batch| batch.schema().fields().iter().cloned().collect::<Vec<_>>());
    let fields: Vec<Field> =
        fields.map(|field| field.as_ref().clone().with_metadata(metadata(field.name()))).collect();
    let schema: SchemaRef = Arc::new(Schema::new(fields).with_metadata(metadata("the schema")));
    let arrays = columns.iter().flat_map(|batch| batch.columns().to_vec()).collect();
    RecordBatch::try_new(schema, arrays).ok()
}

impl Generator<'_> {
    fn number(&mut self) -> i64 {
        self.random.next() as i64
    }

    /// A number in `0..n`.
    fn below(&mut self, n: usize) -> i64 {
        self.random.below(n) as i64
    }

    fn validity(&mut self) -> Option<NullBuffer> {
        let bits: Vec<bool> = (0..self.rows).map(|_| self.random.below(4) != 0).collect();
        self.nulls.then(|| NullBuffer::from(bits))
    }

    fn of<T: ArrowPrimitiveType>(&mut self, value: impl Fn(&mut Self) -> T::Native) -> PrimitiveArray<T> {
        let values: Vec<T::Native> = (0..self.rows).map(|_| value(self)).collect();
        PrimitiveArray::new(values.into(), self.validity())
    }

    fn plain<T: ArrowPrimitiveType>(&mut self, value: impl Fn(&mut Self) -> T::Native) -> ArrayRef {
        Arc::new(self.of::<T>(value))
    }

    /// A text. Tables with nulls also contain texts that not every format can store.
    fn text(&mut self) -> String {
        const PARTS: [&str; 8] =
            ["a", "größer", "日本語", "two words", "0", "twelve bytes", "comma, \"quoted\"", "line\nbreak"];
        let parts = if self.nulls { &PARTS[..] } else { &PARTS[..6] };
        (0..1 + self.random.below(4)).map(|_| parts[self.random.below(parts.len())]).collect()
    }

    fn texts(&mut self, n: usize) -> Vec<String> {
        (0..n).map(|_| self.text()).collect()
    }

    fn nullable_texts(&mut self) -> Vec<Option<String>> {
        let validity = self.validity();
        let texts = self.texts(self.rows).into_iter().enumerate();
        texts.map(|(i, text)| validity.as_ref().is_none_or(|v| v.is_valid(i)).then_some(text)).collect()
    }

    fn all(&mut self) -> Vec<ArrayRef> {
        let mut all = self.numbers();
        for more in [
            self.times(),
            self.decimals(),
            self.binaries(),
            self.lists(),
            self.nested(),
            self.dictionaries_and_runs(),
        ] {
            all.extend(more);
        }
        all
    }

    fn numbers(&mut self) -> Vec<ArrayRef> {
        let bits: BooleanBuffer = (0..self.rows).map(|_| self.random.below(2) == 0).collect();
        vec![
            Arc::new(NullArray::new(self.rows)),
            Arc::new(BooleanArray::new(bits, self.validity())),
            self.plain::<Int8Type>(|m| m.number() as i8),
            self.plain::<Int16Type>(|m| m.number() as i16),
            self.plain::<Int32Type>(|m| m.number() as i32),
            self.plain::<Int64Type>(Self::number),
            self.plain::<UInt8Type>(|m| m.number() as u8),
            self.plain::<UInt16Type>(|m| m.number() as u16),
            self.plain::<UInt32Type>(|m| m.number() as u32),
            self.plain::<UInt64Type>(|m| m.number() as u64),
            self.plain::<Float16Type>(|m| ArrowNativeType::usize_as(m.random.below(2048))),
            self.plain::<Float32Type>(|m| m.below(1 << 24) as f32 / 64.0),
            self.plain::<Float64Type>(|m| m.number() as f64 / 1e6),
        ]
    }

    fn times(&mut self) -> Vec<ArrayRef> {
        const DAY: i64 = 86_400;
        const YEARS: usize = 4_000_000_000;
        let timestamps = self.of::<TimestampMicrosecondType>(|m| m.below(YEARS) * 1_000_001);
        vec![
            self.plain::<Date32Type>(|m| m.below(40_000) as i32),
            self.plain::<Date64Type>(|m| m.below(40_000) * DAY * 1000),
            self.plain::<Time32SecondType>(|m| m.below(DAY as usize) as i32),
            self.plain::<Time32MillisecondType>(|m| m.below(DAY as usize * 1000) as i32),
            self.plain::<Time64MicrosecondType>(|m| m.below(DAY as usize * 1_000_000)),
            self.plain::<Time64NanosecondType>(|m| m.below(DAY as usize * 1_000_000_000)),
            self.plain::<TimestampSecondType>(|m| m.below(YEARS)),
            self.plain::<TimestampMillisecondType>(|m| m.below(YEARS) * 1001),
            self.plain::<TimestampMicrosecondType>(|m| m.below(YEARS) * 1_000_001),
            self.plain::<TimestampNanosecondType>(|m| m.below(YEARS) * 1_000_000_001),
            Arc::new(timestamps.with_timezone("Europe/Vienna")),
            self.plain::<DurationSecondType>(|m| m.below(YEARS)),
            self.plain::<DurationMillisecondType>(|m| m.below(YEARS)),
            self.plain::<DurationMicrosecondType>(|m| m.below(YEARS)),
            self.plain::<DurationNanosecondType>(|m| m.below(YEARS)),
            self.plain::<IntervalYearMonthType>(|m| m.number() as i32),
            self.plain::<IntervalDayTimeType>(|m| IntervalDayTime::new(m.number() as i32, m.number() as i32)),
            self.plain::<IntervalMonthDayNanoType>(|m| {
                IntervalMonthDayNano::new(m.number() as i32, m.number() as i32, m.number())
            }),
        ]
    }

    fn decimals(&mut self) -> Vec<ArrayRef> {
        let small = self.of::<Decimal32Type>(|m| m.below(9_999_999) as i32);
        let middle = self.of::<Decimal64Type>(|m| m.below(1 << 50));
        let long = self.of::<Decimal128Type>(|m| i128::from(m.number()) * 1_000_003);
        let longest = self.of::<Decimal256Type>(|m| i256::from_i128(i128::from(m.number()) << 60));
        let arrays: [Result<ArrayRef, _>; 4] = [
            small.with_precision_and_scale(7, 2).map(|array| Arc::new(array) as ArrayRef),
            middle.with_precision_and_scale(16, -2).map(|array| Arc::new(array) as ArrayRef),
            long.with_precision_and_scale(38, 10).map(|array| Arc::new(array) as ArrayRef),
            longest.with_precision_and_scale(76, 0).map(|array| Arc::new(array) as ArrayRef),
        ];
        arrays.into_iter().flatten().collect()
    }

    fn binaries(&mut self) -> Vec<ArrayRef> {
        let bytes = |texts: &[Option<String>]| -> Vec<Option<Vec<u8>>> {
            texts.iter().map(|text| text.as_ref().map(|text| text.clone().into_bytes())).collect()
        };
        let fixed = self.random.bytes(5 * self.rows);
        let fixed = FixedSizeBinaryArray::try_new(5, fixed.into(), self.validity());
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(self.nullable_texts())),
            Arc::new(LargeStringArray::from(self.nullable_texts())),
            Arc::new(StringViewArray::from_iter(self.nullable_texts())),
            Arc::new(BinaryArray::from_iter(bytes(&self.nullable_texts()))),
            Arc::new(LargeBinaryArray::from_iter(bytes(&self.nullable_texts()))),
            Arc::new(BinaryViewArray::from_iter(bytes(&self.nullable_texts()))),
        ];
        arrays.extend(fixed.ok().map(|array| Arc::new(array) as ArrayRef));
        arrays
    }

    /// `n` items for lists.
    fn items(&mut self, n: usize) -> ArrayRef {
        let mut items = Generator { random: self.random, rows: n, nulls: self.nulls };
        items.plain::<Int32Type>(|m| m.number() as i32)
    }

    fn lists(&mut self) -> Vec<ArrayRef> {
        let lengths: Vec<usize> = (0..self.rows).map(|_| self.random.below(4)).collect();
        let n: usize = lengths.iter().sum();
        let item = |nulls| Arc::new(Field::new("item", DataType::Int32, nulls));
        let (small, large) = (
            OffsetBuffer::<i32>::from_lengths(lengths.iter().copied()),
            OffsetBuffer::<i64>::from_lengths(lengths.iter().copied()),
        );
        let starts: Vec<i64> = large.iter().take(self.rows).copied().collect();
        let sizes: Vec<i64> = lengths.iter().map(|n| *n as i64).collect();
        let narrow = |numbers: &[i64]| numbers.iter().map(|n| *n as i32).collect::<ScalarBuffer<i32>>();
        let values = [self.items(n), self.items(n), self.items(n), self.items(n), self.items(2 * self.rows)];
        let [a, b, c, d, e] = values;
        let nulls = self.nulls;
        let arrays: [Result<ArrayRef, _>; 5] = [
            ListArray::try_new(item(nulls), small.clone(), a, self.validity()).map(|a| Arc::new(a) as _),
            LargeListArray::try_new(item(nulls), large, b, self.validity()).map(|a| Arc::new(a) as _),
            ListViewArray::try_new(item(nulls), narrow(&starts), narrow(&sizes), c, self.validity())
                .map(|a| Arc::new(a) as _),
            LargeListViewArray::try_new(item(nulls), starts.into(), sizes.into(), d, self.validity())
                .map(|a| Arc::new(a) as _),
            FixedSizeListArray::try_new(item(nulls), 2, e, self.validity()).map(|a| Arc::new(a) as _),
        ];
        let mut arrays: Vec<ArrayRef> = arrays.into_iter().flatten().collect();
        arrays.extend(self.map(small));
        arrays
    }

    fn map(&mut self, offsets: OffsetBuffer<i32>) -> Option<ArrayRef> {
        let n = offsets.last() as usize;
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..n).map(|i| format!("key {i}"))));
        let fields = Fields::from(vec![
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", DataType::Int32, self.nulls),
        ]);
        let entries = StructArray::try_new(fields.clone(), vec![keys, self.items(n)], None).ok()?;
        let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
        let array = MapArray::try_new(field, offsets, entries, self.validity(), false).ok()?;
        Some(Arc::new(array))
    }

    fn nested(&mut self) -> Vec<ArrayRef> {
        let text: ArrayRef = Arc::new(StringArray::from(self.nullable_texts()));
        let number = self.plain::<Int64Type>(Self::number);
        let fields = Fields::from(vec![
            Field::new("number", DataType::Int64, self.nulls),
            Field::new("text", DataType::Utf8, self.nulls),
        ]);
        let children = vec![number, text];
        let whole = StructArray::try_new(fields.clone(), children.clone(), self.validity());
        let types: Vec<i8> = (0..self.rows).map(|_| [5, 2][self.random.below(2)]).collect();
        let mut next = [0, 0];
        let mut place = |id: &i8| {
            let at = &mut next[usize::from(*id == 2)];
            *at += 1;
            *at - 1
        };
        let offsets: Vec<i32> = types.iter().map(&mut place).collect();
        let Ok(kinds) = UnionFields::try_new([5, 2], fields.iter().cloned()) else { return Vec::new() };
        let types = ScalarBuffer::from(types);
        let sparse = UnionArray::try_new(kinds.clone(), types.clone(), None, children.clone());
        let dense = UnionArray::try_new(kinds, types, Some(offsets.into()), children);
        let whole = whole.map(|array| Arc::new(array) as ArrayRef).ok();
        let unions = [sparse, dense].into_iter().flatten().map(|array| Arc::new(array) as ArrayRef);
        whole.into_iter().chain(unions).collect()
    }

    fn dictionaries_and_runs(&mut self) -> Vec<ArrayRef> {
        let values: ArrayRef = Arc::new(StringArray::from(self.texts(7)));
        let small = self.of::<Int8Type>(|m| m.below(7) as i8);
        let large = self.of::<UInt32Type>(|m| m.below(7) as u32);
        let mut arrays: Vec<ArrayRef> = Vec::new();
        arrays.extend(DictionaryArray::try_new(small, values.clone()).ok().map(|a| Arc::new(a) as ArrayRef));
        arrays.extend(DictionaryArray::try_new(large, values).ok().map(|a| Arc::new(a) as ArrayRef));
        // Runs of three rows, the last of which may be shorter. No run is null, because run-end
        // encoded arrays have no validity bitmap.
        let ends: Vec<i32> = (1..=self.rows.div_ceil(3)).map(|i| (3 * i).min(self.rows) as i32).collect();
        let values = StringArray::from(self.texts(ends.len()));
        let runs = RunArray::try_new(&Int32Array::from(ends), &values);
        arrays.extend(runs.ok().map(|array| Arc::new(array) as ArrayRef));
        arrays
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_every_form_have_every_type_and_depend_only_on_the_seed() {
        for form in FORMS {
            let of_seed = |seed| columns(&mut Random::new(seed, "test"), form);
            assert_eq!(of_seed(1).len(), 54, "{form}");
            let table = together(&of_seed(1)).unwrap();
            assert_eq!((table.num_rows(), table.num_columns()), (form.rows, 54));
            assert_eq!(of_seed(1), of_seed(1));
            assert!(form.rows == 0 || of_seed(1) != of_seed(2));
        }
    }
}
