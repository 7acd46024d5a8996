/* A batch of `base-rows`, read: a column in blocks of the host's, which are filled in the order of a stream. */
#include "base.h"

enum { ROW = 9 };

/* A column owns its two blocks, the event after which they may be read, and a reference to the host, which keeps the memory. */
typedef struct column {
  const crossdock_host* host;
  const crossdock_memory* memory;
  crossdock_block* blocks[2];
  crossdock_event* event; /* NULL where all has run */
  const void* buffers[2];
} column;

typedef struct batch {
  struct ArrowArray column;
  struct ArrowArray* children[1];
  const void* buffers[1];
} batch;

static void free_column(column* own) {
  base_lock(IS(LOCK_AROUND_ALLOC) || IS(LOCK_AROUND_FREE));
  base_unlock(IS(LOCK_AROUND_ALLOC));
  for (int i = 0; i < 2; i++)
    if (own->blocks[i] && !(IS(BLOCK_LOST) && i == 0))
      own->memory->free(own->memory, own->blocks[i], &own->event, 1, CROSSDOCK_FREE_LENT);
  if (IS(BLOCK_TWICE)) own->memory->free(own->memory, own->blocks[0], NULL, 0, 0);
  if (!IS(EVENT_LOST)) own->memory->event_destroy(own->memory, own->event);
  if (IS(EVENT_TWICE)) own->memory->event_destroy(own->memory, own->event);
  if (!IS(HOST_REFERENCE_LOST)) own->host->release(own->host);
  base_unlock(IS(LOCK_AROUND_FREE));
  free(own);
}

static void release_column(struct ArrowArray* array) {
  free_column(array->private_data);
  array->release = NULL;
}

static void release_batch(struct ArrowArray* array) {
  batch* own = array->private_data;
  if (own->column.release) own->column.release(&own->column);
  free(own);
  array->release = NULL;
}

/* Copies bytes into a block of the host's, which is all zeros before. */
static crossdock_code to_block(column* own, int which, const void* from, size_t bytes, crossdock_stream* stream,
                               crossdock_error* err) {
  crossdock_allocation block;
  crossdock_copy copy = {.from = from, .bytes = bytes, .to_device = BASE_CPU, .from_device = BASE_CPU};
  crossdock_code code;
  base_lock(IS(LOCK_AROUND_ALLOC));
  code = own->memory->alloc(own->memory, BASE_CPU, bytes, 64, stream, &block, err);
  base_unlock(IS(LOCK_AROUND_ALLOC));
  if (code != CROSSDOCK_OK && IS(MEMORY_ERROR_HIDDEN)) {
    if (err && err->release) err->release(err);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: something went wrong");
  }
  if (code != CROSSDOCK_OK) return code;
  copy.to = block.address;
  code = own->memory->fill(own->memory, IS(FILL_ON_DEFAULT_STREAM) ? NULL : stream, block.address, 0, bytes, err);
  if (code == CROSSDOCK_OK)
    code = own->memory->copy(own->memory, IS(DEFAULT_STREAM) ? NULL : stream, &copy, 1, err);
  if (code != CROSSDOCK_OK && IS(BLOCK_LOST_ON_FAILURE)) return code;
  if (code != CROSSDOCK_OK && IS(BLOCK_FREED_WITH_FREE)) free(block.address);
  own->blocks[which] = block.block;
  own->buffers[which] = block.address;
  if (code == CROSSDOCK_OK && IS(WRITES_BEHIND)) ((char*)block.address)[bytes] = 0;
  return code;
}

/* Rows as they were written become a bitmap and values. */
static void spread(const unsigned char* rows, size_t n, unsigned char* validity, unsigned char* values) {
  memset(validity, 0, (n + 7) / 8);
  for (size_t i = 0; i < n; i++) {
    if (rows[i * ROW] != 0 || IS(NULL_DROPPED)) validity[i / 8] |= (unsigned char)(1 << (i % 8));
    memcpy(values + 8 * i, rows + i * ROW + 1, 8);
  }
}

