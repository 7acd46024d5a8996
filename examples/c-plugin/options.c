#include "options.h"

#include <stdio.h>
#include <string.h>

#include "error.h"
#include "text.h"

#define INFO(key, description) {sizeof(crossdock_option_info), CSV_TEXT(key), CSV_TEXT(description)}
#define DIALECT                                                                                                       \
  INFO("header", "true (the default): the first record holds the columns' names; false: there is none"),              \
      INFO("delimiter", "what stands between fields: one ASCII character, or tab [default: a comma]"),                \
      INFO("quote", "what encloses fields: one ASCII character, or none [default: a double quote]"),                  \
      INFO("null", "the text that, unquoted, stands for a null [default: no text at all]")

const crossdock_option_info csv_read_options[CSV_N_READ_OPTIONS] = {
    DIALECT,
    INFO("types", "types of columns that are not to be inferred: name:utf8,at:timestamp[us, UTC] [default: none]"),
    INFO("infer_rows", "how many of the first rows tell the types; 0: all columns are utf8 [default: 10000]"),
    INFO("batch_rows", "the most rows of a batch [default: 65536]"),
    INFO("max_field_bytes", "longer fields are an error [default: 16777216]"),
};

const crossdock_option_info csv_write_options[CSV_N_WRITE_OPTIONS] = {DIALECT};

static crossdock_code refuse(crossdock_error* err, const crossdock_option* option, const char* expected) {
  csv_shown key, value;
  return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "option %s: expected %s, got %s",
                  csv_show(&key, option->key.data, option->key.bytes), expected,
                  csv_show(&value, option->value.data, option->value.bytes));
}

static bool is_known(crossdock_str key, const crossdock_option_info* known, size_t n_known) {
  for (size_t i = 0; i < n_known; i++)
    if (key.bytes == known[i].key.bytes && memcmp(key.data, known[i].key.data, key.bytes) == 0) return true;
  return false;
}

static crossdock_code refuse_unknown(crossdock_error* err, crossdock_str key, bool reading) {
  const crossdock_option_info* known = reading ? csv_read_options : csv_write_options;
  const size_t n_known = reading ? CSV_N_READ_OPTIONS : CSV_N_WRITE_OPTIONS;
  char names[256] = "";
  size_t end = 0;
  csv_shown shown;
  if (is_known(key, known, n_known)) return CROSSDOCK_OK;
  for (size_t i = 0; i < n_known && end < sizeof names; i++)
    end += (size_t)snprintf(names + end, sizeof names - end, "%s%.*s", i ? ", " : "", (int)known[i].key.bytes,
                            known[i].key.data);
  return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "%s CSV has no option %s; it knows %s", reading ? "reading" : "writing",
                  csv_show(&shown, key.data, key.bytes), names);
}

/* An ASCII character that no number, word or line end needs. */
static bool take_mark(crossdock_str text, char* out) {
  static const char NEVER[] = "+-.\r\n";
  char c = text.bytes == 1 ? text.data[0] : '\0';
  if (csv_is(text, "tab") || csv_is(text, "\\t")) c = '\t';
  if (c <= 0 || c == 0x7F || strchr(NEVER, c)) return false;
  if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return false;
  *out = c;
  return true;
}

static bool take_number(crossdock_str text, size_t least, size_t most, size_t* out) {
  size_t value = 0;
  if (text.bytes == 0 || text.bytes > 18) return false;
  for (size_t i = 0; i < text.bytes; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return false;
    value = value * 10 + (size_t)(text.data[i] - '0');
  }
  *out = value;
  return value >= least && value <= most;
}

static crossdock_code take(csv_options* out, const crossdock_option* option, crossdock_error* err) {
  static const char MARK[] = "one ASCII character that is no letter, digit, '+', '-' or '.'";
  const crossdock_str key = option->key, value = option->value;
  if (csv_is(key, "header")) {
    if (!csv_is(value, "true") && !csv_is(value, "false")) return refuse(err, option, "true or false");
    out->header = csv_is(value, "true");
  } else if (csv_is(key, "delimiter")) {
    if (!take_mark(value, &out->dialect.delimiter)) return refuse(err, option, MARK);
  } else if (csv_is(key, "quote")) {
    if (csv_is(value, "none")) {
      out->dialect.quote = '\0';
    } else if (!take_mark(value, &out->dialect.quote)) {
      return refuse(err, option, MARK);
    }
  } else if (csv_is(key, "null")) {
    if (value.bytes > sizeof out->null) return refuse(err, option, "64 bytes at most");
    if (value.bytes) memcpy(out->null, value.data, value.bytes);
    out->null_bytes = value.bytes;
  } else if (csv_is(key, "types")) {
    out->types = value;
  } else if (csv_is(key, "infer_rows")) {
    if (!take_number(value, 0, SIZE_MAX, &out->infer_rows)) return refuse(err, option, "a number of rows");
  } else if (csv_is(key, "batch_rows")) {
    if (!take_number(value, 1, 1 << 30, &out->batch_rows)) return refuse(err, option, "1 to 1073741824 rows");
  } else if (csv_is(key, "max_field_bytes")) {
    if (!take_number(value, 1, 1 << 30, &out->max_field_bytes)) return refuse(err, option, "1 to 1073741824 bytes");
  }
  return CROSSDOCK_OK;
}

/* What is read as something else than it was written as cannot stand for a null. */
static crossdock_code check_marks(const csv_options* options, crossdock_error* err) {
  const csv_dialect dialect = options->dialect;
  if (dialect.delimiter == dialect.quote)
    return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "options delimiter and quote: expected different ones, got '%c' twice",
                    dialect.quote);
  for (size_t i = 0; i < options->null_bytes; i++) {
    char c = options->null[i];
    if (c == dialect.delimiter || c == dialect.quote || c == '\r' || c == '\n' || c == '\0')
      return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT,
                      "option 'null': expected a text without delimiters, quotes, line ends and NUL");
  }
  return CROSSDOCK_OK;
}

crossdock_code csv_format_check(crossdock_str format, crossdock_error* err) {
  csv_shown shown;
  if (csv_is(format, "csv")) return CROSSDOCK_OK;
  return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "the format %s is not ours: expected 'csv'",
                  csv_show(&shown, format.data, format.bytes));
}

crossdock_code csv_options_read(csv_options* out, bool reading, const crossdock_option* options, size_t n_options,
                                crossdock_error* err) {
  crossdock_code code;
  memset(out, 0, sizeof *out);
  out->dialect = (csv_dialect){',', '"'};
  out->header = true;
  out->infer_rows = 10000;
  out->batch_rows = 65536;
  out->max_field_bytes = 16 << 20;
  for (size_t i = 0; i < n_options; i++) {
    code = refuse_unknown(err, options[i].key, reading);
    /* The last one of a key wins. */
    if (code == CROSSDOCK_OK) code = take(out, &options[i], err);
    if (code != CROSSDOCK_OK) return code;
  }
  return check_marks(out, err);
}
