/*
 * crossdock-host.h: the Crossdock host for applications in C and C++.
 *
 * A host finds and loads plugins and owns memory. A session has a device, settings, and plugin instances of its own: it
 * reads (an input becomes a crossdock_batch_stream), writes (a crossdock_writer takes batches), plans and converts.
 *
 *     crossdock_host_handle* host;  crossdock_host_create(NULL, &host, &err);
 *     crossdock_session* session;   crossdock_session_create(host, NULL, &session, &err);
 *     crossdock_batch_stream in;    crossdock_session_read_path(session, path, NULL, &in, &err);
 *
 * The structs and the rules are those of crossdock.h: sizes, lists, objects, status, threads, memory. Said once for what
 * is added here:
 *
 *   handles   crossdock_host_handle and crossdock_session are opaque; whoever created one destroys it, once. NULL is
 *             legal to destroy. Everything that was made with one holds what it needs of it: streams, writers, batches and
 *             capsules may outlive the session and the host, and are released by whoever holds them, in any order.
 *             (`crossdock_host` is what a plugin is given; hence the longer name.)
 *   settings  A settings struct comes with `struct_size` and is else zero where the default is wished for; an older and
 *             shorter one is as good. NULL: all defaults. Borrowed for the call, unless a field says otherwise.
 *   out       An out parameter with a `struct_size` has that set by the caller and is else zero. On failure nothing is
 *             written, and nothing needs to be released.
 *   status    Functions that can fail return 0 or a crossdock_code, and fill in `err` if it is not NULL: `message` is one
 *             line, `details` what does not fit there ("refused: abi-version", a plugin's own details), or NULL. NULL where
 *             a handle or an argument is needed is CROSSDOCK_INVALID_ARGUMENT. A panic in the library is
 *             CROSSDOCK_PANICKED; the object it came from then answers nothing but its release.
 *   threads   All functions here are [any-thread]. Streams and writers are [serial], as in crossdock.h.
 *   texts     crossdock_str is UTF-8; a path is any bytes but NUL. What the library gives is NUL-terminated besides.
 *   callbacks must not unwind, and may be called on any thread unless said otherwise.
 *
 * Plugins' code stays mapped, and a thread of the library's lives, until the process ends: there is nothing to shut down,
 * and libcrossdock.so is not to be unloaded.
 */
#ifndef CROSSDOCK_HOST_H
#define CROSSDOCK_HOST_H

#include "crossdock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------ small helps --- */

/* For initialisation: `crossdock_error err = CROSSDOCK_ERROR_INIT;` */
#define CROSSDOCK_ERROR_INIT {sizeof(crossdock_error), 0, 0, NULL, NULL, NULL, NULL}

/* Makes the struct ready for the next call. Safe on one that nobody filled in. */
static inline void crossdock_error_clear(crossdock_error* err) {
  if (err->release) err->release(err);
  err->code = CROSSDOCK_OK;
  err->message = NULL;
  err->details = NULL;
  err->release = NULL;
  err->private_data = NULL;
}

/* A NUL-terminated text, borrowed; NULL gives the empty one. */
static inline crossdock_str crossdock_text(const char* text) {
  crossdock_str str = {text, 0};
  while (text && text[str.bytes]) str.bytes++;
  return str;
}

/* ---------------------------------------------------------------------------------------------------- version --- */

/* The library's own version, as semver: "0.1.0". */
const char* crossdock_version(void);

/* Whether a program that was compiled with headers of ABI `abi_major`.`abi_minor` may use this library: in 0.x the two
 * are the same, from 1.0 on the minor may be less than the library's. CROSSDOCK_VERSION if not. */
crossdock_code crossdock_check_version(uint32_t abi_major, uint32_t abi_minor, crossdock_error* err);

/* The headers that this program is compiled with, against the library that it runs with. Ask before anything else. */
#define CROSSDOCK_CHECK_VERSION(err) crossdock_check_version(CROSSDOCK_ABI_MAJOR, CROSSDOCK_ABI_MINOR, (err))

