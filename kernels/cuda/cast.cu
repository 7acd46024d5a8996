// Numbers of one type as those of another.
#include "words.cuh"

// The types, in the order of cast.rs: X(code, name, C type).
#define NUMBER_TYPES(X) \
  X(0, int8, i8)        \
  X(1, int16, i16)      \
  X(2, int32, i32)      \
  X(3, int64, i64)      \
  X(4, uint8, u8)       \
  X(5, uint16, u16)     \
  X(6, uint32, u32)     \
  X(7, uint64, u64)     \
  X(8, float16, Half)   \
  X(9, float32, float)  \
  X(10, float64, double)

struct Half {
  u16 bits;
};

// Any number: floats as doubles, which hold all of them; integers as their bits, with their sign.
struct Number {
  bool is_float;
  bool is_signed;
  u64 bits;
  double value;
};

#define QUIET_NAN 0x7ff8000000000000ull

DEVICE double double_of(u64 bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}

DEVICE u64 bits_of(double value) {
  u64 bits;
  memcpy(&bits, &value, 8);
  return bits;
}

DEVICE double half_to_double(u16 half) {
  u64 sign = (u64)(half >> 15) << 63;
  u32 exponent = half >> 10 & 31, fraction = half & 0x3ff;
  if (exponent == 31) return fraction ? double_of(QUIET_NAN) : double_of(sign | 0x7ffull << 52);
  // Subnormal ones are so many times 2^-24, which a double holds.
  if (exponent == 0) return double_of(sign | bits_of((double)fraction * double_of(0x3e70000000000000ull)));
  return double_of(sign | (u64)(exponent + 1008) << 52 | (u64)fraction << 42);
}

// To the nearest, ties to even.
DEVICE u16 half_of_double(double value) {
  u64 bits = bits_of(value);
  u16 sign = (u16)(bits >> 48 & 0x8000);
  i32 exponent = (i32)(bits >> 52 & 0x7ff) - 1023;
  u64 fraction = bits & 0xfffffffffffffull;
  if (exponent == 1024) return fraction ? 0x7e00 : sign | 0x7c00;
  if (exponent > 15) return sign | 0x7c00;
  if (exponent < -25) return sign;
  // Below 2^-14 fewer bits are left, the leading one among them.
  u32 dropped = exponent < -14 ? 42 + (u32)(-14 - exponent) : 42;
  u64 whole = fraction | 1ull << 52;
  u64 kept = whole >> dropped, rest = whole & ((1ull << dropped) - 1), half = 1ull << (dropped - 1);
  if (rest > half || (rest == half && (kept & 1))) kept++;
  // A carry out of the fraction is one into the exponent, which is as it should be, also to infinity.
  u64 base = exponent < -14 ? 0 : (u64)(exponent + 14) << 10;
  return sign | (u16)(base + kept);
}

template <class T>
DEVICE Number number_of(T word) {
  Number number = {false, (T)-1 < (T)0, (u64)(i64)word, 0};
  if (!number.is_signed) number.bits = (u64)word;
  return number;
}
DEVICE Number number_of(double value) {
  Number number = {true, true, 0, value == value ? value : double_of(QUIET_NAN)};
  return number;
}
DEVICE Number number_of(float value) { return number_of((double)value); }
DEVICE Number number_of(Half half) { return number_of(half_to_double(half.bits)); }

template <class T>
struct Word {
  typedef T type;
};
template <>
struct Word<Half> {
  typedef u16 type;
};
template <>
struct Word<float> {
  typedef u32 type;
};
template <>
struct Word<double> {
  typedef u64 type;
};

