/* The plugin `csv`: what the host sees of it. */
#include "alloc.h"
#include "error.h"
#include "instance.h"
#include "options.h"
#include "read.h"
#include "scaled.h"
#include "text.h"
#include "write.h"

#ifndef CSV_VERSION
#define CSV_VERSION "0.1.0"
#endif
#if defined(__clang__)
#define CSV_TOOLCHAIN __VERSION__
#else
#define CSV_TOOLCHAIN "gcc " __VERSION__
#endif

/* Constant, so that all instances may share them. */
static const crossdock_str ENDINGS[] = {CSV_TEXT(".csv")};
static const ArrowDeviceType DEVICE_TYPES[] = {ARROW_DEVICE_CPU};

static crossdock_code formats(bool reading, const crossdock_format** out, size_t* n_out) {
  static crossdock_format const READ[] = {{
      .struct_size = sizeof(crossdock_format),
      .name = CSV_TEXT("csv"),
      .description = CSV_TEXT("comma-separated text with quotes (RFC 4180): flat columns, types given or inferred"),
      .flags = CROSSDOCK_FORMAT_BYTES,
      .endings = ENDINGS,
      .n_endings = 1,
      .device_types = DEVICE_TYPES,
      .n_device_types = 1,
      .options = csv_read_options,
      .n_options = CSV_N_READ_OPTIONS,
  }};
  static crossdock_format const WRITE[] = {{
      .struct_size = sizeof(crossdock_format),
      .name = CSV_TEXT("csv"),
      .description = CSV_TEXT("comma-separated text with quotes (RFC 4180): flat columns and dictionaries of them"),
      .flags = CROSSDOCK_FORMAT_BYTES,
      .endings = ENDINGS,
      .n_endings = 1,
      .device_types = DEVICE_TYPES,
      .n_device_types = 1,
      .options = csv_write_options,
      .n_options = CSV_N_WRITE_OPTIONS,
  }};
  *out = reading ? READ : WRITE;
  *n_out = 1;
  return CROSSDOCK_OK;
}

static crossdock_code importer_formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out,
                                       crossdock_error* err) {
  (void)instance, (void)err;
  return formats(true, out, n_out);
}

static crossdock_code exporter_formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out,
                                       crossdock_error* err) {
  (void)instance, (void)err;
  return formats(false, out, n_out);
}

static const crossdock_importer IMPORTER = {sizeof(crossdock_importer), importer_formats, csv_read_open};
static const crossdock_exporter EXPORTER = {sizeof(crossdock_exporter), exporter_formats, csv_write_plan, csv_write_begin};

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  const crossdock_memory* memory = host->get_interface(host, CROSSDOCK_HOST_MEMORY_ID);
  const crossdock_host_session* session = host->get_interface(host, CROSSDOCK_HOST_SESSION_ID);
  crossdock_instance* instance;
  if (!memory || !CROSSDOCK_HAS(memory, host_address))
    return csv_fail(err, CROSSDOCK_UNSUPPORTED, "the host does not offer " CROSSDOCK_HOST_MEMORY_ID ", which holds the text");
  instance = csv_zeroed(1, sizeof *instance);
  if (!instance) return csv_no_memory(err);
  instance->host = host;
  instance->memory = memory;
  if (session && CROSSDOCK_HAS(session, memory_limit)) instance->memory_limit = session->memory_limit;
  instance->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!instance->c_locale) {
    CSV_FREE(instance);
    return csv_no_memory(err);
  }
  *out = instance;
  return CROSSDOCK_OK;
}

static void destroy(crossdock_instance* instance) {
  freelocale(instance->c_locale);
  CSV_FREE(instance);
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
