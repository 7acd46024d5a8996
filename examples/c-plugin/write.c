/* The exporter: prints the rows of batches. What it writes, the importer reads back as the same values. */
#include <stdio.h>

#include "csv.h"

enum { OUTPUT_BYTES = 64 << 10 };

/* A column of the batch that is being written. */
typedef struct column {
  const csv_type* type;
  char* name;
  const unsigned char *validity, *values, *text;
  int64_t offset, text_bytes;
} column;

typedef struct writer {
  const crossdock_instance* instance;
  csv_options options;
  crossdock_sink sink;
  csv_block output;
  size_t used; /* of the output */
  uint64_t written;
  column* columns;
  size_t n_columns;
  uint64_t row; /* of the table, from 1 on */
} writer;

static void free_writer(writer* w) {
  for (size_t i = 0; i < w->n_columns; i++) free(w->columns[i].name);
  csv_free(w->instance->memory, &w->output, 0);
  if (w->sink.release) w->sink.release(&w->sink);
  free(w->columns);
  free(w);
}

/* -------------------------------------------------------------------------------------------------------- output --- */

static crossdock_code flush(writer* w, crossdock_error* err) {
  const crossdock_code code = w->used ? w->sink.write(&w->sink, w->output.at, w->used, err) : CROSSDOCK_OK;
  w->written += w->used;
  w->used = 0;
  return code;
}

static crossdock_code put(writer* w, const char* text, size_t bytes, crossdock_error* err) {
  crossdock_code code = csv_reserve(w->instance->memory, &w->output, w->used, w->used + bytes, err);
  if (code != CROSSDOCK_OK) return code;
  if (bytes) memcpy(w->output.at + w->used, text, bytes);
  w->used += bytes;
  return w->used < OUTPUT_BYTES ? CROSSDOCK_OK : flush(w, err);
}

/* In quotes where it would be read as something else without: an empty text as a null, a mark as the end of the field, and
 * a byte order mark as none of the text. */
static crossdock_code put_text(writer* w, const column* c, const char* text, size_t bytes, crossdock_error* err) {
  const char marks[] = {w->options.delimiter, '"', '\r', '\n', '\xEF'};
  bool quoted = bytes == 0;
  crossdock_code code;
  if (csv_text_prefix(text, bytes) < bytes)
    return csv_fail(err, CROSSDOCK_BAD_DATA, "column '%.40s', row %llu: a text that is not UTF-8, or has a NUL byte", c->name,
                    (unsigned long long)w->row);
  for (size_t i = 0; !quoted && i < bytes; i++) quoted = memchr(marks, text[i], sizeof marks);
  if (!quoted) return put(w, text, bytes, err);
  code = put(w, "\"", 1, err);
  while (code == CROSSDOCK_OK && bytes > 0) {
    const char* quote = memchr(text, '"', bytes);
    const size_t part = quote ? (size_t)(quote - text) + 1 : bytes;
    code = put(w, text, part, err);
    if (code == CROSSDOCK_OK && quote) code = put(w, "\"", 1, err);
    text += part;
    bytes -= part;
  }
  return code == CROSSDOCK_OK ? put(w, "\"", 1, err) : code;
}

/* ------------------------------------------------------------------------------------------------------- batches --- */

/* The sizes of the next node's buffers, in pre-order, which `next` moves behind; NULL where nobody knows. */
static const int64_t* take_sizes(const crossdock_batch* batch, size_t* next, int64_t n_buffers) {
  const size_t first = *next;
  if (!CROSSDOCK_HAS(batch, n_buffer_sizes) || !batch->buffer_sizes || n_buffers < 0) return NULL;
  *next = first + (size_t)n_buffers;
  return *next <= batch->n_buffer_sizes ? batch->buffer_sizes + first : NULL;
}

/* Finds the buffers of a column, of which rows `offset..end` are looked at, and that they are no shorter than that. */
static crossdock_code view(column* c, const struct ArrowArray* array, int64_t from, int64_t rows, const int64_t* sizes,
                           crossdock_error* err) {
  const int64_t n_buffers = c->type->parse ? 2 : 3, most = INT64_MAX / 16;
  int64_t end, needed[3] = {0};
  if (array->n_buffers != n_buffers || array->length < 0 || array->offset < 0 || array->offset > most || from > most ||
      array->length > most || from > array->length || rows > array->length - from)
    return csv_fail(err, CROSSDOCK_BAD_DATA, "column '%.40s': expected %lld buffers, and %lld values from %lld on", c->name,
                    (long long)n_buffers, (long long)rows, (long long)from);
  if (rows == 0) return CROSSDOCK_OK;
  c->offset = array->offset + from;
  end = c->offset + rows;
  c->validity = array->null_count == 0 ? NULL : array->buffers[0];
  c->values = array->buffers[1];
  needed[0] = c->validity ? (end + 7) / 8 : 0;
  needed[1] = !c->type->width ? (end + 7) / 8 : (end + (n_buffers == 3)) * (int64_t)c->type->width;
  for (int b = 0; b < n_buffers; b++) {
    if (b == 2) {
      int32_t last;
      memcpy(&last, c->values + end * 4, sizeof last);
      needed[2] = c->text_bytes = last;
      c->text = array->buffers[2];
    }
    if (needed[b] < 0 || (needed[b] > 0 && !array->buffers[b]) || (sizes && sizes[b] >= 0 && sizes[b] < needed[b]))
      return csv_fail(err, CROSSDOCK_BAD_DATA, "column '%.40s', buffer %d: expected %lld bytes, got %lld", c->name, b,
                      (long long)needed[b], sizes ? (long long)sizes[b] : 0);
  }
  return CROSSDOCK_OK;
}

