/* The importer: opens a source, finds out its columns, and makes batches of its rows. */
#include "read.h"

#include <stdio.h>

#include "alloc.h"
#include "builder.h"
#include "calls.h"
#include "columns.h"
#include "error.h"
#include "infer.h"
#include "instance.h"
#include "locales.h"
#include "options.h"
#include "scan.h"
#include "text.h"

enum {
  INFER_BYTES = 4 << 20,  /* of text that inference keeps at most */
  BATCH_BYTES = 16 << 20, /* of text that becomes one batch at most, its last row aside */
  FIRST_ROWS = 1024,      /* that a batch has room for at first */
  ROWS_A_LOOK = 1024      /* between two looks at the cancel flag */
};

typedef struct reader {
  const crossdock_instance* instance;
  csv_input input;
  csv_scanner scanner;
  csv_options options;
  csv_columns columns;
  csv_builder* builders; /* one for each column */
  size_t room;           /* rows that the builders have room for */
  size_t last_rows;      /* of the batch before */
  csv_place place;       /* of the next record */
  bool failed;
} reader;

static void free_reader(reader* r) {
  for (size_t i = 0; r->builders && i < r->columns.n; i++) csv_builder_free(r->instance->memory, &r->builders[i]);
  CSV_FREE(r->builders);
  csv_columns_free(&r->columns);
  csv_scanner_release(&r->scanner);
  csv_input_release(&r->input);
  CSV_FREE(r);
}

static const char* file_name(const reader* r, csv_shown* room) {
  return csv_show(room, r->input.source.name.data, r->input.source.name.bytes);
}

/* What lies before `place` is used up. */
static void use_up(reader* r) {
  csv_input_use(&r->input, r->place.at);
  r->place.at = 0;
}

/* ------------------------------------------------------------------------------------------------- the columns --- */

static crossdock_code skip_byte_order_mark(reader* r, const crossdock_call* call, crossdock_error* err) {
  while (csv_input_bytes(&r->input) < 3 && !r->input.at_end) {
    crossdock_code code = csv_input_more(&r->input, call, err);
    if (code != CROSSDOCK_OK) return code;
  }
  if (csv_input_bytes(&r->input) >= 3 && memcmp(csv_input_text(&r->input), "\xEF\xBB\xBF", 3) == 0)
    csv_input_use(&r->input, 3);
  return CROSSDOCK_OK;
}

static crossdock_code bad_utf8(const reader* r, uint64_t line, const char* where, const char* text, size_t bytes,
                               crossdock_error* err) {
  const size_t at = csv_utf8_prefix(text, bytes);
  csv_shown file;
  return csv_fail(err, CROSSDOCK_BAD_DATA, "%s, line %llu, %s: byte 0x%02x is not UTF-8; convert the file first, with iconv",
                  file_name(r, &file), (unsigned long long)line, where, (unsigned char)text[at]);
}

static crossdock_code take_names(reader* r, crossdock_error* err) {
  crossdock_code code = csv_columns_make(&r->columns, r->scanner.n_fields, err);
  for (size_t i = 0; code == CROSSDOCK_OK && i < r->columns.n; i++) {
    csv_field* field = &r->scanner.fields[i];
    const char* text = csv_field_text(&r->scanner, field);
    if (csv_utf8_prefix(text, field->bytes) < field->bytes)
      return bad_utf8(r, field->line, "the header", text, field->bytes, err);
    r->columns.items[i].name = csv_copy_text(text, field->bytes);
    if (!r->columns.items[i].name) code = csv_no_memory(err);
  }
  return code;
}

