/* Booleans and numbers, to and from text. */
#ifndef CSV_NUMBERS_H
#define CSV_NUMBERS_H

#include "types.h"

/* What a text looks like as a number. */
typedef struct csv_shape {
  bool is_number;     /* digits, with a fraction, an exponent, a sign */
  bool is_integer;    /* digits only, and a sign */
  bool is_plain;      /* no "+", and no zero in front that would be lost */
  bool is_minus_zero; /* of an integer: there is no such one */
} csv_shape;

csv_shape csv_shape_of(const char* text, size_t bytes);

/* "inf", "infinity" and "nan" in any case, with or without a sign. */
bool csv_is_special_float(const char* text, size_t bytes);

csv_parsed csv_parse_bool(const csv_type*, const char* text, size_t bytes, void* to);
csv_parsed csv_parse_int(const csv_type*, const char* text, size_t bytes, void* to);
csv_parsed csv_parse_uint(const csv_type*, const char* text, size_t bytes, void* to);
csv_parsed csv_parse_float(const csv_type*, const char* text, size_t bytes, void* to);

size_t csv_print_bool(const csv_type*, const void* value, char* to);
size_t csv_print_int(const csv_type*, const void* value, char* to);
size_t csv_print_uint(const csv_type*, const void* value, char* to);
size_t csv_print_float(const csv_type*, const void* value, char* to);

#endif
