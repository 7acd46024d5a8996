/*
 * crossdock.h: the interface between a Crossdock host and its plugins.
 *
 * A plugin is a shared library that exports two data symbols:
 *
 *     const crossdock_plugin_entry crossdock_plugin_v1;       creates instances
 *     const crossdock_plugin_meta  crossdock_plugin_meta_v1;  describes the plugin
 *
 * General rules, which apply to all structs and functions of this file:
 *
 *   sizes     A struct that can grow begins with `struct_size`, its size in bytes. The side that
 *             fills in the struct sets it. In crossdock_plugin_entry and crossdock_plugin_meta, a
 *             magic number precedes `struct_size`, and in crossdock_cancel, the flag does.
 *             Within an ABI version, fields are only appended. The fields of the version's first
 *             release are always present. Read a field that was added later only if `struct_size`
 *             covers it (CROSSDOCK_HAS).
 *             A struct without a `struct_size` never changes.
 *             Sizes are in bytes. Function pointers are non-NULL unless documented as nullable.
 *   flags     These rules apply to flags, enumerations and reserved fields:
 *             In a request (arguments, and structs that the caller passes to a function), the
 *             callee rejects a bit or a value that it does not know with CROSSDOCK_UNSUPPORTED, and
 *             names it. The flags of crossdock_read_request and of `free` are exceptions.
 *             In a description or a result, the reader ignores a bit that it does not know, unless
 *             the description of the field says otherwise.
 *             Reserved fields are 0. In a request, the callee rejects another value with
 *             CROSSDOCK_INVALID_ARGUMENT. In a description or a result, the reader ignores it.
 *             Padding is 0 and must not be read.
 *   borrowing A pointer or crossdock_str argument is borrowed for the length of the call, unless
 *             the function is documented to take ownership. This also applies to crossdock_call
 *             structs, schemas, options and names. A callee that needs a value after the call must
 *             copy it.
 *   lists     If the elements of a list have a `struct_size`, the distance between two elements is
 *             the `struct_size` of the first element (CROSSDOCK_AT). If the number of elements is
 *             0, the pointer is ignored.
 *   objects   A struct with a `release` function for the struct itself is an object. The object's
 *             functions take its address as the first argument. `private_data` belongs to the
 *             producer. `release` frees everything that the object owns, and sets the field
 *             `release` to NULL. An object whose `release` is NULL is empty or has been released.
 *             To move an object, copy its bytes, then set `release` of the source to NULL without
 *             calling it. (A crossdock_host cannot be moved.) The `struct_size` of the copy is the
 *             lesser of two values: the `struct_size` of the source and the size of the
 *             destination. Fields that the source lacks are zero in the copy (CROSSDOCK_MOVE).
 *             A move may therefore drop fields that were added after the version's first release.
 *             A producer must not store values that its own functions need in such fields.
 *             If an out parameter has a `struct_size`, the caller sets it, and sets all other bytes
 *             to zero. The callee writes at most `struct_size` bytes and does not change
 *             `struct_size`. If the callee copies another struct to the out parameter, it copies at
 *             most as many bytes as the `struct_size` of the copied struct.
 *   status    A function that can fail returns CROSSDOCK_OK or another crossdock_code. The caller
 *             initialises `err` as an empty error, or passes NULL. A function that fails fills in
 *             `err` unless `err` is NULL. A function that handles the error of a function that it
 *             called, instead of returning the error, must release it and leave `err` empty.
 *             Out parameters are written only on success.
 *   threads   [any-thread]: can be called from any thread, also concurrently.
 *             [serial]: can be called from any thread, but the caller must not make two calls for
 *             the same object at the same time.
 *             A `release` function can be called from any thread. While it calls `release`, the
 *             caller must not hold any of its own locks, and no other call for the same object may
 *             be running.
 *   devices   No function requires a current CUDA context. A function that needs a current context
 *             sets it, and restores the previous context before it returns.
 *   memory    An address is valid on its own device. Code on the host can dereference device memory
 *             only at the address that crossdock_memory.host_address returns.
 *   fork      In a child process after `fork`, the objects, instances and hosts of the parent may
 *             only be released: call no functions except `release`, `destroy` and those that free
 *             or destroy. They release no device memory there. A host that is created in the child
 *             is a new host with its own instances.
 *   unwinding No function may unwind: a Rust panic, a C++ exception or a longjmp must not leave it.
 *             In C++, wrap each function body in CROSSDOCK_GUARD or CROSSDOCK_GUARD_OR (end of this
 *             file).
 *
 * The descriptions of functions do not mention `err` and the first argument. There are @param lines
 * only for parameters whose names and types do not explain them.
 *
 * The Arrow structs are those of the Arrow C data, C stream, C device data and C device stream
 * interfaces.
 */
#ifndef CROSSDOCK_H
#define CROSSDOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------- versions --- */

/* The version of the ABI. Later releases of the same version only append fields and add constants
 * and interfaces. A plugin must check that an added field or interface is present before it uses
 * the addition. Version 1.0 is frozen: an incompatible change would get a new major version. Hosts
 * and plugins reject each other if their major or minor versions differ. */
#define CROSSDOCK_ABI_MAJOR 1
#define CROSSDOCK_ABI_MINOR 0
/* The number of the additions to this version: a release that appends fields or adds constants or
 * interfaces increments it. The description of an addition names the first version that has it. */
#define CROSSDOCK_ABI_PATCH 0
/* The value of crossdock_plugin_meta.api_range for a plugin that is built against this file and
 * checks that additions are present before it uses them. A plugin that cannot work without an
 * addition states the first version that has it, such as "^1.0.3". */
#define CROSSDOCK_API_RANGE "^1.0.0"

/* Whether the struct at `object` includes all of `field`. */
#define CROSSDOCK_HAS(object, field) \
  ((object)->struct_size >= (size_t)((const char*)(&(object)->field + 1) - (const char*)(object)))

/* The address of element `i` of a list whose elements have a `struct_size`. Requires GCC or
 * Clang. */
#define CROSSDOCK_AT(list, i) ((__typeof__(&(list)[0]))((uintptr_t)(list) + (size_t)(i) * (list)->struct_size))

/* Moves an object with a `struct_size` and a `release` from `*from` to `*to`. Requires GCC or
 * Clang. */
#define CROSSDOCK_MOVE(to, from)                                                                                      \
  do {                                                                                                                \
    size_t moved_ = (from)->struct_size < sizeof *(to) ? (from)->struct_size : sizeof *(to);                          \
    __builtin_memset((to), 0, sizeof *(to));                                                                          \
    __builtin_memcpy((to), (from), moved_);                                                                           \
    (to)->struct_size = moved_;                                                                                       \
    (from)->release = NULL;                                                                                           \
  } while (0)

#define CROSSDOCK_PLUGIN_MAGIC UINT64_C(0x314e49474c504458) /* "XDPLGIN1", little-endian */
#define CROSSDOCK_META_MAGIC UINT64_C(0x3141544d4b434458)   /* "XDCKMTA1", little-endian */

/* ---------------------------------------------------------------- Arrow's published structs --- */

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

#endif

#ifndef ARROW_C_DEVICE_DATA_INTERFACE
#define ARROW_C_DEVICE_DATA_INTERFACE

typedef int32_t ArrowDeviceType;

#define ARROW_DEVICE_CPU 1
#define ARROW_DEVICE_CUDA 2
#define ARROW_DEVICE_CUDA_HOST 3
#define ARROW_DEVICE_OPENCL 4
#define ARROW_DEVICE_VULKAN 7
#define ARROW_DEVICE_METAL 8
#define ARROW_DEVICE_VPI 9
#define ARROW_DEVICE_ROCM 10
#define ARROW_DEVICE_ROCM_HOST 11
#define ARROW_DEVICE_EXT_DEV 12
#define ARROW_DEVICE_CUDA_MANAGED 13
#define ARROW_DEVICE_ONEAPI 14
#define ARROW_DEVICE_WEBGPU 15
#define ARROW_DEVICE_HEXAGON 16

struct ArrowDeviceArray {
  struct ArrowArray array;
  int64_t device_id;
  ArrowDeviceType device_type;
  void* sync_event;
  int64_t reserved[3];
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};

#endif

#ifndef ARROW_C_DEVICE_STREAM_INTERFACE
#define ARROW_C_DEVICE_STREAM_INTERFACE

struct ArrowDeviceArrayStream {
  ArrowDeviceType device_type;
  int (*get_schema)(struct ArrowDeviceArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowDeviceArrayStream*, struct ArrowDeviceArray* out);
  const char* (*get_last_error)(struct ArrowDeviceArrayStream*);
  void (*release)(struct ArrowDeviceArrayStream*);
  void* private_data;
};

#endif

/* ----------------------------------------------------------------------------------- errors --- */

/* The status of a call. Later releases may add codes. Treat an unknown code as CROSSDOCK_INTERNAL,
 * and show its number. */
typedef int32_t crossdock_code;
#define CROSSDOCK_OK 0
#define CROSSDOCK_INVALID_ARGUMENT 1 /* the caller passed an invalid argument */
#define CROSSDOCK_UNSUPPORTED 2      /* the request is valid, but not supported */
#define CROSSDOCK_BAD_DATA 3         /* input data violates its format */
#define CROSSDOCK_WRONG_VERSION 4    /* host and plugin have different versions */
#define CROSSDOCK_OUT_OF_MEMORY 5    /* no memory left in the system or in the session's limit */
#define CROSSDOCK_DEVICE 6           /* a device or its driver failed, or is missing */
#define CROSSDOCK_IO 7               /* reading or writing a file or pipe failed */
#define CROSSDOCK_CANCELLED 8        /* the call's cancel flag was set */
#define CROSSDOCK_PANICKED 9         /* a panic was caught; the instance accepts only releases now */
#define CROSSDOCK_INTERNAL 10        /* a bug in the component that returns it */

#define CROSSDOCK_ERROR_RETRY 1u      /* the same call may succeed later */
#define CROSSDOCK_ERROR_HAS_OFFSET 2u /* `offset` is known */
#define CROSSDOCK_ERROR_HAS_ROW 4u    /* `row` is known */

/* An error. The caller sets `struct_size` and zeroes the other fields. After a failure, the caller
 * reads the fields that it needs, then calls `release` if `release` is not NULL. A function that
 * returns the error of a function that it called keeps `flags`, `offset` and `row`. */
typedef struct crossdock_error {
  size_t struct_size;
  crossdock_code code; /* the code that the function returns */
  uint32_t flags;      /* CROSSDOCK_ERROR_* */
  const char* message; /* one line: who, what, expected, got; UTF-8, NUL-terminated */
  const char* details; /* further text, or NULL; UTF-8, NUL-terminated */
  void (*release)(struct crossdock_error*);
  void* private_data;
  uint64_t offset; /* the position in the input, in bytes, if CROSSDOCK_ERROR_HAS_OFFSET is set */
  uint64_t row;    /* the row of the input, if CROSSDOCK_ERROR_HAS_ROW is set; the first row is 0 */
} crossdock_error;

