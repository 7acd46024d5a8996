// Replaces nulls by a value.
#include "wide.cuh"

template <class T>
DEVICE void fill_nulls(const Job& job, Bytes from, Bytes validity, u64 first, T null, Target to) {
  u64 n = min64(from.len, to.len) / sizeof(T);
#pragma unroll 4
  for (u64 i = job.thread; i < n; i += job.threads) {
    T value = value_at<T>(from, i);
    put_value(to, i, is_set(validity, first + i) ? value : null);
  }
}

KERNEL(crossdock_fill_nulls) {
  PARAMS(FROM, VALIDITY, FIRST, WORD_0, WORD_1, WORD_2, WORD_3, TO, WIDTH);
  FIND_JOB;
  Bytes from = job.read(FROM), validity = job.read(VALIDITY);
  Target to = job.write(TO);
  u64 first = job.value(FIRST), word = job.value(WORD_0);
  Wide16 wide16 = {{word, job.value(WORD_1)}};
  Wide32 wide32 = {{word, job.value(WORD_1), job.value(WORD_2), job.value(WORD_3)}};
  switch (job.value(WIDTH)) {
    case 1: return fill_nulls<u8>(job, from, validity, first, (u8)word, to);
    case 2: return fill_nulls<u16>(job, from, validity, first, (u16)word, to);
    case 4: return fill_nulls<u32>(job, from, validity, first, (u32)word, to);
    case 8: return fill_nulls<u64>(job, from, validity, first, word, to);
    case 16: return fill_nulls<Wide16>(job, from, validity, first, wide16, to);
    case 32: return fill_nulls<Wide32>(job, from, validity, first, wide32, to);
  }
}
