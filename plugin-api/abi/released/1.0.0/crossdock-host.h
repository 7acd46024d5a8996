/*
 * crossdock-host.h: the Crossdock host for applications in C and C++.
 *
 * A host finds and loads plugins, and owns memory. A session has a device, settings and its own
 * plugin instances. A session reads inputs to crossdock_batch_stream objects, writes batches with
 * crossdock_writer objects, plans exports and converts files.
 *
 *     crossdock_host_handle* host;  crossdock_host_create(NULL, &host, &err);
 *     crossdock_session* session;   crossdock_session_create(host, NULL, &session, &err);
 *     crossdock_batch_stream in;    crossdock_session_read_path(session, path, NULL, &in, &err);
 *
 * The conventions of crossdock.h for sizes, lists, objects, status, threads and memory apply. The
 * following conventions apply in addition:
 *
 *   handles    crossdock_host_handle and crossdock_session are opaque. The application that created
 *              a handle must destroy it once. Destroying NULL has no effect. Streams, writers,
 *              batches and capsules may outlive the session and the host, and may be released in
 *              any order. (The struct crossdock_host of crossdock.h is the host's interface for
 *              plugins.)
 *   settings   The caller sets `struct_size`. A field that is zero has its default value. A shorter
 *              struct of an older version is accepted. If the pointer is NULL, all settings have
 *              their default values. Settings are borrowed for the call unless documented
 *              otherwise.
 *   out        The caller sets all fields of an out parameter to zero, except `struct_size`, which
 *              it sets to the size. On failure nothing is written, and the caller has nothing to
 *              release.
 *   status     Functions that can fail return CROSSDOCK_OK (0) or another crossdock_code, and fill
 *              in `err` unless it is NULL. `err->message` has one line. `err->details` has further
 *              information ("refused: abi-version", the details of a plugin), or is NULL. If a
 *              required handle or argument is NULL, the function returns
 *              CROSSDOCK_INVALID_ARGUMENT. After a panic in the library, the function returns
 *              CROSSDOCK_PANICKED. The caller may then only release the object whose function
 *              panicked.
 *   threads    All functions are [any-thread]. Streams and writers are [serial], as defined in
 *              crossdock.h.
 *   texts      A crossdock_str is UTF-8. A path may contain any bytes except NUL. Texts that the
 *              library returns are followed by a NUL.
 *   inputs     An input is a path, or a URI such as "s3://bucket/name". A text is a URI if it
 *              begins with a scheme and "://", and a plugin opens this scheme
 *              (crossdock_plugin_meta.schemes). If no plugin opens the scheme, the text is a path
 *              if the file exists, and otherwise the error CROSSDOCK_INVALID_ARGUMENT, whose
 *              message names the missing plugin or the known schemes. "./" at the beginning makes
 *              any text a path.
 *   outputs    An output is a path. A text that begins with a scheme and "://" is rejected with
 *              CROSSDOCK_INVALID_ARGUMENT, because plugins only read URIs.
 *   callbacks  Callbacks must not unwind. They may be called on any thread unless documented
 *              otherwise.
 *
 * Until the process ends, the code of plugins stays mapped and a thread of the library runs.
 * Therefore there is no shutdown function, and libcrossdock.so must not be unloaded.
 */
#ifndef CROSSDOCK_HOST_H
#define CROSSDOCK_HOST_H

#include "crossdock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------- helpers --- */

/* Initialises a crossdock_error: `crossdock_error err = CROSSDOCK_ERROR_INIT;` */
#define CROSSDOCK_ERROR_INIT {sizeof(crossdock_error), 0, 0, NULL, NULL, NULL, NULL, 0, 0}

/*
 * Releases an error and empties it, so that it can be passed to the next call.
 *
 * err: An initialised error. It may be empty.
 */
static inline void crossdock_error_clear(crossdock_error* err) {
  if (err->release) err->release(err);
  err->code = CROSSDOCK_OK;
  err->flags = 0;
  err->offset = 0;
  err->row = 0;
  err->message = NULL;
  err->details = NULL;
  err->release = NULL;
  err->private_data = NULL;
}

/*
 * Converts a NUL-terminated text to a crossdock_str.
 *
 * text: Borrowed for as long as the result is used. NULL stands for the empty text.
 *
 * Returns the text without its NUL.
 */