/* ------------------------------------------------------------------------------ basic types --- */

/* A UTF-8 string, not NUL-terminated. `data` may be NULL if `bytes` is 0. Borrowed unless
 * documented otherwise. */
typedef struct crossdock_str {
  const char* data;
  size_t bytes;
} crossdock_str;

/* An option. A list of options has each key at most once. */
typedef struct crossdock_option {
  crossdock_str key;
  crossdock_str value;
} crossdock_option;

/* A device. `type` and `id` have the values that Arrow and DLPack define. `id` is -1 for
 * ARROW_DEVICE_CPU. */
typedef struct crossdock_device {
  int64_t id;
  ArrowDeviceType type;
  int32_t reserved;
} crossdock_device;

/* An instance of a plugin. Opaque to the host. */
typedef struct crossdock_instance crossdock_instance;

/* Handles of the memory interface. Each belongs to the crossdock_memory that created it. */
typedef struct crossdock_stream crossdock_stream;
typedef struct crossdock_event crossdock_event;
typedef struct crossdock_block crossdock_block;

/* ------------------------------------------------------------------------- tables and bytes --- */

/* A record batch: a struct array without null rows, and its schema. If the batch belongs to a
 * stream, a writer or an encoded node, `schema.release` is NULL, and the schema of the stream,
 * writer or node applies. The memory is on the CPU (then `sync_event` is NULL), on a CUDA device,
 * in pinned or managed CUDA memory, or on the test device (ARROW_DEVICE_EXT_DEV).
 *
 * If a batch or an encoded buffer was passed between host and plugin, the consumer must not release
 * it before all of the consumer's work on its memory has completed (see
 * crossdock_memory.call_after), because the producer frees the memory without waiting. This rule
 * does not apply to consumers of arrays in capsules (see CROSSDOCK_FREE_EXPORTED). */
typedef struct crossdock_batch {
  size_t struct_size;
  struct ArrowDeviceArray array;
  struct ArrowSchema schema;
  /* The sizes of the buffers in bytes, or NULL. A size of -1 is unknown. The list has one entry for
   * each entry of `buffers` of all arrays, in pre-order: the array's own buffers, the buffers of
   * its children in order, the buffers of its dictionary. Valid as long as the array. */
  const int64_t* buffer_sizes;
  size_t n_buffer_sizes;
  /* The key-value metadata of this batch, encoded as ArrowSchema.metadata, or NULL. Valid as long
   * as the array. */
  const char* metadata;
  /* The address of the number of rows, or NULL. Producers that know this number only on the device
   * set it. The address is on the device of the array, a multiple of 8, valid as long as the array,
   * and the number is ready when the array is. `array.array.length` is then a capacity: all arrays
   * and `buffer_sizes` describe this many rows, and the number of rows is 0 to the capacity. The
   * contents of the rows behind the number are undefined, including their offsets, and
   * `null_count` is 0 or -1 unless it is correct for all rows of the capacity.
   *
   * Only the batches of crossdock_batch_stream.get_next, and the batches that
   * crossdock_writer.write receives for a format with CROSSDOCK_FORMAT_DEVICE_ROWS, may have such
   * an address. In all other batches it is NULL. The consumer compares the number with the capacity
   * before it uses the number. It reads the number only when it needs the length, because the read
   * waits for the device. */
  const int64_t* n_rows_device;
} crossdock_batch;

/* A foreign object and its type. `name` is the name that Python capsules with such objects have:
 * "arrow_schema", "arrow_array", "arrow_array_stream", "arrow_device_array",
 * "arrow_device_array_stream", "dltensor", "dltensor_versioned", "vortex_buffer_export",
 * "crossdock_encoded_array".
 *
 * To take the object, a consumer does the following:
 *   - For Arrow's structs and encoded arrays: move the struct that `pointer` points to. This sets
 *     the `release` of the source to NULL.
 *   - For the other objects, whose deleter also frees the struct itself: copy the value of
 *     `pointer`, then set `pointer` to NULL.
 *   - Call `release` of the capsule. It frees the capsule. It also frees the object if the object
 *     was not taken. */
typedef struct crossdock_capsule {
  size_t struct_size;
  const char* name;
  void* pointer;
  void (*release)(struct crossdock_capsule*);
  void* private_data;
} crossdock_capsule;

/* A list of capsules. The consumer releases each capsule and the list. The list releases the
 * capsules that are still in it. A capsule that was moved out may outlive the list. The object in a
 * capsule is valid as long as the capsule. */
typedef struct crossdock_capsules {
  size_t struct_size;
  crossdock_capsule* capsules;
  size_t n_capsules;
  void (*release)(struct crossdock_capsules*);
  void* private_data;
} crossdock_capsules;

struct crossdock_call;

/* An input of bytes. */
typedef struct crossdock_source {
  size_t struct_size;
  /* The length of the content, or -1 if it is unknown (a pipe). If it is unknown, each `read_at`
   * must begin where the previous one ended. */
  int64_t bytes;
  /* A name for messages: a path, a URI, "standard input". */
  crossdock_str name;
  /* Reads bytes. [any-thread] if the length of the content is known, else [serial]. A call may take
   * long, for example a request to a server. Several calls at a time are then faster than one after
   * another.
   * @param offset    the first byte to read
   * @param to        host memory of at least `bytes` bytes
   * @param bytes     the number of bytes to read
   * @param out_read  the number of bytes read; less than `bytes` only at the end, possibly 0 */
  crossdock_code (*read_at)(struct crossdock_source*, uint64_t offset, void* to, size_t bytes, size_t* out_read,
                            crossdock_error* err);
  /* The whole content in host memory, or NULL. Valid until the source has been released and
   * `release_map` has been called as often as `retain_map`. Other processes may write to a mapped
   * file, so two reads of the same byte may differ. Copy bytes before you validate them. The host
   * tries to prevent other processes from truncating a mapped file. */
  const void* map;
  /* Adds a reference to the mapping. [any-thread] NULL if `map` is NULL. */
  void (*retain_map)(void* map_private);
  /* Releases a reference to the mapping. [any-thread] NULL if `map` is NULL. */
  void (*release_map)(void* map_private);
  void* map_private; /* the argument of `retain_map` and `release_map` */
  void (*release)(struct crossdock_source*);
  void* private_data;
  /* A text that differs if the content differs, such as an entity tag of a server; empty if there
   * is none. Valid as long as the source. */
  crossdock_str version;
} crossdock_source;

/* A destination for bytes, which are written in order. */
typedef struct crossdock_sink {
  size_t struct_size;
  /* A name for messages: a path, "standard output". */
  crossdock_str name;
  /* Writes all bytes. [serial]
   * @param from   host memory
   * @param bytes  the number of bytes */
  crossdock_code (*write)(struct crossdock_sink*, const void* from, size_t bytes, crossdock_error* err);
  void (*release)(struct crossdock_sink*);
  void* private_data;
} crossdock_sink;

/* --------------------------------------------------------------------------------- one call --- */

/* A request of the caller to stop. Valid for the call. The functions are [any-thread]. */
typedef struct crossdock_cancel {
  /* Not 0: stop. Another thread may change it during the call, so read it atomically. */
  uint32_t is_set;
  uint32_t reserved;
  size_t struct_size;
  /* Waits until the flag is set, but not longer than `milliseconds`.
   * @return 1 if the flag is set, else 0 */
  uint32_t (*wait)(const struct crossdock_cancel*, uint32_t milliseconds);
  /* Calls function(data) once on another thread when the flag is set, also if it is set already.
   * Use it to wake a thread that waits for something else. The function must return soon, must not
   * wait for other threads, and must not call `subscribe` or `unsubscribe`. Each subscription must
   * be ended with `unsubscribe` before the call returns, also after the function was called.
   * @param data    valid until `unsubscribe` has returned
   * @param out_id  the subscription, for `unsubscribe` */
  crossdock_code (*subscribe)(const struct crossdock_cancel*, void (*function)(void* data), void* data, uint64_t* out_id,
                              crossdock_error* err);
  /* Ends a subscription. If its function is running, waits until the function has returned. After
   * that, the function is not called any more. */
  void (*unsubscribe)(const struct crossdock_cancel*, uint64_t id);
  void* private_data;
} crossdock_cancel;

/* The settings of a call. All calls for one stream or one writer have the same `device`, with which
 * the stream or writer was opened. The other settings may differ between calls. */
typedef struct crossdock_call {
  size_t struct_size;
  /* The device for results. If the format's `device_types` do not include this device, an importer
   * returns batches in host memory, which the host copies to the device, and an exporter receives
   * batches in host memory. */
  crossdock_device device;
  /* The stream for device work; NULL for the default stream of `device`
   * (crossdock_memory.stream_default). A host never passes NULL. Results are ready when the work on
   * this stream has completed, or when their event has occurred. Inputs, and Arrow structs in
   * capsules, are ready when their event has occurred, or immediately if they have no event.
   * Therefore record an event for a result before you pass the result as an input or in a capsule.
   * Tensors, as inputs and as results, are ready for work that is enqueued on this stream later. */
  crossdock_stream* stream;
  /* The flag with which the caller cancels the call, or NULL. Read it at least once per batch or
   * every 100 ms (CROSSDOCK_IS_CANCELLED). If it is set, stop and return CROSSDOCK_CANCELLED. If a
   * function of the host fails with CROSSDOCK_CANCELLED, return this error. A call that blocks for
   * longer than 100 ms, other than in a function of the host, subscribes to the flag. */
  const crossdock_cancel* cancel;
  /* Reports progress. Nullable. [any-thread]
   * @param progress_data  the field `progress_data`
   * @param bytes_done     bytes of input processed so far; at the end of a stream, all bytes that
   *                       were used
   * @param bytes_total    bytes of input, or 0 if unknown */
  void (*progress)(void* progress_data, uint64_t bytes_done, uint64_t bytes_total);
  void* progress_data;
  /* The maximum number of bytes that the call should hold in memory at a time; 0 for no preference.
   * The host enforces the session's memory limit separately. */
  uint64_t byte_budget;
  /* How to validate external data: CROSSDOCK_VALIDATE_LAYOUT or CROSSDOCK_VALIDATE_FULL. */
  uint32_t validate;
  uint32_t reserved;
} crossdock_call;

/* Validate everything except the contents of buffers: counts, lengths, NULL pointers, alignment,
 * devices. */
#define CROSSDOCK_VALIDATE_LAYOUT 0
/* Also validate the contents of buffers: offsets, indices, UTF-8. */
#define CROSSDOCK_VALIDATE_FULL 1

