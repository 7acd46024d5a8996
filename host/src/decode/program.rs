//! A node's program, held against the node before anything is allocated.

use arrow_schema::{DataType, Field};
use crossdock_arrays::import_field_ref;
use crossdock_arrays::take::Slot;
use crossdock_plugin_api::{EncodedNode, Operator, Result};

/// Values of a block of packed words, and bytes of a row of one.
const BLOCK: u64 = 1024;
const ROW: u64 = 128;

/// What makes a node's words: a source, and what is done to each of them.
pub(super) struct Program {
    /// The first operator.
    pub source: Operator,
    /// The others.
    pub then: Vec<Operator>,
    /// Bytes of a word.
    pub width: usize,
    /// Children that it needs decoded.
    pub children: Vec<usize>,
}

impl Program {
    /// # Errors
    /// Which operator does not fit the node, its buffers or its children.
    pub fn new(node: EncodedNode<'_>, field: &Field, operators: &[Operator]) -> Result<Self> {
        let data_type = field.data_type();
        let width = match Slot::of(data_type) {
            Some(Slot::Bytes(width @ (1 | 2 | 4 | 8))) => width,
            _ => {
                return Err(node.wrong(format_args!(
                    "it has a program, and its type is {data_type}, expected one of 1, 2, 4 or 8 bytes"
                )));
            }
        };
        let [source, then @ ..] = operators else { return Err(node.wrong("its program is empty")) };
        let mut checked = Checked { node, field, width: width as u64, children: Vec::new() };
        checked.source(*source).map_err(|what| wrong(node, 0, *source, &what))?;
        for (i, operator) in then.iter().enumerate() {
            checked.step(*operator).map_err(|what| wrong(node, i + 1, *operator, &what))?;
        }
        let children = checked.children.into_iter().map(|child| child as usize).collect();
        Ok(Self { source: *source, then: then.to_vec(), width, children })
    }

    /// The child whose values are its source, or the codes of it, which may be made in the same pass.
    pub fn inner(&self) -> Option<usize> {
        match self.source {
            Operator::Child(child) | Operator::Dictionary { codes: child, .. } => Some(child as usize),
            _ => None,
        }
    }

    /// Whether it makes codes that are looked up in the same pass: packed, of a byte or two, and none put in place of others.
    pub fn makes_codes(&self) -> bool {
        let source = matches!(self.source, Operator::Unpack { .. } | Operator::Child(_));
        source && self.width <= 2 && !self.then.iter().any(|step| matches!(step, Operator::Patch { .. }))
    }

    /// How many operators.
    pub fn len(&self) -> usize {
        1 + self.then.len()
    }
}

fn wrong(node: EncodedNode<'_>, i: usize, operator: Operator, what: &str) -> crossdock_plugin_api::Error {
    node.wrong(format_args!("its program, operator {i}, {operator:?}: {what}"))
}

/// What an operator needs, or what is there instead.
type Fits<T = ()> = std::result::Result<T, String>;

struct Checked<'a> {
    node: EncodedNode<'a>,
    field: &'a Field,
    width: u64,
    children: Vec<u32>,
}

