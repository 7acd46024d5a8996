/* Where the plugin's own small things come from: structs, names, messages. Values and text lie in the host's memory
 * (block.h). A build may put functions of its own here, to see every allocation fail once:
 * -DCSV_MALLOC=f -DCSV_REALLOC=g -DCSV_FREE=h. */
#ifndef CSV_ALLOC_H
#define CSV_ALLOC_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef CSV_MALLOC
#define CSV_MALLOC malloc
#define CSV_REALLOC realloc
#define CSV_FREE free
#endif

/* `n` zeroed elements of `bytes` bytes, or NULL. Never NULL for lack of elements. */
static inline void* csv_zeroed(size_t n, size_t bytes) {
  void* at;
  if (bytes != 0 && n > (SIZE_MAX - 1) / bytes) return NULL;
  at = CSV_MALLOC(n * bytes + 1);
  if (at) memset(at, 0, n * bytes + 1);
  return at;
}

/* A NUL-terminated copy, or NULL. */
static inline char* csv_copy_text(const char* data, size_t bytes) {
  char* copy = csv_zeroed(bytes, 1);
  if (copy && bytes) memcpy(copy, data, bytes);
  return copy;
}

#endif
