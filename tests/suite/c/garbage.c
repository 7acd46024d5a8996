/* A plugin in C whose importer returns malformed data. The format's name selects the kind of
 * malformed data. All data is static, so that the plugin itself cannot leak. Therefore a crash, or
 * a leak in the host's ledger, is a mistake of the host. */
#include <stdlib.h>
#include <string.h>

#include "crossdock.h"

#define STR(s) {s, sizeof(s) - 1}
#define N(a) (sizeof(a) / sizeof(a[0]))

static const char* const NAMES[] = {
    "garbage-status", "garbage-message", "null-stream",   "no-functions", "deep-schema",   "wide-schema",
    "cyclic-schema",  "not-utf8-format", "null-format",   "negative-length", "wrong-buffers", "false-offsets",
    "cyclic-array",   "wide-array",      "wrong-device",  "false-sizes",  "false-metadata", "null-children",
};
static crossdock_format formats[N(NAMES)];

struct crossdock_instance {
  int unused;
};
static crossdock_instance the_instance;

static int is(const void* name, const char* expected) { return strcmp(name, expected) == 0; }

static void release_schema(struct ArrowSchema* s) { s->release = NULL; }
static void release_array(struct ArrowArray* a) { a->release = NULL; }

/* One utf8 column of 2 rows. */
static struct ArrowSchema column_schema(void) {
  struct ArrowSchema s = {.format = "u", .name = "word", .flags = ARROW_FLAG_NULLABLE, .release = release_schema};
  return s;
}
static int32_t offsets[3] = {0, 1, 2};
static int32_t bad_offsets[3] = {0, 1000000, 2};
static char data[2] = {'h', 'i'};

#define DEPTH 100000
static struct ArrowSchema deep[DEPTH];
static struct ArrowSchema* deep_children[DEPTH];

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  static struct ArrowSchema column, self;
  static struct ArrowSchema* children[1];
  const char* kind = stream->private_data;
  struct ArrowSchema s = {.format = "+s", .name = "", .n_children = 1, .children = children, .release = release_schema};
  (void)err;
  column = column_schema();
  children[0] = &column;
  if (is(kind, "deep-schema")) {
    for (int i = 0; i < DEPTH; i++) {
      struct ArrowSchema node = {.format = "+s", .name = "n", .n_children = 1, .release = release_schema};
      deep[i] = node;
      deep_children[i] = &deep[i + 1 < DEPTH ? i + 1 : i];
      deep[i].children = &deep_children[i];
    }
    deep[DEPTH - 1].n_children = 0;
    s.children = deep_children;
  } else if (is(kind, "wide-schema")) {
    s.n_children = INT64_MAX;
  } else if (is(kind, "cyclic-schema")) {
    self = s;
    self.children = children;
    children[0] = &self;
  } else if (is(kind, "not-utf8-format")) {
    column.format = "\xff\xfe";
  } else if (is(kind, "null-format")) {
    column.format = NULL;
  } else if (is(kind, "null-children")) {
    children[0] = NULL;
  } else if (is(kind, "false-metadata")) {
    /* Declares 2^31 - 1 pairs. A reader that trusts this number reads past the end of the
     * constant. */
    static const char metadata[] = "\xff\xff\xff\x7f\x04\x00\x00\x00key!\xff\xff\xff\x7f";
    column.metadata = metadata;
  }
  *out = s;
  return CROSSDOCK_OK;
}

static int n_returned;

