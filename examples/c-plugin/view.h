/* A look at the values of a column that somebody else made: an offset, a bitmap, perhaps a dictionary. */
#ifndef CSV_VIEW_H
#define CSV_VIEW_H

#include "crossdock.h"
#include "types.h"

/* How a column's values are found: at their rows, or through indices into a dictionary. */
typedef struct csv_kind {
  const csv_type* type;    /* of what is printed */
  const csv_type* indices; /* NULL: there is no dictionary */
} csv_kind;

/* False where its values have no text here. */
bool csv_kind_of(const struct ArrowSchema* schema, csv_kind* out);

typedef struct csv_view {
  const csv_type* type;
  const unsigned char* validity; /* NULL: there are no nulls */
  const unsigned char* values;   /* values, bits, or offsets */
  const char* text;
  int64_t offset; /* into the buffers */
  int64_t length;
  int64_t text_end; /* where the last value's text ends */
} csv_view;

/* Looks at `length` values of `array` from `from` on, and at whether its buffers can hold them. `sizes` has its buffers'
 * sizes, -1 where nobody knows; NULL: of none. `name` is the column's, for errors. */
crossdock_code csv_view_make(csv_view* view, const csv_type* type, const struct ArrowArray* array, int64_t from,
                             int64_t length, const int64_t* sizes, const char* name, crossdock_error* err);

bool csv_view_is_null(const csv_view* view, int64_t row);

/* A value of fixed width; a bool as one byte, 0 or 1. */
void csv_view_value(const csv_view* view, int64_t row, void* to);

/* A text; false if its offsets contradict each other. */
bool csv_view_text(const csv_view* view, int64_t row, const char** text, size_t* bytes);

#endif
