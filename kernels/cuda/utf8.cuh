// Whether text is UTF-8, judged at each byte from those near it, so that threads can share a value: every byte of a value
// that passes for itself is what makes the value pass.
#pragma once
#include "words.cuh"

// The bytes of a character that begins so; 0 where none does.
DEVICE u32 utf8_length(u32 lead) {
  return lead >= 0xf5 ? 0 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
}

DEVICE bool continues(u32 byte) { return (byte & 0xc0) == 0x80; }

// Byte `at` of the value that lies in bytes begin..end of what `get` reads.
template <class Get>
DEVICE bool utf8_byte(const Get& get, u64 begin, u64 end, u64 at) {
  u32 byte = get(at);
  if (byte < 0x80) return true;
  if (byte < 0xc0) {
    // A character that reaches this far began at most 3 bytes before.
#pragma unroll 1
    for (u32 k = 1; k <= 3 && at >= begin + k; k++) {
      u32 lead = get(at - k);
      if (!continues(lead)) return lead >= 0xc0 && utf8_length(lead) > k;
    }
    return false;
  }
  u32 n = utf8_length(byte);
  if (n == 0 || at + n > end) return false;
  u32 second = get(at + 1);
  if (!continues(second)) return false;
  if ((byte == 0xe0 && second < 0xa0) || (byte == 0xed && second > 0x9f)) return false;
  if ((byte == 0xf0 && second < 0x90) || (byte == 0xf4 && second > 0x8f)) return false;
  return (n < 3 || continues(get(at + 2))) && (n < 4 || continues(get(at + 3)));
}

#define HIGH_BITS 0x8080808080808080ull

// Sets the high bit of those of 8 bytes that cannot be where they are in a text, as they follow upon the 8 `before` them: a
// byte that continues no character, one that should and does not, or one whose predecessor begins no character or not with
// it. A bit of a byte is looked at where a shift brings it to the byte's highest.
DEVICE u64 utf8_wrong(u64 word, u64 before) {
  u64 one = word << 8 | before >> 56, two = word << 16 | before >> 48, three = word << 24 | before >> 40;
  u64 lead = one & one << 1;
  u64 asked = lead | (two & two << 1 & two << 2) | (three & three << 1 & three << 2 & three << 3);
  u64 wrong = asked ^ (word & ~(word << 1));
  u64 b5 = one << 2, b4 = one << 3, b3 = one << 4, b2 = one << 5, b1 = one << 6, b0 = one << 7;
  // 0xc0 and 0xc1.
  wrong |= lead & ~(b5 | b4 | b3 | b2 | b1);
  if ((lead & b5 & HIGH_BITS) != 0) {
    u64 of3 = lead & b5 & ~b4, of4 = lead & b5 & b4, s5 = word << 2, s4 = word << 3;
    // 0xe0 and 0xed, and what may not follow upon them.
    wrong |= of3 & ((~(b3 | b2 | b1 | b0) & ~s5) | (b3 & b2 & ~b1 & b0 & s5));
    // 0xf5 and above; 0xf0 and 0xf4, and what may not follow upon them.
    wrong |= of4 & (b3 | (b2 & (b1 | b0)) | (~(b2 | b1 | b0) & ~(s5 | s4)) | (b2 & (s5 | s4)));
  }
  return wrong & HIGH_BITS;
}
