/* Helpers for plugins in C; see tools.h. */
#include <stdarg.h>
#include <stdio.h>

#include "tools.h"

enum { MESSAGE_BYTES = 512 };

bool fail_no_memory(task* t) {
  t->code = CROSSDOCK_OUT_OF_MEMORY;
  if (t->err) {
    t->err->code = t->code;
    t->err->message = "the plugin is out of memory"; /* static, so there is nothing to release */
  }
  return false;
}

static void release_message(crossdock_error* err) {
  free(err->private_data);
  err->message = NULL;
  err->release = NULL;
}

/* Returns the length in bytes of the character at the beginning of a text (Unicode standard, table
 * 3-7), or 0 if the text begins with a NUL or is not UTF-8. */
static size_t character_bytes(const unsigned char* at, size_t bytes) {
  const size_t n = at[0] < 0x80 ? 1 : at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : at[0] < 0xF5 ? 4 : 0;
  if (at[0] == 0 || n == 0 || n > bytes) return 0;
  for (size_t i = 1; i < n; i++)
    if ((at[i] & 0xC0) != 0x80) return 0;
  if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F)) return 0;
  return (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F) ? 0 : n;
}

bool fail(task* t, crossdock_code code, const char* format, ...) {
  unsigned char* text = t->err ? calloc(1, MESSAGE_BYTES) : NULL;
  va_list arguments;
  t->code = code;
  if (!t->err) return false;
  if (!text) return fail_no_memory(t);
  va_start(arguments, format);
  vsnprintf((char*)text, MESSAGE_BYTES, format, arguments);
  va_end(arguments);
  for (size_t at = 0, end = strlen((char*)text); at < end;) {
    const size_t n = character_bytes(text + at, end - at);
    if (n == 0 || text[at] < ' ' || text[at] == 0x7F) text[at] = '?';
    at += n ? n : 1;
  }
  t->err->code = code;
  t->err->message = t->err->private_data = text;
  t->err->release = release_message;
  return false;
}

bool check_call(task* t) {
  const crossdock_code code = CROSSDOCK_CHECK_CALL(t->call);
  if (t->code != CROSSDOCK_OK) return false;
  return code == CROSSDOCK_OK || fail(t, code, "the call has a reserved field that is not 0, or an unknown validation");
}

bool check_cancelled(task* t) {
  return !CROSSDOCK_IS_CANCELLED(t->call) || fail(t, CROSSDOCK_CANCELLED, "cancelled");
}

void report_progress(task* t, uint64_t done, uint64_t total) {
  if (CROSSDOCK_HAS(t->call, progress_data) && t->call->progress) t->call->progress(t->call->progress_data, done, total);
}

bool equal(crossdock_str text, const char* word) {
  return text.bytes == strlen(word) && memcmp(text.data, word, text.bytes) == 0;
}

bool is_text(const void* text, size_t bytes) {
  size_t at = 0, n;
  while (at < bytes && (n = character_bytes((const unsigned char*)text + at, bytes - at)) > 0) at += n;
  return at == bytes;
}

char* copy_text(task* t, const void* text, size_t bytes) {
  char* copy = calloc(bytes + 1, 1);
  if (!copy) fail_no_memory(t);
  if (copy && bytes) memcpy(copy, text, bytes);
  return copy;
}

bool reserve(task* t, buffer* b, size_t more) {
  const crossdock_memory* memory = t->memory;
  crossdock_allocation allocation = {0};
  buffer grown = {.used = b->used, .capacity = b->used + more};
  if (b->block && grown.capacity <= b->capacity) return true;
  if (grown.capacity < 2 * b->capacity) grown.capacity = 2 * b->capacity;
  if (grown.capacity < 1024) grown.capacity = 1024;
  t->code = memory->alloc(memory, CPU, grown.capacity, 64, NULL, 0, &allocation, t->err);
  if (t->code != CROSSDOCK_OK) return false;
  grown.block = allocation.block;
  grown.data = memory->host_address(memory, CPU, allocation.address, grown.capacity);
  if (!grown.data) {
    free_buffer(memory, &grown, 0);
    return fail(t, CROSSDOCK_INTERNAL, "the host returned no address for CPU memory");
  }
  if (b->used) memcpy(grown.data, b->data, b->used);
  free_buffer(memory, b, 0);
  *b = grown;
  return true;
}

bool append(task* t, buffer* b, const void* data, size_t bytes) {
  if (!reserve(t, b, bytes)) return false;
  if (bytes) memcpy(b->data + b->used, data, bytes);
  b->used += bytes;
  return true;
}

void free_buffer(const crossdock_memory* memory, buffer* b, uint32_t flags) {
  if (b->block) memory->free(memory, b->block, NULL, 0, flags);
  *b = (buffer){0};
}

void free_columns(const crossdock_memory* memory, new_column* columns, size_t n) {
  for (size_t i = 0; i < n; i++) {
    for (int b = 0; b < 3; b++) free_buffer(memory, &columns[i].buffers[b], 0);
    free(columns[i].name);
  }
  free(columns);
}

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

