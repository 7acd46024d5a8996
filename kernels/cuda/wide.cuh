// Loads and stores values of up to 32 bytes at any address.
#pragma once
#include "words.cuh"

// Values of 16 and 32 bytes, such as decimals and views.
struct Wide16 {
  u64 words[2];
};
struct Wide32 {
  u64 words[4];
};

template <class T>
DEVICE T value_at(Bytes from, u64 i) {
  if constexpr (sizeof(T) <= 8) {
    return word_at<T>(from, i);
  } else {
    T value;
#pragma unroll
    for (u32 w = 0; w < sizeof(T) / 8; w++) value.words[w] = word_at<u64>(from, i * (sizeof(T) / 8) + w);
    return value;
  }
}

template <class T>
DEVICE void put_value(Target to, u64 i, T value) {
  if constexpr (sizeof(T) <= 8) {
    put_word(to, i, value);
  } else {
#pragma unroll
    for (u32 w = 0; w < sizeof(T) / 8; w++) put_word(to, i * (sizeof(T) / 8) + w, value.words[w]);
  }
}
