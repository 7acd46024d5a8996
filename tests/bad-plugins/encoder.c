/* The encoder to `base.reference` (see encoding.c): 32-bit integers without nulls, on the CPU. The
 * reference is the first value. */
#include "base.h"

/* The memory of an encoded array: a node, a buffer, the metadata, the schema and the words. */
typedef struct encoded {
  crossdock_encoded_node node;
  crossdock_encoded_buffer buffer;
  struct ArrowSchema schema;
  uint32_t reference;
  _Atomic int n_owners; /* the array, and the buffer while a consumer may move it out */
  uint32_t words[];
} encoded;

static void give_up(encoded* e) {
  if (--e->n_owners > 0) return;
  base_schema_release(&e->schema);
  free(e);
}

static void release_buffer(crossdock_encoded_buffer* buffer) {
  buffer->release = NULL;
  give_up(buffer->private_data);
}

static void release_array(crossdock_encoded_array* array) {
  encoded* e = array->private_data;
  array->release = NULL;
  if (e->buffer.release) e->buffer.release(&e->buffer);
  give_up(e);
}

static crossdock_code encode_column(const struct ArrowSchema* schema, const crossdock_batch* column,
                                    crossdock_encoded_array* out, crossdock_error* err) {
  const struct ArrowArray* values = column->array.array.children[0];
  const uint64_t n = (uint64_t)column->array.array.length;
  const int64_t first = column->array.array.offset + values->offset;
  encoded* e;
  if (column->array.device_type != ARROW_DEVICE_CPU)
    return base_fail(err, CROSSDOCK_UNSUPPORTED, "base.reference: columns are encoded only on the CPU");
  if (strcmp(schema->format, "i") != 0 || schema->dictionary || schema->flags & ARROW_FLAG_NULLABLE)
    return base_fail(err, CROSSDOCK_UNSUPPORTED, "base.reference: expected the type Int32 without nulls");
  e = calloc(1, sizeof *e + n * 4);
  if (!e) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base.reference: no memory for words");
  e->schema = base_schema_copy(schema);
  if (!e->schema.release) {
    free(e);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base.reference: no memory for a schema");
  }
  for (uint64_t i = 0; i < n; i++) {
    const uint32_t value = ((const uint32_t*)values->buffers[1])[(uint64_t)first + i];
    if (i == 0) e->reference = value;
    e->words[i] = value - e->reference;
  }
  if (HAS(ENCODES_LAST_AS_FIRST) && n > 1) e->words[n - 1] = 0;
  e->n_owners = 2;
  e->buffer = (crossdock_encoded_buffer){.struct_size = sizeof e->buffer, .address = n ? e->words : NULL, .bytes = n * 4,
                                         .alignment = 4, .device = BASE_CPU, .release = release_buffer, .private_data = e};
  e->node = (crossdock_encoded_node){.struct_size = sizeof e->node, .encoding = TEXT("base.reference"), .schema = &e->schema,
                                     .length = n, .metadata = &e->reference, .metadata_bytes = 4, .n_buffers = 1};
  *out = (crossdock_encoded_array){.struct_size = sizeof *out, .nodes = &e->node, .n_nodes = 1, .buffers = &e->buffer,
                                   .n_buffers = 1, .release = release_array, .private_data = e};
  return CROSSDOCK_OK;
}

static crossdock_code encode(crossdock_instance* instance, const crossdock_call* call, crossdock_str encoding,
                             const crossdock_option* options, size_t n_options, const struct ArrowSchema* schema,
                             crossdock_batch* column, crossdock_encoded_array* out, crossdock_error* err) {
  crossdock_code code = base_cancelled(call, err);
  (void)instance, (void)options;
  if (code == CROSSDOCK_OK && n_options > 0 && !HAS(ENCODE_OPTION_IGNORED))
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base.reference: an unknown option");
  if (code == CROSSDOCK_OK && !base_is(encoding, "base.reference") && !HAS(ENCODES_ANY))
    code = base_fail(err, CROSSDOCK_UNSUPPORTED, "base: an unknown encoding");
  if (code == CROSSDOCK_OK) code = encode_column(schema, column, out, err);
  if (!HAS(ENCODED_COLUMN_LOST)) column->array.array.release(&column->array.array);
  column->array.array.release = NULL;
  if (column->schema.release) column->schema.release(&column->schema);
  return code;
}

static crossdock_code ids(crossdock_instance* instance, const crossdock_str** out, size_t* n_out, crossdock_error* err) {
  static const crossdock_str IDS[] = {TEXT("base.reference")};
  (void)instance, (void)err;
  *out = IDS;
  *n_out = 1;
  return CROSSDOCK_OK;
}

const crossdock_encoder BASE_ENCODER = {.struct_size = sizeof BASE_ENCODER, .ids = ids, .encode = encode};
