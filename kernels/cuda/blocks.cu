// Looks up values by code. Each block of 1024 codes has its own dictionary, a range of the values.
#include "packed.cuh"
#include "widen.cuh"

#define CODES_AT_ONCE 4

template <class T>
DEVICE u64 take_blocks(const Job& job, Bytes codes, u32 code_type, Bytes validity, u64 first_bit, Bytes begins, u32 begin_type,
                       Bytes values, u64 first, Target to) {
  u64 n = to.len / sizeof(T), n_values = words_of<T>(values), first_error = NONE;
  u64 blocks = begins.len / width_of_integer(begin_type), step = job.threads;
  if (n == 0) return first_error;
  if (codes.len / width_of_integer(code_type) < n || (first + n - 1) / BLOCK_VALUES >= blocks) return 0;
  u64 base = integer_of(begins, 0, begin_type);
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += CODES_AT_ONCE * step) {
    u64 place[CODES_AT_ONCE];
    T words[CODES_AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < CODES_AT_ONCE; k++) {
      u64 at = i + k * step;
      place[k] = NONE;
      if (at >= n) continue;
      u64 block = (first + at) / BLOCK_VALUES, code = integer_of(codes, at, code_type);
      u64 from = integer_of(begins, block, begin_type) - base;
      u64 end = block + 1 < blocks ? integer_of(begins, block + 1, begin_type) - base : n_values;
      bool is_range = from <= end && end <= n_values;
      // In a dictionary of one value, every code means that value.
      if (end - from == 1) code = 0;
      if (is_range && code < end - from) {
        place[k] = from + code;
      } else if (!is_range || is_set(validity, first_bit + at)) {
        first_error = min64(first_error, at);
      }
    }
#pragma unroll
    for (u32 k = 0; k < CODES_AT_ONCE; k++) words[k] = place[k] == NONE ? 0 : word_at<T>(values, place[k]);
#pragma unroll
    for (u32 k = 0; k < CODES_AT_ONCE; k++) {
      if (i + k * step < n) put_word(to, i + k * step, words[k]);
    }
  }
  return first_error;
}

// The cell becomes the index of the first code with an error. A code is an error if it is non-null
// and out of range, or if its dictionary is not within the values.
KERNEL(crossdock_take_blocks) {
  PARAMS(CODES, CODE_TYPE, VALIDITY, FIRST_BIT, BEGINS, BEGIN_TYPE, VALUES, FIRST, TO, WIDTH, CELL);
  FIND_JOB;
  Bytes codes = job.read(CODES), validity = job.read(VALIDITY), begins = job.read(BEGINS), values = job.read(VALUES);
  Target to = job.write(TO);
  u32 code_type = (u32)job.value(CODE_TYPE), begin_type = (u32)job.value(BEGIN_TYPE);
  u64 bit = job.value(FIRST_BIT), first = job.value(FIRST), first_error = 0;
  if (!is_integer(code_type) || !is_integer(begin_type) || first >= BLOCK_VALUES) return;
  switch (job.value(WIDTH)) {
    case 1: first_error = take_blocks<u8>(job, codes, code_type, validity, bit, begins, begin_type, values, first, to); break;
    case 2: first_error = take_blocks<u16>(job, codes, code_type, validity, bit, begins, begin_type, values, first, to); break;
    case 4: first_error = take_blocks<u32>(job, codes, code_type, validity, bit, begins, begin_type, values, first, to); break;
    case 8: first_error = take_blocks<u64>(job, codes, code_type, validity, bit, begins, begin_type, values, first, to); break;
  }
  report(job.write(CELL), first_error);
}
