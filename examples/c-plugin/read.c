/* The importer: parses text to records (RFC 4180), fields to columns, and columns to batches. */
#include <stdio.h>

#include "csv.h"

enum { READ_BYTES = 64 << 10, MAX_BATCH_BYTES = 8 << 20 /* of text */, MAX_BATCH_ROWS = 65536 };

typedef struct reader {
  task task;
  uint64_t memory_limit;
  locale_t c_locale;
  csv_options options;
  crossdock_source source;
  uint64_t offset; /* the offset of the next read in the source */
  buffer input;
  size_t at; /* the next byte in `input` */
  uint64_t line, next_line; /* the line where the record starts, and the line of the next byte */
  buffer field; /* the current field without quotes, NUL-terminated */
  size_t bytes; /* the length of the field without the NUL */
  bool quoted;
  new_column* columns;
  const csv_type** types; /* the types of the columns */
  size_t n_columns;
  bool has_schema, in_header;
  int64_t rows; /* the number of rows in the current batch */
} reader;

#define FAIL(r, ...) fail(&(r)->task, __VA_ARGS__)
#define BAD_RECORD(r, what, ...)                                                                                     \
  FAIL(r, CROSSDOCK_BAD_DATA, "%.*s, line %llu: " what, ABBREVIATED((r)->source.name.data, (r)->source.name.bytes), \
       (unsigned long long)(r)->line, __VA_ARGS__)

/* Returns the minimum of `bytes`, the byte budget of the call, and a part of the session's memory
 * limit, but at least 4096 bytes. */
static size_t within_budget(const reader* r, uint64_t bytes) {
  const crossdock_call* call = r->task.call;
  const uint64_t limit = r->memory_limit / 32;
  if (CROSSDOCK_HAS(call, byte_budget) && call->byte_budget && call->byte_budget < bytes) bytes = call->byte_budget;
  if (limit && limit < bytes) bytes = limit;
  return bytes < 4096 ? 4096 : (size_t)bytes;
}

/* -------------------------------------------------------------------------- text to records --- */

enum { END = -1, FAILED = -2 }; /* results of functions that return a byte */

/* Reads the next part of the text. Returns its first byte, END or FAILED. */
static int read_more(reader* r) {
  const int64_t total = r->source.bytes; /* negative: unknown */
  size_t n_read = 0;
  r->at = r->input.used = 0;
  if (!check_cancelled(&r->task) || !reserve(&r->task, &r->input, within_budget(r, READ_BYTES))) return FAILED;
  r->task.code = r->source.read_at(&r->source, r->offset, r->input.data, r->input.capacity, &n_read, r->task.err);
  if (r->task.code != CROSSDOCK_OK) return FAILED;
  if (n_read > r->input.capacity || (n_read == 0 && total >= 0 && r->offset < (uint64_t)total))
    return FAIL(r, CROSSDOCK_IO, "the source returned %zu bytes at offset %llu, expected 1 to %zu of %lld in total", n_read,
                (unsigned long long)r->offset, r->input.capacity, (long long)total), FAILED;
  r->input.used = n_read;
  r->offset += n_read;
  report_progress(&r->task, r->offset, total < 0 ? 0 : (uint64_t)total);
  return n_read ? r->input.data[r->at++] : END;
}

static inline int next_byte(reader* r) { return r->at < r->input.used ? r->input.data[r->at++] : read_more(r); }

static inline bool append_byte(reader* r, int byte) {
  if (r->bytes + 1 >= r->field.capacity && !reserve(&r->task, &r->field, r->bytes + 2)) return false;
  r->field.data[r->bytes++] = (unsigned char)byte;
  r->field.used = r->bytes; /* `reserve` copies only used bytes */
  return true;
}

static int bad_field(reader* r, size_t n, const char* what) {
  BAD_RECORD(r, "field %zu has %s", n + 1, what);
  return FAILED;
}

