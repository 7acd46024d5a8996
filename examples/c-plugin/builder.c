#include "builder.h"

#include <string.h>

#include "error.h"

static size_t bits_bytes(size_t bits) { return (bits + 7) / 8; }

static size_t values_bytes(const csv_type* type, size_t rows) {
  switch (type->storage) {
    case CSV_BITS:
      return bits_bytes(rows);
    case CSV_FIXED:
      return rows * type->width;
    case CSV_STRINGS:
      return (rows + 1) * type->width;
    default:
      return 0;
  }
}

crossdock_code csv_builder_reserve(const crossdock_memory* memory, csv_builder* builder, size_t used, size_t rows,
                                   crossdock_error* err) {
  const csv_type* type = builder->type;
  bool first = !builder->values.block;
  crossdock_code code;
  if (type->storage == CSV_NOTHING) return CROSSDOCK_OK;
  code = csv_block_reserve(memory, &builder->validity, bits_bytes(used), bits_bytes(rows), "a validity bitmap", err);
  if (code != CROSSDOCK_OK) return code;
  code = csv_block_reserve(memory, &builder->values, first ? 0 : values_bytes(type, used), values_bytes(type, rows),
                           "values of a column", err);
  if (code != CROSSDOCK_OK) return code;
  /* The first offset is 0; a column without text has a buffer of it all the same. */
  if (type->storage == CSV_STRINGS && first) {
    memset(builder->values.at, 0, type->width);
    return csv_block_reserve(memory, &builder->text, 0, 8 * rows, "text of a column", err);
  }
  return CROSSDOCK_OK;
}

/* A byte of a bitmap is written when its first bit comes. */
static void set_bit(csv_block* bitmap, size_t row, bool bit) {
  unsigned char* byte = &bitmap->at[row / 8];
  if (row % 8 == 0) *byte = 0;
  *byte |= (unsigned char)(bit << (row % 8));
}

static void set_end(csv_builder* builder, size_t row) {
  uint64_t end = builder->text_bytes;
  memcpy(builder->values.at + (row + 1) * builder->type->width, &end, builder->type->width);
}

void csv_builder_add_null(csv_builder* builder, size_t row) {
  builder->nulls++;
  switch (builder->type->storage) {
    case CSV_NOTHING:
      return;
    case CSV_BITS:
      set_bit(&builder->values, row, false);
      break;
    case CSV_FIXED:
      memset(builder->values.at + row * builder->type->width, 0, builder->type->width);
      break;
    case CSV_STRINGS:
      set_end(builder, row);
      break;
  }
  set_bit(&builder->validity, row, false);
}

void csv_builder_add(csv_builder* builder, size_t row, const void* value) {
  if (builder->type->storage == CSV_BITS) {
    set_bit(&builder->values, row, *(const uint8_t*)value);
  } else {
    memcpy(builder->values.at + row * builder->type->width, value, builder->type->width);
  }
  set_bit(&builder->validity, row, true);
}

crossdock_code csv_builder_add_text(const crossdock_memory* memory, csv_builder* builder, size_t row, const char* text,
                                    size_t bytes, crossdock_error* err) {
  crossdock_code code;
  /* A batch ends long before; see read.c. */
  if (builder->type->width == 4 && bytes > INT32_MAX - builder->text_bytes)
    return csv_fail(err, CROSSDOCK_INTERNAL, "a batch has more than 2 GiB of text in one column");
  code = csv_block_reserve(memory, &builder->text, builder->text_bytes, builder->text_bytes + bytes, "text of a column", err);
  if (code != CROSSDOCK_OK) return code;
  if (bytes) memcpy(builder->text.at + builder->text_bytes, text, bytes);
  builder->text_bytes += bytes;
  set_end(builder, row);
  set_bit(&builder->validity, row, true);
  return CROSSDOCK_OK;
}

void csv_builder_free(const crossdock_memory* memory, csv_builder* builder) {
  csv_block_free(memory, &builder->validity, 0);
  csv_block_free(memory, &builder->values, 0);
  csv_block_free(memory, &builder->text, 0);
  builder->text_bytes = 0;
  builder->nulls = 0;
}