static inline crossdock_str crossdock_text(const char* text) {
  crossdock_str str = {text, 0};
  while (text && text[str.bytes]) str.bytes++;
  return str;
}

/* ---------------------------------------------------------------------------------- version --- */

/*
 * [any-thread] Returns the version of the library in the form of semver, for example "0.1.0". The
 * text is static.
 */
const char* crossdock_version(void);

/*
 * [any-thread] Checks whether a program that was compiled with headers of the given ABI version may
 * use this library. The major and the minor versions must be equal, and the program's patch version
 * must not be greater.
 *
 * abi_major: CROSSDOCK_ABI_MAJOR of the program's headers.
 * abi_minor: CROSSDOCK_ABI_MINOR of the program's headers.
 * abi_patch: CROSSDOCK_ABI_PATCH of the program's headers.
 * err:       Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK, or CROSSDOCK_WRONG_VERSION if the versions do not match.
 */
crossdock_code crossdock_check_version(uint32_t abi_major, uint32_t abi_minor, uint32_t abi_patch,
                                       crossdock_error* err);

/* Checks the headers that this program was compiled with. Call it before all other functions. */
#define CROSSDOCK_CHECK_VERSION(err) \
  crossdock_check_version(CROSSDOCK_ABI_MAJOR, CROSSDOCK_ABI_MINOR, CROSSDOCK_ABI_PATCH, (err))

/*
 * [any-thread] Installs a handler for SIGBUS, the signal for a read beyond the end of a mapped file
 * that another program has truncated.
 *
 * With the handler, a function of this library that reads such a file returns CROSSDOCK_IO with a
 * message that names the file. The handler passes all other SIGBUS signals, including signals for
 * reads outside this library, to the handler that was installed before it. The library installs no
 * signal handlers unless the application calls this function. Further calls have no effect.
 *
 * err: Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK, or CROSSDOCK_IO if the system rejects the handler.
 */
crossdock_code crossdock_handle_sigbus(crossdock_error* err);

/* ------------------------------------------------------------------------------------- host --- */

/* A host. Created by crossdock_host_create, destroyed by crossdock_host_destroy. */
typedef struct crossdock_host_handle crossdock_host_handle;

/* Searches only the paths in `plugins`. Without this flag, the host also searches
 * CROSSDOCK_PLUGIN_PATH and the folder crossdock/plugins in the directory of libcrossdock.so. */
#define CROSSDOCK_HOST_ONLY_GIVEN 1u
/* If a file in `plugins` is missing or refused, the host lists it as a candidate. Without this
 * flag, crossdock_host_create returns an error. */
#define CROSSDOCK_HOST_LENIENT 2u
/* Adds the test device (ARROW_DEVICE_EXT_DEV, id 0). Its memory is host memory, but its published
 * addresses fault when dereferenced. */
#define CROSSDOCK_HOST_UNTOUCHABLE 4u

/* Settings of a host. */
typedef struct crossdock_host_settings {
  size_t struct_size;
  /* Paths of plugin files, or of folders that contain plugins (*.so). Plugins from these paths
   * precede plugins from all other places. */
  const crossdock_str* plugins;
  size_t n_plugins;
  uint32_t flags;   /* CROSSDOCK_HOST_... */
  uint32_t threads; /* maximum threads of all plugins; 0: the number of processors */
  uint64_t memory_limit; /* maximum bytes that may be allocated at once, on all devices; 0: no limit */
  /*
   * [any-thread] Receives log messages of the host and its plugins that are at least as severe as
   * `log_level`. If NULL, messages are dropped. The function must not call functions of this host.
   *
   * log_data: The field `log_data`.
   * level:    CROSSDOCK_LOG_...
   * plugin:   The plugin's name; empty for the host. Borrowed for the call.
   * message:  Borrowed for the call.
   */
  void (*log)(void* log_data, int32_t level, crossdock_str plugin, crossdock_str message);
  void* log_data;
  /* Called once after the last call of `log`. If crossdock_host_create fails, the library calls
   * this function before crossdock_host_create returns. Otherwise, the library calls it when the
   * host has been destroyed and all objects of the host have been released. May be NULL. */
  void (*log_release)(void* log_data);
  int32_t log_level; /* CROSSDOCK_LOG_ERROR to _TRACE; 0: CROSSDOCK_LOG_WARN */
  uint32_t reserved; /* 0 */
} crossdock_host_settings;

