// Converts numbers between types.
#include "numbers.cuh"

// A number of any type. A float is stored as the bits of a double, which represents it exactly. An
// integer is sign-extended or zero-extended to 64 bits. The flags are the same for all numbers of a
// job.
struct Number {
  bool is_float;
  bool is_signed;
  u64 bits;
};

#define QUIET_NAN 0x7ff8000000000000ull

// Rounds to the nearest, ties to even.
DEVICE u16 half_of_double(double value) {
  u64 bits = bits_of(value);
  u16 sign = (u16)(bits >> 48 & 0x8000);
  i32 exponent = (i32)(bits >> 52 & 0x7ff) - 1023;
  u64 fraction = bits & 0xfffffffffffffull;
  if (exponent == 1024) return fraction ? 0x7e00 : sign | 0x7c00;
  if (exponent > 15) return sign | 0x7c00;
  if (exponent < -25) return sign;
  // Below 2^-14, a half is subnormal: it has fewer bits, and its leading bit is explicit.
  u32 dropped = exponent < -14 ? 42 + (u32)(-14 - exponent) : 42;
  u64 significand = fraction | 1ull << 52;
  u64 rounded = significand >> dropped, rest = significand & ((1ull << dropped) - 1), half = 1ull << (dropped - 1);
  if (rest > half || (rest == half && (rounded & 1))) rounded++;
  // A carry out of the fraction increments the exponent, up to infinity.
  u64 base = exponent < -14 ? 0 : (u64)(exponent + 14) << 10;
  return sign | (u16)(base + rounded);
}

// Widens a number to 64 bits.
template <class T>
DEVICE u64 widened(T word) {
  return (T)-1 < (T)0 ? (u64)(i64)word : (u64)word;
}
DEVICE u64 widened(double value) { return value == value ? bits_of(value) : QUIET_NAN; }
DEVICE u64 widened(float value) { return widened((double)value); }
DEVICE u64 widened(Half half) { return widened(half_to_float(half.bits)); }

template <class T>
DEVICE u64 word_of(T value) {
  typename Word<T>::type bits;
  memcpy(&bits, &value, sizeof(T));
  return (u64)bits;
}

// Converts to an integer, truncating towards 0. `fits` becomes false if the type cannot represent
// the result.
template <class T>
DEVICE T cast_to(const Number& number, bool& fits, T*) {
  const bool is_signed = (T)-1 < (T)0;
  if (!number.is_float) {
    T word = (T)number.bits;
    u64 restored = is_signed ? (u64)(i64)word : (u64)word;
    // If the top bit is set, equal bits are different numbers in a signed and an unsigned type.
    fits = restored == number.bits && (number.is_signed == is_signed || (i64)number.bits >= 0);
    return word;
  }
  const u32 bits = sizeof(T) * 8 - (is_signed ? 1 : 0);
  // The exclusive upper bound is a power of two, which a double represents. The minimum is its
  // negative, or 0.
  double upper = double_of((u64)(1023 + bits) << 52);
  double min = is_signed ? -upper : 0;
  double value = trunc(double_of(number.bits));
  fits = value >= min && value < upper;
  if (fits) return is_signed ? (T)(i64)value : (T)(u64)value;
  if (!(value == value)) return 0;
  if (value < 0) return is_signed ? (T)(1ull << (bits & 63)) : 0;
  return is_signed ? (T)((1ull << (bits & 63)) - 1) : (T)-1;
}

DEVICE bool is_infinite(double value) { return (bits_of(value) & ~(1ull << 63)) == 0x7ffull << 52; }

DEVICE double cast_to(const Number& number, bool& fits, double*) {
  if (number.is_float) return double_of(number.bits);
  return number.is_signed ? (double)(i64)number.bits : (double)number.bits;
}

DEVICE float cast_to(const Number& number, bool& fits, float*) {
  if (!number.is_float) return number.is_signed ? (float)(i64)number.bits : (float)number.bits;
  double exact = double_of(number.bits);
  if (!(exact == exact)) return float_of(0x7fc00000u);
  float value = (float)exact;
  fits = is_infinite((double)value) == is_infinite(exact);
  return value;
}

