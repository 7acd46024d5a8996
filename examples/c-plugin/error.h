/* Errors: one line that says who, what, expected, got, and what to do. */
#ifndef CSV_ERROR_H
#define CSV_ERROR_H

#include "crossdock.h"

/* Fills in `err`, which may be NULL, and returns `code`. A message that is too long ends with "...". */
crossdock_code csv_fail(crossdock_error* err, crossdock_code code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

/* For the plugin's own small allocations. Needs no memory itself. */
crossdock_code csv_no_memory(crossdock_error* err);

#endif
