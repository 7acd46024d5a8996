/* The importer: records out of text (RFC 4180), and batches of them. */
#include <stdio.h>

#include "csv.h"

enum {
  READ_BYTES = 64 << 10, /* of text that are read at a time */
  BATCH_BYTES = 8 << 20, /* of text that become one batch at most, its last row aside */
  BATCH_ROWS = 65536,
  MOST_COLUMNS = 4096
};

typedef struct field {
  size_t start, bytes;  /* `start` counts from the first byte that is not used up */
  bool quoted, doubled; /* doubled: it has quotes, each of them twice */
} field;

/* A column, and its rows of the batch that is being made. */
typedef struct column {
  const csv_type* type;
  char* name;
  int64_t flags;
  csv_block buffers[3]; /* as Arrow has them: validity; bits, values or offsets; text */
  size_t text_bytes, nulls;
} column;

typedef struct reader {
  const crossdock_instance* instance;
  csv_options options;
  bool ends_field[256]; /* one without quotes: the delimiter, a line end, a quote, NUL */
  crossdock_source source;
  uint64_t offset; /* in the source, of what is read next */
  csv_block window;
  size_t start, end; /* in the window, of what is not used up */
  bool at_end;
  uint64_t line;       /* of the record at `start` */
  size_t record_bytes; /* of that record, when it was scanned; it goes on to line `next_line` */
  uint64_t next_line;
  field fields[MOST_COLUMNS];
  size_t n_fields;
  column* columns;
  size_t n_columns; /* 0: not known yet */
} reader;

static void free_reader(reader* r) {
  for (size_t i = 0; i < r->n_columns; i++) {
    for (int b = 0; b < 3; b++) csv_free(r->instance->memory, &r->columns[i].buffers[b], 0);
    free(r->columns[i].name);
  }
  csv_free(r->instance->memory, &r->window, 0);
  if (r->source.release) r->source.release(&r->source);
  free(r->columns);
  free(r);
}

/* The least of `bytes`, what the call wishes to have in flight, and a part of the session's limit. */
static size_t within_budget(const reader* r, const crossdock_call* call, uint64_t bytes) {
  const uint64_t limit = r->instance->memory_limit / 32;
  if (CROSSDOCK_HAS(call, byte_budget) && call->byte_budget && call->byte_budget < bytes) bytes = call->byte_budget;
  if (limit && limit < bytes) bytes = limit;
  return bytes < 4096 ? 4096 : (size_t)bytes;
}

/* ------------------------------------------------------------------------------------------------------ records --- */

#define WRONG(r, err, what, ...)                                                                          \
  csv_fail(err, CROSSDOCK_BAD_DATA, "%.*s, line %llu: " what,                                             \
           CSV_SHOWN((r)->source.name.data, (r)->source.name.bytes), (unsigned long long)(r)->line, __VA_ARGS__)

/* Reads more text behind what is there. */
static crossdock_code read_more(reader* r, const crossdock_call* call, crossdock_error* err) {
  const size_t kept = r->end - r->start;
  size_t room, got = 0;
  crossdock_code code = csv_check_cancelled(call, err);
  if (code != CROSSDOCK_OK) return code;
  if (kept && r->start) memmove(r->window.at, r->window.at + r->start, kept);
  r->start = 0;
  r->end = kept;
  if (kept >= r->window.bytes / 2)
    code = csv_reserve(r->instance->memory, &r->window, kept, kept + within_budget(r, call, READ_BYTES), err);
  room = r->window.bytes - kept;
  if (code == CROSSDOCK_OK) code = r->source.read_at(&r->source, r->offset, r->window.at + kept, room, &got, err);
  if (code != CROSSDOCK_OK) return code;
  if (got > room) return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "the source read %zu bytes into %zu", got, room);
  r->offset += got;
  r->end += got;
  r->at_end = got == 0;
  if (r->at_end && r->source.bytes >= 0 && r->offset < (uint64_t)r->source.bytes)
    return csv_fail(err, CROSSDOCK_IO, "the source ends after %llu of %lld bytes", (unsigned long long)r->offset,
                    (long long)r->source.bytes);
  if (CROSSDOCK_HAS(call, progress_data) && call->progress)
    call->progress(call->progress_data, r->offset, r->source.bytes < 0 ? 0 : (uint64_t)r->source.bytes);
  return CROSSDOCK_OK;
}