// Integers are converted to a double first. An integer that a double must round exceeds the maximum
// of a half, so no number is rounded twice.
DEVICE Half cast_to(const Number& number, bool& fits, Half*) {
  bool always;
  double value = cast_to(number, always, (double*)0);
  Half half = {half_of_double(value)};
  fits = (half.bits & 0x7fff) != 0x7c00 || is_infinite(value);
  return half;
}

// The number of words that a thread loads before its first store.
#define CAST_AT_ONCE 8

template <class T>
DEVICE void load_words(Bytes from, u64 i, u64 step, u64 n, u64* words) {
#pragma unroll
  for (u32 k = 0; k < CAST_AT_ONCE; k++) words[k] = i + k * step < n ? (u64)__ldg((const T*)from.at + i + k * step) : 0;
}

template <class T>
DEVICE void store_words(Target to, u64 i, u64 step, u64 n, const u64* words) {
#pragma unroll
  for (u32 k = 0; k < CAST_AT_ONCE; k++) {
    if (i + k * step < n) store((T*)to.at + i + k * step, (T)words[k]);
  }
}

// If `width` is 0, the words are misaligned and are loaded by bytes.
DEVICE void load_any(Bytes from, u32 width, u32 bytes, u64 i, u64 step, u64 n, u64* words) {
  switch (width) {
    case 1: load_words<u8>(from, i, step, n, words); break;
    case 2: load_words<u16>(from, i, step, n, words); break;
    case 4: load_words<u32>(from, i, step, n, words); break;
    case 8: load_words<u64>(from, i, step, n, words); break;
    default:
#pragma unroll
      for (u32 k = 0; k < CAST_AT_ONCE; k++) words[k] = i + k * step < n ? bytewise(from.at + (i + k * step) * bytes, bytes) : 0;
  }
}

DEVICE void store_any(Target to, u32 width, u32 bytes, u64 i, u64 step, u64 n, const u64* words) {
  switch (width) {
    case 1: store_words<u8>(to, i, step, n, words); break;
    case 2: store_words<u16>(to, i, step, n, words); break;
    case 4: store_words<u32>(to, i, step, n, words); break;
    case 8: store_words<u64>(to, i, step, n, words); break;
    default:
#pragma unroll
      for (u32 k = 0; k < CAST_AT_ONCE; k++) {
        if (i + k * step < n) put_bytewise(to.at + (i + k * step) * bytes, bytes, words[k]);
      }
  }
}

KERNEL_BLOCKS(crossdock_cast, 4) {
  PARAMS(FROM, TYPE, TO, TO_TYPE, CELL);
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target to = job.write(TO);
  u64 type = job.value(TYPE), to_type = job.value(TO_TYPE);
  u32 width = width_of(type), to_width = width_of(to_type);
  if (width == 0 || to_width == 0) return;
  u64 n = min64(from.len / width, to.len / to_width);
  u64 first_error = NONE, step = job.threads;
  u32 aligned = is_aligned(from, width) ? width : 0, to_aligned = is_aligned({to.at, 0}, to_width) ? to_width : 0;
  bool is_float = is_float_type(type), is_signed = is_signed_type(type);
  // The types are the same for all threads, so these branches do not diverge.
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += CAST_AT_ONCE * step) {
    u64 words[CAST_AT_ONCE];
    load_any(from, aligned, width, i, step, n, words);
    switch (type) {
#define CASE(code, name, T) \
  case code: \
    for (u32 k = 0; k < CAST_AT_ONCE; k++) words[k] = widened(value_of<T>(words[k])); \
    break;
      NUMBER_TYPES(CASE)
#undef CASE
    }
    bool fits[CAST_AT_ONCE];
    switch (to_type) {
#define CASE(code, name, T) \
  case code: \
    for (u32 k = 0; k < CAST_AT_ONCE; k++) { \
      Number number = {is_float, is_signed, words[k]}; \
      fits[k] = true; \
      words[k] = word_of<T>(cast_to(number, fits[k], (T*)0)); \
    } \
    break;
      NUMBER_TYPES(CASE)
#undef CASE
    }
    store_any(to, to_aligned, to_width, i, step, n, words);
#pragma unroll
    for (u32 k = 0; k < CAST_AT_ONCE; k++) {
      if (!fits[k] && i + k * step < n) first_error = min64(first_error, i + k * step);
    }
  }
  report(job.write(CELL), first_error);
}
