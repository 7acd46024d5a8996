/* The caller's wishes. */
#ifndef CSV_OPTIONS_H
#define CSV_OPTIONS_H

#include <stdbool.h>

#include "crossdock.h"
#include "scan.h"

/* What both ways understand. */
typedef struct csv_options {
  csv_dialect dialect;
  bool header;
  char null[64]; /* the text that, unquoted, stands for a null */
  size_t null_bytes;
  /* Of reading alone. */
  crossdock_str types; /* as given; borrowed from the caller for the length of the call */
  size_t infer_rows;
  size_t batch_rows;
  size_t max_field_bytes;
} csv_options;

enum { CSV_N_READ_OPTIONS = 8, CSV_N_WRITE_OPTIONS = 4 };

/* For people, in crossdock_format. */
extern const crossdock_option_info csv_read_options[CSV_N_READ_OPTIONS];
extern const crossdock_option_info csv_write_options[CSV_N_WRITE_OPTIONS];

/* Whether a format is ours: there is one. */
crossdock_code csv_format_check(crossdock_str format, crossdock_error* err);

/* Looks at every option; an error names the first one that is wrong. */
crossdock_code csv_options_read(csv_options* out, bool reading, const crossdock_option* options, size_t n_options,
                                crossdock_error* err);

#endif
