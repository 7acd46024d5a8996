/*
 * The Crossdock plugin `@NAME@`, which decodes `@ID@`.
 *
 * Replace this minimal encoding: it stores 32-bit integers as differences from a reference. The
 * metadata is the reference (4 bytes, little-endian), and the only buffer has the differences.
 * There are no children and no nulls.
 *
 * There is no `plan`, so nodes are decoded on the CPU. If buffers are on another device, the host
 * copies them to the CPU, and copies the decoded batch back to the device.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crossdock.h"

#define TEXT(literal) {literal, sizeof(literal) - 1}

struct crossdock_instance {
  const crossdock_host* host; /* valid until `destroy` returns */
};

/* `fail` fills in `err`, which may be NULL. All fields of `err` except the size are zero before.
 * The message is a copy that `release_error` frees. A message names the plugin, the fault, the
 * expected and the actual value, and a remedy. */
static void release_error(crossdock_error* err) {
  free(err->private_data);
  err->release = NULL;
}

static crossdock_code fail(crossdock_error* err, crossdock_code code, const char* message, uint64_t number) {
  char text[256];
  if (!err) return code;
  snprintf(text, sizeof text, message, number);
  err->code = code;
  err->message = "@ID@: no memory for a message";
  err->private_data = malloc(strlen(text) + 1);
  if (err->private_data) {
    err->message = strcpy(err->private_data, text);
    err->release = release_error;
  }
  return code;
}

static const crossdock_encoded_node* node_at(const crossdock_encoded_array* array, size_t i) {
  return CROSSDOCK_AT(array->nodes, i);
}

static const crossdock_encoded_buffer* buffer_at(const crossdock_encoded_array* array, size_t i) {
  return CROSSDOCK_AT(array->buffers, i);
}

/* Checks a node, without reading its buffers. Nodes are untrusted input: anything malformed is an
 * error. */
static crossdock_code check(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                            crossdock_error* err) {
  const crossdock_encoded_node* node = node_at(array, at);
  (void)instance;
  if (!node->schema || strcmp(node->schema->format, "i") != 0 || node->schema->flags & ARROW_FLAG_NULLABLE ||
      node->schema->dictionary)
    return fail(err, CROSSDOCK_BAD_DATA, "@ID@: expected the type Int32 without nulls", 0);
  if (node->metadata_bytes != 4)
    return fail(err, CROSSDOCK_BAD_DATA, "@ID@: the metadata has %" PRIu64 " bytes, expected 4",
                node->metadata_bytes);
  if (node->n_buffers != 1 || node->n_children != 0)
    return fail(err, CROSSDOCK_BAD_DATA, "@ID@: the node has %" PRIu64 " buffers and children, expected one buffer",
                (uint64_t)node->n_buffers + node->n_children);
  if (node->length > INT64_MAX / 4)
    return fail(err, CROSSDOCK_BAD_DATA, "@ID@: the length %" PRIu64 " is too large", node->length);
  if (buffer_at(array, node->first_buffer)->bytes != node->length * 4)
    return fail(err, CROSSDOCK_BAD_DATA, "@ID@: the buffer has %" PRIu64 " bytes, expected 4 for each value",
                buffer_at(array, node->first_buffer)->bytes);
  return CROSSDOCK_OK;
}

static crossdock_code size(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                           const crossdock_row_range* rows, int64_t* out_bytes, crossdock_error* err) {
  crossdock_code code = check(instance, array, at, err);
  if (code == CROSSDOCK_OK) *out_bytes = (int64_t)((rows->end - rows->begin) * 4);
  return code;
}

/* Plans to decode only the wanted rows, on the CPU. Without this function, `decode` must return all
 * rows of the node, and the host drops the others. */
static crossdock_code plan(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                           crossdock_device wanted, const crossdock_row_range* wanted_rows,
                           crossdock_decode_plan* out, crossdock_error* err) {
  (void)instance, (void)array, (void)at, (void)wanted, (void)err;
  out->rows = *wanted_rows;
  return CROSSDOCK_OK;
}

/* A batch is a struct array whose child is the column. The child may be moved out, so it owns its
 * buffers. */
typedef struct column {
  int32_t* values;
  const void* buffers[2]; /* validity: NULL for no nulls; values */
} column;

typedef struct batch {
  struct ArrowArray column;
  struct ArrowArray* children[1];
  const void* buffers[1];
} batch;

static void release_column(struct ArrowArray* array) {
  column* data = array->private_data;
  free(data->values);
  free(data);
  array->release = NULL;
}