/* The code with which a function must reject a call that this file does not define: a reserved
 * field that is not 0, or an unknown value of `validate`. CROSSDOCK_OK for every other call. */
#define CROSSDOCK_CHECK_CALL(call)                                               \
  (!CROSSDOCK_HAS(call, reserved)                ? CROSSDOCK_OK                  \
   : (call)->reserved != 0                       ? CROSSDOCK_INVALID_ARGUMENT    \
   : (call)->validate > CROSSDOCK_VALIDATE_FULL  ? CROSSDOCK_UNSUPPORTED         \
                                                 : CROSSDOCK_OK)

/* Whether the caller has cancelled the call. Requires GCC or Clang. */
#define CROSSDOCK_IS_CANCELLED(call) \
  (CROSSDOCK_HAS(call, cancel) && (call)->cancel && __atomic_load_n(&(call)->cancel->is_set, __ATOMIC_RELAXED) != 0)

/* ------------------------------------------------------------ interfaces: tables in and out --- */

/* A stream of batches with one schema. After the end of the stream or a failed call, the caller may
 * only call `get_schema` and `release`. After a failed read from a source of unknown length, do not
 * read from this source again. */
typedef struct crossdock_batch_stream {
  size_t struct_size;
  /* Returns the schema. [serial] Does not wait for input, because `open` has already read
   * everything that the schema needs.
   * @param out  the schema, owned by the caller */
  crossdock_code (*get_schema)(struct crossdock_batch_stream*, struct ArrowSchema* out, crossdock_error* err);
  /* Returns the next batch. [serial]
   * @param out  the batch, owned by the caller; it may outlive the stream. At the end of the
   *             stream, `out->array.array.release` is NULL. */
  crossdock_code (*get_next)(struct crossdock_batch_stream*, const crossdock_call* call, crossdock_batch* out,
                             crossdock_error* err);
  void (*release)(struct crossdock_batch_stream*);
  void* private_data;
  /* The parts of the request that the stream honours: CROSSDOCK_HONOURS_*. If
   * CROSSDOCK_HONOURS_COLUMNS is set, the schema and the batches have the requested columns, and
   * else all columns. If CROSSDOCK_HONOURS_ROWS is set, the batches have the requested rows, and
   * else all rows. If CROSSDOCK_PRUNES_ROWS is set, rows that do not fulfil all predicates of the
   * request may be missing. If it is set and the request has rows, CROSSDOCK_HONOURS_ROWS must be
   * set too, because the host no longer knows the positions of rows. */
  uint32_t honoured;
  uint32_t reserved;
  /* The number of rows that the stream returns in total, if CROSSDOCK_HAS_ROW_COUNT is set. */
  uint64_t n_rows;
  /* Bit i is set if all returned rows fulfil predicate i of the request. Nonzero only if
   * CROSSDOCK_PRUNES_ROWS is set. The host applies the other predicates. */
  uint64_t exact_predicates;
  /* Options for writing the format, with which a writer stores data as the input does, such as its
   * compression. A host uses them as defaults if it writes a format of the same plugin that has
   * these options. Valid until the stream is released. May be absent; needed only if
   * CROSSDOCK_READ_WRITE_OPTIONS is set in the request. */
  const crossdock_option* write_options;
  size_t n_write_options;
} crossdock_batch_stream;

#define CROSSDOCK_HONOURS_COLUMNS 1u
#define CROSSDOCK_HONOURS_ROWS 2u
#define CROSSDOCK_HAS_ROW_COUNT 4u
#define CROSSDOCK_PRUNES_ROWS 8u

/* A writer of batches. If it is released before `finish`, everything that it wrote is discarded.
 * After a failed call, the caller may only call `release`. */
typedef struct crossdock_writer {
  size_t struct_size;
  /* Writes a batch. [serial]
   * @param batch  takes ownership, also on failure
   * @param out    the capsules that contain this batch, owned by the caller; empty if the batch was
   *               written to the sink */
  crossdock_code (*write)(struct crossdock_writer*, const crossdock_call* call, crossdock_batch* batch,
                          crossdock_capsules* out, crossdock_error* err);
  /* Ends the output. [serial] Call it at most once.
   * @param out  the remaining capsules, owned by the caller; may be empty */
  crossdock_code (*finish)(struct crossdock_writer*, const crossdock_call* call, crossdock_capsules* out,
                           crossdock_error* err);
  void (*release)(struct crossdock_writer*);
  void* private_data;
} crossdock_writer;

/* Bytes that identify a format, at offset `offset` of the data. A negative offset counts from the
 * end of the data: -4 means that the bytes begin 4 bytes before the end. The bytes must be within
 * the first or the last 4096 bytes of the data. Bytes at the end do not identify data of unknown
 * length. */
typedef struct crossdock_magic {
  int64_t offset;
  const void* data;
  size_t bytes;
} crossdock_magic;

/* An option that a format accepts for reading or for writing. */
typedef struct crossdock_option_info {
  size_t struct_size;
  crossdock_str key;
  crossdock_str description; /* one line for users: the values, the default */
} crossdock_option_info;

#define CROSSDOCK_FORMAT_BYTES 1u    /* is read from a source or written to a sink */
#define CROSSDOCK_FORMAT_CAPSULES 2u /* is read from capsules or written as capsules */
/* The importer uses predicates. The host passes none for formats without this flag, and opens
 * inputs of formats with this flag twice: predicates have the types of the schema that it reads
 * first. */
#define CROSSDOCK_FORMAT_FILTERS 4u
/* The format is read from one or several sources at once, which form one table. */
#define CROSSDOCK_FORMAT_SEVERAL 8u
/* The writers accept batches whose number of rows is on the device (crossdock_batch.n_rows_device)
 * and write only these rows. Without this flag, the host reads the number and passes these rows.
 * The host also does this if a column has another layout than values of a fixed width. */
#define CROSSDOCK_FORMAT_DEVICE_ROWS 16u

/* A format that an importer reads or an exporter writes. Valid as long as the instance. */
typedef struct crossdock_format {
  size_t struct_size;
  crossdock_str name;        /* "arrow-ipc-file" */
  crossdock_str description; /* one line for users: what the format stores, and what it cannot */
  uint32_t flags;            /* CROSSDOCK_FORMAT_* */
  uint32_t reserved;
  const crossdock_magic* magics; /* alternatives; none: the format is not recognised by its bytes */
  size_t n_magics;
  const crossdock_str* extensions; /* file extensions: ".arrow"; "-" for standard output */
  size_t n_extensions;
  const crossdock_str* capsules; /* the names of the capsules that it reads or writes */
  size_t n_capsules;
  const ArrowDeviceType* device_types; /* device types of the batches; none: any */
  size_t n_device_types;
  const crossdock_option_info* options; /* the accepted options; it rejects other keys */
  size_t n_options;
} crossdock_format;

/* The input of an importer. One of `sources` and `capsules` is NULL. The importer moves the objects
 * out that the other pointer refers to. */
typedef struct crossdock_input {
  size_t struct_size;
  crossdock_capsules* capsules;
  /* A list. It has one element, unless the format has CROSSDOCK_FORMAT_SEVERAL. Move an element
   * with CROSSDOCK_MOVE; `sources` points to the first element, and CROSSDOCK_AT(sources, i) to the
   * others. */
  crossdock_source* sources;
  size_t n_sources; /* 0 if `sources` is NULL, else at least 1 */
} crossdock_input;

/* A column, or a field of nested structs: names from the top-level column down. */
typedef struct crossdock_path {
  const crossdock_str* names;
  size_t n_names; /* at least 1 */
} crossdock_path;

/* The rows from `begin` up to, but not including, `end`. `begin` < `end`, except where a comment
 * allows an empty range, in which `begin` == `end`. */
typedef struct crossdock_row_range {
  uint64_t begin;
  uint64_t end;
} crossdock_row_range;

/* The comparison of a predicate. Later releases may add comparisons. Do not apply a predicate with
 * an unknown comparison. */
typedef uint32_t crossdock_comparison;
#define CROSSDOCK_COMPARE_EQUAL 1u
#define CROSSDOCK_COMPARE_NOT_EQUAL 2u
#define CROSSDOCK_COMPARE_LESS 3u
#define CROSSDOCK_COMPARE_LESS_EQUAL 4u
#define CROSSDOCK_COMPARE_GREATER 5u
#define CROSSDOCK_COMPARE_GREATER_EQUAL 6u

/* A comparison of the values of a column with a literal. A row fulfils the predicate if its value
 * is not null, and the comparison holds. Numbers, dates and times are compared as numbers; NaN
 * equals no number and is neither less nor greater, as in IEEE 754. Strings and binary values are
 * compared by their bytes: the first different byte decides, else the length. false is less than
 * true. */
typedef struct crossdock_predicate {
  size_t struct_size;
  crossdock_path column;
  crossdock_comparison comparison;
  uint32_t reserved;
  /* The type of the literal: the type of the column or, if the column is dictionary-encoded or
   * run-end encoded, of its values. For all strings it is "u", and for all binary values "z". */
  const struct ArrowSchema* type;
  /* One value that is neither null nor NaN, in host memory. */
  const struct ArrowArray* literal;
} crossdock_predicate;

#define CROSSDOCK_READ_COLUMNS 1u /* only the columns in `columns` are needed; there may be none */
#define CROSSDOCK_READ_ROWS 2u    /* only the rows in `rows` are needed; there may be none */
#define CROSSDOCK_READ_FILTER 4u  /* only rows that fulfil all `predicates` are needed */
/* The caller uses crossdock_batch_stream.n_rows. Set it if the metadata of the input contains the
 * number of rows, also if this takes several small reads. */
#define CROSSDOCK_READ_ROW_COUNT 8u
/* The caller uses crossdock_batch_stream.write_options. Set them if this takes at most one small
 * read of a source of known length. */
#define CROSSDOCK_READ_WRITE_OPTIONS 16u

/* What a caller reads. An importer may ignore `columns`, `rows`, `predicates` and the sizes of
 * batches. The host then drops columns and rows itself. An importer that honours `columns` returns
 * all of them and no others; an importer that honours `rows` returns exactly these rows. An
 * importer that prunes rows must return each requested row that fulfils all predicates. */
