/* Reads the format `base-tensor`: unversioned DLPack tensors (`dltensor`) with one dimension of
 * 64-bit integers in host memory. The values are copied. */
#include "base.h"

typedef struct tensor {
  void* data;
  struct { uint32_t type; int32_t id; } device;
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} tensor;

typedef struct managed {
  tensor own;
  void* context;
  void (*deleter)(struct managed*);
} managed;

typedef struct reader {
  int64_t* values;
  int64_t rows;
} reader;

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  struct ArrowSchema schema = base_numbers_schema("number", 0);
  (void)stream;
  if (!schema.release) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-tensor: no memory for a schema");
  *out = schema;
  return CROSSDOCK_OK;
}

static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  reader* r = stream->private_data;
  int64_t* values = r->values;
  if (base_cancelled(call, err) != CROSSDOCK_OK) return CROSSDOCK_CANCELLED;
  if (!values) return CROSSDOCK_OK;
  r->values = NULL;
  return base_numbers_give(NULL, values, r->rows, out, err);
}

static void release_reader(crossdock_batch_stream* stream) {
  reader* r = stream->private_data;
  free(r->values);
  free(r);
  stream->release = NULL;
}

/* Returns the error message, or NULL if the tensor is accepted. `*code` distinguishes unsupported
 * and malformed tensors. */
static const char* refuse(const tensor* t, crossdock_code* code) {
  const int64_t most = INT64_MAX / 16;
  *code = HAS(PANICS_ON_TENSORS) ? CROSSDOCK_PANICKED : CROSSDOCK_BAD_DATA;
  if (t->ndim < 0 || t->dtype.bits == 0 || t->dtype.lanes == 0) return "base-tensor: a malformed tensor";
  if (t->ndim > 0 && !t->shape) return "base-tensor: the shape is NULL";
  *code = CROSSDOCK_UNSUPPORTED;
  if (t->ndim != 1 || t->dtype.code != 0 || t->dtype.bits != 64 || t->dtype.lanes != 1)
    return "base-tensor: expected one dimension of 64-bit integers";
  if (t->device.type != ARROW_DEVICE_CPU) return "base-tensor: expected a tensor in host memory";
  *code = CROSSDOCK_BAD_DATA;
  if (t->shape[0] < 0) return "base-tensor: a negative number of rows";
  if (t->shape[0] > 0 && !t->data && !HAS(TENSOR_NOT_CHECKED)) return "base-tensor: the data pointer is NULL, but the tensor has rows";
  if (t->byte_offset > (uint64_t)most || t->shape[0] > most) return "base-tensor: the size overflows";
  if (t->strides && t->shape[0] > 1 && (t->strides[0] > most / t->shape[0] || t->strides[0] < -most / t->shape[0]))
    return "base-tensor: the strides overflow";
  return NULL;
}

static crossdock_code read_tensor(reader* r, const tensor* t, crossdock_error* err) {
  crossdock_code code;
  const char* wrong = refuse(t, &code);
  const char* first = (const char*)t->data + (wrong ? 0 : t->byte_offset);
  const int64_t stride = !wrong && t->strides && !HAS(TENSOR_STRIDES_IGNORED) ? t->strides[0] : 1;
  if (wrong) return base_fail(err, code, wrong);
  r->rows = t->shape[0];
  r->values = calloc((size_t)r->rows + 1, sizeof *r->values);
  if (!r->values) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-tensor: no memory for values");
  for (int64_t i = 0; i < r->rows; i++) memcpy(r->values + i, first + 8 * stride * i, 8);
  return CROSSDOCK_OK;
}

crossdock_code base_tensor_open(crossdock_capsules* capsules, const struct ArrowSchema* schema, crossdock_batch_stream* out,
                                crossdock_error* err) {
  reader* r = calloc(1, sizeof *r);
  crossdock_batch_stream partial = {.private_data = r};
  managed* taken = NULL;
  crossdock_code code = CROSSDOCK_OK;
  if (capsules->n_capsules == 1 && strcmp(capsules->capsules->name, "dltensor") == 0) {
    taken = capsules->capsules->pointer;
    capsules->capsules->pointer = NULL;
  }
  capsules->release(capsules);
  if (!r) code = base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-tensor: no memory for a reader");
  if (code == CROSSDOCK_OK && schema)
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base-tensor: expected no requested schema, because a tensor has a type");
  if (code == CROSSDOCK_OK && !taken)
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base-tensor: expected one capsule named dltensor");
  if (code == CROSSDOCK_OK) code = read_tensor(r, &taken->own, err);
  if (taken && taken->deleter && !HAS(TENSOR_LOST)) taken->deleter(taken);
  if (code != CROSSDOCK_OK) {
    if (r) release_reader(&partial);
    return code;
  }
  out->get_schema = get_schema;
  out->get_next = get_next;
  out->release = release_reader;
  out->private_data = r;
  return CROSSDOCK_OK;
}
