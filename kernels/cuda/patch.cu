// Applies steps to values and writes the results to given positions of the target.
#include "steps.cuh"

// The position in the target for an index; NONE if the index is less than `first`.
DEVICE u64 position_of(u64 index, u64 first) { return index < first ? NONE : index - first; }

template <class T>
DEVICE u64 patch(const Job& job, u32 first_step, Bytes indices, u32 index_width, u64 first, Bytes values, Target to) {
  u64 n = indices.len / index_width, positions = to.len / sizeof(T), first_error = NONE;
  if (words_of<T>(values) < n) return 0;
  Steps<T> steps(job, first_step);
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += job.threads) {
    u64 index = (u64)integer_at(indices, i, index_width, false);
    // Indices must ascend, so that no two values have the same position.
    bool descends = i > 0 && (u64)integer_at(indices, i - 1, index_width, false) >= index;
    u64 position = position_of(index, first);
    if (descends || position >= positions) {
      first_error = min64(first_error, i);
      continue;
    }
    Register<T> word[1] = {word_at<T>(values, i)};
    steps.apply(word);
    put_word(to, position, (T)word[0]);
  }
  return first_error;
}

KERNEL(crossdock_patch) {
  PARAMS(INDICES, INDEX_WIDTH, FIRST, VALUES, TO, WIDTH, CELL, STEPS);
  FIND_JOB;
  Bytes indices = job.read(INDICES), values = job.read(VALUES);
  Target to = job.write(TO);
  u64 first = job.value(FIRST), width = job.value(INDEX_WIDTH), first_error = 0;
  if (width != 1 && width != 2 && width != 4 && width != 8) return;
  switch (job.value(WIDTH)) {
    case 1: first_error = patch<u8>(job, STEPS, indices, (u32)width, first, values, to); break;
    case 2: first_error = patch<u16>(job, STEPS, indices, (u32)width, first, values, to); break;
    case 4: first_error = patch<u32>(job, STEPS, indices, (u32)width, first, values, to); break;
    case 8: first_error = patch<u64>(job, STEPS, indices, (u32)width, first, values, to); break;
  }
  report(job.write(CELL), first_error);
}