typedef struct crossdock_read_request {
  size_t struct_size;
  crossdock_str format; /* the name of one of the importer's formats */
  /* The importer takes ownership of its sources or capsules, also on failure. */
  const crossdock_input* input;
  /* The schema of the whole input that the caller expects, or NULL. If the format stores a schema,
   * the importer rejects an input with a different schema. If the format stores no types, the
   * importer uses the names, types and order of the expected schema. */
  const struct ArrowSchema* schema;
  const crossdock_option* options; /* options of the format */
  size_t n_options;
  /* CROSSDOCK_READ_*. Ignore a flag that you do not know: the host itself does what the stream does
   * not state in `honoured`. */
  uint32_t flags;
  uint32_t reserved;
  /* The columns and fields to read; no path begins with another path. The result keeps the order of
   * the input's schema. A struct of which only some fields are listed keeps its name and its own
   * validity. If a path is not in the schema, or its name is not unique there, ignore `columns`:
   * the host then reports the error. */
  const crossdock_path* columns;
  size_t n_columns;
  /* The rows to read, as positions in the whole input: ascending ranges that do not overlap. Rows
   * beyond the end of the input do not exist, which is not an error. */
  const crossdock_row_range* rows;
  size_t n_rows;
  /* The preferred size of a batch; 0: the format's own. */
  uint64_t batch_rows;
  uint64_t batch_bytes;
  /* Conditions on rows, at most 64. The rows in `rows` are positions before any condition. The
   * columns of predicates are among `columns`. */
  const crossdock_predicate* predicates;
  size_t n_predicates;
  /* The token of a fragment that crossdock_importer.fragments returned for this input and these
   * options, or NULL. Only the piece is read, with the schema of the whole input, and `rows` are
   * positions in the piece. Always NULL if the importer has no function `fragments`. Tokens pass
   * through users and other processes: check a token like the bytes of an input, and return
   * CROSSDOCK_BAD_DATA if it is not a token of this input. */
  const void* fragment;
  size_t fragment_bytes; /* at most CROSSDOCK_MAX_TOKEN_BYTES; 0 if `fragment` is NULL */
} crossdock_read_request;

#define CROSSDOCK_MAX_TOKEN_BYTES 65536u

/* A piece of an input that can be read independently of the other pieces. */
typedef struct crossdock_fragment {
  size_t struct_size;
  /* Identifies the piece, for crossdock_read_request.fragment. It is valid in every process and in
   * every instance of the same version of the plugin, as long as the input does not change. */
  const void* token;
  size_t token_bytes; /* from 1 to CROSSDOCK_MAX_TOKEN_BYTES */
  int64_t n_rows;     /* the number of rows, or -1 if it is unknown */
  uint64_t bytes;     /* the bytes of the input to read for all columns; 0 if unknown; may be an estimate */
  /* Statistics of the piece, or NULL: a batch in host memory, with a schema, as Arrow's "Statistics
   * schema" defines it: the columns `column` (int32; null for the rows themselves) and `statistics`
   * (a map from dictionary-encoded names such as "ARROW:null_count:exact" to a dense union). The
   * consumer may move the batch out. */
  crossdock_batch* statistics;
} crossdock_fragment;

/* A list of fragments. The consumer releases it. The list releases the statistics that are still in
 * it. Statistics that were moved out may outlive the list and the instance. */
typedef struct crossdock_fragments {
  size_t struct_size;
  const crossdock_fragment* fragments;
  size_t n_fragments;
  void (*release)(struct crossdock_fragments*);
  void* private_data;
} crossdock_fragments;

#define CROSSDOCK_IMPORTER_ID "crossdock.importer/1"

/* Reads formats. */
typedef struct crossdock_importer {
  size_t struct_size;
  /* Lists the formats that this plugin reads. [any-thread]
   * @param out    the list, borrowed from the instance
   * @param n_out  its length */
  crossdock_code (*formats)(crossdock_instance*, const crossdock_format** out, size_t* n_out, crossdock_error* err);
  /* Opens an input. [any-thread]
   * @param out  the stream, owned by the caller */
  crossdock_code (*open)(crossdock_instance*, const crossdock_call* call, const crossdock_read_request* request,
                         crossdock_batch_stream* out, crossdock_error* err);
  /* Lists pieces of an input that can be read independently. In the order of the list, the pieces
   * contain each row of the input exactly once, in the order of the input. [any-thread] Nullable:
   * an input is then one piece.
   * @param request  as for `open`, also the ownership of the input, which is a source of known
   *                 length; `fragment` is NULL; the columns, rows and sizes of batches are ignored
   * @param out      the list, owned by the caller; may be empty if the input has no rows */
  crossdock_code (*fragments)(crossdock_instance*, const crossdock_call* call, const crossdock_read_request* request,
                              crossdock_fragments* out, crossdock_error* err);
} crossdock_importer;

#define CROSSDOCK_OPENER_ID "crossdock.opener/1"

/* Opens URIs. An isolated plugin cannot offer this interface, because its process has no access to
 * the network. */
typedef struct crossdock_opener {
  size_t struct_size;
  /* Lists the URI schemes that this plugin opens. [any-thread]
   * @param out    the list, borrowed from the instance: a scheme has only lower-case letters,
   *               digits, '+', '-' and '.', and begins with a letter: "s3"
   * @param n_out  its length */
  crossdock_code (*schemes)(crossdock_instance*, const crossdock_str** out, size_t* n_out, crossdock_error* err);
  /* Opens a URI for reading. [any-thread] The source has a known length. Its `read_at` returns
   * within bounded time, also if a server does not respond. It fails if the content has changed
   * since `open`.
   * @param uri      begins with one of the schemes, in any case, and "://"
   * @param options  settings such as credentials; the opener rejects keys that it does not know
   * @param out      the source, owned by the caller. It may outlive the call, but is released
   *                 before the instance is destroyed. Its name contains no password. */
  crossdock_code (*open)(crossdock_instance*, const crossdock_call* call, crossdock_str uri,
                         const crossdock_option* options, size_t n_options, crossdock_source* out, crossdock_error* err);
} crossdock_opener;

/* What an export does with the bytes of a column. Later releases may add verdicts. Treat an unknown
 * verdict as CROSSDOCK_CANNOT. */
typedef uint32_t crossdock_verdict;
#define CROSSDOCK_ZERO_COPY 0u   /* the export refers to the column's own bytes */
#define CROSSDOCK_CONVERTED 1u   /* the export has converted bytes, on the same device; see `reason` */
#define CROSSDOCK_COPIED 2u      /* the export has a copy of the bytes on device `to` */
#define CROSSDOCK_CANNOT 3u      /* the export is not possible; `reason` says why, and what to do instead */

/* The plan for one top-level column. */
typedef struct crossdock_column_plan {
  size_t struct_size;
  crossdock_str name;
  crossdock_verdict verdict;
  uint32_t reserved;
  crossdock_device to; /* the device of the exported bytes */
  crossdock_str reason;
} crossdock_column_plan;

/* The plan for an export. */
typedef struct crossdock_plan {
  size_t struct_size;
  const crossdock_column_plan* columns; /* in the order of the schema */
  size_t n_columns;
  void (*release)(struct crossdock_plan*);
  void* private_data;
} crossdock_plan;

#define CROSSDOCK_EXPORTER_ID "crossdock.exporter/1"

/* Writes formats. */
typedef struct crossdock_exporter {
  size_t struct_size;
  /* Lists the formats that this plugin writes. [any-thread]
   * @param out    the list, borrowed from the instance
   * @param n_out  its length */
  crossdock_code (*formats)(crossdock_instance*, const crossdock_format** out, size_t* n_out, crossdock_error* err);
  /* Plans an export without performing it. [any-thread]
   * @param call     `call->device` is the device to export to
   * @param format   the name of one of the formats
   * @param schema   the schema of the batches
   * @param from     the device of the batches
   * @param options  options of the format
   * @param out      the plan, owned by the caller */
  crossdock_code (*plan)(crossdock_instance*, const crossdock_call* call, crossdock_str format,
                         const struct ArrowSchema* schema, crossdock_device from, const crossdock_option* options,
                         size_t n_options, crossdock_plan* out, crossdock_error* err);
  /* Creates a writer. [any-thread]
   * @param format   the name of one of the formats
   * @param schema   the schema of the batches
   * @param options  options of the format
   * @param sink     takes ownership, also on failure; NULL if the format is written as capsules
   * @param out      the writer, owned by the caller */
  crossdock_code (*begin)(crossdock_instance*, const crossdock_call* call, crossdock_str format,
                          const struct ArrowSchema* schema, const crossdock_option* options, size_t n_options,
                          crossdock_sink* sink, crossdock_writer* out, crossdock_error* err);
} crossdock_exporter;

/* --------------------------------------------------------------------- interfaces: encoding --- */

/* A buffer of an encoded array. A `decode` call may move the buffers of its node out, so that the
 * result can use their memory. Before a buffer is moved, its `release` is not NULL, even if the
 * buffer has 0 bytes. */
typedef struct crossdock_encoded_buffer {
  size_t struct_size;
  const void* address; /* a multiple of `alignment`, or NULL if `bytes` is 0 */
  uint64_t bytes;
  uint64_t alignment; /* bytes, a power of two */
  crossdock_device device;
  void* sync_event; /* as in ArrowDeviceArray */
  void (*release)(struct crossdock_encoded_buffer*);
  void* private_data;
} crossdock_encoded_buffer;

/* A node of an encoded array's tree. */
typedef struct crossdock_encoded_node {
  size_t struct_size;
  crossdock_str encoding;           /* the encoding's id, including its version if it has one */
  const struct ArrowSchema* schema; /* the logical type, borrowed; or NULL, see `dtype` */
  uint64_t length;                  /* number of values */
  const void* metadata;
  size_t metadata_bytes;
  uint32_t first_buffer; /* the index of the node's first buffer in the array's list */
  uint32_t n_buffers;
  /* The first child is the next node in the list of nodes. Each further child follows the last
   * descendant of the previous child. */
  uint32_t n_children;
  uint32_t reserved;
  /* If `schema` is NULL: the logical type as a Vortex DType flatbuffer. Only importers of encoded
   * arrays accept nodes without a schema. Nodes that are passed to crossdock_encoding have
   * schemas. */
  const void* dtype;
  size_t dtype_bytes;
} crossdock_encoded_node;

/* An encoded array: a tree of nodes, stored as a list in pre-order, and the buffers of all nodes.
 * Each buffer belongs to one node. The list of buffers begins with the buffers of the first node,
 * followed by the buffers of the second node, and so on. */
typedef struct crossdock_encoded_array {
  size_t struct_size;
  const crossdock_encoded_node* nodes;
  size_t n_nodes;
  crossdock_encoded_buffer* buffers;
  size_t n_buffers;
  void (*release)(struct crossdock_encoded_array*);
  void* private_data;
} crossdock_encoded_array;

