#include "scan.h"

#include "alloc.h"
#include "error.h"
#include "text.h"

/* A header of more columns than this is taken for something else. */
enum { MOST_COLUMNS = 65536 };

typedef enum answer {
  A_RECORD,
  THE_END,
  NEEDS_MORE, /* of the text */
  NO_MEMORY,
  TOO_MANY_FIELDS,
  TOO_MANY_COLUMNS,
  FIELD_TOO_LONG,
  TOO_MANY_BLANKS,
  HAS_NUL,
  LONE_RETURN,
  STRAY_QUOTE,
  TEXT_AFTER_QUOTE,
  NEVER_CLOSED
} answer;

void csv_scanner_begin(csv_scanner* scanner, csv_input* input, csv_dialect dialect, size_t max_field_bytes) {
  memset(scanner, 0, sizeof *scanner);
  scanner->input = input;
  scanner->dialect = dialect;
  scanner->max_field_bytes = max_field_bytes;
  scanner->stops['\0'] = scanner->stops['\r'] = scanner->stops['\n'] = true;
  scanner->stops[(unsigned char)dialect.delimiter] = true;
  scanner->stops[(unsigned char)dialect.quote] = true;
}

void csv_scanner_release(csv_scanner* scanner) { CSV_FREE(scanner->fields); }

static answer add_field(csv_scanner* scanner, const csv_field* field) {
  if (scanner->expected > 0 && scanner->n_fields == scanner->expected) return TOO_MANY_FIELDS;
  if (scanner->n_fields == MOST_COLUMNS) return TOO_MANY_COLUMNS;
  if (scanner->n_fields == scanner->capacity) {
    size_t capacity = scanner->capacity ? scanner->capacity * 2 : 16;
    csv_field* fields = CSV_REALLOC(scanner->fields, capacity * sizeof *fields);
    if (!fields) return NO_MEMORY;
    scanner->fields = fields;
    scanner->capacity = capacity;
  }
  scanner->fields[scanner->n_fields++] = *field;
  return A_RECORD;
}

/* From behind the opening quote to behind the closing one. */
static answer scan_quoted(const csv_scanner* scanner, const char* text, size_t bytes, size_t* at, uint64_t* line,
                          csv_field* field) {
  const char quote = scanner->dialect.quote;
  size_t i = *at;
  for (;;) {
    while (i < bytes && text[i] != quote && text[i] != '\n' && text[i] != '\0') i++;
    if (i - field->start > scanner->max_field_bytes) return FIELD_TOO_LONG;
    if (i == bytes) return scanner->input->at_end ? NEVER_CLOSED : NEEDS_MORE;
    if (text[i] == '\0') return HAS_NUL;
    if (text[i] == '\n') {
      ++*line;
      i++;
      continue;
    }
    if (i + 1 == bytes && !scanner->input->at_end) return NEEDS_MORE;
    if (i + 1 == bytes || text[i + 1] != quote) break;
    field->doubled = true;
    i += 2;
  }
  field->bytes = i - field->start;
  *at = i + 1;
  return A_RECORD;
}

static answer scan_unquoted(const csv_scanner* scanner, const char* text, size_t bytes, size_t* at, csv_field* field) {
  size_t i = *at;
  while (i < bytes && !scanner->stops[(unsigned char)text[i]]) i++;
  field->bytes = i - field->start;
  *at = i;
  if (field->bytes > scanner->max_field_bytes) return FIELD_TOO_LONG;
  if (i < bytes && text[i] == '\0') return HAS_NUL;
  if (i < bytes && text[i] == scanner->dialect.quote) return STRAY_QUOTE;
  return A_RECORD;
}

/* Looks at the text that is there. `place` moves behind a whole record; on a mistake, to its field. */
static answer scan_text(csv_scanner* scanner, csv_place* place) {
  const char* text = csv_input_text(scanner->input);
  const size_t bytes = csv_input_bytes(scanner->input);
  const bool at_end = scanner->input->at_end;
  size_t i = place->at;
  uint64_t line = place->line;
  scanner->n_fields = 0;
  if (i == bytes) return at_end ? THE_END : NEEDS_MORE;
  for (;;) {
    csv_field field = {.start = i, .line = line};
    answer found;
    if (i < bytes && scanner->dialect.quote && text[i] == scanner->dialect.quote) {
      field.start = ++i;
      field.quoted = true;
      found = scan_quoted(scanner, text, bytes, &i, &line, &field);
    } else {
      found = scan_unquoted(scanner, text, bytes, &i, &field);
    }
    /* A record that needs more text is looked at again from its start. */
    if (found == NEEDS_MORE || (found == A_RECORD && i == bytes && !at_end)) return NEEDS_MORE;
    if (found == A_RECORD) found = add_field(scanner, &field);
    if (found != A_RECORD) {
      place->line = field.line;
      return found;
    }
    if (i == bytes) break;
    if (text[i] == scanner->dialect.delimiter) {
      i++;
      continue;
    }
    if (text[i] == '\r') {
      if (i + 1 == bytes && !at_end) return NEEDS_MORE;
      place->line = line;
      if (i + 1 == bytes || text[i + 1] != '\n') return LONE_RETURN;
      i++;
    } else if (text[i] != '\n') {
      place->line = line;
      return TEXT_AFTER_QUOTE;
    }
    i++;
    line++;
    break;
  }
  place->at = i;
  place->line = line;
  return A_RECORD;
}

