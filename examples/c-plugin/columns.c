#include "columns.h"

#include <stdio.h>

#include "alloc.h"
#include "error.h"
#include "text.h"

crossdock_code csv_columns_make(csv_columns* columns, size_t n, crossdock_error* err) {
  memset(columns, 0, sizeof *columns);
  columns->items = csv_zeroed(n, sizeof *columns->items);
  if (!columns->items) return csv_no_memory(err);
  columns->n = n;
  for (size_t i = 0; i < n; i++) columns->items[i].flags = ARROW_FLAG_NULLABLE;
  return CROSSDOCK_OK;
}

void csv_columns_free(csv_columns* columns) {
  for (size_t i = 0; i < columns->n; i++) {
    CSV_FREE(columns->items[i].name);
    CSV_FREE(columns->items[i].format);
    CSV_FREE(columns->items[i].metadata);
  }
  CSV_FREE(columns->items);
  CSV_FREE(columns->metadata);
  memset(columns, 0, sizeof *columns);
}

crossdock_code csv_column_set_type(csv_column* column, const csv_type* type, const char* zone, size_t zone_bytes,
                                   crossdock_error* err) {
  size_t bytes = strlen(type->format);
  char* format = csv_zeroed(bytes + zone_bytes, 1);
  if (!format) return csv_no_memory(err);
  memcpy(format, type->format, bytes);
  if (zone_bytes) memcpy(format + bytes, zone, zone_bytes);
  CSV_FREE(column->format);
  column->format = format;
  column->type = type;
  return CROSSDOCK_OK;
}

const char* csv_type_show(const csv_column* column, csv_type_text* room) {
  const char* zone = column->format + strlen(column->type->format);
  snprintf(room->text, sizeof room->text, "%s%.60s%s", column->type->name, column->type->zoned ? zone : "",
           column->type->zoned ? "]" : "");
  return room->text;
}

/* ------------------------------------------------------------------------------------- from the caller's schema --- */

/* Arrow's encoding: how many pairs, then each one's key and value, every one behind its length. */
static crossdock_code copy_metadata(const char* from, char** out, crossdock_error* err) {
  int32_t pairs, length;
  size_t bytes = sizeof pairs;
  if (!from) return CROSSDOCK_OK;
  memcpy(&pairs, from, sizeof pairs);
  for (int64_t i = 0; i < 2 * (int64_t)pairs; i++) {
    memcpy(&length, from + bytes, sizeof length);
    if (length < 0) return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "the schema's metadata has a length of %d", length);
    bytes += sizeof length + (size_t)length;
  }
  *out = csv_copy_text(from, bytes);
  return *out ? CROSSDOCK_OK : csv_no_memory(err);
}

static crossdock_code copy_column(csv_column* column, const struct ArrowSchema* from, crossdock_error* err) {
  const char* name = from->name ? from->name : "";
  const csv_type* type = from->dictionary || !from->format ? NULL : csv_type_of_format(from->format);
  size_t known;
  csv_shown shown;
  crossdock_code code;
  if (!type)
    return csv_fail(err, CROSSDOCK_UNSUPPORTED,
                    "column %s: CSV is not read as Arrow format '%s'%s; expected one of " CSV_TYPE_NAMES
                    ", which can be cast afterwards",
                    csv_show(&shown, name, strlen(name)), from->format ? from->format : "", from->dictionary ? " with a dictionary" : "");
  known = strlen(type->format);
  code = csv_column_set_type(column, type, from->format + known, strlen(from->format) - known, err);
  if (code != CROSSDOCK_OK) return code;
  column->flags = from->flags;
  column->name = csv_copy_text(name, strlen(name));
  if (!column->name) return csv_no_memory(err);
  return copy_metadata(from->metadata, &column->metadata, err);
}

crossdock_code csv_columns_of_schema(csv_columns* columns, const struct ArrowSchema* schema, crossdock_error* err) {
  crossdock_code code;
  if (!schema->format || strcmp(schema->format, "+s") != 0 || schema->n_children < 1)
    return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "the schema: expected a struct of one column or more (format '+s')");
  code = csv_columns_make(columns, (size_t)schema->n_children, err);
  for (size_t i = 0; code == CROSSDOCK_OK && i < columns->n; i++)
    code = copy_column(&columns->items[i], schema->children[i], err);
  if (code == CROSSDOCK_OK) code = copy_metadata(schema->metadata, &columns->metadata, err);
  return code;
}

/* ------------------------------------------------------------------------------------------------ from `types=` --- */

