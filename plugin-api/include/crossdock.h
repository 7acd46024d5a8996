/*
 * crossdock.h: everything that crosses between a Crossdock host and a plugin.
 *
 * A plugin is a shared library that exports two data symbols:
 *
 *     const crossdock_plugin_entry crossdock_plugin_v1;       how to make an instance
 *     const crossdock_plugin_meta  crossdock_plugin_meta_v1;  who it is; read before any of its code runs
 *
 * Rules that hold everywhere, so that they are said once:
 *
 *   sizes     Structs that may grow begin with `struct_size`, set by whoever fills them in; the two that are looked up
 *             in a file have a magic number before it. Within a version fields are only appended, so those that its
 *             first release has may be counted on; a reader looks at a later one only if `struct_size` covers it
 *             (CROSSDOCK_HAS). Structs without a `struct_size` stay as they are. Sizes are bytes. What is called
 *             reserved, and bytes that nobody names, are written as 0 and not looked at. Functions are there, but for
 *             those whose words say that they may be NULL.
 *   lent      What a function is given by pointer or as crossdock_str, and does not take by its own words, is borrowed
 *             for the length of the call: calls, schemas, options, names. It is copied by whoever keeps it.
 *   lists     Elements that have a `struct_size` lie that of the first one apart, so that they can grow too
 *             (CROSSDOCK_AT). Of 0 elements, or of 0 bytes, the address means nothing.
 *   objects   A struct that holds a `release` of itself is an object: the functions take its address as first argument,
 *             `private_data` is its maker's. `release` frees what it owns and sets `release` to NULL; an object
 *             whose `release` is NULL is released or empty. Objects may be moved (a crossdock_host may not): copy the
 *             bytes, then set the source's `release` to NULL without calling it. The `struct_size` of a copy is the
 *             lesser of the source's and of the room that the copy has; what the source lacks is zero there (CROSSDOCK_MOVE).
 *             So a maker counts on nothing in a struct of its own but what the first release has.
 *             An out parameter that is such a struct comes with the caller's `struct_size` and is else zero; no more of
 *             it is written than that covers, its `struct_size` stays, and no more of a struct is moved than its own says.
 *   status    Functions that can fail return 0 (CROSSDOCK_OK) or one of crossdock_code, and fill in `err` if it
 *             is not NULL, which was empty. Who recovers from a failure of somebody else's releases it, and leaves it
 *             empty. Out parameters are written on success only.
 *   threads   Functions tagged [any-thread] may be called from any thread, several at once. [serial]: from any
 *             thread, but the caller sees to it that one call at a time is on its way for one object. Releases
 *             are [any-thread], with no lock of the caller's held and nothing else on its way for that object.
 *   devices   Nothing here counts on a CUDA context to be current: whoever needs one makes it so, and leaves the thread
 *             with the one that it had.
 *   memory    An address is an address on its device. Only crossdock_memory.host_address tells whether the host
 *             may dereference it, and where.
 *   unwinding Nothing may unwind out of these functions: not a Rust panic, not a C++ exception, not longjmp.
 *             C++ authors wrap each body in CROSSDOCK_GUARD or CROSSDOCK_GUARD_OR (end of this file).
 *
 * The Arrow structs are those of the Arrow C Data, C Stream and C Device interface specifications, byte for byte.
 */
#ifndef CROSSDOCK_H
#define CROSSDOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------ versions --- */

/* What this file says is frozen: fields, constants and interfaces are added, and nothing else. A plugin that needs one of
 * them asks whether it is there. Were it ever otherwise, the version would be another, which both sides refuse. */
#define CROSSDOCK_ABI_MAJOR 1
#define CROSSDOCK_ABI_MINOR 0
/* What a plugin built against this file says in its metadata. */
#define CROSSDOCK_API_RANGE "^1.0.0"

/* Whether a struct reaches to the end of this field. */
#define CROSSDOCK_HAS(object, field) \
  ((object)->struct_size >= (size_t)((const char*)(&(object)->field + 1) - (const char*)(object)))

/* The address of a list's element, with the builtin of GCC and Clang. */
#define CROSSDOCK_AT(list, i) ((__typeof__(&(list)[0]))((uintptr_t)(list) + (size_t)(i) * (list)->struct_size))

/* Moves an object that has a `struct_size` and a `release` of its own, with the builtins of GCC and Clang. */
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

/* ------------------------------------------------------------------------------- Arrow's published structs --- */

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

/* -------------------------------------------------------------------------------------------------- errors --- */

/* An open list: a reader treats a code that it does not know as CROSSDOCK_INTERNAL and shows the number. */
typedef int32_t crossdock_code;
#define CROSSDOCK_OK 0
#define CROSSDOCK_INVALID_ARGUMENT 1 /* the caller's mistake */
#define CROSSDOCK_UNSUPPORTED 2      /* understood, and not done here */
#define CROSSDOCK_BAD_DATA 3         /* what was read or handed over contradicts its own format */
#define CROSSDOCK_VERSION 4          /* two sides speak different versions */
#define CROSSDOCK_OUT_OF_MEMORY 5    /* of the system, or of the session's budget */
#define CROSSDOCK_DEVICE 6           /* a device or its driver failed, or is missing */
#define CROSSDOCK_IO 7               /* a file, a pipe, a disk */
#define CROSSDOCK_CANCELLED 8        /* the call's cancel flag was seen */
#define CROSSDOCK_PANICKED 9         /* a panic was caught; the instance answers nothing but releases from now on */
#define CROSSDOCK_INTERNAL 10        /* a bug in the one that reports it */

/* The caller provides the struct with `struct_size` set and the rest zero; after a failure it reads `message`
 * (one line: who, what, expected, got) and `details` (may be NULL), NUL-terminated UTF-8, then calls `release`
 * if it is not NULL. */