/* Reads field `n`. Returns the byte after it: the delimiter, LF, END or FAILED. */
static int read_field(reader* r, size_t n) {
  int byte = next_byte(r);
  r->bytes = 0;
  r->quoted = byte == '"';
  if (r->quoted) {
    for (;; r->next_line += byte == '\n') {
      byte = next_byte(r);
      if (byte == '"' && (byte = next_byte(r)) != '"') break; /* two quotes stand for one quote */
      if (byte == END) return bad_field(r, n, "a quote that is never closed");
      if (byte == FAILED || !append_byte(r, byte)) return FAILED;
    }
  } else {
    for (; byte > 0 && byte != r->options.delimiter && byte != '"' && byte != '\r' && byte != '\n'; byte = next_byte(r))
      if (!append_byte(r, byte)) return FAILED;
  }
  if (byte == '\r' && (byte = next_byte(r)) != '\n' && byte != FAILED)
    return bad_field(r, n, "a carriage return without a line feed");
  if (byte >= 0 && byte != '\n' && byte != r->options.delimiter)
    return bad_field(r, n, r->quoted ? "text behind a closing quote" : byte ? "a quote in a field without quotes" : "a NUL byte");
  if (byte == FAILED || !append_byte(r, '\0')) return FAILED;
  r->bytes--;
  r->next_line += byte == '\n';
  return byte;
}

static bool handle_field(reader* r, size_t n);

/* Reads one record. A blank line is a record with one empty field. Sets `has_record` to false at
 * the end of the text. */
static bool read_record(reader* r, bool* has_record) {
  size_t n = 0;
  r->line = r->next_line;
  for (int byte = r->options.delimiter; byte == r->options.delimiter; n++) {
    byte = read_field(r, n);
    *has_record = byte != END || n > 0 || r->bytes > 0 || r->quoted;
    if (byte == FAILED || !*has_record) return byte != FAILED;
    if (!handle_field(r, n)) return false;
  }
  if (n != r->n_columns) return BAD_RECORD(r, "expected %zu fields, got %zu", r->n_columns, n);
  return true;
}

/* ------------------------------------------------------------------------ fields to columns --- */

/* Takes ownership of `name`, also on failure. */
static bool add_column(reader* r, const csv_type* type, int64_t flags, char* name) {
  new_column* columns = realloc(r->columns, (r->n_columns + 1) * sizeof *columns);
  const csv_type** types = columns ? realloc(r->types, (r->n_columns + 1) * sizeof *types) : NULL;
  if (columns) r->columns = columns;
  if (types) r->types = types;
  if (!name || !types) {
    free(name);
    return fail_no_memory(&r->task);
  }
  r->types[r->n_columns] = type;
  r->columns[r->n_columns++] = (new_column){.name = name, .flags = flags};
  return true;
}

/* Handles a name in the header. Adds a column with this name, or compares the name with the
 * schema. */
static bool handle_name(reader* r, size_t n) {
  const char* text = (const char*)r->field.data;
  const size_t bom_bytes = n == 0 && !r->quoted && r->bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
  if (!is_text(text, r->bytes)) return BAD_RECORD(r, "the name '%.*s' is not UTF-8", ABBREVIATED(text, r->bytes));
  if (!r->has_schema)
    return add_column(r, &csv_types[0], ARROW_FLAG_NULLABLE, copy_text(&r->task, text + bom_bytes, r->bytes - bom_bytes));
  return n >= r->n_columns || strcmp(r->columns[n].name, text + bom_bytes) == 0 ||
         BAD_RECORD(r, "expected the column '%.40s' of the schema, got '%.*s'", r->columns[n].name,
                    ABBREVIATED(text, r->bytes));
}

static bool append_bit(reader* r, buffer* bits, bool bit) {
  if (r->rows % 8 == 0 && !append(&r->task, bits, "", 1)) return false;
  bits->data[r->rows / 8] |= (unsigned char)(bit << r->rows % 8);
  return true;
}