/*
 * [any-thread] Creates a host and searches for plugins. Runs no code of plugins.
 *
 * settings: Borrowed for the call, except `log_data`, which is used until `log_release` is called.
 *           NULL: all defaults.
 * out:      Receives the host. The caller owns it and must destroy it with crossdock_host_destroy.
 * err:      Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK, or CROSSDOCK_IO, CROSSDOCK_UNSUPPORTED, CROSSDOCK_WRONG_VERSION or
 * CROSSDOCK_BAD_DATA if a plugin file that `settings->plugins` names is missing or refused (see
 * CROSSDOCK_HOST_LENIENT).
 */
crossdock_code crossdock_host_create(const crossdock_host_settings* settings, crossdock_host_handle** out,
                                     crossdock_error* err);

/*
 * [any-thread] Destroys the handle. Objects that were created with the host stay valid.
 *
 * host: No thread may use the host during or after this call. NULL has no effect.
 */
void crossdock_host_destroy(crossdock_host_handle* host);

typedef uint32_t crossdock_candidate_status;
#define CROSSDOCK_CANDIDATE_CHOSEN 0u   /* used if its name or one of its formats is requested */
#define CROSSDOCK_CANDIDATE_REFUSED 1u  /* failed a check */
#define CROSSDOCK_CANDIDATE_SHADOWED 2u /* an earlier candidate has the same name */

/* A file that may be a plugin, and the result of its checks. Unknown texts are empty. */
typedef struct crossdock_candidate {
  size_t struct_size;
  crossdock_str path;   /* any bytes; in `message`, U+FFFD replaces bytes that are not UTF-8 */
  crossdock_str origin; /* how the file was found, for users: "given", "CROSSDOCK_PLUGIN_PATH" */
  crossdock_str name;
  crossdock_str version;
  crossdock_str description;
  crossdock_str formats; /* names, separated by spaces */
  crossdock_candidate_status status;
  uint32_t reserved;
  crossdock_str reason;  /* a stable identifier of why the file is not used ("abi-version"), or empty */
  crossdock_str message; /* a sentence that says why the file is not used, or empty */
} crossdock_candidate;

/* All candidates of a host. */
typedef struct crossdock_candidates {
  size_t struct_size;
  const crossdock_candidate* candidates; /* in order of precedence */
  size_t n_candidates;
  const crossdock_str* warnings; /* about places that could not be searched */
  size_t n_warnings;
  void (*release)(struct crossdock_candidates*); /* [any-thread] frees the lists and their texts */
  void* private_data;
} crossdock_candidates;

/*
 * [any-thread] Lists all candidates, including refused and shadowed ones.
 *
 * host: The host.
 * load: If 0, no code of plugins runs. If 1, each chosen plugin is loaded, and an instance of it is
 *       created and destroyed, so that errors of these steps are reported too. The command
 *       `crossdock plugins --explain` does the same.
 * out:  Receives the lists. The caller must release them.
 * err:  Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_host_candidates(crossdock_host_handle* host, uint32_t load, crossdock_candidates* out,
                                         crossdock_error* err);

/*
 * [any-thread] Loads a plugin, unless it has already been loaded. Without this call, a plugin is
 * loaded when it is first used.
 *
 * host: The host.
 * name: The plugin's name. Borrowed for the call.
 * err:  Receives the error. May be NULL. If the plugin is refused, `message` says why, and
 *       `details` is "refused: REASON" with the `reason` of its crossdock_candidate. If there is no
 *       plugin with this name, `message` lists the known plugins.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_host_load(crossdock_host_handle* host, crossdock_str name, crossdock_error* err);

/* Sums over all plugins and devices. The copied bytes are counted since the host was created. */
typedef struct crossdock_ledger {
  size_t struct_size;
  uint64_t live_bytes;   /* bytes of allocated blocks that have not been released */
  uint64_t live_blocks;
  uint64_t cached_bytes; /* bytes of released blocks that are kept for later allocations */
  /* Copied bytes by direction. In the names, h is memory that the host can read in place, and d is
   * device memory. */
  uint64_t copied_h2d;
  uint64_t copied_d2h;
  uint64_t copied_d2d;
  uint64_t copied_h2h;
} crossdock_ledger;

