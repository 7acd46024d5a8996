//! Compares two files batch by batch, without loading either of them completely.

use anyhow::{Context, Result, bail, ensure};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::FileReader;
use arrow_schema::Schema;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::path::Path;

/// The result of comparing equal files: how many rows, columns and metadata keys are equal.
#[derive(Debug, PartialEq, Eq)]
pub struct Equal {
    pub rows: usize,
    pub columns: usize,
    /// The numbers of batches of the two files.
    pub batches: (usize, usize),
    /// The number of metadata keys of the schema and of all its fields, including nested fields.
    pub metadata: usize,
}

impl fmt::Display for Equal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, columns, batches: (left, right), metadata } = self;
        write!(f, "{rows} rows, {columns} columns, every value, null, type and metadata key ({metadata})")?;
        if left == right {
            write!(f, "; {left} batches")
        } else {
            write!(f, "; {left} batches became {right}")
        }
    }
}

/// Compares two files.
///
/// # Errors
/// Returns the first difference between the files as an error.
pub fn files(left: &Path, right: &Path) -> Result<Equal> {
    let mut left = Batches::open(left)?;
    let mut right = Batches::open(right)?;
    schemas(&left.reader.schema(), &right.reader.schema())?;
    ensure!(
        left.reader.custom_metadata() == right.reader.custom_metadata(),
        "the file's metadata: expected {:?}, got {:?}",
        left.reader.custom_metadata(),
        right.reader.custom_metadata()
    );
    let schema = left.reader.schema();
    let mut rows = 0;
    loop {
        let (here, there) = (left.remaining()?, right.remaining()?);
        if here == 0 || there == 0 {
            ensure!(here == there, "one file ends at row {rows}, the other file has more rows");
            break;
        }
        let step = here.min(there);
        let (a, b) = (left.take(step)?, right.take(step)?);
        for (index, field) in schema.fields().iter().enumerate() {
            column(field.name(), rows, a.column(index), b.column(index))?;
        }
        rows += step;
    }
    Ok(Equal {
        rows,
        columns: schema.fields().len(),
        batches: (left.read, right.read),
        metadata: schema.metadata().len()
            + schema.flattened_fields().iter().map(|f| f.metadata().len()).sum::<usize>(),
    })
}

fn schemas(left: &Schema, right: &Schema) -> Result<()> {
    ensure!(
        left.metadata() == right.metadata(),
        "the schema's metadata: expected {:?}, got {:?}",
        left.metadata(),
        right.metadata()
    );
    ensure!(
        left.fields().len() == right.fields().len(),
        "columns: expected {}, got {}",
        left.fields().len(),
        right.fields().len()
    );
    for (a, b) in left.fields().iter().zip(right.fields()) {
        ensure!(a == b, "the column {}: expected {a:?}, got {b:?}", a.name());
    }
    Ok(())
}

fn column(name: &str, first_row: usize, left: &dyn Array, right: &dyn Array) -> Result<()> {
    if left == right {
        return Ok(());
    }
    for row in 0..left.len() {
        let (a, b) = (left.slice(row, 1), right.slice(row, 1));
        if *a != *b {
            bail!("column {name}, row {}: expected {a:?}, got {b:?}", first_row + row);
        }
    }
    bail!("column {name}, from row {first_row}: the arrays differ, but all their rows are equal");
}

/// Reads the rows of a file in slices of any size.
struct Batches {
    reader: FileReader<File>,
    waiting: VecDeque<RecordBatch>,
    read: usize,
}

impl Batches {
    fn open(path: &Path) -> Result<Self> {
        let name = || path.display().to_string();
        let file = File::open(path).with_context(name)?;
        Ok(Self {
            reader: FileReader::try_new(file, None).with_context(name)?,
            waiting: VecDeque::new(),
            read: 0,
        })
    }

