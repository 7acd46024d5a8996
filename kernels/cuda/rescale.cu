// Converts integers to another unit, such as seconds to milliseconds, and decimals to floats.
#include "numbers.cuh"

#define MULTIPLY 0
#define DIVIDE 1
#define FLOOR 2

#define MIN_I64 (-MAX_I64 - 1)

// Converts one integer. `fits` becomes false if 64 bits cannot represent the result.
DEVICE i64 rescaled(i64 value, i64 factor, u64 mode, bool& fits) {
  if (mode == MULTIPLY) {
    fits = value <= MAX_I64 / factor && value >= MIN_I64 / factor;
    return (i64)((u64)value * (u64)factor);
  }
  i64 quotient = value / factor, rest = value % factor;
  fits = mode == FLOOR || rest == 0;
  return mode == FLOOR && rest < 0 ? quotient - 1 : quotient;
}

KERNEL(crossdock_rescale) {
  PARAMS(FROM, WIDTH, VALIDITY, FIRST, FACTOR, MODE, TO, TO_WIDTH, CELL);
  FIND_JOB;
  Bytes from = job.read(FROM), validity = job.read(VALIDITY);
  Target to = job.write(TO);
  u32 width = offset_width(job.value(WIDTH)), to_width = offset_width(job.value(TO_WIDTH));
  i64 factor = (i64)job.value(FACTOR);
  u64 mode = job.value(MODE), first = job.value(FIRST), first_error = NONE;
  if (width == 0 || to_width == 0 || factor <= 0 || mode > FLOOR) return;
  u64 n = min64(from.len / width, to.len / to_width);
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += job.threads) {
    bool fits = true;
    i64 value = rescaled(offset_at(from, i, width), factor, mode, fits);
    if (to_width == 4) {
      fits = fits && (i32)value == value;
      put_word<i32>(to, i, (i32)value);
    } else {
      put_word<i64>(to, i, value);
    }
    if (!fits && is_set(validity, first + i)) first_error = min64(first_error, i);
  }
  report(job.write(CELL), first_error);
}

// The nearest double of a signed integer of N words, the lowest word first. Each word is rounded
// once, so an integer of more than 53 bits may differ from the nearest double in the last bit.
template <u32 N>
DEVICE double double_of_wide(Bytes from, u64 i) {
  u64 words[N];
#pragma unroll
  for (u32 k = 0; k < N; k++) words[k] = word_at<u64>(from, i * N + k);
  bool is_negative = (i64)words[N - 1] < 0;
  u64 carry = 1;
#pragma unroll
  for (u32 k = 0; k < N; k++) {
    if (!is_negative) continue;
    words[k] = ~words[k] + carry;
    carry = carry != 0 && words[k] == 0;
  }
  double value = 0;
#pragma unroll
  for (u32 k = N; k-- > 0;) value = value * 18446744073709551616.0 + (double)words[k];
  return is_negative ? -value : value;
}

// Multiplies if SCALE_UP is not 0, else divides by FACTOR, a double.
KERNEL(crossdock_decimal_to_float) {
  PARAMS(FROM, WIDTH, FACTOR, SCALE_UP, TO);
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target to = job.write(TO);
  u64 width = job.value(WIDTH);
  double factor = double_of(job.value(FACTOR));
  bool scale_up = job.value(SCALE_UP) != 0;
  if (width != 4 && width != 8 && width != 16 && width != 32) return;
  u64 n = min64(from.len / width, to.len / 8);
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += job.threads) {
    double value = width == 16   ? double_of_wide<2>(from, i)
                   : width == 32 ? double_of_wide<4>(from, i)
                                 : (double)offset_at(from, i, (u32)width);
    put_word<u64>(to, i, bits_of(scale_up ? value * factor : value / factor));
  }
}