/*
 * [any-thread] Reads the ledger of allocations and copies.
 *
 * host: The host.
 * out:  Receives the sums.
 * err:  Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_host_ledger(crossdock_host_handle* host, crossdock_ledger* out, crossdock_error* err);

/* Unreleased objects of one owner on one device. */
typedef struct crossdock_leak {
  size_t struct_size;
  crossdock_str account; /* the owner: a plugin's name and its use, or "host" */
  crossdock_device device;
  uint64_t bytes;   /* in unreleased blocks */
  uint64_t blocks;  /* unreleased */
  uint64_t streams; /* created or adopted, and not destroyed */
  uint64_t events;  /* recorded and not destroyed */
  uint64_t references; /* to the host, which keep an instance alive; listed in a separate entry */
} crossdock_leak;

/* All unreleased objects of a host. */
typedef struct crossdock_leaks {
  size_t struct_size;
  const crossdock_leak* leaks;
  size_t n_leaks;
  void (*release)(struct crossdock_leaks*); /* [any-thread] frees the list and its texts */
  void* private_data;
} crossdock_leaks;

/*
 * [any-thread] Waits until all plugin instances that are not in use have been destroyed, and lists
 * all unreleased objects. The listed objects are leaks if the application has released all
 * sessions, streams, writers, batches and capsules.
 *
 * Must not be called from a callback.
 *
 * host: The host.
 * out:  Receives the list. The caller must release it.
 * err:  Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_host_settle(crossdock_host_handle* host, crossdock_leaks* out, crossdock_error* err);

/* ---------------------------------------------------------------------------------- session --- */

/* A session. Created by crossdock_session_create, destroyed by crossdock_session_destroy. */
typedef struct crossdock_session crossdock_session;

/* The session validates all data as the field `validate` states. Without this flag, it validates
 * data from files and sources with CROSSDOCK_VALIDATE_FULL, and data from structs in memory with
 * CROSSDOCK_VALIDATE_LAYOUT. */
#define CROSSDOCK_SESSION_VALIDATE 1u

/* Settings of a session. */
typedef struct crossdock_session_settings {
  size_t struct_size;
  crossdock_device device; /* the device of results; all zero: the CPU */
  uint32_t flags;          /* CROSSDOCK_SESSION_... */
  uint32_t validate;       /* CROSSDOCK_VALIDATE_LAYOUT or _FULL, if the flag is set */
  uint64_t byte_budget;    /* maximum bytes that a call should use at once; 0: no limit */
} crossdock_session_settings;

/*
 * [any-thread] Creates a session.
 *
 * host:     The host. It may be destroyed before the session.
 * settings: Borrowed for the call. NULL: all defaults.
 * out:      Receives the session. The caller owns it and must destroy it with
 *           crossdock_session_destroy.
 * err:      Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK, or CROSSDOCK_DEVICE if the device does not exist.
 */
crossdock_code crossdock_session_create(crossdock_host_handle* host, const crossdock_session_settings* settings,
                                        crossdock_session** out, crossdock_error* err);

/*
 * [any-thread] Destroys the handle. Streams and writers of the session stay valid.
 *
 * session: No thread may use the session during or after this call. NULL has no effect.
 */
void crossdock_session_destroy(crossdock_session* session);

/*
 * [any-thread] Cancels all current and future work of the session, its streams and its writers. The
 * cancelled calls soon fail with CROSSDOCK_CANCELLED.
 *
 * Async-signal-safe: may be called in a signal handler.
 *
 * session: The session. NULL has no effect.
 */
void crossdock_session_cancel(crossdock_session* session);

/* ---------------------------------------------------------------------------------- reading --- */

/*
 * Batch streams of this library
 *
 * - The argument `call` of `get_next` may be NULL. `get_next` reads only the flag `cancel` of
 *   `call`, once before each batch. The functions of the flag may be NULL. All other settings come
 *   from the session.
 * - Batches are on the session's device. If a format supports only host memory, or if a capsule is
 *   on another device, the host moves the batches to the session's device.
 * - `schema` of a batch is empty, and `buffer_sizes` is present. A batch may outlive the stream.
 */