typedef struct crossdock_error {
  size_t struct_size;
  crossdock_code code;
  int32_t reserved;
  const char* message;
  const char* details;
  void (*release)(struct crossdock_error*);
  void* private_data;
} crossdock_error;

/* ----------------------------------------------------------------------------------------------- small words --- */

/* UTF-8, not NUL-terminated; `data` may be NULL when `bytes` is 0. Borrowed unless said otherwise. */
typedef struct crossdock_str {
  const char* data;
  size_t bytes;
} crossdock_str;

/* Each key once in a list. */
typedef struct crossdock_option {
  crossdock_str key;
  crossdock_str value;
} crossdock_option;

/* A device as Arrow and DLPack number them. `id` is -1 for ARROW_DEVICE_CPU. */
typedef struct crossdock_device {
  int64_t id;
  ArrowDeviceType type;
  int32_t reserved;
} crossdock_device;

/* A plugin's own state. Never looked into by the host. */
typedef struct crossdock_instance crossdock_instance;

/* Handles of the memory interface. A stream, a block and an event belong to the crossdock_memory that made them. */
typedef struct crossdock_stream crossdock_stream;
typedef struct crossdock_event crossdock_event;
typedef struct crossdock_block crossdock_block;

/* --------------------------------------------------------------------------------------- what carries tables --- */

/* One record batch: a struct array, none of whose rows is null as a whole, and, where the receiver has no schema yet, its
 * schema. `schema.release` is NULL when the batch belongs to a stream, a writer or a node, whose schema it then has. It lies
 * on the CPU, then its `sync_event` is NULL; on CUDA, in pinned or in managed memory; or on the test device.
 *
 * `buffer_sizes` (may be NULL) has one entry for each entry of `buffers`: in pre-order, a node's own buffers, then
 * its children in order, then its dictionary, and no more; -1 where nobody knows. `metadata` (may be NULL) is this batch's own
 * key-value metadata, encoded as ArrowSchema.metadata is. Both live as long as the array.
 *
 * Whoever releases a batch or an encoded buffer that was passed between host and plugin has finished with its memory: all of
 * its work on it has passed (see `call_after`). The maker then frees its blocks without waiting for other work. Arrays
 * in capsules give no such promise, see CROSSDOCK_FREE_LENT. */
typedef struct crossdock_batch {
  size_t struct_size;
  struct ArrowDeviceArray array;
  struct ArrowSchema schema;
  const int64_t* buffer_sizes;
  size_t n_buffer_sizes;
  const char* metadata;
} crossdock_batch;

/* A foreign object under the name that Python's capsules use: "arrow_schema", "arrow_array", "arrow_array_stream",
 * "arrow_device_array", "arrow_device_array_stream", "dltensor", "dltensor_versioned", "vortex_buffer_export",
 * "crossdock_encoded_array".
 * A consumer moves Arrow's objects and encoded arrays out of `pointer` (leaving their `release` NULL there). The others are freed by a
 * function of their own, themselves included: of those it takes the pointer and leaves NULL in `pointer`. Then it
 * calls `release`, which frees the shell, and the object too if nobody took it. */
typedef struct crossdock_capsule {
  size_t struct_size;
  const char* name;
  void* pointer;
  void (*release)(struct crossdock_capsule*);
  void* private_data;
} crossdock_capsule;

/* The capsules that one call gives or takes. The consumer releases each capsule, and the list, which releases those that
 * are still in it; a capsule that was moved out may outlive the list, and what it points at lives as long as the capsule. */
typedef struct crossdock_capsules {
  size_t struct_size;
  crossdock_capsule* capsules;
  size_t n_capsules;
  void (*release)(struct crossdock_capsules*);
  void* private_data;
} crossdock_capsules;

struct crossdock_call;

/* Bytes to read. `bytes` is -1 where the length is unknown (a pipe); then only `read_at` at the position where the
 * last one ended is legal. */
typedef struct crossdock_source {
  size_t struct_size;
  int64_t bytes;
  /* A name for messages: a path, "standard input". */
  crossdock_str name;
  /* [any-thread] if `bytes` is known, else [serial]. Reads up to `bytes` bytes at `offset` into host memory; fewer only at
   * the end, where `*out_read` may be 0. */
  crossdock_code (*read_at)(struct crossdock_source*, uint64_t offset, void* to, size_t bytes, size_t* out_read,
                            crossdock_error* err);
  /* The whole content at a host address, or NULL. Valid while the source lives, and until each `retain_map` has had its
   * `release_map`, which may be later. Others may write to a file that is mapped: what was looked at there may be something
   * else at the next look, and who counts on it copies it first. That nobody cuts the file short meanwhile is the host's to
   * see to, as far as that can be. */
  const void* map;
  void (*retain_map)(void* map_private);
  void (*release_map)(void* map_private);
  void* map_private;
  void (*release)(struct crossdock_source*);
  void* private_data;
} crossdock_source;

/* Bytes to write, in order. */
typedef struct crossdock_sink {
  size_t struct_size;
  crossdock_str name;
  /* [serial] Writes all of `bytes` from host memory. */
  crossdock_code (*write)(struct crossdock_sink*, const void* from, size_t bytes, crossdock_error* err);
  void (*release)(struct crossdock_sink*);
  void* private_data;
} crossdock_sink;

/* ------------------------------------------------------------------------------------------------- one call --- */

/* What every working function is told. Borrowed for the length of the call. All calls of one stream, or of one writer, name the
 * device that it was opened with; all else may be another each time. */
