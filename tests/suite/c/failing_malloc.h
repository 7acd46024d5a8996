/* Forced into every file of a plugin whose allocations are to fail one by one: the one that the environment variable
 * CROSSDOCK_TEST_FAIL_MALLOC counts out fails, and what is still alive at the end is told on standard error. */
#ifndef FAILING_MALLOC_H
#define FAILING_MALLOC_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* In every file, and one in the library. */
#define IN_ALL_FILES __attribute__((weak, visibility("hidden")))

IN_ALL_FILES atomic_long failing_seen, failing_live;
IN_ALL_FILES atomic_flag failing_told = ATOMIC_FLAG_INIT;

IN_ALL_FILES int failing_now(void) {
  const char* nth = getenv("CROSSDOCK_TEST_FAIL_MALLOC");
  long seen = ++failing_seen;
  return nth && seen == atol(nth);
}

IN_ALL_FILES void* failing_calloc(size_t n, size_t bytes) {
  void* at = failing_now() ? NULL : calloc(n, bytes);
  failing_live += at != NULL;
  return at;
}

IN_ALL_FILES void* failing_realloc(void* old, size_t bytes) {
  void* at = failing_now() ? NULL : realloc(old, bytes);
  failing_live += at != NULL && old == NULL;
  return at;
}

IN_ALL_FILES void failing_free(void* at) {
  failing_live -= at != NULL;
  free(at);
}

IN_ALL_FILES __attribute__((destructor)) void failing_tell(void) {
  if (atomic_flag_test_and_set(&failing_told)) return;
  if (failing_live != 0) fprintf(stderr, "%ld allocations are still alive\n", (long)failing_live);
  if (getenv("CROSSDOCK_TEST_FAIL_MALLOC")) fprintf(stderr, "%ld allocations were asked for\n", (long)failing_seen);
}

#define calloc failing_calloc
#define realloc failing_realloc
#define free failing_free

#endif
