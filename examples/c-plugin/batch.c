/* A batch of what the builders hold: nothing is copied, the blocks change hands. */
#include "alloc.h"
#include "builder.h"
#include "error.h"
#include "instance.h"

enum { MOST_BUFFERS = 3 };

/* What an array of a column owns. It may be moved out of its batch and live longer, so it stands on its own. */
typedef struct column {
  const crossdock_host* host;
  const crossdock_memory* memory;
  csv_block blocks[MOST_BUFFERS];
  const void* buffers[MOST_BUFFERS];
} column;

/* What a batch owns beside its columns. */
typedef struct batch {
  struct ArrowArray* columns;
  struct ArrowArray** children;
  int64_t* sizes;
  const void* no_validity;
} batch;

static void release_column(struct ArrowArray* array) {
  column* own = array->private_data;
  const crossdock_host* host = own->host;
  for (int i = 0; i < MOST_BUFFERS; i++) csv_block_free(own->memory, &own->blocks[i], CROSSDOCK_FREE_LENT);
  CSV_FREE(own);
  array->release = NULL;
  /* Last: with it the memory may go. */
  host->release(host);
}

static void free_batch(batch* own) {
  if (!own) return;
  CSV_FREE(own->columns);
  CSV_FREE(own->children);
  CSV_FREE(own->sizes);
  CSV_FREE(own);
}

static void release_batch(struct ArrowArray* array) {
  for (int64_t i = 0; i < array->n_children; i++)
    if (array->children[i]->release) array->children[i]->release(array->children[i]);
  free_batch(array->private_data);
  array->release = NULL;
}

/* All that may fail, before anything changes hands. */
static batch* allocate(size_t n) {
  batch* own = csv_zeroed(1, sizeof *own);
  if (!own) return NULL;
  own->columns = csv_zeroed(n, sizeof *own->columns);
  own->children = csv_zeroed(n, sizeof *own->children);
  own->sizes = csv_zeroed(1 + n * MOST_BUFFERS, sizeof *own->sizes);
  if (!own->columns || !own->children || !own->sizes) {
    free_batch(own);
    return NULL;
  }
  for (size_t i = 0; i < n; i++) {
    own->children[i] = &own->columns[i];
    own->columns[i].private_data = csv_zeroed(1, sizeof(column));
    if (own->columns[i].private_data) continue;
    while (i-- > 0) CSV_FREE(own->columns[i].private_data);
    free_batch(own);
    return NULL;
  }
  return own;
}

/* Where its buffers' sizes begin, to where they end. */
static int64_t* fill(struct ArrowArray* array, const crossdock_host* host, const crossdock_memory* memory,
                     csv_builder* builder, size_t rows, int64_t* sizes) {
  const csv_type* type = builder->type;
  column* own = array->private_data;
  const int64_t bits = (int64_t)((rows + 7) / 8);
  own->host = host;
  own->memory = memory;
  if (builder->nulls == 0) csv_block_free(memory, &builder->validity, 0);
  own->blocks[0] = builder->validity;
  own->blocks[1] = builder->values;
  own->blocks[2] = builder->text;
  for (int i = 0; i < MOST_BUFFERS; i++) own->buffers[i] = own->blocks[i].address;
  array->length = (int64_t)rows;
  array->null_count = (int64_t)builder->nulls;
  array->n_buffers = type->storage == CSV_NOTHING ? 0 : type->storage == CSV_STRINGS ? 3 : 2;
  array->buffers = own->buffers;
  array->release = release_column;
  if (array->n_buffers > 0) {
    *sizes++ = builder->nulls == 0 ? 0 : bits;
    *sizes++ = type->storage == CSV_BITS ? bits : (int64_t)((rows + (type->storage == CSV_STRINGS)) * type->width);
  }
  if (array->n_buffers == 3) *sizes++ = (int64_t)builder->text_bytes;
  *builder = (csv_builder){.type = type};
  host->retain(host);
  return sizes;
}

crossdock_code csv_batch_make(const crossdock_host* host, const crossdock_memory* memory, csv_builder* builders,
                              size_t n_builders, size_t rows, crossdock_batch* out, crossdock_error* err) {
  crossdock_batch made = {0};
  batch* own = allocate(n_builders);
  int64_t* end;
  if (!own) return csv_no_memory(err);
  end = own->sizes + 1;
  for (size_t i = 0; i < n_builders; i++) end = fill(&own->columns[i], host, memory, &builders[i], rows, end);
  made.array.device_type = ARROW_DEVICE_CPU;
  made.array.device_id = -1;
  made.array.array = (struct ArrowArray){.length = (int64_t)rows,
                                         .n_buffers = 1,
                                         .buffers = &own->no_validity,
                                         .n_children = (int64_t)n_builders,
                                         .children = own->children,
                                         .release = release_batch,
                                         .private_data = own};
  made.buffer_sizes = own->sizes;
  made.n_buffer_sizes = (size_t)(end - own->sizes);
  CSV_GIVE(out, made);
  return CROSSDOCK_OK;
}