typedef enum found { RECORD, END, MORE /* text is needed */, BAD } found;

/* Looks for a record at the start of the text that is there. `why` gets what is wrong with it. */
static found scan(reader* r, const char** why) {
  const char* text = (const char*)r->window.at + r->start;
  const size_t bytes = r->end - r->start;
  size_t at = 0;
  r->n_fields = 0;
  r->next_line = r->line + 1;
  if (bytes == 0) return r->at_end ? END : MORE;
  for (;; at++) { /* from field to field: `at` is on a delimiter then */
    field f = {.start = at, .quoted = at < bytes && text[at] == '"'};
    if (f.quoted) {
      for (f.start = ++at;; at++) {
        if (at < bytes && text[at] != '"') {
          r->next_line += text[at] == '\n';
          continue;
        }
        if (at + 1 >= bytes && !r->at_end) return MORE;
        if (at == bytes) return *why = "a quote that is never closed", r->n_fields++, BAD;
        if (at + 1 == bytes || text[at + 1] != '"') break;
        f.doubled = true;
        at++;
      }
      f.bytes = at++ - f.start;
    } else {
      while (at < bytes && !r->ends_field[(unsigned char)text[at]]) at++;
      f.bytes = at - f.start;
    }
    if (at == bytes && !r->at_end) return MORE;
    if (r->n_fields == MOST_COLUMNS) return *why = "others behind it: 4096 are the most", BAD;
    r->fields[r->n_fields++] = f;
    if (at == bytes || text[at] == '\n') break;
    if (text[at] == r->options.delimiter) continue;
    if (text[at] == '\0') return *why = "a NUL byte", BAD;
    if (text[at] != '\r') return *why = f.quoted ? "text behind a closing quote" : "a quote in a field without quotes", BAD;
    if (++at == bytes && !r->at_end) return MORE;
    if (at == bytes || text[at] != '\n') return *why = "a carriage return without a line feed", BAD;
    break;
  }
  r->record_bytes = at < bytes ? at + 1 : at;
  return RECORD;
}

static void use_up(reader* r) {
  r->start += r->record_bytes;
  r->line = r->next_line;
}

/* The next record, which `use_up` leaves behind. Blank lines are passed over; in a table of one column they are nulls. */
static crossdock_code next_record(reader* r, const crossdock_call* call, bool* out_found, crossdock_error* err) {
  for (;;) {
    const char* why = NULL;
    const found what = scan(r, &why);
    crossdock_code code = what == MORE ? read_more(r, call, err) : CROSSDOCK_OK;
    if (code != CROSSDOCK_OK) return code;
    if (what == MORE) continue;
    if (what == BAD) return WRONG(r, err, "field %zu has %s", r->n_fields, why);
    *out_found = what == RECORD;
    if (what == RECORD && r->n_fields == 1 && !r->fields->bytes && !r->fields->quoted && r->n_columns != 1) {
      /* It may be a null, and it is not known yet whether there is one column. */
      if (!r->n_columns && !r->options.header) return WRONG(r, err, "expected a %s, got a blank line", "first row");
      use_up(r);
      continue;
    }
    if (what == RECORD && r->n_columns && r->n_fields != r->n_columns)
      return WRONG(r, err, "expected %zu fields, got %zu", r->n_columns, r->n_fields);
    return CROSSDOCK_OK;
  }
}

