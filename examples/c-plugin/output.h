/* Text on its way into a sink: gathered, quoted where needed. */
#ifndef CSV_OUTPUT_H
#define CSV_OUTPUT_H

#include "block.h"
#include "options.h"

typedef struct csv_output {
  crossdock_sink sink;
  const crossdock_memory* memory;
  csv_block buffer;
  size_t used;
  uint64_t written; /* bytes in all */
} csv_output;

/* Moves the sink out of `from`, whose `release` is NULL afterwards. */
void csv_output_take(csv_output* output, const crossdock_memory* memory, crossdock_sink* from);
crossdock_code csv_output_begin(csv_output* output, crossdock_error* err);

crossdock_code csv_output_put(csv_output* output, const char* data, size_t bytes, crossdock_error* err);
crossdock_code csv_output_flush(csv_output* output, crossdock_error* err);
void csv_output_release(csv_output* output);

/* Why a value cannot be written; NULL: it can. */
const char* csv_output_refusal(const csv_options* options, const char* text, size_t bytes);

/* Writes a value that is not null, in quotes where it would be read as something else without. */
crossdock_code csv_output_put_value(csv_output* output, const csv_options* options, const char* text, size_t bytes,
                                    crossdock_error* err);

#endif