static void release_batch(struct ArrowArray* array) {
  batch* data = array->private_data;
  if (data->column.release) data->column.release(&data->column); /* unless it was moved out */
  free(data);
  array->release = NULL;
}

/* Takes ownership of `values` on success. */
static crossdock_code export_batch(int32_t* values, int64_t rows, crossdock_batch* out, crossdock_error* err) {
  batch* data = calloc(1, sizeof *data);
  column* inner = calloc(1, sizeof *inner);
  if (!data || !inner) {
    free(data);
    free(inner);
    return fail(err, CROSSDOCK_OUT_OF_MEMORY, "@ID@: no memory for a batch", 0);
  }
  inner->values = values;
  inner->buffers[1] = values;
  data->children[0] = &data->column;
  data->column = (struct ArrowArray){.length = rows, .n_buffers = 2, .buffers = inner->buffers,
                                     .release = release_column, .private_data = inner};
  out->array.device_type = ARROW_DEVICE_CPU;
  out->array.device_id = -1;
  out->array.array = (struct ArrowArray){.length = rows, .n_buffers = 1, .buffers = data->buffers, .n_children = 1,
                                         .children = data->children, .release = release_batch, .private_data = data};
  return CROSSDOCK_OK;
}

/* `below` contains the decoded children in the order of their nodes, and `decode` takes ownership
 * of the children. This encoding has no children. */
static crossdock_code decode(crossdock_instance* instance, const crossdock_call* call,
                             const crossdock_encoded_array* array, size_t at, const crossdock_row_range* rows,
                             crossdock_batch* below, size_t n_below, crossdock_batch* out, crossdock_error* err) {
  crossdock_code code = check(instance, array, at, err);
  const crossdock_encoded_node* node = node_at(array, at);
  const uint64_t n = rows->end - rows->begin;
  const unsigned char* bytes = node->metadata;
  const int32_t* stored;
  uint32_t reference;
  int32_t* values;
  (void)below, (void)n_below;
  if (code != CROSSDOCK_OK) return code;
  if (CROSSDOCK_IS_CANCELLED(call)) return fail(err, CROSSDOCK_CANCELLED, "cancelled", 0);
  reference = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
  stored = buffer_at(array, node->first_buffer)->address;
  values = malloc(n > 0 ? n * 4 : 1);
  if (!values) return fail(err, CROSSDOCK_OUT_OF_MEMORY, "@ID@: no memory for %" PRIu64 " values", n);
  for (uint64_t i = 0; i < n; i++) {
    uint32_t word; /* the buffer may be unaligned */
    memcpy(&word, (const char*)stored + 4 * (rows->begin + i), 4);
    values[i] = (int32_t)(word + reference);
  }
  code = export_batch(values, (int64_t)n, out, err);
  if (code != CROSSDOCK_OK) free(values);
  return code;
}

static const crossdock_str IDS[] = {TEXT("@ID@")};

static crossdock_code ids(crossdock_instance* instance, const crossdock_str** out, size_t* n_out, crossdock_error* err) {
  (void)instance, (void)err;
  *out = IDS;
  *n_out = sizeof IDS / sizeof *IDS;
  return CROSSDOCK_OK;
}

static const crossdock_encoding ENCODING = {
    .struct_size = sizeof ENCODING, .ids = ids, .check = check, .size = size, .plan = plan, .decode = decode};

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  crossdock_instance* instance = malloc(sizeof *instance);
  if (!instance) return fail(err, CROSSDOCK_OUT_OF_MEMORY, "@NAME@: no memory for an instance", 0);
  instance->host = host;
  *out = instance;
  return CROSSDOCK_OK;
}

static void destroy(crossdock_instance* instance) { free(instance); }

static const void* get_interface(crossdock_instance* instance, const char* id) {
  (void)instance;
  return strcmp(id, CROSSDOCK_ENCODING_ID) == 0 ? &ENCODING : NULL;
}

CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {
    .magic = CROSSDOCK_PLUGIN_MAGIC, .struct_size = sizeof(crossdock_plugin_entry), .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR, .create = create, .destroy = destroy, .get_interface = get_interface};

CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {
    .magic = CROSSDOCK_META_MAGIC, .struct_size = sizeof(crossdock_plugin_meta), .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR, .n_sizes = CROSSDOCK_META_N_SIZES, .sizes = CROSSDOCK_META_SIZES_INIT,
    .name = "@NAME@", .version = "0.1.0", .api_range = CROSSDOCK_API_RANGE, .licence = "Apache-2.0", .toolchain = "cc",
    .panic = "none", .interfaces = CROSSDOCK_ENCODING_ID, .encodings = "@ID@", .description = "decodes @ID@"};
