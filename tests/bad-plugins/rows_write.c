/* Writes the format `base-rows`: see rows_read.c. */
#include "base.h"

enum { ROW = 9, MAX_ROWS = 1 << 16 };

typedef struct writer {
  crossdock_sink sink;
  const crossdock_memory* memory;
  crossdock_batch last_batch;
  int is_text;
  char* all; /* all output, which is written at the end */
  size_t n_all;
} writer;

int base_rows_hold(const struct ArrowSchema* schema) {
  return schema->n_children == 1 && strcmp(schema->children[0]->format, "l") == 0 && !schema->children[0]->dictionary;
}

static void release_taken(crossdock_batch* batch) {
  struct ArrowArray again = batch->array.array;
  if (batch->schema.release) batch->schema.release(&batch->schema);
  if (HAS(BATCH_LOST)) batch->array.array.release = NULL;
  if (!batch->array.array.release) return;
  batch->array.array.release(&batch->array.array);
  if (HAS(BATCH_TWICE)) again.release(&again);
}

static crossdock_code write_later(writer* w, const void* from, size_t bytes, crossdock_error* err) {
  char* more = realloc(w->all, w->n_all + bytes + 1);
  if (!more) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for the output");
  w->all = more;
  memcpy(more + w->n_all, from, bytes);
  w->n_all += bytes;
  return CROSSDOCK_OK;
}

/* A bug: writes all output in small steps, without checking for cancellation. */
static crossdock_code write_all(writer* w, crossdock_error* err) {
  crossdock_code code = CROSSDOCK_OK;
  for (size_t done = 0; code == CROSSDOCK_OK && done < w->n_all; done += ROW)
    code = w->sink.write(&w->sink, w->all + done, w->n_all - done < ROW ? w->n_all - done : ROW, err);
  return code;
}

static crossdock_code write_bytes(writer* w, const void* from, size_t bytes, crossdock_error* err) {
  crossdock_code code;
  if (HAS(CANCEL_SEEN_AFTER_ALL_IS_WRITTEN)) return write_later(w, from, bytes, err);
  base_lock(HAS(LOCK_AROUND_WRITE));
  code = w->sink.write(&w->sink, from, bytes, err);
  base_unlock(HAS(LOCK_AROUND_WRITE));
  if (code != CROSSDOCK_OK && HAS(SINK_ERROR_IGNORED)) {
    if (err && err->release) err->release(err);
    return CROSSDOCK_OK;
  }
  return code;
}

static crossdock_code write_frame(writer* w, const struct ArrowArray* values, int64_t from, int64_t n, crossdock_error* err) {
  const unsigned char* validity = values->null_count == 0 ? NULL : values->buffers[0];
  const char* words = values->buffers[1];
  unsigned char* rows = calloc(1, 8 + (size_t)n * ROW);
  crossdock_code code;
  if (!rows) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for rows");
  memcpy(rows, &n, 8);
  for (int64_t row = 0; row < n; row++) {
    const int64_t i = from + row;
    rows[8 + row * ROW] = !validity || (validity[i / 8] >> (i % 8) & 1);
    if (!w->is_text) memcpy(rows + 8 + row * ROW + 1, words + 8 * i, 8);
  }
  if (HAS(READS_BEHIND)) rows[8] |= words[8 * (from + n)] == 1 && words[8 * (from + n) + 64] == 1 ? 1 : 0;
  code = write_bytes(w, rows, 8 + (size_t)n * ROW, err);
  free(rows);
  return code;
}

/* Copies the column's buffers to one malloc'ed block on the host. */
static crossdock_code fetch(const writer* w, const crossdock_call* call, const struct ArrowDeviceArray* from,
                            const void* buffers[2], unsigned char** block, crossdock_error* err) {
  const crossdock_memory* memory = w->memory;
  const struct ArrowArray* values = from->array.children[0];
  const crossdock_device device = {from->device_id, from->device_type, 0};
  const size_t n = (size_t)(from->array.offset + values->offset + from->array.length);
  const size_t sizes[2] = {values->buffers[0] ? (n + 7) / 8 : 0, 8 * n};
  crossdock_copy copies[2];
  size_t n_copies = 0, used = 0;
  crossdock_stream* stream = call->stream;
  crossdock_code code = CROSSDOCK_OK;
  *block = malloc(sizes[0] + sizes[1] + 1);
  if (!*block) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for a column");
  for (int i = 0; i < 2; i++) {
    buffers[i] = sizes[i] ? *block + used : NULL;
    if (sizes[i])
      copies[n_copies++] = (crossdock_copy){.to = *block + used, .from = values->buffers[i], .bytes = sizes[i],
                                            .to_device = BASE_CPU, .from_device = device};
    used += sizes[i];
  }
  if (!stream || call->device.type != device.type || call->device.id != device.id)
    code = memory->stream_default(memory, device, &stream, err);
  if (code == CROSSDOCK_OK) code = memory->stream_wait_raw(memory, stream, from->sync_event, err);
  if (code == CROSSDOCK_OK) code = memory->copy(memory, stream, copies, n_copies, err);
  if (code == CROSSDOCK_OK) code = memory->stream_synchronize(memory, stream, err);
  return code;
}

