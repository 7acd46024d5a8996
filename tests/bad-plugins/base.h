/*
 * A plugin that follows every rule. If it is built with -DBUG=NAME, it has one injected bug.
 * tests/suite/tests/verify/injected_bugs.rs lists the bugs, and the case of `crossdock verify` that
 * finds each bug.
 */
#ifndef BASE_H
#define BASE_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "crossdock.h"

enum bug {
  NONE,
  DECODES_ALONE, /* not a bug: the plugin has no formats */
  IMPORTS_ANYWHERE, EXPORTS_ANYWHERE, /* not bugs: the importer or exporter of `base-rows` accepts any device */
  RARE_VALUE_CHANGED, /* depends on the seed: few tables have the value */
  NO_METADATA, NO_ENTRY, ENTRY_SIZE, ENTRY_MAGIC, NO_DESTROY, META_SIZES,
  CREATE_KEEPS_HOST, BARE_CREATE_KEEPS_HOST, FAILING_CREATE_KEEPS_HOST, ANSWERS_ANY_INTERFACE, NEEDS_UNDECLARED_INTERFACE,
  NO_OPEN, NAME_NOT_UTF8, LIST_CHANGES, FORMAT_TWICE, METADATA_OUT_OF_DATE,
  ANY_FORMAT, ANY_OPTION, ANY_OPTION_READING, ANY_RESERVED_IN_CALL, ANY_RESERVED_IN_REQUEST, ANY_VALIDATION, NO_MESSAGE, DANGLING_MESSAGE, MESSAGE_NOT_UTF8, OTHER_CODE, ERROR_OVERRUN, NEEDS_ERROR,
  OUT_ON_FAILURE, INPUT_LEFT, SECOND_SOURCE_LEFT, SINK_LOST,
  PLAN_FORGETS_COLUMN, PLAN_PROMISES, BATCH_LOST, BATCH_TWICE, BATCH_RELEASED_EARLY, KEPT_BATCH_LOST, METADATA_DROPPED, NULLS_EXPORTED_AS_VALUES,
  COPY_CALLED_ZERO_COPY, SINK_ERROR_IGNORED,
  COLUMN_DROPPED, LAST_ROW_DROPPED, NULL_DROPPED, NULL_COUNT, THIRD_BATCH_DROPPED, SCHEMA_LOST, ARRAY_TWICE, ARRAY_RELEASED_EARLY, REST_LOST, EXITS,
  SOURCE_ERROR_IGNORED, PIPE_REREAD, SHORT_SOURCE_FILLED, ASSERTS_ON_BYTES, MAPPED_ROW_DROPPED, READS_BEHIND,
  BATCH_NEEDS_INSTANCE, CAPSULE_NEEDS_INSTANCE, GLOBAL_HOST,
  BLOCK_LOST, STREAM_LOST, TASK_GROUP_LOST, TASK_LOST, EVENT_LOST, HOST_REFERENCE_LOST, BLOCK_TWICE, EVENT_TWICE, BORROWED_STREAM_DESTROYED, WRITES_BEHIND,
  DEFAULT_STREAM, FILL_ON_DEFAULT_STREAM, LAUNCH_ON_DEFAULT_STREAM,
  BLOCK_LOST_ON_FAILURE, BLOCK_FREED_WITH_FREE, MEMORY_ERROR_HIDDEN, DRIVER_MEMORY,
  CANCEL_IGNORED_READING, WOKEN_READ_RETRIED, WOKEN_READ_IS_BAD_DATA, CANCEL_IGNORED_WRITING, CANCEL_SEEN_AFTER_ALL_IS_READ, CANCEL_SEEN_AFTER_ALL_IS_WRITTEN, THROWS, NEVER_ENDS, BUDGET_CUTS_ROWS,
  EXACT_HOST, SIZE_OVERWRITTEN, STATIC_CURSOR, THREAD_BOUND, MEMORY_OF_LAST_HOST,
  LOCK_AROUND_ALLOC, LOCK_AROUND_FREE, LOCK_AROUND_WRITE, PANICS_ON_BYTES, PANICS_ON_TENSORS, PANICS_ON_NODES, PANICS_ON_CHANGED_NODES,
  RELEASE_NOT_CLEARED, BATCH_LEFT, ALL_REFUSED, NESTED_NULL_COUNT, ROW_BEYOND_THE_END, THROWS_IN_RELEASE, BLOCKS, SCHEMA_READS, OTHER_COLUMNS_IGNORED, PROGRESS_BEYOND,
  COLUMNS_NOT_SELECTED, ROWS_NOT_SELECTED, ROW_COUNT_GUESSED, PREDICATE_NOT_APPLIED, MATCHING_ROW_PRUNED,
  ROWS_ABOVE_CAPACITY, DEVICE_ROWS_IGNORED, DECODED_COUNTS_ROWS, WRITE_OPTION_UNKNOWN,
  FRAGMENTS_OVERLAP, FRAGMENT_OMITTED, FRAGMENT_ROWS_WRONG, FRAGMENT_IGNORED, FRAGMENTS_KEEP_SOURCE, STATISTICS_OF_OWN_SCHEMA,
  ASSERTS_ON_TOKENS, PANICS_ON_TOKENS,
  ARRAYS_NOT_CHECKED, NEGATIVE_ROWS_READ_AS_NONE, PANICS_ON_ARRAYS,
  TENSOR_STRIDES_IGNORED, TENSOR_LOST, TENSOR_NOT_CHECKED, IPC_NULLS_IGNORED,
  ANY_ENCODING, LOOKS_AT_DEVICE_MEMORY, PROGRAM_DIFFERS, ASSERTS_ON_NODES,
  DECODE_BLOCK_LOST, DECODE_WRITES_BEHIND, DECODE_READS_BEHIND, DECODE_DEFAULT_STREAM, DECODE_BLOCK_LOST_ON_FAILURE,
  DECODE_FAILURE_IGNORED, DECODE_MEMORY_ERROR_HIDDEN, DECODE_DRIVER_MEMORY, DECODE_CANCEL_IGNORED, DECODE_PROGRESS_BEYOND,
  DECODE_THREAD_BOUND, DECODE_LOCK_AROUND_ALLOC, DECODE_BUFFER_LOST, DECODED_LIES_IN_BUFFER, DECODED_NEEDS_INSTANCE, DECODED_NOT_CLEARED,
  CHILD_TYPES_MISSING, DECODES_FIRST_ROWS, PLAN_LACKS_ROWS, ENCODES_ANY, ENCODE_OPTION_IGNORED, ENCODED_COLUMN_LOST, ENCODES_LAST_AS_FIRST,
  SCHEME_IN_CAPITALS, URI_OPTION_IGNORED, URI_ANY_OPENED, URI_LENGTH_UNKNOWN, URI_READ_STOPS_EARLY, URI_CURSOR_SHARED,
  URI_VERSION_CHANGES, URI_NOT_CLEARED, URI_HOST_LOST, URI_CANCEL_IGNORED
};

