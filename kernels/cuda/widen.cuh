// Loads integers of 1 to 8 bytes, signed or unsigned, as words of another width.
#pragma once
#include "steps.cuh"

// The code of an integer type is twice its width in bytes, plus one if it is signed.
DEVICE u32 width_of_integer(u32 type) { return type / 2; }
DEVICE bool is_integer(u32 type) { return type >= 2 && type < 18 && (type / 2 & (type / 2 - 1)) == 0; }

template <u32 BYTES>
struct Piece {
  typedef u64 Type;
};
template <>
struct Piece<1> {
  typedef u8 Type;
};
template <>
struct Piece<2> {
  typedef u16 Type;
};
template <>
struct Piece<4> {
  typedef u32 Type;
};
template <>
struct Piece<16> {
  typedef ulonglong2 Type;
};

// Loads aligned integers of type S as words of type T. From each place on, it loads as many
// integers as fill 16 bytes with words. Whether these integers can be loaded as vectors is decided
// once for all places, so that no load waits for another load. If 16 bytes have more than four
// words, the caller ensures that vector loads are possible.
template <class S, class T, u32 AT_ONCE, class Place>
DEVICE void load_as(Bytes from, const Place& place, Register<T>* words) {
  const u32 EACH = 16 / sizeof(T), BYTES = EACH * sizeof(S), PIECE = BYTES < 16 ? BYTES : 16;
  const u32 PER = sizeof(Register<T>) / sizeof(T);
  typedef typename Piece<PIECE>::Type Loaded;
  S numbers[AT_ONCE][EACH];
  u64 begin = (u64)from.at + place(0) * sizeof(S);
  if ((begin & (PIECE - 1)) == 0) {
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      const Loaded* at = (const Loaded*)(from.at + place(k) * sizeof(S));
#pragma unroll
      for (u32 p = 0; p < BYTES / PIECE; p++) {
        Loaded loaded = __ldg(at + p);
        memcpy(&numbers[k][p * (PIECE / sizeof(S))], &loaded, PIECE);
      }
    }
  } else if constexpr (EACH <= 4) {
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
#pragma unroll
      for (u32 e = 0; e < EACH; e++) numbers[k][e] = __ldg((const S*)from.at + place(k) + e);
    }
  }
#pragma unroll
  for (u32 w = 0; w < AT_ONCE * EACH / PER; w++) {
    words[w] = 0;
#pragma unroll
    for (u32 p = 0; p < PER; p++) {
      words[w] |= (Register<T>)(T)numbers[(w * PER + p) / EACH][(w * PER + p) % EACH] << (p * sizeof(T) * 8);
    }
  }
}

// Like load_as, for any type that is no wider than T. The sign does not matter for a type of the
// same width.
template <class T, u32 AT_ONCE, class Place>
DEVICE void load_widened(Bytes from, u32 type, const Place& place, Register<T>* words) {
  if (type / 2 == sizeof(T)) return load_as<T, T, AT_ONCE>(from, place, words);
  if constexpr (sizeof(T) > 1) {
    if (type == 2) return load_as<u8, T, AT_ONCE>(from, place, words);
    if (type == 3) return load_as<i8, T, AT_ONCE>(from, place, words);
  }
  if constexpr (sizeof(T) > 2) {
    if (type == 4) return load_as<u16, T, AT_ONCE>(from, place, words);
    if (type == 5) return load_as<i16, T, AT_ONCE>(from, place, words);
  }
  if constexpr (sizeof(T) > 4) {
    if (type == 8) return load_as<u32, T, AT_ONCE>(from, place, words);
    if (type == 9) return load_as<i32, T, AT_ONCE>(from, place, words);
  }
}

// Like load_as, for any wider type. It loads only one place at a time, because 16 bytes of words
// already need many loads.
template <class T, class Place>
DEVICE void load_narrowed(Bytes from, u32 type, const Place& place, Register<T>* words) {
  if constexpr (sizeof(T) < 8) {
    if (type / 2 == 8) return load_as<u64, T, 1>(from, place, words);
  }
  if constexpr (sizeof(T) < 4) {
    if (type / 2 == 4) return load_as<u32, T, 1>(from, place, words);
  }
  if constexpr (sizeof(T) < 2) {
    if (type / 2 == 2) return load_as<u16, T, 1>(from, place, words);
  }
}

// Integer `i` of any type, in 64 bits.
DEVICE u64 integer_of(Bytes from, u64 i, u32 type) {
  return type == 16 ? word_at<u64>(from, i) : (u64)integer_at(from, i, type / 2, type % 2 != 0);
}
