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

// Words that all lie aligned: read without a branch, so that many loads are under way at once.
template <class T>
struct Aligned {
  static const u32 AT_ONCE = 4;
  const T* at;
  __device__ __forceinline__ i64 operator()(u64 i) const { return wide(__ldg(at + i)); }
};

// Words that lie anywhere.
struct Anywhere {
  static const u32 AT_ONCE = 1;
  Bytes from;
  u32 width;
  bool is_signed;
  __device__ __forceinline__ i64 operator()(u64 i) const { return integer_at(from, i, width, is_signed); }
};

DEVICE bool is_aligned(Bytes from, u32 width) { return ((u64)from.at & (width - 1)) == 0; }

// Calls `use` with what reads the signed numbers of 4 or 8 bytes.
template <class Use>
DEVICE u64 with_offsets(Bytes from, u32 width, const Use& use) {
  if (!is_aligned(from, width) || width < 4) return use(Anywhere{from, width, true});
  return width == 4 ? use(Aligned<i32>{(const i32*)from.at}) : use(Aligned<i64>{(const i64*)from.at});
}

// Two numbers that are judged together.
struct Two {
  i64 a;
  i64 b;
};

// The lowest of the job's `n` indices of which `wrong` is true, as far as this thread looks. What `load` reads for several
// of them is under way before the first is judged.
template <u32 AT_ONCE, class Load, class Wrong>
DEVICE u64 first_wrong(const Job& job, u64 n, const Load& load, const Wrong& wrong) {
  u64 found = NOTHING;
  u64 i = job.thread;
  for (; i + (AT_ONCE - 1) * job.threads < n; i += AT_ONCE * job.threads) {
    decltype(load(0)) loaded[AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) loaded[k] = load(i + k * job.threads);
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (wrong(i + k * job.threads, loaded[k])) found = min64(found, i + k * job.threads);
    }
  }
  if (AT_ONCE == 1) return found;
#pragma unroll 1
  for (; i < n; i += job.threads) {
    if (wrong(i, load(i))) found = min64(found, i);
  }
  return found;
}