/* Operators. A list of operators is a program that computes the values of a node. The host runs the
 * program with its own kernels, on any device, in one pass with the programs of the node's
 * ancestors and descendants.
 *
 *   - The node's type is a number of 1, 2, 4 or 8 bytes. Each value is a word of that width.
 *   - The first operator is a source, which produces the words. Each following operator is a step,
 *     which changes each word that the previous operator produced.
 *   - A program refers to each child of the node exactly once.
 *   - Operators treat words as integers and wrap around on overflow, even if the node's type is a
 *     float type. The only exceptions are operators whose description mentions floats.
 *   - Fields `index`, `a` and `b` that an operator does not use are 0. If a field contains a word
 *     of 1, 2 or 4 bytes, its lowest bits are the word, and its other bits are ignored.
 *   - Later releases may add operators. If a program has an operator that the host does not
 *     support, the host calls `decode`.
 *
 * In the descriptions of the operators, out[i] is word i of the result, x is the word that a step
 * changes, and "child k" means the values of child k of the node. */

/* Source: out[i] = word i of the words that begin at byte `a` of buffer `index`. */
#define CROSSDOCK_OP_LOAD 1u
/* Source: out[i] = value b + i of the packed integers in buffer `index`. Each integer has `a` bits,
 * where `a` is at most the number of bits of a word. b < 1024. The buffer consists of blocks of
 * 1024 values in the FastLanes layout for words of the node's width. Each block, including the last
 * block, has 128 * a bytes. */
#define CROSSDOCK_OP_UNPACK 2u
/* Source: out[i] = value i of child `index`, whose values have the width of the node's values.
 * Value i is null if it is null in the child. */
#define CROSSDOCK_OP_CHILD 3u
/* Source: out[i] = a + i * b. */
#define CROSSDOCK_OP_SEQUENCE 4u
/* Source: out[i] = values[codes[i]], where codes is child `index` (integers) and values is child
 * `a`. Value i is null if codes[i] or values[codes[i]] is null. */
#define CROSSDOCK_OP_DICTIONARY 5u
/* Source: out[i] = values[k], where k is the first index with ends[k] > b + i. Here ends is child
 * `index` (ascending integers without nulls), and values is child `a`. Value i is null if values[k]
 * is null. */
#define CROSSDOCK_OP_RUNS 6u
/* Step: x + a. */
#define CROSSDOCK_OP_ADD 7u
/* Step: x ^ a. */
#define CROSSDOCK_OP_XOR 8u
/* Step: (x >> 1) ^ -(x & 1); 0, 1, 2, 3, 4... become 0, -1, 1, -2, 2... */
#define CROSSDOCK_OP_ZIGZAG 9u
/* Step: converts signed integers of 4 or 8 bytes to floats of the same width, with rounding to
 * nearest, ties to even. */
#define CROSSDOCK_OP_TO_FLOAT 10u
/* Step: x * f, where x is a float of 4 or 8 bytes, and f is the float with the bits `a`. */
#define CROSSDOCK_OP_SCALE 11u
/* Step: out[indices[j] - b] = values[j] for each j, where indices is child `index` (ascending
 * integers) and values is child `a`; neither has nulls. */
#define CROSSDOCK_OP_PATCH 12u
/* Step: value i is also null if value i of child `index` (booleans without nulls) is false. The
 * node's type is nullable. */
#define CROSSDOCK_OP_VALIDITY 13u
/* Source: out[i] = value i of child `index`, which has integers of 1, 2, 4 or 8 bytes. Each integer
 * is truncated to the node's width, or extended to it: signed integers by the sign, unsigned
 * integers by zeros. Value i is null if it is null in the child. */
#define CROSSDOCK_OP_CAST 14u
/* Source: out[i] = the sum, over this operator and the OP_TERM operators that follow it, of value i
 * of child `index` times `a`. A program has at most 4 terms. The children have integers of 1, 2, 4
 * or 8 bytes, `a` is less than 2^60, and words have 8 bytes. Value i is null if it is null in the
 * child of the first term. The other children have no nulls. It is an error if a sum of a valid
 * value does not fit into a signed integer of 8 bytes. Only OP_VALIDITY may follow. */
#define CROSSDOCK_OP_TERM 15u
/* Source: joins left and right parts to words of 4 or 8 bytes. `index` has four bytes, from the
 * lowest: the child with the codes of the left parts (unsigned integers of 2 bytes), the child with
 * the right parts (values of the node's width, without nulls), the number r of bits of a right part
 * (at least 1, and less than the bits of a word), and the number of left parts (at most 8). The
 * left parts have 16 bits each; the first is in the lowest bits of `a`, the fifth in the lowest
 * bits of `b`, and those beyond the number are 0. A left part and r together have at most the bits
 * of a word. out[i] = left_parts[codes[i]] << r | the r lowest bits of rights[i]. Value i is null
 * if codes[i] is null. Only OP_PATCH_LEFT and OP_VALIDITY may follow. */
#define CROSSDOCK_OP_JOIN 16u
/* Step after OP_JOIN: replaces the left part of out[indices[j] - b] by lefts[j] for each j, where
 * indices is child `index` (ascending integers) and lefts is child `a` (unsigned integers of 2
 * bytes); neither has nulls. */
#define CROSSDOCK_OP_PATCH_LEFT 17u
#define CROSSDOCK_MAX_OPERATORS 32

/* An operator. */
typedef struct crossdock_operator {
  uint32_t code; /* CROSSDOCK_OP_* */
  uint32_t index;
  uint64_t a;
  uint64_t b;
} crossdock_operator;

/* How a node is decoded. Before the host calls `plan`, it sets all fields to a default plan. */
typedef struct crossdock_decode_plan {
  size_t struct_size;
  /* The device on which `decode` runs: the wanted device or the CPU. Default: the CPU. */
  crossdock_device device;
  /* The rows of the node that `decode` returns. They include the wanted rows. The host drops the
   * other rows. May be empty if no rows are wanted. Default: all rows of the node. */
  crossdock_row_range rows;
  /* One entry for each descendant of the node, in pre-order: 1 if `decode` needs the descendant
   * decoded, 0 if `decode` needs it encoded. The plugin checks and decodes an encoded descendant
   * itself. Entries for descendants of a decoded node are ignored. Default: 1 for the children of
   * the node, 0 for all other descendants. */
  uint8_t* decoded;
  /* One entry for each descendant of the node, in pre-order: the rows that `decode` needs if it
   * needs the descendant decoded. If a range is empty, the host passes an empty batch, and reads no
   * buffer of the descendant. Default: all rows. */
  crossdock_row_range* rows_below;
  size_t n_below; /* the number of descendants of the node */
} crossdock_decode_plan;

#define CROSSDOCK_ENCODING_ID "crossdock.encoding/1"

/* The number of values of a child that cannot be derived from its parent. */
#define CROSSDOCK_LENGTH_UNKNOWN UINT64_MAX

/* Decodes nodes of encoded arrays. `node` is the index of a node in `array`, and `rows` is a range
 * of the node's values, which may be empty. A plugin that can only decode whole nodes ignores
 * `rows`. */
typedef struct crossdock_encoding {
  size_t struct_size;
  /* Lists the ids of the encodings that this plugin decodes. [any-thread]
   * @param out    the list, borrowed from the instance
   * @param n_out  its length */
  crossdock_code (*ids)(crossdock_instance*, const crossdock_str** out, size_t* n_out, crossdock_error* err);
  /* Checks a node against its metadata, buffers and children. Does not read device memory.
   * [any-thread] */
  crossdock_code (*check)(crossdock_instance*, const crossdock_encoded_array* array, size_t node, crossdock_error* err);
  /* Derives the types and the lengths of a node's children from the id, the type, the length and
   * the metadata of the node. Formats that store the type of the first node only, such as Vortex
   * files, need this function. Nullable: if NULL, such formats cannot contain the encodings of the
   * plugin. [any-thread]
   * @param node     a node with a schema. The function must not use its children and its buffers.
   * @param schemas  `node->n_children` released structs. The callee sets them to the types.
   * @param lengths  `node->n_children` numbers, which are CROSSDOCK_LENGTH_UNKNOWN. The callee sets
   *                 those that it can derive. */
  crossdock_code (*children)(crossdock_instance*, const crossdock_encoded_node* node, struct ArrowSchema* schemas,
                             uint64_t* lengths, crossdock_error* err);
  /* Returns how much memory the decoding of rows of a node needs. Does not read device memory.
   * [any-thread]
   * @param rows       the wanted rows or, if `decode` decodes the node, the rows that it returns
   * @param out_bytes  the number of bytes, or -1 if it depends on the contents of device memory */
  crossdock_code (*size)(crossdock_instance*, const crossdock_encoded_array* array, size_t node,
                         const crossdock_row_range* rows, int64_t* out_bytes, crossdock_error* err);
  /* Returns the program of a node. The host calls this function if it needs the node's values on a
   * device. If `decode` is NULL, the host calls this function for each node. The node has passed
   * `check`. Nullable: if NULL, no node has a program. [any-thread]
   * @param out       an array of `capacity` operators
   * @param capacity  at least CROSSDOCK_MAX_OPERATORS
   * @param n_out     the number of operators written, 1 to CROSSDOCK_MAX_OPERATORS
   * @return CROSSDOCK_UNSUPPORTED if the node has no program */
  crossdock_code (*lower)(crossdock_instance*, const crossdock_encoded_array* array, size_t node, crossdock_operator* out,
                          size_t capacity, size_t* n_out, crossdock_error* err);
  /* Plans the decoding of a node. Nullable: if NULL, the host uses the default plan. [any-thread]
   * @param wanted       the device for the result
   * @param wanted_rows  the rows that the result must include
   * @param plan         the default plan, which the plugin changes */
  crossdock_code (*plan)(crossdock_instance*, const crossdock_encoded_array* array, size_t node, crossdock_device wanted,
                         const crossdock_row_range* wanted_rows, crossdock_decode_plan* plan, crossdock_error* err);
  /* Decodes rows of a node as planned. Nullable if all nodes have programs. [any-thread]
   * @param call     `call->device` is the planned device, where the buffers of the node are
   * @param rows     the planned rows
   * @param below    one batch for each descendant of this node, in pre-order: a batch with one
   *                 column if the descendant is decoded, else a released batch. Takes ownership,
   *                 also on failure.
   * @param n_below  the number of descendants of this node
   * @param out      a batch of one column with the type of the node and the length of `rows`, owned
   *                 by the caller */
  crossdock_code (*decode)(crossdock_instance*, const crossdock_call* call, const crossdock_encoded_array* array, size_t node,
                           const crossdock_row_range* rows, crossdock_batch* below, size_t n_below, crossdock_batch* out,
                           crossdock_error* err);
} crossdock_encoding;

#define CROSSDOCK_ENCODER_ID "crossdock.encoder/1"