/* The header's names are the schema's, in its order. */
static crossdock_code compare_names(reader* r, crossdock_error* err) {
  csv_shown shown[2];
  if (r->scanner.n_fields != r->columns.n)
    return csv_fail(err, CROSSDOCK_BAD_DATA, "%s: expected %zu columns, as the schema has them, got %zu in the header",
                    file_name(r, &shown[0]), r->columns.n, r->scanner.n_fields);
  for (size_t i = 0; i < r->columns.n; i++) {
    csv_field* field = &r->scanner.fields[i];
    const char *expected = r->columns.items[i].name, *got = csv_field_text(&r->scanner, field);
    if (strlen(expected) == field->bytes && memcmp(expected, got, field->bytes) == 0) continue;
    return csv_fail(err, CROSSDOCK_BAD_DATA, "column %zu: expected %s, as the schema has it, got %s in the header", i + 1,
                    csv_show(&shown[0], expected, strlen(expected)), csv_show(&shown[1], got, field->bytes));
  }
  return CROSSDOCK_OK;
}

static crossdock_code refuse_empty(const reader* r, crossdock_error* err) {
  csv_shown file;
  return csv_fail(err, CROSSDOCK_BAD_DATA, "%s is empty: expected %s", file_name(r, &file),
                  r->options.header ? "a header with the columns' names" : "a first row, which tells how many columns there are");
}

static crossdock_code read_header(reader* r, const crossdock_call* call, crossdock_error* err) {
  bool found;
  crossdock_code code = csv_scan(&r->scanner, &r->place, &found, call, err);
  if (code == CROSSDOCK_OK && !found) code = refuse_empty(r, err);
  if (code == CROSSDOCK_OK) code = r->columns.n > 0 ? compare_names(r, err) : take_names(r, err);
  if (code == CROSSDOCK_OK) use_up(r);
  return code;
}

/* As many columns as the first record has fields, called column_1 and so on. Blank lines are records of one field if all
 * others are, too. */
static crossdock_code count_columns(reader* r, const crossdock_call* call, crossdock_error* err) {
  csv_place place = r->place;
  bool found;
  char name[32];
  crossdock_code code = csv_scan(&r->scanner, &place, &found, call, err);
  if (code == CROSSDOCK_OK && csv_input_bytes(&r->input) == 0) code = refuse_empty(r, err);
  if (code == CROSSDOCK_OK) code = csv_columns_make(&r->columns, found ? r->scanner.n_fields : 1, err);
  for (size_t i = 0; code == CROSSDOCK_OK && i < r->columns.n; i++) {
    int bytes = snprintf(name, sizeof name, "column_%zu", i + 1);
    r->columns.items[i].name = csv_copy_text(name, (size_t)bytes);
    if (!r->columns.items[i].name) code = csv_no_memory(err);
  }
  return code;
}

static crossdock_code find_columns(reader* r, const crossdock_call* call, const struct ArrowSchema* schema,
                                   crossdock_error* err) {
  crossdock_code code = skip_byte_order_mark(r, call, err);
  if (code == CROSSDOCK_OK && schema) code = csv_columns_of_schema(&r->columns, schema, err);
  if (code == CROSSDOCK_OK && schema && r->options.types.bytes > 0)
    code = csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "a schema and the option types were given; expected one of them");
  if (code != CROSSDOCK_OK) return code;
  if (r->options.header) {
    code = read_header(r, call, err);
  } else if (!schema) {
    code = count_columns(r, call, err);
  }
  r->scanner.expected = r->columns.n;
  if (code == CROSSDOCK_OK) code = csv_columns_set_types(&r->columns, r->options.types, err);
  if (code != CROSSDOCK_OK) return code;
  return csv_infer(&r->columns, &r->scanner, r->place, &r->options, csv_within_budget(r->instance, call, INFER_BYTES), call,
                   err);
}

/* ------------------------------------------------------------------------------------------------------ values --- */

static crossdock_code explain(const reader* r, const csv_column* column, const csv_field* field, const char* text,
                              csv_parsed why, crossdock_error* err) {
  csv_shown file, shown_column, value;
  csv_type_text type;
  file_name(r, &file);
  csv_show(&shown_column, column->name, strlen(column->name));
  csv_show(&value, text, field->bytes);
  if (column->inferred)
    return csv_fail(err, CROSSDOCK_BAD_DATA,
                    "%s, line %llu, column %s: expected %s, as the first rows have it, got %s%s; give its type with the "
                    "option types=NAME:utf8, or look at more rows with infer_rows",
                    file.text, (unsigned long long)field->line, shown_column.text, csv_type_show(column, &type), value.text,
                    why == CSV_TOO_BIG ? ", which it cannot hold" : "");
  return csv_fail(err, CROSSDOCK_BAD_DATA, "%s, line %llu, column %s: expected %s, got %s%s", file.text,
                  (unsigned long long)field->line, shown_column.text, csv_type_show(column, &type), value.text,
                  why == CSV_TOO_BIG ? ", which it cannot hold" : "");
}

