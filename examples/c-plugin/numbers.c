#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Does `text` say `word`, a lower-case one, in any case? */
static bool says(const char* text, size_t bytes, const char* word) {
  if (bytes != strlen(word)) return false;
  for (size_t i = 0; i < bytes; i++) {
    char c = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];
    if (c != word[i]) return false;
  }
  return true;
}

/* ------------------------------------------------------------------------------------------------- booleans --- */

csv_parsed csv_parse_bool(const csv_type* type, const char* text, size_t bytes, void* to) {
  uint8_t value;
  (void)type;
  if (says(text, bytes, "true") || says(text, bytes, "1")) {
    value = 1;
  } else if (says(text, bytes, "false") || says(text, bytes, "0")) {
    value = 0;
  } else {
    return CSV_NOT_ONE;
  }
  memcpy(to, &value, sizeof value);
  return CSV_PARSED;
}

size_t csv_print_bool(const csv_type* type, const void* value, char* to) {
  const char* text = *(const uint8_t*)value ? "true" : "false";
  (void)type;
  memcpy(to, text, strlen(text));
  return strlen(text);
}

/* ------------------------------------------------------------------------------------------------- integers --- */

/* A sign and a magnitude. */
static csv_parsed parse_digits(const char* text, size_t bytes, bool* negative, uint64_t* out) {
  uint64_t value = 0;
  size_t i = bytes > 0 && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  bool too_big = false;
  *negative = i == 1 && text[0] == '-';
  if (i == bytes) return CSV_NOT_ONE;
  for (; i < bytes; i++) {
    if (!is_digit(text[i])) return CSV_NOT_ONE;
    too_big |= __builtin_mul_overflow(value, 10u, &value);
    too_big |= __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value);
  }
  *out = value;
  return too_big ? CSV_TOO_BIG : CSV_PARSED;
}

csv_parsed csv_parse_int(const csv_type* type, const char* text, size_t bytes, void* to) {
  uint64_t largest = UINT64_MAX >> (65 - 8 * type->width), magnitude, value;
  bool negative;
  csv_parsed parsed = parse_digits(text, bytes, &negative, &magnitude);
  if (parsed != CSV_PARSED) return parsed;
  if (magnitude > largest + (negative ? 1 : 0)) return CSV_TOO_BIG;
  value = negative ? 0 - magnitude : magnitude;
  /* Both sides are little-endian: the low bytes come first. */
  memcpy(to, &value, type->width);
  return CSV_PARSED;
}

csv_parsed csv_parse_uint(const csv_type* type, const char* text, size_t bytes, void* to) {
  uint64_t largest = UINT64_MAX >> (64 - 8 * type->width), value;
  bool negative;
  csv_parsed parsed = parse_digits(text, bytes, &negative, &value);
  if (parsed != CSV_PARSED) return parsed;
  if (value > largest || (negative && value != 0)) return CSV_TOO_BIG;
  memcpy(to, &value, type->width);
  return CSV_PARSED;
}