static bool is_blank(const csv_scanner* scanner) {
  return scanner->n_fields == 1 && scanner->fields[0].bytes == 0 && !scanner->fields[0].quoted;
}

static crossdock_code explain(const csv_scanner* scanner, answer found, uint64_t at_line, crossdock_error* err) {
  const crossdock_str name = scanner->input->source.name;
  const unsigned long long line = at_line;
  const size_t field = scanner->n_fields + 1;
  csv_shown shown;
  const char* file = csv_show(&shown, name.data, name.bytes);
  switch (found) {
    case NO_MEMORY:
      return csv_no_memory(err);
    case TOO_MANY_FIELDS:
      return csv_fail(err, CROSSDOCK_BAD_DATA,
                      "%s, line %llu: expected %zu fields, got more; is a field with the delimiter in it not quoted?", file,
                      line, scanner->expected);
    case TOO_MANY_COLUMNS:
      return csv_fail(err, CROSSDOCK_BAD_DATA, "%s, line %llu: more than %d columns; is the delimiter another one?", file,
                      line, MOST_COLUMNS);
    case FIELD_TOO_LONG:
      return csv_fail(err, CROSSDOCK_BAD_DATA,
                      "%s, line %llu: field %zu has more than %zu bytes; is a quote not closed? The option max_field_bytes "
                      "allows longer ones",
                      file, line, field, scanner->max_field_bytes);
    case TOO_MANY_BLANKS:
      return csv_fail(err, CROSSDOCK_BAD_DATA, "%s, line %llu: more than %zu blank lines in a row", file, line,
                      scanner->max_field_bytes);
    case HAS_NUL:
      return csv_fail(err, CROSSDOCK_BAD_DATA,
                      "%s, line %llu: field %zu has a NUL byte, which no text has; expected UTF-8 (UTF-16 has many)", file,
                      line, field);
    case LONE_RETURN:
      return csv_fail(err, CROSSDOCK_BAD_DATA,
                      "%s, line %llu: a carriage return without a line feed; expected lines that end with LF or CRLF, and "
                      "quotes around fields with line ends",
                      file, line);
    case STRAY_QUOTE:
      return csv_fail(err, CROSSDOCK_BAD_DATA,
                      "%s, line %llu: field %zu has a quote and is not quoted; expected \"a \"\"quoted\"\" word\", or the "
                      "option quote=none",
                      file, line, field);
    case TEXT_AFTER_QUOTE:
      return csv_fail(err, CROSSDOCK_BAD_DATA,
                      "%s, line %llu: field %zu goes on behind its closing quote; expected the delimiter or the line's end; "
                      "quotes in a quoted field are doubled",
                      file, line, field - 1);
    case NEVER_CLOSED:
      return csv_fail(err, CROSSDOCK_BAD_DATA, "%s, line %llu: the quote of field %zu is never closed", file, line, field);
    case A_RECORD:
      return csv_fail(err, CROSSDOCK_BAD_DATA, "%s, line %llu: expected %zu fields, got %zu", file, line,
                      scanner->expected, scanner->n_fields);
    default:
      return csv_fail(err, CROSSDOCK_INTERNAL, "%s, line %llu: unexpected state %d", file, line, (int)found);
  }
}

crossdock_code csv_scan(csv_scanner* scanner, csv_place* place, bool* out_found, const crossdock_call* call,
                        crossdock_error* err) {
  const size_t first = place->at;
  *out_found = false;
  for (;;) {
    csv_place begin = *place;
    answer found = scan_text(scanner, place);
    crossdock_code code;
    switch (found) {
      case THE_END:
        return CROSSDOCK_OK;
      case NEEDS_MORE:
        code = csv_input_more(scanner->input, call, err);
        if (code != CROSSDOCK_OK) return code;
        break;
      case A_RECORD:
        if (is_blank(scanner) && scanner->expected != 1) {
          if (place->at - first > scanner->max_field_bytes) return explain(scanner, TOO_MANY_BLANKS, place->line, err);
          break;
        }
        if (scanner->expected > 0 && scanner->n_fields != scanner->expected)
          return explain(scanner, found, begin.line, err);
        *out_found = true;
        return CROSSDOCK_OK;
      default:
        return explain(scanner, found, place->line, err);
    }
  }
}

const char* csv_field_text(csv_scanner* scanner, csv_field* field) {
  char* text = csv_input_text(scanner->input) + field->start;
  size_t to = 0;
  if (!field->doubled) return text;
  for (size_t from = 0; from < field->bytes; from++, to++) {
    text[to] = text[from];
    from += text[from] == scanner->dialect.quote;
  }
  field->bytes = to;
  field->doubled = false;
  return text;
}
