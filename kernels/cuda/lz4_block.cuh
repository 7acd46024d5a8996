// Decodes LZ4 blocks ("LZ4 Block Format"). A warp decodes a block.
//
// A warp decodes all sequences that begin in the next 32 bytes at once. Each lane parses its byte
// as if a sequence began there; the lanes that a chain of lengths reaches from lane 0 are right.
// Each output byte then finds its sequence. It is a literal, a byte before these sequences, or a
// copy of an earlier byte of the same sequences. Lanes follow such copies by pointer doubling, so
// no lane waits for a store of another one. Sequences that are too long for this, and the last
// sequence of a block, are decoded one by one.
#pragma once
#include "words.cuh"

// The number of compressed bytes that a warp has in shared memory.
#define LZ4_WINDOW 512
// The number of output bytes that are written at once: two for each lane.
#define LZ4_CHUNK 64
// The maximum numbers of literals and of output bytes of a sequence that is decoded with others.
#define LZ4_SHORT_LITERALS 64
#define LZ4_SHORT 255
// A source at or after this number is a literal: its position in the window plus this number.
#define LZ4_LITERAL 0x10000
// The minimum distance of a long match, so that 128 words can be copied at once: 512 bytes, and up
// to 7 bytes before the first word.
#define LZ4_DISTANCE 520
#define LZ4_WRONG 0xffffffffu

struct Lz4Scratch {
  ulonglong2 window[LZ4_WINDOW / 16];
  // Sequences of a group. The lower word of each has 16 bits each of: the first byte of its output
  // within the group, the number of its literals, their position in the window, and the offset of
  // its match. The upper word is 2^16 / offset, rounded up.
  ulonglong2 sequences[12];
};

// Not a parameter, so that the compiler knows in all functions that it is in shared memory.
__shared__ Lz4Scratch lz4_scratch[THREADS / 32];

DEVICE Lz4Scratch& lz4_own_scratch() { return lz4_scratch[threadIdx.x / 32]; }

DEVICE u32 lz4_lane() { return threadIdx.x % 32; }

// Loads the bytes from `at` on, which is a multiple of 16. The bytes outside of the range are 0.
// Not inlined, because it is used in several places.
static __device__ __noinline__ void lz4_fill_window(Bytes all, const u8* at) {
  u32 lane = lz4_lane();
  const u8* from = at + lane * 16;
  ulonglong2 vector = make_ulonglong2(0, 0);
  if (from >= all.at && from + 16 <= all.at + all.len) {
    vector = __ldg((const ulonglong2*)from);
  } else {
#pragma unroll 1
    for (u32 i = 0; i < 16; i++) {
      u64 byte = from + i >= all.at && from + i < all.at + all.len ? __ldg(from + i) : 0;
      if (i < 8) vector.x |= byte << (8 * i);
      if (i >= 8) vector.y |= byte << (8 * i - 64);
    }
  }
  __syncwarp();
  lz4_own_scratch().window[lane] = vector;
  __syncwarp();
}

// The bytes of a block. `at` is a multiple of 16; positions are relative to it.
struct Lz4Input {
  Bytes all;
  const u8* at;
  u32 end;
  // The position of the first byte in the window.
  u32 base;

  __device__ __forceinline__ const u8* window() const { return (const u8*)lz4_own_scratch().window; }

  __device__ __forceinline__ void move_to(u32 p) {
    base = p & ~15u;
    lz4_fill_window(all, at + base);
  }

  // Ensures that the window has `n` bytes from position `p` on.
  __device__ __forceinline__ void need(u32 p, u32 n) {
    if (p - base > LZ4_WINDOW - n) move_to(p);
  }

  // Adds the bytes that extend a length of 15 or 19. Returns false if the length exceeds `max`.
  __device__ __forceinline__ bool extend(u32& p, u32& length, u32 max) {
    while (p < end && length <= max) {
      need(p, 32);
      u32 byte = window()[p - base + lz4_lane()];
      u32 others = __ballot_sync(WARP, byte != 255);
      u32 n = others ? __ffs(others) - 1 : 32;
      length += 255 * n;
      p += n;
      if (others == 0) continue;
      length += __shfl_sync(WARP, byte, n);
      p++;
      return true;
    }
    return false;
  }
};

