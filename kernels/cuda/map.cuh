// Applies the steps of a chain to words. A thread processes vectors of 16 bytes.
#pragma once
#include "steps.cuh"

// Fills a target with words. A thread processes AT_ONCE vectors of 16 bytes at once, and adjacent
// threads write adjacent vectors. The words at both ends of the target are written one at a time.
// If `can_load(head)` is false, all words are written one at a time. `head` is the number of words
// before the first aligned 16 bytes.
// - `load_all(place, words)` loads, for each k below AT_ONCE, 16 bytes of words from index
//   `place(k)` on.
// - `load_one(i)` returns word `i`.
template <class T, u32 AT_ONCE, class CanLoad, class LoadAll, class LoadOne>
DEVICE void map_all(const Job& job, u32 first_step, Target to, const CanLoad& can_load, const LoadAll& load_all,
                    const LoadOne& load_one) {
  Steps<T> steps(job, first_step);
  const u32 EACH = 16 / sizeof(T), WORDS = 16 / sizeof(Register<T>);
  u64 n = to.len / sizeof(T);
  bool aligned = ((u64)to.at & (sizeof(T) - 1)) == 0;
  u64 head = aligned ? min64(n, ((0 - (u64)to.at) & 15) / sizeof(T)) : n;
  if (!can_load(head)) head = n;
  u64 vectors = (n - head) / EACH, after = head + vectors * EACH;
#pragma unroll 1
  for (u64 v = job.thread / THREADS * AT_ONCE * THREADS + threadIdx.x; v < vectors; v += AT_ONCE * job.threads) {
    Register<T> words[AT_ONCE * WORDS];
    load_all([=](u32 k) { return head + min64(v + k * THREADS, vectors - 1) * EACH; }, words);
    steps.apply(words);
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      u64 place = v + k * THREADS;
      if (place >= vectors) break;
      Pair pair;
      memcpy(&pair, words + k * WORDS, 16);
      store128(to.at + (head + place * EACH) * sizeof(T), pair);
    }
  }
#pragma unroll 1
  for (u64 i = job.thread; i < head + (n - after); i += job.threads) {
    u64 at = i < head ? i : after + (i - head);
    Register<T> words[1] = {load_one(at)};
    steps.apply(words);
    put_word(to, at, (T)words[0]);
  }
}

// Like map_all, with a function `load(i, words)` that loads 16 bytes of words from index `i` on.
template <class T, u32 AT_ONCE, class Load, class LoadOne>
DEVICE void map_words(const Job& job, u32 first_step, Target to, const Load& load, const LoadOne& load_one) {
  auto load_all = [&](const auto& place, Register<T>* words) {
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) load(place(k), words + k * (16 / sizeof(Register<T>)));
  };
  map_all<T, AT_ONCE>(job, first_step, to, [](u64) { return true; }, load_all, load_one);
}
