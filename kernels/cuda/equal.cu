// Compares two lists of numbers.
#include "numbers.cuh"

DEVICE bool operator==(Half a, Half b) { return half_to_float(a.bits) == half_to_float(b.bits); }

template <class T>
DEVICE u64 first_difference(const Job& job, Bytes a, Bytes b) {
  typedef typename Word<T>::type W;
  u64 n = min64(a.len, b.len) / sizeof(T), first_error = NONE;
#pragma unroll 4
  for (u64 i = job.thread; i < n; i += job.threads) {
    u64 x = word_at<W>(a, i), y = word_at<W>(b, i);
    // As numbers, not as bits: -0 equals 0, and NaN equals nothing.
    if (!(value_of<T>(x) == value_of<T>(y))) first_error = min64(first_error, i);
  }
  return first_error;
}

// The cell becomes the index of the first number that differs.
KERNEL(crossdock_check_equal) {
  PARAMS(A, B, TYPE, CELL);
  FIND_JOB;
  Bytes a = job.read(A), b = job.read(B);
  u64 first_error = NONE;
  switch (job.value(TYPE)) {
#define CASE(code, name, T) \
  case code: first_error = first_difference<T>(job, a, b); break;
    NUMBER_TYPES(CASE)
#undef CASE
  }
  report(job.write(CELL), first_error);
}
