/* Every source file of a plugin includes this header. The environment variable
 * CROSSDOCK_TEST_FAIL_MALLOC holds the number of the allocation that fails. When the program ends,
 * leaks are reported on standard error. */
#ifndef FAILING_MALLOC_H
#define FAILING_MALLOC_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Every file defines these variables; the linker merges the definitions. */
#define IN_ALL_FILES __attribute__((weak, visibility("hidden")))

IN_ALL_FILES atomic_long failing_count, failing_live;
IN_ALL_FILES atomic_flag failing_is_reported = ATOMIC_FLAG_INIT;

IN_ALL_FILES int failing_now(void) {
  const char* nth = getenv("CROSSDOCK_TEST_FAIL_MALLOC");
  long number = ++failing_count;
  return nth && number == atol(nth);
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

IN_ALL_FILES __attribute__((destructor)) void failing_report(void) {
  if (atomic_flag_test_and_set(&failing_is_reported)) return;
  if (failing_live != 0) fprintf(stderr, "%ld allocations are still alive\n", (long)failing_live);
  if (getenv("CROSSDOCK_TEST_FAIL_MALLOC")) fprintf(stderr, "%ld allocations were requested\n", (long)failing_count);
}

#define calloc failing_calloc
#define realloc failing_realloc
#define free failing_free

#endif
