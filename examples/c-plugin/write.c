/* The exporter: prints the rows of batches. What it writes, the importer reads back as the same values. */
#include "write.h"

#include "alloc.h"
#include "calls.h"
#include "error.h"
#include "instance.h"
#include "locales.h"
#include "options.h"
#include "output.h"
#include "text.h"
#include "view.h"

enum { ROWS_A_LOOK = 1024 /* between two looks at the cancel flag */ };

typedef struct column {
  csv_kind kind;
  char* name;
  csv_view view;       /* of the batch that is being written: values, or indices */
  csv_view dictionary; /* what the indices mean */
} column;

typedef struct writer {
  const crossdock_instance* instance;
  csv_output output;
  csv_options options;
  column* columns;
  size_t n_columns;
  uint64_t rows; /* written */
  bool failed;
} writer;

static void free_writer(writer* w) {
  for (size_t i = 0; w->columns && i < w->n_columns; i++) CSV_FREE(w->columns[i].name);
  CSV_FREE(w->columns);
  csv_output_release(&w->output);
  CSV_FREE(w);
}

/* ------------------------------------------------------------------------------------------------------- values --- */

static crossdock_code refuse_value(const writer* w, const column* c, int64_t row, const char* why, crossdock_error* err) {
  csv_shown shown;
  return csv_fail(err, CROSSDOCK_BAD_DATA, "column %s, row %llu of the table: %s", csv_show(&shown, c->name, strlen(c->name)),
                  (unsigned long long)(w->rows + (uint64_t)row + 1), why);
}

static crossdock_code put_text(writer* w, const column* c, const char* text, size_t bytes, int64_t row,
                               crossdock_error* err) {
  const char* refusal = csv_output_refusal(&w->options, text, bytes);
  if (refusal) return refuse_value(w, c, row, refusal, err);
  return csv_output_put_value(&w->output, &w->options, text, bytes, err);
}

static crossdock_code put_from(writer* w, const column* c, const csv_view* view, int64_t at, int64_t row,
                               crossdock_error* err) {
  char printed[CSV_PRINTED_MAX];
  const char* text = printed;
  size_t bytes;
  uint64_t value;
  if (csv_view_is_null(view, at)) return csv_output_put(&w->output, w->options.null, w->options.null_bytes, err);
  if (view->type->storage == CSV_STRINGS) {
    if (!csv_view_text(view, at, &text, &bytes))
      return refuse_value(w, c, row, "its offsets contradict each other: expected them to grow within the text", err);
    return put_text(w, c, text, bytes, row, err);
  }
  csv_view_value(view, at, &value);
  bytes = view->type->print(view->type, &value, printed);
  if (bytes == 0) return refuse_value(w, c, row, "a time of day that is not within a day", err);
  return put_text(w, c, printed, bytes, row, err);
}

static int64_t index_of(const csv_view* view, int64_t row) {
  uint64_t bits = 0;
  csv_view_value(view, row, &bits);
  if (view->type->format[0] >= 'a') { /* Arrow's letters of signed integers */
    const int shift = 64 - 8 * view->type->width;
    return (int64_t)(bits << shift) >> shift;
  }
  return bits > INT64_MAX ? -1 : (int64_t)bits;
}

static crossdock_code put(writer* w, const column* c, int64_t row, crossdock_error* err) {
  int64_t index;
  if (!c->kind.indices || csv_view_is_null(&c->view, row)) return put_from(w, c, &c->view, row, row, err);
  index = index_of(&c->view, row);
  if (index < 0 || index >= c->dictionary.length)
    return refuse_value(w, c, row, "its index is outside of its dictionary", err);
  return put_from(w, c, &c->dictionary, index, row, err);
}

static crossdock_code put_row(writer* w, int64_t row, crossdock_error* err) {
  crossdock_code code = CROSSDOCK_OK;
  for (size_t i = 0; code == CROSSDOCK_OK && i < w->n_columns; i++) {
    if (i > 0) code = csv_output_put(&w->output, &w->options.dialect.delimiter, 1, err);
    if (code == CROSSDOCK_OK) code = put(w, &w->columns[i], row, err);
  }
  return code != CROSSDOCK_OK ? code : csv_output_put(&w->output, "\n", 1, err);
}

/* ------------------------------------------------------------------------------------------------------ batches --- */

