/* The types that a column of text may have: one row each, which all else walks. */
#ifndef CSV_TYPES_H
#define CSV_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How values lie in Arrow's buffers. */
typedef enum csv_storage {
  CSV_NOTHING, /* no buffers: every value is null */
  CSV_BITS,    /* validity, bits */
  CSV_FIXED,   /* validity, values of `width` bytes */
  CSV_STRINGS  /* validity, offsets of `width` bytes, text */
} csv_storage;

typedef enum csv_parsed {
  CSV_PARSED,
  CSV_NOT_ONE, /* the text is no such value */
  CSV_TOO_BIG  /* it is one, and the type cannot hold it */
} csv_parsed;

/* Bytes that no printed value exceeds. */
#define CSV_PRINTED_MAX 64

typedef struct csv_type {
  const char* format; /* Arrow's; of a timestamp all before its zone */
  const char* name;   /* in messages and in `types=`; of a zoned timestamp all before its zone */
  csv_storage storage;
  uint8_t width;  /* bytes */
  uint8_t digits; /* of a second's fraction */
  bool zoned;     /* a timestamp with a zone: its text says how far from UTC it is */
  /* Text to a value of `width` bytes at `to` (of bits: one byte, 0 or 1). The byte behind the text may be read, and is
   * none that a number could go on with. */
  csv_parsed (*parse)(const struct csv_type*, const char* text, size_t bytes, void* to);
  /* A value to text that reads back as the same value; how many bytes. 0: the type allows no such value. */
  size_t (*print)(const struct csv_type*, const void* value, char* to);
} csv_type;

/* The type of an Arrow format, or NULL. */
const csv_type* csv_type_of_format(const char* format);

/* The type of a name as in `types=`; `zone` gets where the zone begins in `name`, of which it takes `*zone_bytes`. */
const csv_type* csv_type_of_name(const char* name, size_t bytes, const char** zone, size_t* zone_bytes);

/* The inferred ones. */
extern const csv_type* const csv_type_utf8;

/* All names, for messages. */
#define CSV_TYPE_NAMES                                                                                         \
  "null, bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, utf8, large_utf8, " \
  "date32, time32[s|ms], time64[us|ns], timestamp[s|ms|us|ns] and timestamp[UNIT, ZONE]"

#endif