#ifndef BUG
#define BUG NONE
#endif
#define HAS(bug) (BUG == (bug))
#define TEXT(literal) {literal, sizeof(literal) - 1}

struct crossdock_instance {
  const crossdock_host* host; /* valid until `destroy` returns */
  const crossdock_memory* memory;
  int* alive;    /* allocated by the instance, and freed by `destroy` */
  thrd_t thread; /* the thread that created the instance */
};

extern _Atomic int base_n_instances;

static const crossdock_device BASE_CPU = {-1, ARROW_DEVICE_CPU, 0};

/* Returns `code`. Stores the code and a copy of the message in `err` unless `err` is NULL. */
crossdock_code base_fail(crossdock_error* err, crossdock_code code, const char* message);

int base_is(crossdock_str text, const char* expected);
/* Returns an error if there are options, because no format has options. */
crossdock_code base_no_options(const char* format, size_t n_options, crossdock_error* err);
crossdock_code base_cancelled(const crossdock_call* call, crossdock_error* err);
/* A lock that all instances share, for bugs that hold a lock during a call to the host. */
void base_lock(int is_held);
void base_unlock(int is_held);

/* A deep copy. Its `release` is NULL if memory is exhausted or the schema is malformed. */
struct ArrowSchema base_schema_copy(const struct ArrowSchema* schema);
void base_schema_release(struct ArrowSchema* schema);
/* Whether both schemas have columns of the same names and types in the same order. */
int base_schema_same(const struct ArrowSchema* left, const struct ArrowSchema* right);
size_t base_metadata_bytes(const char* metadata);

