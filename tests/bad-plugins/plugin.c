/* The two symbols, the lists of formats, and the entry points of the interfaces. */
#include "base.h"

#define DEVICE "base-device"
#define ROWS "base-rows"
#define TENSOR "base-tensor"
#define IPC "base-ipc"
#define PARTS "base-parts"

static const crossdock_str CAPSULES[] = {TEXT("arrow_schema"), TEXT("arrow_device_array")};
static const crossdock_str TENSORS[] = {TEXT("dltensor")};
static const crossdock_str EXTENSIONS[] = {TEXT(".baserows")};
static const crossdock_magic MAGICS[] = {{0, "BASEROWS", 8}};
static const crossdock_magic CONTINUED[] = {{0, "\xff\xff\xff\xff", 4}};
static const ArrowDeviceType DEVICES[] = {ARROW_DEVICE_CPU};

#define DEVICE_FORMAT                                                                                                    \
  {.struct_size = sizeof(crossdock_format), .name = TEXT(DEVICE), .description = TEXT("arrays as they are"),             \
   .flags = CROSSDOCK_FORMAT_CAPSULES, .capsules = CAPSULES, .n_capsules = 2, .device_types = DEVICES, .n_device_types = 1}
#define ROWS_FORMAT_ON(n_devices)                                                                                        \
  {.struct_size = sizeof(crossdock_format), .name = TEXT(ROWS), .description = TEXT("one column of 64-bit integers"),    \
   .flags = CROSSDOCK_FORMAT_BYTES | CROSSDOCK_FORMAT_FILTERS | CROSSDOCK_FORMAT_DEVICE_ROWS, .magics = MAGICS,           \
   .n_magics = 1, .extensions = EXTENSIONS, .n_extensions = 1,                                                           \
   .device_types = DEVICES, .n_device_types = n_devices}
#define ROWS_FORMAT ROWS_FORMAT_ON(1)

#define TENSOR_FORMAT                                                                                                    \
  {.struct_size = sizeof(crossdock_format), .name = TEXT(TENSOR), .description = TEXT("one dimension of 64-bit integers"), \
   .flags = CROSSDOCK_FORMAT_CAPSULES, .capsules = TENSORS, .n_capsules = 1, .device_types = DEVICES, .n_device_types = 1}

#define IPC_FORMAT                                                                                                       \
  {.struct_size = sizeof(crossdock_format), .name = TEXT(IPC), .description = TEXT("one column of 64-bit integers"),     \
   .flags = CROSSDOCK_FORMAT_BYTES, .magics = CONTINUED, .n_magics = 1, .device_types = DEVICES, .n_device_types = 1}

/* A format of several sources, of which no input is valid. */
#define PARTS_FORMAT                                                                                                     \
  {.struct_size = sizeof(crossdock_format), .name = TEXT(PARTS), .description = TEXT("nothing"),                         \
   .flags = CROSSDOCK_FORMAT_BYTES | CROSSDOCK_FORMAT_SEVERAL, .device_types = DEVICES, .n_device_types = 1}

static const crossdock_format FORMATS[] = {DEVICE_FORMAT, ROWS_FORMAT, TENSOR_FORMAT, IPC_FORMAT, PARTS_FORMAT};
static const crossdock_format ANYWHERE[] = {DEVICE_FORMAT, ROWS_FORMAT_ON(0), TENSOR_FORMAT, IPC_FORMAT, PARTS_FORMAT};
static const crossdock_format TURNED[] = {ROWS_FORMAT, DEVICE_FORMAT, TENSOR_FORMAT, IPC_FORMAT, PARTS_FORMAT};
static const crossdock_format TWICE[] = {DEVICE_FORMAT, ROWS_FORMAT, DEVICE_FORMAT, TENSOR_FORMAT, IPC_FORMAT, PARTS_FORMAT};
static const crossdock_format MANGLED[] = {
    DEVICE_FORMAT, ROWS_FORMAT,
    {.struct_size = sizeof(crossdock_format), .name = TEXT("\xff\xfe"), .flags = CROSSDOCK_FORMAT_BYTES}};

