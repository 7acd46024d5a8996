/* Lists the fragments of the formats of bytes. In `base-rows`, each frame is a fragment, and its
 * token consists of "BASEFRAG", the offset of the frame and its number of rows (8 bytes each).
 * `base-ipc` has one fragment with the token "all". */
#include "base.h"

enum { TOKEN = 24, ALL = 3 };

typedef struct list {
  crossdock_fragment* fragments;
  crossdock_batch statistics;
  unsigned char tokens[];
} list;

static void release_list(crossdock_fragments* out) {
  list* own = out->private_data;
  if (own->statistics.array.array.release) own->statistics.array.array.release(&own->statistics.array.array);
  if (own->statistics.schema.release) own->statistics.schema.release(&own->statistics.schema);
  free(own->fragments);
  free(own);
  out->release = NULL;
}

static list* list_new(size_t n, size_t token_bytes) {
  list* own = calloc(1, sizeof *own + n * token_bytes);
  if (!own) return NULL;
  own->statistics.struct_size = sizeof own->statistics;
  own->fragments = calloc(n + 1, sizeof *own->fragments);
  if (!own->fragments) {
    free(own);
    return NULL;
  }
  for (size_t i = 0; i < n; i++)
    own->fragments[i] = (crossdock_fragment){.struct_size = sizeof *own->fragments, .token = own->tokens + i * token_bytes,
                                             .token_bytes = token_bytes, .n_rows = -1};
  return own;
}

static void give(list* own, size_t n, crossdock_fragments* out) {
  out->fragments = own->fragments;
  out->n_fragments = n;
  out->release = release_list;
  out->private_data = own;
}

static crossdock_code read_u64(crossdock_source* source, uint64_t offset, uint64_t* out, crossdock_error* err) {
  size_t got;
  crossdock_code code = source->read_at(source, offset, out, sizeof *out, &got, err);
  if (code == CROSSDOCK_OK && got != sizeof *out)
    return base_fail(err, CROSSDOCK_BAD_DATA, "base-rows: the source ends before its last row");
  return code;
}

/* Reads the head of the frame at `*offset` and moves `*offset` behind the frame. Sets `*rows` to
 * UINT64_MAX at the end mark. */
static crossdock_code next_frame(crossdock_source* source, uint64_t* offset, uint64_t* rows, crossdock_error* err) {
  crossdock_code code = read_u64(source, *offset, rows, err);
  if (code != CROSSDOCK_OK || *rows == UINT64_MAX) return code;
  if (*rows > BASE_MAX_ROWS)
    return base_fail(err, CROSSDOCK_BAD_DATA, "base-rows: a frame declares more rows than the maximum");
  *offset += sizeof *rows + *rows * BASE_ROW;
  return CROSSDOCK_OK;
}

static crossdock_code first_frame(crossdock_source* source, uint64_t* offset, crossdock_error* err) {
  uint32_t name;
  size_t got;
  crossdock_code code = source->read_at(source, 8, &name, sizeof name, &got, err);
  if (code == CROSSDOCK_OK && (got != sizeof name || name > BASE_MAX_NAME))
    return base_fail(err, CROSSDOCK_BAD_DATA, "base-rows: the source does not begin with BASEROWS and a short name");
  *offset = 8 + sizeof name + name;
  return code;
}