typedef struct crossdock_call {
  size_t struct_size;
  /* Where results are to be. A format whose `device_types` leave this device out is called all the same: it gives batches in
   * host memory, which the host moves to the device, and is given batches that were moved to host memory. */
  crossdock_device device;
  /* Work goes onto this stream. A host's calls name one; NULL is the device's default one, crossdock_memory's `stream_default` of
   * `device`.
   * Results are ready when it has run, or carry an event. What is given, and Arrow's structs in capsules, are ready by
   * their events, and now where they have none; who hands a result on records one first. Tensors are ready in the order of
   * the stream, both ways. */
  crossdock_stream* stream;
  /* Read it (atomically) at least once a batch or 100 ms; non-zero: stop and return CROSSDOCK_CANCELLED. May be NULL. */
  const uint32_t* cancel;
  /* [any-thread] bytes done so far; total 0 if unknown. A stream's end says how many were used. May be NULL. */
  void (*progress)(void* progress_data, uint64_t bytes_done, uint64_t bytes_total);
  void* progress_data;
  /* How many bytes this call should keep in flight at most; 0: no wish. The session's limit is enforced elsewhere. */
  uint64_t byte_budget;
  /* CROSSDOCK_VALIDATE_LAYOUT or _FULL: how closely to look at what comes from outside. */
  uint32_t validate;
  uint32_t reserved;
} crossdock_call;

#define CROSSDOCK_VALIDATE_LAYOUT 0
#define CROSSDOCK_VALIDATE_FULL 1

/* Whether the caller wants this call to end (with the builtins of GCC and Clang). */
#define CROSSDOCK_IS_CANCELLED(call) \
  (CROSSDOCK_HAS(call, cancel) && (call)->cancel && __atomic_load_n((call)->cancel, __ATOMIC_RELAXED) != 0)

/* ----------------------------------------------------------------------------- interfaces: tables in and out --- */

/* A stream of batches with one schema. After its end, and after a call of it has failed, `get_schema` and `release` alone are
 * called; a source of unknown length, of which a read has failed, is read no more. */
typedef struct crossdock_batch_stream {
  size_t struct_size;
  /* [serial] The caller owns `out` afterwards. At once: what has to be read for it was read when the stream was opened. */
  crossdock_code (*get_schema)(struct crossdock_batch_stream*, struct ArrowSchema* out, crossdock_error* err);
  /* [serial] At the end `out->array.array.release` is NULL. A batch outlives the stream. */
  crossdock_code (*get_next)(struct crossdock_batch_stream*, const crossdock_call* call, crossdock_batch* out,
                             crossdock_error* err);
  void (*release)(struct crossdock_batch_stream*);
  void* private_data;
} crossdock_batch_stream;

/* Takes batches, until `finish`. Releasing it before that abandons what it wrote; after a call of it has failed, nothing else is
 * done with it. */
typedef struct crossdock_writer {
  size_t struct_size;
  /* [serial] Takes the batch, on failure too. `out` gets the capsules that this batch became, or stays
   * empty when it went into the sink. */
  crossdock_code (*write)(struct crossdock_writer*, const crossdock_call* call, crossdock_batch* batch,
                          crossdock_capsules* out, crossdock_error* err);
  /* [serial] Once. `out` as above: what only the end can give. */
  crossdock_code (*finish)(struct crossdock_writer*, const crossdock_call* call, crossdock_capsules* out,
                           crossdock_error* err);
  void (*release)(struct crossdock_writer*);
  void* private_data;
} crossdock_writer;

/* Bytes by which a format is known: at `offset` from the start. They end within the first 4096 bytes: no more is looked at. */
typedef struct crossdock_magic {
  uint64_t offset;
  const void* data;
  size_t bytes;
} crossdock_magic;

/* An option that a format understands, when it is read or when it is written. */
typedef struct crossdock_option_info {
  size_t struct_size;
  crossdock_str key;
  crossdock_str description; /* one line for people: the values, the default */
} crossdock_option_info;

#define CROSSDOCK_FORMAT_BYTES 1u    /* speaks through a source or a sink */
#define CROSSDOCK_FORMAT_CAPSULES 2u /* speaks through capsules */

/* One format that an importer reads or an exporter writes; lives as long as the instance. */
typedef struct crossdock_format {
  size_t struct_size;
  crossdock_str name;        /* "arrow-ipc-file" */
  crossdock_str description; /* one line for people: what it holds and what it cannot */
  uint32_t flags;
  uint32_t reserved;
  const crossdock_magic* magics; /* any of them; none: not recognised by its bytes */
  size_t n_magics;
  const crossdock_str* endings; /* ".arrow"; "-": standard output */
  size_t n_endings;
  const crossdock_str* capsules; /* names of capsules that it takes or gives */
  size_t n_capsules;
  const ArrowDeviceType* device_types; /* device types that it takes or gives; none: any */
  size_t n_device_types;
  const crossdock_option_info* options; /* what it understands; it refuses others by name */
  size_t n_options;
} crossdock_format;

/* Where an importer reads from: a source or capsules; the other is NULL. The importer moves the object out. */
typedef struct crossdock_input {
  size_t struct_size;
  crossdock_source* source;
  crossdock_capsules* capsules;
} crossdock_input;

#define CROSSDOCK_IMPORTER_ID "crossdock.importer/1"

typedef struct crossdock_importer {
  size_t struct_size;
  /* [any-thread] Borrowed from the instance. */
  crossdock_code (*formats)(crossdock_instance*, const crossdock_format** out, size_t* n_out, crossdock_error* err);
  /* [any-thread] Takes what `input` has, on failure too. `schema` (may be NULL) is what the caller expects: an importer
   * of a format with a schema of its own refuses another, and one of a format without types takes its types from it;
   * what the stream then gives has the expected names, types and order. */
  crossdock_code (*open)(crossdock_instance*, const crossdock_call* call, crossdock_str format,
                         const crossdock_input* input, const struct ArrowSchema* schema, const crossdock_option* options, size_t n_options,
                         crossdock_batch_stream* out, crossdock_error* err);
} crossdock_importer;

