/* Two hosts in one process, each libcrossdock.so of a version of its own with plugins of its own:
 *     hosts LIBRARY PLUGINS LIBRARY PLUGINS SAMPLE FOLDER
 * Both read the sample, batch by batch in turns; what the one read the other writes, as Arrow's structs, and reads again. */
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

static void ok(crossdock_code code, const char* what, const host* of) {
  if (code == CROSSDOCK_OK) return;
  fprintf(stderr, "%s of version %s: %d: %s\n", what, of->version(), code, err.message ? err.message : "-");
  exit(1);
}

static void* found(void* library, const char* name) {
  void* function = dlsym(library, name);
  if (!function) exit((fprintf(stderr, "%s: %s\n", name, dlerror()), 1));
  return function;
}

static host started(const char* file, const char* plugins) {
  host made = {.plugins = plugins, .read = {.struct_size = sizeof made.read}, .write = {.struct_size = sizeof made.write}};
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) exit((fprintf(stderr, "%s\n", dlerror()), 1));
  made.create = found(library, "crossdock_host_create");
  made.destroy = found(library, "crossdock_host_destroy");
  made.settle = found(library, "crossdock_host_settle");
  made.open = found(library, "crossdock_session_create");
  made.close = found(library, "crossdock_session_destroy");
  made.read_path = found(library, "crossdock_session_read_path");
  made.write_path = found(library, "crossdock_session_write_path");
  made.version = found(library, "crossdock_version");
  crossdock_str folder = crossdock_text(plugins);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &folder, .n_plugins = 1,
                                      .flags = CROSSDOCK_HOST_ONLY_GIVEN};
  ok(made.create(&settings, &made.handle, &err), "a host", &made);
  ok(made.open(made.handle, NULL, &made.session, &err), "a session", &made);
  return made;
}

static void reads(host* of, const char* path) {
  ok(of->read_path(of->session, crossdock_text(path), NULL, &of->read, &err), "reading", of);
}

static void writes(host* of, const char* folder, const char* name) {
  struct ArrowSchema schema;
  snprintf(of->path, sizeof of->path, "%s/%s.arrow", folder, name);
  ok(of->read.get_schema(&of->read, &schema, &err), "the schema", of);
  ok(of->write_path(of->session, crossdock_text(of->path), &schema, NULL, &of->write, &err), "writing", of);
  schema.release(&schema);
}

/* The next batch of the one to the other, as an array and nothing else; 0 at the end. */
static int hands_on(host* from, host* to) {
  crossdock_batch batch = {.struct_size = sizeof batch}, given = {.struct_size = sizeof given};
  ok(from->read.get_next(&from->read, NULL, &batch, &err), "a batch", from);
  if (!batch.array.array.release) return 0;
  from->rows += batch.array.array.length;
  given.array = batch.array;
  ok(to->write.write(&to->write, NULL, &given, NULL, &err), "a batch of the other", to);
  return 1;
}

static void ends(host* of) {
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
  host hosts[2] = {started(argv[1], argv[2]), started(argv[3], argv[4])};
  int more = 1;
  reads(&hosts[0], argv[5]);
  reads(&hosts[1], argv[5]);
  writes(&hosts[0], argv[6], "first");
  writes(&hosts[1], argv[6], "second");
  while (more) more = hands_on(&hosts[0], &hosts[1]) + hands_on(&hosts[1], &hosts[0]);
  for (int i = 0; i < 2; i++) {
    ok(hosts[i].write.finish(&hosts[i].write, NULL, NULL, &err), "finishing", &hosts[i]);
    hosts[i].write.release(&hosts[i].write);
    hosts[i].read.release(&hosts[i].read);
  }
  for (int i = 0; i < 2; i++) {
    /* What it wrote the other reads. */
    host* other = &hosts[1 - i];
    crossdock_batch batch = {.struct_size = sizeof batch};
    long long again = 0;
    other->read = (crossdock_batch_stream){.struct_size = sizeof other->read};
    reads(other, hosts[i].path);
    while (ok(other->read.get_next(&other->read, NULL, &batch, &err), "a batch again", other), batch.array.array.release) {
      again += batch.array.array.length;
      batch.array.array.release(&batch.array.array);
      batch = (crossdock_batch){.struct_size = sizeof batch};
    }
    printf("%s %lld %lld\n", hosts[i].version(), hosts[i].rows, again);
  }
  ends(&hosts[0]);
  ends(&hosts[1]);
  return 0;
}