/* The sizes of a node's buffers, in pre-order, which move behind them; NULL where there are none or too few. */
static const int64_t* take_sizes(const crossdock_batch* batch, size_t* next, int64_t n_buffers) {
  const size_t first = *next;
  if (!CROSSDOCK_HAS(batch, n_buffer_sizes) || !batch->buffer_sizes || n_buffers < 0) return NULL;
  if (first > batch->n_buffer_sizes || (size_t)n_buffers > batch->n_buffer_sizes - first) return NULL;
  *next = first + (size_t)n_buffers;
  return batch->buffer_sizes + first;
}

static crossdock_code look_at_column(column* c, const struct ArrowArray* root, const struct ArrowArray* array,
                                     const crossdock_batch* batch, size_t* next_size, crossdock_error* err) {
  const csv_type* type = c->kind.indices ? c->kind.indices : c->kind.type;
  const struct ArrowArray* dictionary = array->dictionary;
  csv_shown shown;
  crossdock_code code = csv_view_make(&c->view, type, array, root->offset, root->length,
                                      take_sizes(batch, next_size, array->n_buffers), c->name, err);
  if (code != CROSSDOCK_OK || !c->kind.indices) return code;
  if (!dictionary)
    return csv_fail(err, CROSSDOCK_BAD_DATA, "column %s: expected a dictionary, got none",
                    csv_show(&shown, c->name, strlen(c->name)));
  return csv_view_make(&c->dictionary, c->kind.type, dictionary, 0, dictionary->length,
                       take_sizes(batch, next_size, dictionary->n_buffers), c->name, err);
}

static crossdock_code look_at_batch(writer* w, const crossdock_batch* batch, crossdock_error* err) {
  const struct ArrowArray* root = &batch->array.array;
  size_t next_size = 0;
  if (batch->array.device_type != ARROW_DEVICE_CPU)
    return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "CSV is printed by the host: expected a batch of device type %d, got %d",
                    ARROW_DEVICE_CPU, batch->array.device_type);
  if (root->n_children < 0 || (uint64_t)root->n_children != w->n_columns || root->length < 0 || root->offset < 0)
    return csv_fail(err, CROSSDOCK_BAD_DATA, "a batch: expected %zu columns and rows from 0 on, got %lld and %lld rows from %lld on",
                    w->n_columns, (long long)root->n_children, (long long)root->length, (long long)root->offset);
  if (root->null_count != 0 && root->n_buffers > 0 && root->buffers[0])
    return csv_fail(err, CROSSDOCK_UNSUPPORTED, "a batch has rows that are null as a whole, which CSV cannot tell from others");
  take_sizes(batch, &next_size, root->n_buffers);
  for (size_t i = 0; i < w->n_columns; i++) {
    crossdock_code code = look_at_column(&w->columns[i], root, root->children[i], batch, &next_size, err);
    if (code != CROSSDOCK_OK) return code;
  }
  return CROSSDOCK_OK;
}

static crossdock_code write_rows(writer* w, const crossdock_call* call, const crossdock_batch* batch, crossdock_error* err) {
  const int64_t rows = batch->array.array.length;
  crossdock_code code = csv_check_cancelled(call, err);
  if (code == CROSSDOCK_OK) code = look_at_batch(w, batch, err);
  for (int64_t row = 0; code == CROSSDOCK_OK && row < rows; row++) {
    if (row % ROWS_A_LOOK == 0) code = csv_check_cancelled(call, err);
    if (code == CROSSDOCK_OK) code = put_row(w, row, err);
  }
  if (code == CROSSDOCK_OK) w->rows += (uint64_t)rows;
  if (code == CROSSDOCK_OK) csv_tell_progress(call, w->output.written, 0);
  return code;
}

static crossdock_code refuse_failed(crossdock_error* err) {
  return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "the writer has failed before, or is finished");
}

static crossdock_code write_batch(crossdock_writer* self, const crossdock_call* call, crossdock_batch* batch,
                                  crossdock_capsules* out, crossdock_error* err) {
  writer* w = self->private_data;
  crossdock_code code;
  (void)out;
  if (w->failed) {
    code = refuse_failed(err);
  } else {
    locale_t before = csv_locale_enter(w->instance);
    code = write_rows(w, call, batch, err);
    csv_locale_leave(before);
  }
  w->failed = code != CROSSDOCK_OK;
  if (batch->array.array.release) batch->array.array.release(&batch->array.array);
  if (batch->schema.release) batch->schema.release(&batch->schema);
  return code;
}