/* Installs a handler for SIGBUS, which the system sends to whoever reads a mapped file that another program has truncated. From
 * then on a call of this library that reads such a file returns CROSSDOCK_IO, with a message that names the file. Reads
 * outside of calls, and every other SIGBUS, go to the handler that was installed before. Without this call the library installs no
 * signal handler. [any-thread] CROSSDOCK_IO where the system refuses. */
crossdock_code crossdock_handle_sigbus(crossdock_error* err);

/* ------------------------------------------------------------------------------------------------------- host --- */

typedef struct crossdock_host_handle crossdock_host_handle;

/* Looks at `plugins` alone: not at CROSSDOCK_PLUGIN_PATH, and not in the folder
 * crossdock/plugins beside libcrossdock.so. */
#define CROSSDOCK_HOST_ONLY_GIVEN 1u
/* A file of `plugins` that is missing or refused is noted as such, instead of failing crossdock_host_create. */
#define CROSSDOCK_HOST_LENIENT 2u
/* Adds the test device (ARROW_DEVICE_EXT_DEV, id 0): host memory whose published addresses fault when dereferenced. */
#define CROSSDOCK_HOST_UNTOUCHABLE 4u

typedef struct crossdock_host_settings {
  size_t struct_size;
  /* Plugin files, and folders whose *.so files are looked at. They go before all other places. */
  const crossdock_str* plugins;
  size_t n_plugins;
  uint32_t flags;   /* CROSSDOCK_HOST_... */
  uint32_t threads; /* how many threads plugins may keep busy; 0: as many as the machine has */
  uint64_t memory_limit; /* bytes that may be held at once, over all devices; 0: no limit */
  /* [any-thread] Hears what the host and its plugins have to say, as important as `log_level` or more. `plugin` is the name
   * of the plugin that speaks, empty for the host itself; both texts are one call long. NULL: nobody is told. It must not
   * call back into this host. */
  void (*log)(void* log_data, int32_t level, crossdock_str plugin, crossdock_str message);
  void* log_data;
  /* Called once, when `log` will not be called any more: the host is destroyed and nothing that came from it is left.
   * If crossdock_host_create fails, it is called before that returns. May be NULL. */
  void (*log_release)(void* log_data);
  int32_t log_level; /* CROSSDOCK_LOG_ERROR to _TRACE; 0: CROSSDOCK_LOG_WARN */
  uint32_t reserved; /* 0 */
} crossdock_host_settings;

/* Looks for plugins; none of their code runs yet. CROSSDOCK_IO, _UNSUPPORTED, _VERSION or _BAD_DATA where a plugin file that
 * was given by its path is missing or refused. */
crossdock_code crossdock_host_create(const crossdock_host_settings* settings, crossdock_host_handle** out,
                                     crossdock_error* err);

/* Gives the handle back. What was made with it stays whole. */
void crossdock_host_destroy(crossdock_host_handle* host);

typedef uint32_t crossdock_candidate_status;
#define CROSSDOCK_CANDIDATE_CHOSEN 0u   /* it is used where its name or one of its formats is asked for */
#define CROSSDOCK_CANDIDATE_REFUSED 1u  /* it failed a check */
#define CROSSDOCK_CANDIDATE_SHADOWED 2u /* another one of its name comes first */

/* A file that may be a plugin, and what became of it. Texts that are not known are empty. `path` is the file's, whatever bytes it
 * has; messages have it with U+FFFD for those that are not UTF-8. */
typedef struct crossdock_candidate {
  size_t struct_size;
  crossdock_str path;
  crossdock_str origin; /* how it was found, in words: "given", "CROSSDOCK_PLUGIN_PATH" */
  crossdock_str name;
  crossdock_str version;
  crossdock_str description;
  crossdock_str formats; /* names, separated by spaces */
  crossdock_candidate_status status;
  uint32_t reserved;
  crossdock_str reason;  /* why it is not used: a name that stays the same, as "abi-version"; empty if chosen */
  crossdock_str message; /* the same in a sentence */
} crossdock_candidate;

