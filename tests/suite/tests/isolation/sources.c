/* A plugin whose format `sources` is read from several sources at once. `open` fails with a
 * description of the sources: for each its name, length, version, and first bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crossdock.h"

#define TEXT(literal) {literal, sizeof(literal) - 1}

struct crossdock_instance {
  const crossdock_host* host;
};

static void release_error(crossdock_error* err) {
  free(err->private_data);
  err->release = NULL;
}

static crossdock_code describe(crossdock_instance* instance, const crossdock_call* call,
                               const crossdock_read_request* request, crossdock_batch_stream* out, crossdock_error* err) {
  enum { CAPACITY = 4096 };
  char* text = calloc(1, CAPACITY);
  size_t n = 0;
  (void)instance, (void)call, (void)out;
  for (size_t i = 0; i < request->input->n_sources; i++) {
    crossdock_source source;
    char first[8] = "";
    size_t n_read = 0;
    CROSSDOCK_MOVE(&source, CROSSDOCK_AT(request->input->sources, i));
    source.read_at(&source, 0, first, sizeof first - 1, &n_read, NULL);
    if (text && n < CAPACITY) {
      n += (size_t)snprintf(text + n, CAPACITY - n, "[%.*s: %lld bytes, version '%.*s', %s]", (int)source.name.bytes,
                            source.name.data, (long long)source.bytes, (int)source.version.bytes, source.version.data, first);
    }
    source.release(&source);
  }
  err->message = text;
  err->private_data = text;
  err->release = release_error;
  return CROSSDOCK_BAD_DATA;
}

static const crossdock_magic magics[] = {{0, "PART", 4}, {-4, "LAST", 4}};
static const crossdock_format format = {
    .struct_size = sizeof format, .name = TEXT("sources"), .description = TEXT("describes its sources"),
    .flags = CROSSDOCK_FORMAT_BYTES | CROSSDOCK_FORMAT_SEVERAL, .magics = magics, .n_magics = 2};

static crossdock_code formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out, crossdock_error* err) {
  (void)instance, (void)err;
  *out = &format;
  *n_out = 1;
  return CROSSDOCK_OK;
}

static const crossdock_importer importer = {.struct_size = sizeof importer, .formats = formats, .open = describe};

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  (void)err;
  *out = malloc(sizeof **out);
  if (!*out) return CROSSDOCK_OUT_OF_MEMORY;
  (*out)->host = host;
  return CROSSDOCK_OK;
}

static void destroy(crossdock_instance* instance) { free(instance); }

static const void* get_interface(crossdock_instance* instance, const char* id) {
  (void)instance;
  return strcmp(id, CROSSDOCK_IMPORTER_ID) == 0 ? &importer : NULL;
}

CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {
    CROSSDOCK_PLUGIN_MAGIC, sizeof(crossdock_plugin_entry), CROSSDOCK_ABI_MAJOR, CROSSDOCK_ABI_MINOR, 0,
    create, destroy, get_interface};

CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {
    .magic = CROSSDOCK_META_MAGIC, .struct_size = sizeof(crossdock_plugin_meta), .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR, .n_sizes = CROSSDOCK_META_N_SIZES, .name = "sources", .version = "1.0.0",
    .api_range = CROSSDOCK_API_RANGE, .licence = "Apache-2.0", .toolchain = "C", .panic = "none", .interfaces = CROSSDOCK_IMPORTER_ID,
    .formats = "sources", .description = "describes its sources", .sizes = CROSSDOCK_META_SIZES_INIT};