/* An open list: one that a reader does not know is CROSSDOCK_CANNOT to it. */
typedef uint32_t crossdock_verdict;
#define CROSSDOCK_ZERO_COPY 0u   /* the bytes stay where they are */
#define CROSSDOCK_CONVERTED 1u   /* new bytes on the same device; `reason` says by what */
#define CROSSDOCK_COPIED 2u      /* the same bytes elsewhere; `to` says where */
#define CROSSDOCK_CANNOT 3u      /* `reason` says why and what to do */

/* One top-level column's fate. */
typedef struct crossdock_column_plan {
  size_t struct_size;
  crossdock_str name;
  crossdock_verdict verdict;
  uint32_t reserved;
  crossdock_device to;
  crossdock_str reason;
} crossdock_column_plan;

typedef struct crossdock_plan {
  size_t struct_size;
  const crossdock_column_plan* columns; /* in the schema's order */
  size_t n_columns;
  void (*release)(struct crossdock_plan*);
  void* private_data;
} crossdock_plan;

#define CROSSDOCK_EXPORTER_ID "crossdock.exporter/1"

typedef struct crossdock_exporter {
  size_t struct_size;
  /* [any-thread] Borrowed from the instance. */
  crossdock_code (*formats)(crossdock_instance*, const crossdock_format** out, size_t* n_out, crossdock_error* err);
  /* [any-thread] What would happen to batches of `schema` that live on `from`; `call->device` is where they should go. */
  crossdock_code (*plan)(crossdock_instance*, const crossdock_call* call, crossdock_str format,
                         const struct ArrowSchema* schema, crossdock_device from, const crossdock_option* options,
                         size_t n_options, crossdock_plan* out, crossdock_error* err);
  /* [any-thread] `schema` is borrowed. Takes `sink` (NULL for capsules), on failure too. */
  crossdock_code (*begin)(crossdock_instance*, const crossdock_call* call, crossdock_str format,
                          const struct ArrowSchema* schema, const crossdock_option* options, size_t n_options,
                          crossdock_sink* sink, crossdock_writer* out, crossdock_error* err);
} crossdock_exporter;

/* --------------------------------------------------------------------------------------- interfaces: encoding --- */

/* A physical buffer of an encoded array. `address` is a multiple of `alignment`, or NULL where there are no bytes;
 * `sync_event` as in ArrowDeviceArray. Whoever decodes the node may move it out (leaving `release` NULL), so that what it
 * makes lies in it. Until then each has its `release`, one of no bytes too. */
typedef struct crossdock_encoded_buffer {
  size_t struct_size;
  const void* address;
  uint64_t bytes;
  uint64_t alignment; /* bytes, a power of two */
  crossdock_device device;
  void* sync_event;
  void (*release)(struct crossdock_encoded_buffer*);
  void* private_data;
} crossdock_encoded_buffer;

/* A node of the metadata tree, which is a flat table in pre-order instead of a recursion. Each buffer is one node's: in the
 * order of the nodes their buffers make up the array's list. */
typedef struct crossdock_encoded_node {
  size_t struct_size;
  crossdock_str encoding;           /* an id, with its version where it has one */
  const struct ArrowSchema* schema; /* the logical type; borrowed from the array */
  uint64_t length;                  /* values */
  const void* metadata;
  size_t metadata_bytes;
  uint32_t first_buffer; /* into the array's list */
  uint32_t n_buffers;
  uint32_t n_children; /* the first is the next node; each next one follows its sibling's last descendant */
  uint32_t reserved;
  /* Where `schema` is NULL: the logical type as Vortex writes it (the flatbuffer DType). Only importers of such arrays take
   * them; what is decoded has schemas. */
  const void* dtype;
  size_t dtype_bytes;
} crossdock_encoded_node;

typedef struct crossdock_encoded_array {
  size_t struct_size;
  const crossdock_encoded_node* nodes;
  size_t n_nodes;
  crossdock_encoded_buffer* buffers;
  size_t n_buffers;
  void (*release)(struct crossdock_encoded_array*);
  void* private_data;
} crossdock_encoded_array;

/* What a node's values are made of, for the host to decode it by its own kernels, in one pass with the nodes above and below
 * it, on any device: a program. The node's type is one of numbers of 1, 2, 4 or 8 bytes: a word each. A program is one source
 * and then what is done to each of its words, in order; sums and products of integers wrap. `index`, `a` and `b` are zero where they
 * are not named, and of those that are the lowest bits count, as many as a word has. Operators are added at the list's end, and what
 * a host does not know it has `decode` decode. The first operator is a source, and no other one; each child is named once.
 * Sums and products are of integers but where floats are named: of the bits, whatever the node's type.
 *
 * Sources: the words of buffer `index`, from byte `a` on; */
#define CROSSDOCK_OP_LOAD 1u
/* words of `a` bits (no more than the node's have) in buffer `index`, from value `b` (below 1024) of the first block of 1024
 * on. Each block has 128 * `a` bytes, the last one too, in FastLanes' layout for words as wide as the node's; */
#define CROSSDOCK_OP_UNPACK 2u
/* the values of child `index`, of as many bytes each, with its nulls; */
#define CROSSDOCK_OP_CHILD 3u
/* a + i * b; */
#define CROSSDOCK_OP_SEQUENCE 4u
/* the values of child `a` that child `index`, integers, numbers, with the nulls of both; */
#define CROSSDOCK_OP_DICTIONARY 5u
/* the value of child `a` at the first place where child `index`, integers without nulls that rise, is above b + i; with the
 * nulls of child `a`. */
