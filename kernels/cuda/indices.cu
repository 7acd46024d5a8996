// Checks the keys of dictionary arrays.
#include "words.cuh"

KERNEL(crossdock_check_indices) {
  PARAMS(KEYS, WIDTH, SIGNED, VALIDITY, FIRST, LIMIT, CELL);
  FIND_JOB;
  Bytes keys = job.read(KEYS), validity = job.read(VALIDITY);
  u64 first = job.value(FIRST), width = job.value(WIDTH);
  i64 limit = limit_of(job.value(LIMIT));
  bool is_signed = job.value(SIGNED) != 0;
  if (width != 1 && width != 2 && width != 4 && width != 8) return;
  u64 n = keys.len / width, first_error;
  auto wrong = [=](u64 i, i64 key) { return (key < 0 || key >= limit) && is_set(validity, first + i); };
  // Signed keys of 4 and 8 bytes have a fast path, since Arrow recommends signed keys.
  if (is_signed && width >= 4) {
    auto use = [=](auto key) { return first_wrong<decltype(key)::AT_ONCE>(job, n, key, wrong); };
    first_error = with_offsets(keys, (u32)width, use);
  } else {
    first_error = first_wrong<1>(job, n, Unaligned{keys, (u32)width, is_signed}, wrong);
  }
  report(job.write(CELL), first_error);
}
