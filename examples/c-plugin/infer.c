#include "infer.h"

#include "alloc.h"
#include "error.h"
#include "numbers.h"
#include "times.h"

/* What a column may still be. */
enum { BOOL = 1, INT = 2, FLOAT = 4, DATE = 8, LOCAL = 16, ZONED = 32, ANYTHING = 63 };

enum { NANOSECOND_DIGITS = 9 };

/* Integers up to here are exact as doubles. */
static const int64_t EXACT = INT64_C(1) << 53;

typedef struct guess {
  unsigned possible;
  bool seen;   /* a value that is not null */
  int digits;  /* the most of a second's fraction */
  bool fits_nanoseconds;
} guess;

static unsigned of_number(const char* text, size_t bytes) {
  const csv_type* int64 = csv_type_of_format("l");
  const csv_type* float64 = csv_type_of_format("g");
  const csv_shape shape = csv_shape_of(text, bytes);
  int64_t whole;
  double real;
  if (csv_is_special_float(text, bytes)) return FLOAT;
  /* "007" and "+1" are more than the numbers that they look like. */
  if (!shape.is_number || !shape.is_plain) return 0;
  if (!shape.is_integer) return csv_parse_float(float64, text, bytes, &real) == CSV_PARSED ? FLOAT : 0;
  if (shape.is_minus_zero) return FLOAT;
  if (csv_parse_int(int64, text, bytes, &whole) != CSV_PARSED) return 0;
  return whole < -EXACT || whole > EXACT ? INT : INT | FLOAT;
}

static unsigned of_moment(guess* guess, const char* text, size_t bytes) {
  csv_moment moment;
  int64_t value;
  if (!csv_read_moment(text, bytes, &moment) || !csv_moment_value(&moment, moment.digits, &value)) return 0;
  if (moment.digits > guess->digits) guess->digits = moment.digits;
  guess->fits_nanoseconds &= csv_moment_value(&moment, NANOSECOND_DIGITS, &value);
  return moment.has_offset ? ZONED : LOCAL;
}

static bool is_word(const char* text, size_t bytes, const char* word) {
  return bytes == strlen(word) && memcmp(text, word, bytes) == 0;
}

static unsigned of_text(guess* guess, const char* text, size_t bytes) {
  int64_t days;
  /* "1" and "0" are numbers. Spellings in one column may differ, as programs write them. */
  if (is_word(text, bytes, "true") || is_word(text, bytes, "false") || is_word(text, bytes, "True") ||
      is_word(text, bytes, "False") || is_word(text, bytes, "TRUE") || is_word(text, bytes, "FALSE"))
    return BOOL;
  if (bytes >= 10 && csv_read_date(text, bytes, &days)) return days == (int32_t)days ? DATE : 0;
  if (bytes >= 16 && (guess->possible & (LOCAL | ZONED))) {
    unsigned found = of_moment(guess, text, bytes);
    if (found) return found;
  }
  return of_number(text, bytes);
}

static void look_at(guess* guess, const csv_field* field, const char* text, const csv_options* options) {
  bool is_null = !field->quoted && field->bytes == options->null_bytes && memcmp(text, options->null, field->bytes) == 0;
  if (is_null || (guess->seen && !guess->possible)) return;
  guess->seen = true;
  guess->possible &= field->doubled ? 0 : of_text(guess, text, field->bytes);
}

static crossdock_code choose(csv_column* column, const guess* guess, crossdock_error* err) {
  static const char* const TIMESTAMPS[] = {"tss:", "tsm:", "tsu:", "tsn:"};
  const int unit = (guess->digits + 2) / 3;
  const bool fits = unit < 3 || guess->fits_nanoseconds;
  column->inferred = true;
  if (guess->seen) {
    if (guess->possible & BOOL) return csv_column_set_type(column, csv_type_of_format("b"), NULL, 0, err);
    if (guess->possible & INT) return csv_column_set_type(column, csv_type_of_format("l"), NULL, 0, err);
    if (guess->possible & FLOAT) return csv_column_set_type(column, csv_type_of_format("g"), NULL, 0, err);
    if (guess->possible & DATE) return csv_column_set_type(column, csv_type_of_format("tdD"), NULL, 0, err);
    if ((guess->possible & LOCAL) && fits)
      return csv_column_set_type(column, csv_type_of_format(TIMESTAMPS[unit]), NULL, 0, err);
    if ((guess->possible & ZONED) && fits) {
      const char* zone;
      size_t zone_bytes;
      static const char* const NAMES[] = {"timestamp[s, UTC]", "timestamp[ms, UTC]", "timestamp[us, UTC]",
                                          "timestamp[ns, UTC]"};
      const csv_type* type = csv_type_of_name(NAMES[unit], strlen(NAMES[unit]), &zone, &zone_bytes);
      return csv_column_set_type(column, type, zone, zone_bytes, err);
    }
  }
  return csv_column_set_type(column, csv_type_utf8, NULL, 0, err);
}

static crossdock_code look_at_rows(guess* guesses, const csv_columns* columns, csv_scanner* scanner, csv_place place,
                                   const csv_options* options, size_t most_bytes, const crossdock_call* call,
                                   crossdock_error* err) {
  for (size_t rows = 0; rows < options->infer_rows && place.at < most_bytes; rows++) {
    bool found;
    crossdock_code code = csv_scan(scanner, &place, &found, call, err);
    if (code != CROSSDOCK_OK) return code;
    if (!found) break;
    for (size_t i = 0; i < columns->n; i++) {
      const csv_field* field = &scanner->fields[i];
      if (!columns->items[i].type) look_at(&guesses[i], field, csv_input_text(scanner->input) + field->start, options);
    }
  }
  return CROSSDOCK_OK;
}

crossdock_code csv_infer(csv_columns* columns, csv_scanner* scanner, csv_place place, const csv_options* options,
                         size_t most_bytes, const crossdock_call* call, crossdock_error* err) {
  guess* guesses;
  size_t unknown = 0;
  crossdock_code code;
  for (size_t i = 0; i < columns->n; i++) unknown += !columns->items[i].type;
  if (unknown == 0) return CROSSDOCK_OK;
  guesses = csv_zeroed(columns->n, sizeof *guesses);
  if (!guesses) return csv_no_memory(err);
  for (size_t i = 0; i < columns->n; i++) guesses[i] = (guess){.possible = ANYTHING, .fits_nanoseconds = true};
  code = look_at_rows(guesses, columns, scanner, place, options, most_bytes, call, err);
  for (size_t i = 0; code == CROSSDOCK_OK && i < columns->n; i++)
    if (!columns->items[i].type) code = choose(&columns->items[i], &guesses[i], err);
  CSV_FREE(guesses);
  return code;
}