/* The first `n` formats of the list. */
static crossdock_code list(const crossdock_format** out, size_t* n_out, size_t n, int is_anywhere) {
  static int n_calls;
  *out = HAS(FORMAT_TWICE) ? TWICE : HAS(NAME_NOT_UTF8) ? MANGLED : is_anywhere ? ANYWHERE : FORMATS;
  if (HAS(LIST_CHANGES) && n_calls++ % 3 == 2) *out = TURNED;
  *n_out = HAS(FORMAT_TWICE) ? n + 1 : HAS(NAME_NOT_UTF8) ? 3 : n;
  return CROSSDOCK_OK;
}

static crossdock_code read_formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out,
                                   crossdock_error* err) {
  (void)instance, (void)err;
  return list(out, n_out, 5, HAS(IMPORTS_ANYWHERE));
}

/* Lists only the first two formats, because the exporter writes no others. */
static crossdock_code written_formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out,
                                      crossdock_error* err) {
  (void)instance, (void)err;
  return list(out, n_out, 2, HAS(EXPORTS_ANYWHERE));
}

/* ---------------------------------------------------------------------------------- errors --- */

static void release_error(crossdock_error* err) {
  free(err->private_data);
  err->release = NULL;
}

crossdock_code base_fail(crossdock_error* err, crossdock_code code, const char* message) {
  char* copy;
  if (HAS(NEEDS_ERROR)) err->code = code;
  if (!err) return code;
  err->code = HAS(OTHER_CODE) ? CROSSDOCK_INTERNAL : code;
  if (HAS(ERROR_OVERRUN)) memset(err + 1, 0, 16);
  if (HAS(NO_MESSAGE)) return code;
  if (HAS(MESSAGE_NOT_UTF8)) message = "\xc3\x28 happened";
  err->message = "base: no memory for a message";
  copy = malloc(strlen(message) + 1);
  if (!copy) return code;
  err->message = strcpy(copy, message);
  if (HAS(DANGLING_MESSAGE)) {
    free(copy);
    return code;
  }
  err->private_data = copy;
  err->release = release_error;
  return code;
}

int base_is(crossdock_str text, const char* expected) {
  return text.bytes == strlen(expected) && memcmp(text.data, expected, text.bytes) == 0;
}

crossdock_code base_no_options(const char* format, size_t n_options, crossdock_error* err) {
  (void)format;
  if (n_options == 0 || HAS(ANY_OPTION)) return CROSSDOCK_OK;
  return base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: expected no options");
}

static crossdock_code base_check_call(const crossdock_call* call, crossdock_error* err) {
  crossdock_code code = CROSSDOCK_CHECK_CALL(call);
  if (code == CROSSDOCK_INVALID_ARGUMENT && HAS(ANY_RESERVED_IN_CALL)) code = CROSSDOCK_OK;
  if (code == CROSSDOCK_UNSUPPORTED && HAS(ANY_VALIDATION)) code = CROSSDOCK_OK;
  return code == CROSSDOCK_OK ? code : base_fail(err, code, "base: the call has a reserved field or an unknown setting");
}

crossdock_code base_cancelled(const crossdock_call* call, crossdock_error* err) {
  return CROSSDOCK_IS_CANCELLED(call) ? base_fail(err, CROSSDOCK_CANCELLED, "base: cancelled") : CROSSDOCK_OK;
}

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;

void base_lock(int is_held) {
  if (is_held) pthread_mutex_lock(&shared);
}

void base_unlock(int is_held) {
  if (is_held) pthread_mutex_unlock(&shared);
}

/* -------------------------------------------------------------------------------- importer --- */