/* A kernel that has no image, for it runs in host memory: a bitmap, how many bits it has, where it says how many are not set. */
static crossdock_code count(const crossdock_arg* args, size_t n_args) {
  const unsigned char* bits = (const unsigned char*)(uintptr_t)args[0].value;
  int64_t unset = 0;
  if (n_args != 3) return CROSSDOCK_INVALID_ARGUMENT;
  for (uint64_t i = 0; i < args[1].value; i++) unset += !(bits[i / 8] >> (i % 8) & 1);
  memcpy((void*)(uintptr_t)args[2].value, &unset, sizeof unset);
  return CROSSDOCK_OK;
}

static crossdock_code count_nulls(const column* own, size_t n, crossdock_stream* stream, int64_t* out, crossdock_error* err) {
  static const crossdock_kernel KERNEL = {.struct_size = sizeof KERNEL, .name = "base_count", .host_twin = count};
  const crossdock_grid grid = {.blocks = 1, .threads = 1};
  const crossdock_arg args[] = {{(uintptr_t)own->buffers[0], (n + 7) / 8, CROSSDOCK_ARG_READ, 0},
                                {n, 0, CROSSDOCK_ARG_VALUE, 0},
                                {(uintptr_t)out, sizeof *out, CROSSDOCK_ARG_WRITE, 0}};
  const crossdock_memory* memory = own->memory;
  crossdock_code code = memory->launch(memory, IS(LAUNCH_ON_DEFAULT_STREAM) ? NULL : stream, &KERNEL, grid, args, 3, err);
  if (code == CROSSDOCK_OK) code = memory->stream_synchronize(memory, stream, err);
  *out -= IS(NULL_COUNT) && *out > 0;
  return code;
}

/* The stream to work on: the call's, where that is of the host's memory. */
static crossdock_code stream_of(const crossdock_memory* memory, const crossdock_call* call, crossdock_stream** out,
                                crossdock_error* err) {
  *out = call->stream;
  if (call->device.type == ARROW_DEVICE_CPU && call->stream) return CROSSDOCK_OK;
  return memory->stream_default(memory, BASE_CPU, out, err);
}

/* What comes next on the stream comes after the column is filled, and so does who reads it. */
static crossdock_code order(column* own, crossdock_stream* stream, crossdock_error* err) {
  crossdock_code code = own->memory->event_record(own->memory, stream, &own->event, err);
  return code == CROSSDOCK_OK ? own->memory->stream_wait(own->memory, stream, own->event, err) : code;
}

crossdock_code base_rows_give(crossdock_instance* instance, const crossdock_call* call, const unsigned char* rows, size_t n,
                              size_t n_given, crossdock_batch* out, crossdock_error* err) {
  batch* root = calloc(1, sizeof *root);
  column* own = calloc(1, sizeof *own);
  unsigned char* spreaded = malloc((n + 7) / 8 + 8 * n + 1);
  crossdock_code code = CROSSDOCK_OUT_OF_MEMORY;
  crossdock_stream* stream;
  int64_t nulls = 0;
  if (!root || !own || !spreaded) {
    free(root);
    free(own);
    free(spreaded);
    return base_fail(err, code, "base-rows: no memory for a batch");
  }
  own->host = instance->host;
  own->memory = instance->memory;
  own->host->retain(own->host);
  spread(rows, n, spreaded, spreaded + (n + 7) / 8);
  code = stream_of(own->memory, call, &stream, err);
  if (code == CROSSDOCK_OK) code = to_block(own, 0, spreaded, (n + 7) / 8, stream, err);
  if (code == CROSSDOCK_OK) code = to_block(own, 1, spreaded + (n + 7) / 8, 8 * n, stream, err);
  if (code == CROSSDOCK_OK) code = count_nulls(own, n, stream, &nulls, err);
  if (code == CROSSDOCK_OK) code = order(own, stream, err);
  free(spreaded);
  if (code != CROSSDOCK_OK) {
    free_column(own);
    free(root);
    return code;
  }
  root->children[0] = &root->column;
  root->column = (struct ArrowArray){.length = (int64_t)n_given, .null_count = nulls, .n_buffers = 2, .buffers = own->buffers,
                                     .release = release_column, .private_data = own};
  out->array.device_type = ARROW_DEVICE_CPU;
  out->array.device_id = -1;
  out->array.sync_event = own->memory->event_raw(own->memory, own->event);
  out->array.array = (struct ArrowArray){.length = (int64_t)n_given, .n_buffers = 1, .buffers = root->buffers, .n_children = 1,
                                         .children = root->children, .release = release_batch, .private_data = root};
  return CROSSDOCK_OK;
}
