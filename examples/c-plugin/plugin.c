/* The plugin `csv`: what the host sees of it, and its options. */
#include "csv.h"

#ifndef CSV_VERSION
#define CSV_VERSION "0.1.0"
#endif
#if defined(__clang__)
#define CSV_TOOLCHAIN __VERSION__
#else
#define CSV_TOOLCHAIN "gcc " __VERSION__
#endif

/* ------------------------------------------------------------------------------------------------------ options --- */

#define INFO(key, description) {sizeof(crossdock_option_info), CSV_TEXT(key), CSV_TEXT(description)}

enum { N_WRITTEN = 2, N_READ = 3 };

/* The first are those of writing. */
static const crossdock_option_info OPTIONS[N_READ] = {
    INFO("header", "true: the first record holds the columns' names; false: there is none [default: true]"),
    INFO("delimiter", "what stands between fields: one of ,;:| or tab [default: ,]"),
    INFO("types", "a type for each column, with commas between them: " CSV_TYPE_NAMES " [default: utf8 for all]"),
};

static bool take_option(csv_options* out, crossdock_str key, crossdock_str value) {
  if (csv_is(key, "header")) {
    out->header = csv_is(value, "true");
    return out->header || csv_is(value, "false");
  }
  if (csv_is(key, "delimiter")) {
    out->delimiter = csv_is(value, "tab") ? '\t' : value.bytes == 1 ? value.data[0] : '\0';
    return out->delimiter && strchr("\t,;:|", out->delimiter);
  }
  out->types = value;
  return value.bytes > 0;
}

crossdock_code csv_read_options(csv_options* out, bool reading, crossdock_str format, const crossdock_option* options,
                                size_t n_options, crossdock_error* err) {
  const size_t n_known = reading ? N_READ : N_WRITTEN;
  *out = (csv_options){.header = true, .delimiter = ','};
  if (!csv_is(format, "csv"))
    return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "expected the format csv, got '%.*s'",
                    CSV_SHOWN(format.data, format.bytes));
  for (size_t i = 0; i < n_options; i++) {
    const crossdock_str key = options[i].key, value = options[i].value;
    size_t known = 0;
    while (known < n_known && !csv_is(key, OPTIONS[known].key.data)) known++;
    if (known == n_known)
      return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "%s csv has no option '%.*s'; it has header, delimiter%s",
                      reading ? "reading" : "writing", CSV_SHOWN(key.data, key.bytes), reading ? " and types" : "");
    if (!take_option(out, key, value))
      return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "option %s: got '%.*s', expected %s", OPTIONS[known].key.data,
                      CSV_SHOWN(value.data, value.bytes), OPTIONS[known].description.data);
  }
  return CROSSDOCK_OK;
}

/* --------------------------------------------------------------------------------------------------- the plugin --- */

static const crossdock_str ENDINGS[] = {CSV_TEXT(".csv")};
static const ArrowDeviceType DEVICE_TYPES[] = {ARROW_DEVICE_CPU};

#define FORMAT(n)                                                                                          \
  {.struct_size = sizeof(crossdock_format), .name = CSV_TEXT("csv"), .flags = CROSSDOCK_FORMAT_BYTES,      \
   .description = CSV_TEXT("comma-separated text (RFC 4180): columns of " CSV_TYPE_NAMES),                 \
   .endings = ENDINGS, .n_endings = 1, .device_types = DEVICE_TYPES, .n_device_types = 1,                  \
   .options = OPTIONS, .n_options = n}
static const crossdock_format READ = FORMAT(N_READ), WRITTEN = FORMAT(N_WRITTEN);

static crossdock_code read_formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out,
                                   crossdock_error* err) {
  (void)instance, (void)err;
  *out = &READ;
  *n_out = 1;
  return CROSSDOCK_OK;
}

static crossdock_code written_formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out,
                                      crossdock_error* err) {
  (void)instance, (void)err;
  *out = &WRITTEN;
  *n_out = 1;
  return CROSSDOCK_OK;
}

static const crossdock_importer IMPORTER = {sizeof(crossdock_importer), read_formats, csv_open};
static const crossdock_exporter EXPORTER = {sizeof(crossdock_exporter), written_formats, csv_plan, csv_begin};

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  const crossdock_memory* memory = host->get_interface(host, CROSSDOCK_HOST_MEMORY_ID);
  const crossdock_host_session* session = host->get_interface(host, CROSSDOCK_HOST_SESSION_ID);
  crossdock_instance* instance;
  if (!memory || !CROSSDOCK_HAS(memory, host_address))
    return csv_fail(err, CROSSDOCK_UNSUPPORTED, "the host does not offer " CROSSDOCK_HOST_MEMORY_ID);
  instance = calloc(1, sizeof *instance);
  if (!instance) return csv_no_memory(err);
  instance->host = host;
  instance->memory = memory;
  if (session && CROSSDOCK_HAS(session, memory_limit)) instance->memory_limit = session->memory_limit;
  instance->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!instance->c_locale) {
    free(instance);
    return csv_no_memory(err);
  }
  *out = instance;
  return CROSSDOCK_OK;
}

static void destroy(crossdock_instance* instance) {
  freelocale(instance->c_locale);
  free(instance);
}

static const void* get_interface(crossdock_instance* instance, const char* id) {
  (void)instance;
  if (strcmp(id, CROSSDOCK_IMPORTER_ID) == 0) return &IMPORTER;
  if (strcmp(id, CROSSDOCK_EXPORTER_ID) == 0) return &EXPORTER;
  if (strcmp(id, CROSSDOCK_ENCODING_ID) == 0) return &csv_scaled;
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
    .encodings = CSV_SCALED_ID,
    .description = "comma-separated text, both ways, and " CSV_SCALED_ID,
    .sizes = CROSSDOCK_META_SIZES_INIT,
};
