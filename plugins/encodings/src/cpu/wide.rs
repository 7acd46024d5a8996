//! Runs work with the widest vectors of the processor, beyond the compilation target's baseline.

/// Work on a slice that is faster with wider vectors. Input and output are the arguments of
/// functions that are not inlined. Therefore the compiler can assume that the two slices do not
/// overlap.
pub(crate) trait Work<From, Into, Out = ()> {
    /// Does the work. Implementations must be `#[inline(always)]`, because otherwise they are
    /// compiled without the wider vectors.
    fn run(self, from: &[From], into: &mut [Into]) -> Out;
}

/// Runs the work with the widest vectors of the processor.
#[inline]
pub(crate) fn run<From, Into, Out>(
    work: impl Work<From, Into, Out>,
    from: &[From],
    into: &mut [Into],
) -> Out {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, which the line above checks.
        return unsafe { with_avx2(work, from, into) };
    }
    with_baseline(work, from, into)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline(never)]
fn with_avx2<From, Into, Out>(work: impl Work<From, Into, Out>, from: &[From], into: &mut [Into]) -> Out {
    work.run(from, into)
}

#[inline(never)]
fn with_baseline<From, Into, Out>(work: impl Work<From, Into, Out>, from: &[From], into: &mut [Into]) -> Out {
    work.run(from, into)
}
