/* Records out of text: RFC 4180, with other delimiters and quotes if asked for. */
#ifndef CSV_SCAN_H
#define CSV_SCAN_H

#include <stdbool.h>

#include "crossdock.h"
#include "input.h"

/* How a file is written. */
typedef struct csv_dialect {
  char delimiter;
  char quote; /* '\0': nothing is quoted */
} csv_dialect;

typedef struct csv_field {
  size_t start; /* from the first byte that has not been used up; of a quoted one, behind its quote */
  size_t bytes;
  uint64_t line;
  bool quoted;
  bool doubled; /* quotes in it stand there twice */
} csv_field;

/* Where a record begins. */
typedef struct csv_place {
  size_t at; /* as csv_field.start */
  uint64_t line;
} csv_place;

typedef struct csv_scanner {
  csv_input* input;
  csv_dialect dialect;
  size_t max_field_bytes;
  size_t expected; /* fields in a record; 0: not known yet */
  csv_field* fields; /* of the last record */
  size_t n_fields;
  size_t capacity;
  bool stops[256]; /* what may end an unquoted field */
} csv_scanner;

void csv_scanner_begin(csv_scanner* scanner, csv_input* input, csv_dialect dialect, size_t max_field_bytes);

/* The record at `place`, which moves behind it. Blank lines count as records where one field is expected, and are passed
 * over elsewhere. `*out_found` is false at the end of the input. */
crossdock_code csv_scan(csv_scanner* scanner, csv_place* place, bool* out_found, const crossdock_call* call,
                        crossdock_error* err);

/* The text of a field of the last record, its quotes undoubled; may be asked for once. */
const char* csv_field_text(csv_scanner* scanner, csv_field* field);

void csv_scanner_release(csv_scanner* scanner);

#endif