/* A field's text; doubled quotes become one. */
static const char* text_of(reader* r, field* f) {
  char* text = (char*)r->window.at + r->start + f->start;
  size_t to = 0;
  if (!f->doubled) return text;
  for (size_t from = 0; from < f->bytes; from++) {
    text[to++] = text[from];
    from += text[from] == '"';
  }
  f->bytes = to;
  f->doubled = false;
  return text;
}

/* ------------------------------------------------------------------------------------------------------ columns --- */

static crossdock_code make_columns(reader* r, size_t n, crossdock_error* err) {
  r->columns = calloc(n, sizeof *r->columns);
  if (!r->columns) return csv_no_memory(err);
  r->n_columns = n;
  for (size_t i = 0; i < n; i++) r->columns[i].flags = ARROW_FLAG_NULLABLE;
  for (size_t i = 0; i < n; i++) r->columns[i].type = &csv_types[0];
  return CROSSDOCK_OK;
}

static crossdock_code take_schema(reader* r, const struct ArrowSchema* schema, crossdock_error* err) {
  crossdock_code code;
  if (schema->n_children < 1 || schema->n_children > MOST_COLUMNS)
    return csv_fail(err, CROSSDOCK_UNSUPPORTED, "the schema: expected 1 to %d columns", MOST_COLUMNS);
  code = make_columns(r, (size_t)schema->n_children, err);
  for (size_t i = 0; code == CROSSDOCK_OK && i < r->n_columns; i++) {
    const struct ArrowSchema* child = schema->children[i];
    const char* name = child->name ? child->name : "";
    if (!csv_type_of(child))
      return csv_fail(err, CROSSDOCK_UNSUPPORTED,
                      "column '%.40s': csv has no type for Arrow's format '%.20s'%s, but for " CSV_TYPE_NAMES,
                      name, child->format, child->dictionary ? " with a dictionary" : "");
    r->columns[i].type = csv_type_of(child);
    r->columns[i].flags = child->flags;
    r->columns[i].name = csv_copy_text(name, strlen(name));
    if (!r->columns[i].name) code = csv_no_memory(err);
  }
  return code;
}

/* The types that the option has, one for each column. */
static crossdock_code take_types(reader* r, crossdock_error* err) {
  crossdock_str rest = r->options.types;
  for (size_t i = 0; i < r->n_columns; i++) {
    const char* comma = rest.bytes ? memchr(rest.data, ',', rest.bytes) : NULL;
    const crossdock_str name = {rest.data, comma ? (size_t)(comma - rest.data) : rest.bytes};
    size_t t = 0;
    while (t < CSV_N_TYPES && !csv_is(name, csv_types[t].name)) t++;
    if (t == CSV_N_TYPES || (comma == NULL) != (i + 1 == r->n_columns))
      return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT,
                      "option types: expected %zu of " CSV_TYPE_NAMES ", with commas between them; got '%.*s'",
                      r->n_columns, CSV_SHOWN(r->options.types.data, r->options.types.bytes));
    r->columns[i].type = &csv_types[t];
    rest = (crossdock_str){comma ? comma + 1 : NULL, comma ? rest.bytes - name.bytes - 1 : 0};
  }
  return CROSSDOCK_OK;
}

/* The header's names, which are the schema's where there is one; without a header column_1 and so on. */
static crossdock_code take_names(reader* r, bool has_schema, crossdock_error* err) {
  for (size_t i = 0; i < r->n_columns; i++) {
    char numbered[32];
    const char* text = r->options.header ? text_of(r, &r->fields[i]) : numbered;
    const size_t bytes = r->options.header ? r->fields[i].bytes : (size_t)sprintf(numbered, "column_%zu", i + 1);
    if (csv_text_prefix(text, bytes) < bytes) return WRONG(r, err, "the name '%.*s' is not UTF-8", CSV_SHOWN(text, bytes));
    if (has_schema && r->options.header && !csv_is((crossdock_str){text, bytes}, r->columns[i].name))
      return WRONG(r, err, "expected the column '%.40s', as the schema has it, got '%.*s'", r->columns[i].name,
                   CSV_SHOWN(text, bytes));
    if (!has_schema) r->columns[i].name = csv_copy_text(text, bytes);
    if (!r->columns[i].name) return csv_no_memory(err);
  }
  if (r->options.header) use_up(r);
  return CROSSDOCK_OK;
}