DEVICE u32 lz4_any_bits(u32 bits) {
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
  return __reduce_or_sync(WARP, bits);
#else
#pragma unroll
  for (u32 step = 16; step > 0; step /= 2) bits |= __shfl_xor_sync(WARP, bits, step);
  return bits;
#endif
}

template <bool IS_OUTPUT, class T>
DEVICE T lz4_load(const T* at) {
  return IS_OUTPUT ? load(at) : __ldg(at);
}

// Copies `n` bytes. The source is the input, or output at least LZ4_DISTANCE bytes before. Not
// inlined, because long copies are rare.
template <bool IS_OUTPUT>
static __device__ __noinline__ void lz4_copy(u8* to, const u8* from, u32 n) {
  u32 lane = lz4_lane();
  u32 head = n, words = 0;
  if (n >= 64) {
    // The loads of words stay within the source, because bytes at both ends are copied one by one.
    head = 4 + ((0 - (u32)(u64)to) & 3);
    words = (n - head - 8) / 4;
  }
#pragma unroll 1
  for (u32 i = lane; i < head; i += 32) store(to + i, lz4_load<IS_OUTPUT>(from + i));
  u32 skew = (u32)(u64)(from + head) & 3;
  const u32* begin = (const u32*)(from + head - skew);
#pragma unroll 1
  for (u32 first = 0; first < words; first += 128) {
    u32 low[4], high[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      u32 i = first + k * 32 + lane;
      low[k] = high[k] = 0;
      if (i < words) low[k] = lz4_load<IS_OUTPUT>(begin + i);
      if (i < words && skew != 0) high[k] = lz4_load<IS_OUTPUT>(begin + i + 1);
    }
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      u32 i = first + k * 32 + lane;
      u64 both = (u64)high[k] << 32 | low[k];
      if (i < words) store((u32*)(to + head) + i, (u32)(both >> (skew * 8)));
    }
    if (IS_OUTPUT) __syncwarp();
  }
#pragma unroll 1
  for (u32 i = head + words * 4 + lane; i < n; i += 32) store(to + i, lz4_load<IS_OUTPUT>(from + i));
}

// The output of a block. If the blocks are linked, `outside` has a number for each byte: how far
// before the block its source is, or 0. The numbers are 0 initially.
struct Lz4Output {
  u8* block;
  u16* outside;
  // The number of bytes written, and of bytes that may be written.
  u32 done;
  u32 room;
  // The number of bytes before the block to which matches may refer.
  u32 before;
};

// A byte, and its number in `outside`.
struct Lz4Byte {
  u8 value;
  u16 outside;
};

// The byte at position `i` relative to the block.
template <bool IS_LINKED>
DEVICE Lz4Byte lz4_earlier_byte(const Lz4Output& out, i32 i) {
  Lz4Byte byte = {0, 0};
  if (IS_LINKED && i < 0) {
    byte.outside = (u16)-i;
    return byte;
  }
  byte.value = load(out.block + i);
  if (IS_LINKED) byte.outside = load(out.outside + i);
  return byte;
}

template <bool IS_LINKED>
DEVICE void lz4_put(const Lz4Output& out, u32 i, Lz4Byte byte) {
  store(out.block + i, byte.value);
  if (IS_LINKED && byte.outside != 0) store(out.outside + i, byte.outside);
}

// Copies a match of `n` bytes. Not inlined, because long matches are rare.
template <bool IS_LINKED>
static __device__ __noinline__ void lz4_copy_match(Lz4Output out, u32 offset, u32 n) {
  u32 lane = lz4_lane();
  // Repeats the bytes before the match: all of it if the blocks are linked, otherwise until the
  // distance is large enough for whole words.
  u32 distance = offset * ((LZ4_DISTANCE - 1) / offset + 1), first = n;
  if (!IS_LINKED) first = n < distance - offset ? n : distance - offset;
  u32 step = 32 % offset, i = lane % offset;
#pragma unroll 1
  for (u32 k = lane; k < first; k += 32) {
    lz4_put<IS_LINKED>(out, out.done + k, lz4_earlier_byte<IS_LINKED>(out, (i32)(out.done - offset + i)));
    i += step;
    if (i >= offset) i -= offset;
  }
  __syncwarp();
  u8* to = out.block + out.done + first;
  if (n > first) lz4_copy<true>(to, to - distance, n - first);
}

