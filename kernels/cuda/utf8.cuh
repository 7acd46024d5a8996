// Checks UTF-8 at each byte, from the bytes around it, so that several threads can check one value.
// A value is UTF-8 if all its bytes pass.
#pragma once
#include "words.cuh"

// The length of a character with this first byte, in bytes; 0 if it is invalid.
DEVICE u32 utf8_length(u32 lead) {
  return lead >= 0xf5 ? 0 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
}

DEVICE bool is_continuation(u32 byte) { return (byte & 0xc0) == 0x80; }

// Whether byte `at` of the value `begin..end` passes. `get` reads a byte.
template <class Get>
DEVICE bool utf8_byte(const Get& get, u64 begin, u64 end, u64 at) {
  u32 byte = get(at);
  if (byte < 0x80) return true;
  if (byte < 0xc0) {
    // A character has at most 3 bytes before this one.
#pragma unroll 1
    for (u32 k = 1; k <= 3 && at >= begin + k; k++) {
      u32 lead = get(at - k);
      if (!is_continuation(lead)) return lead >= 0xc0 && utf8_length(lead) > k;
    }
    return false;
  }
  u32 n = utf8_length(byte);
  if (n == 0 || at + n > end) return false;
  u32 second = get(at + 1);
  if (!is_continuation(second)) return false;
  if ((byte == 0xe0 && second < 0xa0) || (byte == 0xed && second > 0x9f)) return false;
  if ((byte == 0xf0 && second < 0x90) || (byte == 0xf4 && second > 0x8f)) return false;
  return (n < 3 || is_continuation(get(at + 2))) && (n < 4 || is_continuation(get(at + 3)));
}

#define HIGH_BITS 0x8080808080808080ull

// Checks the 8 bytes of `word`, which follow the 8 bytes of `before`. Returns a word in which the
// high bit of each wrong byte is set. A byte is wrong if it is an unexpected continuation byte, if
// it is no continuation byte but must be one, or if the byte before it excludes it. Each bit that
// is tested is shifted to the highest position of its byte.
DEVICE u64 utf8_wrong(u64 word, u64 before) {
  u64 one = word << 8 | before >> 56, two = word << 16 | before >> 48, three = word << 24 | before >> 40;
  u64 lead = one & one << 1;
  u64 must_continue = lead | (two & two << 1 & two << 2) | (three & three << 1 & three << 2 & three << 3);
  u64 wrong = must_continue ^ (word & ~(word << 1));
  u64 b5 = one << 2, b4 = one << 3, b3 = one << 4, b2 = one << 5, b1 = one << 6, b0 = one << 7;
  // 0xc0 and 0xc1 are invalid.
  wrong |= lead & ~(b5 | b4 | b3 | b2 | b1);
  if ((lead & b5 & HIGH_BITS) != 0) {
    u64 of3 = lead & b5 & ~b4, of4 = lead & b5 & b4, s5 = word << 2, s4 = word << 3;
    // 0xe0 and 0xed restrict the second byte.
    wrong |= of3 & ((~(b3 | b2 | b1 | b0) & ~s5) | (b3 & b2 & ~b1 & b0 & s5));
    // 0xf5 and above are invalid; 0xf0 and 0xf4 restrict the second byte.
    wrong |= of4 & (b3 | (b2 & (b1 | b0)) | (~(b2 | b1 | b0) & ~(s5 | s4)) | (b2 & (s5 | s4)));
  }
  return wrong & HIGH_BITS;
}