/* Settings for reading. */
typedef struct crossdock_read_settings {
  size_t struct_size;
  /* The name of a plugin or a format. If empty, the format is recognised by the first bytes of the
   * input, then by the file extension. The name of a format is required for capsules. */
  crossdock_str format;
  const crossdock_option* options; /* options of the format */
  size_t n_options;
  /* The schema of the capsules, if their format does not describe the schema. May be NULL. */
  const struct ArrowSchema* schema;
  /*
   * [any-thread] Receives the progress, until the stream is released. If NULL, progress is not
   * reported.
   *
   * progress_data: The field `progress_data`.
   * bytes_done:    Bytes of the input that were read.
   * bytes_total:   Bytes of the input; 0 if unknown.
   */
  void (*progress)(void* progress_data, uint64_t bytes_done, uint64_t bytes_total);
  void* progress_data;
  /*
   * Which of the following fields apply: CROSSDOCK_READ_COLUMNS, CROSSDOCK_READ_ROWS and
   * CROSSDOCK_READ_LIMIT; and CROSSDOCK_READ_DEVICE_ROWS. Without these flags, all columns and rows
   * are read. Capsules are always read completely.
   */
  uint32_t flags;
  uint32_t reserved;
  /* The columns and fields of nested structs to read, in the order of the result; may be none. */
  const crossdock_path* columns;
  size_t n_columns;
  /* The rows to read, as positions in the input: ascending ranges that do not overlap. Rows beyond
   * the end of the input do not exist, which is not an error. */
  const crossdock_row_range* rows;
  size_t n_rows;
  uint64_t limit;      /* the maximum number of rows of the result */
  uint64_t batch_rows; /* the maximum number of rows of a batch; 0: the batches of the input */
  /* Comparisons, all of which a row must fulfil: a column, an operator (== != < <= > >=) and a
   * value of the column's type, for example "day >= 2024-02-29" or "point.x < 1.5". A null fulfils
   * no comparison. `rows` are positions before the filters. */
  const crossdock_str* filters;
  size_t n_filters;
  /* Options of the plugin that opens URIs, for example credentials. If there are any, an input that
   * is not a URI is the error CROSSDOCK_INVALID_ARGUMENT. */
  const crossdock_option* storage_options;
  size_t n_storage_options;
} crossdock_read_settings;

/* Flags of crossdock_read_settings. They are none of the flags of crossdock_read_request. */
#define CROSSDOCK_READ_LIMIT 65536u
/* The number of a batch's rows may stay on the device (crossdock_batch.n_rows_device). Without this
 * flag, the library waits for the number, and `n_rows_device` is NULL. */
#define CROSSDOCK_READ_DEVICE_ROWS 131072u

/*
 * [any-thread] Reads a file or a URI. A regular file is mapped. Other programs must not truncate it
 * while the stream or its batches exist (see crossdock_handle_sigbus). Other files, such as named
 * pipes and devices, are read in order.
 *
 * session:  The session.
 * path:     A path or a URI. Borrowed for the call.
 * settings: Borrowed for the call, except `progress_data`. NULL: all defaults.
 * out:      Receives the stream. The caller must release it.
 * err:      Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_read_path(crossdock_session* session, crossdock_str path,
                                           const crossdock_read_settings* settings, crossdock_batch_stream* out,
                                           crossdock_error* err);

/*
 * [any-thread] Reads from bytes in memory, without copying them.
 *
 * session:      The session.
 * data:         Must stay valid and unchanged until `release` is called.
 * bytes:        The length of `data`.
 * release:      Called once with `release_data`, on any thread, when the last batch that uses the
 *               bytes is released, or if this function fails. May be NULL.
 * release_data: The argument of `release`.
 * settings:     Borrowed for the call, except `progress_data`. NULL: all defaults.
 * out:          Receives the stream. The caller must release it.
 * err:          Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_read_bytes(crossdock_session* session, const void* data, size_t bytes,
                                            void (*release)(void* release_data), void* release_data,
                                            const crossdock_read_settings* settings, crossdock_batch_stream* out,
                                            crossdock_error* err);

/*
 * [any-thread] Reads from a source that the application implements.
 *
 * session:  The session.
 * source:   Ownership passes to the library, also on failure, and `source->release` becomes NULL.
 *           The library releases the source when no stream or batch uses it any more. If
 *           `source->bytes` is -1, the source is read in order. The library cannot interrupt a call
 *           of `read_at`.
 * settings: Borrowed for the call, except `progress_data`. NULL: all defaults.
 * out:      Receives the stream. The caller must release it.
 * err:      Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_read_source(crossdock_session* session, crossdock_source* source,
                                             const crossdock_read_settings* settings, crossdock_batch_stream* out,
                                             crossdock_error* err);

/*
 * [any-thread] Reads capsules.
 *
 * session:    The session.
 * capsules:   Ownership of each capsule passes to the library, also on failure. The array of
 *             capsules is borrowed for the call.
 * n_capsules: The length of `capsules`.
 * settings:   Borrowed for the call, except `progress_data`. `settings->format` is required.
 * out:        Receives the stream. The caller must release it.
 * err:        Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_read_capsules(crossdock_session* session, crossdock_capsule* capsules, size_t n_capsules,
                                               const crossdock_read_settings* settings, crossdock_batch_stream* out,
                                               crossdock_error* err);

/*
 * [any-thread] Returns the number of rows of a batch. If the number is on the device
 * (crossdock_batch.n_rows_device), waits until the batch is ready, and reads the number.
 *
 * session: The session.
 * batch:   A batch on a device of the host. Borrowed for the call.
 * out:     Receives the number.
 * err:     Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK, or CROSSDOCK_BAD_DATA if the number is negative or above the length of the
 * array.
 */
