#include "types.h"

#include <string.h>

#include "numbers.h"
#include "times.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "values are copied between integers of different widths by their low bytes, which come first here"
#endif

#define INTEGER(format, name, width) {format, name, CSV_FIXED, width, 0, false, csv_parse_int, csv_print_int}
#define UNSIGNED(format, name, width) {format, name, CSV_FIXED, width, 0, false, csv_parse_uint, csv_print_uint}
#define TIMESTAMP(format, unit, digits)                                                                             \
  {format, "timestamp[" unit "]", CSV_FIXED, 8, digits, false, csv_parse_timestamp, csv_print_timestamp},           \
      {format, "timestamp[" unit ", ", CSV_FIXED, 8, digits, true, csv_parse_timestamp, csv_print_timestamp}
#define TIME(format, name, width, digits) {format, name, CSV_FIXED, width, digits, false, csv_parse_time, csv_print_time}

static const csv_type TYPES[] = {
    {"u", "utf8", CSV_STRINGS, 4, 0, false, NULL, NULL},
    {"U", "large_utf8", CSV_STRINGS, 8, 0, false, NULL, NULL},
    {"n", "null", CSV_NOTHING, 0, 0, false, NULL, NULL},
    {"b", "bool", CSV_BITS, 0, 0, false, csv_parse_bool, csv_print_bool},
    INTEGER("c", "int8", 1),
    INTEGER("s", "int16", 2),
    INTEGER("i", "int32", 4),
    INTEGER("l", "int64", 8),
    UNSIGNED("C", "uint8", 1),
    UNSIGNED("S", "uint16", 2),
    UNSIGNED("I", "uint32", 4),
    UNSIGNED("L", "uint64", 8),
    {"f", "float32", CSV_FIXED, 4, 0, false, csv_parse_float, csv_print_float},
    {"g", "float64", CSV_FIXED, 8, 0, false, csv_parse_float, csv_print_float},
    {"tdD", "date32", CSV_FIXED, 4, 0, false, csv_parse_date, csv_print_date},
    TIME("tts", "time32[s]", 4, 0),
    TIME("ttm", "time32[ms]", 4, 3),
    TIME("ttu", "time64[us]", 8, 6),
    TIME("ttn", "time64[ns]", 8, 9),
    TIMESTAMP("tss:", "s", 0),
    TIMESTAMP("tsm:", "ms", 3),
    TIMESTAMP("tsu:", "us", 6),
    TIMESTAMP("tsn:", "ns", 9),
};
enum { N_TYPES = sizeof TYPES / sizeof TYPES[0] };

const csv_type* const csv_type_utf8 = &TYPES[0];

const csv_type* csv_type_of_format(const char* format) {
  for (int i = 0; i < N_TYPES; i++) {
    const csv_type* type = &TYPES[i];
    size_t bytes = strlen(type->format);
    if (type->zoned ? strncmp(format, type->format, bytes) == 0 && format[bytes] != '\0'
                    : strcmp(format, type->format) == 0)
      return type;
  }
  return NULL;
}

const csv_type* csv_type_of_name(const char* name, size_t bytes, const char** zone, size_t* zone_bytes) {
  *zone = NULL;
  *zone_bytes = 0;
  for (int i = 0; i < N_TYPES; i++) {
    const csv_type* type = &TYPES[i];
    /* Both "timestamp[s, UTC]" and "timestamp[s,UTC]". */
    size_t known = strlen(type->name) - (type->zoned ? 1 : 0);
    if (bytes < known || memcmp(name, type->name, known) != 0) continue;
    if (!type->zoned && bytes == known) return type;
    if (!type->zoned) continue;
    while (known < bytes && name[known] == ' ') known++;
    if (bytes < known + 2 || name[bytes - 1] != ']') continue;
    *zone = name + known;
    *zone_bytes = bytes - 1 - known;
    return type;
  }
  return NULL;
}