static crossdock_code finish(crossdock_writer* self, const crossdock_call* call, crossdock_capsules* out,
                             crossdock_error* err) {
  writer* w = self->private_data;
  crossdock_code code = w->failed ? refuse_failed(err) : csv_check_cancelled(call, err);
  (void)out;
  if (code == CROSSDOCK_OK) code = csv_output_flush(&w->output, err);
  w->failed = true;
  return code;
}

static void release_writer(crossdock_writer* self) {
  free_writer(self->private_data);
  self->release = NULL;
}

/* -------------------------------------------------------------------------------------------------------- begin --- */

static crossdock_code take_column(column* c, const struct ArrowSchema* schema, crossdock_error* err) {
  const char* name = schema->name ? schema->name : "";
  csv_shown shown[2];
  if (!csv_kind_of(schema, &c->kind)) {
    const char* format = schema->dictionary ? schema->dictionary->format : schema->format;
    return csv_fail(err, CROSSDOCK_UNSUPPORTED,
                    "column %s: CSV has no text for its Arrow format %s%s; leave it out with --columns, or cast it to one of "
                    CSV_TYPE_NAMES,
                    csv_show(&shown[0], name, strlen(name)), csv_show(&shown[1], format, strlen(format)),
                    schema->dictionary ? " in a dictionary" : "");
  }
  c->name = csv_copy_text(name, strlen(name));
  return c->name ? CROSSDOCK_OK : csv_no_memory(err);
}

static crossdock_code write_header(writer* w, crossdock_error* err) {
  crossdock_code code = CROSSDOCK_OK;
  for (size_t i = 0; code == CROSSDOCK_OK && i < w->n_columns; i++) {
    const char* name = w->columns[i].name;
    const char* refusal = csv_output_refusal(&w->options, name, strlen(name));
    csv_shown shown;
    if (refusal)
      return csv_fail(err, CROSSDOCK_BAD_DATA, "the name of column %s: %s", csv_show(&shown, name, strlen(name)), refusal);
    if (i > 0) code = csv_output_put(&w->output, &w->options.dialect.delimiter, 1, err);
    if (code == CROSSDOCK_OK) code = csv_output_put_value(&w->output, &w->options, name, strlen(name), err);
  }
  return code != CROSSDOCK_OK ? code : csv_output_put(&w->output, "\n", 1, err);
}

static crossdock_code begin_writer(writer* w, const struct ArrowSchema* schema, crossdock_error* err) {
  crossdock_code code = csv_output_begin(&w->output, err);
  if (code != CROSSDOCK_OK) return code;
  if (schema->n_children < 1)
    return csv_fail(err, CROSSDOCK_UNSUPPORTED, "a table without columns: CSV cannot say how many rows it has");
  w->n_columns = (size_t)schema->n_children;
  w->columns = csv_zeroed(w->n_columns, sizeof *w->columns);
  if (!w->columns) return csv_no_memory(err);
  for (size_t i = 0; code == CROSSDOCK_OK && i < w->n_columns; i++)
    code = take_column(&w->columns[i], schema->children[i], err);
  return code == CROSSDOCK_OK && w->options.header ? write_header(w, err) : code;
}

/* What is in `sink` is ours from here on, whatever comes of it. */
static crossdock_code take_sink(crossdock_sink* sink, writer* w, crossdock_error* err) {
  if (!sink || !sink->release)
    return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "CSV is written to a sink, and none was given");
  if (w) {
    csv_output_take(&w->output, w->instance->memory, sink);
    return CROSSDOCK_OK;
  }
  sink->release(sink);
  return csv_no_memory(err);
}

crossdock_code csv_write_begin(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                               const struct ArrowSchema* schema, const crossdock_option* options, size_t n_options,
                               crossdock_sink* sink, crossdock_writer* out, crossdock_error* err) {
  crossdock_writer made = {.write = write_batch, .finish = finish, .release = release_writer};
  writer* w = csv_zeroed(1, sizeof *w);
  crossdock_code code;
  (void)call;
  if (w) w->instance = instance;
  code = take_sink(sink, w, err);
  if (code == CROSSDOCK_OK) code = csv_format_check(format, err);
  if (code == CROSSDOCK_OK) code = csv_options_read(&w->options, false, options, n_options, err);
  if (code == CROSSDOCK_OK) code = begin_writer(w, schema, err);
  if (code != CROSSDOCK_OK) {
    if (w) free_writer(w);
    return code;
  }
  made.private_data = w;
  CSV_GIVE(out, made);
  return CROSSDOCK_OK;
}
