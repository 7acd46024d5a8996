#include "text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 40 };

bool csv_is(crossdock_str text, const char* literal) {
  size_t bytes = strlen(literal);
  return text.bytes == bytes && (bytes == 0 || memcmp(text.data, literal, bytes) == 0);
}

/* How long the character at `s` is; 0: it is none. Overlong forms, surrogates and what lies beyond U+10FFFF are none
 * (Unicode's table 3-7). */
static size_t character_bytes(const unsigned char* s, size_t bytes) {
  unsigned char low = 0x80, high = 0xBF;
  size_t n;
  if (s[0] < 0x80) return 1;
  if (s[0] < 0xC2 || s[0] > 0xF4) return 0;
  n = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
  if (bytes < n) return 0;
  if (s[0] == 0xE0) low = 0xA0;
  if (s[0] == 0xED) high = 0x9F;
  if (s[0] == 0xF0) low = 0x90;
  if (s[0] == 0xF4) high = 0x8F;
  if (s[1] < low || s[1] > high) return 0;
  for (size_t i = 2; i < n; i++)
    if ((s[i] & 0xC0) != 0x80) return 0;
  return n;
}

size_t csv_utf8_prefix(const char* data, size_t bytes) {
  const unsigned char* s = (const unsigned char*)data;
  size_t i = 0;
  while (i < bytes) {
    uint64_t eight;
    if (bytes - i >= sizeof eight) {
      memcpy(&eight, s + i, sizeof eight);
      if ((eight & UINT64_C(0x8080808080808080)) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    size_t n = character_bytes(s + i, bytes - i);
    if (n == 0) return i;
    i += n;
  }
  return i;
}

const char* csv_show(csv_shown* room, const char* data, size_t bytes) {
  const unsigned char* s = (const unsigned char*)data;
  size_t end = bytes < SHOWN_BYTES ? bytes : SHOWN_BYTES;
  char* to = room->text;
  *to++ = '\'';
  for (size_t i = 0; i < end;) {
    size_t n = character_bytes(s + i, bytes - i);
    if (n == 0 || s[i] < 0x20 || s[i] == 0x7F) {
      to += sprintf(to, "\\x%02x", s[i++]);
    } else {
      memcpy(to, s + i, n);
      to += n;
      i += n;
    }
  }
  memcpy(to, bytes > end ? "...'" : "'", bytes > end ? 5 : 2);
  return room->text;
}
