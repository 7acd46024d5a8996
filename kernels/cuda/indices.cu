// A dictionary's keys.
#include "words.cuh"

KERNEL(crossdock_check_indices) {
  PARAMS(KEYS, WIDTH, SIGNED, VALIDITY, FIRST, LIMIT, CELL);
  FIND_JOB;
  Bytes keys = job.read(KEYS), validity = job.read(VALIDITY);
  u64 first = job.value(FIRST), width = job.value(WIDTH);
  i64 limit = limit_of(job.value(LIMIT));
  bool is_signed = job.value(SIGNED) != 0;
  if (width != 1 && width != 2 && width != 4 && width != 8) return;
  u64 found = first_wrong(job, keys.len / width, [=](u64 i) {
    i64 key = integer_at(keys, i, (u32)width, is_signed);
    return (key < 0 || key >= limit) && is_set(validity, first + i);
  });
  report(job.write(CELL), found);
}
