// Converts booleans between one bit per value and one byte per value.
#include "bytes.cuh"

// Spreads 4 bits to 4 bytes of 0 or 1.
DEVICE u32 spread4(u32 bits) { return (bits * 0x00204081u) & 0x01010101u; }

DEVICE u64 spread8(u32 bits) { return (u64)spread4(bits >> 4 & 15) << 32 | spread4(bits & 15); }

struct Unpacked {
  Bytes from;
  u64 first;
  u32 flip;
  __device__ u64 inner_len() const { return from.len > 8 ? (from.len - 8) * 8 : 0; }
  __device__ u64 checked(u64 i) const {
    u64 bit = first + i;
    return ((u32)byte_at(from, bit / 8) ^ flip) >> (bit % 8) & 1;
  }
  __device__ Pair unchecked(u64 i) const {
    u64 bit = first + i;
    // Reads 4 bytes: at most one is before `at`, and at most three are after `at`.
    const u8* at = from.at + bit / 8;
    u32 skew = (u64)at & 1;
    const u16* halves = (const u16*)(at - skew);
    u32 bits = (u32)__ldg(halves) | (u32)__ldg(halves + 1) << 16;
    bits = (bits >> (skew * 8 + bit % 8)) ^ flip;
    Pair pair = {spread8(bits), spread8(bits >> 8)};
    return pair;
  }
};

KERNEL(crossdock_unpack_bits) {
  PARAMS(FROM, FIRST, INVERT, TO);
  FIND_JOB;
  Unpacked source = {job.read(FROM), job.value(FIRST) % 8, job.value(INVERT) ? 0xffffu : 0u};
  fill(job, job.write(TO), source);
}

// Packs 8 bytes to 8 bits. A bit is set if its byte is not 0.
DEVICE u32 pack8(u64 bytes) {
  u64 set = ((bytes & 0x7f7f7f7f7f7f7f7full) + 0x7f7f7f7f7f7f7f7full | bytes) & 0x8080808080808080ull;
  return (u32)((set >> 7) * 0x0102040810204080ull >> 56);
}

DEVICE u32 pack16(Pair bytes) { return pack8(bytes.low) | pack8(bytes.high) << 8; }

// Computes one byte of the target from up to 8 bytes of the source.
DEVICE u8 packed(Bytes from, u64 i, u32 flip) {
  u64 remaining = from.len - i * 8;
  u32 bits = 0;
#pragma unroll 1
  for (u32 b = 0; b < 8; b++) bits |= (u32)(byte_at(from, i * 8 + b) != 0) << b;
  bits ^= flip & 0xff;
  return (u8)(remaining < 8 ? bits & ((1u << remaining) - 1) : bits);
}

// The source has eight times as many bytes as the target, so a thread reads 16 bytes and writes 2.
KERNEL(crossdock_pack_bytes) {
  PARAMS(FROM, INVERT, TO);
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target to = job.write(TO);
  u32 flip = job.value(INVERT) ? 0xffffu : 0u;
  u64 n = min64(to.len, (from.len + 7) / 8);
  // The target is written in pairs of bytes from its first even address on. Unchecked loads are
  // possible for the pairs `begin..end`.
  u64 head = min64(n, (u64)to.at & 1);
  u64 pairs = (n - head) / 2;
  u64 begin = min64(pairs, 2);
  u64 unchecked_pairs = from.len < head * 8 + 32 ? 0 : (from.len - 32 - head * 8) / 16 + 1;
  u64 end = max64(begin, min64(pairs, unchecked_pairs));
  u64 p = begin + job.thread;
  for (; p + 3 * job.threads < end; p += 4 * job.threads) {
    Pair pair[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) pair[k] = bytes_unchecked(from, (head + (p + k * job.threads) * 2) * 8);
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      store((u16*)(to.at + head + (p + k * job.threads) * 2), (u16)(pack16(pair[k]) ^ flip));
    }
  }
  for (; p < end; p += job.threads) {
    store((u16*)(to.at + head + p * 2), (u16)(pack16(bytes_unchecked(from, (head + p * 2) * 8)) ^ flip));
  }
  u64 before = head + begin * 2, after = head + end * 2;
#pragma unroll 1
  for (u64 i = job.thread; i < before + (n - after); i += job.threads) {
    u64 at = i < before ? i : after + (i - before);
    store(to.at + at, packed(from, at, flip));
  }
}
