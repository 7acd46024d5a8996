//! What is done to each value of a chain, step after step.

use crossdock_kernels::Step;

use crate::door::Args;

/// Those that a twin was given, from argument `first` on.
pub(crate) fn of(args: &Args<'_>, first: usize) -> Option<Vec<Step>> {
    (first..args.len()).step_by(2).map(|i| Step::of_code(args.value(i)?, args.value(i + 1)?)).collect()
}

/// A word that steps are taken with.
pub(crate) trait Stepped: Copy {
    type Bytes: AsRef<[u8]>;
    fn low(of: u64) -> Self;
    fn wide(self) -> u64;
    fn load(bytes: &[u8]) -> Option<Self>;
    fn store(self) -> Self::Bytes;
    /// `None` where words of this width have no such step.
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

/// Runs `$body` with `$t` standing for the word of `$width` bytes; `None` for a width that no word has.
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