impl Checked<'_> {
    fn source(&mut self, source: Operator) -> Fits {
        let (len, width) = (self.node.length(), self.width);
        match source {
            Operator::Load { buffer, at } => self.holds(buffer, at, len.checked_mul(width)),
            Operator::Unpack { buffer, bits, first } => {
                if bits > 8 * width || first >= BLOCK {
                    return Err(format!("expected at most {} bits, and to begin within {BLOCK}", 8 * width));
                }
                let blocks =
                    if len == 0 { Some(0) } else { len.checked_add(first).map(|n| n.div_ceil(BLOCK)) };
                self.holds(buffer, 0, blocks.and_then(|blocks| blocks.checked_mul(ROW * bits)))
            }
            Operator::Child(child) => self.words(child, len).map(drop),
            Operator::Cast(child) => integers(&self.child(child, len)?),
            Operator::Sequence { .. } => Ok(()),
            Operator::Dictionary { codes, values } => {
                integers(&self.child(codes, len)?)?;
                self.words(values, self.length_of(values)?).map(drop)
            }
            Operator::Runs { ends, values, first } => {
                let n = self.length_of(ends)?;
                let ends = self.child(ends, n)?;
                integers(&ends)?;
                all_valid(&ends)?;
                if first.checked_add(len).is_none_or(|end| i64::try_from(end).is_err()) {
                    return Err(format!("{len} values from {first} on are more than there can be"));
                }
                self.words(values, n).map(drop)
            }
            _ => Err("expected a source".into()),
        }
    }

    fn step(&mut self, step: Operator) -> Fits {
        match step {
            Operator::Add(_) | Operator::Xor(_) | Operator::ZigZag => Ok(()),
            Operator::ToFloat | Operator::Scale(_) if self.width >= 4 => Ok(()),
            Operator::ToFloat | Operator::Scale(_) => {
                Err(format!("there are no floats of {} bytes", self.width))
            }
            Operator::Patch { indices, values, .. } => {
                let n = self.length_of(indices)?;
                let indices = self.child(indices, n)?;
                integers(&indices)?;
                all_valid(&indices)?;
                self.words(values, n).map(drop)
            }
            Operator::Validity(child) => {
                let truths = self.child(child, self.node.length())?;
                all_valid(&truths)?;
                match truths.data_type() {
                    _ if !self.field.is_nullable() => Err("the node's type has no nulls".into()),
                    DataType::Boolean => Ok(()),
                    other => Err(format!("the child's type is {other}, expected Boolean")),
                }
            }
            _ => Err("expected what is done to words".into()),
        }
    }

    /// A buffer holds so many bytes from byte `at` on.
    fn holds(&self, buffer: u32, at: u64, bytes: Option<u64>) -> Fits {
        let there = self.node.buffer(buffer as usize).map_err(|e| e.message().to_owned())?.bytes;
        let end = bytes.and_then(|bytes| at.checked_add(bytes));
        match end.filter(|end| *end <= there) {
            Some(_) => Ok(()),
            None => Err(format!(
                "its buffer has {there} bytes, expected {}",
                end.map_or("more than there can be".into(), |end| end.to_string())
            )),
        }
    }

    fn length_of(&self, child: u32) -> Fits<u64> {
        Ok(self.node.child(child as usize).map_err(|e| e.message().to_owned())?.length())
    }

    /// A child's type, which nobody else asked for.
    fn child(&mut self, child: u32, len: u64) -> Fits<Field> {
        let node = self.node.child(child as usize).map_err(|e| e.message().to_owned())?;
        if self.children.contains(&child) {
            return Err(format!("child {child} was used before"));
        }
        self.children.push(child);
        if node.length() != len {
            return Err(format!("child {child} has {} values, expected {len}", node.length()));
        }
        let schema = node.schema().map_err(|e| e.message().to_owned())?;
        // SAFETY: the tree was found sound: each node has a schema that lives as long as the array.
        unsafe { import_field_ref(schema) }.map_err(|e| e.message().to_owned())
    }

    /// A child of so many words as wide as the node's.
    fn words(&mut self, child: u32, len: u64) -> Fits<Field> {
        let field = self.child(child, len)?;
        match Slot::of(field.data_type()) {
            Some(Slot::Bytes(width)) if width as u64 == self.width => Ok(field),
            _ => Err(format!(
                "child {child} is of {}, expected {} bytes a value",
                field.data_type(),
                self.width
            )),
        }
    }
}

fn integers(field: &Field) -> Fits {
    if field.data_type().is_integer() {
        return Ok(());
    }
    Err(format!("a child is of {}, expected integers", field.data_type()))
}