static crossdock_code add_text(reader* r, size_t i, size_t row, csv_field* field, const char* text, crossdock_error* err) {
  if (csv_utf8_prefix(text, field->bytes) < field->bytes) {
    csv_shown column;
    const char* name = r->columns.items[i].name;
    char where[sizeof column.text + 8];
    snprintf(where, sizeof where, "column %s", csv_show(&column, name, strlen(name)));
    return bad_utf8(r, field->line, where, text, field->bytes, err);
  }
  return csv_builder_add_text(r->instance->memory, &r->builders[i], row, text, field->bytes, err);
}

static crossdock_code add_null(reader* r, size_t i, size_t row, const csv_field* field, crossdock_error* err) {
  const csv_column* column = &r->columns.items[i];
  if (!(column->flags & ARROW_FLAG_NULLABLE)) {
    csv_shown file, shown;
    return csv_fail(err, CROSSDOCK_BAD_DATA, "%s, line %llu, column %s: got a null, and the schema allows none",
                    file_name(r, &file), (unsigned long long)field->line,
                    csv_show(&shown, column->name, strlen(column->name)));
  }
  csv_builder_add_null(&r->builders[i], row);
  return CROSSDOCK_OK;
}

static crossdock_code add_field(reader* r, size_t i, size_t row, crossdock_error* err) {
  const csv_column* column = &r->columns.items[i];
  csv_field* field = &r->scanner.fields[i];
  const char* text = csv_field_text(&r->scanner, field);
  uint64_t value;
  csv_parsed parsed;
  if (!field->quoted && field->bytes == r->options.null_bytes && memcmp(text, r->options.null, field->bytes) == 0)
    return add_null(r, i, row, field, err);
  if (column->type->storage == CSV_STRINGS) return add_text(r, i, row, field, text, err);
  parsed = column->type->parse ? column->type->parse(column->type, text, field->bytes, &value) : CSV_NOT_ONE;
  if (parsed != CSV_PARSED) return explain(r, column, field, text, parsed, err);
  csv_builder_add(&r->builders[i], row, &value);
  return CROSSDOCK_OK;
}

/* ----------------------------------------------------------------------------------------------------- batches --- */

static crossdock_code make_room(reader* r, size_t row, crossdock_error* err) {
  size_t room = r->room ? r->room * 2 : r->last_rows > FIRST_ROWS ? r->last_rows : FIRST_ROWS;
  if (row < r->room) return CROSSDOCK_OK;
  if (room > r->options.batch_rows) room = r->options.batch_rows;
  for (size_t i = 0; i < r->columns.n; i++) {
    crossdock_code code = csv_builder_reserve(r->instance->memory, &r->builders[i], row, room, err);
    if (code != CROSSDOCK_OK) return code;
  }
  r->room = room;
  return CROSSDOCK_OK;
}

static crossdock_code add_row(reader* r, size_t row, crossdock_error* err) {
  crossdock_code code = make_room(r, row, err);
  for (size_t i = 0; code == CROSSDOCK_OK && i < r->columns.n; i++) code = add_field(r, i, row, err);
  return code;
}

