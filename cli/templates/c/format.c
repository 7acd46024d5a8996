/*
 * The Crossdock plugin `@NAME@`, which reads the format `@NAME@`.
 *
 * Replace this minimal format: a text file whose lines are the values of one column of bytes. An
 * exporter, which writes a format, is added in the same way: see docs/plugins.md of Crossdock.
 */
#include <stdlib.h>
#include <string.h>

#include "crossdock.h"

#define TEXT(literal) {literal, sizeof(literal) - 1}

struct crossdock_instance {
  const crossdock_host* host; /* valid until `destroy` returns */
};

/* Fills in `err`, which may be NULL. All fields of `err` except the size are zero before. A
 * constant message needs no `release`. An allocated message needs a `release` that frees it. A
 * message names the plugin, the fault, the expected and the actual value, and a remedy. */
static crossdock_code fail(crossdock_error* err, crossdock_code code, const char* message) {
  if (err) {
    err->code = code;
    err->message = message;
  }
  return code;
}

/* A batch is a struct array whose child is the column. The child may be moved out, so it owns its
 * buffers. */
typedef struct column {
  char* text;
  int32_t* offsets;
  const void* buffers[3]; /* validity: NULL for no nulls; offsets; text */
} column;

typedef struct batch {
  struct ArrowArray column;
  struct ArrowArray* children[1];
  const void* buffers[1];
} batch;

static void release_column(struct ArrowArray* array) {
  column* data = array->private_data;
  free(data->text);
  free(data->offsets);
  free(data);
  array->release = NULL;
}

static void release_batch(struct ArrowArray* array) {
  batch* data = array->private_data;
  if (data->column.release) data->column.release(&data->column); /* unless it was moved out */
  free(data);
  array->release = NULL;
}

/* Takes ownership of `text` and `offsets` on success. */
static crossdock_code export_batch(char* text, int32_t* offsets, int64_t rows, crossdock_batch* out, crossdock_error* err) {
  batch* data = calloc(1, sizeof *data);
  column* inner = calloc(1, sizeof *inner);
  if (!data || !inner) {
    free(data);
    free(inner);
    return fail(err, CROSSDOCK_OUT_OF_MEMORY, "@NAME@: no memory for a batch");
  }
  inner->text = text;
  inner->offsets = offsets;
  inner->buffers[1] = offsets;
  inner->buffers[2] = text;
  data->children[0] = &data->column;
  data->column = (struct ArrowArray){.length = rows, .n_buffers = 3, .buffers = inner->buffers,
                                     .release = release_column, .private_data = inner};
  out->array.device_type = ARROW_DEVICE_CPU;
  out->array.device_id = -1;
  out->array.array = (struct ArrowArray){.length = rows, .n_buffers = 1, .buffers = data->buffers, .n_children = 1,
                                         .children = data->children, .release = release_batch, .private_data = data};
  return CROSSDOCK_OK;
}

/* The number of bytes of one read, and the maximum length of a line. */
enum { CHUNK_BYTES = 1 << 20 };

typedef struct reader {
  crossdock_source source;
  uint64_t offset; /* offset in the source of the next read */
  char* rest;      /* the beginning of a line whose end has not been read */
  size_t rest_bytes;
} reader;

static void release_schema(struct ArrowSchema* schema) { schema->release = NULL; }

static void release_root(struct ArrowSchema* schema) {
  struct ArrowSchema* child = schema->children[0];
  if (child->release) child->release(child);
  free(schema->private_data);
  schema->release = NULL;
}

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  struct root { struct ArrowSchema child; struct ArrowSchema* children[1]; }* root = calloc(1, sizeof *root);
  (void)stream;
  if (!root) return fail(err, CROSSDOCK_OUT_OF_MEMORY, "@NAME@: no memory for a schema");
  root->child = (struct ArrowSchema){.format = "z", .name = "line", .release = release_schema}; /* binary, without nulls */
  root->children[0] = &root->child;
  *out = (struct ArrowSchema){.format = "+s", .name = "", .n_children = 1, .children = root->children,
                              .release = release_root, .private_data = root};
  return CROSSDOCK_OK;
}

/* Splits text into lines in place, and stores the text after the last end of a line for the next
 * batch. */
static int64_t split_lines(reader* r, char* text, size_t bytes, int at_end, int32_t* offsets) {
  size_t to = 0, start = 0;
  int64_t rows = 0;
  for (size_t i = 0; i <= bytes; i++) {
    if (i < bytes ? text[i] != '\n' : !(at_end && start < bytes)) continue;
    memmove(text + to, text + start, i - start);
    to += i - start;
    offsets[++rows] = (int32_t)to;
    start = i + 1;
  }
  r->rest_bytes = start < bytes ? bytes - start : 0;
  memcpy(r->rest, text + start, r->rest_bytes);
  return rows;
}