crossdock_code base_open(crossdock_instance* instance, const crossdock_call* call, const crossdock_read_request* request,
                         crossdock_batch_stream* out, crossdock_error* err) {
  const crossdock_input* input = request->input;
  crossdock_source source = {.struct_size = sizeof source};
  crossdock_capsules capsules = {.struct_size = sizeof capsules};
  crossdock_code code = HAS(ANY_OPTION_READING) ? CROSSDOCK_OK : base_no_options("", request->n_options, err);
  if (code == CROSSDOCK_OK) code = base_check_call(call, err);
  if (code == CROSSDOCK_OK && request->reserved != 0 && !HAS(ANY_RESERVED_IN_REQUEST))
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: a reserved field of the request is not 0");
  if (input->sources && !HAS(INPUT_LEFT)) {
    CROSSDOCK_MOVE(&source, input->sources);
  }
  if (input->capsules && !HAS(INPUT_LEFT)) {
    CROSSDOCK_MOVE(&capsules, input->capsules);
  }
  for (size_t i = 1; i < input->n_sources && !HAS(SECOND_SOURCE_LEFT); i++) {
    crossdock_source other;
    CROSSDOCK_MOVE(&other, CROSSDOCK_AT(input->sources, i));
    other.release(&other);
  }
  if (HAS(OUT_ON_FAILURE)) out->private_data = instance;
  if (HAS(THREAD_BOUND) && !thrd_equal(instance->thread, thrd_current()))
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: the instance belongs to another thread");
  if (code == CROSSDOCK_OK && (base_is(request->format, ROWS) || base_is(request->format, DEVICE) || base_is(request->format, TENSOR) || base_is(request->format, IPC) ||
                                HAS(ANY_FORMAT))) {
    if (HAS(INPUT_LEFT) && input->sources) {
      CROSSDOCK_MOVE(&source, input->sources);
    }
    if (HAS(INPUT_LEFT) && input->capsules) {
      CROSSDOCK_MOVE(&capsules, input->capsules);
    }
    if (capsules.release && base_is(request->format, TENSOR)) return base_tensor_open(&capsules, request->schema, out, err);
    if (source.release && base_is(request->format, IPC) && request->fragment &&
        !base_is((crossdock_str){request->fragment, request->fragment_bytes}, "all")) {
      source.release(&source);
      return base_fail(err, CROSSDOCK_BAD_DATA, "base-ipc: an unknown token");
    }
    if (source.release && base_is(request->format, IPC)) return base_ipc_open(&source, request->schema, out, err);
    if (source.release && !base_is(request->format, DEVICE)) return base_rows_open(instance, &source, request, out, err);
    if (capsules.release && !base_is(request->format, ROWS)) return base_device_open(instance, &capsules, request->schema, out, err);
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: the format needs another kind of input");
  } else if (code == CROSSDOCK_OK && base_is(request->format, PARTS)) {
    code = base_fail(err, CROSSDOCK_BAD_DATA, "base: no input of base-parts is valid");
  } else if (code == CROSSDOCK_OK) {
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: an unknown format");
  }
  if (source.release) source.release(&source);
  if (capsules.release) capsules.release(&capsules);
  return code;
}

/* -------------------------------------------------------------------------------- exporter --- */

static void release_plan(crossdock_plan* plan) {
  free(plan->private_data);
  plan->release = NULL;
}