bool make_schema(task* t, const new_column* columns, size_t n, struct ArrowSchema* out) {
  struct ArrowSchema* children = calloc(n + 1, sizeof *children + sizeof children);
  struct ArrowSchema schema = {.format = "+s", .name = "", .release = release_schema, .private_data = children};
  if (!children) return fail_no_memory(t);
  schema.children = (struct ArrowSchema**)(children + n);
  for (size_t i = 0; i < n; i++) {
    const new_column* c = &columns[i];
    char* name = copy_text(t, c->name, strlen(c->name));
    children[i] = (struct ArrowSchema){
        .format = c->format, .name = name, .flags = c->flags, .release = release_child, .private_data = name};
    schema.children[schema.n_children++] = &children[i];
  }
  if (t->code == CROSSDOCK_OK) *out = schema;
  else release_schema(&schema);
  return t->code == CROSSDOCK_OK;
}

/* The private data of a column's array. It does not depend on the batch, because a consumer may
 * move the column out of the batch. */
typedef struct column_data {
  const crossdock_host* host;
  const crossdock_memory* memory;
  buffer buffers[3];
  const void* addresses[3];
} column_data;

static void release_column(struct ArrowArray* array) {
  column_data* data = array->private_data;
  const crossdock_host* host = data->host;
  for (int i = 0; i < 3; i++) free_buffer(data->memory, &data->buffers[i], CROSSDOCK_FREE_EXPORTED);
  free(data);
  array->release = NULL;
  host->release(host); /* last, because this may destroy the host and its memory interface */
}

static void release_batch(struct ArrowArray* array) {
  for (int64_t i = 0; i < array->n_children; i++)
    if (array->children[i]->release) array->children[i]->release(array->children[i]);
  free(array->private_data);
  array->release = NULL;
}

/* One allocation contains the columns' arrays, and the batch's lists of children and of buffers. */
bool make_batch(task* t, new_column* columns, size_t n, int64_t rows, crossdock_batch* out) {
  struct ArrowArray* arrays = calloc(1, n * (sizeof *arrays + sizeof arrays) + sizeof(void*));
  crossdock_batch batch = {.array = {.device_type = ARROW_DEVICE_CPU, .device_id = -1}};
  struct ArrowArray* root = &batch.array.array;
  if (!arrays) return fail_no_memory(t);
  *root = (struct ArrowArray){.length = rows, .n_buffers = 1, .release = release_batch, .private_data = arrays};
  root->children = (struct ArrowArray**)(arrays + n);
  root->buffers = (const void**)(root->children + n);
  for (size_t i = 0; i < n; i++) {
    new_column* c = &columns[i];
    column_data* data = calloc(1, sizeof *data);
    if (!data) {
      release_batch(root);
      return fail_no_memory(t);
    }
    data->host = t->host;
    data->host->retain(data->host);
    data->memory = t->memory;
    if (c->null_count == 0) free_buffer(data->memory, &c->buffers[0], 0); /* no nulls: no bitmap is needed */
    memcpy(data->buffers, c->buffers, sizeof data->buffers);
    memset(c->buffers, 0, sizeof c->buffers);
    for (int b = 0; b < 3; b++) data->addresses[b] = data->buffers[b].data;
    arrays[i] = (struct ArrowArray){.length = rows, .null_count = c->null_count, .n_buffers = c->n_buffers,
                                    .buffers = data->addresses, .release = release_column, .private_data = data};
    root->children[root->n_children++] = &arrays[i];
    c->null_count = 0;
  }
  SET(out, batch);
  return true;
}

const int64_t* next_sizes(const crossdock_batch* batch, size_t* next, int64_t n_buffers) {
  const size_t first = *next;
  if (!CROSSDOCK_HAS(batch, n_buffer_sizes) || !batch->buffer_sizes || n_buffers < 0) return NULL;
  *next = first + (size_t)n_buffers;
  return *next <= batch->n_buffer_sizes ? batch->buffer_sizes + first : NULL;
}

bool view_column(task* t, column_view* out, const char* name, const struct ArrowArray* array, int64_t from, int64_t rows,
                 size_t width, bool has_text, const int64_t* sizes) {
  const int64_t n_buffers = has_text ? 3 : 2, max = INT64_MAX / 16;
  int64_t end, needed[3] = {0};
  *out = (column_view){0};
  if (array->n_buffers != n_buffers || array->length < 0 || array->offset < 0 || array->offset > max || from > max ||
      array->length > max || from > array->length || rows > array->length - from)
    return fail(t, CROSSDOCK_BAD_DATA, "column '%.40s': expected %lld buffers, and %lld values from %lld on", name,
                (long long)n_buffers, (long long)rows, (long long)from);
  if (rows == 0) return true;
  out->offset = array->offset + from;
  end = out->offset + rows;
  out->validity = array->null_count == 0 ? NULL : array->buffers[0];
  out->values = array->buffers[1];
  needed[0] = out->validity ? (end + 7) / 8 : 0;
  needed[1] = width ? (end + has_text) * (int64_t)width : (end + 7) / 8;
  for (int b = 0; b < n_buffers; b++) {
    if (b == 2) {
      int32_t last;
      memcpy(&last, out->values + end * 4, sizeof last);
      needed[2] = out->text_bytes = last;
      out->text = array->buffers[2];
    }
    if (needed[b] < 0 || (needed[b] > 0 && !array->buffers[b]) || (sizes && sizes[b] >= 0 && sizes[b] < needed[b]))
      return fail(t, CROSSDOCK_BAD_DATA, "column '%.40s', buffer %d: expected %lld bytes, got %lld", name, b,
                  (long long)needed[b], sizes ? (long long)sizes[b] : 0);
  }
  return true;
}