typedef struct crossdock_candidates {
  size_t struct_size;
  const crossdock_candidate* candidates; /* in order of precedence */
  size_t n_candidates;
  const crossdock_str* warnings; /* places that could not be looked at */
  size_t n_warnings;
  void (*release)(struct crossdock_candidates*);
  void* private_data;
} crossdock_candidates;

/* Every candidate, also those that were refused. With `load` 1 each chosen one is loaded and makes an instance for a moment,
 * as `crossdock plugins --explain` does, so that what only shows then is told too; with 0 no plugin's code runs. */
crossdock_code crossdock_host_candidates(crossdock_host_handle* host, uint32_t load, crossdock_candidates* out,
                                         crossdock_error* err);

/* Loads the plugin of this name, if it is not loaded yet: otherwise that happens when it is first needed. The error says
 * why it was refused (`details`: "refused: REASON", as in crossdock_candidate), or which plugins there are. */
crossdock_code crossdock_host_load(crossdock_host_handle* host, crossdock_str name, crossdock_error* err);

/* Sums over all plugins and devices since the host was created. */
typedef struct crossdock_ledger {
  size_t struct_size;
  uint64_t live_bytes;   /* in blocks that were not given back */
  uint64_t live_blocks;
  uint64_t cached_bytes; /* kept for later; nobody holds them */
  /* Bytes that were copied, by direction: h is memory that the host reads in place, d is a device's. */
  uint64_t copied_h2d;
  uint64_t copied_d2h;
  uint64_t copied_d2d;
  uint64_t copied_h2h;
} crossdock_ledger;

crossdock_code crossdock_host_ledger(crossdock_host_handle* host, crossdock_ledger* out, crossdock_error* err);

/* What one owner has on one device. */
typedef struct crossdock_leak {
  size_t struct_size;
  crossdock_str account; /* a plugin's name and what it was used for, or "host" */
  crossdock_device device;
  uint64_t bytes;
  uint64_t blocks;  /* that these bytes are in */
  uint64_t streams; /* that were made or adopted and not destroyed */
  uint64_t events;  /* that were recorded and not destroyed */
  uint64_t references; /* to the host, for which a plugin's instance is not destroyed: a row of its own */
} crossdock_leak;

typedef struct crossdock_leaks {
  size_t struct_size;
  const crossdock_leak* leaks;
  size_t n_leaks;
  void (*release)(struct crossdock_leaks*);
  void* private_data;
} crossdock_leaks;

/* Waits until every plugin instance that can end has ended, and lists what is still held. When every session, stream,
 * writer, batch and capsule is gone, these are leaks. Not to be called from inside a callback. */
crossdock_code crossdock_host_settle(crossdock_host_handle* host, crossdock_leaks* out, crossdock_error* err);

/* ---------------------------------------------------------------------------------------------------- session --- */

typedef struct crossdock_session crossdock_session;

/* `validate` says how closely to look at what comes from outside. Without it bytes from files and sources are looked at in
 * full (CROSSDOCK_VALIDATE_FULL), structs from within the process by their layout. */
#define CROSSDOCK_SESSION_VALIDATE 1u

typedef struct crossdock_session_settings {
  size_t struct_size;
  crossdock_device device; /* where results go; all zero: the CPU */
  uint32_t flags;          /* CROSSDOCK_SESSION_... */
  uint32_t validate;       /* CROSSDOCK_VALIDATE_LAYOUT or _FULL, if the flag is set */
  uint64_t byte_budget;    /* bytes that a call should keep in flight at most; 0: no wish */
} crossdock_session_settings;

