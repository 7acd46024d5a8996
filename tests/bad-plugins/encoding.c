/* The encoding `base.reference`: 32-bit integers, stored as differences from a reference. The
 * metadata is the reference (4 bytes). The only buffer contains the differences. A node has no
 * children and no nulls. */
#include "base.h"

static const crossdock_encoded_node* node_at(const crossdock_encoded_array* array, size_t i) {
  return CROSSDOCK_AT(array->nodes, i);
}

static crossdock_encoded_buffer* buffer_at(const crossdock_encoded_array* array, size_t i) {
  return CROSSDOCK_AT(array->buffers, i);
}

static crossdock_code check(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                            crossdock_error* err) {
  const crossdock_encoded_node* node = node_at(array, at);
  (void)instance;
  if (!base_is(node->encoding, "base.reference") && !HAS(ANY_ENCODING))
    return base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: an unknown encoding");
  if (HAS(ANY_ENCODING) && !base_is(node->encoding, "base.reference")) return CROSSDOCK_OK;
  if (HAS(LOOKS_AT_DEVICE_MEMORY) && node->n_buffers > 0 && buffer_at(array, node->first_buffer)->bytes > 0 &&
      *(const volatile char*)buffer_at(array, node->first_buffer)->address == 1)
    return CROSSDOCK_OK;
  if (!node->schema || strcmp(node->schema->format, "i") != 0 || node->schema->flags & ARROW_FLAG_NULLABLE)
    return base_fail(err, HAS(PANICS_ON_NODES) ? CROSSDOCK_PANICKED : CROSSDOCK_BAD_DATA,
                     "base.reference: expected the type Int32 without nulls");
  if (node->metadata_bytes != 4 || node->n_buffers != 1 || node->n_children != 0)
    return base_fail(err, CROSSDOCK_BAD_DATA, "base.reference: expected 4 bytes of metadata, one buffer and no children");
  if (HAS(ASSERTS_ON_NODES) || HAS(PANICS_ON_CHANGED_NODES)) return CROSSDOCK_OK;
  if (node->length > INT64_MAX / 4 || buffer_at(array, node->first_buffer)->bytes != node->length * 4)
    return base_fail(err, CROSSDOCK_BAD_DATA, "base.reference: expected a buffer of 4 bytes per value");
  return CROSSDOCK_OK;
}

static crossdock_code children(crossdock_instance* instance, const crossdock_encoded_node* node,
                               struct ArrowSchema* schemas, uint64_t* lengths, crossdock_error* err) {
  (void)instance, (void)schemas, (void)lengths;
  if (node->n_children == 0 || HAS(CHILD_TYPES_MISSING)) return CROSSDOCK_OK;
  return base_fail(err, CROSSDOCK_BAD_DATA, "base.reference: expected no children");
}

static crossdock_code size(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                           const crossdock_row_range* rows, int64_t* out_bytes, crossdock_error* err) {
  crossdock_code code = check(instance, array, at, err);
  if (code == CROSSDOCK_OK) *out_bytes = (int64_t)((rows->end - rows->begin) * 4);
  return code;
}

static crossdock_code plan(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                           crossdock_device wanted, const crossdock_row_range* wanted_rows, crossdock_decode_plan* out,
                           crossdock_error* err) {
  (void)instance, (void)array, (void)at, (void)wanted, (void)err;
  out->rows = *wanted_rows;
  if (HAS(PLAN_LACKS_ROWS) && wanted_rows->begin > 0) out->rows.begin++;
  return CROSSDOCK_OK;
}

static uint32_t reference_of(const crossdock_encoded_node* node) {
  uint32_t reference;
  memcpy(&reference, node->metadata, sizeof reference);
  return reference;
}

static crossdock_code lower(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                            crossdock_operator* out, size_t capacity, size_t* n_out, crossdock_error* err) {
  crossdock_code code = check(instance, array, at, err);
  (void)capacity;
  if (code != CROSSDOCK_OK) return code;
  out[0] = (crossdock_operator){CROSSDOCK_OP_LOAD, 0, 0, 0};
  out[1] = (crossdock_operator){CROSSDOCK_OP_ADD, 0, reference_of(node_at(array, at)) + HAS(PROGRAM_DIFFERS), 0};
  *n_out = 2;
  return CROSSDOCK_OK;
}

