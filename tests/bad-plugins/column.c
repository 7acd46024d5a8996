/* Columns in blocks of the host's, which are filled in the order of a stream: of rows that were read, and of what was decoded. */
#include "base.h"

/* The sin of who makes the column. */
#define DOES(sin) (own->is_decoded ? IS(DECODE_##sin) : IS(sin))

typedef struct batch {
  struct ArrowArray column;
  struct ArrowArray* children[1];
  const void* buffers[1];
} batch;

base_column* base_column_new(crossdock_instance* instance, int is_decoded, crossdock_error* err) {
  base_column* own = calloc(1, sizeof *own);
  if (!own) {
    base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base: no memory for a column");
    return NULL;
  }
  own->host = instance->host;
  own->memory = instance->memory;
  own->is_decoded = is_decoded;
  own->host->retain(own->host);
  return own;
}

void base_column_free(base_column* own) {
  base_lock(DOES(LOCK_AROUND_ALLOC) || IS(LOCK_AROUND_FREE));
  base_unlock(DOES(LOCK_AROUND_ALLOC));
  for (int i = 0; i < 2; i++)
    if (own->blocks[i] && !(DOES(BLOCK_LOST) && i == own->is_decoded))
      own->memory->free(own->memory, own->blocks[i], &own->event, 1, CROSSDOCK_FREE_LENT);
  if (IS(BLOCK_TWICE)) own->memory->free(own->memory, own->blocks[0], NULL, 0, 0);
  if (!IS(EVENT_LOST)) own->memory->event_destroy(own->memory, own->event);
  if (IS(EVENT_TWICE)) own->memory->event_destroy(own->memory, own->event);
  if (!IS(HOST_REFERENCE_LOST)) own->host->release(own->host);
  base_unlock(IS(LOCK_AROUND_FREE));
  free(own);
}

static void release_column(struct ArrowArray* array) {
  base_column_free(array->private_data);
  array->release = NULL;
}

static void release_batch(struct ArrowArray* array) {
  batch* own = array->private_data;
  if (own->column.release) own->column.release(&own->column);
  free(own);
  array->release = NULL;
}

/* The same, whose struct says that it is still there. */
static void release_batch_left(struct ArrowArray* array) {
  release_batch(array);
  array->release = release_batch_left;
}

/* The stream to work on: the call's, where that is of the host's memory. */
crossdock_code base_column_stream(const base_column* own, const crossdock_call* call, crossdock_stream** out,
                                  crossdock_error* err) {
  *out = call->stream;
  if (call->device.type == ARROW_DEVICE_CPU && call->stream) return CROSSDOCK_OK;
  return own->memory->stream_default(own->memory, BASE_CPU, out, err);
}

/* The column's, unless another instance's came for its own meanwhile. */
static const crossdock_memory* last_memory(const base_column* own) {
  static const crossdock_memory* _Atomic last;
  last = own->memory;
  for (int i = 0; base_n_instances > 1 && last == own->memory && i < 50; i++)
    thrd_sleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return last;
}

/* Copies bytes into a block of the host's, which is all zeros before. */
crossdock_code base_column_fill(base_column* own, int which, const void* from, size_t bytes, crossdock_stream* stream,
                                crossdock_error* err) {
  crossdock_allocation block = {0};
  crossdock_copy copy = {.from = from, .bytes = bytes, .to_device = BASE_CPU, .from_device = BASE_CPU};
  crossdock_code code;
  const crossdock_memory* memory = IS(MEMORY_OF_LAST_HOST) ? last_memory(own) : own->memory;
  base_lock(DOES(LOCK_AROUND_ALLOC));
  code = memory->alloc(memory, BASE_CPU, bytes, 64, stream, &block, err);
  base_unlock(DOES(LOCK_AROUND_ALLOC));
  if (code != CROSSDOCK_OK && DOES(MEMORY_ERROR_HIDDEN)) {
    if (err && err->release) err->release(err);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base: something went wrong");
  }
  if (code != CROSSDOCK_OK && own->is_decoded && IS(DECODE_FAILURE_IGNORED)) {
    if (err && err->release) err->release(err);
    memcpy(block.address, from, bytes);
    return CROSSDOCK_OK;
  }
  if (code != CROSSDOCK_OK) return code;
  copy.to = block.address;
  code = own->memory->fill(own->memory, IS(FILL_ON_DEFAULT_STREAM) ? NULL : stream, block.address, 0, bytes, err);
  if (code == CROSSDOCK_OK)
    code = own->memory->copy(own->memory, DOES(DEFAULT_STREAM) ? NULL : stream, &copy, 1, err);
  if (code != CROSSDOCK_OK && DOES(BLOCK_LOST_ON_FAILURE)) return code;
  if (code != CROSSDOCK_OK && IS(BLOCK_FREED_WITH_FREE)) free(block.address);
  own->blocks[which] = block.block;
  own->buffers[which] = block.address;
  if (code == CROSSDOCK_OK && DOES(WRITES_BEHIND)) ((char*)block.address)[bytes] = 0;
  return code;
}

/* What comes next on the stream comes after the column is filled, and so does who reads it. */
static crossdock_code order(base_column* own, crossdock_stream* stream, crossdock_error* err) {
  crossdock_code code = own->memory->event_record(own->memory, stream, &own->event, err);
  return code == CROSSDOCK_OK ? own->memory->stream_wait(own->memory, stream, own->event, err) : code;
}

crossdock_code base_column_give(base_column* own, crossdock_stream* stream, int64_t n, int64_t nulls, crossdock_batch* out,
                                crossdock_error* err) {
  batch* root = calloc(1, sizeof *root);
  crossdock_code code = root ? order(own, stream, err) : base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base: no memory for a batch");
  if (code != CROSSDOCK_OK) {
    free(root);
    return code;
  }
  root->children[0] = &root->column;
  root->column = (struct ArrowArray){.length = n, .null_count = nulls, .n_buffers = 2, .buffers = own->buffers,
                                     .release = release_column, .private_data = own};
  out->array.device_type = ARROW_DEVICE_CPU;
  out->array.device_id = -1;
  out->array.sync_event = own->memory->event_raw(own->memory, own->event);
  out->array.array = (struct ArrowArray){.length = n, .n_buffers = 1, .buffers = root->buffers, .n_children = 1,
                                         .children = root->children, .release = release_batch, .private_data = root};
  if (own->is_decoded && IS(DECODED_NOT_CLEARED)) out->array.array.release = release_batch_left;
  return CROSSDOCK_OK;
}