/* The only column of this name, or an error. */
static crossdock_code find(const csv_columns* columns, const char* name, size_t bytes, csv_column** out,
                           crossdock_error* err) {
  csv_shown shown;
  *out = NULL;
  for (size_t i = 0; i < columns->n; i++) {
    const char* other = columns->items[i].name;
    if (strlen(other) != bytes || memcmp(other, name, bytes) != 0) continue;
    if (*out)
      return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "option 'types': several columns are called %s",
                      csv_show(&shown, name, bytes));
    *out = &columns->items[i];
  }
  if (*out) return CROSSDOCK_OK;
  return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "option 'types': there is no column %s", csv_show(&shown, name, bytes));
}

/* One "name:type". A name may hold colons, and a zone commas: the type begins behind the last colon that is not in
 * brackets, and ends before the first comma that is not. */
static crossdock_code set_type(csv_columns* columns, const char* text, size_t bytes, crossdock_error* err) {
  size_t colon = bytes, zone_bytes;
  const char* zone;
  const csv_type* type;
  csv_column* column;
  csv_shown shown;
  crossdock_code code;
  for (size_t i = 0, depth = 0; i < bytes; i++) {
    if (text[i] == '[') depth++;
    if (text[i] == ']' && depth > 0) depth--;
    if (text[i] == ':' && depth == 0) colon = i;
  }
  if (colon == bytes)
    return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "option 'types': expected name:type, got %s",
                    csv_show(&shown, text, bytes));
  type = csv_type_of_name(text + colon + 1, bytes - colon - 1, &zone, &zone_bytes);
  if (!type)
    return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "option 'types': %s is no type; expected one of " CSV_TYPE_NAMES,
                    csv_show(&shown, text + colon + 1, bytes - colon - 1));
  code = find(columns, text, colon, &column, err);
  return code != CROSSDOCK_OK ? code : csv_column_set_type(column, type, zone, zone_bytes, err);
}

crossdock_code csv_columns_set_types(csv_columns* columns, crossdock_str types, crossdock_error* err) {
  for (size_t from = 0; from < types.bytes;) {
    size_t to = from, depth = 0;
    crossdock_code code;
    for (; to < types.bytes && (depth > 0 || types.data[to] != ','); to++) {
      if (types.data[to] == '[') depth++;
      if (types.data[to] == ']' && depth > 0) depth--;
    }
    code = set_type(columns, types.data + from, to - from, err);
    if (code != CROSSDOCK_OK) return code;
    from = to + 1;
  }
  return CROSSDOCK_OK;
}

/* ------------------------------------------------------------------------------------------------ to ArrowSchema --- */

/* The children's structs and the list of them are one allocation, the schema's; their texts are their own. */

static void release_child(struct ArrowSchema* child) {
  CSV_FREE((char*)child->name);
  CSV_FREE((char*)child->format);
  CSV_FREE((char*)child->metadata);
  child->release = NULL;
}

static void release_schema(struct ArrowSchema* schema) {
  for (int64_t i = 0; i < schema->n_children; i++)
    if (schema->children[i]->release) schema->children[i]->release(schema->children[i]);
  CSV_FREE((char*)schema->metadata);
  CSV_FREE(schema->private_data);
  schema->release = NULL;
}

static crossdock_code export_child(const csv_column* column, struct ArrowSchema* out, crossdock_error* err) {
  char *name = csv_copy_text(column->name, strlen(column->name)), *metadata = NULL;
  char* format = csv_copy_text(column->format, strlen(column->format));
  crossdock_code code = name && format ? copy_metadata(column->metadata, &metadata, err) : csv_no_memory(err);
  *out = (struct ArrowSchema){
      .format = format, .name = name, .metadata = metadata, .flags = column->flags, .release = release_child};
  if (code != CROSSDOCK_OK) release_child(out);
  return code;
}

crossdock_code csv_columns_export(const csv_columns* columns, struct ArrowSchema* out, crossdock_error* err) {
  const size_t each = sizeof(struct ArrowSchema) + sizeof(struct ArrowSchema*);
  struct ArrowSchema schema = {.format = "+s", .name = "", .release = release_schema};
  struct ArrowSchema* structs = csv_zeroed(columns->n, each);
  char* metadata = NULL;
  crossdock_code code = CROSSDOCK_OK;
  if (!structs) return csv_no_memory(err);
  schema.private_data = structs;
  schema.children = (struct ArrowSchema**)(structs + columns->n);
  for (size_t i = 0; code == CROSSDOCK_OK && i < columns->n; i++) {
    schema.children[i] = &structs[i];
    code = export_child(&columns->items[i], &structs[i], err);
    if (code == CROSSDOCK_OK) schema.n_children++;
  }
  if (code == CROSSDOCK_OK) code = copy_metadata(columns->metadata, &metadata, err);
  schema.metadata = metadata;
  if (code != CROSSDOCK_OK) {
    schema.release(&schema);
    return code;
  }
  *out = schema;
  return CROSSDOCK_OK;
}