/* Decodes rows of a valid node into malloc'ed memory. Returns NULL if memory is exhausted. */
static int32_t* values_of(const crossdock_encoded_array* array, const crossdock_encoded_node* node, uint64_t first, uint64_t n) {
  const char* words = buffer_at(array, node->first_buffer)->address;
  int32_t* values = malloc(n * 4 + 1);
  for (uint64_t i = 0; values && i < n; i++) {
    uint32_t word;
    memcpy(&word, words + 4 * (first + i), 4);
    values[i] = (int32_t)(word + reference_of(node));
  }
  if (HAS(DECODE_READS_BEHIND) && values && *(const volatile char*)(words + 4 * node->length) == 1) values[0] += 0;
  return values;
}

/* Creates a batch of the values. If `lies_in` is not NULL, the batch uses this buffer in place.
 * Otherwise the values are copied to memory of the host. */
static crossdock_code give(crossdock_instance* instance, const crossdock_call* call, const int32_t* values, const void* lies_in,
                           uint64_t n, crossdock_batch* out, crossdock_error* err) {
  base_column* own = base_column_new(instance, 1, err);
  crossdock_stream* stream;
  crossdock_code code;
  if (!own) return CROSSDOCK_OUT_OF_MEMORY;
  code = base_column_stream(own, call, &stream, err);
  if (lies_in) own->buffers[1] = lies_in;
  else if (code == CROSSDOCK_OK) code = base_column_fill(own, 1, values, n * 4, stream, err);
  if (code == CROSSDOCK_OK) code = base_column_give(own, stream, (int64_t)n, 0, out, err);
  if (code == CROSSDOCK_OK && HAS(DECODED_COUNTS_ROWS)) out->n_rows_device = &out->array.array.children[0]->length;
  if (code != CROSSDOCK_OK) base_column_free(own);
  return code;
}

static crossdock_code decode(crossdock_instance* instance, const crossdock_call* call, const crossdock_encoded_array* array,
                             size_t at, const crossdock_row_range* rows, crossdock_batch* below, size_t n_below,
                             crossdock_batch* out, crossdock_error* err) {
  const crossdock_encoded_node* node = node_at(array, at);
  crossdock_code code = check(instance, array, at, err);
  const uint64_t first = HAS(DECODES_FIRST_ROWS) ? 0 : rows->begin, n = rows->end - rows->begin;
  uint64_t scratch;
  const void* lies_in = NULL;
  int32_t* values;
  (void)below, (void)n_below;
  if (code == CROSSDOCK_OK && !HAS(DECODE_CANCEL_IGNORED)) code = base_cancelled(call, err);
  if (code != CROSSDOCK_OK) return code;
  if (HAS(DECODE_THREAD_BOUND) && !thrd_equal(instance->thread, thrd_current()))
    return base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base.reference: the instance belongs to another thread");
  if (HAS(ASSERTS_ON_NODES) && buffer_at(array, node->first_buffer)->bytes != node->length * 4) abort();
  if (HAS(PANICS_ON_CHANGED_NODES) && buffer_at(array, node->first_buffer)->bytes != node->length * 4)
    return base_fail(err, CROSSDOCK_PANICKED, "base.reference: an unexpected buffer size");
  values = values_of(array, node, first, n);
  if (!values) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base.reference: no memory for values");
  if (HAS(DECODED_NEEDS_INSTANCE)) {
    code = base_numbers_give(NULL, values, (int64_t)n, out, err);
    if (code == CROSSDOCK_OK) base_make_needy(&out->array.array, instance);
    return code;
  }
  scratch = base_scratch_take(HAS(DECODE_DRIVER_MEMORY));
  if (HAS(DECODED_LIES_IN_BUFFER) && reference_of(node) == 0) lies_in = (const char*)buffer_at(array, node->first_buffer)->address + 4 * first;
  code = give(instance, call, values, lies_in, n, out, err);
  base_scratch_give(scratch);
  free(values);
  if (HAS(DECODE_BUFFER_LOST)) buffer_at(array, node->first_buffer)->release = NULL;
  if (call->progress) call->progress(call->progress_data, n * 4 + (HAS(DECODE_PROGRESS_BEYOND) ? 1 << 20 : 0), n * 4);
  return code;
}

static crossdock_code ids(crossdock_instance* instance, const crossdock_str** out, size_t* n_out, crossdock_error* err) {
  static const crossdock_str IDS[] = {TEXT("base.reference")};
  (void)instance, (void)err;
  *out = IDS;
  *n_out = 1;
  return CROSSDOCK_OK;
}

const crossdock_encoding BASE_ENCODING = {
    .struct_size = sizeof BASE_ENCODING, .ids = ids, .check = check, .children = children, .size = size, .lower = lower,
    .plan = plan, .decode = decode};
