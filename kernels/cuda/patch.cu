// Values that are put in their places, among others.
#include "steps.cuh"

// Index `i` as a place; the greatest number there is for one that lies before the first.
DEVICE u64 place_of(u64 index, u64 first) { return index < first ? NOTHING : index - first; }

template <class T>
DEVICE u64 patch(const Job& job, u32 first_step, Bytes indices, u32 index_width, u64 first, Bytes values, Target to) {
  u64 n = indices.len / index_width, places = to.len / sizeof(T), found = NOTHING;
  if (words_of<T>(values) < n) return 0;
  Steps<T> steps(job, first_step);
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += job.threads) {
    u64 index = (u64)integer_at(indices, i, index_width, false);
    // Each comes after the one before, so that no two have one place.
    bool falls = i > 0 && (u64)integer_at(indices, i - 1, index_width, false) >= index;
    u64 place = place_of(index, first);
    if (falls || place >= places) {
      found = min64(found, i);
      continue;
    }
    Register<T> word[1] = {word_at<T>(values, i)};
    steps.take(word);
    put_word(to, place, (T)word[0]);
  }
  return found;
}

KERNEL(crossdock_patch) {
  PARAMS(INDICES, INDEX_WIDTH, FIRST, VALUES, TO, WIDTH, CELL, STEPS);
  FIND_JOB;
  Bytes indices = job.read(INDICES), values = job.read(VALUES);
  Target to = job.write(TO);
  u64 first = job.value(FIRST), width = job.value(INDEX_WIDTH), found = 0;
  if (width != 1 && width != 2 && width != 4 && width != 8) return;
  switch (job.value(WIDTH)) {
    case 1: found = patch<u8>(job, STEPS, indices, (u32)width, first, values, to); break;
    case 2: found = patch<u16>(job, STEPS, indices, (u32)width, first, values, to); break;
    case 4: found = patch<u32>(job, STEPS, indices, (u32)width, first, values, to); break;
    case 8: found = patch<u64>(job, STEPS, indices, (u32)width, first, values, to); break;
  }
  report(job.write(CELL), found);
}