/* CROSSDOCK_DEVICE where there is no such device. */
crossdock_code crossdock_session_create(crossdock_host_handle* host, const crossdock_session_settings* settings,
                                        crossdock_session** out, crossdock_error* err);

/* Gives the handle back. What was made with it stays whole. */
void crossdock_session_destroy(crossdock_session* session);

/* Stops the session's work, that of its streams and writers too: they fail with CROSSDOCK_CANCELLED soon, and for ever.
 * Also safe in a signal handler. */
void crossdock_session_cancel(crossdock_session* session);

/* ---------------------------------------------------------------------------------------------------- reading --- */

typedef struct crossdock_read_settings {
  size_t struct_size;
  /* A plugin's or a format's name. Empty: recognised by the first bytes, then by the name's ending. For capsules it is
   * needed, and a format's name. */
  crossdock_str format;
  const crossdock_option* options; /* what the format understands */
  size_t n_options;
  /* What capsules hold, for formats that have no schema of their own; may be NULL. */
  const struct ArrowSchema* schema;
  /* [any-thread] Bytes of the input that were read, and the total, 0 if unknown. Called until the stream is released. */
  void (*progress)(void* progress_data, uint64_t bytes_done, uint64_t bytes_total);
  void* progress_data;
} crossdock_read_settings;

/* Reading gives a batch stream. Its `get_next` also takes NULL as the call: of a call only `cancel` is looked at, before
 * the batch; everything else is as the session is set. Batches lie on the session's device: the host moves those of formats
 * that know host memory alone, and capsules' that lie elsewhere. They come without a schema of their own, with their buffers'
 * sizes, and outlive the stream. */

/* A regular file is mapped, anything else (a named pipe, a device) is read in order. Nobody may shorten a mapped file
 * while its stream or its batches live. */
crossdock_code crossdock_session_read_path(crossdock_session* session, crossdock_str path,
                                           const crossdock_read_settings* settings, crossdock_batch_stream* out,
                                           crossdock_error* err);

/* The caller's bytes, used in place: they must not change or move until `release` (may be NULL) is called with
 * `release_data`, once, on any thread: when the last batch that lies in them is gone, or on failure. */
crossdock_code crossdock_session_read_bytes(crossdock_session* session, const void* data, size_t bytes,
                                            void (*release)(void* release_data), void* release_data,
                                            const crossdock_read_settings* settings, crossdock_batch_stream* out,
                                            crossdock_error* err);

/* Takes the source, on failure too; it is released when nothing reads it any more. Where its `bytes` are -1 it is read in
 * order, and what its `read_at` waits for nobody can interrupt but itself. */
crossdock_code crossdock_session_read_source(crossdock_session* session, crossdock_source* source,
                                             const crossdock_read_settings* settings, crossdock_batch_stream* out,
                                             crossdock_error* err);

/* Takes each capsule, on failure too. `settings->format` is needed. */
crossdock_code crossdock_session_read_capsules(crossdock_session* session, crossdock_capsule* capsules, size_t n_capsules,
                                               const crossdock_read_settings* settings, crossdock_batch_stream* out,
                                               crossdock_error* err);

/* ---------------------------------------------------------------------------------------------------- writing --- */

typedef struct crossdock_write_settings {
  size_t struct_size;
  /* A plugin's or a format's name. Empty: by the ending of the path or of the sink's name. For capsules: needed. */
  crossdock_str format;
  const crossdock_option* options; /* what the format understands */
  size_t n_options;
} crossdock_write_settings;

/* Writing gives a writer for batches of `schema` (borrowed for the call), which lie on any device that the host knows: they
 * are moved where the format cannot take them. A batch with a schema of its own must have this one. `write` and `finish`
 * take NULL as the call (as above), and NULL as `out` where the output is bytes. After a `write` that failed, the writer
 * answers nothing but its release: what it wrote is abandoned. */

/* The file appears whole, replacing one that is there, when `finish` succeeds; released before that, the writer leaves
 * nothing behind. What is there and is no regular file (a named pipe, a device) is written directly. */
