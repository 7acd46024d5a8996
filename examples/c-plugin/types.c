/* The one list of types, and text to values and back. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "csv.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "integers are cut to their width by their low bytes, which come first here"
#endif

static bool is_word(const char* text, size_t bytes, const char* word) {
  return csv_is((crossdock_str){text, bytes}, word);
}

/* NUL-terminated, for strtod and its like; false where it is too long for a number, or has another character in it. */
static bool copy_number(const char* text, size_t bytes, const char* allowed, char to[CSV_PRINTED + 1]) {
  if (bytes == 0 || bytes > CSV_PRINTED) return false;
  memcpy(to, text, bytes);
  to[bytes] = '\0';
  return strspn(to, allowed) == bytes;
}

static bool parse_bool(const csv_type* type, const char* text, size_t bytes, void* to) {
  (void)type;
  *(uint8_t*)to = is_word(text, bytes, "true");
  return *(uint8_t*)to || is_word(text, bytes, "false");
}

static void print_bool(const csv_type* type, const void* value, char* to) {
  (void)type;
  strcpy(to, *(const uint8_t*)value ? "true" : "false");
}

static bool parse_int(const csv_type* type, const char* text, size_t bytes, void* to) {
  const int64_t most = INT64_MAX >> (64 - 8 * type->width);
  char digits[CSV_PRINTED + 1], *end;
  int64_t value;
  if (!copy_number(text, bytes, "+-0123456789", digits)) return false;
  errno = 0;
  value = strtoll(digits, &end, 10);
  if (errno || *end || value > most || value < -most - 1) return false;
  memcpy(to, &value, type->width);
  return true;
}

static void print_int(const csv_type* type, const void* value, char* to) {
  const int unused = (int)(64 - 8 * type->width);
  uint64_t bits = 0;
  memcpy(&bits, value, type->width);
  sprintf(to, "%lld", (long long)((int64_t)(bits << unused) >> unused));
}

static bool parse_float(const csv_type* type, const char* text, size_t bytes, void* to) {
  const bool special = is_word(text, bytes, "nan") || is_word(text, bytes, "inf") || is_word(text, bytes, "-inf");
  char digits[CSV_PRINTED + 1], *end;
  double value;
  if (!copy_number(text, bytes, special ? "-naif" : "+-.0123456789eE", digits)) return false;
  value = strtod(digits, &end);
  if (*end || (isinf(value) && !special)) return false;
  memcpy(to, &value, type->width);
  return true;
}

/* The fewest digits that read back as the same value, with a point, which tells it from an integer. */
static void print_float(const csv_type* type, const void* value, char* to) {
  double number;
  memcpy(&number, value, type->width);
  for (int digits = 15; digits <= 17; digits++) {
    sprintf(to, "%.*g", digits, number);
    if (strtod(to, NULL) == number) break;
  }
  if (isnan(number)) strcpy(to, "nan");
  if (!strpbrk(to, ".en")) strcat(to, ".0");
}

const csv_type csv_types[CSV_N_TYPES] = {
    {"u", "utf8", 4, NULL, NULL},
    {"b", "bool", 0, parse_bool, print_bool},
    {"c", "int8", 1, parse_int, print_int},
    {"s", "int16", 2, parse_int, print_int},
    {"i", "int32", 4, parse_int, print_int},
    {"l", "int64", 8, parse_int, print_int},
    {"g", "float64", 8, parse_float, print_float},
};

const csv_type* csv_type_of(const struct ArrowSchema* schema) {
  for (size_t i = 0; schema->format && !schema->dictionary && i < CSV_N_TYPES; i++)
    if (strcmp(schema->format, csv_types[i].format) == 0) return &csv_types[i];
  return NULL;
}