template <class T>
DEVICE T value_of(u64 word) {
  typename Word<T>::type bits = (typename Word<T>::type)word;
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T>
DEVICE u64 word_of(T value) {
  typename Word<T>::type bits;
  memcpy(&bits, &value, sizeof(T));
  return (u64)bits;
}

// An integer; `fits` becomes false where it is not the same number, cut off after the point.
template <class T>
DEVICE T cast_to(const Number& number, bool& fits, T*) {
  const bool is_signed = (T)-1 < (T)0;
  if (!number.is_float) {
    T word = (T)number.bits;
    u64 back = is_signed ? (u64)(i64)word : (u64)word;
    // The same bits are another number where one side has a sign and the other has none.
    fits = back == number.bits && (number.is_signed == is_signed || (i64)number.bits >= 0);
    return word;
  }
  const u32 bits = sizeof(T) * 8 - (is_signed ? 1 : 0);
  // One above the greatest is a power of two, which a double holds; the least is its negative, or 0.
  double above = double_of((u64)(1023 + bits) << 52);
  double least = is_signed ? -above : 0;
  double value = trunc(number.value);
  fits = value >= least && value < above;
  if (fits) return is_signed ? (T)(i64)value : (T)(u64)value;
  if (!(value == value)) return 0;
  if (value < 0) return is_signed ? (T)(1ull << (bits & 63)) : 0;
  return is_signed ? (T)((1ull << (bits & 63)) - 1) : (T)-1;
}

DEVICE bool is_infinite(double value) { return (bits_of(value) & ~(1ull << 63)) == 0x7ffull << 52; }

DEVICE double cast_to(const Number& number, bool& fits, double*) {
  if (number.is_float) return number.value;
  return number.is_signed ? (double)(i64)number.bits : (double)number.bits;
}

DEVICE float cast_to(const Number& number, bool& fits, float*) {
  if (!number.is_float) return number.is_signed ? (float)(i64)number.bits : (float)number.bits;
  u32 quiet = 0x7fc00000u;
  float nan;
  memcpy(&nan, &quiet, 4);
  if (!(number.value == number.value)) return nan;
  float value = (float)number.value;
  fits = is_infinite((double)value) == is_infinite(number.value);
  return value;
}

// Integers that a double rounds are far beyond what a half holds.
DEVICE Half cast_to(const Number& number, bool& fits, Half*) {
  bool always;
  double value = cast_to(number, always, (double*)0);
  Half half = {half_of_double(value)};
  fits = (half.bits & 0x7fff) != 0x7c00 || is_infinite(value);
  return half;
}

DEVICE u64 load_word(Bytes from, u64 i, u32 width) {
  switch (width) {
    case 1: return word_at<u8>(from, i);
    case 2: return word_at<u16>(from, i);
    case 4: return word_at<u32>(from, i);
    default: return word_at<u64>(from, i);
  }
}

DEVICE void store_word(Target to, u64 i, u32 width, u64 word) {
  switch (width) {
    case 1: put_word<u8>(to, i, (u8)word); break;
    case 2: put_word<u16>(to, i, (u16)word); break;
    case 4: put_word<u32>(to, i, (u32)word); break;
    default: put_word<u64>(to, i, word); break;
  }
}

// 0 for a type that there is not.
DEVICE u32 width_of(u64 type) {
  switch (type) {
#define CASE(code, name, T) \
  case code: return sizeof(T);
    NUMBER_TYPES(CASE)
#undef CASE
  }
  return 0;
}

KERNEL(crossdock_cast) {
  PARAMS(FROM, TYPE, TO, TO_TYPE, CELL);
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target to = job.write(TO);
  u64 type = job.value(TYPE), to_type = job.value(TO_TYPE);
  u32 width = width_of(type), to_width = width_of(to_type);
  if (width == 0 || to_width == 0) return;
  u64 n = min64(from.len / width, to.len / to_width);
  u64 found = NOTHING;
  // The types are the same for all threads: each branch is taken by all or by none.
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += job.threads) {
    u64 word = load_word(from, i, width);
    Number number = {false, false, 0, 0};
    bool fits = true;
    switch (type) {
#define CASE(code, name, T) \
  case code: number = number_of(value_of<T>(word)); break;
      NUMBER_TYPES(CASE)
#undef CASE
    }
    switch (to_type) {
#define CASE(code, name, T) \
  case code: word = word_of<T>(cast_to(number, fits, (T*)0)); break;
      NUMBER_TYPES(CASE)
#undef CASE
    }
    store_word(to, i, to_width, word);
    if (!fits) found = min64(found, i);
  }
  report(job.write(CELL), found);
}
