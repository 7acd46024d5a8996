/* The columns of a table: their names and types, from a header, from the caller, or inferred; to and from ArrowSchema. */
#ifndef CSV_COLUMNS_H
#define CSV_COLUMNS_H

#include <stdbool.h>

#include "crossdock.h"
#include "types.h"

typedef struct csv_column {
  const csv_type* type; /* NULL: not known yet */
  char* name;           /* NUL-terminated UTF-8, as all texts here */
  char* format;         /* Arrow's, whole */
  char* metadata;       /* as ArrowSchema.metadata, or NULL */
  int64_t flags;
  bool inferred;
} csv_column;

typedef struct csv_columns {
  csv_column* items;
  size_t n;
  char* metadata; /* the table's own */
} csv_columns;

/* `n` columns without names and types, which may be null. */
crossdock_code csv_columns_make(csv_columns* columns, size_t n, crossdock_error* err);
void csv_columns_free(csv_columns* columns);

/* As the caller's schema says; a type that is not read is an error that names the column. */
crossdock_code csv_columns_of_schema(csv_columns* columns, const struct ArrowSchema* schema, crossdock_error* err);

/* Takes the types that `types=` names. */
crossdock_code csv_columns_set_types(csv_columns* columns, crossdock_str types, crossdock_error* err);

/* Gives one a type; `zone` (of a zoned timestamp) is copied. */
crossdock_code csv_column_set_type(csv_column* column, const csv_type* type, const char* zone, size_t zone_bytes,
                                   crossdock_error* err);

/* A schema of its own, which its owner releases. */
crossdock_code csv_columns_export(const csv_columns* columns, struct ArrowSchema* out, crossdock_error* err);

/* The type's name for a message: "timestamp[s, UTC]". */
typedef struct csv_type_text {
  char text[96];
} csv_type_text;
const char* csv_type_show(const csv_column* column, csv_type_text* room);

#endif
