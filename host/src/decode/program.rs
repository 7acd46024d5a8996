//! Checks a node's program against the node, before anything is allocated.

use arrow_schema::{DataType, Field};
use crossdock_arrays::import_field_ref;
use crossdock_arrays::take::Slot;
use crossdock_kernels::limits::{FACTOR_LIMIT, MAX_LEFT_PARTS};
use crossdock_plugin_api::{EncodedNode, Operator, Result};

/// The number of values in a block of packed words.
pub(super) const BLOCK: u64 = 1024;
/// The number of bytes in a block for each bit of the packed width.
pub(super) const ROW: u64 = 128;

/// A program: a source of words, and the operators that are applied to each word.
pub(super) struct Program {
    /// The first operator.
    pub source: Operator,
    /// The operators that follow the first operator.
    pub then: Vec<Operator>,
    /// The size of a word in bytes.
    pub width: usize,
    /// The children that must be decoded.
    pub children: Vec<usize>,
}

impl Program {
    /// # Errors
    /// The error names the operator that does not fit the node, its buffers or its children.
    pub fn new(node: EncodedNode<'_>, field: &Field, operators: &[Operator]) -> Result<Self> {
        let data_type = field.data_type();
        let width = match Slot::of(data_type) {
            Some(Slot::Bytes(width @ (1 | 2 | 4 | 8))) => width,
            _ => {
                return Err(node.wrong(format_args!(
                    "the node has a program, but the type is {}, expected a type of 1, 2, 4 or 8 bytes",
                    crossdock_arrays::type_name(data_type)
                )));
            }
        };
        let [source, then @ ..] = operators else { return Err(node.wrong("the program is empty")) };
        let mut checker = Checker { node, field, width: width as u64, children: Vec::new(), n_terms: 0 };
        checker.source(*source).map_err(|what| operator_error(node, 0, *source, &what))?;
        let mut previous = *source;
        for (i, operator) in then.iter().enumerate() {
            checker
                .step(*operator, previous)
                .map_err(|what| operator_error(node, i + 1, *operator, &what))?;
            previous = *operator;
        }
        let children = checker.children.into_iter().map(|child| child as usize).collect();
        Ok(Self { source: *source, then: then.to_vec(), width, children })
    }

    /// Returns the child that may be decoded in the same pass. This child contains the program's
    /// source, or the codes of the program's dictionary.
    pub fn inner(&self) -> Option<usize> {
        match self.source {
            Operator::Child(child) | Operator::Dictionary { codes: child, .. } => Some(child as usize),
            _ => None,
        }
    }

    /// Whether the program's words can be dictionary codes that are looked up in the same pass.
    /// Such words are packed, have 1 or 2 bytes, and have no patches.
    pub fn makes_codes(&self) -> bool {
        let source = matches!(self.source, Operator::Unpack { .. } | Operator::Child(_));
        source && self.width <= 2 && !self.then.iter().any(|step| matches!(step, Operator::Patch { .. }))
    }

    /// Whether the program of the node's parent can run in the same pass. It cannot change the
    /// words of a sum or of joined parts.
    pub fn is_fusible(&self) -> bool {
        !matches!(self.source, Operator::Term { .. } | Operator::Join { .. })
    }

    /// Whether the program writes words. Otherwise, its words are those of a buffer or of a child.
    pub fn moves_words(&self) -> bool {
        let is_copy = matches!(self.source, Operator::Load { .. } | Operator::Child(_) | Operator::Cast(_));
        !is_copy || self.then.iter().any(|step| !matches!(step, Operator::Validity(_)))
    }

    /// The number of operators.
    pub fn len(&self) -> usize {
        1 + self.then.len()
    }
}

fn operator_error(
    node: EncodedNode<'_>,
    i: usize,
    operator: Operator,
    what: &str,
) -> crossdock_plugin_api::Error {
    node.wrong(format_args!("in the program, operator {i}, {operator:?}: {what}"))
}

/// The result of a check. Its error states what the operator expects, and what the operator got.
type CheckResult<T = ()> = std::result::Result<T, String>;

struct Checker<'a> {
    node: EncodedNode<'a>,
    field: &'a Field,
    width: u64,
    children: Vec<u32>,
    n_terms: usize,
}

/// The maximum number of terms of a sum.
const MAX_TERMS: usize = 4;

