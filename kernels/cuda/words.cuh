// Whole numbers as they lie in buffers: in native byte order, at any address.
#pragma once
#include "bytes.cuh"

#define MOST_I64 0x7fffffffffffffffll

template <class T>
DEVICE u64 words_of(Bytes from) {
  return from.len / sizeof(T);
}

// What lies where it should not; one copy, since it is rare.
static __device__ __noinline__ u64 bytewise(const u8* at, u32 bytes) {
  u64 word = 0;
#pragma unroll 1
  for (u32 b = 0; b < bytes; b++) word |= (u64)__ldg(at + b) << (8 * b);
  return word;
}

static __device__ __noinline__ void put_bytewise(u8* at, u32 bytes, u64 word) {
#pragma unroll 1
  for (u32 b = 0; b < bytes; b++) store(at + b, (u8)(word >> (8 * b)));
}

// The i-th whole number, which is there.
template <class T>
DEVICE T word_at(Bytes from, u64 i) {
  const u8* at = from.at + i * sizeof(T);
  if (((u64)at & (sizeof(T) - 1)) == 0) return __ldg((const T*)at);
  return (T)bytewise(at, sizeof(T));
}

template <class T>
DEVICE void put_word(Target to, u64 i, T word) {
  u8* at = to.at + i * sizeof(T);
  if (((u64)at & (sizeof(T) - 1)) == 0) {
    store((T*)at, word);
    return;
  }
  put_bytewise(at, sizeof(T), (u64)word);
}

// The same value; what an i64 does not hold becomes its greatest.
template <class T>
DEVICE i64 wide(T word) {
  return (T)-1 > (T)0 && sizeof(T) == 8 && (u64)word > (u64)MOST_I64 ? MOST_I64 : (i64)word;
}

DEVICE i64 limit_of(u64 value) { return value > (u64)MOST_I64 ? MOST_I64 : (i64)value; }

// The i-th whole number of `width` bytes, whatever its type, with its sign if it has one.
DEVICE i64 integer_at(Bytes from, u64 i, u32 width, bool is_signed) {
  switch (width << 1 | is_signed) {
    case 2: return word_at<u8>(from, i);
    case 3: return word_at<i8>(from, i);
    case 4: return word_at<u16>(from, i);
    case 5: return word_at<i16>(from, i);
    case 8: return word_at<u32>(from, i);
    case 9: return word_at<i32>(from, i);
    case 16: return wide(word_at<u64>(from, i));
    case 17: return word_at<i64>(from, i);
  }
  return 0;
}

// The i-th signed number of 4 or 8 bytes.
DEVICE i64 offset_at(Bytes from, u64 i, u32 width) {
  return width == 4 ? (i64)word_at<i32>(from, i) : word_at<i64>(from, i);
}

// 4 or 8; 0 for what is neither.
DEVICE u32 offset_width(u64 value) { return value == 4 || value == 8 ? (u32)value : 0; }

// The lowest of the job's `n` indices of which `wrong` is true, as far as this thread looks.
template <class Wrong>
DEVICE u64 first_wrong(const Job& job, u64 n, const Wrong& wrong) {
  u64 found = NOTHING;
#pragma unroll 2
  for (u64 i = job.thread; i < n; i += job.threads) {
    if (wrong(i)) found = min64(found, i);
  }
  return found;
}
