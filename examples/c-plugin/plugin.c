/* The plugin `csv`: its exported symbols, its formats and its options. */
#include "csv.h"

#ifndef CSV_VERSION
#define CSV_VERSION "0.1.0"
#endif
#if defined(__clang__)
#define CSV_TOOLCHAIN __VERSION__
#else
#define CSV_TOOLCHAIN "gcc " __VERSION__
#endif

/* ---------------------------------------------------------------------------------- options --- */

#define INFO(key, description) {sizeof(crossdock_option_info), TEXT(key), TEXT(description)}

enum { N_WRITE_OPTIONS = 1, N_READ_OPTIONS = 2 };

/* Formats for writing accept only the first options of this list. */
static const crossdock_option_info OPTIONS[N_READ_OPTIONS] = {
    INFO("delimiter", "the character between fields: one of ,;:| or tab [default: ,]"),
    INFO("types", "a type for each column, separated by commas: " CSV_TYPE_NAMES " [default: utf8 for all]"),
};

static bool set_option(csv_options* out, crossdock_str key, crossdock_str value) {
  if (equal(key, "types")) out->types = value;
  else out->delimiter = equal(value, "tab") ? '\t' : value.bytes == 1 ? value.data[0] : '\0';
  return value.bytes > 0 && out->delimiter && strchr("\t,;:|", out->delimiter);
}

bool csv_parse_options(task* t, csv_options* out, bool reading, crossdock_str format,
                       const crossdock_option* options, size_t n_options) {
  const size_t n_options_known = reading ? N_READ_OPTIONS : N_WRITE_OPTIONS;
  *out = (csv_options){.delimiter = ','};
  if (!equal(format, "csv"))
    return fail(t, CROSSDOCK_INVALID_ARGUMENT, "expected the format csv, got '%.*s'",
                    ABBREVIATED(format.data, format.bytes));
  for (size_t i = 0; i < n_options; i++) {
    const crossdock_str key = options[i].key, value = options[i].value;
    size_t known = 0;
    while (known < n_options_known && !equal(key, OPTIONS[known].key.data)) known++;
    if (known == n_options_known)
      return fail(t, CROSSDOCK_INVALID_ARGUMENT, "%s csv has no option '%.*s'; it has delimiter%s",
                      reading ? "reading" : "writing", ABBREVIATED(key.data, key.bytes), reading ? " and types" : "");
    if (!set_option(out, key, value))
      return fail(t, CROSSDOCK_INVALID_ARGUMENT, "option %s: got '%.*s', expected %s", OPTIONS[known].key.data,
                      ABBREVIATED(value.data, value.bytes), OPTIONS[known].description.data);
  }
  return true;
}

/* ------------------------------------------------------------------------------- the plugin --- */

static const crossdock_str EXTENSIONS[] = {TEXT(".csv")};
static const ArrowDeviceType DEVICE_TYPES[] = {ARROW_DEVICE_CPU};

#define FORMAT(n)                                                                                          \
  {.struct_size = sizeof(crossdock_format), .name = TEXT("csv"), .flags = CROSSDOCK_FORMAT_BYTES,      \
   .description = TEXT("comma-separated text (RFC 4180): columns of " CSV_TYPE_NAMES),                 \
   .extensions = EXTENSIONS, .n_extensions = 1, .device_types = DEVICE_TYPES, .n_device_types = 1,                  \
   .options = OPTIONS, .n_options = n}
static const crossdock_format READ_FORMAT = FORMAT(N_READ_OPTIONS), WRITE_FORMAT = FORMAT(N_WRITE_OPTIONS);

static crossdock_code read_formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out,
                                   crossdock_error* err) {
  (void)instance, (void)err;
  *out = &READ_FORMAT;
  *n_out = 1;
  return CROSSDOCK_OK;
}

static crossdock_code write_formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out,
                                      crossdock_error* err) {
  (void)instance, (void)err;
  *out = &WRITE_FORMAT;
  *n_out = 1;
  return CROSSDOCK_OK;
}

static const crossdock_importer IMPORTER = {
    .struct_size = sizeof(crossdock_importer), .formats = read_formats, .open = csv_open};
static const crossdock_exporter EXPORTER = {sizeof(crossdock_exporter), write_formats, csv_plan, csv_begin};

static void destroy(crossdock_instance* instance) {
  if (instance->c_locale) freelocale(instance->c_locale);
  free(instance);
}

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  const crossdock_memory* memory = host->get_interface(host, CROSSDOCK_HOST_MEMORY_ID);
  const crossdock_host_session* session = host->get_interface(host, CROSSDOCK_HOST_SESSION_ID);
  task t = {.err = err};
  crossdock_instance* instance = calloc(1, sizeof *instance);
  if (!instance) return fail_no_memory(&t), t.code;
  instance->host = host;
  instance->memory = memory;
  if (session && CROSSDOCK_HAS(session, memory_limit)) instance->memory_limit = session->memory_limit;
  instance->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!instance->c_locale) fail_no_memory(&t);
  else if (!memory || !CROSSDOCK_HAS(memory, host_address))
    fail(&t, CROSSDOCK_UNSUPPORTED, "the host does not offer " CROSSDOCK_HOST_MEMORY_ID);
  if (t.code == CROSSDOCK_OK) *out = instance;
  else destroy(instance);
  return t.code;
}

static const void* get_interface(crossdock_instance* instance, const char* id) {
  (void)instance;
  if (strcmp(id, CROSSDOCK_IMPORTER_ID) == 0) return &IMPORTER;
  if (strcmp(id, CROSSDOCK_EXPORTER_ID) == 0) return &EXPORTER;
  if (strcmp(id, CROSSDOCK_ENCODING_ID) == 0) return &scaled_encoding;
  return NULL;
}

CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {
    .magic = CROSSDOCK_PLUGIN_MAGIC,
    .struct_size = sizeof(crossdock_plugin_entry),
    .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR,
    .create = create,
    .destroy = destroy,
    .get_interface = get_interface,
};

CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {
    .magic = CROSSDOCK_META_MAGIC,
    .struct_size = sizeof(crossdock_plugin_meta),
    .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR,
    .n_sizes = CROSSDOCK_META_N_SIZES,
    .name = "csv",
    .version = CSV_VERSION,
    .api_range = CROSSDOCK_API_RANGE,
    .licence = "Apache-2.0",
    .toolchain = CSV_TOOLCHAIN,
    .panic = "none",
    .interfaces = CROSSDOCK_IMPORTER_ID " " CROSSDOCK_EXPORTER_ID " " CROSSDOCK_ENCODING_ID,
    .formats = "csv",
    .encodings = SCALED_ID,
    .required = CROSSDOCK_HOST_MEMORY_ID,
    .description = "comma-separated text (read and write), and " SCALED_ID,
    .sizes = CROSSDOCK_META_SIZES_INIT,
};
