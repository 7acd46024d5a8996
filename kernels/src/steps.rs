//! What is done to each value of a chain, step after step.

use crate::jobs::JobArg;

/// One of the operators that crossdock.h lists. Values are words of 1, 2, 4 or 8 bytes, and sums and the like wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The sum with a number, of which the word's bits count.
    Add(u64),
    /// The exclusive or with it.
    Xor(u64),
    /// 0, 1, 2, 3, 4... become 0, -1, 1, -2, 2...
    ZigZag,
    /// A signed integer of 4 or 8 bytes becomes the nearest float of as many, ties to even.
    ToFloat,
    /// A float of 4 or 8 bytes is multiplied by that whose bits these are.
    Scale(u64),
}

impl Step {
    /// As steps.cuh has it.
    fn code(self) -> (u64, u64) {
        match self {
            Self::Add(number) => (1, number),
            Self::Xor(number) => (2, number),
            Self::ZigZag => (3, 0),
            Self::ToFloat => (4, 0),
            Self::Scale(bits) => (5, bits),
        }
    }

    /// The step that a kernel was given as these two arguments.
    pub fn of_code(code: u64, operand: u64) -> Option<Self> {
        let steps =
            [Self::Add(operand), Self::Xor(operand), Self::ZigZag, Self::ToFloat, Self::Scale(operand)];
        steps.into_iter().find(|step| step.code().0 == code)
    }

    /// Whether words of `width` bytes can go through it.
    pub(crate) fn takes(self, width: usize) -> bool {
        width == 4 || width == 8 || !matches!(self, Self::ToFloat | Self::Scale(_))
    }
}

/// The steps as arguments.
pub(crate) fn args<'a>(steps: &[Step]) -> impl Iterator<Item = JobArg<'a>> {
    let codes = steps.iter().flat_map(|step| {
        let (code, operand) = step.code();
        [code, operand]
    });
    codes.map(JobArg::Value)
}