#define CROSSDOCK_OP_RUNS 6u
/* Steps: the sum with `a`; */
#define CROSSDOCK_OP_ADD 7u
/* the exclusive or with `a`; */
#define CROSSDOCK_OP_XOR 8u
/* 0, 1, 2, 3, 4... become 0, -1, 1, -2, 2...; */
#define CROSSDOCK_OP_ZIGZAG 9u
/* signed integers of 4 or 8 bytes become the nearest floats of as many, ties to even; */
#define CROSSDOCK_OP_TO_FLOAT 10u
/* floats of 4 or 8 bytes are multiplied by the one whose bits `a` has; */
#define CROSSDOCK_OP_SCALE 11u
/* each value of child `a` takes the place that child `index` names, less `b`: these rise, and none of either is null; */
#define CROSSDOCK_OP_PATCH 12u
/* null too where child `index`, truth values without nulls, is false; of a node that may have nulls. */
#define CROSSDOCK_OP_VALIDITY 13u
/* Another source: the values of child `index`, integers of 1, 2, 4 or 8 bytes, in words of as many bytes as the node's: with
 * their sign, or zeros, above them, or their lower bits alone; with its nulls. */
#define CROSSDOCK_OP_CAST 14u
#define CROSSDOCK_MAX_OPERATORS 32

typedef struct crossdock_operator {
  uint32_t code;
  uint32_t index;
  uint64_t a;
  uint64_t b;
} crossdock_operator;

#define CROSSDOCK_ENCODING_ID "crossdock.encoding/1"

typedef struct crossdock_encoding {
  size_t struct_size;
  /* [any-thread] The encoding ids that this plugin decodes. Borrowed from the instance. */
  crossdock_code (*ids)(crossdock_instance*, const crossdock_str** out, size_t* n_out, crossdock_error* err);
  /* [any-thread] Does node `node` fit its metadata, buffers and children? Looks at no device memory. */
  crossdock_code (*check)(crossdock_instance*, const crossdock_encoded_array* array, size_t node, crossdock_error* err);
  /* [any-thread] How many bytes decoding needs, or -1 where only the device knows. */
  crossdock_code (*size)(crossdock_instance*, const crossdock_encoded_array* array, size_t node, int64_t* out_bytes,
                         crossdock_error* err);
  /* [any-thread] Writes the program that makes the node's values to `out`, which has room for `capacity` operators, and how many
   * it has to `n_out`: 1 to CROSSDOCK_MAX_OPERATORS, which `capacity` is no less than. CROSSDOCK_UNSUPPORTED where there is
   * none. The node's own `check` has passed. The host asks for it where values are wanted on a device, and wherever there is no
   * `decode`. May be NULL: there are none. */
  crossdock_code (*lower)(crossdock_instance*, const crossdock_encoded_array* array, size_t node, crossdock_operator* out,
                          size_t capacity, size_t* n_out, crossdock_error* err);
  /* [any-thread] How the node would be decoded for `wanted`: on `out_device`, which is `wanted` or the CPU, and for each node
   * below it, in pre-order, whether it is to be given decoded (1) or left as it is (0): then it is this plugin's to check and
   * to decode. What is below a decoded one does not count. On entry `out_device` is the CPU, and `out_decoded` holds 1 for the
   * node's children and 0 for the others. May be NULL: that is how. */
  crossdock_code (*plan)(crossdock_instance*, const crossdock_encoded_array* array, size_t node, crossdock_device wanted,
                         crossdock_device* out_device, uint8_t* out_decoded, size_t n_below, crossdock_error* err);
  /* [any-thread] Decodes the node as planned, on the call's device, where its buffers are. `below` has an entry for each node
   * below this one, in pre-order: a batch of one column for those that are given decoded, a released one for the others. It
   * takes them, on failure too. `out` becomes a batch of one column, of the node's type and length. May be NULL where all nodes
   * have programs. */
  crossdock_code (*decode)(crossdock_instance*, const crossdock_call* call, const crossdock_encoded_array* array, size_t node,
                           crossdock_batch* below, size_t n_below, crossdock_batch* out, crossdock_error* err);
} crossdock_encoding;

/* ------------------------------------------------------------------------------------------ the host's offers --- */

/* What a plugin is given at creation: one object per instance, reference-counted. It is there until `destroy` has
 * returned, and for as long as somebody holds a reference. Whatever the plugin lends out and needs the host's memory
 * for (a batch, a capsule) holds one until its release, and so may outlive the session, the instance and the host. */
typedef struct crossdock_host {
  size_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  void (*retain)(const struct crossdock_host*);
  void (*release)(const struct crossdock_host*);
  /* [any-thread] NULL for an id that it does not offer. Lives as long as the host object. */
  const void* (*get_interface)(const struct crossdock_host*, const char* id);
  void* private_data;
} crossdock_host;

#define CROSSDOCK_HOST_LOG_ID "crossdock.host.log/1"
#define CROSSDOCK_LOG_ERROR 1
#define CROSSDOCK_LOG_WARN 2
#define CROSSDOCK_LOG_INFO 3
#define CROSSDOCK_LOG_DEBUG 4
#define CROSSDOCK_LOG_TRACE 5

typedef struct crossdock_host_log {
  size_t struct_size;
  /* [any-thread] */
  void (*write)(const struct crossdock_host_log*, int32_t level, crossdock_str message);
  void* private_data;
} crossdock_host_log;

#define CROSSDOCK_HOST_DECODE_ID "crossdock.host.decode/1"

/* Encoded arrays, decoded by the plugins that the instance's session has for their encodings. */
typedef struct crossdock_host_decode {
  size_t struct_size;
  /* [any-thread] Takes `array`, on failure too. `out` becomes a batch of one column on the call's device. */
  crossdock_code (*decode)(const struct crossdock_host_decode*, const crossdock_call* call, crossdock_encoded_array* array,
                           crossdock_batch* out, crossdock_error* err);
  void* private_data;
} crossdock_host_decode;

#define CROSSDOCK_HOST_SESSION_ID "crossdock.host.session/1"

/* What the session that made the instance is set to. */
typedef struct crossdock_host_session {
  size_t struct_size;
  crossdock_device device;
  uint64_t memory_limit; /* bytes; 0: none */
  uint32_t threads;      /* how many threads a plugin may keep busy */
  uint32_t reserved;
} crossdock_host_session;

