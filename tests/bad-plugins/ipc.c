/* Reads the format `base-ipc`: an untrusted Arrow IPC stream of one column of 64-bit integers. */
#include "base.h"

enum { MAX_METADATA = 1 << 20, MAX_BODY = 1 << 24, MAX_NAME = 255 };
enum { SCHEMA = 1, RECORD_BATCH = 3 };

typedef struct bytes {
  unsigned char* at;
  uint64_t n;
} bytes;

typedef struct reader {
  crossdock_source source;
  uint64_t offset; /* the position of the next read */
  bytes metadata;
  bytes body;
  char name[MAX_NAME + 1];
  int is_nullable;
} reader;

/* ----------------------------------------------------------------------------- flatbuffers --- */

/* Copies `n` bytes from the position `at`. Returns 0 if the message has fewer bytes. */
static int load(const bytes* from, uint64_t at, void* to, size_t n) {
  if (at > from->n || from->n - at < n) return 0;
  memcpy(to, from->at + at, n);
  return 1;
}

/* The position of a field of a table, or 0 if the table does not have it. */
static uint64_t field(const bytes* from, uint64_t table, unsigned number) {
  int32_t back;
  uint16_t size, offset;
  int64_t names;
  if (!load(from, table, &back, sizeof back)) return 0;
  names = (int64_t)table - back;
  if (names < 0 || !load(from, (uint64_t)names, &size, sizeof size) || size < 4 + 2 * number + 2) return 0;
  if (!load(from, (uint64_t)names + 4 + 2 * number, &offset, sizeof offset) || offset == 0) return 0;
  return table + offset;
}

/* The position to which the offset at `at` refers, or 0 if it is out of bounds. */
static uint64_t follow(const bytes* from, uint64_t at) {
  uint32_t offset;
  return at && load(from, at, &offset, sizeof offset) ? at + offset : 0;
}

/* The value of an `n`-byte number field, or 0 if the field is absent. */
static int64_t number(const bytes* from, uint64_t table, unsigned which, size_t n) {
  int64_t value = 0;
  const uint64_t at = field(from, table, which);
  return at && load(from, at, &value, n) ? value : 0;
}

/* The length of a vector, and the position of its first element. */
static uint32_t vector(const bytes* from, uint64_t table, unsigned which, uint64_t* first) {
  const uint64_t at = follow(from, field(from, table, which));
  uint32_t n = 0;
  *first = at + 4;
  return at && load(from, at, &n, sizeof n) ? n : 0;
}

/* -------------------------------------------------------------------------------- messages --- */

static crossdock_code bad(crossdock_error* err) {
  return base_fail(err, CROSSDOCK_BAD_DATA, "base-ipc: a malformed message");
}

/* Reads `n` bytes. `*is_end` is set if the source has ended before the first byte. */
static crossdock_code read_exactly(reader* r, void* to, size_t n, int* is_end, crossdock_error* err) {
  size_t done = 0, got = 1;
  while (done < n && got > 0) {
    crossdock_code code = r->source.read_at(&r->source, r->offset, (char*)to + done, n - done, &got, err);
    if (code != CROSSDOCK_OK) return code;
    r->offset += got;
    done += got;
  }
  *is_end = done == 0 && n > 0;
  return done == n || *is_end ? CROSSDOCK_OK : bad(err);
}

static crossdock_code read_bytes(reader* r, bytes* to, uint64_t n, crossdock_error* err) {
  int is_end;
  crossdock_code code;
  free(to->at);
  to->at = malloc(n + 1);
  to->n = n;
  if (!to->at) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-ipc: no memory for a message");
  code = read_exactly(r, to->at, n, &is_end, err);
  return code == CROSSDOCK_OK && is_end ? bad(err) : code;
}

/* Reads the next message. Stores the message's kind and the position of the message's table. At the
 * end of the stream, the kind is 0. */
static crossdock_code next_message(reader* r, int* kind, uint64_t* table, crossdock_error* err) {
  uint32_t begin[2], root;
  int is_end;
  uint64_t message;
  int64_t body;
  crossdock_code code = read_exactly(r, begin, sizeof begin, &is_end, err);
  *kind = 0;
  if (code != CROSSDOCK_OK || is_end) return code;
  if (begin[0] != UINT32_MAX || begin[1] > MAX_METADATA) return bad(err);
  if (begin[1] == 0) return CROSSDOCK_OK;
  code = read_bytes(r, &r->metadata, begin[1], err);
  if (code != CROSSDOCK_OK) return code;
  r->metadata.at[begin[1]] = 0;
  if (!load(&r->metadata, 0, &root, sizeof root)) return bad(err);
  message = root;
  body = number(&r->metadata, message, 3, 8);
  *kind = (int)number(&r->metadata, message, 1, 1);
  *table = follow(&r->metadata, field(&r->metadata, message, 2));
  if (!*table || *kind == 0 || body < 0 || body > MAX_BODY) return bad(err);
  return read_bytes(r, &r->body, (uint64_t)body, err);
}