crossdock_code base_device_open(crossdock_instance*, crossdock_capsules*, const struct ArrowSchema*, crossdock_batch_stream*,
                                crossdock_error*);
crossdock_code base_device_begin(crossdock_instance*, const struct ArrowSchema*, crossdock_writer*, crossdock_error*);
crossdock_code base_rows_open(crossdock_instance*, crossdock_source*, const crossdock_read_request*, crossdock_batch_stream*,
                              crossdock_error*);
crossdock_code base_open(crossdock_instance*, const crossdock_call*, const crossdock_read_request*, crossdock_batch_stream*,
                         crossdock_error*);
crossdock_code base_fragments(crossdock_instance*, const crossdock_call*, const crossdock_read_request*, crossdock_fragments*,
                              crossdock_error*);
/* Sets `*out` to the offset of the frame that a token names. */
crossdock_code base_find_frame(crossdock_source*, const void* token, size_t bytes, uint64_t* out, crossdock_error*);
/* The layout of `base-rows`, see rows_read.c. */
enum { BASE_ROW = 9, BASE_MAX_NAME = 4096, BASE_MAX_ROWS = 1 << 16 };
/* Replaces the array by a copy, and releases the original. The copy uses the buffers of the
 * original, but does not own these buffers. */
void base_forget_owner(struct ArrowArray*);
void base_make_needy(struct ArrowArray*, crossdock_instance*);
/* Creates a batch from `n` rows in the format `base-rows`. The batch declares `n_given` rows. */
crossdock_code base_rows_give(crossdock_instance*, const crossdock_call*, const unsigned char* rows, size_t n, size_t n_given,
                              crossdock_batch*, crossdock_error*);
crossdock_code base_rows_begin(crossdock_instance*, const struct ArrowSchema*, crossdock_sink*, crossdock_writer*,
                               crossdock_error*);
crossdock_code base_ipc_open(crossdock_source*, const struct ArrowSchema*, crossdock_batch_stream*, crossdock_error*);
crossdock_code base_tensor_open(crossdock_capsules*, const struct ArrowSchema*, crossdock_batch_stream*, crossdock_error*);
/* A schema with one column, and a batch with this schema. The batch takes ownership of both
 * malloc'ed buffers. `validity` may be NULL. */
struct ArrowSchema base_numbers_schema(const char* name, int is_nullable);
crossdock_code base_numbers_give(unsigned char* validity, void* values, int64_t rows, crossdock_batch* out,
                                 crossdock_error* err);
int base_rows_hold(const struct ArrowSchema* schema);

/* A column in two blocks of memory. The blocks may be read after the event. The column owns a
 * reference to the host. */
typedef struct base_column {
  const crossdock_host* host;
  const crossdock_memory* memory;
  crossdock_block* blocks[2];
  crossdock_event* event; /* NULL if all work has run */
  const void* buffers[2];
  int is_decoded; /* whether the column was decoded, not read */
} base_column;

base_column* base_column_new(crossdock_instance*, int is_decoded, crossdock_error*);
void base_column_free(base_column*);
/* Returns the stream for work on a column: the call's stream if this is a stream of the CPU,
 * otherwise the default stream of the CPU. */
crossdock_code base_column_stream(const base_column*, const crossdock_call*, crossdock_stream** out, crossdock_error*);
crossdock_code base_column_fill(base_column*, int which, const void* from, size_t bytes, crossdock_stream*, crossdock_error*);
/* Creates a batch with the column. On success, the batch takes ownership of the column. */
crossdock_code base_column_give(base_column*, crossdock_stream*, int64_t n, int64_t nulls, crossdock_batch*, crossdock_error*);

/* Allocates device memory from the driver. Returns 0 if `is_wanted` is 0 or there is no
 * driver. */
uint64_t base_scratch_take(int is_wanted);
void base_scratch_give(uint64_t scratch);

extern const crossdock_encoding BASE_ENCODING;
extern const crossdock_encoder BASE_ENCODER;
extern const crossdock_opener BASE_OPENER;

#ifdef BUG_SCHEME_IN_CAPITALS
#define BASE_SCHEME "BASE"
#else
#define BASE_SCHEME "base"
#endif

#if defined(BUG_THROWS) || defined(BUG_THROWS_IN_RELEASE)
void base_throw(void);
#else
#define base_throw() ((void)0)
#endif

#endif
