#include "view.h"

#include <string.h>

#include "error.h"
#include "text.h"

bool csv_kind_of(const struct ArrowSchema* schema, csv_kind* out) {
  const csv_type* type = schema->format ? csv_type_of_format(schema->format) : NULL;
  memset(out, 0, sizeof *out);
  if (!schema->dictionary) {
    out->type = type;
    return type != NULL;
  }
  if (!type || !strchr("cCsSiIlL", schema->format[0]) || schema->dictionary->dictionary || !schema->dictionary->format)
    return false;
  out->indices = type;
  out->type = csv_type_of_format(schema->dictionary->format);
  return out->type != NULL;
}

static int64_t bits_bytes(int64_t bits) { return bits / 8 + (bits % 8 != 0); }

static int64_t offset_at(const csv_view* view, int64_t index) {
  int64_t offset = 0;
  if (view->type->width == 4) {
    int32_t narrow;
    memcpy(&narrow, view->values + index * 4, sizeof narrow);
    offset = narrow;
  } else {
    memcpy(&offset, view->values + index * 8, sizeof offset);
  }
  return offset;
}

static crossdock_code wrong(crossdock_error* err, const char* name, const char* what, int64_t expected, int64_t got) {
  csv_shown shown;
  return csv_fail(err, CROSSDOCK_BAD_DATA, "column %s: %s: expected %lld, got %lld", csv_show(&shown, name, strlen(name)),
                  what, (long long)expected, (long long)got);
}

/* Bytes that buffer `i` must have for values up to `end`. */
static int64_t needed(const csv_view* view, int i, int64_t end) {
  if (i == 0) return view->validity ? bits_bytes(end) : 0;
  if (i == 2) return view->text_end;
  switch (view->type->storage) {
    case CSV_BITS:
      return bits_bytes(end);
    case CSV_FIXED:
      return end * view->type->width;
    default:
      return (end + 1) * view->type->width;
  }
}

crossdock_code csv_view_make(csv_view* view, const csv_type* type, const struct ArrowArray* array, int64_t from,
                             int64_t length, const int64_t* sizes, const char* name, crossdock_error* err) {
  const int64_t n_buffers = type->storage == CSV_NOTHING ? 0 : type->storage == CSV_STRINGS ? 3 : 2;
  int64_t end;
  memset(view, 0, sizeof *view);
  view->type = type;
  view->length = length;
  if (array->n_buffers != n_buffers) return wrong(err, name, "buffers", n_buffers, array->n_buffers);
  if (array->length < 0 || array->offset < 0 || from < 0 || length < 0 || from > array->length ||
      length > array->length - from)
    return wrong(err, name, "values", length, array->length);
  /* So large that sums and products of it would overflow: no buffer has so many. */
  if (array->offset > INT64_MAX / 16 - array->length) return wrong(err, name, "an offset of at most", INT64_MAX / 16, array->offset);
  /* Empty buffers may be anything. */
  if (n_buffers == 0 || length == 0) return CROSSDOCK_OK;
  view->offset = array->offset + from;
  view->validity = array->null_count == 0 ? NULL : array->buffers[0];
  view->values = array->buffers[1];
  end = view->offset + length;
  if (!view->values) return wrong(err, name, "values' or offsets' bytes", needed(view, 1, end), 0);
  if (sizes && sizes[1] >= 0 && sizes[1] < needed(view, 1, end))
    return wrong(err, name, "values' or offsets' bytes", needed(view, 1, end), sizes[1]);
  if (sizes && view->validity && sizes[0] >= 0 && sizes[0] < needed(view, 0, end))
    return wrong(err, name, "validity bytes", needed(view, 0, end), sizes[0]);
  if (n_buffers < 3) return CROSSDOCK_OK;
  view->text = array->buffers[2];
  view->text_end = offset_at(view, end);
  if (view->text_end < 0 || (sizes && sizes[2] >= 0 && sizes[2] < view->text_end) || (view->text_end > 0 && !view->text))
    return wrong(err, name, "text bytes", view->text_end, sizes ? sizes[2] : 0);
  return CROSSDOCK_OK;
}

static bool bit_at(const unsigned char* bits, int64_t index) { return bits[index / 8] >> (index % 8) & 1; }

bool csv_view_is_null(const csv_view* view, int64_t row) {
  if (view->type->storage == CSV_NOTHING) return true;
  return view->validity && !bit_at(view->validity, view->offset + row);
}

void csv_view_value(const csv_view* view, int64_t row, void* to) {
  const int64_t index = view->offset + row;
  if (view->type->storage == CSV_BITS) {
    *(unsigned char*)to = bit_at(view->values, index);
  } else {
    memcpy(to, view->values + index * view->type->width, view->type->width);
  }
}

bool csv_view_text(const csv_view* view, int64_t row, const char** text, size_t* bytes) {
  const int64_t start = offset_at(view, view->offset + row), end = offset_at(view, view->offset + row + 1);
  if (start < 0 || end < start || end > view->text_end) return false;
  *text = view->text ? view->text + start : "";
  *bytes = (size_t)(end - start);
  return true;
}
