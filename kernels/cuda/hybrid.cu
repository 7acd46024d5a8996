// Decodes the hybrid of run lengths and bit-packed integers in which Parquet stores codes ("RLE /
// Bit-Packing Hybrid" in its specification), and plain values between such runs.
#include "runs.cuh"

struct Hybrid {
  Bytes bytes;
  Bytes runs;
  Bytes ends;
  Bytes dictionary;
  // Codes from this number on are wrong.
  u64 limit;
};

// 64 bits from bit `bit` on. Bits outside of the range are 0.
DEVICE u64 bits_of(Bytes from, u64 bit) {
  u64 byte = bit / 8;
  bool is_inside = byte >= 7 && from.len >= 16 && byte <= from.len - 16;
  return is_inside ? bits_unchecked(from, bit) : bits_at(from, bit);
}

// Value `i` of a run. The lowest bit of a run tells whether its values are plain values rather than
// codes. The next 7 bits are the number of bits of a value, and the others the signed position: the
// bit at which value 0 of all runs would begin, or the value itself if values have no bits.
template <class T>
DEVICE T hybrid_value(const Hybrid& from, u64 run, u64 i, bool& is_wrong) {
  u64 word = word_at<u64>(from.runs, run);
  u32 bits = word >> 1 & 127;
  u64 at = (u64)((i64)word >> 8);
  u64 value = bits == 0 ? at : bits_of(from.bytes, at + i * bits);
  if (bits > 0 && bits < 64) value &= (1ull << bits) - 1;
  if ((word & 1) != 0) return (T)value;
  is_wrong = value >= from.limit;
  if (is_wrong) return (T)0;
  return from.dictionary.len == 0 ? (T)value : word_at<T>(from.dictionary, value);
}

// Each warp decodes a piece of EXPANDED rows at a time. A lane has the validity of 32 of these
// rows. `ranks` are the numbers of valid rows before each piece. Returns the first wrong row.
template <class T>
DEVICE u64 decode_hybrid(const Job& job, u32* marks, Hybrid from, Bytes validity, Bytes ranks, Target to) {
  u64 n = to.len / sizeof(T), runs = min64(from.ends.len / 4, from.runs.len / 8), first_error = NONE;
  if (from.dictionary.len > 0) from.limit = min64(from.limit, from.dictionary.len / sizeof(T));
  u32 lane = threadIdx.x % 32;
  auto end_at = [&](u64 run) { return run < runs ? (u64)word_at<u32>(from.ends, run) : NONE; };
#pragma unroll 1
  for (u64 piece = job.thread / 32; piece * EXPANDED < n; piece += job.threads / 32) {
    u64 begin = piece * EXPANDED, first = begin;
    if (validity.len > 0) first = piece < ranks.len / 4 ? word_at<u32>(ranks, piece) : 0;
    u64 own = begin + lane * 32;
    u32 valid = validity.len > 0 ? (u32)bits_at(validity, own) : WARP;
    valid = (u32)below(valid, own, n);
    u32 all = __popc(valid);
#pragma unroll
    for (u32 step = 1; step < 32; step *= 2) {
      u32 lower = __shfl_sync(WARP, all, lane - step);
      if (lane >= step) all += lower;
    }
    u32 before = all - __popc(valid), values = __shfl_sync(WARP, all, 31);
    u64 base = first_at_least(from.ends, 4, false, 0, runs, first + 1);
    Begins begins = begins_of<u64>(marks, end_at, base, first, first + values);
#pragma unroll 1
    for (u32 line = 0; line < 32; line++) {
      u64 row = begin + line * 32 + lane;
      u32 word = __shfl_sync(WARP, valid, line), none;
      u32 rank = __shfl_sync(WARP, before, line) + __popc(word & ((1u << lane) - 1));
      bool is_valid = (word >> lane & 1) != 0;
      u64 run = base + begins.up_to(is_valid ? rank : 0, none);
      bool is_wrong = is_valid && run >= runs;
      T value = is_valid && !is_wrong ? hybrid_value<T>(from, run, first + rank, is_wrong) : (T)0;
      if (row < n) put_word(to, row, value);
      if (is_wrong) first_error = min64(first_error, row);
    }
  }
  return first_error;
}

KERNEL(crossdock_decode_hybrid) {
  PARAMS(BYTES, RUNS, ENDS, VALIDITY, RANKS, DICTIONARY, LIMIT, TO, WIDTH, CELL);
  FIND_JOB;
  __shared__ u32 marks[THREADS];
  Hybrid from = {job.read(BYTES), job.read(RUNS), job.read(ENDS), job.read(DICTIONARY), job.value(LIMIT)};
  Bytes validity = job.read(VALIDITY), ranks = job.read(RANKS);
  Target to = job.write(TO);
  u64 first_error = NONE;
  switch (job.value(WIDTH)) {
    case 1: first_error = decode_hybrid<u8>(job, marks, from, validity, ranks, to); break;
    case 2: first_error = decode_hybrid<u16>(job, marks, from, validity, ranks, to); break;
    case 4: first_error = decode_hybrid<u32>(job, marks, from, validity, ranks, to); break;
    case 8: first_error = decode_hybrid<u64>(job, marks, from, validity, ranks, to); break;
  }
  report(job.write(CELL), first_error);
}