/* Encodes columns. A plugin can encode to encodings that other plugins decode. */
typedef struct crossdock_encoder {
  size_t struct_size;
  /* Lists the ids of the encodings that this plugin encodes to. [any-thread]
   * @param out    the list, borrowed from the instance
   * @param n_out  its length */
  crossdock_code (*ids)(crossdock_instance*, const crossdock_str** out, size_t* n_out, crossdock_error* err);
  /* Encodes a column. [any-thread]
   * @param call       `call->device` is the device of the column
   * @param encoding   an element of the list, which becomes the encoding of the first node of `out`
   * @param options    the options of the encoding. An unknown option is an error.
   * @param schema     the type of the column, borrowed for the call
   * @param column     a batch of one column. Takes ownership, also on failure.
   * @param out        an array with the type, the length and the values of the column, owned by the
   *                   caller. Its buffers may be on any device.
   * @return CROSSDOCK_UNSUPPORTED if the encoding cannot represent the type or the values, or if
   *         the plugin cannot encode on this device. The host then passes the column on the CPU. */
  crossdock_code (*encode)(crossdock_instance*, const crossdock_call* call, crossdock_str encoding,
                           const crossdock_option* options, size_t n_options, const struct ArrowSchema* schema,
                           crossdock_batch* column, crossdock_encoded_array* out, crossdock_error* err);
} crossdock_encoder;

/* ------------------------------------------------------------------- interfaces of the host --- */

/* The host of one instance, reference-counted. It is valid until `destroy` of the instance has
 * returned and all references have been released. An object of the plugin that needs the host's
 * memory (a batch, a capsule) must hold a reference until the object is released. The object may
 * then outlive the session, the instance and the host. */
typedef struct crossdock_host {
  size_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  /* Adds a reference. [any-thread] */
  void (*retain)(const struct crossdock_host*);
  /* Releases a reference. [any-thread] */
  void (*release)(const struct crossdock_host*);
  /* Returns an interface of the host. [any-thread]
   * @param id  NUL-terminated
   * @return the interface, valid as long as the host object; NULL if the host has none with this
   *         id */
  const void* (*get_interface)(const struct crossdock_host*, const char* id);
  void* private_data;
} crossdock_host;

#define CROSSDOCK_HOST_LOG_ID "crossdock.host.log/1"
#define CROSSDOCK_LOG_ERROR 1
#define CROSSDOCK_LOG_WARN 2
#define CROSSDOCK_LOG_INFO 3
#define CROSSDOCK_LOG_DEBUG 4
#define CROSSDOCK_LOG_TRACE 5

/* The host's log. */
typedef struct crossdock_host_log {
  size_t struct_size;
  /* Writes a line. [any-thread]
   * @param level  CROSSDOCK_LOG_* */
  void (*write)(const struct crossdock_host_log*, int32_t level, crossdock_str message);
  void* private_data;
} crossdock_host_log;

#define CROSSDOCK_HOST_DECODE_ID "crossdock.host.decode/1"

/* Decodes encoded arrays with the plugins of the instance's session. */
typedef struct crossdock_host_decode {
  size_t struct_size;
  /* Decodes rows of an array. [any-thread]
   * @param array  takes ownership, also on failure. The name of the root's type is the name of the
   *               column in plans
   * @param rows   the rows to decode, which may be empty; NULL for all rows
   * @param out    a batch of one column on the call's device, owned by the caller */
  crossdock_code (*decode)(const struct crossdock_host_decode*, const crossdock_call* call, crossdock_encoded_array* array,
                           const crossdock_row_range* rows, crossdock_batch* out, crossdock_error* err);
  /* Derives the types and the lengths of a node's children, with the plugin that decodes the node.
   * The parameters are those of crossdock_encoding.children. [any-thread]
   * @return CROSSDOCK_UNSUPPORTED if no plugin decodes the node, or if the plugin cannot derive the
   *         types */
  crossdock_code (*children)(const struct crossdock_host_decode*, const crossdock_encoded_node* node,
                             struct ArrowSchema* schemas, uint64_t* lengths, crossdock_error* err);
  void* private_data;
} crossdock_host_decode;

#define CROSSDOCK_HOST_SESSION_ID "crossdock.host.session/1"

/* The settings of the session that created the instance. */
typedef struct crossdock_host_session {
  size_t struct_size;
  crossdock_device device;
  uint64_t memory_limit; /* bytes; 0 for no limit */
  uint32_t threads;      /* the number of threads that a plugin may use at once */
  uint32_t reserved;
} crossdock_host_session;

#define CROSSDOCK_HOST_LOADER_ID "crossdock.host.loader/1"

/* A range of a source, and the memory that receives its bytes. */
typedef struct crossdock_load {
  uint64_t offset; /* the first byte in the source */
  void* to;        /* an address on the stream's device */
  size_t bytes;
} crossdock_load;

/* Moves bytes from sources to devices. The host chooses the way: from a mapping, by reads into
 * pinned memory on several threads, or by one read after the other. A plugin that uses the loader
 * therefore reaches the same rates as every other plugin, and needs no staging memory. */
typedef struct crossdock_host_loader {
  size_t struct_size;
  /* Reads ranges of a source into memory of the stream's device. [any-thread] Returns when all
   * bytes have been read from the source, and their copies to the device are enqueued. Work that is
   * enqueued on `stream` later runs after these copies. On host devices the copies have run. If the
   * call fails, the content of the ranges is undefined, and some copies may be enqueued.
   * @param call    its cancel flag ends the call, which then returns CROSSDOCK_CANCELLED
   * @param source  borrowed. If its length is known, the host may call `read_at` on several threads
   *                at the same time. If it is unknown, the host reads in the order of `loads`, and
   *                each range must begin where the previous one ended.
   * @param loads   the ranges in memory do not overlap. Ranges of 0 bytes are ignored. Pass many
   *                ranges in one call, because the host combines small ones.
   * @param stream  NULL: the stream of the call
   * @return CROSSDOCK_BAD_DATA if the source ends before the end of a range; an error of the source
   *         is returned unchanged */
  crossdock_code (*load)(const struct crossdock_host_loader*, const crossdock_call* call, crossdock_source* source,
                         const crossdock_load* loads, size_t n_loads, crossdock_stream* stream, crossdock_error* err);
  void* private_data;
} crossdock_host_loader;

#define CROSSDOCK_HOST_TASKS_ID "crossdock.host.tasks/1"

/* Tasks that a plugin waits for together. */
typedef struct crossdock_task_group crossdock_task_group;

/* Runs functions on the threads of the session. All plugins of a session share these threads. There
 * is one less than crossdock_host_session.threads, because a thread that waits runs tasks, too. A
 * plugin that needs threads for computation uses these instead of its own. A task that would wait
 * long for input or for a lock belongs on a thread of the plugin. */
typedef struct crossdock_host_tasks {
  size_t struct_size;
  /* Creates a group without tasks. [any-thread]
   * @param out  the group, owned by the caller; release it with `group_release` */
  crossdock_code (*group_create)(const struct crossdock_host_tasks*, crossdock_task_group** out, crossdock_error* err);
  /* Queues a call of f(data). [any-thread] The host calls f once, without a current CUDA context
   * and without holding a lock. If `run` fails, f is not called.
   * @param f  must not unwind. The plugin must wait for its tasks before `destroy` returns. */
  crossdock_code (*run)(const struct crossdock_host_tasks*, crossdock_task_group*, void (*f)(void* data), void* data,
                        crossdock_error* err);
  /* Waits until all tasks of a group have returned, or until the time has passed. [any-thread] In
   * the meantime, the calling thread runs queued tasks of this instance, also of other groups.
   * Therefore do not hold a lock that a task needs. While the thread runs a task, `wait` may exceed
   * the time.
   * @param milliseconds  the maximum time; 0 only tests whether the tasks have returned
   * @param out_done      1 if all tasks have returned, else 0 */
  crossdock_code (*wait)(const struct crossdock_host_tasks*, crossdock_task_group*, uint32_t milliseconds,
                         uint32_t* out_done, crossdock_error* err);
  /* Releases a group. [any-thread] Does not wait: its tasks that have not run still run. */
  void (*group_release)(const struct crossdock_host_tasks*, crossdock_task_group*);
  void* private_data;
} crossdock_host_tasks;

/* ----------------------------------------------------------------------------------- memory --- */

/* An allocation. */
typedef struct crossdock_allocation {
  void* address; /* on the device; aligned to at least 64 bytes */
  size_t bytes;
  crossdock_block* block; /* the handle for `free` */
} crossdock_allocation;

/* A request to copy `bytes` bytes from `from` to `to`. The device of a host address is
 * ARROW_DEVICE_CPU. */
typedef struct crossdock_copy {
  void* to;
  const void* from;
  size_t bytes;
  crossdock_device to_device;
  crossdock_device from_device;
} crossdock_copy;

/* The memory that an address belongs to. */
typedef struct crossdock_pointer {
  size_t struct_size;
  crossdock_device device;
  const void* base; /* the start of the allocation, or NULL if unknown */
  uint64_t bytes;   /* the size of the allocation, or 0 if unknown */
} crossdock_pointer;

/* A device. Its strings are borrowed from the host. */
typedef struct crossdock_device_info {
  size_t struct_size;
  crossdock_device device;
  crossdock_str name;        /* "cpu", "cuda:0", "untouchable" */
  crossdock_str description; /* "NVIDIA H200" */
  uint64_t memory_bytes;     /* 0 if unknown */
  uint32_t host_accessible;  /* 1 if the host can dereference its addresses */
  uint32_t reserved;
} crossdock_device_info;

/* The kind of a kernel argument. `launch` rejects unknown kinds with CROSSDOCK_UNSUPPORTED. */
typedef uint32_t crossdock_arg_kind;
#define CROSSDOCK_ARG_VALUE 0u /* `value` is an integer, or the bits of a float */
#define CROSSDOCK_ARG_READ 1u  /* `value` is an address on the stream's device; `bytes` are read */
#define CROSSDOCK_ARG_WRITE 2u /* as CROSSDOCK_ARG_READ, but `bytes` are written, and may also be read */

/* A kernel argument. */
typedef struct crossdock_arg {
  uint64_t value;
  uint64_t bytes;
  crossdock_arg_kind kind;
  uint32_t reserved;
} crossdock_arg;

/* A flag of a kernel: a launch may have more than CROSSDOCK_MAX_KERNEL_ARGS arguments, because the
 * CUDA kernel reads them from crossdock_kernel_args.all_args if this is not NULL. */
#define CROSSDOCK_KERNEL_MANY_ARGS 1u

