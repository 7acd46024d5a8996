/* Helpers for plugins in C: errors, growing buffers, creating and checking Arrow's structs. Copy
 * tools.h and tools.c into your own plugin. */
#ifndef TOOLS_H
#define TOOLS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "crossdock.h"

#define TEXT(literal) {literal, sizeof(literal) - 1}
#define CPU ((crossdock_device){-1, ARROW_DEVICE_CPU, 0})
/* The arguments of "%.*s" that print at most 40 bytes of a text. */
#define ABBREVIATED(text, bytes) (int)((bytes) < 40 ? (bytes) : 40), ((bytes) ? (const char*)(text) : "")

/* Fills in an out parameter up to the struct_size of the caller, and keeps that struct_size. */
#define SET(out, value)                                                                               \
  do {                                                                                                \
    (value).struct_size = (out)->struct_size;                                                         \
    memcpy((out), &(value), (out)->struct_size < sizeof(value) ? (out)->struct_size : sizeof(value)); \
  } while (0)

/* The context of a call, and its error. A function that fails sets `code`, fills in `err`, and
 * returns false or NULL. */
typedef struct task {
  const crossdock_host* host;
  const crossdock_memory* memory;
  const crossdock_call* call; /* NULL outside of calls */
  crossdock_error* err;       /* may be NULL */
  crossdock_code code;
} task;

/* Sets the error. In the message, '?' replaces bytes that are not printable. */
bool fail(task* t, crossdock_code code, const char* format, ...) __attribute__((format(printf, 3, 4)));
bool fail_no_memory(task* t);
bool check_call(task* t); /* returns false if the call has unknown settings, or the task has failed */
bool check_cancelled(task* t); /* returns false if the call was cancelled */
void report_progress(task* t, uint64_t done, uint64_t total);

bool equal(crossdock_str text, const char* word);
bool is_text(const void* text, size_t bytes);            /* UTF-8 without NUL */
char* copy_text(task* t, const void* text, size_t bytes); /* NUL-terminated; the caller frees it */

/* A buffer in the host's memory that can grow. It is charged to the session's budget. If all fields
 * are zero, the buffer is empty. */
typedef struct buffer {
  crossdock_block* block;
  unsigned char* data;
  size_t used, capacity; /* bytes */
} buffer;

bool reserve(task* t, buffer* b, size_t more); /* ensures capacity for `more` bytes after the used bytes */
bool append(task* t, buffer* b, const void* data, size_t bytes);
/* `flags` is CROSSDOCK_FREE_EXPORTED if the memory was exported, else 0. */
void free_buffer(const crossdock_memory* memory, buffer* b, uint32_t flags);

/* A new column. Its `buffers` have Arrow's order: first the validity bitmap, then bits, values or
 * offsets, and then text. */
typedef struct new_column {
  const char* format;
  char* name;    /* owned */
  int64_t flags; /* ARROW_FLAG_* */
  buffer buffers[3];
  int64_t null_count, n_buffers;
} new_column;

void free_columns(const crossdock_memory* memory, new_column* columns, size_t n);
bool make_schema(task* t, const new_column* columns, size_t n, struct ArrowSchema* out);
/* Moves the buffers into a batch. Afterwards, also on failure, the columns are empty. */
bool make_batch(task* t, new_column* columns, size_t n, int64_t rows, crossdock_batch* out);

/* A view of a column in a batch that the host passed. */
typedef struct column_view {
  const unsigned char *validity, *values, *text; /* validity is NULL if no value is null */
  int64_t offset, text_bytes;                    /* offset: index of the first row in the buffers */
} column_view;

/* Returns the sizes of the buffers of the next array in pre-order, or NULL if they are unknown.
 * Advances `next`. */
const int64_t* next_sizes(const crossdock_batch* batch, size_t* next, int64_t n_buffers);
/* Checks that the buffers of a column have the rows `from..from + rows`, and fills in the view.
 * `width` is the number of bytes per value, 0 for one bit. For text, it is the number of bytes per
 * offset. */
bool view_column(task* t, column_view* out, const char* name, const struct ArrowArray* array, int64_t from, int64_t rows,
                 size_t width, bool has_text, const int64_t* sizes);

#endif