crossdock_code crossdock_session_count_rows(crossdock_session* session, const crossdock_batch* batch, uint64_t* out,
                                            crossdock_error* err);

/*
 * [any-thread] Reads files or URIs of one schema, one after another, as a stream of batches on the
 * session's device. A thread reads batches ahead within the memory limit. The rows and the limit of
 * the settings apply to the rows of all inputs together.
 *
 * session:  The session. The stream may outlive it.
 * paths:    Paths or URIs. Borrowed for the call. At least one; one path may be a pipe, several
 *           must be regular files.
 * n_paths:  The length of `paths`.
 * settings: Borrowed for the call, except `progress_data`. NULL: all defaults.
 * out:      Receives the stream of record batches. The caller must release it. Only one thread at a
 *           time may call its functions. An array is ready when its `sync_event` has occurred, and
 *           may outlive the stream.
 * err:      Receives the error. May be NULL. Errors of later inputs and batches are those of the
 *           stream.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_scan(crossdock_session* session, const crossdock_str* paths, size_t n_paths,
                                      const crossdock_read_settings* settings, struct ArrowDeviceArrayStream* out,
                                      crossdock_error* err);

/*
 * [any-thread] Like crossdock_session_scan, but the batches are in host memory and ready.
 */
crossdock_code crossdock_session_scan_to_host(crossdock_session* session, const crossdock_str* paths, size_t n_paths,
                                              const crossdock_read_settings* settings, struct ArrowArrayStream* out,
                                              crossdock_error* err);

/* ------------------------------------------------------------------------------------ parts --- */

/* A buffer of a table that was taken apart. */
typedef struct crossdock_part {
  size_t struct_size;
  const void* data; /* in host memory */
  size_t bytes;
} crossdock_part;

/*
 * A table that was taken apart: a header, and the buffers that it refers to. A transport carries
 * both to another process, where crossdock_session_from_parts rebuilds the table. The header
 * contains a version; readers reject other versions.
 */
typedef struct crossdock_parts {
  size_t struct_size;
  const void* header;
  size_t header_bytes;
  const crossdock_part* buffers;
  size_t n_buffers;
  void (*release)(struct crossdock_parts*); /* [any-thread] releases the memory of all parts */
  void* private_data;
} crossdock_parts;

/*
 * [any-thread] Takes a table apart. Buffers in host memory are shared and not copied, except those
 * of slices, of which only the own rows are copied. Buffers on other devices are copied to host
 * memory.
 *
 * session: The session.
 * stream:  The table's batches, for example of crossdock_session_scan. Ownership passes, also on
 *          failure.
 * out:     Receives the parts. The caller must release it. It may outlive the session.
 * err:     Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_to_parts(crossdock_session* session, struct ArrowDeviceArrayStream* stream,
                                          crossdock_parts* out, crossdock_error* err);

/* A buffer that was received. */
typedef struct crossdock_received {
  size_t struct_size;
  const void* data; /* must stay valid and unchanged until `release` is called */
  size_t bytes;
  /* Called once with `release_data`, on any thread, after the last use of the bytes, or if
   * crossdock_session_from_parts fails. May be NULL. */
  void (*release)(void* release_data);
  void* release_data;
} crossdock_received;

