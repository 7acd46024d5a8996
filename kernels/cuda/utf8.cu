// Whether each value of a column of text is UTF-8. The offsets have been checked by a launch before: they rise and lie
// within the data, so that each byte belongs to one value, which is looked for only where a byte is not ASCII.
#include "utf8.cuh"

struct Texts {
  Bytes offsets;
  u32 width;
  // Values.
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

  // The first value that is wrong at one of bytes at..end.
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
      bool right = utf8_byte([=](u64 i) { return (u32)byte_at(bytes, i); }, value_begin, value_end, at);
      if (!right && is_set(validity, first + value)) return value;
    }
    return NOTHING;
  }
};

DEVICE u64 wrong_text(const Job& job, Bytes offsets, u32 width, Bytes data, Bytes validity, u64 first) {
  u64 n = offsets.len / width;
  if (n < 2) return NOTHING;
  Texts texts = {offsets, width, n - 1, data, validity, first};
  u64 begin = texts.offset(0), end = texts.offset(n - 1);
  if (begin > end || end > data.len) return NOTHING;
  // 16 aligned bytes a step. The first and the last step may hold fewer.
  u64 skew = (u64)(data.at + begin) & 15;
  u64 steps = (skew + (end - begin) + 15) / 16;
  u64 found = NOTHING;
#pragma unroll 2
  for (u64 step = job.thread; step < steps; step += job.threads) {
    u64 from = step == 0 ? begin : begin + step * 16 - skew;
    u64 to = min64(begin + (step + 1) * 16 - skew, end);
    if (to - from == 16) {
      Pair bytes = aligned128(data.at + from);
      if (((bytes.low | bytes.high) & HIGH_BITS) == 0) continue;
    }
    found = min64(found, texts.wrong_within(from, to));
  }
  return found;
}

KERNEL(crossdock_check_utf8) {
  PARAMS(OFFSETS, WIDTH, DATA, VALIDITY, FIRST, GUARD, CELL);
  FIND_JOB;
  Target guard = job.write(GUARD);
  if (!cell_of(guard) || *cell_of(guard) != NOTHING) return;
  Bytes offsets = job.read(OFFSETS), data = job.read(DATA), validity = job.read(VALIDITY);
  u32 width = offset_width(job.value(WIDTH));
  if (width == 0) return;
  report(job.write(CELL), wrong_text(job, offsets, width, data, validity, job.value(FIRST)));
}