static bool append_value(reader* r, new_column* c, const csv_type* type) {
  static const int32_t FIRST_OFFSET = 0;
  const bool null = r->bytes == 0 && !r->quoted, is_utf8 = !type->parse;
  const char* text = (const char*)r->field.data;
  buffer *values = &c->buffers[1], *texts = &c->buffers[2];
  int64_t value = 0;
  if (null && !(c->flags & ARROW_FLAG_NULLABLE))
    return BAD_RECORD(r, "column '%.40s' has a null, but the schema allows none", c->name);
  if (!null && !(is_utf8 ? is_text(text, r->bytes) : type->parse(type->width, text, r->bytes, &value)))
    return BAD_RECORD(r, "column '%.40s': expected %s, got '%.*s'", c->name,
                      is_utf8 ? "utf8 without NUL bytes" : type->name, ABBREVIATED(text, r->bytes));
  if (!append_bit(r, &c->buffers[0], !null)) return false;
  c->null_count += null;
  if (type->width == 0) return append_bit(r, values, value);
  if (is_utf8) {
    if (r->bytes > INT32_MAX - texts->used) return BAD_RECORD(r, "column '%.40s' has a text of more than 2 GiB", c->name);
    if (r->rows == 0 && !append(&r->task, values, &FIRST_OFFSET, sizeof FIRST_OFFSET)) return false;
    if (!append(&r->task, texts, text, r->bytes)) return false;
    value = (int64_t)texts->used;
  }
  return append(&r->task, values, &value, type->width);
}

static bool handle_field(reader* r, size_t n) {
  if (r->in_header) return handle_name(r, n);
  return n >= r->n_columns || append_value(r, &r->columns[n], r->types[n]); /* read_record reports too many fields */
}

static bool use_schema(reader* r, const struct ArrowSchema* schema) {
  for (int64_t i = 0; i < schema->n_children; i++) {
    const struct ArrowSchema* child = schema->children[i];
    const char* name = child->name ? child->name : "";
    if (!csv_find_type(child))
      return FAIL(r, CROSSDOCK_UNSUPPORTED, "column '%.40s': csv has no type for Arrow's format '%.20s'%s, only for %s", name,
                  child->format, child->dictionary ? " with a dictionary" : "", CSV_TYPE_NAMES);
    if (!add_column(r, csv_find_type(child), child->flags, copy_text(&r->task, name, strlen(name)))) return false;
  }
  r->has_schema = true;
  return r->n_columns > 0 || FAIL(r, CROSSDOCK_UNSUPPORTED, "csv has no table without columns");
}

/* Applies the option `types`. */
static bool use_types(reader* r) {
  crossdock_str rest = r->options.types;
  for (size_t i = 0; i < r->n_columns; i++) {
    const char* comma = rest.bytes ? memchr(rest.data, ',', rest.bytes) : NULL;
    const crossdock_str name = {rest.data, comma ? (size_t)(comma - rest.data) : rest.bytes};
    size_t t = 0;
    while (t < CSV_N_TYPES && !equal(name, csv_types[t].name)) t++;
    if (t == CSV_N_TYPES || (comma == NULL) != (i + 1 == r->n_columns))
      return FAIL(r, CROSSDOCK_INVALID_ARGUMENT, "option types: expected %zu of %s, separated by commas; got '%.*s'",
                  r->n_columns, CSV_TYPE_NAMES, ABBREVIATED(r->options.types.data, r->options.types.bytes));
    r->types[i] = &csv_types[t];
    rest = (crossdock_str){comma ? comma + 1 : NULL, comma ? rest.bytes - name.bytes - 1 : 0};
  }
  return true;
}

