// Applies steps to words that are loaded, or to words that form an arithmetic sequence.
#include "map.cuh"

template <class T>
DEVICE void map(const Job& job, u32 steps, Bytes from, Target to) {
  if (from.len < to.len) return;
  auto load_one = [=](u64 i) { return word_at<T>(from, i); };
  auto load = [=](u64 i, Register<T>* words) {
    const u8* at = from.at + i * sizeof(T);
    Pair pair = ((u64)at & 15) == 0 ? aligned128(at) : Pair{bytewise(at, 8), bytewise(at + 8, 8)};
    memcpy(words, &pair, 16);
  };
  map_words<T, 4>(job, steps, to, load, load_one);
}

KERNEL_BLOCKS(crossdock_map, 4) {
  PARAMS(FROM, TO, WIDTH, STEPS);
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target to = job.write(TO);
  switch (job.value(WIDTH)) {
    case 1: return map<u8>(job, STEPS, from, to);
    case 2: return map<u16>(job, STEPS, from, to);
    case 4: return map<u32>(job, STEPS, from, to);
    case 8: return map<u64>(job, STEPS, from, to);
  }
}

template <class T>
DEVICE void sequence(const Job& job, u32 steps, T base, T step, Target to) {
  auto load_one = [=](u64 i) { return (T)(base + (T)i * step); };
  auto load = [=](u64 i, Register<T>* words) {
    T value = load_one(i);
#pragma unroll
    for (u32 w = 0; w < 16 / sizeof(Register<T>); w++) {
      words[w] = 0;
#pragma unroll
      for (u32 at = 0; at < sizeof(Register<T>) * 8; at += sizeof(T) * 8) {
        words[w] |= (Register<T>)value << at;
        value = (T)(value + step);
      }
    }
  };
  map_words<T, 4>(job, steps, to, load, load_one);
}

KERNEL_BLOCKS(crossdock_sequence, 4) {
  PARAMS(BASE, STEP, TO, WIDTH, STEPS);
  FIND_JOB;
  Target to = job.write(TO);
  u64 base = job.value(BASE), step = job.value(STEP);
  switch (job.value(WIDTH)) {
    case 1: return sequence<u8>(job, STEPS, (u8)base, (u8)step, to);
    case 2: return sequence<u16>(job, STEPS, (u16)base, (u16)step, to);
    case 4: return sequence<u32>(job, STEPS, (u32)base, (u32)step, to);
    case 8: return sequence<u64>(job, STEPS, base, step, to);
  }
}