static bool bit_at(const unsigned char* bits, int64_t at) { return bits[at / 8] >> at % 8 & 1; }

static crossdock_code put_value(writer* w, const column* c, int64_t row, crossdock_error* err) {
  const int64_t at = c->offset + row;
  const unsigned char* value = c->values + at * (int64_t)c->type->width;
  char printed[CSV_PRINTED];
  uint8_t bit;
  int32_t range[2];
  if (c->validity && !bit_at(c->validity, at)) return CROSSDOCK_OK;
  if (!c->type->width) bit = bit_at(c->values, at), value = &bit;
  if (c->type->print) {
    c->type->print(c->type, value, printed);
    return put(w, printed, strlen(printed), err);
  }
  memcpy(range, value, sizeof range);
  if (range[0] < 0 || range[1] < range[0] || range[1] > c->text_bytes)
    return csv_fail(err, CROSSDOCK_BAD_DATA, "column '%.40s', row %llu: offsets %d to %d, of %lld bytes of text", c->name,
                    (unsigned long long)w->row, range[0], range[1], (long long)c->text_bytes);
  return put_text(w, c, c->text ? (const char*)c->text + range[0] : "", (size_t)(range[1] - range[0]), err);
}

static crossdock_code write_rows(writer* w, const crossdock_call* call, const crossdock_batch* batch, crossdock_error* err) {
  const struct ArrowArray* root = &batch->array.array;
  crossdock_code code = csv_check_cancelled(call, err);
  size_t next = 0;
  if (code != CROSSDOCK_OK) return code;
  if (batch->array.device_type != ARROW_DEVICE_CPU || root->length < 0 || root->offset < 0 ||
      (uint64_t)root->n_children != w->n_columns)
    return csv_fail(err, CROSSDOCK_BAD_DATA, "a batch of %lld columns on device type %d: expected %zu on %d",
                    (long long)root->n_children, batch->array.device_type, w->n_columns, ARROW_DEVICE_CPU);
  if (root->null_count != 0 && root->n_buffers > 0 && root->buffers[0])
    return csv_fail(err, CROSSDOCK_UNSUPPORTED, "a batch has rows that are null as a whole, which csv cannot tell from others");
  take_sizes(batch, &next, root->n_buffers);
  for (size_t i = 0; code == CROSSDOCK_OK && i < w->n_columns; i++) {
    const struct ArrowArray* array = root->children[i];
    code = view(&w->columns[i], array, root->offset, root->length, take_sizes(batch, &next, array->n_buffers), err);
  }
  for (int64_t row = 0; code == CROSSDOCK_OK && row < root->length; row++, w->row++) {
    if (row % 1024 == 0) code = csv_check_cancelled(call, err);
    for (size_t i = 0; code == CROSSDOCK_OK && i < w->n_columns; i++) {
      if (i > 0) code = put(w, &w->options.delimiter, 1, err);
      if (code == CROSSDOCK_OK) code = put_value(w, &w->columns[i], row, err);
    }
    if (code == CROSSDOCK_OK) code = put(w, "\n", 1, err);
  }
  if (code == CROSSDOCK_OK && CROSSDOCK_HAS(call, progress_data) && call->progress)
    call->progress(call->progress_data, w->written, 0);
  return code;
}

static crossdock_code write_batch(crossdock_writer* self, const crossdock_call* call, crossdock_batch* batch,
                                  crossdock_capsules* out, crossdock_error* err) {
  writer* w = self->private_data;
  const locale_t before = uselocale(w->instance->c_locale);
  const crossdock_code code = write_rows(w, call, batch, err);
  (void)out;
  uselocale(before);
  if (batch->array.array.release) batch->array.array.release(&batch->array.array);
  if (batch->schema.release) batch->schema.release(&batch->schema);
  return code;
}

static crossdock_code finish(crossdock_writer* self, const crossdock_call* call, crossdock_capsules* out, crossdock_error* err) {
  const crossdock_code code = csv_check_cancelled(call, err);
  (void)out;
  return code == CROSSDOCK_OK ? flush(self->private_data, err) : code;
}

