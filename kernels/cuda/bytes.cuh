// Loads from any address and any bit, and stores of 16 bytes. What is called `inside` reads whole aligned words around
// what it is asked for, and is for places where those lie within the range; all else stays within it by itself.
#pragma once
#include "cells.cuh"

DEVICE u64 aligned64(const u8* at) { return __ldg((const u64*)at); }

DEVICE u8 byte_at(Bytes from, u64 i) { return i < from.len ? __ldg(from.at + i) : 0; }

// One bit; a bitmap of no bytes has every bit set.
DEVICE bool is_set(Bytes bits, u64 i) { return bits.len == 0 || (byte_at(bits, i / 8) >> (i % 8) & 1) != 0; }

// 64 bits from a bit on; zeros beyond the range.
DEVICE u64 bits_at(Bytes from, u64 bit) {
  u64 at = bit / 8;
  u32 shift = bit % 8;
  u64 low = 0;
#pragma unroll 1
  for (u32 i = 0; i < 8; i++) low |= (u64)byte_at(from, at + i) << (8 * i);
  u64 high = byte_at(from, at + 8);
  return shift == 0 ? low : low >> shift | high << (64 - shift);
}

// The same; byte bit / 8 has 7 before it and 16 from it on within the range.
DEVICE u64 bits_inside(Bytes from, u64 bit) {
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

// 128 bits; byte bit / 8 has 7 before it and 24 from it on within the range.
DEVICE Pair pair_inside(Bytes from, u64 bit) {
  const u8* at = from.at + bit / 8;
  u32 skew = (u64)at & 7;
  u32 shift = skew * 8 + bit % 8;
  at -= skew;
  u64 a = aligned64(at), b = aligned64(at + 8);
  u64 c = aligned64(at + 16);
  // Without a branch, so that several are under way at once; nothing is shifted by 64.
  Pair pair = {a >> shift | (b << 1) << (63 - shift), b >> shift | (c << 1) << (63 - shift)};
  return pair;
}

// 16 bytes from byte `i` on, which has 15 before it and 32 from it on within the range.
DEVICE Pair bytes_inside(Bytes from, u64 i) {
  const u8* at = from.at + i;
  if (((u64)at & 15) == 0) return aligned128(at);
  return pair_inside(from, i * 8);
}

// Steps of `fill` whose loads are under way before the first store.
#define FILLED_AT_ONCE 2

// Fills a target, 16 aligned bytes a step and those at its ends one by one: `of.safe(i)` gives 64 bits for byte `i` on, of
// which the first 8 are used; `of.inside(i)` gives 128 where 16 bytes of every source lie before byte `i`'s and 32 after,
// which is so where `i + 32 <= of.inner()`.
template <class Of>
DEVICE void fill(const Job& job, Target to, const Of& of) {
  u64 head = min64(to.len, (0 - (u64)to.at) & 15);
  u64 vectors = (to.len - head) / 16;
  // The first vector and those that are not deep enough inside go byte by byte too.
  u64 inner = of.inner();
  u64 begin = vectors < 1 ? vectors : 1;
  u64 end = inner < head + 48 ? begin : max64(begin, min64(vectors, (inner - 32 - head) / 16 + 1));
  u64 v = begin + job.thread;
#pragma unroll 1
  for (; v + (FILLED_AT_ONCE - 1) * job.threads < end; v += FILLED_AT_ONCE * job.threads) {
    Pair pairs[FILLED_AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < FILLED_AT_ONCE; k++) pairs[k] = of.inside(head + (v + k * job.threads) * 16);
#pragma unroll
    for (u32 k = 0; k < FILLED_AT_ONCE; k++) store128(to.at + head + (v + k * job.threads) * 16, pairs[k]);
  }
#pragma unroll 1
  for (; v < end; v += job.threads) store128(to.at + head + v * 16, of.inside(head + v * 16));
  u64 before = head + begin * 16;
  u64 after = head + end * 16;
#pragma unroll 1
  for (u64 i = job.thread; i < before + (to.len - after); i += job.threads) {
    u64 at = i < before ? i : after + (i - before);
    store(to.at + at, (u8)of.safe(at));
  }
}

// Keeps of 64 bits those that lie below `len`, `at` being the first of them.
DEVICE u64 below(u64 word, u64 at, u64 len) {
  if (at >= len) return 0;
  return len - at >= 64 ? word : word & ((1ull << (len - at)) - 1);
}
