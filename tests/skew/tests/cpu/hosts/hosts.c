/* Runs two hosts in one process, each a version of libcrossdock.so with its plugins:
 *     hosts LIBRARY PLUGINS LIBRARY PLUGINS SAMPLE FOLDER
 * The hosts read the sample in turns, and pass each batch to the other host as an Arrow struct.
 * Each host writes the received batches to a file. Finally, each host reads the other host's
 * file. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crossdock-host.h"

typedef struct host {
  const char* plugins;
  crossdock_host_handle* handle;
  crossdock_session* session;
  crossdock_batch_stream read;
  crossdock_writer write;
  char path[4096];
  long long rows;
  __typeof__(crossdock_host_create)* create;
  __typeof__(crossdock_host_destroy)* destroy;
  __typeof__(crossdock_host_settle)* settle;
  __typeof__(crossdock_session_create)* open;
  __typeof__(crossdock_session_destroy)* close;
  __typeof__(crossdock_session_read_path)* read_path;
  __typeof__(crossdock_session_write_path)* write_path;
  const char* (*version)(void);
} host;

static crossdock_error err = CROSSDOCK_ERROR_INIT;

static void ok(crossdock_code code, const char* what, const host* host) {
  if (code == CROSSDOCK_OK) return;
  fprintf(stderr, "%s of version %s: %d: %s\n", what, host->version(), code, err.message ? err.message : "-");
  exit(1);
}

static void* symbol(void* library, const char* name) {
  void* function = dlsym(library, name);
  if (!function) exit((fprintf(stderr, "%s: %s\n", name, dlerror()), 1));
  return function;
}

static host start(const char* file, const char* plugins) {
  host started = {.plugins = plugins, .read = {.struct_size = sizeof started.read}, .write = {.struct_size = sizeof started.write}};
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) exit((fprintf(stderr, "%s\n", dlerror()), 1));
  started.create = symbol(library, "crossdock_host_create");
  started.destroy = symbol(library, "crossdock_host_destroy");
  started.settle = symbol(library, "crossdock_host_settle");
  started.open = symbol(library, "crossdock_session_create");
  started.close = symbol(library, "crossdock_session_destroy");
  started.read_path = symbol(library, "crossdock_session_read_path");
  started.write_path = symbol(library, "crossdock_session_write_path");
  started.version = symbol(library, "crossdock_version");
  crossdock_str folder = crossdock_text(plugins);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &folder, .n_plugins = 1,
                                      .flags = CROSSDOCK_HOST_ONLY_GIVEN};
  ok(started.create(&settings, &started.handle, &err), "a host", &started);
  ok(started.open(started.handle, NULL, &started.session, &err), "a session", &started);
  return started;
}

static void open_reader(host* of, const char* path) {
  ok(of->read_path(of->session, crossdock_text(path), NULL, &of->read, &err), "reading", of);
}

static void open_writer(host* of, const char* folder, const char* name) {
  struct ArrowSchema schema;
  snprintf(of->path, sizeof of->path, "%s/%s.arrow", folder, name);
  ok(of->read.get_schema(&of->read, &schema, &err), "the schema", of);
  ok(of->write_path(of->session, crossdock_text(of->path), &schema, NULL, &of->write, &err), "writing", of);
  schema.release(&schema);
}

/* Passes the next batch from one host to the other as an array without a schema. Returns 0 at
 * the end. */
static int pass_batch(host* from, host* to) {
  crossdock_batch batch = {.struct_size = sizeof batch}, passed = {.struct_size = sizeof passed};
  ok(from->read.get_next(&from->read, NULL, &batch, &err), "a batch", from);
  if (!batch.array.array.release) return 0;
  from->rows += batch.array.array.length;
  passed.array = batch.array;
  ok(to->write.write(&to->write, NULL, &passed, NULL, &err), "writing a batch", to);
  return 1;
}

static void stop(host* of) {
  crossdock_leaks leaks = {.struct_size = sizeof leaks};
  of->read.release(&of->read);
  of->close(of->session);
  ok(of->settle(of->handle, &leaks, &err), "settling", of);
  if (leaks.n_leaks > 0) exit((fprintf(stderr, "%zu leaks in version %s\n", leaks.n_leaks, of->version()), 1));
  leaks.release(&leaks);
  of->destroy(of->handle);
}

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  host hosts[2] = {start(argv[1], argv[2]), start(argv[3], argv[4])};
  int more = 1;
  open_reader(&hosts[0], argv[5]);
  open_reader(&hosts[1], argv[5]);
  open_writer(&hosts[0], argv[6], "first");
  open_writer(&hosts[1], argv[6], "second");
  while (more) more = pass_batch(&hosts[0], &hosts[1]) + pass_batch(&hosts[1], &hosts[0]);
  for (int i = 0; i < 2; i++) {
    ok(hosts[i].write.finish(&hosts[i].write, NULL, NULL, &err), "finishing", &hosts[i]);
    hosts[i].write.release(&hosts[i].write);
    hosts[i].read.release(&hosts[i].read);
  }
  for (int i = 0; i < 2; i++) {
    /* The other host reads the file that this host wrote. */
    host* other = &hosts[1 - i];
    crossdock_batch batch = {.struct_size = sizeof batch};
    long long again = 0;
    other->read = (crossdock_batch_stream){.struct_size = sizeof other->read};
    open_reader(other, hosts[i].path);
    while (ok(other->read.get_next(&other->read, NULL, &batch, &err), "a batch again", other), batch.array.array.release) {
      again += batch.array.array.length;
      batch.array.array.release(&batch.array.array);
      batch = (crossdock_batch){.struct_size = sizeof batch};
    }
    printf("%s %lld %lld\n", hosts[i].version(), hosts[i].rows, again);
  }
  stop(&hosts[0]);
  stop(&hosts[1]);
  return 0;
}
