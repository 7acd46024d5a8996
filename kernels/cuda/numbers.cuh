// The types of numbers.
#pragma once
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

DEVICE float float_of(u32 bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

// If the bits of a half are shifted to their place in a float, the exponent is 112 too small. The
// multiplication by 2^112 corrects the exponent, also for subnormal halves. Infinities and NaN
// become 2^16 or more, so their exponent is set separately.
DEVICE float half_to_float(u16 half) {
  float value = float_of((u32)(half & 0x7fff) << 13) * float_of((127 + 112) << 23);
  u32 bits;
  memcpy(&bits, &value, 4);
  if (value >= 65536.0f) bits |= 0x7f800000;
  return float_of(bits | (u32)(half & 0x8000) << 16);
}

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

// Bytes per number of a type. 0 for an unknown type.
DEVICE u32 width_of(u64 type) {
  switch (type) {
#define CASE(code, name, T) \
  case code: return sizeof(T);
    NUMBER_TYPES(CASE)
#undef CASE
  }
  return 0;
}

// NUMBER_TYPES lists signed integers first, then unsigned integers, then floats.
DEVICE bool is_float_type(u64 type) { return type >= 8; }
DEVICE bool is_signed_type(u64 type) { return type < 4 || type >= 8; }
