// Values by their numbers, of which every 1024 number those of a part of their own.
#include "packed.cuh"
#include "widen.cuh"

#define TAKEN_AT_ONCE 4

template <class T>
DEVICE u64 take_blocks(const Job& job, Bytes codes, u32 code, Bytes validity, u64 first_bit, Bytes begins, u32 begin,
                       Bytes values, u64 first, Target to) {
  u64 n = to.len / sizeof(T), n_values = words_of<T>(values), found = NOTHING;
  u64 blocks = begins.len / width_of_integer(begin), step = job.threads;
  if (n == 0) return found;
  if (codes.len / width_of_integer(code) < n || (first + n - 1) / BLOCK_VALUES >= blocks) return 0;
  u64 zero = integer_of(begins, 0, begin);
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += TAKEN_AT_ONCE * step) {
    u64 place[TAKEN_AT_ONCE];
    T words[TAKEN_AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < TAKEN_AT_ONCE; k++) {
      u64 at = i + k * step;
      place[k] = NOTHING;
      if (at >= n) continue;
      u64 block = (first + at) / BLOCK_VALUES, number = integer_of(codes, at, code);
      u64 from = integer_of(begins, block, begin) - zero;
      u64 end = block + 1 < blocks ? integer_of(begins, block + 1, begin) - zero : n_values;
      bool is_part = from <= end && end <= n_values;
      // Of one value all numbers mean it.
      if (end - from == 1) number = 0;
      if (is_part && number < end - from) {
        place[k] = from + number;
      } else if (!is_part || is_set(validity, first_bit + at)) {
        found = min64(found, at);
      }
    }
#pragma unroll
    for (u32 k = 0; k < TAKEN_AT_ONCE; k++) words[k] = place[k] == NOTHING ? 0 : word_at<T>(values, place[k]);
#pragma unroll
    for (u32 k = 0; k < TAKEN_AT_ONCE; k++) {
      if (i + k * step < n) put_word(to, i + k * step, words[k]);
    }
  }
  return found;
}

// The cell says which was the first that, where it is valid, numbers no value of its part, or whose part is none.
KERNEL(crossdock_take_blocks) {
  PARAMS(CODES, CODE_TYPE, VALIDITY, FIRST_BIT, BEGINS, BEGIN_TYPE, VALUES, FIRST, TO, WIDTH, CELL);
  FIND_JOB;
  Bytes codes = job.read(CODES), validity = job.read(VALIDITY), begins = job.read(BEGINS), values = job.read(VALUES);
  Target to = job.write(TO);
  u32 code = (u32)job.value(CODE_TYPE), begin = (u32)job.value(BEGIN_TYPE);
  u64 bit = job.value(FIRST_BIT), first = job.value(FIRST), found = 0;
  if (!is_integer(code) || !is_integer(begin) || first >= BLOCK_VALUES) return;
  switch (job.value(WIDTH)) {
    case 1: found = take_blocks<u8>(job, codes, code, validity, bit, begins, begin, values, first, to); break;
    case 2: found = take_blocks<u16>(job, codes, code, validity, bit, begins, begin, values, first, to); break;
    case 4: found = take_blocks<u32>(job, codes, code, validity, bit, begins, begin, values, first, to); break;
    case 8: found = take_blocks<u64>(job, codes, code, validity, bit, begins, begin, values, first, to); break;
  }
  report(job.write(CELL), found);
}