static void release_writer(crossdock_writer* self) {
  free_writer(self->private_data);
  self->release = NULL;
}

/* --------------------------------------------------------------------------------------------------- the beginning --- */

static crossdock_code take_columns(writer* w, const struct ArrowSchema* schema, crossdock_error* err) {
  crossdock_code code = CROSSDOCK_OK;
  if (schema->n_children < 1) return csv_fail(err, CROSSDOCK_UNSUPPORTED, "csv has no table without columns");
  w->columns = calloc((size_t)schema->n_children, sizeof *w->columns);
  if (!w->columns) return csv_no_memory(err);
  for (; code == CROSSDOCK_OK && w->n_columns < (size_t)schema->n_children; w->n_columns++) {
    const struct ArrowSchema* child = schema->children[w->n_columns];
    column* c = &w->columns[w->n_columns];
    const char* name = child->name ? child->name : "";
    c->type = csv_type_of(child);
    if (!c->type)
      return csv_fail(err, CROSSDOCK_UNSUPPORTED,
                      "column '%.40s': csv has no text for Arrow's format '%.20s'%s; leave it out, or cast it to one of "
                      CSV_TYPE_NAMES, name, child->format, child->dictionary ? " with a dictionary" : "");
    c->name = csv_copy_text(name, strlen(name));
    if (!c->name) return csv_no_memory(err);
    if (!w->options.header) continue;
    if (w->n_columns > 0) code = put(w, &w->options.delimiter, 1, err);
    if (code == CROSSDOCK_OK) code = put_text(w, c, name, strlen(name), err);
  }
  return code == CROSSDOCK_OK && w->options.header ? put(w, "\n", 1, err) : code;
}

/* What is in `sink` is ours from here on, whatever comes of it. */
crossdock_code csv_begin(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                         const struct ArrowSchema* schema, const crossdock_option* options, size_t n_options,
                         crossdock_sink* sink, crossdock_writer* out, crossdock_error* err) {
  crossdock_writer made = {.write = write_batch, .finish = finish, .release = release_writer};
  writer* w = calloc(1, sizeof *w);
  crossdock_code code = CROSSDOCK_OK;
  (void)call;
  if (!w) {
    if (sink && sink->release) sink->release(sink);
    return csv_no_memory(err);
  }
  w->instance = instance;
  w->row = 1;
  if (sink && sink->release) {
    CROSSDOCK_MOVE(&w->sink, sink);
  } else {
    code = csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "csv is written into a sink, and none was given");
  }
  if (code == CROSSDOCK_OK) code = csv_read_options(&w->options, false, format, options, n_options, err);
  if (code == CROSSDOCK_OK) code = take_columns(w, schema, err);
  if (code != CROSSDOCK_OK) {
    free_writer(w);
    return code;
  }
  made.private_data = w;
  CSV_GIVE(out, made);
  return CROSSDOCK_OK;
}

/* ---------------------------------------------------------------------------------------------------------- the plan --- */

static void release_plan(crossdock_plan* plan) {
  crossdock_column_plan* columns = plan->private_data;
  for (size_t i = 0; i < plan->n_columns; i++) free((char*)columns[i].name.data);
  free(columns);
  plan->release = NULL;
}

crossdock_code csv_plan(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                        const struct ArrowSchema* schema, crossdock_device from, const crossdock_option* options,
                        size_t n_options, crossdock_plan* out, crossdock_error* err) {
  static const crossdock_str PRINTED = CSV_TEXT("printed as text");
  static const crossdock_str CANNOT = CSV_TEXT("csv has no text for its type: leave it out, or cast it to one of " CSV_TYPE_NAMES);
  crossdock_plan made = {.release = release_plan};
  csv_options checked;
  crossdock_code code = csv_read_options(&checked, false, format, options, n_options, err);
  const size_t n = schema->n_children > 0 ? (size_t)schema->n_children : 0;
  crossdock_column_plan* columns;
  (void)instance, (void)call, (void)from;
  if (code != CROSSDOCK_OK) return code;
  columns = calloc(n + 1, sizeof *columns);
  if (!columns) return csv_no_memory(err);
  made.columns = made.private_data = columns;
  for (; made.n_columns < n; made.n_columns++) {
    const struct ArrowSchema* child = schema->children[made.n_columns];
    const bool known = csv_type_of(child) != NULL;
    const size_t bytes = child->name ? strlen(child->name) : 0;
    char* name = csv_copy_text(child->name, bytes);
    if (!name) {
      release_plan(&made);
      return csv_no_memory(err);
    }
    columns[made.n_columns] = (crossdock_column_plan){
        .struct_size = sizeof *columns, .name = {name, bytes}, .verdict = known ? CROSSDOCK_CONVERTED : CROSSDOCK_CANNOT,
        .to = CSV_CPU, .reason = known ? PRINTED : CANNOT};
  }
  CSV_GIVE(out, made);
  return CROSSDOCK_OK;
}
