// Loads from any byte or bit address, and stores of 16 bytes. Functions named `unchecked` read
// whole aligned words around the requested bytes. Their callers ensure that these words are within
// the range. All other functions check the range themselves.
#pragma once
#include "cells.cuh"

DEVICE u64 aligned64(const u8* at) { return __ldg((const u64*)at); }

DEVICE u8 byte_at(Bytes from, u64 i) { return i < from.len ? __ldg(from.at + i) : 0; }

// Whether bit `i` is set. In an empty bitmap, all bits are set.
DEVICE bool is_set(Bytes bits, u64 i) { return bits.len == 0 || (byte_at(bits, i / 8) >> (i % 8) & 1) != 0; }

// 64 bits from bit `bit` on. Bits outside of the range are 0.
DEVICE u64 bits_at(Bytes from, u64 bit) {
  u64 at = bit / 8;
  u32 shift = bit % 8;
  u64 low = 0;
#pragma unroll 1
  for (u32 i = 0; i < 8; i++) low |= (u64)byte_at(from, at + i) << (8 * i);
  u64 high = byte_at(from, at + 8);
  return shift == 0 ? low : low >> shift | high << (64 - shift);
}

// Like bits_at, but the range must have 7 bytes before byte `bit / 8`, and 16 from that byte on.
DEVICE u64 bits_unchecked(Bytes from, u64 bit) {
  const u8* at = from.at + bit / 8;
  u32 skew = (u64)at & 7;
  u32 shift = skew * 8 + bit % 8;
  u64 low = aligned64(at - skew);
  return shift == 0 ? low : low >> shift | aligned64(at - skew + 8) << (64 - shift);
}

struct Pair {
  u64 low;
  u64 high;
};

DEVICE Pair aligned128(const u8* at) {
  ulonglong2 both = __ldg((const ulonglong2*)at);
  Pair pair = {both.x, both.y};
  return pair;
}

DEVICE void store128(u8* at, Pair pair) { store((ulonglong2*)at, make_ulonglong2(pair.low, pair.high)); }

// 128 bits from bit `bit` on. The range must have 7 bytes before byte `bit / 8`, and 24 from that
// byte on.
DEVICE Pair pair_unchecked(Bytes from, u64 bit) {
  const u8* at = from.at + bit / 8;
  u32 skew = (u64)at & 7;
  u32 shift = skew * 8 + bit % 8;
  at -= skew;
  u64 a = aligned64(at), b = aligned64(at + 8);
  u64 c = aligned64(at + 16);
  // The code has no branch, so that several loads can be in flight. Some shifts have two steps,
  // because a shift by 64 bits is undefined.
  Pair pair = {a >> shift | (b << 1) << (63 - shift), b >> shift | (c << 1) << (63 - shift)};
  return pair;
}

// 16 bytes from byte `i` on. The range must have 15 bytes before byte `i`, and 32 from that byte
// on.
DEVICE Pair bytes_unchecked(Bytes from, u64 i) {
  const u8* at = from.at + i;
  if (((u64)at & 15) == 0) return aligned128(at);
  return pair_unchecked(from, i * 8);
}

// The number of vectors of 16 bytes that a thread loads in `fill` before its first store.
#define VECTORS_AT_ONCE 2

// Fills a target. A thread writes vectors of 16 aligned bytes; the bytes at both ends of the target
// are written one by one.
// - `source.checked(i)` returns 64 bits. Only the lowest 8 are used: byte `i` of the target.
// - `source.unchecked(i)` returns 16 bytes of the target from byte `i` on. The call requires `i >=
//   16` and `i + 32 <= source.inner_len()`, so that unchecked loads stay within the source.
template <class Source>
DEVICE void fill(const Job& job, Target to, const Source& source) {
  u64 head = min64(to.len, (0 - (u64)to.at) & 15);
  u64 vectors = (to.len - head) / 16;
  // The first vector, and vectors too close to the end of a source, are filled byte by byte.
  u64 inner = source.inner_len();
  u64 begin = vectors < 1 ? vectors : 1;
  u64 end = inner < head + 48 ? begin : max64(begin, min64(vectors, (inner - 32 - head) / 16 + 1));
  u64 v = begin + job.thread;
#pragma unroll 1
  for (; v + (VECTORS_AT_ONCE - 1) * job.threads < end; v += VECTORS_AT_ONCE * job.threads) {
    Pair pairs[VECTORS_AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < VECTORS_AT_ONCE; k++) pairs[k] = source.unchecked(head + (v + k * job.threads) * 16);
#pragma unroll
    for (u32 k = 0; k < VECTORS_AT_ONCE; k++) store128(to.at + head + (v + k * job.threads) * 16, pairs[k]);
  }
#pragma unroll 1
  for (; v < end; v += job.threads) store128(to.at + head + v * 16, source.unchecked(head + v * 16));
  u64 before = head + begin * 16;
  u64 after = head + end * 16;
#pragma unroll 1
  for (u64 i = job.thread; i < before + (to.len - after); i += job.threads) {
    u64 at = i < before ? i : after + (i - before);
    store(to.at + at, (u8)source.checked(at));
  }
}

// Clears the bits of `word` whose position is `len` or above. Bit 0 of `word` has position `at`.
DEVICE u64 below(u64 word, u64 at, u64 len) {
  if (at >= len) return 0;
  return len - at >= 64 ? word : word & ((1ull << (len - at)) - 1);
}
