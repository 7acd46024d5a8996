// Checks that each value of a string column is UTF-8. An earlier launch has checked the offsets:
// they do not descend and are within the data, so each byte belongs to one value. If all bytes
// together are valid UTF-8 and no value begins with a continuation byte, all values are valid
// UTF-8. Otherwise the values around the byte with the error are checked one by one.
#include "utf8.cuh"

struct Texts {
  Bytes offsets;
  u32 width;
  // The number of values.
  u64 n;
  Bytes data;
  Bytes validity;
  u64 first;

  __device__ u64 offset(u64 i) const { return (u64)offset_at(offsets, i, width); }

  // The value that byte `at` belongs to.
  __device__ u64 value_of(u64 at) const {
    u64 low = 1, high = n;
    while (low < high) {
      u64 middle = low + (high - low) / 2;
      if (offset(middle) <= at) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - 1;
  }

  // The first value with an error at one of the bytes `at..end`.
  __device__ __noinline__ u64 wrong_within(u64 at, u64 end) const {
    u64 value = 0, value_begin = 0, value_end = 0;
#pragma unroll 1
    for (; at < end; at++) {
      if (byte_at(data, at) < 0x80) continue;
      if (at >= value_end) {
        value = value_of(at);
        value_begin = offset(value);
        value_end = min64(offset(value + 1), data.len);
      }
      Bytes bytes = data;
      bool is_valid = utf8_byte([=](u64 i) { return (u32)byte_at(bytes, i); }, value_begin, value_end, at);
      if (!is_valid && is_set(validity, first + value)) return value;
    }
    return NONE;
  }
};

// Bytes `begin..end` of the data, with zeros around them.
struct Text {
  Bytes data;
  u64 begin;
  u64 end;

  // 16 aligned bytes from byte `at` on, which may be outside of the range.
  __device__ __forceinline__ Pair vector(i64 at) const {
    if (at >= (i64)begin && at + 16 <= (i64)end) return aligned128(data.at + at);
    return Pair{word_by_bytes(at), word_by_bytes(at + 8)};
  }
  __device__ __forceinline__ u64 word(i64 at) const {
    return at >= (i64)begin && at + 8 <= (i64)end ? aligned64(data.at + at) : word_by_bytes(at);
  }
  __device__ __noinline__ u64 word_by_bytes(i64 at) const {
    u64 word = 0;
#pragma unroll 1
    for (u32 b = 0; b < 8; b++) {
      i64 i = at + b;
      if (i >= (i64)begin && i < (i64)end) word |= (u64)byte_at(data, (u64)i) << (8 * b);
    }
    return word;
  }
};

DEVICE i64 later(i64 a, i64 b) { return a > b ? a : b; }

// Checks each value that begins at one of the bytes `at..end`. If its first byte is a continuation
// byte, this value is invalid, or the value before it ends within a character. Returns the first
// invalid value.
static __device__ __noinline__ u64 wrong_begin(const Texts& texts, const Text& text, u64 at, u64 end) {
  u64 first_error = NONE;
  u64 n = texts.n + 1;
  for (u64 i = first_at_least(texts.offsets, texts.width, true, 0, n, at);;) {
    u64 k = i + (threadIdx.x & 31);
    u64 place = k < n ? texts.offset(k) : end;
    if (place < end && is_continuation(byte_at(text.data, place))) {
      first_error = min64(first_error, texts.wrong_within(max64(text.begin, place < 3 ? 0 : place - 3), place + 1));
    }
    if (__ballot_sync(WARP, place >= end)) return first_error;
    // Skips a long sequence of empty values.
    u64 first = __shfl_sync(WARP, place, 0), last = __shfl_sync(WARP, place, 31);
    i = first == last ? first_at_least(texts.offsets, texts.width, true, i + 32, n, last + 1) : i + 32;
  }
}

// The number of vectors of 16 bytes that a lane checks at once. A warp checks 2 KiB at a time, and
// searches once for the values that begin within these 2 KiB.
#define UTF8_AT_ONCE 4

DEVICE u64 wrong_text(const Job& job, Bytes offsets, u32 width, Bytes data, Bytes validity, u64 first) {
  u64 n = offsets.len / width;
  if (n < 2) return NONE;
  Texts texts = {offsets, width, n - 1, data, validity, first};
  u64 begin = texts.offset(0), end = texts.offset(n - 1);
  if (begin > end || end > data.len || data.len >= 1ull << 62) return NONE;
  Text text = {data, begin, end};
  // The check begins with the aligned vector that contains the first byte. It includes one vector
  // after the last byte, to detect a truncated character at the end.
  i64 origin = (i64)begin - (i64)((u64)(data.at + begin) & 15);
  const u64 SPAN = UTF8_AT_ONCE * 32 * 16;
  u64 first_error = NONE;
  u64 spans = ((u64)((i64)end - origin) + 16 + SPAN - 1) / SPAN;
#pragma unroll 1
  for (u64 span = job.thread / 32; span < spans; span += job.threads / 32) {
    i64 at = origin + (i64)(span * SPAN) + (threadIdx.x & 31) * 16;
    Pair pairs[UTF8_AT_ONCE];
    u64 before[UTF8_AT_ONCE], any = 0;
#pragma unroll
    for (u32 k = 0; k < UTF8_AT_ONCE; k++) {
      pairs[k] = text.vector(at + k * 512);
      before[k] = text.word(at + k * 512 - 8);
    }
#pragma unroll
    for (u32 k = 0; k < UTF8_AT_ONCE; k++) any |= pairs[k].low | pairs[k].high | before[k];
    // All bytes are ASCII.
    if (__ballot_sync(WARP, (any & HIGH_BITS) != 0) == 0) continue;
    u32 wrong = 0;
#pragma unroll
    for (u32 k = 0; k < UTF8_AT_ONCE; k++) {
      if ((utf8_wrong(pairs[k].low, before[k]) | utf8_wrong(pairs[k].high, pairs[k].low)) != 0) wrong |= 1u << k;
    }
    for (; wrong != 0; wrong &= wrong - 1) {
      i64 low = at + (__ffs(wrong) - 1) * 512;
      first_error = min64(first_error, texts.wrong_within((u64)later(low - 3, (i64)begin), min64((u64)(low + 16), end)));
    }
    i64 from = origin + (i64)(span * SPAN);
    first_error = min64(first_error, wrong_begin(texts, text, (u64)later(from, (i64)begin), min64((u64)(from + (i64)SPAN), end)));
  }
  return first_error;
}

KERNEL(crossdock_check_utf8) {
  PARAMS(OFFSETS, WIDTH, DATA, VALIDITY, FIRST, GUARD, CELL);
  FIND_JOB;
  Target guard = job.write(GUARD);
  if (!cell_of(guard) || *cell_of(guard) != NONE) return;
  Bytes offsets = job.read(OFFSETS), data = job.read(DATA), validity = job.read(VALIDITY);
  u32 width = offset_width(job.value(WIDTH));
  if (width == 0) return;
  report(job.write(CELL), wrong_text(job, offsets, width, data, validity, job.value(FIRST)));
}
