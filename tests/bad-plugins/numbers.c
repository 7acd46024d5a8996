/* A batch of one column of integers in malloc'ed memory. */
#include "base.h"

typedef struct column {
  const void* buffers[2];
} column;

typedef struct batch {
  struct ArrowArray column;
  struct ArrowArray* children[1];
  const void* buffers[1];
} batch;

static void release_column(struct ArrowArray* array) {
  column* own = array->private_data;
  free((void*)own->buffers[0]);
  free((void*)own->buffers[1]);
  free(own);
  array->release = NULL;
}

static void release_batch(struct ArrowArray* array) {
  batch* own = array->private_data;
  if (own->column.release) own->column.release(&own->column);
  free(own);
  array->release = NULL;
}

struct ArrowSchema base_numbers_schema(const char* name, int is_nullable) {
  struct ArrowSchema number = {.format = "l", .name = name, .flags = is_nullable ? ARROW_FLAG_NULLABLE : 0};
  struct ArrowSchema* columns[] = {&number};
  const struct ArrowSchema root = {.format = "+s", .name = "", .n_children = 1, .children = columns};
  return base_schema_copy(&root);
}

crossdock_code base_numbers_give(unsigned char* validity, void* values, int64_t rows, crossdock_batch* out,
                                 crossdock_error* err) {
  batch* root = calloc(1, sizeof *root);
  column* own = calloc(1, sizeof *own);
  int64_t nulls = 0;
  if (!root || !own || !values) {
    free(root);
    free(own);
    free(validity);
    free(values);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base: no memory for a batch");
  }
  for (int64_t i = 0; validity && i < rows; i++) nulls += !(validity[i / 8] >> (i % 8) & 1);
  own->buffers[0] = validity;
  own->buffers[1] = values;
  root->children[0] = &root->column;
  root->column = (struct ArrowArray){.length = rows, .null_count = nulls, .n_buffers = 2, .buffers = own->buffers,
                                     .release = release_column, .private_data = own};
  out->array.device_type = ARROW_DEVICE_CPU;
  out->array.device_id = -1;
  out->array.array = (struct ArrowArray){.length = rows, .n_buffers = 1, .buffers = root->buffers, .n_children = 1,
                                         .children = root->children, .release = release_batch, .private_data = root};
  return CROSSDOCK_OK;
}