/* Reads the number of rows, which is on the device of the batch. */
static crossdock_code count_rows(const writer* w, const crossdock_call* call, const crossdock_batch* batch, int64_t* out,
                                 crossdock_error* err) {
  const crossdock_memory* memory = w->memory;
  const crossdock_device device = {batch->array.device_id, batch->array.device_type, 0};
  const int64_t capacity = batch->array.array.length;
  const crossdock_copy copy = {.to = out, .from = batch->n_rows_device, .bytes = sizeof *out, .to_device = BASE_CPU,
                               .from_device = device};
  crossdock_stream* stream = call->stream;
  crossdock_code code = CROSSDOCK_OK;
  if (device.type == ARROW_DEVICE_CPU) {
    *out = *batch->n_rows_device;
  } else {
    if (!stream || call->device.type != device.type || call->device.id != device.id)
      code = memory->stream_default(memory, device, &stream, err);
    if (code == CROSSDOCK_OK) code = memory->stream_wait_raw(memory, stream, batch->array.sync_event, err);
    if (code == CROSSDOCK_OK) code = memory->copy(memory, stream, &copy, 1, err);
    if (code == CROSSDOCK_OK) code = memory->stream_synchronize(memory, stream, err);
  }
  if (code == CROSSDOCK_OK && (*out < 0 || *out > capacity))
    code = base_fail(err, CROSSDOCK_BAD_DATA, "base-rows: the number of rows is not between 0 and the capacity");
  return code;
}

static crossdock_code write(crossdock_writer* self, const crossdock_call* call, crossdock_batch* batch,
                            crossdock_capsules* out, crossdock_error* err) {
  writer* w = self->private_data;
  const struct ArrowArray* root = &batch->array.array;
  const struct ArrowArray* values = root->n_children == 1 ? root->children[0] : NULL;
  struct ArrowArray on_host;
  const void* buffers[2];
  unsigned char* block = NULL;
  int64_t length = root->length;
  crossdock_code code = base_cancelled(call, err);
  (void)out;
  if (code == CROSSDOCK_OK && !values) code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base-rows: expected one column");
  if (HAS(EXPORTS_ANYWHERE) && code == CROSSDOCK_OK && batch->array.device_type != ARROW_DEVICE_CPU) {
    code = fetch(w, call, &batch->array, buffers, &block, err);
    on_host = *values;
    on_host.buffers = buffers;
    values = &on_host;
  }
  if (code == CROSSDOCK_OK && CROSSDOCK_HAS(batch, n_rows_device) && batch->n_rows_device && !HAS(DEVICE_ROWS_IGNORED))
    code = count_rows(w, call, batch, &length, err);
  for (int64_t row = 0; code == CROSSDOCK_OK && row < length; row += MAX_ROWS) {
    const int64_t left = length - row;
    code = write_frame(w, values, root->offset + values->offset + row, left < MAX_ROWS ? left : MAX_ROWS, err);
  }
  free(block);
  if (HAS(KEPT_BATCH_LOST) && code == CROSSDOCK_OK) {
    release_taken(&w->last_batch);
    w->last_batch = *batch;
    batch->array.array.release = NULL;
  }
  if (!HAS(BATCH_LEFT)) release_taken(batch);
  return code;
}

static crossdock_code finish(crossdock_writer* self, const crossdock_call* call, crossdock_capsules* out,
                             crossdock_error* err) {
  writer* w = self->private_data;
  const uint64_t end = UINT64_MAX;
  crossdock_code code;
  (void)call, (void)out;
  release_taken(&w->last_batch);
  code = write_bytes(w, &end, sizeof end, err);
  return code == CROSSDOCK_OK ? write_all(w, err) : code;
}

static void release_writer(crossdock_writer* self) {
  writer* w = self->private_data;
  base_lock(HAS(LOCK_AROUND_WRITE));
  base_unlock(HAS(LOCK_AROUND_WRITE));
  w->sink.release(&w->sink);
  free(w->all);
  free(w);
  self->release = NULL;
}

crossdock_code base_rows_begin(crossdock_instance* instance, const struct ArrowSchema* schema, crossdock_sink* sink,
                               crossdock_writer* out, crossdock_error* err) {
  writer* w = calloc(1, sizeof *w);
  crossdock_writer partial = {.private_data = w};
  crossdock_code code = CROSSDOCK_OK;
  uint32_t bytes;
  if (!w) {
    sink->release(sink);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for a writer");
  }
  w->sink = *sink;
  w->memory = instance->memory;
  if (!base_rows_hold(schema)) code = base_fail(err, CROSSDOCK_UNSUPPORTED, "base-rows holds one column of Int64");
  if (code == CROSSDOCK_OK) {
    const char* name = schema->children[0]->name;
    bytes = (uint32_t)strlen(name);
    code = write_bytes(w, "BASEROWS", 8, err);
    if (code == CROSSDOCK_OK) code = write_bytes(w, &bytes, sizeof bytes, err);
    if (code == CROSSDOCK_OK) code = write_bytes(w, name, bytes, err);
  }
  if (code != CROSSDOCK_OK) {
    release_writer(&partial);
    return code;
  }
  out->write = write;
  out->finish = finish;
  out->release = release_writer;
  out->private_data = w;
  return CROSSDOCK_OK;
}