// The source of output byte `x` of a group: a literal, or a byte of the output relative to the
// beginning of the group.
DEVICE i32 lz4_source(ulonglong2 sequence, u32 x) {
  u32 low = (u32)sequence.x, high = (u32)(sequence.x >> 32);
  u32 i = x - (low & 0xffff), literals = low >> 16, offset = high >> 16;
  if (i < literals) return (i32)(LZ4_LITERAL + (high & 0xffff) + i);
  u32 repeats = (i - literals) * (u32)sequence.y >> 16;
  return (i32)(x - offset - repeats * offset);
}

// The byte with this source. `first` is the byte of the group that it is relative to.
template <bool IS_LINKED>
DEVICE Lz4Byte lz4_byte(const Lz4Input& in, const Lz4Output& out, u32 first, i32 source) {
  Lz4Byte literal = {0, 0};
  if (source < LZ4_LITERAL) return lz4_earlier_byte<IS_LINKED>(out, (i32)(out.done + first) + source);
  literal.value = in.window()[source - LZ4_LITERAL];
  return literal;
}

// Writes output bytes `first` to `first + 63` of a group, up to `total`. `start` is the first
// output byte of the sequence that begins at this lane's byte, if one does.
template <bool IS_LINKED>
DEVICE void lz4_chunk(const Lz4Input& in, const Lz4Output& out, bool is_begin, u32 start, u32 first, u32 total) {
  u32 lane = lz4_lane(), up_to = WARP >> (31 - lane);
  Lz4Scratch& scratch = lz4_own_scratch();
  u32 at = start - first, mark = is_begin && start >= first ? 1u << (at & 31) : 0;
  u32 before = __popc(__ballot_sync(WARP, is_begin && start < first));
  u32 marks_low = lz4_any_bits(at < 32 ? mark : 0), marks_high = lz4_any_bits(at - 32 < 32 ? mark : 0);
  u32 low = before + __popc(marks_low & up_to) - 1;
  u32 high = before + __popc(marks_low) + __popc(marks_high & up_to) - 1;
  bool has_low = first + lane < total, has_high = first + lane + 32 < total;
  // Relative to `first`, unless it is a literal.
  i32 low_from = has_low ? lz4_source(scratch.sequences[low], first + lane) : -1;
  i32 high_from = has_high ? lz4_source(scratch.sequences[high], first + lane + 32) : -1;
  if (low_from < LZ4_LITERAL) low_from -= (i32)first;
  if (high_from < LZ4_LITERAL) high_from -= (i32)first;
  while (__ballot_sync(WARP, (u32)low_from < LZ4_CHUNK || (u32)high_from < LZ4_CHUNK) != 0) {
    u32 low_lane = (u32)low_from & 31, high_lane = (u32)high_from & 31;
    i32 low_low = (i32)__shfl_sync(WARP, low_from, low_lane);
    i32 low_high = (i32)__shfl_sync(WARP, high_from, low_lane);
    i32 high_low = (i32)__shfl_sync(WARP, low_from, high_lane);
    i32 high_high = (i32)__shfl_sync(WARP, high_from, high_lane);
    if ((u32)low_from < LZ4_CHUNK) low_from = low_from < 32 ? low_low : low_high;
    if ((u32)high_from < LZ4_CHUNK) high_from = high_from < 32 ? high_low : high_high;
  }
  Lz4Byte low_byte, high_byte;
  if (has_low) low_byte = lz4_byte<IS_LINKED>(in, out, first, low_from);
  if (has_high) high_byte = lz4_byte<IS_LINKED>(in, out, first, high_from);
  if (has_low) lz4_put<IS_LINKED>(out, out.done + first + lane, low_byte);
  if (has_high) lz4_put<IS_LINKED>(out, out.done + first + lane + 32, high_byte);
  // The next chunks read this output.
  __syncwarp();
}