/* By hand: printf takes several times as long, and integers are most of what there is. */
static size_t print_digits(uint64_t value, char* to) {
  char backwards[20];
  size_t n = 0;
  do {
    backwards[n++] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  for (size_t i = 0; i < n; i++) to[i] = backwards[n - 1 - i];
  return n;
}

size_t csv_print_int(const csv_type* type, const void* value, char* to) {
  const int shift = 64 - 8 * type->width;
  uint64_t bits = 0;
  int64_t number;
  memcpy(&bits, value, type->width);
  number = (int64_t)(bits << shift) >> shift;
  if (number >= 0) return print_digits((uint64_t)number, to);
  *to = '-';
  return 1 + print_digits(0 - (uint64_t)number, to + 1);
}

size_t csv_print_uint(const csv_type* type, const void* value, char* to) {
  uint64_t bits = 0;
  memcpy(&bits, value, type->width);
  return print_digits(bits, to);
}

/* --------------------------------------------------------------------------------------------------- floats --- */

csv_shape csv_shape_of(const char* text, size_t bytes) {
  csv_shape shape = {0};
  size_t i = 0, first, whole, fraction = 0;
  if (i < bytes && (text[i] == '-' || text[i] == '+')) i++;
  first = i;
  while (i < bytes && is_digit(text[i])) i++;
  whole = i - first;
  shape.is_plain = (bytes == 0 || text[0] != '+') && (whole < 2 || text[first] != '0');
  if (whole > 0 && i == bytes) {
    shape.is_number = shape.is_integer = true;
    shape.is_minus_zero = text[0] == '-' && whole == 1 && text[first] == '0';
    return shape;
  }
  if (i < bytes && text[i] == '.') {
    size_t point = ++i;
    while (i < bytes && is_digit(text[i])) i++;
    fraction = i - point;
  }
  if (whole + fraction == 0) return shape;
  if (i < bytes && (text[i] == 'e' || text[i] == 'E')) {
    size_t exponent;
    i++;
    if (i < bytes && (text[i] == '-' || text[i] == '+')) i++;
    exponent = i;
    while (i < bytes && is_digit(text[i])) i++;
    if (i == exponent) return shape;
  }
  shape.is_number = i == bytes;
  return shape;
}

static bool skip_sign(const char** text, size_t* bytes) {
  bool negative = *bytes > 0 && **text == '-';
  if (*bytes > 0 && (**text == '-' || **text == '+')) {
    ++*text;
    --*bytes;
  }
  return negative;
}

bool csv_is_special_float(const char* text, size_t bytes) {
  skip_sign(&text, &bytes);
  return says(text, bytes, "nan") || says(text, bytes, "inf") || says(text, bytes, "infinity");
}

/* Few digits and a small power of ten: both are exact as doubles, so one operation rounds once (Clinger's fast path). */
static bool parse_easy(const char* text, size_t bytes, double* out) {
  static const double POWERS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  uint64_t digits = 0;
  size_t fraction = 0;
  bool negative = skip_sign(&text, &bytes), past_point = false;
  double value;
  if (bytes > 16) return false;
  for (size_t i = 0; i < bytes; i++) {
    if (text[i] == '.') {
      past_point = true;
    } else if (is_digit(text[i])) {
      digits = digits * 10 + (uint64_t)(text[i] - '0');
      fraction += past_point;
    } else {
      return false;
    }
  }
  if (digits > UINT64_C(1) << 53) return false;
  value = (double)digits / POWERS[fraction];
  *out = negative ? -value : value;
  return true;
}

csv_parsed csv_parse_float(const csv_type* type, const char* text, size_t bytes, void* to) {
  double value;
  if (csv_is_special_float(text, bytes)) {
    size_t rest = bytes;
    const char* word = text;
    bool negative = skip_sign(&word, &rest);
    value = says(word, rest, "nan") ? NAN : INFINITY;
    if (negative) value = -value;
  } else {
    if (!csv_shape_of(text, bytes).is_number) return CSV_NOT_ONE;
    /* strtod and strtof stop at the byte behind the text, by `parse`'s contract. */
    if (type->width == sizeof(float)) {
      value = strtof(text, NULL);
    } else if (!parse_easy(text, bytes, &value)) {
      value = strtod(text, NULL);
    }
    if (isinf(value)) return CSV_TOO_BIG;
  }
  if (type->width == sizeof(float)) {
    float narrow = (float)value;
    memcpy(to, &narrow, sizeof narrow);
  } else {
    memcpy(to, &value, sizeof value);
  }
  return CSV_PARSED;
}

/* The fewest digits that read back as the same value. */
static size_t print_shortest(double value, bool narrow, char* to) {
  int most = narrow ? 9 : 17, bytes = 0;
  for (int digits = narrow ? 6 : 15; digits <= most; digits++) {
    bytes = sprintf(to, "%.*g", digits, value);
    if (narrow ? strtof(to, NULL) == (float)value : strtod(to, NULL) == value) break;
  }
  return (size_t)bytes;
}

size_t csv_print_float(const csv_type* type, const void* value, char* to) {
  bool narrow = type->width == sizeof(float);
  double wide;
  size_t bytes;
  if (narrow) {
    float exact;
    memcpy(&exact, value, sizeof exact);
    wide = exact;
  } else {
    memcpy(&wide, value, sizeof wide);
  }
  if (isnan(wide)) return (size_t)sprintf(to, "nan");
  if (isinf(wide)) return (size_t)sprintf(to, wide < 0 ? "-inf" : "inf");
  bytes = print_shortest(wide, narrow, to);
  /* A point says that it is no integer, to whoever infers types. */
  if (!memchr(to, '.', bytes) && !memchr(to, 'e', bytes)) {
    memcpy(to + bytes, ".0", 2);
    bytes += 2;
  }
  return bytes;
}