static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  static struct ArrowArray column;
  static struct ArrowArray* children[1];
  static const void* column_buffers[3];
  static const void* batch_buffers[1];
  static const int64_t sizes[4] = {0, 0, 12, INT64_MAX};
  const char* kind = stream->private_data;
  crossdock_batch batch;
  (void)call;
  (void)err;
  if (n_returned++) return CROSSDOCK_OK;
  memset(&batch, 0, sizeof batch);
  memset(&column, 0, sizeof column);
  column_buffers[0] = NULL;
  column_buffers[1] = offsets;
  column_buffers[2] = data;
  column.length = 2;
  column.n_buffers = 3;
  column.buffers = column_buffers;
  column.release = release_array;
  children[0] = &column;
  batch.struct_size = sizeof batch;
  batch.array.device_type = ARROW_DEVICE_CPU;
  batch.array.device_id = -1;
  batch.array.array.length = 2;
  batch.array.array.n_buffers = 1;
  batch.array.array.buffers = batch_buffers;
  batch.array.array.n_children = 1;
  batch.array.array.children = children;
  batch.array.array.release = release_array;
  if (is(kind, "negative-length")) column.length = -2;
  if (is(kind, "wrong-buffers")) column.n_buffers = 2;
  if (is(kind, "false-offsets")) column_buffers[1] = bad_offsets;
  if (is(kind, "wide-array")) batch.array.array.n_children = INT64_MAX;
  if (is(kind, "wrong-device")) batch.array.device_type = 99;
  if (is(kind, "cyclic-array")) {
    column.n_children = 1;
    column.children = children;
  }
  if (is(kind, "false-sizes")) {
    batch.buffer_sizes = sizes;
    batch.n_buffer_sizes = SIZE_MAX / 8;
  }
  *out = batch;
  return CROSSDOCK_OK;
}

static void release_stream(crossdock_batch_stream* stream) { stream->release = NULL; }

static crossdock_code importer_formats(crossdock_instance* instance, const crossdock_format** out, size_t* n,
                                       crossdock_error* err) {
  (void)instance;
  (void)err;
  for (size_t i = 0; i < N(NAMES); i++) {
    formats[i].struct_size = sizeof formats[i];
    formats[i].name.data = NAMES[i];
    formats[i].name.bytes = strlen(NAMES[i]);
    formats[i].flags = CROSSDOCK_FORMAT_BYTES;
  }
  *out = formats;
  *n = N(NAMES);
  return CROSSDOCK_OK;
}

static crossdock_code importer_open(crossdock_instance* instance, const crossdock_call* call,
                                    const crossdock_read_request* request, crossdock_batch_stream* out, crossdock_error* err) {
  const crossdock_input* input = request->input;
  crossdock_batch_stream stream;
  const char* kind = "";
  (void)instance, (void)call;
  for (size_t i = 0; i < N(NAMES); i++)
    if (request->format.bytes == strlen(NAMES[i]) && memcmp(request->format.data, NAMES[i], request->format.bytes) == 0) kind = NAMES[i];
  if (input->source) input->source->release(input->source);
  if (input->capsules && input->capsules->release) input->capsules->release(input->capsules);
  n_returned = 0;
  if (is(kind, "garbage-status")) return -4711;
  if (is(kind, "garbage-message")) {
    err->code = CROSSDOCK_BAD_DATA;
    err->message = "not \xff\xfe text";
    return CROSSDOCK_BAD_DATA;
  }
  if (is(kind, "null-stream")) return CROSSDOCK_OK;
  memset(&stream, 0, sizeof stream);
  stream.struct_size = sizeof stream;
  stream.private_data = (void*)kind;
  stream.release = release_stream;
  if (!is(kind, "no-functions")) {
    stream.get_schema = get_schema;
    stream.get_next = get_next;
  }
  *out = stream;
  return CROSSDOCK_OK;
}

static const crossdock_importer importer = {.struct_size = sizeof importer, .formats = importer_formats, .open = importer_open};

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  (void)host;
  (void)err;
  *out = &the_instance;
  return CROSSDOCK_OK;
}
static void destroy(crossdock_instance* instance) { (void)instance; }
static const void* get_interface(crossdock_instance* instance, const char* id) {
  (void)instance;
  return is(id, CROSSDOCK_IMPORTER_ID) ? &importer : NULL;
}

CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {
    CROSSDOCK_PLUGIN_MAGIC, sizeof(crossdock_plugin_entry), CROSSDOCK_ABI_MAJOR, CROSSDOCK_ABI_MINOR, 0, create, destroy,
    get_interface,
};

CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {
    CROSSDOCK_META_MAGIC, sizeof(crossdock_plugin_meta), CROSSDOCK_ABI_MAJOR, CROSSDOCK_ABI_MINOR, CROSSDOCK_META_N_SIZES,
    "garbage", "0.1.0", CROSSDOCK_API_RANGE, "Apache-2.0", "cc", "none", CROSSDOCK_IMPORTER_ID, "garbage-status", "",
    "returns malformed data", "", CROSSDOCK_META_SIZES_INIT,
};