// Decodes the sequences that begin at the 32 bytes from position `p` on, as far as they are short
// enough. Returns the number of bytes written: 0 if the first sequence is too long, and LZ4_WRONG
// for an error.
template <bool IS_LINKED>
DEVICE u32 lz4_group(Lz4Input& in, u32& p, const Lz4Output& out) {
  u32 lane = lz4_lane(), up_to = WARP >> (31 - lane);
  Lz4Scratch& scratch = lz4_own_scratch();
  const u8* window = in.window();
  u32 at = p - in.base, limit = in.end - in.base;
  u32 token = window[at + lane];
  u32 literals = token >> 4, length = token & 15, from = at + lane + 1;
  u32 more = 0;
  if (literals == 15) more = window[from++];
  literals += more;
  // A length of 15 + 255 or more continues in another byte. It is too long in any case.
  bool is_short = literals <= LZ4_SHORT_LITERALS;
  u32 next = from + (is_short ? literals : 0);
  u32 offset = window[next] | (u32)window[next + 1] << 8;
  next += 2;
  if (length == 15) length += window[next++];
  u32 n = literals + length + 4;
  // After a sequence with a match, there is another sequence.
  is_short = is_short && n <= LZ4_SHORT && next < limit;
  if ((__ballot_sync(WARP, is_short) & 1) == 0) return 0;
  next -= at;
  // Each round doubles the length of the chains. At most 11 sequences begin in 32 bytes.
  u32 chain = is_short ? 1u << lane : 0, behind = is_short ? next : 32, sum = is_short ? n : 0;
#pragma unroll
  for (u32 round = 0; round < 4; round++) {
    u32 lane_behind = behind & 31;
    u32 chain_behind = __shfl_sync(WARP, chain, lane_behind);
    u32 sum_behind = __shfl_sync(WARP, sum, lane_behind);
    u32 far_behind = __shfl_sync(WARP, behind, lane_behind);
    if (behind >= 32) continue;
    chain |= chain_behind;
    sum += sum_behind;
    behind = far_behind;
  }
  u32 total = __shfl_sync(WARP, sum, 0), start = total - sum;
  bool is_begin = (__shfl_sync(WARP, chain, 0) >> lane & 1) != 0;
  u32 begins = __ballot_sync(WARP, is_begin);
  u32 last = 31 - __clz(begins);
  bool is_wrong = is_begin && (offset == 0 || offset > out.before + out.done + start + literals);
  if (__ballot_sync(WARP, is_wrong) != 0 || total > out.room - out.done) return LZ4_WRONG;
  if (is_begin) {
    // The source with a longer offset is in an earlier chunk, also if the match repeats itself.
    u32 inverse = offset < LZ4_CHUNK ? (u32)(65536.0f / (float)offset) + 1 : 0;
    u64 word = (u64)(from | offset << 16) << 32 | (start | literals << 16);
    scratch.sequences[__popc(begins & up_to) - 1] = make_ulonglong2(word, inverse);
  }
  __syncwarp();
#pragma unroll 1
  for (u32 first = 0; first < total; first += LZ4_CHUNK) {
    lz4_chunk<IS_LINKED>(in, out, is_begin, start, first, total);
  }
  p += __shfl_sync(WARP, next, last);
  return total;
}

// Decodes a block. Returns the number of bytes written, or LZ4_WRONG. Not inlined, so that the
// variables of the caller are not in registers meanwhile.
template <bool IS_LINKED>
static __device__ __noinline__ u32 lz4_block(Lz4Input in, u32 p, Lz4Output out) {
  in.move_to(p);
#pragma unroll 1
  while (p < in.end) {
    // The last lane's sequence has up to 1 + 1 + 64 + 2 + 1 bytes.
    in.need(p, 128);
    u32 n = lz4_group<IS_LINKED>(in, p, out);
    if (n == LZ4_WRONG) return LZ4_WRONG;
    out.done += n;
    if (n != 0) continue;
    u32 token = in.window()[p - in.base];
    p++;
    u32 literals = token >> 4, length = (token & 15) + 4;
    if (literals == 15 && !in.extend(p, literals, out.room)) return LZ4_WRONG;
    if (literals > in.end - p || literals > out.room - out.done) return LZ4_WRONG;
    lz4_copy<false>(out.block + out.done, in.at + p, literals);
    p += literals;
    out.done += literals;
    if (p == in.end) return out.done;
    if (in.end - p < 2) return LZ4_WRONG;
    in.need(p, 2);
    u32 offset = in.window()[p - in.base] | (u32)in.window()[p - in.base + 1] << 8;
    p += 2;
    if (length == 19 && !in.extend(p, length, out.room)) return LZ4_WRONG;
    if (offset == 0 || offset > out.before + out.done || length > out.room - out.done) return LZ4_WRONG;
    __syncwarp();
    lz4_copy_match<IS_LINKED>(out, offset, length);
    out.done += length;
    __syncwarp();
  }
  return LZ4_WRONG;
}
