/* What any plugin in plain C needs and crossdock.h does not have: errors, memory that grows, Arrow's structs made and checked.
 * Copy tools.h and tools.c into a plugin of your own. */
#ifndef TOOLS_H
#define TOOLS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "crossdock.h"

#define TEXT(literal) {literal, sizeof(literal) - 1}
#define CPU ((crossdock_device){-1, ARROW_DEVICE_CPU, 0})
/* The start of a text, at most 40 bytes, for "%.*s". */
#define SHOWN(text, bytes) (int)((bytes) < 40 ? (bytes) : 40), ((bytes) ? (const char*)(text) : "")

/* Fills an out parameter: no more than its caller's struct holds, and the caller's struct_size stays. */
#define SET(out, value)                                                                               \
  do {                                                                                                \
    (value).struct_size = (out)->struct_size;                                                         \
    memcpy((out), &(value), (out)->struct_size < sizeof(value) ? (out)->struct_size : sizeof(value)); \
  } while (0)

/* What a function works for, and the error that ended it. Functions that take a task return false, or NULL, after they have set
 * `code` and filled `err`. */
typedef struct task {
  const crossdock_host* host;
  const crossdock_memory* memory;
  const crossdock_call* call; /* NULL where there is none */
  crossdock_error* err;       /* may be NULL */
  crossdock_code code;
} task;

/* Bytes of the message that are not printable become '?'. */
bool fail(task* t, crossdock_code code, const char* format, ...) __attribute__((format(printf, 3, 4)));
bool fail_no_memory(task* t);
bool check_cancelled(task* t); /* false: the call is cancelled */
void report_progress(task* t, uint64_t done, uint64_t total);

bool equal(crossdock_str text, const char* word);
bool is_text(const void* text, size_t bytes);            /* UTF-8 without NUL */
char* copy_text(task* t, const void* text, size_t bytes); /* NUL-terminated, to be freed with `free` */

/* A growing buffer in the host's memory, which counts against the session's limit. All zero is empty. */
typedef struct buffer {
  crossdock_block* block;
  unsigned char* data;
  size_t used, capacity; /* bytes */
} buffer;

bool reserve(task* t, buffer* b, size_t more); /* makes room for `more` bytes behind those used */
bool append(task* t, buffer* b, const void* data, size_t bytes);
/* `flags`: CROSSDOCK_FREE_LENT if others have seen the memory. */
void free_buffer(const crossdock_memory* memory, buffer* b, uint32_t flags);

/* A column that is being made. Its buffers are Arrow's: validity; bits, values or offsets; text. */
typedef struct made_column {
  const char* format;
  char* name;    /* owned */
  int64_t flags; /* Arrow's */
  buffer buffers[3];
  int64_t null_count, n_buffers;
} made_column;

void free_columns(const crossdock_memory* memory, made_column* columns, size_t n);
bool make_schema(task* t, const made_column* columns, size_t n, struct ArrowSchema* out);
/* Moves the buffers into a batch. The columns are empty then, also if this fails. */
bool make_batch(task* t, made_column* columns, size_t n, int64_t rows, crossdock_batch* out);

/* A column of a batch that was given. */
typedef struct column_view {
  const unsigned char *validity, *values, *text; /* validity is NULL where no value is null */
  int64_t offset, text_bytes;                    /* the index of the first row in the buffers */
} column_view;

/* The sizes of the next node's buffers, in pre-order; `next` moves behind them. NULL: not known. */
const int64_t* take_sizes(const crossdock_batch* batch, size_t* next, int64_t n_buffers);
/* Looks at rows `from..from + rows` of a column, after a check that its buffers hold them. `width`: bytes of a value, 0 for a
 * bit; with text: of an offset. */
bool view_column(task* t, column_view* out, const char* name, const struct ArrowArray* array, int64_t from, int64_t rows,
                 size_t width, bool has_text, const int64_t* sizes);

#endif
