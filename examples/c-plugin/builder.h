/* A column that grows value by value in the host's memory, until it is an Arrow array. */
#ifndef CSV_BUILDER_H
#define CSV_BUILDER_H

#include "block.h"
#include "columns.h"

typedef struct csv_builder {
  const csv_type* type;
  csv_block validity;
  csv_block values; /* bits, values, or offsets */
  csv_block text;
  size_t text_bytes;
  size_t nulls;
} csv_builder;

/* Makes room for `rows` rows, of which `used` are there. */
crossdock_code csv_builder_reserve(const crossdock_memory* memory, csv_builder* builder, size_t used, size_t rows,
                                   crossdock_error* err);

/* Adds value number `row`, for which there is room: null, what `csv_type.parse` gave, or text. */
void csv_builder_add_null(csv_builder* builder, size_t row);
void csv_builder_add(csv_builder* builder, size_t row, const void* value);
crossdock_code csv_builder_add_text(const crossdock_memory* memory, csv_builder* builder, size_t row, const char* text,
                                    size_t bytes, crossdock_error* err);

void csv_builder_free(const crossdock_memory* memory, csv_builder* builder);

/* Makes a batch of the builders, which are empty afterwards. On failure they are as they were. */
crossdock_code csv_batch_make(const crossdock_host* host, const crossdock_memory* memory, csv_builder* builders,
                              size_t n_builders, size_t rows, crossdock_batch* out, crossdock_error* err);

#endif
