#include <dirent.h>
#include <sys/stat.h>

#include "cases.h"

_Noreturn void fail(const char* file, int line, const char* what) {
  fprintf(stderr, "%s:%d: %s\n", file, line, what ? what : "(no message)");
  exit(1);
}

void check_failure(const char* file, int line, crossdock_code expected, const char* words, crossdock_code got,
                   crossdock_error* err) {
  if (got != expected || err->code != expected || !err->message || !strstr(err->message, words)) {
    fprintf(stderr, "%s:%d: expected code %d and '%s', got %d (%d) and '%s'\n", file, line, expected, words, got,
            err->code, err->message ? err->message : "");
    exit(1);
  }
  if (strchr(err->message, '\n')) fail(file, line, "the message has more than one line");
  crossdock_error_clear(err);
  if (err->release || err->message) fail(file, line, "the error was not cleared");
}

static crossdock_host_settings default_settings(crossdock_str* path) {
  crossdock_host_settings settings = {.struct_size = sizeof settings};
  *path = crossdock_text(plugins);
  settings.plugins = path;
  settings.n_plugins = 1;
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  return settings;
}

crossdock_host_handle* new_host(void) {
  crossdock_str path;
  crossdock_host_settings settings = default_settings(&path);
  crossdock_host_handle* host = NULL;
  OK(crossdock_host_create(&settings, &host, ERR));
  CHECK(host);
  return host;
}

crossdock_session* new_session(crossdock_host_handle* host) {
  crossdock_session* session = NULL;
  OK(crossdock_session_create(host, NULL, &session, ERR));
  CHECK(session);
  return session;
}

void end_host(crossdock_host_handle* host) {
  crossdock_leaks leaks = LEAKS;
  OK(crossdock_host_settle(host, &leaks, ERR));
  if (leaks.n_leaks > 0) fail(__FILE__, __LINE__, leaks.leaks[0].account.data);
  leaks.release(&leaks);
  CHECK(!leaks.release && !leaks.leaks && leaks.n_leaks == 0);
  crossdock_host_destroy(host);
}

void end(crossdock_host_handle* host, crossdock_session* session) {
  crossdock_session_destroy(session);
  end_host(host);
}

bool is(crossdock_str text, const char* expected) {
  return text.bytes == strlen(expected) && memcmp(text.data, expected, text.bytes) == 0;
}

bool contains(crossdock_str text, const char* part) {
  CHECK(text.data && text.data[text.bytes] == '\0');
  return strstr(text.data, part) != NULL;
}

const char* in_folder(const char* name) {
  static char paths[4][4096];
  static int next;
  char* path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

bool exists(const char* path) {
  struct stat status;
  return stat(path, &status) == 0;
}

bool has_no_file(const char* part) {
  bool is_empty = true;
  DIR* entries = opendir(folder);
  CHECK(entries);
  for (struct dirent* entry; (entry = readdir(entries));)
    if (strstr(entry->d_name, part) || strstr(entry->d_name, ".part")) is_empty = false;
  closedir(entries);
  return is_empty;
}

void* load(const char* path, size_t* bytes) {
  FILE* file = fopen(path, "rb");
  CHECK(file && fseek(file, 0, SEEK_END) == 0);
  *bytes = (size_t)ftell(file);
  rewind(file);
  void* data = malloc(*bytes);
  CHECK(data && fread(data, 1, *bytes, file) == *bytes);
  fclose(file);
  return data;
}

int64_t count_rows(crossdock_batch_stream* stream) {
  int64_t rows = 0;
  for (;;) {
    crossdock_batch batch = BATCH;
    OK(stream->get_next(stream, NULL, &batch, ERR));
    if (!batch.array.array.release) break;
    CHECK(!batch.schema.release && batch.n_buffer_sizes > 0);
    rows += batch.array.array.length;
    batch.array.array.release(&batch.array.array);
  }
  stream->release(stream);
  CHECK(!stream->release);
  return rows;
}

int64_t rows_of(crossdock_session* session, const char* path) {
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(path), NULL, &stream, ERR));
  return count_rows(&stream);
}

const char* converted(crossdock_session* session, const char* name) {
  const char* path = in_folder(name);
  OK(crossdock_session_convert(session, crossdock_text(sample), crossdock_text(path), NULL, NULL, ERR));
  return path;
}

/* ---------------------------------------------------------------------------- a test table --- */

atomic_int n_released;

struct array {
  struct ArrowArray column, *children[1];
  const void* root_buffers[1];
  const void* buffers[2];
};

struct schema {
  struct ArrowSchema column, *children[1];
};

/* A child is freed together with its parent, because no test moves a child out of its parent. */
static void release_child_schema(struct ArrowSchema* schema) { schema->release = NULL; }
static void release_child_array(struct ArrowArray* array) { array->release = NULL; }

static void release_schema(struct ArrowSchema* schema) {
  free(schema->private_data);
  schema->release = NULL;
  n_released++;
}

static void release_array(struct ArrowArray* array) {
  free(array->private_data);
  array->release = NULL;
  n_released++;
}

void make_schema(struct ArrowSchema* out) {
  struct schema* schema = calloc(1, sizeof *schema);
  CHECK(schema);
  schema->column.format = "l";
  schema->column.name = "n";
  schema->column.release = release_child_schema;
  schema->children[0] = &schema->column;
  memset(out, 0, sizeof *out);
  out->format = "+s";
  out->name = "";
  out->n_children = 1;
  out->children = schema->children;
  out->release = release_schema;
  out->private_data = schema;
}

void make_array(struct ArrowArray* out, const int64_t* values, int64_t n) {
  struct array* array = calloc(1, sizeof *array);
  CHECK(array);
  array->buffers[1] = values;
  array->column.length = n;
  array->column.n_buffers = 2;
  array->column.buffers = array->buffers;
  array->column.release = release_child_array;
  array->children[0] = &array->column;
  memset(out, 0, sizeof *out);
  out->length = n;
  out->n_buffers = 1;
  out->n_children = 1;
  out->buffers = array->root_buffers;
  out->children = array->children;
  out->release = release_array;
  out->private_data = array;
}

crossdock_batch make_batch(const int64_t* values, int64_t n) {
  crossdock_batch batch = BATCH;
  make_array(&batch.array.array, values, n);
  batch.array.device_type = ARROW_DEVICE_CPU;
  batch.array.device_id = -1;
  return batch;
}

/* Releases the object unless it was moved out of the capsule. Does not free the memory of the
   struct, which the creator of the capsule owns. */
static void release_capsule(crossdock_capsule* capsule) {
  capsule->release = NULL;
  if (strcmp(capsule->name, "arrow_schema") == 0) {
    struct ArrowSchema* schema = capsule->pointer;
    if (schema->release) schema->release(schema);
  } else {
    struct ArrowArray* array = capsule->pointer;
    if (array->release) array->release(array);
  }
}

crossdock_capsule make_capsule(const char* name, void* pointer) {
  crossdock_capsule capsule = {.struct_size = sizeof capsule};
  capsule.name = name;
  capsule.pointer = pointer;
  capsule.release = release_capsule;
  return capsule;
}

const int64_t* values_of(const struct ArrowArray* batch) { return batch->children[0]->buffers[1]; }
