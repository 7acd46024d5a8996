/*
 * The encoding example.scaled stores floats as integers. Each float is the product of an integer
 * and a scale, which is the same for all values of a node.
 *
 * The plugin has no `decode`. It lowers a node to a program of operators, which the host runs on
 * the CPU or on a GPU, in one pass with the programs of parent and child nodes.
 *
 *     type      Float32 or Float64
 *     metadata  the scale, a little-endian float of the node's type
 *     child     signed integers that are at most as wide as the floats; a value of the node is null
 *               if the integer is null
 */
#include "csv.h"

#include <inttypes.h>

#define bad_data(err, ...) (fail(&(task){.err = (err)}, CROSSDOCK_BAD_DATA, SCALED_ID ": " __VA_ARGS__), CROSSDOCK_BAD_DATA)

static const crossdock_encoded_node* node_at(const crossdock_encoded_array* array, size_t i) {
  return CROSSDOCK_AT(array->nodes, i);
}

/* Returns the width of a value in bytes. `letters` are four format letters for the widths 1, 2, 4
 * and 8. Returns 0 if the schema's format is none of these letters. */
static size_t width_of(const struct ArrowSchema* schema, const char* letters) {
  const char* letter;
  if (!schema || !schema->format || schema->dictionary || strlen(schema->format) != 1) return 0;
  letter = strchr(letters, schema->format[0]);
  return letter ? (size_t)1 << (letter - letters) : 0;
}

static size_t width_of_float(const struct ArrowSchema* schema) {
  size_t width = width_of(schema, "??fg");
  return width < 4 ? 0 : width;
}

static size_t width_of_integer(const struct ArrowSchema* schema) { return width_of(schema, "csil"); }

/* Checks a node, which is untrusted input. */
static crossdock_code check(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                            crossdock_error* err) {
  const crossdock_encoded_node* node = node_at(array, at);
  const crossdock_encoded_node* child;
  size_t width = width_of_float(node->schema), child_width;
  (void)instance;
  if (width == 0) return bad_data(err, "its type is neither Float32 nor Float64");
  if (node->metadata_bytes != width)
    return bad_data(err, "its metadata has %zu bytes, expected a scale of %zu",
                    node->metadata_bytes, width);
  if (node->n_buffers != 0 || node->n_children != 1)
    return bad_data(err, "it has %" PRIu32 " buffers and %" PRIu32 " children, expected none and one",
                    node->n_buffers, node->n_children);
  child = node_at(array, at + 1);
  child_width = width_of_integer(child->schema);
  if (child_width == 0 || child_width > width || child->length != node->length)
    return bad_data(err, "its child has %" PRIu64 " values, expected %" PRIu64 " of Int%zu or narrower",
                    child->length, node->length, width * 8);
  return CROSSDOCK_OK;
}

static crossdock_code size(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                           const crossdock_row_range* rows, int64_t* out_bytes, crossdock_error* err) {
  crossdock_code code = check(instance, array, at, err);
  const crossdock_encoded_node* node = node_at(array, at);
  const uint64_t n = rows->end - rows->begin;
  if (code != CROSSDOCK_OK) return code;
  if (node->length > INT64_MAX / 16)
    return bad_data(err, "%" PRIu64 " values are more than an array can have", node->length);
  *out_bytes = (int64_t)(n * node->metadata_bytes + n / 8 + 1);
  return CROSSDOCK_OK;
}

static crossdock_code lower(crossdock_instance* instance, const crossdock_encoded_array* array, size_t at,
                            crossdock_operator* out, size_t capacity, size_t* n_out, crossdock_error* err) {
  crossdock_code code = check(instance, array, at, err);
  const crossdock_encoded_node* node = node_at(array, at);
  uint64_t scale = 0;
  int is_same_width;
  (void)capacity; /* at least CROSSDOCK_MAX_OPERATORS */
  if (code != CROSSDOCK_OK) return code;
  for (size_t i = 0; i < node->metadata_bytes; i++) scale |= (uint64_t)((const unsigned char*)node->metadata)[i] << 8 * i;
  /* CHILD uses the integers unchanged if they have the width of the node. Otherwise CAST widens
   * them. */
  is_same_width = width_of_integer(node_at(array, at + 1)->schema) == node->metadata_bytes;
  out[0] = (crossdock_operator){.code = is_same_width ? CROSSDOCK_OP_CHILD : CROSSDOCK_OP_CAST, .index = 0};
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