static crossdock_code list_frames(crossdock_source* source, crossdock_fragments* out, crossdock_error* err) {
  uint64_t begin, offset, rows = 0;
  size_t n = 0;
  list* own;
  crossdock_code code = first_frame(source, &begin, err);
  for (offset = begin; code == CROSSDOCK_OK; n++) {
    code = next_frame(source, &offset, &rows, err);
    if (code == CROSSDOCK_OK && rows == UINT64_MAX) break;
  }
  if (code != CROSSDOCK_OK) return code;
  own = list_new(n, TOKEN);
  if (!own) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for fragments");
  offset = begin;
  for (size_t i = 0; i < n && code == CROSSDOCK_OK; i++) {
    unsigned char* token = own->tokens + i * TOKEN;
    memcpy(token, "BASEFRAG", 8);
    memcpy(token + 8, &offset, 8);
    begin = offset;
    code = next_frame(source, &offset, &rows, err);
    memcpy(token + 16, &rows, 8);
    own->fragments[i].n_rows = (int64_t)rows + HAS(FRAGMENT_ROWS_WRONG);
    own->fragments[i].bytes = offset - begin;
  }
  if (HAS(FRAGMENTS_OVERLAP) && n > 1) own->fragments[n - 1] = own->fragments[0];
  if (HAS(STATISTICS_OF_OWN_SCHEMA) && n > 0 && code == CROSSDOCK_OK) {
    own->statistics.schema = base_numbers_schema("number", 1);
    code = base_numbers_give(NULL, calloc(1, 8), 1, &own->statistics, err);
    own->fragments[0].statistics = &own->statistics;
  }
  give(own, n - (HAS(FRAGMENT_OMITTED) && n > 1), out);
  if (code != CROSSDOCK_OK) out->release(out);
  return code;
}

crossdock_code base_fragments(crossdock_instance* instance, const crossdock_call* call,
                              const crossdock_read_request* request, crossdock_fragments* out, crossdock_error* err) {
  crossdock_read_request whole = *request;
  crossdock_source source = {.struct_size = sizeof source};
  crossdock_input input = {.struct_size = sizeof input, .sources = &source, .n_sources = 1};
  crossdock_batch_stream stream = {.struct_size = sizeof stream};
  crossdock_code code;
  list* own;
  if (request->input->n_sources != 1 || request->input->sources->bytes < 0) {
    for (size_t i = 0; i < request->input->n_sources; i++) {
      crossdock_source* each = CROSSDOCK_AT(request->input->sources, i);
      if (each->release) each->release(each);
    }
    if (request->input->capsules) request->input->capsules->release(request->input->capsules);
    return base_fail(err, CROSSDOCK_UNSUPPORTED, "base: only a source of known length has fragments");
  }
  CROSSDOCK_MOVE(&source, request->input->sources);
  if (base_is(request->format, "base-rows")) {
    code = base_cancelled(call, err);
    if (code == CROSSDOCK_OK) code = list_frames(&source, out, err);
    if (!HAS(FRAGMENTS_KEEP_SOURCE)) source.release(&source);
    return code;
  }
  whole.input = &input;
  code = base_open(instance, call, &whole, &stream, err);
  if (code != CROSSDOCK_OK) return code;
  stream.release(&stream);
  own = list_new(1, ALL);
  if (!own) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-ipc: no memory for fragments");
  memcpy(own->tokens, "all", ALL);
  give(own, 1, out);
  return CROSSDOCK_OK;
}

crossdock_code base_find_frame(crossdock_source* source, const void* token, size_t bytes, uint64_t* out, crossdock_error* err) {
  uint64_t offset, wanted = 0, n = 0, begin, rows = 0;
  crossdock_code code = first_frame(source, &offset, err);
  if (bytes == TOKEN) {
    memcpy(&wanted, (const char*)token + 8, 8);
    memcpy(&n, (const char*)token + 16, 8);
  }
  while (code == CROSSDOCK_OK && rows != UINT64_MAX) {
    begin = offset;
    code = next_frame(source, &offset, &rows, err);
    if (code == CROSSDOCK_OK && rows != UINT64_MAX && bytes == TOKEN && memcmp(token, "BASEFRAG", 8) == 0 && begin == wanted && rows == n) {
      *out = begin;
      return CROSSDOCK_OK;
    }
  }
  if (code != CROSSDOCK_OK) return code;
  if (HAS(ASSERTS_ON_TOKENS)) abort();
  return base_fail(err, HAS(PANICS_ON_TOKENS) ? CROSSDOCK_PANICKED : CROSSDOCK_BAD_DATA, "base-rows: the token names no frame of the source");
}