static crossdock_code find_columns(reader* r, const crossdock_call* call, const struct ArrowSchema* schema,
                                   crossdock_error* err) {
  bool found = true;
  crossdock_code code = CROSSDOCK_OK;
  r->line = 1;
  r->ends_field['"'] = r->ends_field['\r'] = r->ends_field['\n'] = r->ends_field['\0'] = true;
  r->ends_field[(unsigned char)r->options.delimiter] = true;
  while (code == CROSSDOCK_OK && r->end < 3 && !r->at_end) code = read_more(r, call, err);
  if (code == CROSSDOCK_OK && r->end >= 3 && memcmp(r->window.at, "\xEF\xBB\xBF", 3) == 0) r->start = 3;
  if (code == CROSSDOCK_OK && schema) code = take_schema(r, schema, err);
  if (code == CROSSDOCK_OK && (r->options.header || !schema)) code = next_record(r, call, &found, err);
  if (code == CROSSDOCK_OK && !found)
    return WRONG(r, err, "expected a %s, and there is nothing", r->options.header ? "header" : "first row");
  if (code == CROSSDOCK_OK && !schema) code = make_columns(r, r->n_fields, err);
  if (code == CROSSDOCK_OK) code = take_names(r, schema != NULL, err);
  if (code == CROSSDOCK_OK && r->options.types.bytes) code = take_types(r, err);
  return code;
}

/* ------------------------------------------------------------------------------------------------------- values --- */

static void set_bit(csv_block* bits, size_t row, bool bit) {
  unsigned char* byte = &bits->at[row / 8];
  *byte = (unsigned char)((row % 8 ? *byte : 0) | bit << row % 8);
}

/* Makes room for row number `row` and its text. */
static crossdock_code make_room(const crossdock_memory* memory, column* c, size_t row, size_t text_bytes,
                                crossdock_error* err) {
  const size_t bits = (row + 7) / 8, width = c->type->width, is_text = !c->type->parse;
  const size_t used = row == 0 ? 0 : width ? (row + is_text) * width : bits;
  crossdock_code code = csv_reserve(memory, &c->buffers[0], bits, row / 8 + 1, err);
  if (code == CROSSDOCK_OK)
    code = csv_reserve(memory, &c->buffers[1], used, width ? (row + 2) * width : row / 8 + 1, err);
  if (code == CROSSDOCK_OK && is_text)
    code = csv_reserve(memory, &c->buffers[2], c->text_bytes, c->text_bytes + text_bytes, err);
  if (code == CROSSDOCK_OK && is_text && row == 0) memset(c->buffers[1].at, 0, width); /* the first offset */
  return code;
}

