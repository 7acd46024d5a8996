// A chain is a list of steps that are applied to each value in turn. A step is an operator of
// crossdock.h. Values are words of 1, 2, 4 or 8 bytes. A float is represented by its bits.
#pragma once
#include "words.cuh"

#define STEP_ADD 1
#define STEP_XOR 2
#define STEP_ZIGZAG 3
#define STEP_TO_FLOAT 4
#define STEP_SCALE 5

// The type of a register. A register holds one value, or several packed values of less than 4
// bytes. A step is applied to all values of a register at once.
template <class T>
struct Packing {
  typedef u32 Type;
};
template <>
struct Packing<u64> {
  typedef u64 Type;
};
template <class T>
using Register = typename Packing<T>::Type;

// Repeats `bits` for every value of a register.
template <class T>
DEVICE Register<T> in_each(T bits) {
  Register<T> word = 0;
#pragma unroll
  for (u32 at = 0; at < sizeof(Register<T>) * 8; at += sizeof(T) * 8) word |= (Register<T>)bits << at;
  return word;
}

template <class T>
DEVICE Register<T> sum(Register<T> a, Register<T> b) {
  if constexpr (sizeof(T) >= 4) return a + b;
  // Masks the highest bits, so that no carry reaches the next value.
  Register<T> high = in_each<T>((T)((T)1 << (sizeof(T) * 8 - 1)));
  return ((a & ~high) + (b & ~high)) ^ ((a ^ b) & high);
}

template <class T>
DEVICE Register<T> unzigzag(Register<T> word) {
  Register<T> odd = word & in_each<T>(1);
  if constexpr (sizeof(T) >= 4) return word >> 1 ^ (0 - odd);
  return (word >> 1 & in_each<T>((T)((T)-1 >> 1))) ^ odd * (T)-1;
}

// Floats have 4 or 8 bytes.
template <class T>
DEVICE Register<T> to_float(Register<T> word) {
  if constexpr (sizeof(T) == 4) {
    float value = (float)(i32)word;
    memcpy(&word, &value, 4);
  } else if constexpr (sizeof(T) == 8) {
    double value = (double)(i64)word;
    memcpy(&word, &value, 8);
  }
  return word;
}

template <class T>
DEVICE Register<T> scaled(Register<T> word, Register<T> factor) {
  if constexpr (sizeof(T) == 4) {
    float value, by;
    memcpy(&value, &word, 4);
    memcpy(&by, &factor, 4);
    value *= by;
    memcpy(&word, &value, 4);
  } else if constexpr (sizeof(T) == 8) {
    double value, by;
    memcpy(&value, &word, 8);
    memcpy(&by, &factor, 8);
    value *= by;
    memcpy(&word, &value, 8);
  }
  return word;
}

// A group has up to six optional steps in this order: zigzag, xor, add, to-float, scale and scale.
// Most chains are one group. Its steps are read from the job's arguments (two per step) once, not
// for each word. All threads have the same steps, so a branch costs little compared with N words.
template <class T>
struct Group {
  u32 end;
  bool zigzag;
  bool floats;
  u32 n_factors;
  Register<T> xor_with;
  Register<T> add;
  Register<T> factors[2];

  __device__ __forceinline__ Group(const Job& job, u32 first) : end(first) {
    zigzag = next(job, STEP_ZIGZAG);
    xor_with = next(job, STEP_XOR) ? in_each<T>((T)job.value(end - 1)) : 0;
    add = next(job, STEP_ADD) ? in_each<T>((T)job.value(end - 1)) : 0;
    floats = next(job, STEP_TO_FLOAT);
    n_factors = 0;
    factors[0] = factors[1] = 0;
    if (next(job, STEP_SCALE)) factors[n_factors++] = (Register<T>)job.value(end - 1);
    if (n_factors == 1 && next(job, STEP_SCALE)) factors[n_factors++] = (Register<T>)job.value(end - 1);
    // Skips an unknown step.
    if (end == first) end += 2;
  }

  __device__ __forceinline__ bool next(const Job& job, u64 code) {
    bool is_next = end + 1 < job.n && job.value(end) == code;
    if (is_next) end += 2;
    return is_next;
  }

  template <u32 N>
  __device__ __forceinline__ void apply(Register<T> (&words)[N]) const {
    if (zigzag) each(words, [](Register<T> word) { return unzigzag<T>(word); });
    Register<T> by = xor_with, more = add, one = factors[0], other = factors[1];
    if (by != 0) each(words, [=](Register<T> word) { return word ^ by; });
    if (more != 0) each(words, [=](Register<T> word) { return sum<T>(word, more); });
    if (sizeof(T) < 4) return;
    if (floats) each(words, [](Register<T> word) { return to_float<T>(word); });
    if (n_factors > 0) each(words, [=](Register<T> word) { return scaled<T>(word, one); });
    if (n_factors > 1) each(words, [=](Register<T> word) { return scaled<T>(word, other); });
  }

  template <u32 N, class Step>
  static __device__ __forceinline__ void each(Register<T> (&words)[N], const Step& step) {
#pragma unroll
    for (u32 k = 0; k < N; k++) words[k] = step(words[k]);
  }
};

// The steps of a chain, from argument `first_step` of the job on. If the steps are one group, the
// arguments are not read again.
template <class T>
struct Steps {
  const Job& job;
  Group<T> group;
  bool is_one_group;

  __device__ __forceinline__ Steps(const Job& owner_job, u32 first_step)
      : job(owner_job), group(owner_job, first_step), is_one_group(group.end >= owner_job.n) {}

  template <u32 N>
  __device__ __forceinline__ void apply(Register<T> (&words)[N]) const {
    group.apply(words);
    if (is_one_group) return;
    u32 end = group.end;
#pragma unroll 1
    while (end < job.n) {
      Group<T> now(job, end);
      now.apply(words);
      end = now.end;
    }
  }
};
