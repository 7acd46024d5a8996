/* Nothing is decoded here: a node says what it is made of, and the host makes it, on the host or on a GPU, in one pass with the
 * encodings above and below. The node's type is Float32 or Float64; its metadata is the scale, a float of that type,
 * little-endian; its one child has the integers, signed ones of as many bytes or fewer, and the nulls. */
#include "csv.h"

#include <inttypes.h>

#define bad_data(err, ...) (fail(&(task){.err = (err)}, CROSSDOCK_BAD_DATA, SCALED_ID ": " __VA_ARGS__), CROSSDOCK_BAD_DATA)

static const crossdock_encoded_node* node_at(const crossdock_encoded_array* array, size_t i) {
  return CROSSDOCK_AT(array->nodes, i);
}

/* Bytes of a value of a type whose format is one of four letters, for 1, 2, 4 and 8 bytes; 0 for any other. */
static size_t width_of(const struct ArrowSchema* schema, const char* letters) {
  const char* found;
  if (!schema || !schema->format || schema->dictionary || strlen(schema->format) != 1) return 0;
  found = strchr(letters, schema->format[0]);
  return found ? (size_t)1 << (found - letters) : 0;
}

static size_t width_of_float(const struct ArrowSchema* schema) {
  size_t width = width_of(schema, "??fg");
  return width < 4 ? 0 : width;
}

static size_t width_of_integer(const struct ArrowSchema* schema) { return width_of(schema, "csil"); }

/* All of it comes from outside. */
static crossdock_code check(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                            crossdock_error* err) {
  const crossdock_encoded_node* node = node_at(array, at);
  const crossdock_encoded_node* child;
  size_t width = width_of_float(node->schema), narrow;
  (void)instance;
  if (width == 0) return bad_data(err, "its type is neither Float32 nor Float64");
  if (node->metadata_bytes != width)
    return bad_data(err, "its metadata has %zu bytes, expected a scale of %zu",
                    node->metadata_bytes, width);
  if (node->n_buffers != 0 || node->n_children != 1)
    return bad_data(err, "it has %" PRIu32 " buffers and %" PRIu32 " children, expected none and one",
                    node->n_buffers, node->n_children);
  child = node_at(array, at + 1);
  narrow = width_of_integer(child->schema);
  if (narrow == 0 || narrow > width || child->length != node->length)
    return bad_data(err, "its child has %" PRIu64 " values, expected %" PRIu64 " of Int%zu or narrower",
                    child->length, node->length, width * 8);
  return CROSSDOCK_OK;
}

static crossdock_code size(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                           int64_t* out_bytes, crossdock_error* err) {
  crossdock_code code = check(instance, array, at, err);
  const crossdock_encoded_node* node = node_at(array, at);
  if (code != CROSSDOCK_OK) return code;
  if (node->length > INT64_MAX / 16)
    return bad_data(err, "%" PRIu64 " values are more than there can be", node->length);
  *out_bytes = (int64_t)(node->length * node->metadata_bytes + node->length / 8 + 1);
  return CROSSDOCK_OK;
}

static crossdock_code lower(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                            crossdock_operator* out, size_t capacity, size_t* n_out, crossdock_error* err) {
  crossdock_code code = check(instance, array, at, err);
  const crossdock_encoded_node* node = node_at(array, at);
  uint64_t scale = 0;
  int same;
  (void)capacity; /* no less than CROSSDOCK_MAX_OPERATORS */
  if (code != CROSSDOCK_OK) return code;
  for (size_t i = 0; i < node->metadata_bytes; i++) scale |= (uint64_t)((const unsigned char*)node->metadata)[i] << 8 * i;
  /* Children of the same width are one pass with the node; others are made wider on the way. */
  same = width_of_integer(node_at(array, at + 1)->schema) == node->metadata_bytes;
  out[0] = (crossdock_operator){.code = same ? CROSSDOCK_OP_CHILD : CROSSDOCK_OP_CAST, .index = 0};
  out[1] = (crossdock_operator){.code = CROSSDOCK_OP_TO_FLOAT};
  out[2] = (crossdock_operator){.code = CROSSDOCK_OP_SCALE, .a = scale};
  *n_out = 3;
  return CROSSDOCK_OK;
}

static crossdock_code ids(crossdock_instance* instance, const crossdock_str** out, size_t* n_out, crossdock_error* err) {
  static const crossdock_str IDS[] = {TEXT(SCALED_ID)};
  (void)instance, (void)err;
  *out = IDS;
  *n_out = 1;
  return CROSSDOCK_OK;
}

const crossdock_encoding scaled_encoding = {
    .struct_size = sizeof scaled_encoding, .ids = ids, .check = check, .size = size, .lower = lower};
