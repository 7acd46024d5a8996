/* What the files of the plugin share. */
#ifndef CSV_H
#define CSV_H

#include <locale.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "crossdock.h"

#define CSV_TEXT(literal) {literal, sizeof(literal) - 1}
#define CSV_CPU ((crossdock_device){-1, ARROW_DEVICE_CPU, 0})

/* Fills in an out parameter, of which no more is written than its caller has; its size stays the caller's. */
#define CSV_GIVE(out, value)                                                                          \
  do {                                                                                                \
    (value).struct_size = (out)->struct_size;                                                         \
    memcpy((out), &(value), (out)->struct_size < sizeof(value) ? (out)->struct_size : sizeof(value)); \
  } while (0)

/* Constant after its creation, so that any thread may read it. */
struct crossdock_instance {
  const crossdock_host* host; /* borrowed: it is there until `destroy` has returned */
  const crossdock_memory* memory;
  uint64_t memory_limit; /* bytes, of the session; 0: none */
  locale_t c_locale;     /* for numbers: the program may use a locale in which 1.5 is written 1,5 */
};

/* ------------------------------------------------------------------------------------------------------ tools.c --- */

/* Fills in `err`, which may be NULL, and returns `code`. A message says who, what, expected, got, and what to do. It may hold
 * text from outside (with CSV_SHOWN): what is not printable becomes '?'. */
crossdock_code csv_fail(crossdock_error* err, crossdock_code code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
crossdock_code csv_no_memory(crossdock_error* err);
crossdock_code csv_check_cancelled(const crossdock_call* call, crossdock_error* err);

/* At most 40 bytes of a text, for "%.*s". */
#define CSV_SHOWN(text, bytes) (int)((bytes) < 40 ? (bytes) : 40), ((bytes) ? (text) : "")

/* How many bytes from the start are UTF-8 without NUL: all of them where it is text. */
size_t csv_text_prefix(const char* text, size_t bytes);
bool csv_is(crossdock_str text, const char* word);
char* csv_copy_text(const char* text, size_t bytes); /* with a NUL behind it; NULL: no memory */

/* Memory of the host that grows: it is counted under the plugin's name and obeys the session's budget. Zero is empty. */
typedef struct csv_block {
  crossdock_block* block;
  unsigned char* at;
  size_t bytes;
} csv_block;

/* Makes room for `wanted` bytes at least; the first `used` are kept. */
crossdock_code csv_reserve(const crossdock_memory* memory, csv_block* block, size_t used, size_t wanted, crossdock_error* err);
/* `flags`: CROSSDOCK_FREE_LENT if others have seen it. */
void csv_free(const crossdock_memory* memory, csv_block* block, uint32_t flags);

/* ------------------------------------------------------------------------------------------------------ types.c --- */

typedef struct csv_type {
  const char* format; /* Arrow's */
  const char* name;
  size_t width; /* bytes of a value, 0: a bit; of utf8: of an offset */
  /* Text to a value (a bool: one byte); false if it is none, or one that the type cannot hold. NULL: utf8. */
  bool (*parse)(const struct csv_type*, const char* text, size_t bytes, void* to);
  /* A value to text that reads back as the same value, of at most CSV_PRINTED bytes. */
  void (*print)(const struct csv_type*, const void* value, char* to);
} csv_type;

#define CSV_TYPE_NAMES "utf8, bool, int8, int16, int32, int64 and float64"
enum { CSV_N_TYPES = 7, CSV_PRINTED = 40 };
extern const csv_type csv_types[CSV_N_TYPES]; /* the first is utf8 */

const csv_type* csv_type_of(const struct ArrowSchema* schema); /* NULL: none of ours */

/* ------------------------------------------------------------------------------- plugin.c, read.c, write.c, scaled.c --- */

typedef struct csv_options {
  bool header;
  char delimiter;
  crossdock_str types; /* of reading alone: names with commas between them; borrowed for the length of the call */
} csv_options;

/* An error names the first option that is unknown or wrong. */
crossdock_code csv_read_options(csv_options* out, bool reading, crossdock_str format, const crossdock_option* options,
                                size_t n_options, crossdock_error* err);

crossdock_code csv_open(crossdock_instance*, const crossdock_call*, crossdock_str format, const crossdock_input*,
                        const struct ArrowSchema*, const crossdock_option*, size_t n_options, crossdock_batch_stream* out,
                        crossdock_error*);
crossdock_code csv_plan(crossdock_instance*, const crossdock_call*, crossdock_str format, const struct ArrowSchema*,
                        crossdock_device from, const crossdock_option*, size_t n_options, crossdock_plan* out,
                        crossdock_error*);
crossdock_code csv_begin(crossdock_instance*, const crossdock_call*, crossdock_str format, const struct ArrowSchema*,
                         const crossdock_option*, size_t n_options, crossdock_sink*, crossdock_writer* out,
                         crossdock_error*);

#define CSV_SCALED_ID "example.scaled"
extern const crossdock_encoding csv_scaled;

#endif