static crossdock_code read_schema(reader* r, crossdock_error* err) {
  const bytes* m = &r->metadata;
  uint64_t table, first, own, type, name;
  uint32_t n, length;
  int kind;
  crossdock_code code = next_message(r, &kind, &table, err);
  if (code != CROSSDOCK_OK) return code;
  if (kind != SCHEMA) return bad(err);
  n = vector(m, table, 1, &first);
  own = n == 1 ? follow(m, first) : 0;
  type = own ? follow(m, field(m, own, 3)) : 0;
  /* Metadata is not supported. */
  if (!own || number(m, own, 2, 1) != 2 || !type || number(m, type, 0, 4) != 64 || !number(m, type, 1, 1) || field(m, own, 4) ||
      field(m, own, 6) || field(m, table, 2) || number(m, table, 0, 2) != 0)
    return base_fail(err, CROSSDOCK_UNSUPPORTED, "base-ipc: expected one column of 64-bit integers");
  length = vector(m, own, 0, &name);
  if (length > MAX_NAME || !load(m, name, r->name, length)) return bad(err);
  for (uint32_t i = 0; i < length; i++)
    if (r->name[i] <= 0) return bad(err);
  r->name[length] = 0;
  r->is_nullable = number(m, own, 1, 1) != 0;
  return CROSSDOCK_OK;
}

/* --------------------------------------------------------------------------------- batches --- */

static crossdock_code give(reader* r, uint64_t table, crossdock_batch* out, crossdock_error* err) {
  const bytes* m = &r->metadata;
  const int64_t rows = number(m, table, 0, 8);
  uint64_t node, buffer, at[2][2];
  int64_t counts[2];
  unsigned char* validity = NULL;
  int64_t* values;
  if (field(m, table, 3)) return base_fail(err, CROSSDOCK_UNSUPPORTED, "base-ipc: expected uncompressed buffers");
  if (vector(m, table, 1, &node) != 1 || vector(m, table, 2, &buffer) != 2 || !load(m, node, counts, sizeof counts) ||
      !load(m, buffer, at, sizeof at))
    return bad(err);
  if (rows < 0 || rows > MAX_BODY || counts[0] != rows) return bad(err);
  if (at[1][0] > r->body.n || r->body.n - at[1][0] < 8 * (uint64_t)rows) return bad(err);
  if (at[0][1] > 0 && (at[0][0] > r->body.n || r->body.n - at[0][0] < (uint64_t)(rows + 7) / 8)) return bad(err);
  if (counts[1] != 0 && (at[0][1] == 0 || !r->is_nullable)) return bad(err);
  values = malloc(8 * (size_t)rows + 1);
  if (values) memcpy(values, r->body.at + at[1][0], 8 * (size_t)rows);
  if (counts[1] != 0 && !HAS(IPC_NULLS_IGNORED)) {
    validity = malloc((size_t)rows / 8 + 1);
    if (!validity) {
      free(values);
      return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-ipc: no memory for the validity bitmap");
    }
    memcpy(validity, r->body.at + at[0][0], (size_t)(rows + 7) / 8);
  }
  return base_numbers_give(validity, values, rows, out, err);
}

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  const reader* r = stream->private_data;
  struct ArrowSchema schema = base_numbers_schema(r->name, r->is_nullable);
  if (!schema.release) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-ipc: no memory for a schema");
  *out = schema;
  return CROSSDOCK_OK;
}

static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  reader* r = stream->private_data;
  uint64_t table;
  int kind;
  crossdock_code code = base_cancelled(call, err);
  if (code == CROSSDOCK_OK) code = next_message(r, &kind, &table, err);
  if (code != CROSSDOCK_OK || kind == 0) return code;
  return kind == RECORD_BATCH ? give(r, table, out, err) : bad(err);
}

static void release_reader(crossdock_batch_stream* stream) {
  reader* r = stream->private_data;
  r->source.release(&r->source);
  free(r->metadata.at);
  free(r->body.at);
  free(r);
  stream->release = NULL;
}

crossdock_code base_ipc_open(crossdock_source* source, const struct ArrowSchema* schema, crossdock_batch_stream* out,
                             crossdock_error* err) {
  reader* r = calloc(1, sizeof *r);
  crossdock_batch_stream partial = {.private_data = r};
  crossdock_code code;
  if (!r) {
    source->release(source);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-ipc: no memory for a reader");
  }
  r->source = *source;
  code = schema ? base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base-ipc: expected no requested schema, because the stream has a schema") : read_schema(r, err);
  if (code != CROSSDOCK_OK) {
    release_reader(&partial);
    return code;
  }
  out->get_schema = get_schema;
  out->get_next = get_next;
  out->release = release_reader;
  out->private_data = r;
  return CROSSDOCK_OK;
}
