/* Dates and times, to and from text: ISO 8601, in the proleptic Gregorian calendar, as Arrow has it. */
#ifndef CSV_TIMES_H
#define CSV_TIMES_H

#include "types.h"

/* A point in time as its text says it. */
typedef struct csv_moment {
  int64_t days;     /* since 1970-01-01 */
  int64_t seconds;  /* of the day, in UTC where there is an offset; may lie outside of it then */
  int32_t nanoseconds;
  int digits;       /* of the fraction, as written */
  bool has_offset;  /* "Z" or "+01:00" */
} csv_moment;

/* "2013-01-31", a sign and more digits in front for years beyond 0 to 9999. */
bool csv_read_date(const char* text, size_t bytes, int64_t* out_days);

/* "2013-01-31T23:59", with or without seconds, up to nine digits behind them, and an offset; a space for the "T". */
bool csv_read_moment(const char* text, size_t bytes, csv_moment* out);

/* As a number of seconds, or parts of a second, since 1970; false: it does not fit 64 bits or would lose digits. */
bool csv_moment_value(const csv_moment* moment, int digits, int64_t* out);

csv_parsed csv_parse_date(const csv_type*, const char* text, size_t bytes, void* to);
csv_parsed csv_parse_time(const csv_type*, const char* text, size_t bytes, void* to);
csv_parsed csv_parse_timestamp(const csv_type*, const char* text, size_t bytes, void* to);

size_t csv_print_date(const csv_type*, const void* value, char* to);
size_t csv_print_time(const csv_type*, const void* value, char* to);
size_t csv_print_timestamp(const csv_type*, const void* value, char* to);

#endif
