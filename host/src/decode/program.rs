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

    /// The child whose values are its source, which may be made in the same pass.
    pub fn inner(&self) -> Option<usize> {
        match self.source {
            Operator::Child(child) => Some(child as usize),
            _ => None,
        }
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
