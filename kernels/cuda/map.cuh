// Words in 16 bytes a thread and step, each through the steps of a chain.
#pragma once
#include "steps.cuh"

// 16 bytes a thread and step, AT_ONCE of them under way, which lie so that a block writes without gaps; those at the ends of
// the target one by one. `all(place, words)` gives, for each k below AT_ONCE, the values from the place(k)-th on that fill 16
// bytes; `one(i)` gives one of them. All go one by one unless `lies(head)`, where `head` is how many come before the first 16.
template <class T, u32 AT_ONCE, class Lies, class All, class One>
DEVICE void map_all(const Job& job, u32 first_step, Target to, const Lies& lies, const All& all, const One& one) {
  Steps<T> steps(job, first_step);
  const u32 EACH = 16 / sizeof(T), WORDS = 16 / sizeof(Register<T>);
  u64 n = to.len / sizeof(T);
  bool whole = ((u64)to.at & (sizeof(T) - 1)) == 0;
  u64 head = whole ? min64(n, ((0 - (u64)to.at) & 15) / sizeof(T)) : n;
  if (!lies(head)) head = n;
  u64 vectors = (n - head) / EACH, after = head + vectors * EACH;
#pragma unroll 1
  for (u64 v = job.thread / THREADS * AT_ONCE * THREADS + threadIdx.x; v < vectors; v += AT_ONCE * job.threads) {
    Register<T> words[AT_ONCE * WORDS];
    all([=](u32 k) { return head + min64(v + k * THREADS, vectors - 1) * EACH; }, words);
    steps.take(words);
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
    Register<T> words[1] = {one(at)};
    steps.take(words);
    put_word(to, at, (T)words[0]);
  }
}

// The same, where `of(i, words)` gives the values from the i-th on that fill 16 bytes.
template <class T, u32 AT_ONCE, class Of, class One>
DEVICE void map_words(const Job& job, u32 first_step, Target to, const Of& of, const One& one) {
  auto all = [&](const auto& place, Register<T>* words) {
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) of(place(k), words + k * (16 / sizeof(Register<T>)));
  };
  map_all<T, AT_ONCE>(job, first_step, to, [](u64) { return true; }, all, one);
}
