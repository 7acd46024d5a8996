/* An exporter that writes no output. It searches the open files and mappings of its process for
 * the text TOP-SECRET, and reports each occurrence on standard error. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdock.h"

#define TEXT(s) {s, sizeof(s) - 1}

/* Each character of this constant is one more than the character of the text, so that the
 * plugin's own file does not contain the text. */
static const volatile char SECRET[] = "UPQ.TFDSFU";

static void search(const char* what, const void* bytes, size_t n) {
  char secret[sizeof SECRET - 1];
  for (size_t i = 0; i < sizeof secret; i++) secret[i] = (char)(SECRET[i] - 1);
  if (memmem(bytes, n, secret, sizeof secret)) fprintf(stderr, "leaked: the secret is in %s\n", what);
}

static void search_files(void) {
  DIR* open_files = opendir("/proc/self/fd");
  for (struct dirent* entry; open_files && (entry = readdir(open_files));) {
    const int fd = atoi(entry->d_name);
    struct stat file;
    void* bytes;
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size == 0) continue;
    bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) continue;
    search("an open file", bytes, (size_t)file.st_size);
    munmap(bytes, (size_t)file.st_size);
  }
  if (open_files) closedir(open_files);
}

static void search_mappings(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512], mode[5];
  unsigned long start, end;
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "memfd:crossdock-") || strstr(line, ".arrow"))
      if (sscanf(line, "%lx-%lx %4s", &start, &end, mode) == 3 && mode[0] == 'r')
        search("a mapping", (const void*)start, end - start);
  if (maps) fclose(maps);
}

static crossdock_code write_batch(crossdock_writer* self, const crossdock_call* call, crossdock_batch* batch,
                                  crossdock_capsules* out, crossdock_error* err) {
  (void)self, (void)call, (void)out, (void)err;
  search_files();
  search_mappings();
  fprintf(stderr, "received a batch of %d columns\n", (int)batch->array.array.n_children);
  if (batch->array.array.release) batch->array.array.release(&batch->array.array);
  if (batch->schema.release) batch->schema.release(&batch->schema);
  return CROSSDOCK_OK;
}

static crossdock_code finish(crossdock_writer* self, const crossdock_call* call, crossdock_capsules* out, crossdock_error* err) {
  (void)self, (void)call, (void)out, (void)err;
  return CROSSDOCK_OK;
}

static void release_writer(crossdock_writer* self) { self->release = NULL; }

static crossdock_code begin(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                            const struct ArrowSchema* schema, const crossdock_option* options, size_t n_options,
                            crossdock_sink* sink, crossdock_writer* out, crossdock_error* err) {
  (void)instance, (void)call, (void)format, (void)schema, (void)options, (void)n_options, (void)err;
  if (sink && sink->release) sink->release(sink);
  out->write = write_batch;
  out->finish = finish;
  out->release = release_writer;
  return CROSSDOCK_OK;
}

static crossdock_code plan(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                           const struct ArrowSchema* schema, crossdock_device from, const crossdock_option* options,
                           size_t n_options, crossdock_plan* out, crossdock_error* err) {
  (void)instance, (void)call, (void)format, (void)schema, (void)from, (void)options, (void)n_options, (void)out;
  if (err) err->code = CROSSDOCK_UNSUPPORTED;
  return CROSSDOCK_UNSUPPORTED;
}

static crossdock_code formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out, crossdock_error* err) {
  static const crossdock_str EXTENSIONS[] = {TEXT(".leak")};
  static const crossdock_format FORMAT = {.struct_size = sizeof FORMAT,
                                          .name = TEXT("leak"),
                                          .description = TEXT("searches its process"),
                                          .flags = CROSSDOCK_FORMAT_BYTES,
                                          .extensions = EXTENSIONS,
                                          .n_extensions = 1};
  (void)instance, (void)err;
  *out = &FORMAT;
  *n_out = 1;
  return CROSSDOCK_OK;
}

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  (void)host, (void)err;
  *out = malloc(1);
  return CROSSDOCK_OK;
}

static void destroy(crossdock_instance* instance) { free(instance); }

static const void* get_interface(crossdock_instance* instance, const char* id) {
  static const crossdock_exporter EXPORTER = {sizeof EXPORTER, formats, plan, begin};
  (void)instance;
  return strcmp(id, CROSSDOCK_EXPORTER_ID) == 0 ? &EXPORTER : NULL;
}

CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {.magic = CROSSDOCK_PLUGIN_MAGIC,
                                                                     .struct_size = sizeof(crossdock_plugin_entry),
                                                                     .abi_major = CROSSDOCK_ABI_MAJOR,
                                                                     .abi_minor = CROSSDOCK_ABI_MINOR,
                                                                     .create = create,
                                                                     .destroy = destroy,
                                                                     .get_interface = get_interface};

CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {.magic = CROSSDOCK_META_MAGIC,
                                                                         .struct_size = sizeof(crossdock_plugin_meta),
                                                                         .abi_major = CROSSDOCK_ABI_MAJOR,
                                                                         .abi_minor = CROSSDOCK_ABI_MINOR,
                                                                         .n_sizes = CROSSDOCK_META_N_SIZES,
                                                                         .name = "leak",
                                                                         .version = "0.1.0",
                                                                         .api_range = CROSSDOCK_API_RANGE,
                                                                         .licence = "Apache-2.0",
                                                                         .toolchain = "cc",
                                                                         .panic = "none",
                                                                         .interfaces = CROSSDOCK_EXPORTER_ID,
                                                                         .formats = "leak",
                                                                         .description = "searches its process",
                                                                         .sizes = CROSSDOCK_META_SIZES_INIT};
