/* The encoding `base.reference`: 32-bit integers stored less a reference. Its metadata is the reference (4 bytes), its one buffer
 * the stored integers; it has no children and no nulls. */
#include "base.h"

static const crossdock_encoded_node* node_at(const crossdock_encoded_array* array, size_t i) {
  return (const void*)((const char*)array->nodes + i * array->nodes->struct_size);
}

static const crossdock_encoded_buffer* buffer_at(const crossdock_encoded_array* array, size_t i) {
  return (const void*)((const char*)array->buffers + i * array->buffers->struct_size);
}

static crossdock_code check(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                            crossdock_error* err) {
  const crossdock_encoded_node* node = node_at(array, at);
  (void)instance;
  if (!base_is(node->encoding, "base.reference") && !IS(ANY_ENCODING))
    return base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: an encoding of somebody else's");
  if (IS(ANY_ENCODING) && !base_is(node->encoding, "base.reference")) return CROSSDOCK_OK;
  if (IS(LOOKS_AT_DEVICE_MEMORY) && node->n_buffers > 0 && buffer_at(array, node->first_buffer)->bytes > 0 &&
      *(const volatile char*)buffer_at(array, node->first_buffer)->address == 1)
    return CROSSDOCK_OK;
  if (!node->schema || strcmp(node->schema->format, "i") != 0 || node->schema->flags & ARROW_FLAG_NULLABLE)
    return base_fail(err, CROSSDOCK_BAD_DATA, "base.reference: its type is not Int32 without nulls");
  if (node->metadata_bytes != 4 || node->n_buffers != 1 || node->n_children != 0)
    return base_fail(err, CROSSDOCK_BAD_DATA, "base.reference: it has a reference of 4 bytes and one buffer, and nothing else");
  if (IS(ASSERTS_ON_NODES)) return CROSSDOCK_OK;
  if (node->length > INT64_MAX / 4 || buffer_at(array, node->first_buffer)->bytes != node->length * 4)
    return base_fail(err, CROSSDOCK_BAD_DATA, "base.reference: its buffer has not 4 bytes for each value");
  return CROSSDOCK_OK;
}

static crossdock_code size(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                           int64_t* out_bytes, crossdock_error* err) {
  crossdock_code code = check(instance, array, at, err);
  if (code == CROSSDOCK_OK) *out_bytes = (int64_t)(buffer_at(array, node_at(array, at)->first_buffer)->bytes);
  return code;
}

static uint32_t reference_of(const crossdock_encoded_node* node) {
  uint32_t reference;
  memcpy(&reference, node->metadata, sizeof reference);
  return reference;
}

static crossdock_code lower(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                            const crossdock_program** out, crossdock_error* err) {
  static _Thread_local crossdock_operator operators[2];
  static _Thread_local crossdock_program program;
  crossdock_code code = check(instance, array, at, err);
  if (code != CROSSDOCK_OK) return code;
  operators[0] = (crossdock_operator){CROSSDOCK_OP_LOAD, 0, 0, 0};
  operators[1] = (crossdock_operator){CROSSDOCK_OP_ADD, 0, reference_of(node_at(array, at)) + IS(PROGRAM_DIFFERS), 0};
  program = (crossdock_program){sizeof program, operators, 2};
  *out = &program;
  return CROSSDOCK_OK;
}

typedef struct column {
  int32_t* values;
  const void* buffers[2];
} column;

typedef struct batch {
  struct ArrowArray column;
  struct ArrowArray* children[1];
  const void* buffers[1];
} batch;

static void release_column(struct ArrowArray* array) {
  column* own = array->private_data;
  free(own->values);
  free(own);
  array->release = NULL;
}

static void release_batch(struct ArrowArray* array) {
  batch* own = array->private_data;
  if (own->column.release) own->column.release(&own->column);
  free(own);
  array->release = NULL;
}

static crossdock_code decode(crossdock_instance* instance, const crossdock_call* call, const crossdock_encoded_array* array,
                             size_t at, crossdock_batch* children, size_t n_children, crossdock_batch* out,
                             crossdock_error* err) {
  const crossdock_encoded_node* node = node_at(array, at);
  crossdock_code code = check(instance, array, at, err);
  batch* root = calloc(1, sizeof *root);
  column* own = calloc(1, sizeof *own);
  uint64_t n = node->length;
  (void)children, (void)n_children;
  if (code == CROSSDOCK_OK) code = base_cancelled(call, err);
  if (code == CROSSDOCK_OK && IS(ASSERTS_ON_NODES) && buffer_at(array, node->first_buffer)->bytes != n * 4) abort();
  if (code == CROSSDOCK_OK && own) own->values = malloc(n * 4 + 1);
  if (code == CROSSDOCK_OK && (!root || !own || !own->values))
    code = base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base.reference: no memory for values");
  if (code != CROSSDOCK_OK) {
    if (own) free(own->values);
    free(own);
    free(root);
    return code;
  }
  for (uint64_t i = 0; i < n; i++) {
    uint32_t word;
    memcpy(&word, (const char*)buffer_at(array, node->first_buffer)->address + 4 * i, 4);
    own->values[i] = (int32_t)(word + reference_of(node));
  }
  own->buffers[1] = own->values;
  root->children[0] = &root->column;
  root->column = (struct ArrowArray){.length = (int64_t)n, .n_buffers = 2, .buffers = own->buffers,
                                     .release = release_column, .private_data = own};
  out->array.device_type = ARROW_DEVICE_CPU;
  out->array.device_id = -1;
  out->array.array = (struct ArrowArray){.length = (int64_t)n, .n_buffers = 1, .buffers = root->buffers, .n_children = 1,
                                         .children = root->children, .release = release_batch, .private_data = root};
  return CROSSDOCK_OK;
}

static crossdock_code ids(crossdock_instance* instance, const crossdock_str** out, size_t* n_out, crossdock_error* err) {
  static const crossdock_str IDS[] = {TEXT("base.reference")};
  (void)instance, (void)err;
  *out = IDS;
  *n_out = 1;
  return CROSSDOCK_OK;
}

const crossdock_encoding BASE_ENCODING = {
    .struct_size = sizeof BASE_ENCODING, .ids = ids, .check = check, .size = size, .lower = lower, .decode = decode};