fn all_valid(field: &Field) -> Fits {
    if field.is_nullable() { Err("a child's type has nulls, expected one without".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use crossdock_arrays::export_field;
    use crossdock_plugin_api::{EncodedArray, LogicalType, NodeParts, Owned, abi};

    use super::*;

    fn node(data_type: &DataType, nullable: bool, length: u64, n_buffers: u32, n_children: u32) -> NodeParts {
        let logical_type =
            LogicalType::Schema(export_field(&Field::new("", data_type.clone(), nullable)).unwrap());
        NodeParts { encoding: "x".into(), logical_type, length, metadata: vec![], n_buffers, n_children }
    }

    /// A buffer that says how long it is, and that nobody looks at.
    fn buffer(bytes: u64) -> Owned<abi::EncodedBuffer> {
        unsafe extern "C" fn release(buffer: *mut abi::EncodedBuffer) {
            // SAFETY: the caller's own.
            unsafe { (*buffer).release = None };
        }
        let mut raw = abi::EncodedBuffer::new();
        (raw.bytes, raw.alignment) = (bytes, 1);
        raw.release = Some(release);
        raw.address = std::ptr::dangling::<u8>().cast();
        // SAFETY: made here.
        unsafe { Owned::new(raw) }
    }

    /// What is said of a program of 2000 values of `data_type`: its node has a buffer of 4000 bytes, and for children 2000 of its
    /// type, 2000 codes, 7 ends, 7 of its type, 2000 truth values with and without nulls, and 7 ends with nulls.
    fn said(data_type: &DataType, operators: &[Operator]) -> String {
        let (n, few) = (2000, 7);
        let nodes = vec![
            node(data_type, true, n, 1, 7),
            node(data_type, true, n, 0, 0),
            node(&DataType::UInt8, true, n, 0, 0),
            node(&DataType::UInt16, false, few, 0, 0),
            node(data_type, false, few, 0, 0),
            node(&DataType::Boolean, true, n, 0, 0),
            node(&DataType::Boolean, false, n, 0, 0),
            node(&DataType::UInt16, true, few, 0, 0),
        ];
        let array = EncodedArray::new(nodes, vec![buffer(4000)]).unwrap();
        let root = array.root().unwrap();
        match Program::new(root, &Field::new("", data_type.clone(), true), operators) {
            Ok(_) => "fits".into(),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn programs_that_fit_are_taken() {
        use Operator::*;
        let whole: [&[Operator]; 8] = [
            &[Load { buffer: 0, at: 0 }, Validity(5)],
            &[Unpack { buffer: 0, bits: 15, first: 48 }, Add(1), Xor(2), ZigZag],
            &[Unpack { buffer: 0, bits: 0, first: 1023 }],
            &[Child(0), Patch { indices: 2, values: 3, first: u64::MAX }],
            &[Sequence { base: 1, step: u64::MAX }],
            &[Dictionary { codes: 1, values: 3 }],
            &[Runs { ends: 2, values: 3, first: 9 }, Validity(5)],
            &[Cast(1), Add(1), Validity(5)],
        ];
        for operators in whole {
            assert_eq!(said(&DataType::Int16, operators), "fits", "{operators:?}");
        }
        assert_eq!(said(&DataType::Float32, &[Child(0), ToFloat, Scale(0)]), "fits");
        assert_eq!(said(&DataType::Float64, &[Cast(1), ToFloat]), "fits");
    }

    #[test]
    fn programs_that_do_not_fit_are_refused_with_the_operator() {
        use Operator::*;
        let lies: [(&[Operator], &str); 25] = [
            (&[], "its program is empty"),
            (&[Add(1)], "operator 0, Add(1): expected a source"),
            (&[Child(0), Child(1)], "operator 1, Child(1): expected what is done to words"),
            (&[Load { buffer: 1, at: 0 }], "buffer 1 of 1 was asked for"),
            (&[Load { buffer: 0, at: 1 }], "its buffer has 4000 bytes, expected 4001"),
            (&[Load { buffer: 0, at: u64::MAX }], "expected more than there can be"),
            (&[Unpack { buffer: 0, bits: 17, first: 0 }], "expected at most 16 bits"),
            (&[Unpack { buffer: 0, bits: u64::MAX, first: 0 }], "expected at most 16 bits"),
            (&[Unpack { buffer: 0, bits: 1, first: 1024 }], "to begin within 1024"),
            (&[Unpack { buffer: 0, bits: 16, first: 0 }], "4000 bytes, expected 4096"),
            (&[Unpack { buffer: 0, bits: 11, first: 49 }], "4000 bytes, expected 4224"),
            (&[Child(8)], "child 8 is wanted"),
            (&[Child(1)], "child 1 is of UInt8, expected 2 bytes a value"),
            (&[Child(3)], "child 3 has 7 values, expected 2000"),
            (&[Cast(3)], "child 3 has 7 values, expected 2000"),
            (&[Cast(5)], "a child is of Boolean, expected integers"),
            (&[Child(0), Cast(1)], "operator 1, Cast(1): expected what is done to words"),
            (&[Child(0), ToFloat], "there are no floats of 2 bytes"),
            (&[Child(0), Scale(1)], "there are no floats of 2 bytes"),
            (&[Child(0), Validity(0)], "child 0 was used before"),
            (&[Child(0), Validity(4)], "a child's type has nulls"),
            (&[Child(0), Patch { indices: 6, values: 3, first: 0 }], "a child's type has nulls"),
            (&[Dictionary { codes: 5, values: 3 }], "a child is of Boolean, expected integers"),
            (&[Runs { ends: 2, values: 0, first: 0 }], "child 0 has 2000 values, expected 7"),
            (&[Runs { ends: 2, values: 3, first: u64::MAX }], "are more than there can be"),
        ];
        for (operators, expected) in lies {
            let said = said(&DataType::Int16, operators);
            assert!(said.contains(expected), "{operators:?}: {said}, expected {expected}");
        }
        for data_type in [DataType::Utf8, DataType::Boolean, DataType::Decimal128(9, 0)] {
            let said = said(&data_type, &[Operator::Sequence { base: 0, step: 0 }]);
            assert!(said.contains("expected one of 1, 2, 4 or 8 bytes"), "{said}");
        }
    }
}