crossdock_code crossdock_session_write_path(crossdock_session* session, crossdock_str path,
                                            const struct ArrowSchema* schema, const crossdock_write_settings* settings,
                                            crossdock_writer* out, crossdock_error* err);

/* Takes the sink, on failure too; it is released when the writer is, or when `finish` has returned. It has everything when
 * `finish` succeeds, and is to be taken for abandoned otherwise. */
crossdock_code crossdock_session_write_sink(crossdock_session* session, crossdock_sink* sink,
                                            const struct ArrowSchema* schema, const crossdock_write_settings* settings,
                                            crossdock_writer* out, crossdock_error* err);

/* `write` and `finish` give the capsules. `settings->format` is needed. */
crossdock_code crossdock_session_write_capsules(crossdock_session* session, const struct ArrowSchema* schema,
                                                const crossdock_write_settings* settings, crossdock_writer* out,
                                                crossdock_error* err);

/* What would happen to each column of batches of `schema` (borrowed) that lie on `from`, if they were written as
 * `settings->format`, which is needed and may be one of bytes or of capsules. Nothing is written. */
crossdock_code crossdock_session_plan(crossdock_session* session, const struct ArrowSchema* schema, crossdock_device from,
                                      const crossdock_write_settings* settings, crossdock_plan* out,
                                      crossdock_error* err);

/* ------------------------------------------------------------------------------------------------- conversion --- */

typedef struct crossdock_convert_settings {
  size_t struct_size;
  crossdock_str from; /* a plugin's or a format's name; empty: recognised */
  crossdock_str to;   /* the same; empty: by the output's ending */
  /* Plugins or formats: every batch goes out through each as capsules and back in, in this order. */
  const crossdock_str* via;
  size_t n_via;
  const crossdock_str* columns; /* only these, in this order; n_columns 0: all */
  size_t n_columns;
  const crossdock_option* read_options;
  size_t n_read_options;
  const crossdock_option* write_options;
  size_t n_write_options;
  /* [any-thread] Bytes of the input that were read, and the total, 0 if unknown. Called until the call returns. */
  void (*progress)(void* progress_data, uint64_t bytes_done, uint64_t bytes_total);
  void* progress_data;
} crossdock_convert_settings;

/* One stage of a conversion, in the order in which batches pass. */
typedef struct crossdock_stage {
  size_t struct_size;
  crossdock_str kind;   /* "read", "via", "move" (between devices, by the host), "write" */
  crossdock_str plugin; /* "host" for a move */
  crossdock_str format; /* the device's name for a move */
  uint64_t rows;        /* that came out of it */
  uint64_t batches;
  uint64_t bytes; /* of the buffers that came out of it; of a write, bytes of the output */
  uint64_t time_ns;
  uint64_t copied_h2d; /* bytes that the ledger saw copied for it, as in crossdock_ledger */
  uint64_t copied_d2h;
  uint64_t copied_d2d;
  uint64_t copied_h2h;
} crossdock_stage;

typedef struct crossdock_report {
  size_t struct_size;
  uint64_t rows;    /* that were written */
  uint64_t batches; /* that were written */
  uint64_t bytes;   /* of the output */
  uint64_t copied;  /* bytes, in all stages and directions */
  uint64_t time_ns; /* from the first look at the input to the output's appearance */
  const crossdock_stage* stages;
  size_t n_stages;
  void (*release)(struct crossdock_report*);
  void* private_data;
} crossdock_report;

/* From one path to another. The output appears whole or not at all. `out` may be NULL. */
crossdock_code crossdock_session_convert(crossdock_session* session, crossdock_str input, crossdock_str output,
                                         const crossdock_convert_settings* settings, crossdock_report* out,
                                         crossdock_error* err);

#ifdef __cplusplus
}
#endif

#endif /* CROSSDOCK_HOST_H */