impl Checker<'_> {
    fn source(&mut self, source: Operator) -> CheckResult {
        let (len, width) = (self.node.length(), self.width);
        match source {
            Operator::Load { buffer, at } => self.check_buffer(buffer, at, len.checked_mul(width)),
            Operator::Unpack { buffer, bits, first } => {
                if bits > 8 * width || first >= BLOCK {
                    return Err(format!("expected at most {} bits, and a start below {BLOCK}", 8 * width));
                }
                let blocks =
                    if len == 0 { Some(0) } else { len.checked_add(first).map(|n| n.div_ceil(BLOCK)) };
                self.check_buffer(buffer, 0, blocks.and_then(|blocks| blocks.checked_mul(ROW * bits)))
            }
            Operator::Child(child) => self.add_word_child(child, len).map(drop),
            Operator::Cast(child) => check_integers(&self.add_child(child, len)?),
            Operator::Sequence { .. } => Ok(()),
            Operator::Dictionary { codes, values } => {
                check_integers(&self.add_child(codes, len)?)?;
                self.add_word_child(values, self.length_of(values)?).map(drop)
            }
            Operator::Runs { ends, values, first } => {
                let n = self.length_of(ends)?;
                let ends = self.add_child(ends, n)?;
                check_integers(&ends)?;
                check_not_nullable(&ends)?;
                if first.checked_add(len).is_none_or(|end| i64::try_from(end).is_err()) {
                    return Err(format!("{len} values from {first} on exceed the maximum of 2^63 - 1"));
                }
                self.add_word_child(values, n).map(drop)
            }
            Operator::Term { child, factor } => self.term(child, factor).map(drop),
            Operator::Join { codes, rights, right_bits, n_lefts, lefts } => {
                self.check_join(right_bits, n_lefts, lefts)?;
                self.add_part_child(codes.into(), len)?;
                check_not_nullable(&self.add_word_child(rights.into(), len)?)
            }
            _ => Err("expected a source".into()),
        }
    }

    fn step(&mut self, step: Operator, previous: Operator) -> CheckResult {
        match (previous, step) {
            (Operator::Term { .. }, Operator::Term { child, factor }) => {
                self.n_terms += 1;
                return check_not_nullable(&self.term(child, factor)?);
            }
            (Operator::Join { .. }, Operator::PatchLeft { indices, lefts, .. }) => {
                let n = self.length_of(indices)?;
                let indices = self.add_child(indices, n)?;
                check_integers(&indices)?;
                check_not_nullable(&indices)?;
                return self.add_part_child(lefts, n).map(drop);
            }
            (_, Operator::Validity(_)) => {}
            (Operator::Term { .. } | Operator::Join { .. } | Operator::PatchLeft { .. }, _) => {
                return Err(format!("the operator does not follow {previous:?}"));
            }
            _ => {}
        }
        match step {
            Operator::Add(_) | Operator::Xor(_) | Operator::ZigZag => Ok(()),
            Operator::ToFloat | Operator::Scale(_) if self.width >= 4 => Ok(()),
            Operator::ToFloat | Operator::Scale(_) => {
                Err(format!("expected words of 4 or 8 bytes, which floats have, got {} bytes", self.width))
            }
            Operator::Patch { indices, values, .. } => {
                let n = self.length_of(indices)?;
                let indices = self.add_child(indices, n)?;
                check_integers(&indices)?;
                check_not_nullable(&indices)?;
                self.add_word_child(values, n).map(drop)
            }
            Operator::Validity(child) => {
                let truths = self.add_child(child, self.node.length())?;
                check_not_nullable(&truths)?;
                match truths.data_type() {
                    _ if !self.field.is_nullable() => Err("the node's type has no nulls".into()),
                    DataType::Boolean => Ok(()),
                    other => Err(format!(
                        "the child's type is {other}, expected bool",
                        other = crossdock_arrays::type_name(other)
                    )),
                }
            }
            _ => Err("expected an operator on words".into()),
        }
    }

    fn term(&mut self, child: u32, factor: u64) -> CheckResult<Field> {
        if self.width != 8 || factor >= FACTOR_LIMIT || self.n_terms >= MAX_TERMS {
            return Err(format!(
                "expected at most {MAX_TERMS} terms, words of 8 bytes and a factor below {FACTOR_LIMIT}"
            ));
        }
        let field = self.add_child(child, self.node.length())?;
        check_integers(&field)?;
        Ok(field)
    }

    fn check_join(&self, right_bits: u8, n_lefts: u8, lefts: [u16; MAX_LEFT_PARTS]) -> CheckResult {
        let bits = 8 * self.width;
        let right_bits = u64::from(right_bits);
        if self.width < 4 || right_bits == 0 || right_bits >= bits {
            return Err(format!("got right parts of {right_bits} bits for words of {bits} bits"));
        }
        let max = u64::MAX >> (64 - (bits - right_bits));
        let (used, rest) = lefts
            .split_at_checked(n_lefts.into())
            .ok_or_else(|| format!("got {n_lefts} left parts, expected at most {MAX_LEFT_PARTS}"))?;
        match used.iter().find(|left| u64::from(**left) > max) {
            Some(left) => Err(format!("the left part {left} has more than {} bits", bits - right_bits)),
            None if rest.iter().any(|left| *left > 0) => {
                Err(format!("a left part beyond the {n_lefts} declared ones is not 0"))
            }
            None => Ok(()),
        }
    }

    /// Adds a child of `len` integers of 2 bytes.
    fn add_part_child(&mut self, child: u32, len: u64) -> CheckResult<Field> {
        let field = self.add_child(child, len)?;
        if *field.data_type() == DataType::UInt16 {
            return Ok(field);
        }
        Err(format!(
            "child {child} has type {}, expected uint16",
            crossdock_arrays::type_name(field.data_type())
        ))
    }

    /// Checks that a buffer has at least `bytes` bytes that start at byte `at`.
    fn check_buffer(&self, buffer: u32, at: u64, bytes: Option<u64>) -> CheckResult {
        let actual = self.node.buffer(buffer as usize).map_err(|e| e.message().to_owned())?.bytes;
        let end = bytes.and_then(|bytes| at.checked_add(bytes));
        match end.filter(|end| *end <= actual) {
            Some(_) => Ok(()),
            None => Err(format!(
                "the buffer has {actual} bytes, expected at least {}",
                end.map_or("2^64".into(), |end| end.to_string())
            )),
        }
    }

    fn length_of(&self, child: u32) -> CheckResult<u64> {
        Ok(self.node.child(child as usize).map_err(|e| e.message().to_owned())?.length())
    }

    /// Adds a child that the program needs, and returns its type. Each child may be used once.
    fn add_child(&mut self, child: u32, len: u64) -> CheckResult<Field> {
        let node = self.node.child(child as usize).map_err(|e| e.message().to_owned())?;
        if self.children.contains(&child) {
            return Err(format!("child {child} is used twice"));
        }
        self.children.push(child);
        if node.length() != len {
            return Err(format!("child {child} has {} values, expected {len}", node.length()));
        }
        let schema = node.schema().map_err(|e| e.message().to_owned())?;
        // SAFETY: `EncodedArray` checked the tree: each node's schema lives as long as the array.
        unsafe { import_field_ref(schema) }.map_err(|e| e.message().to_owned())
    }

    /// Adds a child of `len` words that have the same width as the node's words.
    fn add_word_child(&mut self, child: u32, len: u64) -> CheckResult<Field> {
        let field = self.add_child(child, len)?;
        match Slot::of(field.data_type()) {
            Some(Slot::Bytes(width)) if width as u64 == self.width => Ok(field),
            _ => Err(format!(
                "child {child} has type {}, expected {} bytes per value",
                crossdock_arrays::type_name(field.data_type()),
                self.width
            )),
        }
    }
}