/* Determines the columns from the schema or the option `types`, and the header. */
static bool start(reader* r, const struct ArrowSchema* schema) {
  bool has_record;
  r->next_line = 1;
  if (schema && r->options.types.bytes)
    return FAIL(r, CROSSDOCK_INVALID_ARGUMENT, "got a schema and the option types, expected one of them");
  if (schema && !use_schema(r, schema)) return false;
  r->in_header = true;
  if (!read_record(r, &has_record)) return false;
  if (!has_record) return BAD_RECORD(r, "expected a header, got %s", "no text");
  r->in_header = false;
  if (r->options.types.bytes && !use_types(r)) return false;
  for (size_t i = 0; i < r->n_columns; i++) {
    r->columns[i].format = r->types[i]->format;
    r->columns[i].n_buffers = r->types[i]->parse ? 2 : 3;
  }
  return true;
}

/* ----------------------------------------------------------------------- columns to batches --- */

static bool next_batch(reader* r, crossdock_batch* out) {
  const size_t max_bytes = within_budget(r, MAX_BATCH_BYTES);
  const uint64_t first = r->offset - (r->input.used - r->at);
  bool has_record = true;
  if (r->task.code != CROSSDOCK_OK) return FAIL(r, r->task.code, "an earlier batch could not be read");
  if (!check_cancelled(&r->task)) return false;
  while (has_record && r->rows < MAX_BATCH_ROWS && r->offset - (r->input.used - r->at) - first < max_bytes)
    if (!read_record(r, &has_record)) return false;
    else r->rows += has_record;
  if (r->rows > 0 && !make_batch(&r->task, r->columns, r->n_columns, r->rows, out)) return false;
  r->rows = 0;
  return true;
}

/* ------------------------------------------------------------------------------- the stream --- */

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  const reader* r = stream->private_data;
  task t = {.err = err};
  make_schema(&t, r->columns, r->n_columns, out);
  return t.code;
}

static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  reader* r = stream->private_data;
  const locale_t before = uselocale(r->c_locale);
  r->task.call = call;
  r->task.err = err;
  next_batch(r, out);
  uselocale(before);
  return r->task.code;
}

static void free_reader(reader* r) {
  free_columns(r->task.memory, r->columns, r->n_columns);
  free(r->types);
  free_buffer(r->task.memory, &r->input, 0);
  free_buffer(r->task.memory, &r->field, 0);
  if (r->source.release) r->source.release(&r->source);
  free(r);
}

static void release_stream(crossdock_batch_stream* stream) {
  free_reader(stream->private_data);
  stream->release = NULL;
}

/* Takes ownership of the objects of `input`, on failure too. */
crossdock_code csv_open(crossdock_instance* instance, const crossdock_call* call,
                        const crossdock_read_request* request, crossdock_batch_stream* out, crossdock_error* err) {
  const crossdock_input* input = request->input;
  crossdock_batch_stream stream = {.get_schema = get_schema, .get_next = get_next, .release = release_stream};
  task t = {instance->host, instance->memory, call, err, CROSSDOCK_OK};
  reader* r = calloc(1, sizeof *r);
  locale_t before;
  if (input->capsules && input->capsules->release) input->capsules->release(input->capsules);
  if (!r) {
    if (input->source && input->source->release) input->source->release(input->source);
    return fail_no_memory(&t), t.code;
  }
  r->task = t;
  r->memory_limit = instance->memory_limit;
  r->c_locale = instance->c_locale;
  before = uselocale(instance->c_locale);
  if (input->source && input->source->release) CROSSDOCK_MOVE(&r->source, input->source);
  else FAIL(r, CROSSDOCK_INVALID_ARGUMENT, "csv is read from a source, which is missing");
  if (check_call(&r->task) && request->reserved != 0) FAIL(r, CROSSDOCK_INVALID_ARGUMENT, "a reserved field of the read request is not 0");
  if (r->task.code == CROSSDOCK_OK && r->source.release && csv_parse_options(&r->task, &r->options, true, request->format, request->options, request->n_options)) start(r, request->schema);
  uselocale(before);
  t.code = r->task.code;
  stream.private_data = r;
  if (t.code == CROSSDOCK_OK) SET(out, stream);
  else free_reader(r);
  return t.code;
}