static crossdock_code add_rows(reader* r, const crossdock_call* call, size_t* rows, crossdock_error* err) {
  const size_t most_bytes = csv_within_budget(r->instance, call, BATCH_BYTES);
  size_t used = 0;
  for (*rows = 0; *rows < r->options.batch_rows && used < most_bytes; ++*rows) {
    bool found;
    crossdock_code code = *rows % ROWS_A_LOOK == 0 ? csv_check_cancelled(call, err) : CROSSDOCK_OK;
    if (code == CROSSDOCK_OK) code = csv_scan(&r->scanner, &r->place, &found, call, err);
    if (code != CROSSDOCK_OK) return code;
    if (!found) return CROSSDOCK_OK;
    code = add_row(r, *rows, err);
    if (code != CROSSDOCK_OK) return code;
    used += r->place.at;
    use_up(r);
  }
  return CROSSDOCK_OK;
}

static crossdock_code next_batch(reader* r, const crossdock_call* call, crossdock_batch* out, crossdock_error* err) {
  size_t rows;
  crossdock_code code = add_rows(r, call, &rows, err);
  if (code != CROSSDOCK_OK || rows == 0) return code;
  r->room = 0;
  r->last_rows = rows;
  return csv_batch_make(r->instance->host, r->instance->memory, r->builders, r->columns.n, rows, out, err);
}

/* -------------------------------------------------------------------------------------------------- the stream --- */

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  const reader* r = stream->private_data;
  return csv_columns_export(&r->columns, out, err);
}

static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  reader* r = stream->private_data;
  locale_t before;
  crossdock_code code;
  /* Rows of the batch that failed are gone: there is no going on without them. */
  if (r->failed) return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "the stream has failed before");
  before = csv_locale_enter(r->instance);
  code = next_batch(r, call, out, err);
  csv_locale_leave(before);
  r->failed = code != CROSSDOCK_OK;
  return code;
}

static void release_stream(crossdock_batch_stream* stream) {
  free_reader(stream->private_data);
  stream->release = NULL;
}

static crossdock_code open_reader(reader* r, const crossdock_call* call, const struct ArrowSchema* schema,
                                  crossdock_error* err) {
  crossdock_code code;
  r->place.line = 1;
  csv_scanner_begin(&r->scanner, &r->input, r->options.dialect, r->options.max_field_bytes);
  code = find_columns(r, call, schema, err);
  if (code != CROSSDOCK_OK) return code;
  r->builders = csv_zeroed(r->columns.n, sizeof *r->builders);
  if (!r->builders) return csv_no_memory(err);
  for (size_t i = 0; i < r->columns.n; i++) r->builders[i].type = r->columns.items[i].type;
  return CROSSDOCK_OK;
}

/* What is in `input` is ours from here on, whatever comes of it. */
static crossdock_code take_input(const crossdock_input* input, reader* r, crossdock_error* err) {
  crossdock_source* source = input->source && input->source->release ? input->source : NULL;
  if (input->capsules) {
    if (input->capsules->release) input->capsules->release(input->capsules);
    if (source) source->release(source);
    return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "CSV is read from a source, and capsules were given");
  }
  if (!source) return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "CSV is read from a source, and none was given");
  if (r) {
    csv_input_take(&r->input, r->instance->memory, source);
    return CROSSDOCK_OK;
  }
  source->release(source);
  return csv_no_memory(err);
}

crossdock_code csv_read_open(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                             const crossdock_input* input, const struct ArrowSchema* schema, const crossdock_option* options,
                             size_t n_options, crossdock_batch_stream* out, crossdock_error* err) {
  crossdock_batch_stream stream = {.get_schema = get_schema, .get_next = get_next, .release = release_stream};
  reader* r = csv_zeroed(1, sizeof *r);
  locale_t before;
  crossdock_code code;
  if (r) r->instance = instance;
  code = take_input(input, r, err);
  if (code == CROSSDOCK_OK) code = csv_format_check(format, err);
  if (code == CROSSDOCK_OK) code = csv_options_read(&r->options, true, options, n_options, err);
  if (code == CROSSDOCK_OK) {
    before = csv_locale_enter(instance);
    code = open_reader(r, call, schema, err);
    csv_locale_leave(before);
  }
  if (code != CROSSDOCK_OK) {
    if (r) free_reader(r);
    return code;
  }
  stream.private_data = r;
  CSV_GIVE(out, stream);
  return CROSSDOCK_OK;
}