/* A kernel: a function with an implementation for each kind of device. */
typedef struct crossdock_kernel {
  size_t struct_size;
  const char* name; /* the name of the function in `image` */
  /* The CPU implementation, which runs on host devices. Addresses in `args` can be dereferenced.
   * @return CROSSDOCK_OK or another code */
  crossdock_code (*host_function)(const crossdock_arg* args, size_t n_args);
  /* The CUDA image: a fatbin, a cubin, PTX or a crossdock_image_set; NULL for none. Its function
   * `name` has one parameter of type crossdock_kernel_args. The image must be a constant of the
   * plugin or of the host (crossdock_host_kernels), because the host identifies it by its address
   * after the first launch. */
  const void* image;
  size_t image_bytes;
  uint32_t flags; /* 0 or CROSSDOCK_KERNEL_MANY_ARGS */
  uint32_t reserved;
} crossdock_kernel;

/* The maximum number of arguments of a launch, unless the kernel has CROSSDOCK_KERNEL_MANY_ARGS. */
#define CROSSDOCK_MAX_KERNEL_ARGS 168

/* The parameter of a CUDA kernel, passed by value. It fits in the 4096 bytes that CUDA permits for
 * the parameters of a launch. If a launch has more than CROSSDOCK_MAX_KERNEL_ARGS arguments, `args`
 * contains the first of them, and `all_args` is the address of all of them in the memory of the
 * device, valid until the kernel has run. Otherwise `all_args` is NULL, and a kernel must read only
 * the first `n_args` elements of `args`. */
typedef struct crossdock_kernel_args {
  uint64_t n_args;
  /* The host address of the CPU implementation, for drivers that simulate a device. Unused on a
   * device. */
  crossdock_code (*host_function)(const crossdock_arg* args, size_t n_args);
  const crossdock_arg* all_args;
  /* The host address of the arguments if `all_args` is not NULL, for drivers that simulate a
   * device. Unused on a device. */
  const crossdock_arg* host_args;
  crossdock_arg args[CROSSDOCK_MAX_KERNEL_ARGS];
} crossdock_kernel_args;

#define CROSSDOCK_IMAGE_SET_MAGIC 0x315345474d494458ull /* "XDIMGES1" */
#define CROSSDOCK_IMAGE_CUBIN 1u
#define CROSSDOCK_IMAGE_PTX 2u

/* One image of an image set. */
typedef struct crossdock_image {
  uint32_t kind;         /* CROSSDOCK_IMAGE_CUBIN or CROSSDOCK_IMAGE_PTX */
  uint32_t architecture; /* the compute capability, 90 for 9.0 */
  uint64_t offset;       /* bytes from the start of the set */
  uint64_t bytes;        /* for PTX, including the NUL at its end */
} crossdock_image;

/* The head of an image set, which contains images of the same kernels for several architectures.
 * After the head, the set has `n_images` crossdock_image structs, then the images. The host chooses
 * one image for a device. A cubin is suitable if its major version equals the device's, and its
 * minor version does not exceed the device's. The host uses the suitable cubin with the highest
 * minor version. If no cubin is suitable, the driver compiles the PTX with the highest architecture
 * that does not exceed the device's. */
typedef struct crossdock_image_set {
  uint64_t magic; /* CROSSDOCK_IMAGE_SET_MAGIC */
  uint64_t bytes; /* the size of the whole set */
  uint32_t n_images;
  uint32_t reserved; /* 0 */
} crossdock_image_set;

/* The size of a launch, in the dimensions x, y and z. Host devices ignore it, but the host checks
 * it on every device:
 *   blocks   at most 2147483647, 65535 and 65535; in each dimension at least 1
 *   threads  at most 1024, 1024 and 64, and 1024 in total; in each dimension at least 1
 *   cluster  divides `blocks` in each dimension, at most 8 in total; 0, 0, 0 for no clusters
 * A launch with clusters returns CROSSDOCK_UNSUPPORTED on a CUDA device whose compute capability is
 * less than 9.0. */
typedef struct crossdock_launch {
  size_t struct_size;
  uint32_t blocks[3];
  uint32_t threads[3]; /* per block */
  uint32_t cluster[3]; /* blocks per cluster */
  uint32_t shared_bytes; /* dynamic shared memory per block */
  uint32_t flags; /* 0 */
  uint32_t reserved;
} crossdock_launch;

#define CROSSDOCK_HOST_KERNELS_ID "crossdock.host.kernels/1"
#define CROSSDOCK_HOST_KERNEL_THREADS 256u

/* The host's own kernels, by name. A plugin that launches these kernels needs neither images nor
 * CPU implementations. `docs/plugins.md` lists the kernels.
 *
 * A name is a contract between modules that are built separately. If the arguments or the meaning
 * of a kernel change, the kernel gets a new name. The old name keeps the old meaning or disappears.
 * A caller of `find` declares the arguments that it will pass. The host rejects the call if the
 * kernel expects other arguments.
 *
 * The arguments of a launch of a host kernel are a list of jobs. A job consists of a head and the
 * kernel's arguments. The head is a CROSSDOCK_ARG_VALUE. The upper 32 bits of its value are the
 * number of arguments of the job, including the head. The lower 32 bits are the end of the job's
 * range of blocks. The range of the first job begins at block 0, and each further range begins at
 * the end of the previous range. The last job's range ends at `blocks[0]` of the launch. Each job
 * has at least one block. The launch has CROSSDOCK_HOST_KERNEL_THREADS threads per block in the
 * dimension x, 1 block and 1 thread in the dimensions y and z, no clusters and no shared bytes.
 * No two jobs of a launch write the same bytes. */
typedef struct crossdock_host_kernels {
  size_t struct_size;
  /* Finds a kernel for crossdock_memory.launch. [any-thread]
   * @param device     a device on which the kernel will run, or another device of the same type
   * @param name       the name of the kernel, NUL-terminated
   * @param arguments  the arguments that the caller will pass after a job's head, NUL-terminated,
   *                   one letter each: 'v' for CROSSDOCK_ARG_VALUE, 'r' for CROSSDOCK_ARG_READ, 'w'
   *                   for CROSSDOCK_ARG_WRITE. Arguments that may be repeated any number of times
   *                   are at the end, in parentheses: "rvwv(vv)".
   * @param out        the kernel, valid until the process ends. Store it and reuse it, but only
   *                   with the host that returned it, because a different host may have different
   *                   kernels.
   * @return CROSSDOCK_WRONG_VERSION if the host has no kernel with this name and these arguments;
   *         CROSSDOCK_UNSUPPORTED if its kernels do not run on devices of this type */
  crossdock_code (*find)(const struct crossdock_host_kernels*, crossdock_device device, const char* name,
                         const char* arguments, const crossdock_kernel** out, crossdock_error* err);
  void* private_data;
} crossdock_host_kernels;

/* A flag of `free`: the block was exported in a capsule, so the host waits for all device work in
 * flight before it frees the block. A host treats unknown flags like this flag. */
#define CROSSDOCK_FREE_EXPORTED 1u

#define CROSSDOCK_HOST_MEMORY_ID "crossdock.host.memory/1"

/* The host's memory manager. It counts the allocations of each instance separately, under the
 * instance's name. All functions are [any-thread]. The object is valid as long as the
 * crossdock_host. Blocks, streams and events do not keep it alive. The owner of a block, stream or
 * event must therefore retain the host.
 *
 * An event argument of NULL stands for an event that has already occurred. If the stream argument
 * of `alloc`, `copy`, `fill` or `launch` is NULL, it is the default stream of the device whose
 * addresses the call uses. The other functions require a stream. */
