/* What the files of the plugin share. */
#ifndef CSV_H
#define CSV_H

#include <locale.h>

#include "tools.h"

/* Constant after its creation, so that any thread may read it. */
struct crossdock_instance {
  const crossdock_host* host; /* valid until `destroy` has returned */
  const crossdock_memory* memory;
  uint64_t memory_limit; /* bytes, of the session; 0: none */
  locale_t c_locale;     /* for numbers: the process may use a locale that writes 1.5 as 1,5 */
};

enum { CSV_N_TYPES = 7, CSV_PRINTED = 40 };
#define CSV_TYPE_NAMES "utf8, bool, int8, int16, int32, int64 and float64"

typedef struct csv_type {
  const char *format, *name; /* Arrow's; the option's */
  size_t width;              /* bytes of a value; of utf8: of an offset; 0: one bit */
  /* NUL-terminated text to a value (of a bool: one byte). False: the text is no value of the type. NULL: utf8. */
  bool (*parse)(size_t width, const char* text, size_t bytes, void* out);
  /* A value to NUL-terminated text of less than CSV_PRINTED bytes, which `parse` reads as the same value. */
  void (*print)(size_t width, const void* value, char* out);
} csv_type;

extern const csv_type csv_types[CSV_N_TYPES];                   /* the first is utf8 */
const csv_type* csv_find_type(const struct ArrowSchema* column); /* NULL: not supported */

typedef struct csv_options {
  char delimiter;
  crossdock_str types; /* names with commas between them; borrowed for the call */
} csv_options;

/* The error names the first option that is unknown or has a wrong value. */
bool csv_parse_options(task* t, csv_options* out, bool reading, crossdock_str format, const crossdock_option* options,
                       size_t n_options);

crossdock_code csv_open(crossdock_instance*, const crossdock_call*, crossdock_str format, const crossdock_input*,
                        const struct ArrowSchema*, const crossdock_option*, size_t n_options,
                        crossdock_batch_stream* out, crossdock_error*);
crossdock_code csv_plan(crossdock_instance*, const crossdock_call*, crossdock_str format, const struct ArrowSchema*,
                        crossdock_device from, const crossdock_option*, size_t n_options, crossdock_plan* out,
                        crossdock_error*);
crossdock_code csv_begin(crossdock_instance*, const crossdock_call*, crossdock_str format, const struct ArrowSchema*,
                         const crossdock_option*, size_t n_options, crossdock_sink*, crossdock_writer* out,
                         crossdock_error*);

#define SCALED_ID "example.scaled"
extern const crossdock_encoding scaled_encoding;

#endif
