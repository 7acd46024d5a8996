// Looks up values by bit-packed code.
#include "packed.cuh"

// Bytes of shared memory for packed rows. Each warp has more memory for its unpacked codes.
#define CODE_ROW_BYTES 32768

template <class T, class C>
DEVICE u64 take_packed(const Job& job, u32 first_step, Bytes packed, u32 bits, u64 first, Bytes validity, u64 first_bit,
                       Bytes values, Target to, u8* rows, C* codes) {
  const u32 EACH = 16 / sizeof(T), AT_ONCE = EACH < 16 ? 16 / EACH : 1;
  const u32 LINES = BLOCK_VALUES * sizeof(C) / LINE_BYTES, WORDS = 16 / sizeof(Register<C>);
  u64 n = to.len / sizeof(T), n_blocks = blocks_of(first, n), limit = values.len / sizeof(T), first_error = NONE;
  if (first >= BLOCK_VALUES || bits > sizeof(C) * 8 || packed.len / LINE_BYTES < n_blocks * bits) return 0;
  bool to_aligned = (((u64)to.at - first * sizeof(T)) & 15) == 0, aligned = ((u64)values.at & (sizeof(T) - 1)) == 0;
  u32 lane = threadIdx.x % 32;
  codes += threadIdx.x / 32 * BLOCK_VALUES;
  Steps<C> steps(job, first_step);
  Blocks<false> blocks(job, packed, bits, n_blocks, rows, CODE_ROW_BYTES);
#pragma unroll 1
  for (; blocks.at < blocks.end; blocks.advance()) {
    blocks.fetch_next();
    u64 begin = blocks.at * BLOCK_VALUES - first;
    bool is_whole = to_aligned && aligned && blocks.at * BLOCK_VALUES >= first && begin + BLOCK_VALUES <= n;
    blocks.wait();
#pragma unroll 1
    for (u32 line = 0; line < LINES; line += LINES_AT_ONCE) {
      Register<C> words[WORDS];
      blocks.values_of<C>(line + lane / LINE_THREADS, words);
      steps.apply(words);
      memcpy(__builtin_assume_aligned((u8*)codes + line * LINE_BYTES + lane * 16, 16), words, 16);
    }
    __syncwarp();
    bool any_error = false;
#pragma unroll(AT_ONCE)
    for (u32 at = lane * EACH; is_whole && at < BLOCK_VALUES; at += 32 * EACH) {
      C vector_codes[EACH];
      T value[EACH];
      const u32 BYTES = sizeof(vector_codes);
      memcpy(vector_codes, __builtin_assume_aligned((const u8*)(codes + at), BYTES < 16 ? BYTES : 16), BYTES);
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        bool is_in_range = vector_codes[e] < limit;
        any_error |= !is_in_range;
        value[e] = is_in_range ? __ldg((const T*)values.at + vector_codes[e]) : (T)0;
      }
      Pair pair;
      memcpy(&pair, value, 16);
      store128(to.at + (begin + at) * sizeof(T), pair);
    }
    // Reports non-null codes out of range, and writes the values if the block is not whole.
    bool needs_single_steps = __ballot_sync(WARP, any_error || !is_whole) != 0;
#pragma unroll 1
    for (u32 at = lane; needs_single_steps && at < BLOCK_VALUES; at += 32) {
      u64 i = begin + at;
      if (blocks.at * BLOCK_VALUES + at < first || i >= n) continue;
      bool is_in_range = codes[at] < limit;
      if (!is_in_range && is_set(validity, first_bit + i)) first_error = min64(first_error, i);
      if (!is_whole) put_word(to, i, is_in_range ? word_at<T>(values, codes[at]) : (T)0);
    }
  }
  return first_error;
}

template <class T>
DEVICE u64 take_packed_by(const Job& job, u32 steps, Bytes packed, u32 bits, u64 first, u64 code_width, Bytes validity,
                          u64 first_bit, Bytes values, Target to, u8* rows, u8* codes) {
  switch (code_width) {
    case 1: return take_packed<T, u8>(job, steps, packed, bits, first, validity, first_bit, values, to, rows, codes);
    case 2: return take_packed<T, u16>(job, steps, packed, bits, first, validity, first_bit, values, to, rows, (u16*)codes);
  }
  return 0;
}

KERNEL_BLOCKS(crossdock_take_packed, 2) {
  PARAMS(PACKED, BITS, FIRST, CODE_WIDTH, VALIDITY, FIRST_BIT, VALUES, TO, WIDTH, CELL, STEPS);
  FIND_JOB;
  __shared__ ulonglong2 memory[(CODE_ROW_BYTES + THREADS / 32 * BLOCK_VALUES * 2) / 16];
  u8 *rows = (u8*)memory, *codes = rows + CODE_ROW_BYTES;
  Bytes packed = job.read(PACKED), validity = job.read(VALIDITY), values = job.read(VALUES);
  Target to = job.write(TO);
  u64 bits = job.value(BITS), first = job.value(FIRST), width = job.value(CODE_WIDTH), bit = job.value(FIRST_BIT), first_error = 0;
  if (bits > 64) return;
  switch (job.value(WIDTH)) {
    case 1: first_error = take_packed_by<u8>(job, STEPS, packed, (u32)bits, first, width, validity, bit, values, to, rows, codes); break;
    case 2: first_error = take_packed_by<u16>(job, STEPS, packed, (u32)bits, first, width, validity, bit, values, to, rows, codes); break;
    case 4: first_error = take_packed_by<u32>(job, STEPS, packed, (u32)bits, first, width, validity, bit, values, to, rows, codes); break;
    case 8: first_error = take_packed_by<u64>(job, STEPS, packed, (u32)bits, first, width, validity, bit, values, to, rows, codes); break;
  }
  report(job.write(CELL), first_error);
}