/* ------------------------------------------------------------------------------------------------------ memory --- */

typedef struct crossdock_allocation {
  void* address; /* on the device; 64-byte aligned at least */
  size_t bytes;
  crossdock_block* block;
} crossdock_allocation;

typedef struct crossdock_copy {
  void* to;
  const void* from;
  size_t bytes;
  crossdock_device to_device;
  crossdock_device from_device;
} crossdock_copy;

typedef struct crossdock_pointer {
  size_t struct_size;
  crossdock_device device;
  const void* base; /* of the allocation that the address lies in; NULL if unknown */
  uint64_t bytes;   /* from base; 0 if unknown */
} crossdock_pointer;

typedef struct crossdock_device_info {
  size_t struct_size;
  crossdock_device device;
  crossdock_str name;        /* "cpu", "cuda:0", "untouchable"; borrowed from the host */
  crossdock_str description; /* "NVIDIA H200"; borrowed from the host */
  uint64_t memory_bytes;     /* 0 if unknown */
  uint32_t host_accessible;  /* 1: the host may dereference its addresses */
  uint32_t reserved;
} crossdock_device_info;

typedef uint32_t crossdock_arg_kind;
#define CROSSDOCK_ARG_VALUE 0u /* `value` is a number, or a float's bits */
#define CROSSDOCK_ARG_READ 1u  /* `value` is an address on the stream's device, of which `bytes` are read */
#define CROSSDOCK_ARG_WRITE 2u /* the same, written (and perhaps read) */
/* `launch` refuses an argument of any other kind: CROSSDOCK_UNSUPPORTED. */

typedef struct crossdock_arg {
  uint64_t value;
  uint64_t bytes;
  crossdock_arg_kind kind;
  uint32_t reserved;
} crossdock_arg;

/* A kernel: one function with an image for each kind of device. On a host device the backend gives `host_twin`
 * addresses that it may dereference; it returns CROSSDOCK_OK or another code. On CUDA the image has a function `name`,
 * whose one parameter is a crossdock_kernel_args. */
typedef struct crossdock_kernel {
  size_t struct_size;
  const char* name;
  crossdock_code (*host_twin)(const crossdock_arg* args, size_t n_args);
  /* CUDA: a fatbin, a cubin, PTX or a crossdock_image_set; NULL: none. It is a constant of the plugin's, or of the
   * host's (crossdock_host_kernels): after its first launch it is known by where it lies. */
  const void* image;
  size_t image_bytes;
} crossdock_kernel;

#define CROSSDOCK_MAX_KERNEL_ARGS 168

/* The one parameter of a kernel on CUDA, by value: what a twin is given, in the 4096 bytes that a launch has room for.
 * Only the first `n_args` arguments are there. */
typedef struct crossdock_kernel_args {
  uint64_t n_args;
  /* The twin's address on the host: for a driver that has no device to run the image on. Means nothing on a device. */
  crossdock_code (*host_twin)(const crossdock_arg* args, size_t n_args);
  crossdock_arg args[CROSSDOCK_MAX_KERNEL_ARGS];
} crossdock_kernel_args;

#define CROSSDOCK_IMAGE_SET_MAGIC 0x315345474d494458ull /* "XDIMGES1" */
#define CROSSDOCK_IMAGE_CUBIN 1u
#define CROSSDOCK_IMAGE_PTX 2u

typedef struct crossdock_image {
  uint32_t kind;
  uint32_t architecture; /* the compute capability, 90 for 9.0 */
  uint64_t offset;       /* bytes from the set's begin */
  uint64_t bytes;        /* of PTX, with the NUL at its end */
} crossdock_image;

/* Images of the same kernels for several architectures, in one piece: this head, `n_images` crossdock_image, and what
 * they point at. A device takes the cubin of its own major version whose minor is the highest that is not above its own,
 * else the PTX of the highest architecture that is not above its own, compiled as it is loaded. */
typedef struct crossdock_image_set {
  uint64_t magic; /* CROSSDOCK_IMAGE_SET_MAGIC */
  uint64_t bytes; /* of the whole set */
  uint32_t n_images;
  uint32_t reserved; /* 0 */
} crossdock_image_set;

typedef struct crossdock_grid {
  uint32_t blocks;
  uint32_t threads;
  uint32_t shared_bytes;
  uint32_t reserved;
} crossdock_grid;

#define CROSSDOCK_HOST_KERNELS_ID "crossdock.host.kernels/1"
#define CROSSDOCK_HOST_KERNEL_THREADS 256u

/* The host's own kernels, by name: a plugin that launches these needs neither images nor CPU implementations of its own.
 * `docs/plugins.md` says which there are. Kernels of a plugin's own are launched beside them as ever.
 *
 * A name is a contract between modules that are built apart: a kernel whose arguments or meaning change gets a new name,
 * and its old name keeps the old meaning or disappears. A caller states the arguments that it will pass, and the host
 * refuses a caller whose statement differs from the kernel's own.
 *
 * A launch of one of these takes a list of jobs. A job is a head and the kernel's arguments. The head is a
 * CROSSDOCK_ARG_VALUE: its upper 32 bits are the number of arguments of the job, the head included; its lower 32 bits
 * are the end of the job's range of blocks, which begins at the end of the job before it, or at 0. The last job's range
 * ends at `grid.blocks`. Each job has at least one block. `grid.threads` is CROSSDOCK_HOST_KERNEL_THREADS and
 * `grid.shared_bytes` is 0. No two jobs of one launch write the same bytes. */
