/* Parses and prints values. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "csv.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "parse_int copies the low bytes of an int64_t, which come first on little-endian machines only"
#endif

static bool parse_bool(size_t width, const char* text, size_t bytes, void* out) {
  (void)width, (void)bytes;
  *(uint8_t*)out = strcmp(text, "true") == 0;
  return *(uint8_t*)out || strcmp(text, "false") == 0;
}

static void print_bool(size_t width, const void* value, char* out) {
  (void)width;
  strcpy(out, *(const uint8_t*)value ? "true" : "false");
}

static bool parse_int(size_t width, const char* text, size_t bytes, void* out) {
  const int64_t max = INT64_MAX >> (64 - 8 * width);
  char* end;
  int64_t value;
  if (bytes == 0 || strspn(text, "+-0123456789") < bytes) return false;
  errno = 0;
  value = strtoll(text, &end, 10);
  if (errno || *end || value > max || value < -max - 1) return false;
  memcpy(out, &value, width);
  return true;
}

static void print_int(size_t width, const void* value, char* out) {
  const int unused_bits = (int)(64 - 8 * width);
  uint64_t bits = 0;
  memcpy(&bits, value, width);
  sprintf(out, "%lld", (long long)((int64_t)(bits << unused_bits) >> unused_bits));
}

static bool parse_float(size_t width, const char* text, size_t bytes, void* out) {
  const bool special = strcmp(text, "nan") == 0 || strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0;
  char* end;
  double value;
  if (bytes == 0 || (!special && strspn(text, "+-.0123456789eE") < bytes)) return false;
  value = strtod(text, &end);
  if (*end || (isinf(value) && !special)) return false;
  memcpy(out, &value, width);
  return true;
}

/* Prints the fewest digits that parse as the same value. Adds ".0" if the text has no point, so
 * that it does not look like an integer. */
static void print_float(size_t width, const void* value, char* out) {
  double number;
  memcpy(&number, value, width);
  for (int digits = 15; digits <= 17; digits++) {
    sprintf(out, "%.*g", digits, number);
    if (strtod(out, NULL) == number) break;
  }
  if (isnan(number)) strcpy(out, "nan"); /* printf may print a sign */
  if (!strpbrk(out, ".en")) strcat(out, ".0");
}

const csv_type csv_types[CSV_N_TYPES] = {
    {"u", "utf8", 4, NULL, NULL},          {"b", "bool", 0, parse_bool, print_bool},
    {"c", "int8", 1, parse_int, print_int}, {"s", "int16", 2, parse_int, print_int},
    {"i", "int32", 4, parse_int, print_int}, {"l", "int64", 8, parse_int, print_int},
    {"g", "float64", 8, parse_float, print_float},
};

const csv_type* csv_find_type(const struct ArrowSchema* column) {
  for (size_t i = 0; column->format && !column->dictionary && i < CSV_N_TYPES; i++)
    if (strcmp(column->format, csv_types[i].format) == 0) return &csv_types[i];
  return NULL;
}
