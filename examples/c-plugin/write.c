/* The exporter: prints rows of batches as text, which the importer parses to the same values. */
#include <stdio.h>

#include "csv.h"

enum { FLUSH_BYTES = 64 << 10 };

/* A column, and a view of the column's array in the current batch. */
typedef struct column {
  const csv_type* type;
  char* name;
  column_view view;
} column;

typedef struct writer {
  task task;
  locale_t c_locale;
  csv_options options;
  crossdock_sink sink;
  buffer output;
  uint64_t written; /* the number of bytes written so far */
  column* columns;
  size_t n_columns;
  uint64_t row; /* the number of the current row of the table; the first row has number 1 */
} writer;

#define FAIL(w, ...) fail(&(w)->task, __VA_ARGS__)

/* --------------------------------------------------------------------------- values to text --- */

static bool flush(writer* w) {
  if (w->output.used) w->task.code = w->sink.write(&w->sink, w->output.data, w->output.used, w->task.err);
  w->written += w->output.used;
  w->output.used = 0;
  return w->task.code == CROSSDOCK_OK;
}

static bool put(writer* w, const char* text, size_t bytes) {
  return append(&w->task, &w->output, text, bytes) && (w->output.used < FLUSH_BYTES || flush(w));
}

/* Writes a text. Quotes the text if the importer would otherwise parse it differently: without
 * quotes, empty text is a null, a delimiter or a line end ends the field, and a byte order mark is
 * ignored. */
static bool put_text(writer* w, const column* c, const char* text, size_t bytes) {
  const char special[] = {w->options.delimiter, '"', '\r', '\n', '\xEF'};
  bool quoted = bytes == 0;
  if (!is_text(text, bytes))
    return FAIL(w, CROSSDOCK_BAD_DATA, "column '%.40s', row %llu: a text that is not UTF-8, or has a NUL byte", c->name,
                (unsigned long long)w->row);
  for (size_t i = 0; !quoted && i < bytes; i++) quoted = memchr(special, text[i], sizeof special);
  if (!quoted) return put(w, text, bytes);
  if (!put(w, "\"", 1)) return false;
  for (size_t from = 0, to; from < bytes; from = to) { /* writes up to each quote, and doubles it */
    const char* quote = memchr(text + from, '"', bytes - from);
    to = quote ? (size_t)(quote - text) + 1 : bytes;
    if (!put(w, text + from, to - from) || (quote && !put(w, "\"", 1))) return false;
  }
  return put(w, "\"", 1);
}

static bool bit_at(const unsigned char* bits, int64_t at) { return bits[at / 8] >> at % 8 & 1; }

static bool put_value(writer* w, const column* c, int64_t row) {
  const column_view* v = &c->view;
  const int64_t at = v->offset + row;
  const unsigned char* value = v->values + at * (int64_t)c->type->width;
  char printed[CSV_MAX_PRINTED_BYTES];
  uint8_t bit;
  int32_t range[2];
  if (v->validity && !bit_at(v->validity, at)) return true;
  if (c->type->width == 0) bit = bit_at(v->values, at), value = &bit;
  if (c->type->print) {
    c->type->print(c->type->width, value, printed);
    return put(w, printed, strlen(printed));
  }
  memcpy(range, value, sizeof range);
  if (range[0] < 0 || range[1] < range[0] || range[1] > v->text_bytes)
    return FAIL(w, CROSSDOCK_BAD_DATA, "column '%.40s', row %llu: offsets %d to %d, of %lld bytes of text", c->name,
                (unsigned long long)w->row, range[0], range[1], (long long)v->text_bytes);
  return put_text(w, c, v->text ? (const char*)v->text + range[0] : "", (size_t)(range[1] - range[0]));
}

/* ---------------------------------------------------------------------------------- batches --- */

static bool write_rows(writer* w, const crossdock_batch* batch) {
  const struct ArrowArray* root = &batch->array.array;
  size_t next = 0;
  if (!check_cancelled(&w->task)) return false;
  if (batch->array.device_type != ARROW_DEVICE_CPU || root->length < 0 || root->offset < 0 ||
      (uint64_t)root->n_children != w->n_columns)
    return FAIL(w, CROSSDOCK_BAD_DATA, "a batch of %lld columns on device type %d: expected %zu on %d",
                (long long)root->n_children, batch->array.device_type, w->n_columns, ARROW_DEVICE_CPU);
  if (root->null_count != 0 && root->n_buffers > 0 && root->buffers[0])
    return FAIL(w, CROSSDOCK_UNSUPPORTED, "a batch has null rows, which csv cannot represent");
  next_sizes(batch, &next, root->n_buffers);
  for (size_t i = 0; i < w->n_columns; i++) {
    const struct ArrowArray* array = root->children[i];
    column* c = &w->columns[i];
    if (!view_column(&w->task, &c->view, c->name, array, root->offset, root->length, c->type->width, !c->type->parse,
                     next_sizes(batch, &next, array->n_buffers)))
      return false;
  }
  for (int64_t row = 0; row < root->length; row++, w->row++) {
    if (row % 1024 == 0 && !check_cancelled(&w->task)) return false;
    for (size_t i = 0; i < w->n_columns; i++)
      if ((i > 0 && !put(w, &w->options.delimiter, 1)) || !put_value(w, &w->columns[i], row)) return false;
    if (!put(w, "\n", 1)) return false;
  }
  report_progress(&w->task, w->written, 0);
  return true;
}

