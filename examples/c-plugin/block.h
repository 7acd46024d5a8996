/* A block of the host's memory that grows. It is counted under the plugin's name and obeys the session's budget. */
#ifndef CSV_BLOCK_H
#define CSV_BLOCK_H

#include "crossdock.h"

typedef struct csv_block {
  crossdock_block* block; /* NULL: there is none yet */
  const void* address;    /* to hand to others */
  unsigned char* at;      /* the same, for the host to read and write */
  size_t bytes;
} csv_block;

/* Makes room for `wanted` bytes at least, doubling; the first `used` are kept. `what` is for the error. */
crossdock_code csv_block_reserve(const crossdock_memory* memory, csv_block* block, size_t used, size_t wanted,
                                 const char* what, crossdock_error* err);

/* Gives it back. `flags`: CROSSDOCK_FREE_LENT if others have seen it. */
void csv_block_free(const crossdock_memory* memory, csv_block* block, uint32_t flags);

#endif
