/* Creates the columns that get_next and decode return. A column consists of blocks of host memory,
 * which are filled on a stream. */
#include "base.h"

/* Whether the plugin has this bug in the function that creates the column: decode or get_next. */
#define HAS_FOR_COLUMN(bug) (own->is_decoded ? HAS(DECODE_##bug) : HAS(bug))

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
  base_lock(HAS_FOR_COLUMN(LOCK_AROUND_ALLOC) || HAS(LOCK_AROUND_FREE));
  base_unlock(HAS_FOR_COLUMN(LOCK_AROUND_ALLOC));
  for (int i = 0; i < 2; i++)
    if (own->blocks[i] && !(HAS_FOR_COLUMN(BLOCK_LOST) && i == own->is_decoded))
      own->memory->free(own->memory, own->blocks[i], &own->event, 1, CROSSDOCK_FREE_EXPORTED);
  if (HAS(BLOCK_TWICE)) own->memory->free(own->memory, own->blocks[0], NULL, 0, 0);
  if (!HAS(EVENT_LOST)) own->memory->event_destroy(own->memory, own->event);
  if (HAS(EVENT_TWICE)) own->memory->event_destroy(own->memory, own->event);
  if (!HAS(HOST_REFERENCE_LOST)) own->host->release(own->host);
  base_unlock(HAS(LOCK_AROUND_FREE));
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

/* Releases the batch like release_batch, but does not clear `release`. */
static void release_batch_left(struct ArrowArray* array) {
  release_batch(array);
  array->release = release_batch_left;
}

crossdock_code base_column_stream(const base_column* own, const crossdock_call* call, crossdock_stream** out,
                                  crossdock_error* err) {
  *out = call->stream;
  if (call->device.type == ARROW_DEVICE_CPU && call->stream) return CROSSDOCK_OK;
  return own->memory->stream_default(own->memory, BASE_CPU, out, err);
}

/* Returns the memory interface of the last instance that called this function. If there are several
 * instances, waits up to 50 ms for a call by another instance. */
static const crossdock_memory* last_memory(const base_column* own) {
  static const crossdock_memory* _Atomic last;
  last = own->memory;
  for (int i = 0; base_n_instances > 1 && last == own->memory && i < 50; i++)
    thrd_sleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return last;
}

/* Allocates a block, fills it with zeros, and copies bytes into it. */
crossdock_code base_column_fill(base_column* own, int which, const void* from, size_t bytes, crossdock_stream* stream,
                                crossdock_error* err) {
  crossdock_allocation block = {0};
  crossdock_copy copy = {.from = from, .bytes = bytes, .to_device = BASE_CPU, .from_device = BASE_CPU};
  crossdock_code code;
  const crossdock_memory* memory = HAS(MEMORY_OF_LAST_HOST) ? last_memory(own) : own->memory;
  base_lock(HAS_FOR_COLUMN(LOCK_AROUND_ALLOC));
  code = memory->alloc(memory, BASE_CPU, bytes, 64, stream, 0, &block, err);
  base_unlock(HAS_FOR_COLUMN(LOCK_AROUND_ALLOC));
  if (code != CROSSDOCK_OK && HAS_FOR_COLUMN(MEMORY_ERROR_HIDDEN)) {
    if (err && err->release) err->release(err);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base: something went wrong");
  }
  if (code != CROSSDOCK_OK && own->is_decoded && HAS(DECODE_FAILURE_IGNORED)) {
    if (err && err->release) err->release(err);
    memcpy(block.address, from, bytes);
    return CROSSDOCK_OK;
  }
  if (code != CROSSDOCK_OK) return code;
  copy.to = block.address;
  code = own->memory->fill(own->memory, HAS(FILL_ON_DEFAULT_STREAM) ? NULL : stream, block.address, 0, bytes, err);
  if (code == CROSSDOCK_OK)
    code = own->memory->copy(own->memory, HAS_FOR_COLUMN(DEFAULT_STREAM) ? NULL : stream, &copy, 1, err);
  if (code != CROSSDOCK_OK && HAS_FOR_COLUMN(BLOCK_LOST_ON_FAILURE)) return code;
  if (code != CROSSDOCK_OK && HAS(BLOCK_FREED_WITH_FREE)) free(block.address);
  own->blocks[which] = block.block;
  own->buffers[which] = block.address;
  if (code == CROSSDOCK_OK && HAS_FOR_COLUMN(WRITES_BEHIND)) ((char*)block.address)[bytes] = 0;
  return code;
}

/* Records the event after which the column may be read. */
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
  if (own->is_decoded && HAS(DECODED_NOT_CLEARED)) out->array.array.release = release_batch_left;
  return CROSSDOCK_OK;
}