static crossdock_code plan(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                           const struct ArrowSchema* schema, crossdock_device from, const crossdock_option* options,
                           size_t n_options, crossdock_plan* out, crossdock_error* err) {
  static const crossdock_str UNCHANGED = TEXT("passed on unchanged"), CAN = TEXT("written row by row"),
                             CANNOT = TEXT("base-rows holds one column of Int64");
  const int is_device = base_is(format, DEVICE) || HAS(ANY_FORMAT);
  const int holds = base_rows_hold(schema) || HAS(PLAN_PROMISES);
  size_t n = (size_t)schema->n_children, bytes = 1;
  crossdock_column_plan* columns;
  crossdock_code code;
  char* names;
  (void)instance, (void)from, (void)options;
  if (!is_device && !base_is(format, ROWS)) return base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: an unknown format");
  if (base_no_options("", n_options, err) != CROSSDOCK_OK) return CROSSDOCK_INVALID_ARGUMENT;
  code = base_check_call(call, err);
  if (code != CROSSDOCK_OK) return code;
  for (size_t i = 0; i < n; i++) bytes += sizeof *columns + strlen(schema->children[i]->name) + 1;
  columns = calloc(1, bytes);
  if (!columns) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base: no memory for a plan");
  names = (char*)(columns + n);
  for (size_t i = 0; i < n; i++) {
    columns[i].struct_size = sizeof *columns;
    columns[i].to = BASE_CPU;
    columns[i].verdict = is_device ? CROSSDOCK_ZERO_COPY : holds ? CROSSDOCK_CONVERTED : CROSSDOCK_CANNOT;
    columns[i].reason = is_device ? UNCHANGED : holds ? CAN : CANNOT;
    columns[i].name = (crossdock_str){names, strlen(schema->children[i]->name)};
    names = strcpy(names, schema->children[i]->name) + columns[i].name.bytes + 1;
  }
  out->columns = columns;
  out->n_columns = n - (HAS(PLAN_FORGETS_COLUMN) && n > 1);
  out->release = release_plan;
  out->private_data = columns;
  return CROSSDOCK_OK;
}

static crossdock_code begin(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                            const struct ArrowSchema* schema, const crossdock_option* options, size_t n_options,
                            crossdock_sink* sink, crossdock_writer* out, crossdock_error* err) {
  crossdock_sink own = {.struct_size = sizeof own};
  crossdock_code code = base_no_options("", n_options, err);
  (void)options;
  if (code == CROSSDOCK_OK) code = base_check_call(call, err);
  if (sink) {
    CROSSDOCK_MOVE(&own, sink);
  }
  if (code == CROSSDOCK_OK && own.release && (base_is(format, ROWS) || HAS(ANY_FORMAT)))
    return base_rows_begin(instance, schema, &own, out, err);
  if (code == CROSSDOCK_OK && !own.release && (base_is(format, DEVICE) || HAS(ANY_FORMAT)))
    return base_device_begin(instance, schema, out, err);
  if (own.release && !HAS(SINK_LOST)) own.release(&own);
  return code != CROSSDOCK_OK ? code : base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: the format is unknown or does not support this kind of output");
}

static const crossdock_importer IMPORTER = {sizeof IMPORTER, read_formats, HAS(NO_OPEN) ? NULL : base_open, base_fragments};
static const crossdock_exporter EXPORTER = {sizeof EXPORTER, written_formats, plan, begin};

/* ------------------------------------------------------------------------------- instances --- */

static const crossdock_memory* first_memory;
_Atomic int base_n_instances;

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  const crossdock_memory* memory = host->get_interface(host, CROSSDOCK_HOST_MEMORY_ID);
  crossdock_stream* stream;
  crossdock_instance* instance;
  crossdock_code code;
  if (HAS(CREATE_KEEPS_HOST)) host->retain(host);
  if (HAS(EXACT_HOST) && host->struct_size != sizeof *host)
    return base_fail(err, CROSSDOCK_WRONG_VERSION, "base: the host has an unexpected struct_size");
  if (!memory) {
    if (HAS(BARE_CREATE_KEEPS_HOST)) host->retain(host);
    return base_fail(err, CROSSDOCK_UNSUPPORTED, "base: the host offers no memory");
  }
  code = memory->stream_default(memory, BASE_CPU, &stream, err);
  if (code != CROSSDOCK_OK) {
    if (HAS(FAILING_CREATE_KEEPS_HOST)) host->retain(host);
    return code;
  }
  instance = malloc(sizeof *instance);
  if (instance) instance->alive = calloc(1, sizeof *instance->alive);
  if (!instance || !instance->alive) {
    free(instance);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base: no memory for an instance");
  }
  if (!first_memory) first_memory = memory;
  instance->host = host;
  instance->thread = thrd_current();
  instance->memory = HAS(GLOBAL_HOST) ? first_memory : memory;
  base_n_instances++;
  *out = instance;
  return CROSSDOCK_OK;
}