fn check_integers(field: &Field) -> CheckResult {
    if field.data_type().is_integer() {
        return Ok(());
    }
    Err(format!("a child has type {}, expected integers", crossdock_arrays::type_name(field.data_type())))
}

fn check_not_nullable(field: &Field) -> CheckResult {
    if field.is_nullable() { Err("a child's type is nullable, expected no nulls".into()) } else { Ok(()) }
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

    /// A buffer with a declared length and a dangling address: the checks must not read it.
    fn buffer(bytes: u64) -> Owned<abi::EncodedBuffer> {
        unsafe extern "C" fn release(buffer: *mut abi::EncodedBuffer) {
            // SAFETY: `Owned` passes its own struct.
            unsafe { (*buffer).release = None };
        }
        let mut raw = abi::EncodedBuffer::new();
        (raw.bytes, raw.alignment) = (bytes, 1);
        raw.release = Some(release);
        raw.address = std::ptr::dangling::<u8>().cast();
        // SAFETY: `raw` has a `release` and no other owner.
        unsafe { Owned::new(raw) }
    }

    /// The result for a program of 2000 values of `data_type`. The node has a buffer of 4000 bytes
    /// and children: 2000 values of its type, 2000 codes, 7 ends, 7 values of its type, 2000
    /// booleans with and without nulls, 7 ends with nulls, 2000 left parts, 7 left parts, and 2000
    /// values of its type without nulls.
    fn result(data_type: &DataType, operators: &[Operator]) -> String {
        let (n, few) = (2000, 7);
        let nodes = vec![
            node(data_type, true, n, 1, 10),
            node(data_type, true, n, 0, 0),
            node(&DataType::UInt8, true, n, 0, 0),
            node(&DataType::UInt16, false, few, 0, 0),
            node(data_type, false, few, 0, 0),
            node(&DataType::Boolean, true, n, 0, 0),
            node(&DataType::Boolean, false, n, 0, 0),
            node(&DataType::UInt16, true, few, 0, 0),
            node(&DataType::UInt16, true, n, 0, 0),
            node(&DataType::UInt16, false, few, 0, 0),
            node(data_type, false, n, 0, 0),
        ];
        let array = EncodedArray::new(nodes, vec![buffer(4000)]).unwrap();
        let root = array.root().unwrap();
        match Program::new(root, &Field::new("", data_type.clone(), true), operators) {
            Ok(_) => "fits".into(),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn accepts_programs_that_fit_the_node() {
        use Operator::*;
        let programs: [&[Operator]; 8] = [
            &[Load { buffer: 0, at: 0 }, Validity(5)],
            &[Unpack { buffer: 0, bits: 15, first: 48 }, Add(1), Xor(2), ZigZag],
            &[Unpack { buffer: 0, bits: 0, first: 1023 }],
            &[Child(0), Patch { indices: 2, values: 3, first: u64::MAX }],
            &[Sequence { base: 1, step: u64::MAX }],
            &[Dictionary { codes: 1, values: 3 }],
            &[Runs { ends: 2, values: 3, first: 9 }, Validity(5)],
            &[Cast(1), Add(1), Validity(5)],
        ];
        for operators in programs {
            assert_eq!(result(&DataType::Int16, operators), "fits", "{operators:?}");
        }
        assert_eq!(result(&DataType::Float32, &[Child(0), ToFloat, Scale(0)]), "fits");
        assert_eq!(result(&DataType::Float64, &[Cast(1), ToFloat]), "fits");
        let sum = [Term { child: 1, factor: 86_400 }, Term { child: 9, factor: 1 }, Validity(5)];
        assert_eq!(result(&DataType::Int64, &sum), "fits");
        let patch = PatchLeft { indices: 2, lefts: 8, first: 5 };
        assert_eq!(result(&DataType::Float64, &[join(52, 2), patch, Validity(5)]), "fits");
        assert_eq!(result(&DataType::Float32, &[join(20, 2)]), "fits");
    }

    /// Right parts of `right_bits` bits, and left parts that have up to 12 bits.
    fn join(right_bits: u8, n_lefts: u8) -> Operator {
        Operator::Join { codes: 7, rights: 9, right_bits, n_lefts, lefts: [0xfff, 1, 0, 0, 0, 0, 0, 0] }
    }

    #[test]
    fn error_for_a_sum_or_a_join_that_does_not_fit_names_the_operator() {
        use Operator::*;
        let (term, patch) = (Term { child: 9, factor: 1 }, PatchLeft { indices: 2, lefts: 8, first: 0 });
        let malformed: [(DataType, &[Operator], &str); 17] = [
            (DataType::Int32, &[Term { child: 0, factor: 1 }], "words of 8 bytes"),
            (DataType::Int64, &[Term { child: 0, factor: 1 << 60 }], "a factor below"),
            (DataType::Float64, &[Term { child: 0, factor: 1 }], "type double, expected integers"),
            (DataType::Int64, &[Term { child: 3, factor: 1 }], "child 3 has 7 values, expected 2000"),
            (DataType::Int64, &[term, Term { child: 0, factor: 1 }], "a child's type is nullable"),
            (DataType::Int64, &[term, term], "child 9 is used twice"),
            (DataType::Int64, &[term, Add(1)], "operator 1, Add(1): the operator does not follow Term"),
            (DataType::Int64, &[Child(0), term], "operator 1, Term"),
            (DataType::Float64, &[join(0, 2)], "right parts of 0 bits for words of 64 bits"),
            (DataType::Float32, &[join(32, 2)], "right parts of 32 bits for words of 32 bits"),
            (DataType::Int16, &[join(4, 2)], "right parts of 4 bits for words of 16 bits"),
            (DataType::Float64, &[join(53, 2)], "the left part 4095 has more than 11 bits"),
            (DataType::Float64, &[join(52, 9)], "got 9 left parts, expected at most 8"),
            (DataType::Float64, &[join(52, 1)], "a left part beyond the 1 declared ones is not 0"),
            (DataType::Float64, &[join(52, 2), Add(1)], "the operator does not follow Join"),
            (DataType::Float64, &[join(52, 2), patch, patch], "does not follow PatchLeft"),
            (DataType::Float64, &[Child(0), patch], "expected an operator on words"),
        ];
        for (data_type, operators, expected) in malformed {
            let message = result(&data_type, operators);
            assert!(message.contains(expected), "{operators:?}: {message}, expected {expected}");
        }
    }

    #[test]
    fn error_for_a_program_that_does_not_fit_names_the_operator() {
        use Operator::*;
        let malformed: [(&[Operator], &str); 25] = [
            (&[], "the program is empty"),
            (&[Add(1)], "operator 0, Add(1): expected a source"),
            (&[Child(0), Child(1)], "operator 1, Child(1): expected an operator on words"),
            (&[Load { buffer: 1, at: 0 }], "buffer 1 was requested, but the node has 1 buffers"),
            (&[Load { buffer: 0, at: 1 }], "the buffer has 4000 bytes, expected at least 4001"),
            (&[Load { buffer: 0, at: u64::MAX }], "expected at least 2^64"),
            (&[Unpack { buffer: 0, bits: 17, first: 0 }], "expected at most 16 bits"),
            (&[Unpack { buffer: 0, bits: u64::MAX, first: 0 }], "expected at most 16 bits"),
            (&[Unpack { buffer: 0, bits: 1, first: 1024 }], "a start below 1024"),
            (&[Unpack { buffer: 0, bits: 16, first: 0 }], "4000 bytes, expected at least 4096"),
            (&[Unpack { buffer: 0, bits: 11, first: 49 }], "4000 bytes, expected at least 4224"),
            (&[Child(10)], "child 10 was requested"),
            (&[Child(1)], "child 1 has type uint8, expected 2 bytes per value"),
            (&[Child(3)], "child 3 has 7 values, expected 2000"),
            (&[Cast(3)], "child 3 has 7 values, expected 2000"),
            (&[Cast(5)], "a child has type bool, expected integers"),
            (&[Child(0), Cast(1)], "operator 1, Cast(1): expected an operator on words"),
            (&[Child(0), ToFloat], "expected words of 4 or 8 bytes, which floats have, got 2 bytes"),
            (&[Child(0), Scale(1)], "expected words of 4 or 8 bytes, which floats have, got 2 bytes"),
            (&[Child(0), Validity(0)], "child 0 is used twice"),
            (&[Child(0), Validity(4)], "a child's type is nullable"),
            (&[Child(0), Patch { indices: 6, values: 3, first: 0 }], "a child's type is nullable"),
            (&[Dictionary { codes: 5, values: 3 }], "a child has type bool, expected integers"),
            (&[Runs { ends: 2, values: 0, first: 0 }], "child 0 has 2000 values, expected 7"),
            (&[Runs { ends: 2, values: 3, first: u64::MAX }], "exceed the maximum"),
        ];
        for (operators, expected) in malformed {
            let message = result(&DataType::Int16, operators);
            assert!(message.contains(expected), "{operators:?}: {message}, expected {expected}");
        }
        for data_type in [DataType::Utf8, DataType::Boolean, DataType::Decimal128(9, 0)] {
            let message = result(&data_type, &[Operator::Sequence { base: 0, step: 0 }]);
            assert!(message.contains("expected a type of 1, 2, 4 or 8 bytes"), "{message}");
        }
    }
}
