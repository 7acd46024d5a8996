// What is done to each value of a chain, one step after the other: the operators that crossdock.h lists. Values are words of
// 1, 2, 4 or 8 bytes; floats are the bits of theirs.
#pragma once
#include "words.cuh"

#define STEP_ADD 1
#define STEP_XOR 2
#define STEP_ZIGZAG 3
#define STEP_TO_FLOAT 4
#define STEP_SCALE 5

DEVICE u8 to_float(u8 word) { return word; }
DEVICE u16 to_float(u16 word) { return word; }
DEVICE u32 to_float(u32 word) {
  float value = (float)(i32)word;
  memcpy(&word, &value, 4);
  return word;
}
DEVICE u64 to_float(u64 word) {
  double value = (double)(i64)word;
  memcpy(&word, &value, 8);
  return word;
}

DEVICE u8 scaled(u8 word, u64) { return word; }
DEVICE u16 scaled(u16 word, u64) { return word; }
DEVICE u32 scaled(u32 word, u64 factor) {
  u32 bits = (u32)factor;
  float value, by;
  memcpy(&value, &word, 4);
  memcpy(&by, &bits, 4);
  value *= by;
  memcpy(&word, &value, 4);
  return word;
}
DEVICE u64 scaled(u64 word, u64 factor) {
  double value, by;
  memcpy(&value, &word, 8);
  memcpy(&by, &factor, 8);
  value *= by;
  memcpy(&word, &value, 8);
  return word;
}

// What values are held in: one to a register, or those of less than 4 bytes packed.
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

template <class T, class Of>
DEVICE void each_value(Register<T>& word, const Of& of) {
  const u32 BITS = sizeof(T) * 8;
  Register<T> all = 0;
#pragma unroll
  for (u32 at = 0; at < sizeof(Register<T>) * 8; at += BITS) all |= (Register<T>)of((T)(word >> at)) << at;
  word = all;
}

// The steps are the job's arguments from `first` on, two each. Which they are, is the same for all threads, so that a choice
// for each of them costs little beside N words.
template <class T, u32 N>
DEVICE void take_steps(const Job& job, u32 first, Register<T> (&words)[N]) {
#pragma unroll 1
  for (u32 i = first; i + 1 < job.n; i += 2) {
    u64 operand = job.value(i + 1);
    switch (job.value(i)) {
      case STEP_ADD:
#pragma unroll
        for (u32 k = 0; k < N; k++) each_value<T>(words[k], [=](T value) { return (T)(value + (T)operand); });
        break;
      case STEP_XOR:
#pragma unroll
        for (u32 k = 0; k < N; k++) each_value<T>(words[k], [=](T value) { return (T)(value ^ (T)operand); });
        break;
      case STEP_ZIGZAG:
#pragma unroll
        for (u32 k = 0; k < N; k++) {
          each_value<T>(words[k], [](T value) { return (T)((T)(value >> 1) ^ (T)(0 - (value & 1))); });
        }
        break;
      case STEP_TO_FLOAT:
#pragma unroll
        for (u32 k = 0; k < N; k++) each_value<T>(words[k], [](T value) { return to_float(value); });
        break;
      case STEP_SCALE:
#pragma unroll
        for (u32 k = 0; k < N; k++) each_value<T>(words[k], [=](T value) { return scaled(value, operand); });
        break;
    }
  }
}