static void destroy(crossdock_instance* instance) {
  base_n_instances--;
  free(instance->alive);
  free(instance);
}

static const void* get_interface(crossdock_instance* instance, const char* id) {
  (void)instance;
  if (strcmp(id, CROSSDOCK_IMPORTER_ID) == 0) return HAS(DECODES_ALONE) ? NULL : &IMPORTER;
  if (strcmp(id, CROSSDOCK_EXPORTER_ID) == 0) return HAS(DECODES_ALONE) ? NULL : &EXPORTER;
  if (strcmp(id, CROSSDOCK_ENCODING_ID) == 0) return &BASE_ENCODING;
  if (strcmp(id, CROSSDOCK_ENCODER_ID) == 0) return HAS(DECODES_ALONE) ? NULL : &BASE_ENCODER;
  if (strcmp(id, CROSSDOCK_OPENER_ID) == 0) return HAS(DECODES_ALONE) ? NULL : &BASE_OPENER;
  return HAS(ANSWERS_ANY_INTERFACE) ? &IMPORTER : NULL;
}

#ifdef BUG_NO_ENTRY
#define crossdock_plugin_v1 crossdock_plugin_by_another_name
#endif
#ifdef BUG_NO_METADATA
#define crossdock_plugin_meta_v1 crossdock_plugin_meta_by_another_name
#endif
CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {
    .magic = HAS(ENTRY_MAGIC) ? 1 : CROSSDOCK_PLUGIN_MAGIC,
    .struct_size = HAS(ENTRY_SIZE) ? 16 : sizeof(crossdock_plugin_entry),
    .abi_major = CROSSDOCK_ABI_MAJOR, .abi_minor = CROSSDOCK_ABI_MINOR, .create = create,
    .destroy = HAS(NO_DESTROY) ? NULL : destroy, .get_interface = get_interface};

#ifdef BUG_META_SIZES
#define SIZES {1, 2, 3}
#else
#define SIZES CROSSDOCK_META_SIZES_INIT
#endif
CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {
    .magic = CROSSDOCK_META_MAGIC, .struct_size = sizeof(crossdock_plugin_meta), .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR, .n_sizes = CROSSDOCK_META_N_SIZES, .sizes = SIZES, .name = "base", .version = "0.1.0",
    .api_range = CROSSDOCK_API_RANGE, .licence = "Apache-2.0", .toolchain = "cc", .panic = "none",
#ifdef BUG_DECODES_ALONE
    .interfaces = CROSSDOCK_ENCODING_ID,
#else
    .interfaces = CROSSDOCK_IMPORTER_ID " " CROSSDOCK_EXPORTER_ID " " CROSSDOCK_ENCODING_ID " " CROSSDOCK_ENCODER_ID
                  " " CROSSDOCK_OPENER_ID,
    /* BUG_SCHEME_IN_CAPITALS changes BASE_SCHEME. */
    .schemes = BASE_SCHEME,
#endif
#ifdef BUG_DECODES_ALONE
    .formats = "",
#elif defined(BUG_METADATA_OUT_OF_DATE)
    .formats = DEVICE,
#else
    .formats = DEVICE " " ROWS " " TENSOR " " IPC " " PARTS,
#endif
#ifndef BUG_NEEDS_UNDECLARED_INTERFACE
    .required = CROSSDOCK_HOST_MEMORY_ID,
#endif
    .encodings = "base.reference", .description = "keeps every rule, unless it is built not to"};
