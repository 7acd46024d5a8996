//! Applies steps to values.

use crossdock_kernels::Step;

use crate::door::Args;

/// Reads the steps of a job, from argument `first` on.
pub(crate) fn from_args(args: &Args<'_>, first: usize) -> Option<Vec<Step>> {
    (first..args.len()).step_by(2).map(|i| Step::from_code(args.value(i)?, args.value(i + 1)?)).collect()
}

/// A word to which steps apply.
pub(crate) trait Stepped: Copy {
    type Bytes: AsRef<[u8]>;
    fn low(of: u64) -> Self;
    fn wide(self) -> u64;
    fn load(bytes: &[u8]) -> Option<Self>;
    fn store(self) -> Self::Bytes;
    /// Applies a step; `None` if it does not apply to words of this width.
    fn step(self, step: Step) -> Option<Self>;

    fn steps(self, steps: &[Step]) -> Option<Self> {
        steps.iter().try_fold(self, |word, step| word.step(*step))
    }
}

macro_rules! stepped {
    ($($t:ty, $to_float:expr, $scale:expr);*) => { $(
        impl Stepped for $t {
            type Bytes = [u8; size_of::<$t>()];
            fn low(of: u64) -> Self {
                of as Self
            }
            fn wide(self) -> u64 {
                self.into()
            }
            fn load(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_ne_bytes(bytes.try_into().ok()?))
            }
            fn store(self) -> Self::Bytes {
                self.to_ne_bytes()
            }
            fn step(self, step: Step) -> Option<Self> {
                let (to_float, scale): (fn($t) -> Option<$t>, fn($t, u64) -> Option<$t>) = ($to_float, $scale);
                match step {
                    Step::Add(number) => Some(self.wrapping_add(number as Self)),
                    Step::Xor(number) => Some(self ^ number as Self),
                    Step::ZigZag => Some((self >> 1) ^ (self & 1).wrapping_neg()),
                    Step::ToFloat => to_float(self),
                    Step::Scale(bits) => scale(self, bits),
                }
            }
        }
    )* };
}

stepped!(
    u8, |_| None, |_, _| None;
    u16, |_| None, |_, _| None;
    u32, |word| Some((word.cast_signed() as f32).to_bits()),
        |word, bits| Some((f32::from_bits(word) * f32::from_bits(bits as u32)).to_bits());
    u64, |word| Some((word.cast_signed() as f64).to_bits()),
        |word, bits| Some((f64::from_bits(word) * f64::from_bits(bits)).to_bits())
);

/// Evaluates `$body` with `$t` as the word type of `$width` bytes; `None` for other widths.
macro_rules! with_word {
    ($width:expr, $t:ident => $body:expr) => {
        match $width {
            1 => {
                type $t = u8;
                $body
            }
            2 => {
                type $t = u16;
                $body
            }
            4 => {
                type $t = u32;
                $body
            }
            8 => {
                type $t = u64;
                $body
            }
            _ => None,
        }
    };
}

pub(crate) use with_word;