    /// The number of remaining rows in the current batch; 0 at the end.
    fn remaining(&mut self) -> Result<usize> {
        loop {
            match self.waiting.front() {
                Some(batch) if batch.num_rows() > 0 => return Ok(batch.num_rows()),
                Some(_) => drop(self.waiting.pop_front()),
                None => match self.reader.next() {
                    Some(batch) => {
                        self.waiting.push_back(batch?);
                        self.read += 1;
                    }
                    None => return Ok(0),
                },
            }
        }
    }

    /// Removes and returns the next `rows` rows. `rows` is at most `remaining`.
    fn take(&mut self, rows: usize) -> Result<RecordBatch> {
        let batch = self.waiting.pop_front().context("no batch is waiting")?;
        if rows < batch.num_rows() {
            self.waiting.push_front(batch.slice(rows, batch.num_rows() - rows));
        }
        Ok(batch.slice(0, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int32Array, StringArray};
    use arrow_ipc::writer::FileWriter;
    use arrow_schema::{DataType, Field};
    use std::collections::HashMap;
    use std::sync::Arc;

    fn schema(unit: &str) -> Arc<Schema> {
        let unit = HashMap::from([("unit".to_owned(), unit.to_owned())]);
        let fields = vec![
            Field::new("n", DataType::Int32, true).with_metadata(unit),
            Field::new("s", DataType::Utf8, true),
        ];
        Arc::new(Schema::new(fields))
    }

    /// Writes a file with these numbers, in batches of `step` rows. The number 3 becomes null.
    fn file(folder: &Path, name: &str, unit: &str, numbers: &[i32], step: usize) -> std::path::PathBuf {
        let path = folder.join(name);
        let schema = schema(unit);
        let mut writer = FileWriter::try_new(File::create(&path).unwrap(), &schema).unwrap();
        for chunk in numbers.chunks(step) {
            let n: Int32Array = chunk.iter().map(|v| (*v != 3).then_some(*v)).collect();
            let s: StringArray = chunk.iter().map(|v| Some(v.to_string())).collect();
            writer
                .write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(n), Arc::new(s)]).unwrap())
                .unwrap();
        }
        writer.finish().unwrap();
        path
    }

    fn message(result: Result<Equal>) -> String {
        format!("{:#}", result.expect_err("the files differ"))
    }

    #[test]
    fn same_rows_in_batches_of_other_lengths_are_equal() {
        let dir = tempfile::tempdir().unwrap();
        let a = file(dir.path(), "a", "m", &[1, 2, 3, 4, 5], 2);
        let b = file(dir.path(), "b", "m", &[1, 2, 3, 4, 5], 3);
        let equal = files(&a, &b).unwrap();
        assert_eq!(equal, Equal { rows: 5, columns: 2, batches: (3, 2), metadata: 1 });
        assert!(equal.to_string().starts_with("5 rows, 2 columns"));
    }

    #[test]
    fn reports_column_and_row_of_a_changed_value() {
        let dir = tempfile::tempdir().unwrap();
        let a = file(dir.path(), "a", "m", &[1, 2, 3, 4, 5], 2);
        let b = file(dir.path(), "b", "m", &[1, 2, 3, 9, 5], 5);
        assert!(message(files(&a, &b)).contains("column n, row 3"));
    }

    #[test]
    fn null_and_value_are_different() {
        let dir = tempfile::tempdir().unwrap();
        let a = file(dir.path(), "a", "m", &[1, 2, 3], 2);
        let b = file(dir.path(), "b", "m", &[1, 2, 0], 2);
        assert!(message(files(&a, &b)).contains("column n, row 2"));
    }

    #[test]
    fn reports_lost_rows_and_changed_metadata_as_differences() {
        let dir = tempfile::tempdir().unwrap();
        let a = file(dir.path(), "a", "m", &[1, 2, 3], 2);
        let short = file(dir.path(), "short", "m", &[1, 2], 2);
        assert!(message(files(&a, &short)).contains("one file ends at row 2"));
        let other = file(dir.path(), "other", "km", &[1, 2, 3], 2);
        assert!(message(files(&a, &other)).contains("the column n"));
    }
}
