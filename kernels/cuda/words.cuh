// Loads and stores integers in native byte order, at any address.
#pragma once
#include "bytes.cuh"

#define MAX_I64 0x7fffffffffffffffll

template <class T>
DEVICE u64 words_of(Bytes from) {
  return from.len / sizeof(T);
}

// Loads a misaligned word. Not inlined, because misaligned words are rare.
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

// The value of another lane of the warp.
template <class T>
DEVICE T of_lane(T value, u32 lane) {
  if constexpr (sizeof(T) < 8) return (T)__shfl_sync(WARP, (u32)value, lane);
  return (T)__shfl_sync(WARP, (u64)value, lane);
}

// Integer `i`. The caller ensures that it is within the range.
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

// Converts to i64, saturating at its maximum.
template <class T>
DEVICE i64 wide(T word) {
  return (T)-1 > (T)0 && sizeof(T) == 8 && (u64)word > (u64)MAX_I64 ? MAX_I64 : (i64)word;
}

DEVICE i64 limit_of(u64 value) { return value > (u64)MAX_I64 ? MAX_I64 : (i64)value; }

// Integer `i` of `width` bytes, signed or unsigned.
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

// The index of the first of `n` ascending numbers, from index `low` on, that is at least `min`; `n`
// if all numbers are less. The lanes of a warp search together. Returns an index in `low..=n` even
// if the numbers do not ascend.
DEVICE u64 first_at_least(Bytes from, u32 width, bool is_signed, u64 low, u64 n, u64 min) {
  u64 high = n;
#pragma unroll 1
  while (low < high) {
    u64 step = (high - low + 31) / 32, probe = low + (threadIdx.x % 32 + 1) * step - 1;
    u32 less = __popc(__ballot_sync(WARP, probe < high && (u64)integer_at(from, probe, width, is_signed) < min));
    high = min64(high, low + (less + 1) * step - 1);
    low = min64(high, low + less * step);
  }
  return low;
}

// Signed integer `i` of 4 or 8 bytes.
DEVICE i64 offset_at(Bytes from, u64 i, u32 width) {
  return width == 4 ? (i64)word_at<i32>(from, i) : word_at<i64>(from, i);
}

// Returns `value` if it is 4 or 8, else 0.
DEVICE u32 offset_width(u64 value) { return value == 4 || value == 8 ? (u32)value : 0; }

// Aligned words, loaded without a branch, so that many loads are in flight at once.
template <class T>
struct Aligned {
  static const u32 AT_ONCE = 4;
  const T* at;
  __device__ __forceinline__ i64 operator()(u64 i) const { return wide(__ldg(at + i)); }
};

// Words at any address.
struct Unaligned {
  static const u32 AT_ONCE = 1;
  Bytes from;
  u32 width;
  bool is_signed;
  __device__ __forceinline__ i64 operator()(u64 i) const { return integer_at(from, i, width, is_signed); }
};

// Loads N adjacent codes. The address is a multiple of their total size, or of 16 if their total
// size is larger.
template <class C, u32 N>
DEVICE void load_codes(const u8* at, C (&codes)[N]) {
  const u32 BYTES = sizeof(C) * N;
  if constexpr (BYTES >= 16) {
#pragma unroll
    for (u32 b = 0; b < BYTES / 16; b++) {
      Pair pair = aligned128(at + b * 16);
      memcpy((u8*)codes + b * 16, &pair, 16);
    }
  } else if constexpr (BYTES == 8) {
    u64 word = __ldg((const u64*)at);
    memcpy(codes, &word, 8);
  } else if constexpr (BYTES == 4) {
    u32 word = __ldg((const u32*)at);
    memcpy(codes, &word, 4);
  } else {
    u16 word = __ldg((const u16*)at);
    memcpy(codes, &word, 2);
  }
}

DEVICE bool is_aligned(Bytes from, u32 width) { return ((u64)from.at & (width - 1)) == 0; }