static crossdock_code write_batch(crossdock_writer* self, const crossdock_call* call, crossdock_batch* batch,
                                  crossdock_capsules* out, crossdock_error* err) {
  writer* w = self->private_data;
  const locale_t before = uselocale(w->c_locale);
  (void)out;
  w->task = (task){w->task.host, w->task.memory, call, err, CROSSDOCK_OK};
  write_rows(w, batch);
  uselocale(before);
  if (batch->array.array.release) batch->array.array.release(&batch->array.array);
  if (batch->schema.release) batch->schema.release(&batch->schema);
  return w->task.code;
}

static crossdock_code finish(crossdock_writer* self, const crossdock_call* call, crossdock_capsules* out, crossdock_error* err) {
  writer* w = self->private_data;
  (void)out;
  w->task = (task){w->task.host, w->task.memory, call, err, CROSSDOCK_OK};
  if (check_cancelled(&w->task)) flush(w);
  return w->task.code;
}

/* ------------------------------------------------------------------------ begin and release --- */

static void free_writer(writer* w) {
  for (size_t i = 0; i < w->n_columns; i++) free(w->columns[i].name);
  free_buffer(w->task.memory, &w->output, 0);
  if (w->sink.release) w->sink.release(&w->sink);
  free(w->columns);
  free(w);
}

static void release_writer(crossdock_writer* self) {
  free_writer(self->private_data);
  self->release = NULL;
}

static bool write_header(writer* w, const struct ArrowSchema* schema) {
  if (schema->n_children < 1) return FAIL(w, CROSSDOCK_UNSUPPORTED, "csv has no table without columns");
  w->columns = calloc((size_t)schema->n_children, sizeof *w->columns);
  if (!w->columns) return fail_no_memory(&w->task);
  for (int64_t i = 0; i < schema->n_children; i++) {
    const struct ArrowSchema* child = schema->children[i];
    const char* name = child->name ? child->name : "";
    column* c = &w->columns[w->n_columns];
    c->type = csv_find_type(child);
    if (!c->type)
      return FAIL(w, CROSSDOCK_UNSUPPORTED, "column '%.40s': csv has no text for Arrow's format '%.20s'%s; leave it out, or "
                  "cast it to one of " CSV_TYPE_NAMES, name, child->format, child->dictionary ? " with a dictionary" : "");
    c->name = copy_text(&w->task, name, strlen(name));
    if (!c->name) return false;
    w->n_columns++;
    if ((i > 0 && !put(w, &w->options.delimiter, 1)) || !put_text(w, c, name, strlen(name))) return false;
  }
  return put(w, "\n", 1);
}

/* Takes ownership of the sink, also on failure. */
crossdock_code csv_begin(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                         const struct ArrowSchema* schema, const crossdock_option* options, size_t n_options,
                         crossdock_sink* sink, crossdock_writer* out, crossdock_error* err) {
  crossdock_writer result = {.write = write_batch, .finish = finish, .release = release_writer};
  task t = {instance->host, instance->memory, call, err, CROSSDOCK_OK};
  writer* w = calloc(1, sizeof *w);
  if (!w) {
    if (sink && sink->release) sink->release(sink);
    return fail_no_memory(&t), t.code;
  }
  w->task = t;
  w->c_locale = instance->c_locale;
  w->row = 1;
  if (sink && sink->release) CROSSDOCK_MOVE(&w->sink, sink);
  else FAIL(w, CROSSDOCK_INVALID_ARGUMENT, "csv is written to a sink, which is missing");
  if (check_call(&w->task) && w->sink.release && csv_parse_options(&w->task, &w->options, false, format, options, n_options)) write_header(w, schema);
  t.code = w->task.code;
  result.private_data = w;
  if (t.code == CROSSDOCK_OK) SET(out, result);
  else free_writer(w);
  return t.code;
}

/* ------------------------------------------------------------------------------------- plan --- */

static void release_plan(crossdock_plan* plan) {
  crossdock_column_plan* columns = plan->private_data;
  for (size_t i = 0; i < plan->n_columns; i++) free((char*)columns[i].name.data);
  free(columns);
  plan->release = NULL;
}

crossdock_code csv_plan(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                        const struct ArrowSchema* schema, crossdock_device from, const crossdock_option* options,
                        size_t n_options, crossdock_plan* out, crossdock_error* err) {
  static const crossdock_str PRINTED = TEXT("printed as text");
  static const crossdock_str CANNOT = TEXT("csv has no text for its type: leave it out, or cast it to one of " CSV_TYPE_NAMES);
  task t = {instance->host, instance->memory, call, err, CROSSDOCK_OK};
  crossdock_plan plan = {.release = release_plan};
  csv_options unused;
  crossdock_column_plan* columns;
  (void)from;
  if (!check_call(&t) || !csv_parse_options(&t, &unused, false, format, options, n_options)) return t.code;
  columns = calloc((size_t)schema->n_children + 1, sizeof *columns);
  if (!columns) return fail_no_memory(&t), t.code;
  plan.columns = plan.private_data = columns;
  for (int64_t i = 0; i < schema->n_children; i++) {
    const struct ArrowSchema* child = schema->children[i];
    const bool is_supported = csv_find_type(child) != NULL;
    const size_t bytes = child->name ? strlen(child->name) : 0;
    columns[plan.n_columns++] = (crossdock_column_plan){
        .struct_size = sizeof *columns, .name = {copy_text(&t, child->name, bytes), bytes},
        .verdict = is_supported ? CROSSDOCK_CONVERTED : CROSSDOCK_CANNOT, .to = CPU, .reason = is_supported ? PRINTED : CANNOT};
  }
  if (t.code == CROSSDOCK_OK) SET(out, plan);
  else release_plan(&plan);
  return t.code;
}