/*
 * [any-thread] Rebuilds a table on the session's device. On the CPU, a buffer is used in place if
 * its address is aligned as its type requires. The contents of the buffers are validated only if
 * the session validates fully.
 *
 * session:      The session. The stream may outlive it.
 * header:       The bytes of `crossdock_parts.header`. Borrowed for the call.
 * header_bytes: The length of `header`.
 * buffers:      The buffers in the order of `crossdock_parts.buffers`. Ownership of the bytes
 *               passes, also on failure; the list is borrowed for the call. All elements have the
 *               `struct_size` of the first element.
 * n_buffers:    The length of `buffers`.
 * out:          Receives the stream of the table's batches. The caller must release it. Only one
 *               thread at a time may call its functions. An array is ready when its `sync_event`
 *               has occurred, and may outlive the stream.
 * err:          Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code: CROSSDOCK_BAD_DATA if the header is damaged or if buffers
 * are missing or have other lengths, CROSSDOCK_UNSUPPORTED if the header has another version.
 */
crossdock_code crossdock_session_from_parts(crossdock_session* session, const void* header, size_t header_bytes,
                                            const crossdock_received* buffers, size_t n_buffers,
                                            struct ArrowDeviceArrayStream* out, crossdock_error* err);

/* ---------------------------------------------------------------------------------- writing --- */

/*
 * Writers of this library
 *
 * - `n_rows_device` of a batch may be set. If the format needs the number of rows, `write` waits
 *   for it. If the number is negative or above the length of the array, `write` fails.
 * - `write` accepts batches with the writer's schema, on any device of the host. The host moves
 *   them to a device that the format supports. If `schema` of a batch is not empty, it must be
 *   equal to the writer's schema.
 * - The argument `call` of `write` and `finish` may be NULL. Both functions read only the flag
 *   `cancel` of `call`. The functions of the flag may be NULL. The argument `out` may be NULL if
 *   the format writes bytes.
 * - If `write` fails, the output is discarded. The application must then only release the writer.
 */

/* Settings for writing. */
typedef struct crossdock_write_settings {
  size_t struct_size;
  /* The name of a plugin or a format. If empty, the format is recognised by the file extension of
   * the path or of the sink's name. A name is required for capsules. */
  crossdock_str format;
  const crossdock_option* options; /* options of the format */
  size_t n_options;
} crossdock_write_settings;

/*
 * [any-thread] Writes a file. The file appears with all its contents when `finish` succeeds, and
 * replaces an existing regular file. If the writer is released before `finish` has succeeded, no
 * file is created or replaced. If the path is an existing file that is not regular, such as a named
 * pipe or a device, bytes are written to it directly.
 *
 * session:  The session.
 * path:     Borrowed for the call.
 * schema:   The schema of the batches. Borrowed for the call.
 * settings: Borrowed for the call. NULL: all defaults.
 * out:      Receives the writer. The caller must release it.
 * err:      Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_write_path(crossdock_session* session, crossdock_str path,
                                            const struct ArrowSchema* schema, const crossdock_write_settings* settings,
                                            crossdock_writer* out, crossdock_error* err);

/*
 * [any-thread] Writes to a sink that the application implements.
 *
 * session:  The session.
 * sink:     Ownership passes to the library, also on failure, and `sink->release` becomes NULL. The
 *           library releases the sink when `finish` returns or when the writer is released. The
 *           output is complete only if `finish` succeeds.
 * schema:   The schema of the batches. Borrowed for the call.
 * settings: Borrowed for the call. NULL: all defaults.
 * out:      Receives the writer. The caller must release it.
 * err:      Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_write_sink(crossdock_session* session, crossdock_sink* sink,
                                            const struct ArrowSchema* schema, const crossdock_write_settings* settings,
                                            crossdock_writer* out, crossdock_error* err);

/*
 * [any-thread] Creates a writer whose `write` and `finish` return capsules.
 *
 * session:  The session.
 * schema:   The schema of the batches. Borrowed for the call.
 * settings: Borrowed for the call. `settings->format` is required.
 * out:      Receives the writer. The caller must release it.
 * err:      Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_write_capsules(crossdock_session* session, const struct ArrowSchema* schema,
                                                const crossdock_write_settings* settings, crossdock_writer* out,
                                                crossdock_error* err);

/*
 * [any-thread] Predicts how each column would be written. Writes nothing.
 *
 * session:  The session.
 * schema:   The schema of the batches. Borrowed for the call.
 * from:     The device of the batches.
 * settings: Borrowed for the call. `settings->format` is required; the format may write bytes or
 *           capsules.
 * out:      Receives the plan. The caller must release it.
 * err:      Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_plan(crossdock_session* session, const struct ArrowSchema* schema, crossdock_device from,
                                      const crossdock_write_settings* settings, crossdock_plan* out,
                                      crossdock_error* err);

/* ------------------------------------------------------------------------------- conversion --- */