// Calls `use` with a loader of signed integers of 4 or 8 bytes.
template <class Use>
DEVICE u64 with_offsets(Bytes from, u32 width, const Use& use) {
  if (!is_aligned(from, width) || width < 4) return use(Unaligned{from, width, true});
  return width == 4 ? use(Aligned<i32>{(const i32*)from.at}) : use(Aligned<i64>{(const i64*)from.at});
}

// Two numbers that are checked together.
struct Two {
  i64 a;
  i64 b;
};

// The lowest of this thread's indices for which `wrong` is true. The loads of several indices are
// in flight before the first check.
template <u32 AT_ONCE, class Load, class Wrong>
DEVICE u64 first_wrong(const Job& job, u64 n, const Load& load, const Wrong& wrong) {
  u64 first_error = NONE;
  u64 i = job.thread;
  for (; i + (AT_ONCE - 1) * job.threads < n; i += AT_ONCE * job.threads) {
    decltype(load(0)) loaded[AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) loaded[k] = load(i + k * job.threads);
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (wrong(i + k * job.threads, loaded[k])) first_error = min64(first_error, i + k * job.threads);
    }
  }
  if (AT_ONCE == 1) return first_error;
#pragma unroll 1
  for (; i < n; i += job.threads) {
    if (wrong(i, load(i))) first_error = min64(first_error, i);
  }
  return first_error;
}

// The lowest of this thread's indices at which `wrong` is true. `wrong` is called with the previous
// word and the word at the index. The previous word of index 0 is 0. A thread loads several vectors
// of 16 aligned bytes at once.
template <class T, class Wrong>
DEVICE u64 first_wrong_aligned(const Job& job, const T* at, u64 n, const Wrong& wrong) {
  const u32 EACH = 16 / sizeof(T), AT_ONCE = 4;
  // The first word has no previous word, so it is checked with the words that are not in a vector.
  u64 head = n == 0 ? 0 : min64(n, 1 + ((0 - (u64)(at + 1)) & 15) / sizeof(T));
  u64 vectors = (n - head) / EACH, after = head + vectors * EACH;
  u64 first_error = NONE;
#pragma unroll 1
  for (u64 v = job.thread; v < vectors; v += AT_ONCE * job.threads) {
    Pair pairs[AT_ONCE];
    T before[AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      const T* place = at + head + min64(v + k * job.threads, vectors - 1) * EACH;
      pairs[k] = aligned128((const u8*)place);
      before[k] = __ldg(place - 1);
    }
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      T words[EACH];
      memcpy(words, &pairs[k], 16);
      bool any_error = wrong(before[k], words[0]);
#pragma unroll
      for (u32 e = 1; e < EACH; e++) any_error |= wrong(words[e - 1], words[e]);
      if (!any_error) continue;
      u64 first = head + min64(v + k * job.threads, vectors - 1) * EACH;
#pragma unroll
      for (u32 e = EACH; e-- > 0;) {
        if (wrong(e == 0 ? before[k] : words[e - 1], words[e])) first_error = min64(first_error, first + e);
      }
    }
  }
  for (u64 i = job.thread; i < head + (n - after); i += job.threads) {
    u64 k = i < head ? i : after + (i - head);
    if (wrong(k == 0 ? 0 : __ldg(at + k - 1), __ldg(at + k))) first_error = min64(first_error, k);
  }
  return first_error;
}

template <class Wrong>
DEVICE u64 first_wrong_step(const Job& job, Bytes from, u32 width, const Wrong& wrong) {
  u64 n = from.len / width;
  if (is_aligned(from, width) && width == 4) return first_wrong_aligned(job, (const i32*)from.at, n, wrong);
  if (is_aligned(from, width) && width == 8) return first_wrong_aligned(job, (const i64*)from.at, n, wrong);
  Unaligned at = {from, width, true};
  auto load = [=](u64 i) { return Two{i == 0 ? 0 : at(i - 1), at(i)}; };
  return first_wrong<1>(job, n, load, [=](u64, Two two) { return wrong(two.a, two.b); });
}
