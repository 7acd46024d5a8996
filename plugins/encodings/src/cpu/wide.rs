//! The widest vectors that the processor has, beyond what every one of its kind has.

/// Work on a slice that gains from wider vectors. What it reads and what it writes are arguments, of functions that are
/// not inlined, because the compiler then knows that they do not overlap.
pub(crate) trait Work<From, Into, Out = ()> {
    /// Does it. Marked `#[inline(always)]`, or else it stays as it was compiled.
    fn run(self, from: &[From], into: &mut [Into]) -> Out;
}

/// Runs it with the widest vectors there are.
#[inline]
pub(crate) fn run<From, Into, Out>(
    work: impl Work<From, Into, Out>,
    from: &[From],
    into: &mut [Into],
) -> Out {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the line above found that this processor has what `with_avx2` was compiled for.
        return unsafe { with_avx2(work, from, into) };
    }
    with_what_all_have(work, from, into)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline(never)]
fn with_avx2<From, Into, Out>(work: impl Work<From, Into, Out>, from: &[From], into: &mut [Into]) -> Out {
    work.run(from, into)
}

#[inline(never)]
fn with_what_all_have<From, Into, Out>(
    work: impl Work<From, Into, Out>,
    from: &[From],
    into: &mut [Into],
) -> Out {
    work.run(from, into)
}
