//! Steps that are applied to each value in sequence.

use crate::jobs::JobArg;

/// An operator of a program, as in `crossdock.h`. Values are words of 1, 2, 4 or 8 bytes, and
/// integer results wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Adds a number, which is truncated to the word.
    Add(u64),
    /// Computes the exclusive or of the value and a number, which is truncated to the word.
    Xor(u64),
    /// Decodes zigzag: 0, 1, 2, 3, 4... become 0, -1, 1, -2, 2...
    ZigZag,
    /// Converts a signed integer of 4 or 8 bytes to the nearest float of the same width, ties to
    /// even.
    ToFloat,
    /// Multiplies a float of 4 or 8 bytes by a factor. The number contains the bits of the factor.
    Scale(u64),
}

impl Step {
    /// The code and the operand of the step, as `steps.cuh` defines them.
    fn code(self) -> (u64, u64) {
        match self {
            Self::Add(number) => (1, number),
            Self::Xor(number) => (2, number),
            Self::ZigZag => (3, 0),
            Self::ToFloat => (4, 0),
            Self::Scale(bits) => (5, bits),
        }
    }

    /// The step that two arguments of a kernel describe.
    pub fn from_code(code: u64, operand: u64) -> Option<Self> {
        let steps =
            [Self::Add(operand), Self::Xor(operand), Self::ZigZag, Self::ToFloat, Self::Scale(operand)];
        steps.into_iter().find(|step| step.code().0 == code)
    }

    /// Whether the step applies to words of `width` bytes.
    pub(crate) fn applies_to(self, width: usize) -> bool {
        width == 4 || width == 8 || !matches!(self, Self::ToFloat | Self::Scale(_))
    }
}

/// The steps as arguments of a kernel.
pub(crate) fn args<'a>(steps: &[Step]) -> impl Iterator<Item = JobArg<'a>> {
    let codes = steps.iter().flat_map(|step| {
        let (code, operand) = step.code();
        [code, operand]
    });
    codes.map(JobArg::Value)
}