typedef struct crossdock_memory {
  size_t struct_size;
  void* private_data;

  /* Lists the devices.
   * @param out       an array of `capacity` devices
   * @param capacity  the maximum number of devices to write
   * @param n_out     the number of devices, which may exceed `capacity` */
  crossdock_code (*devices)(const struct crossdock_memory*, crossdock_device_info* out, size_t capacity, size_t* n_out,
                            crossdock_error* err);

  /* Allocates uninitialised device memory. Work that is enqueued on `stream` after this call can
   * use the memory. Code on the host can use the memory immediately if it can dereference the
   * device's addresses.
   * @param bytes      may be 0
   * @param alignment  a power of two up to 2 MiB, or 0 for the default
   * @param flags      0
   * @param out        the allocation; release it with `free`
   * @return CROSSDOCK_UNSUPPORTED for ARROW_DEVICE_CUDA_MANAGED, because managed memory can be read
   *         and copied, but not allocated */
  crossdock_code (*alloc)(const struct crossdock_memory*, crossdock_device device, size_t bytes, size_t alignment,
                          crossdock_stream* stream, uint32_t flags, crossdock_allocation* out,
                          crossdock_error* err);
  /* Allocates pinned host memory, which devices can copy from and to at full speed. If no device
   * needs pinned memory, the memory is ordinary host memory.
   * @param out  the allocation; release it with `free` */
  crossdock_code (*alloc_pinned)(const struct crossdock_memory*, size_t bytes, crossdock_allocation* out,
                                 crossdock_error* err);
  /* Frees a block when all events have occurred.
   * @param uses   events that follow the last uses of the block; borrowed
   * @param flags  0 or CROSSDOCK_FREE_EXPORTED */
  void (*free)(const struct crossdock_memory*, crossdock_block*, crossdock_event* const* uses, size_t n_uses,
               uint32_t flags);

  /* Enqueues copies, which run in any order. */
  crossdock_code (*copy)(const struct crossdock_memory*, crossdock_stream*, const crossdock_copy* copies, size_t n_copies,
                         crossdock_error* err);
  /* Enqueues an operation that sets `bytes` bytes at `to` to `value`. */
  crossdock_code (*fill)(const struct crossdock_memory*, crossdock_stream*, void* to, uint8_t value, size_t bytes,
                         crossdock_error* err);
  /* Enqueues a kernel launch.
   * @param args  borrowed; the host passes a copy to the kernel */
  crossdock_code (*launch)(const struct crossdock_memory*, crossdock_stream*, const crossdock_kernel* kernel,
                           const crossdock_launch* launch, const crossdock_arg* args, size_t n_args, crossdock_error* err);

  /* Returns the default stream of a device.
   * @param out  the stream, borrowed; valid as long as the memory object */
  crossdock_code (*stream_default)(const struct crossdock_memory*, crossdock_device, crossdock_stream** out,
                                   crossdock_error* err);
  /* Creates a stream.
   * @param priority  0 for the default; as in CUDA, a lower number is a higher priority. A number
   *                  outside the device's range is replaced by the nearest number of the range.
   *                  Devices without priorities ignore it.
   * @param flags     0
   * @param out       the stream, owned by the caller; release it with `stream_destroy` */
  crossdock_code (*stream_create)(const struct crossdock_memory*, crossdock_device, int32_t priority, uint32_t flags,
                                  crossdock_stream** out, crossdock_error* err);
  /* Destroys a stream that `stream_create` or `stream_adopt` returned. */
  void (*stream_destroy)(const struct crossdock_memory*, crossdock_stream*);
  /* Blocks until all work on the stream has completed. */
  crossdock_code (*stream_synchronize)(const struct crossdock_memory*, crossdock_stream*, crossdock_error* err);
  /* Makes further work on the stream wait for an event. */
  crossdock_code (*stream_wait)(const struct crossdock_memory*, crossdock_stream*, crossdock_event*, crossdock_error* err);
  /* Makes further work on the stream wait for an external event.
   * @param sync_event  as in ArrowDeviceArray, borrowed; NULL: nothing to wait for */
  crossdock_code (*stream_wait_raw)(const struct crossdock_memory*, crossdock_stream*, void* sync_event,
                                    crossdock_error* err);
  /* Returns the stream's native handle.
   * @return the CUstream; NULL on devices without native streams */
  void* (*stream_raw)(const struct crossdock_memory*, crossdock_stream*);
  /* Returns whether the stream is being captured to a CUDA graph.
   * @param out  1 if it is, else 0 */
  crossdock_code (*stream_is_capturing)(const struct crossdock_memory*, crossdock_stream*, uint32_t* out,
                                        crossdock_error* err);

  /* Records an event that occurs when the work enqueued on the stream so far has completed.
   * @param out  the event, owned by the caller; release it with `event_destroy`. NULL if all work
   *             has completed already. */
  crossdock_code (*event_record)(const struct crossdock_memory*, crossdock_stream*, crossdock_event** out,
                                 crossdock_error* err);
  /* Returns whether an event has occurred.
   * @param out_done  1 if it has, else 0 */
  crossdock_code (*event_query)(const struct crossdock_memory*, crossdock_event*, uint32_t* out_done, crossdock_error* err);
  /* Blocks until an event has occurred. */
  crossdock_code (*event_synchronize)(const struct crossdock_memory*, crossdock_event*, crossdock_error* err);
  /* Destroys an event. */
  void (*event_destroy)(const struct crossdock_memory*, crossdock_event*);
  /* Returns the value for ArrowDeviceArray.sync_event, valid as long as the event. */
  void* (*event_raw)(const struct crossdock_memory*, crossdock_event*);

  /* Finds the device and the allocation of an address. An unknown address belongs to the CPU. */
  crossdock_code (*pointer)(const struct crossdock_memory*, const void* address, crossdock_pointer* out,
                            crossdock_error* err);
  /* Returns the host address of `bytes` bytes at a device address. Code on the host may read these
   * bytes. It may write to them if the host allocated the memory.
   * @return NULL if the host cannot access the memory; copy the bytes instead */
  void* (*host_address)(const struct crossdock_memory*, crossdock_device, const void* address, size_t bytes);

  /* Calls f(data) once all events have occurred. The host holds no locks during the call. If all
   * events have already occurred, `call_after` calls f on the calling thread before it returns.
   * Otherwise the host calls f on one of its own threads, without a current CUDA context. If an
   * event can never occur, f is not called, and `data` leaks, because no moment is safe for its
   * release.
   * @param events  borrowed */
  void (*call_after)(const struct crossdock_memory*, crossdock_event* const* events, size_t n_events, void (*f)(void* data),
                     void* data);

  /* Wraps an external stream of a device, so that it can be used like a stream of the host.
   * @param raw  a CUstream, borrowed; it must exist whenever the wrapping stream is used. On CUDA,
   *             the value 1 is the legacy default stream, 2 is the per-thread default stream, and
   *             NULL is rejected. On host devices, the value is ignored, and the result behaves
   *             like the default stream.
   * @param out  the stream, owned by the caller; release it with `stream_destroy`, which does not
   *             destroy `raw`. Allocations on the stream may outlive it. */
  crossdock_code (*stream_adopt)(const struct crossdock_memory*, crossdock_device, void* raw, crossdock_stream** out,
                                 crossdock_error* err);

  /* Calls f(data) like `call_after`, but also waits until all work in flight on the CUDA devices
   * has completed, including the work of other libraries. Use it to release an array whose memory
   * was exported to another library, because that library may release the array while its own
   * kernels still use the memory.
   * @param events  borrowed */
  void (*call_after_all)(const struct crossdock_memory*, crossdock_event* const* events, size_t n_events,
                         void (*f)(void* data), void* data);
} crossdock_memory;

/* ------------------------------------------------------------------------------------ entry --- */

/* The symbol crossdock_plugin_v1. */
typedef struct crossdock_plugin_entry {
  uint64_t magic; /* CROSSDOCK_PLUGIN_MAGIC */
  size_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint64_t flags; /* 0 */
  /* Creates an instance, which shares no state with other instances. [any-thread]
   * @param host  borrowed; retain it if the instance keeps it
   * @param out   the instance; release it with `destroy` */
  crossdock_code (*create)(const crossdock_host* host, crossdock_instance** out, crossdock_error* err);
  /* Destroys an instance. The host calls it once, never from within a function of the instance, and
   * only when
   *   - all batch streams, writers and sources of the instance have been released, and
   *   - the only remaining host references are those that `create` added and `destroy` releases.
   * Batches and capsules that hold no host reference may outlive the instance, but must not access
   * the instance. The plugin's code stays mapped. */
  void (*destroy)(crossdock_instance*);
  /* Returns an interface of the plugin. [any-thread]
   * @param id  NUL-terminated
   * @return the interface, valid as long as the instance; NULL if the instance has none with this
   *         id */
  const void* (*get_interface)(crossdock_instance*, const char* id);
} crossdock_plugin_entry;

#define CROSSDOCK_META_SIZES 128

/* The symbol crossdock_plugin_meta_v1: a description of the plugin as plain bytes without
 * relocations, which the host reads from the file before any of the plugin's code runs. Texts are
 * NUL-terminated, without control characters. A list contains all interfaces, formats, encodings or
 * URI schemes that instances offer, in any order, separated by spaces. Ids and names contain no
 * spaces. */
typedef struct crossdock_plugin_meta {
  uint64_t magic; /* CROSSDOCK_META_MAGIC */
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t n_sizes;        /* the number of elements of `sizes` */
  char name[64];           /* ASCII letters, digits, '-', '_' and '.' */
  char version[32];        /* a semantic version */
  char api_range[32];      /* the supported ABI versions, a semver range: "^1.0.0" */
  char licence[64];        /* an SPDX expression */
  char toolchain[96];      /* "rustc 1.95.0", "gcc 12.2.0" */
  char panic[16];          /* "unwind", "abort", "none" */
  char interfaces[256];    /* a list of ids */
  char formats[1024];      /* a list of names */
  char encodings[4096];    /* a list of ids */
  char description[256];   /* one line for users */
  char schemes[256];       /* a list of URI schemes */
  /* A list of the ids of the host's interfaces without which `create` fails. A host that lacks one
   * of them rejects the plugin before any of its code runs. */
  char required[512];
  /* The sizes of the ABI structs in the plugin's build, in the order of
   * CROSSDOCK_META_SIZES_INIT. */
  uint32_t sizes[CROSSDOCK_META_SIZES];
} crossdock_plugin_meta;

#define CROSSDOCK_META_N_SIZES 33
#define CROSSDOCK_META_SIZES_INIT                                                                                     \
  {                                                                                                                   \
    sizeof(struct ArrowSchema), sizeof(struct ArrowArray), sizeof(struct ArrowDeviceArray), sizeof(crossdock_error),  \
        sizeof(crossdock_batch), sizeof(crossdock_capsule), sizeof(crossdock_capsules), sizeof(crossdock_source),     \
        sizeof(crossdock_sink), sizeof(crossdock_call), sizeof(crossdock_batch_stream), sizeof(crossdock_writer),     \
        sizeof(crossdock_format), sizeof(crossdock_input), sizeof(crossdock_importer), sizeof(crossdock_exporter),    \
        sizeof(crossdock_encoding), sizeof(crossdock_host), sizeof(crossdock_memory), sizeof(crossdock_plugin_entry), \
        sizeof(crossdock_option_info), sizeof(crossdock_column_plan), sizeof(crossdock_plan),                         \
        sizeof(crossdock_encoded_buffer), sizeof(crossdock_encoded_node), sizeof(crossdock_encoded_array),            \
        sizeof(crossdock_read_request), sizeof(crossdock_predicate), sizeof(crossdock_fragment),                      \
        sizeof(crossdock_fragments), sizeof(crossdock_opener), sizeof(crossdock_decode_plan),                         \
        sizeof(crossdock_encoder)                                                                                     \
  }

/* The attribute of both symbols. */
#ifndef __cplusplus
#define CROSSDOCK_EXPORT __attribute__((visibility("default"), used))
#else
#define CROSSDOCK_EXPORT __attribute__((used))
/* In C++, a constant has internal linkage unless it is declared extern. The visibility
 * is stated here, because GCC ignores it at the definition. */
extern __attribute__((visibility("default"))) const crossdock_plugin_entry crossdock_plugin_v1;
extern __attribute__((visibility("default"))) const crossdock_plugin_meta crossdock_plugin_meta_v1;
}

#include <exception>
#include <new>

/* Stops exceptions at the boundary, for plugins in C++. Write each function that the host calls as
 *     crossdock_code f(..., crossdock_error* err) noexcept {
 *       CROSSDOCK_GUARD(err, { ...; return CROSSDOCK_OK; })
 *     }
 *     void release(crossdock_batch_stream* stream) noexcept { CROSSDOCK_GUARD_OR(, { ...; }) }
 *     const void* get_interface(...) noexcept {
 *       CROSSDOCK_GUARD_OR(nullptr, { ...; return &importer; })
 *     }
 * If the body throws an exception, CROSSDOCK_GUARD returns an error. Its messages are constants,
 * because there may be no memory left. CROSSDOCK_GUARD_OR is for functions without `err`. If the
 * body throws an exception, CROSSDOCK_GUARD_OR returns its first argument. */
#define CROSSDOCK_GUARD(err, ...)                                                                                     \
  try __VA_ARGS__ catch (const std::bad_alloc&) {                                                                     \
    CROSSDOCK_CAUGHT(err, CROSSDOCK_OUT_OF_MEMORY, "there is no memory left for the plugin");                         \
  } catch (...) {                                                                                                     \
    CROSSDOCK_CAUGHT(err, CROSSDOCK_PANICKED, "a C++ exception was caught at the plugin's boundary");                 \
  }

#define CROSSDOCK_CAUGHT(err, what, words)                                                                            \
  if (err) {                                                                                                          \
    (err)->code = (what);                                                                                             \
    (err)->message = (words);                                                                                         \
    (err)->details = nullptr;                                                                                         \
    (err)->release = nullptr;                                                                                         \
  }                                                                                                                   \
  return what

#define CROSSDOCK_GUARD_OR(otherwise, ...)                                                                            \
  try __VA_ARGS__ catch (...) {                                                                                       \
    return otherwise;                                                                                                 \
  }
#endif

#endif /* CROSSDOCK_H */