/* Settings for a conversion. */
typedef struct crossdock_convert_settings {
  size_t struct_size;
  crossdock_str from; /* a plugin or a format; if empty, recognised as by crossdock_session_read_path */
  crossdock_str to;   /* a plugin or a format; if empty, recognised by the file extension */
  /* Names of plugins or formats. In this order, each listed plugin or format exports every batch to
   * capsules and imports the batch again. */
  const crossdock_str* via;
  size_t n_via;
  const crossdock_str* columns; /* the columns to convert, in this order; n_columns 0: all columns */
  size_t n_columns;
  const crossdock_option* read_options;
  size_t n_read_options;
  const crossdock_option* write_options;
  size_t n_write_options;
  /* [any-thread] Receives the progress, until the call returns. If NULL, progress is not reported.
   * See crossdock_read_settings. */
  void (*progress)(void* progress_data, uint64_t bytes_done, uint64_t bytes_total);
  void* progress_data;
  const crossdock_option* storage_options; /* see crossdock_read_settings */
  size_t n_storage_options;
} crossdock_convert_settings;

/* One stage of a conversion. */
typedef struct crossdock_stage {
  size_t struct_size;
  crossdock_str kind;   /* "read", "via", "move" (the host moves batches to another device), "write" */
  crossdock_str plugin; /* "host" for a move */
  crossdock_str format; /* the device's name for a move */
  uint64_t rows;        /* rows of the stage's output */
  uint64_t batches;
  uint64_t bytes; /* bytes in the buffers of the stage's output; for "write", the size of the file */
  uint64_t time_ns;
  uint64_t copied_h2d; /* bytes that were copied for the stage, by direction as in crossdock_ledger */
  uint64_t copied_d2h;
  uint64_t copied_d2d;
  uint64_t copied_h2h;
} crossdock_stage;

/* The report of a conversion. */
typedef struct crossdock_report {
  size_t struct_size;
  uint64_t rows;    /* written */
  uint64_t batches; /* written */
  uint64_t bytes;   /* the size of the output */
  uint64_t copied;  /* bytes that were copied, in all stages and directions */
  uint64_t time_ns; /* the time from the first access to the input until the output is complete */
  const crossdock_stage* stages; /* in the order in which batches pass through them */
  size_t n_stages;
  void (*release)(struct crossdock_report*); /* [any-thread] frees the list and its texts */
  void* private_data;
} crossdock_report;

/*
 * [any-thread] Converts a file or a URI to the file `output`. The output appears when it is
 * complete. On failure, no output appears.
 *
 * session:  The session.
 * input:    A path or a URI. Borrowed for the call.
 * output:   A path, not a URI. Borrowed for the call.
 * settings: Borrowed for the call. NULL: all defaults.
 * out:      Receives the report. The caller must release it. May be NULL.
 * err:      Receives the error. May be NULL.
 *
 * Returns CROSSDOCK_OK or an error code.
 */
crossdock_code crossdock_session_convert(crossdock_session* session, crossdock_str input, crossdock_str output,
                                         const crossdock_convert_settings* settings, crossdock_report* out,
                                         crossdock_error* err);

#ifdef __cplusplus
}
#endif

#endif /* CROSSDOCK_HOST_H */