typedef struct crossdock_host_kernels {
  size_t struct_size;
  /* [any-thread] Finds the kernel `name` for devices of the type of `device`, for crossdock_memory's `launch`. `*out` is
   * valid until the process ends, and serves all devices of that type: a caller should keep it instead of asking again
   * for each launch. It is kept with the host that gave it, not for the process: another host may have other kernels.
   *
   * `arguments` states what the caller will pass after a job's head, one letter for each argument: 'v' for
   * CROSSDOCK_ARG_VALUE, 'r' for CROSSDOCK_ARG_READ, 'w' for CROSSDOCK_ARG_WRITE. Arguments that may follow any number
   * of times stand in parentheses at the end: "rvwv(vv)". Both texts are NUL-terminated.
   *
   * CROSSDOCK_VERSION if the host has no kernel of that name, or one with other arguments; CROSSDOCK_UNSUPPORTED if its
   * kernels do not run on devices of that type. */
  crossdock_code (*find)(const struct crossdock_host_kernels*, crossdock_device device, const char* name,
                         const char* arguments, const crossdock_kernel** out, crossdock_error* err);
  void* private_data;
} crossdock_host_kernels;

#define CROSSDOCK_FREE_LENT 1u /* the block was exported to another library, in a capsule: wait for all work in flight. A flag
                                  that a host does not know means no less to it. */

#define CROSSDOCK_HOST_MEMORY_ID "crossdock.host.memory/1"

/* The host's one owner of memory, as this instance sees it: what it allocates is counted under its name. All
 * functions are [any-thread]. The object lives as long as the crossdock_host; a block, a stream or an event keeps
 * that alive only if its holder retains the host. */
typedef struct crossdock_memory {
  size_t struct_size;
  void* private_data;

  /* `*n_out` is how many there are, of which no more than `capacity` are written. */
  crossdock_code (*devices)(const struct crossdock_memory*, crossdock_device_info* out, size_t capacity, size_t* n_out,
                            crossdock_error* err);

  /* Uninitialised memory, usable in stream order on `stream` (NULL: the default one), and by the host at once where it
   * may touch the device's addresses. 0 bytes is legal. `alignment` is a power of two of 2 MiB at most, or 0. Managed memory
   * (ARROW_DEVICE_CUDA_MANAGED) is read and copied, and not made: CROSSDOCK_UNSUPPORTED. */
  crossdock_code (*alloc)(const struct crossdock_memory*, crossdock_device device, size_t bytes, size_t alignment,
                          crossdock_stream* stream, crossdock_allocation* out, crossdock_error* err);
  /* Host memory that devices copy from and to at full speed. Plain host memory where there is no such device. */
  crossdock_code (*alloc_pinned)(const struct crossdock_memory*, size_t bytes, crossdock_allocation* out,
                                 crossdock_error* err);
  /* Gives a block back, after the events in `uses` (not taken; NULL is one that has passed). */
  void (*free)(const struct crossdock_memory*, crossdock_block*, crossdock_event* const* uses, size_t n_uses,
               uint32_t flags);

  /* Enqueued together, in any order among themselves. Host addresses are those of ARROW_DEVICE_CPU. A stream of NULL is the
   * default one of the device whose addresses are given here; the functions below are given one. */
  crossdock_code (*copy)(const struct crossdock_memory*, crossdock_stream*, const crossdock_copy* copies, size_t n_copies,
                         crossdock_error* err);
  crossdock_code (*fill)(const struct crossdock_memory*, crossdock_stream*, void* to, uint8_t value, size_t bytes,
                         crossdock_error* err);
  crossdock_code (*launch)(const struct crossdock_memory*, crossdock_stream*, const crossdock_kernel* kernel,
                           crossdock_grid grid, const crossdock_arg* args, size_t n_args, crossdock_error* err);

  /* The device's default stream is borrowed and lives with the memory object; a created one is the caller's. */
  crossdock_code (*stream_default)(const struct crossdock_memory*, crossdock_device, crossdock_stream** out,
                                   crossdock_error* err);
  crossdock_code (*stream_create)(const struct crossdock_memory*, crossdock_device, crossdock_stream** out,
                                  crossdock_error* err);
  void (*stream_destroy)(const struct crossdock_memory*, crossdock_stream*);
  crossdock_code (*stream_synchronize)(const struct crossdock_memory*, crossdock_stream*, crossdock_error* err);
  crossdock_code (*stream_wait)(const struct crossdock_memory*, crossdock_stream*, crossdock_event*, crossdock_error* err);
  /* A stranger's `sync_event` as it stands in ArrowDeviceArray (NULL: there is nothing to wait for); the event stays theirs. */
  crossdock_code (*stream_wait_raw)(const struct crossdock_memory*, crossdock_stream*, void* sync_event,
                                    crossdock_error* err);
  /* The device's own handle (a CUstream), or NULL on devices that have none. */
  void* (*stream_raw)(const struct crossdock_memory*, crossdock_stream*);
  crossdock_code (*stream_is_capturing)(const struct crossdock_memory*, crossdock_stream*, uint32_t* out,
                                        crossdock_error* err);

  /* Marks what `stream` has been given so far. `*out` is NULL where all of it has run already: to each function that is given an
   * event, NULL is one that has passed. */
  crossdock_code (*event_record)(const struct crossdock_memory*, crossdock_stream*, crossdock_event** out,
                                 crossdock_error* err);
  crossdock_code (*event_query)(const struct crossdock_memory*, crossdock_event*, uint32_t* out_done, crossdock_error* err);
  crossdock_code (*event_synchronize)(const struct crossdock_memory*, crossdock_event*, crossdock_error* err);
  void (*event_destroy)(const struct crossdock_memory*, crossdock_event*);
  /* What to put into `sync_event`; lives as long as the event. */
  void* (*event_raw)(const struct crossdock_memory*, crossdock_event*);

  /* Whose memory an address is. One that nobody knows is the CPU's. */
  crossdock_code (*pointer)(const struct crossdock_memory*, const void* address, crossdock_pointer* out,
                            crossdock_error* err);
  /* Where the host may read, and if it allocated it write, `bytes` bytes at `address`; NULL: nowhere, copy them. */
  void* (*host_address)(const struct crossdock_memory*, crossdock_device, const void* address, size_t bytes);

  /* Calls f(data) once, when all of `events` (not taken) have passed, with no lock held: at once on this thread if they have,
   * else on one of the host's, with no device current. Where an event can never pass, f is not called and `data`
   * is leaked, for there is no safe moment. */
  void (*call_after)(const struct crossdock_memory*, crossdock_event* const* events, size_t n_events, void (*f)(void* data),
                     void* data);

  /* A stranger's own stream (a CUstream) of the device: work can be ordered with it like with any other. On CUDA 1 is the
   * legacy default stream, 2 the calling thread's own, and NULL is refused; on host devices any value gives a stream like
   * the default one. It stays theirs, and must be alive whenever it is used here; `stream_destroy` forgets it. What is
   * allocated on it may outlive it. */
  crossdock_code (*stream_adopt)(const struct crossdock_memory*, crossdock_device, void* raw, crossdock_stream** out,
                                 crossdock_error* err);

  /* As `call_after`, but f is called only after all work that is in flight on the CUDA devices has passed as well, work of
   * other libraries included. For the release of an array whose memory was exported to such a library, which may
   * release it while its kernels still run. */
  void (*call_after_all)(const struct crossdock_memory*, crossdock_event* const* events, size_t n_events,
                         void (*f)(void* data), void* data);
} crossdock_memory;