/* At the end of the stream, `out` stays unchanged, so that its `release` is NULL. */
static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  reader* r = stream->private_data;
  for (;;) {
    char* text = malloc(2 * CHUNK_BYTES);
    int32_t* offsets = malloc((2 * CHUNK_BYTES + 2) * sizeof *offsets);
    size_t n_read = 0, bytes;
    int64_t rows = 0;
    crossdock_code code = CROSSDOCK_IS_CANCELLED(call) ? fail(err, CROSSDOCK_CANCELLED, "cancelled") : CROSSDOCK_OK;
    if (code == CROSSDOCK_OK && (!text || !offsets))
      code = fail(err, CROSSDOCK_OUT_OF_MEMORY, "@NAME@: no memory for lines");
    if (code == CROSSDOCK_OK) {
      memcpy(text, r->rest, r->rest_bytes);
      code = r->source.read_at(&r->source, r->offset, text + r->rest_bytes, CHUNK_BYTES, &n_read, err);
    }
    if (code == CROSSDOCK_OK) {
      bytes = r->rest_bytes + n_read;
      r->offset += n_read;
      offsets[0] = 0;
      rows = split_lines(r, text, bytes, n_read == 0, offsets);
      if (call->progress) call->progress(call->progress_data, r->offset, r->source.bytes < 0 ? 0 : (uint64_t)r->source.bytes);
      if (r->rest_bytes > CHUNK_BYTES)
        code = fail(err, CROSSDOCK_BAD_DATA, "@NAME@: a line of more than 1 MiB: is this a text file?");
      else if (rows > 0)
        code = export_batch(text, offsets, rows, out, err);
    }
    if (code == CROSSDOCK_OK && rows > 0) return CROSSDOCK_OK;
    free(text);
    free(offsets);
    if (code != CROSSDOCK_OK || n_read == 0) return code;
  }
}

static void release_reader(crossdock_batch_stream* stream) {
  reader* r = stream->private_data;
  if (r->source.release) r->source.release(&r->source);
  free(r->rest);
  free(r);
  stream->release = NULL;
}

/* Returns whether `schema` is the schema of the stream. NULL means that the caller accepts any
 * schema. */
static int is_expected(const struct ArrowSchema* schema) {
  return !schema || (schema->n_children == 1 && strcmp(schema->children[0]->name, "line") == 0 &&
                     strcmp(schema->children[0]->format, "z") == 0);
}

/* Takes ownership of the objects in `input`, also on failure. */
static crossdock_code open_source(crossdock_instance* instance, const crossdock_call* call,
                                  const crossdock_read_request* request, crossdock_batch_stream* out, crossdock_error* err) {
  const crossdock_input* input = request->input;
  reader* r = calloc(1, sizeof *r);
  if (r) r->rest = malloc(2 * CHUNK_BYTES);
  (void)instance;
  if (CROSSDOCK_CHECK_CALL(call) != CROSSDOCK_OK || request->reserved != 0) {
    if (input->source) input->source->release(input->source);
    if (input->capsules) input->capsules->release(input->capsules);
    if (r) free(r->rest);
    free(r);
    return fail(err, CROSSDOCK_CHECK_CALL(call) == CROSSDOCK_UNSUPPORTED ? CROSSDOCK_UNSUPPORTED : CROSSDOCK_INVALID_ARGUMENT,
                "@NAME@: the call or the read request has a reserved field that is not 0, or an unknown setting");
  }
  if (!r || !r->rest || !input->source || request->n_options > 0 || !is_expected(request->schema) ||
      request->format.bytes != strlen("@NAME@") || memcmp(request->format.data, "@NAME@", request->format.bytes) != 0) {
    if (input->source) input->source->release(input->source);
    if (input->capsules) input->capsules->release(input->capsules);
    if (r) free(r->rest);
    free(r);
    return fail(err, CROSSDOCK_INVALID_ARGUMENT, "@NAME@: expected the format @NAME@, a source, no options, and the column 'line' of type Binary");
  }
  CROSSDOCK_MOVE(&r->source, input->source);
  out->private_data = r;
  out->release = release_reader;
  out->get_schema = get_schema;
  out->get_next = get_next;
  return CROSSDOCK_OK;
}

static const crossdock_str EXTENSIONS[] = {TEXT(".@NAME@")};
static const ArrowDeviceType DEVICES[] = {ARROW_DEVICE_CPU};
static const crossdock_format FORMATS[] = {{.struct_size = sizeof(crossdock_format), .name = TEXT("@NAME@"),
    .description = TEXT("one value per line"), .flags = CROSSDOCK_FORMAT_BYTES, .extensions = EXTENSIONS, .n_extensions = 1,
    .device_types = DEVICES, .n_device_types = 1}};

static crossdock_code formats(crossdock_instance* i, const crossdock_format** out, size_t* n, crossdock_error* err) {
  (void)i, (void)err;
  *out = FORMATS;
  *n = sizeof FORMATS / sizeof *FORMATS;
  return CROSSDOCK_OK;
}

static const crossdock_importer IMPORTER = {.struct_size = sizeof IMPORTER, .formats = formats, .open = open_source};

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  crossdock_instance* instance = malloc(sizeof *instance);
  if (!instance) return fail(err, CROSSDOCK_OUT_OF_MEMORY, "@NAME@: no memory for an instance");
  instance->host = host;
  *out = instance;
  return CROSSDOCK_OK;
}

static void destroy(crossdock_instance* instance) { free(instance); }

static const void* get_interface(crossdock_instance* instance, const char* id) {
  (void)instance;
  return strcmp(id, CROSSDOCK_IMPORTER_ID) == 0 ? &IMPORTER : NULL;
}

CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {
    .magic = CROSSDOCK_PLUGIN_MAGIC, .struct_size = sizeof(crossdock_plugin_entry), .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR, .create = create, .destroy = destroy, .get_interface = get_interface};

CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {
    .magic = CROSSDOCK_META_MAGIC, .struct_size = sizeof(crossdock_plugin_meta), .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR, .n_sizes = CROSSDOCK_META_N_SIZES, .sizes = CROSSDOCK_META_SIZES_INIT,
    .name = "@NAME@", .version = "0.1.0", .api_range = CROSSDOCK_API_RANGE, .licence = "Apache-2.0", .toolchain = "cc",
    .panic = "none", .interfaces = CROSSDOCK_IMPORTER_ID, .formats = "@NAME@", .description = "reads @NAME@ files"};