static crossdock_code add(reader* r, column* c, size_t row, field* f, crossdock_error* err) {
  const char* text = text_of(r, f);
  const bool null = f->bytes == 0 && !f->quoted;
  uint64_t value = 0;
  bool valid;
  crossdock_code code = make_room(r->instance->memory, c, row, f->bytes, err);
  if (code != CROSSDOCK_OK) return code;
  if (null && !(c->flags & ARROW_FLAG_NULLABLE))
    return WRONG(r, err, "column '%.40s' has a null, and the schema allows none", c->name);
  valid = c->type->parse ? c->type->parse(c->type, text, f->bytes, &value) : csv_text_prefix(text, f->bytes) == f->bytes;
  if (!null && !valid)
    return WRONG(r, err, "column '%.40s': expected %s, got '%.*s'", c->name,
                 c->type->parse ? c->type->name : "utf8 without NUL bytes", CSV_SHOWN(text, f->bytes));
  if (!c->type->parse) {
    if (f->bytes > INT32_MAX - c->text_bytes)
      return WRONG(r, err, "column '%.40s' has a text of more than 2 GiB", c->name);
    if (f->bytes) memcpy(c->buffers[2].at + c->text_bytes, text, f->bytes);
    value = c->text_bytes += f->bytes;
  }
  if (c->type->width) memcpy(c->buffers[1].at + (row + !c->type->parse) * c->type->width, &value, c->type->width);
  if (!c->type->width) set_bit(&c->buffers[1], row, value & 1);
  set_bit(&c->buffers[0], row, !null);
  c->nulls += null;
  return CROSSDOCK_OK;
}

/* ------------------------------------------------------------------------------------------------------ batches --- */

/* What the array of a column owns. It may be moved out of its batch and live longer, so it stands on its own. */
typedef struct owned {
  const crossdock_host* host;
  const crossdock_memory* memory;
  csv_block blocks[3];
  const void* buffers[3];
} owned;

static void release_column(struct ArrowArray* array) {
  owned* own = array->private_data;
  const crossdock_host* host = own->host;
  for (int i = 0; i < 3; i++) csv_free(own->memory, &own->blocks[i], CROSSDOCK_FREE_LENT);
  free(own);
  array->release = NULL;
  host->release(host); /* last: with it the memory may go */
}

static void release_batch(struct ArrowArray* array) {
  for (int64_t i = 0; i < array->n_children; i++)
    if (array->children[i]->release) array->children[i]->release(array->children[i]);
  free(array->private_data);
  array->release = NULL;
}

/* The columns' arrays, the list of them, and the one buffer of the batch, which has no validity, are one allocation. */
static crossdock_code make_batch(reader* r, size_t rows, crossdock_batch* out, crossdock_error* err) {
  const size_t n = r->n_columns;
  crossdock_batch made = {0};
  struct ArrowArray* arrays = calloc(1, n * (sizeof *arrays + sizeof arrays) + sizeof(void*));
  if (!arrays) return csv_no_memory(err);
  made.array.device_type = ARROW_DEVICE_CPU;
  made.array.device_id = -1;
  made.array.array = (struct ArrowArray){
      .length = (int64_t)rows, .n_buffers = 1, .release = release_batch, .private_data = arrays};
  made.array.array.children = (struct ArrowArray**)(arrays + n);
  made.array.array.buffers = (const void**)(made.array.array.children + n);
  for (size_t i = 0; i < n; i++, made.array.array.n_children++) {
    column* c = &r->columns[i];
    owned* own = calloc(1, sizeof *own);
    if (!own) {
      release_batch(&made.array.array);
      return csv_no_memory(err);
    }
    own->host = r->instance->host;
    own->memory = r->instance->memory;
    if (c->nulls == 0) csv_free(own->memory, &c->buffers[0], 0);
    for (int b = 0; b < 3; b++) own->buffers[b] = c->buffers[b].at;
    memcpy(own->blocks, c->buffers, sizeof own->blocks);
    arrays[i] = (struct ArrowArray){.length = (int64_t)rows,
                                    .null_count = (int64_t)c->nulls,
                                    .n_buffers = c->type->parse ? 2 : 3,
                                    .buffers = own->buffers,
                                    .release = release_column,
                                    .private_data = own};
    made.array.array.children[i] = &arrays[i];
    memset(c->buffers, 0, sizeof c->buffers);
    c->text_bytes = c->nulls = 0;
    own->host->retain(own->host);
  }
  CSV_GIVE(out, made);
  return CROSSDOCK_OK;
}