/* ------------------------------------------------------------------------------------------------------- entry --- */

typedef struct crossdock_plugin_entry {
  uint64_t magic; /* CROSSDOCK_PLUGIN_MAGIC */
  size_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint64_t flags; /* 0 */
  /* [any-thread] A new instance that shares nothing with others. `host` is borrowed: retain it to keep it. */
  crossdock_code (*create)(const crossdock_host* host, crossdock_instance** out, crossdock_error* err);
  /* Once, when every batch stream and writer of the instance has been released and no host reference is left beyond
   * those that `create` took, which it keeps until then; never from inside one of its functions. A batch or capsule that holds no reference may
   * still be alive then: the code stays mapped, and it must not reach back into the instance. */
  void (*destroy)(crossdock_instance*);
  /* [any-thread] NULL for an id that it does not have. Lives as long as the instance. */
  const void* (*get_interface)(crossdock_instance*, const char* id);
} crossdock_plugin_entry;

#define CROSSDOCK_META_SIZES 128

/* Who a plugin is, as plain bytes without relocations, so that it is read from the file before anything runs.
 * Texts are NUL-terminated, without control characters; the name is of ASCII letters, digits, '-', '_' and '.'. Lists have all
 * that instances offer, in any order, separated by spaces: so no id and no format's name has one. */
typedef struct crossdock_plugin_meta {
  uint64_t magic; /* CROSSDOCK_META_MAGIC */
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t n_sizes;
  char name[64];
  char version[32];        /* semver */
  char api_range[32];      /* semver range of ABI versions that it works with: "^1.0.0" */
  char licence[64];        /* SPDX */
  char toolchain[96];      /* "rustc 1.95.0", "gcc 12.2.0" */
  char panic[16];          /* "unwind", "abort", "none" */
  char interfaces[256];    /* ids */
  char formats[1024];      /* names */
  char encodings[4096];    /* ids */
  char description[256];   /* one line for people */
  /* sizeof each ABI struct as it was built, in the order of CROSSDOCK_META_SIZES_INIT */
  uint32_t sizes[CROSSDOCK_META_SIZES];
} crossdock_plugin_meta;

#define CROSSDOCK_META_N_SIZES 26
#define CROSSDOCK_META_SIZES_INIT                                                                                     \
  {                                                                                                                   \
    sizeof(struct ArrowSchema), sizeof(struct ArrowArray), sizeof(struct ArrowDeviceArray), sizeof(crossdock_error),  \
        sizeof(crossdock_batch), sizeof(crossdock_capsule), sizeof(crossdock_capsules), sizeof(crossdock_source),     \
        sizeof(crossdock_sink), sizeof(crossdock_call), sizeof(crossdock_batch_stream), sizeof(crossdock_writer),     \
        sizeof(crossdock_format), sizeof(crossdock_input), sizeof(crossdock_importer), sizeof(crossdock_exporter),    \
        sizeof(crossdock_encoding), sizeof(crossdock_host), sizeof(crossdock_memory), sizeof(crossdock_plugin_entry), \
        sizeof(crossdock_option_info), sizeof(crossdock_column_plan), sizeof(crossdock_plan),                         \
        sizeof(crossdock_encoded_buffer), sizeof(crossdock_encoded_node), sizeof(crossdock_encoded_array)             \
  }

/* Both symbols are defined with it. */
#ifndef __cplusplus
#define CROSSDOCK_EXPORT __attribute__((visibility("default"), used))
#else
#define CROSSDOCK_EXPORT __attribute__((used))
/* In C++ a constant is visible in its own file alone unless it is declared so; GCC takes the visibility from here only. */
extern __attribute__((visibility("default"))) const crossdock_plugin_entry crossdock_plugin_v1;
extern __attribute__((visibility("default"))) const crossdock_plugin_meta crossdock_plugin_meta_v1;
}

#include <exception>
#include <new>

/* The C++ author's door: write each function that crosses the boundary as
 *     crossdock_code f(..., crossdock_error* err) noexcept { CROSSDOCK_GUARD(err, { ...; return CROSSDOCK_OK; }) }
 *     void release(crossdock_batch_stream* stream) noexcept { CROSSDOCK_GUARD_OR(, { ...; }) }
 *     const void* get_interface(...) noexcept { CROSSDOCK_GUARD_OR(nullptr, { ...; return &importer; }) }
 * so that no exception leaves it; CROSSDOCK_GUARD_OR is for those that have no `err`. The messages are constants, since an
 * exception may be thrown for lack of memory. */
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
