/* Declarations that several files of the plugin use. */
#ifndef CSV_H
#define CSV_H

#include <locale.h>

#include "tools.h"

/* An instance is not changed after its creation, so any thread may read it. */
struct crossdock_instance {
  const crossdock_host* host; /* valid until `destroy` has returned */
  const crossdock_memory* memory;
  uint64_t memory_limit; /* the session's memory limit in bytes; 0: no limit */
  locale_t c_locale;     /* for numbers, because the process's locale may print 1.5 as 1,5 */
};

enum { CSV_N_TYPES = 7, CSV_MAX_PRINTED_BYTES = 40 };
#define CSV_TYPE_NAMES "utf8, bool, int8, int16, int32, int64 and float64"

typedef struct csv_type {
  const char *format; /* Arrow's format string */
  const char *name;   /* the name of the type in the option `types` */
  size_t width;       /* bytes per value, 0 for one bit; for utf8, bytes per offset */
  /* Parses NUL-terminated text to a value, one byte for a bool. Returns false if the text is not of
   * this type. NULL for utf8. */
  bool (*parse)(size_t width, const char* text, size_t bytes, void* out);
  /* Prints a value as NUL-terminated text of at most CSV_MAX_PRINTED_BYTES bytes, which `parse`
   * reads as the same value. NULL for utf8. */
  void (*print)(size_t width, const void* value, char* out);
} csv_type;

extern const csv_type csv_types[CSV_N_TYPES];                   /* the first is utf8 */
const csv_type* csv_find_type(const struct ArrowSchema* column); /* returns NULL if the type is not supported */

typedef struct csv_options {
  char delimiter;
  crossdock_str types; /* comma-separated names; borrowed for the call */
} csv_options;

/* Parses the options. The error names the first option that is unknown or has an invalid value. */
bool csv_parse_options(task* t, csv_options* out, bool reading, crossdock_str format, const crossdock_option* options,
                       size_t n_options);

crossdock_code csv_open(crossdock_instance*, const crossdock_call*, const crossdock_read_request* request,
                        crossdock_batch_stream* out, crossdock_error* err);
crossdock_code csv_plan(crossdock_instance*, const crossdock_call*, crossdock_str format, const struct ArrowSchema*,
                        crossdock_device from, const crossdock_option*, size_t n_options, crossdock_plan* out,
                        crossdock_error*);
crossdock_code csv_begin(crossdock_instance*, const crossdock_call*, crossdock_str format, const struct ArrowSchema*,
                         const crossdock_option*, size_t n_options, crossdock_sink*, crossdock_writer* out,
                         crossdock_error*);

#define SCALED_ID "example.scaled"
extern const crossdock_encoding scaled_encoding;

#endif