static crossdock_code next_batch(reader* r, const crossdock_call* call, crossdock_batch* out, crossdock_error* err) {
  const size_t most_bytes = within_budget(r, call, BATCH_BYTES);
  crossdock_code code = csv_check_cancelled(call, err);
  size_t rows = 0;
  for (size_t used = 0; code == CROSSDOCK_OK && rows < BATCH_ROWS && used < most_bytes; rows++) {
    bool found;
    code = next_record(r, call, &found, err);
    if (code != CROSSDOCK_OK || !found) break;
    for (size_t i = 0; code == CROSSDOCK_OK && i < r->n_columns; i++)
      code = add(r, &r->columns[i], rows, &r->fields[i], err);
    used += r->record_bytes;
    use_up(r);
  }
  return code != CROSSDOCK_OK || rows == 0 ? code : make_batch(r, rows, out, err);
}

/* --------------------------------------------------------------------------------------------------- the stream --- */

static void release_child(struct ArrowSchema* child) {
  free(child->private_data);
  child->release = NULL;
}

static void release_schema(struct ArrowSchema* schema) {
  for (int64_t i = 0; i < schema->n_children; i++)
    if (schema->children[i]->release) schema->children[i]->release(schema->children[i]);
  free(schema->private_data);
  schema->release = NULL;
}

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  const reader* r = stream->private_data;
  struct ArrowSchema* children = calloc(r->n_columns, sizeof *children + sizeof children);
  struct ArrowSchema schema = {.format = "+s", .name = "", .release = release_schema, .private_data = children};
  if (!children) return csv_no_memory(err);
  schema.children = (struct ArrowSchema**)(children + r->n_columns);
  for (size_t i = 0; i < r->n_columns; i++, schema.n_children++) {
    char* name = csv_copy_text(r->columns[i].name, strlen(r->columns[i].name));
    children[i] = (struct ArrowSchema){.format = r->columns[i].type->format,
                                       .name = name,
                                       .flags = r->columns[i].flags,
                                       .release = release_child,
                                       .private_data = name};
    schema.children[i] = &children[i];
    if (name) continue;
    release_schema(&schema);
    return csv_no_memory(err);
  }
  *out = schema;
  return CROSSDOCK_OK;
}

static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  reader* r = stream->private_data;
  const locale_t before = uselocale(r->instance->c_locale);
  const crossdock_code code = next_batch(r, call, out, err);
  uselocale(before);
  return code;
}

static void release_stream(crossdock_batch_stream* stream) {
  free_reader(stream->private_data);
  stream->release = NULL;
}

/* What is in `input` is ours from here on, whatever comes of it. */
crossdock_code csv_open(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                        const crossdock_input* input, const struct ArrowSchema* schema, const crossdock_option* options,
                        size_t n_options, crossdock_batch_stream* out, crossdock_error* err) {
  crossdock_batch_stream stream = {.get_schema = get_schema, .get_next = get_next, .release = release_stream};
  reader* r = calloc(1, sizeof *r);
  crossdock_code code = r ? CROSSDOCK_OK : csv_no_memory(err);
  if (input->capsules && input->capsules->release) input->capsules->release(input->capsules);
  if (!r) {
    if (input->source && input->source->release) input->source->release(input->source);
    return code;
  }
  r->instance = instance;
  if (input->source && input->source->release) {
    CROSSDOCK_MOVE(&r->source, input->source);
  } else {
    code = csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "csv is read from a source, and none was given");
  }
  if (code == CROSSDOCK_OK) code = csv_read_options(&r->options, true, format, options, n_options, err);
  if (code == CROSSDOCK_OK && schema && r->options.types.bytes)
    code = csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "a schema and the option types were given, expected one of them");
  if (code == CROSSDOCK_OK) code = find_columns(r, call, schema, err);
  if (code != CROSSDOCK_OK) {
    free_reader(r);
    return code;
  }
  stream.private_data = r;
  CSV_GIVE(out, stream);
  return CROSSDOCK_OK;
}
