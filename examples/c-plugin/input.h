/* A window that moves over a source, which may be a pipe: read once, in order. */
#ifndef CSV_INPUT_H
#define CSV_INPUT_H

#include <stdbool.h>

#include "block.h"
#include "crossdock.h"

typedef struct csv_input {
  crossdock_source source;
  const crossdock_memory* memory;
  csv_block window;
  size_t start; /* in the window: of what has not been used up */
  size_t end;
  uint64_t offset; /* in the source: of what is read next */
  bool at_end;     /* a NUL stands behind `end` then */
} csv_input;

/* Moves the source out of `from`, whose `release` is NULL afterwards. */
void csv_input_take(csv_input* input, const crossdock_memory* memory, crossdock_source* from);

/* The text that was read and not used up. It moves when more is read. */
static inline char* csv_input_text(const csv_input* input) { return (char*)input->window.at + input->start; }
static inline size_t csv_input_bytes(const csv_input* input) { return input->end - input->start; }

/* Reads more behind what is there, in a window that grows where it must. */
crossdock_code csv_input_more(csv_input* input, const crossdock_call* call, crossdock_error* err);

/* The first `bytes` bytes are used up. */
static inline void csv_input_use(csv_input* input, size_t bytes) { input->start += bytes; }

void csv_input_release(csv_input* input);

#endif
