/* Cases of crossdock_session_to_parts and crossdock_session_from_parts. */
#include "cases.h"

static crossdock_host_handle* host;
static crossdock_session* session;
static void begin(void) {
  host = new_host();
  session = new_session(host);
}

static void take_apart(crossdock_parts* parts) {
  const crossdock_str paths[] = {crossdock_text(sample)};
  struct ArrowDeviceArrayStream stream;
  OK(crossdock_session_scan(session, paths, 1, NULL, &stream, ERR));
  OK(crossdock_session_to_parts(session, &stream, parts, ERR));
  CHECK(stream.release == NULL && parts->n_buffers > 0 && parts->header_bytes > 0);
}

static int n_freed;
static void free_part(void* data) {
  n_freed++;
  free(data);
}

/* Copies the buffers, as a transport does. */
static crossdock_received* sent(const crossdock_parts* parts) {
  crossdock_received* buffers = calloc(parts->n_buffers, sizeof *buffers);
  for (size_t i = 0; i < parts->n_buffers; i++) {
    void* copy = malloc(parts->buffers[i].bytes);
    memcpy(copy, parts->buffers[i].data, parts->buffers[i].bytes);
    buffers[i] = (crossdock_received){sizeof *buffers, copy, parts->buffers[i].bytes, free_part, copy};
  }
  return buffers;
}

static void table_is_rebuilt_from_its_parts(void) {
  begin();
  crossdock_parts parts = {.struct_size = sizeof parts};
  take_apart(&parts);
  crossdock_received* buffers = sent(&parts);
  struct ArrowDeviceArrayStream stream;
  OK(crossdock_session_from_parts(session, parts.header, parts.header_bytes, buffers, parts.n_buffers, &stream, ERR));
  struct ArrowSchema schema;
  CHECK(stream.get_schema(&stream, &schema) == 0 && schema.n_children == 21);
  schema.release(&schema);
  int64_t rows = 0;
  for (;;) {
    struct ArrowDeviceArray batch = {0};
    CHECK(stream.get_next(&stream, &batch) == 0);
    if (!batch.array.release) break;
    rows += batch.array.length;
    batch.array.release(&batch.array);
  }
  stream.release(&stream);
  CHECK(rows == SAMPLE_ROWS && n_freed == (int)parts.n_buffers);
  /* The parts equal those of the same table. */
  crossdock_parts again = {.struct_size = sizeof again};
  take_apart(&again);
  CHECK(again.header_bytes == parts.header_bytes && memcmp(again.header, parts.header, parts.header_bytes) == 0);
  again.release(&again);
  CHECK(again.release == NULL && again.buffers == NULL);
  parts.release(&parts);
  free(buffers);
  end(host, session);
}

static void damaged_parts_are_released_and_rejected(void) {
  begin();
  crossdock_parts parts = {.struct_size = sizeof parts};
  take_apart(&parts);
  crossdock_received* buffers = sent(&parts);
  const size_t n = parts.n_buffers;
  struct ArrowDeviceArrayStream stream;
  n_freed = 0;
  FAILS(CROSSDOCK_BAD_DATA, "buffers, got",
        crossdock_session_from_parts(session, parts.header, parts.header_bytes, buffers, n - 1, &stream, ERR));
  CHECK(n_freed == (int)n - 1);
  free((void*)buffers[n - 1].data);
  free(buffers);
  buffers = sent(&parts);
  FAILS(CROSSDOCK_BAD_DATA, "not the header of parts",
        crossdock_session_from_parts(session, "no header", 9, buffers, n, &stream, ERR));
  CHECK(n_freed == 2 * (int)n - 1);
  free(buffers);
  buffers = sent(&parts);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "header is NULL",
        crossdock_session_from_parts(session, NULL, 0, buffers, n, &stream, ERR));
  CHECK(n_freed == 3 * (int)n - 1);
  free(buffers);
  buffers = sent(&parts);
  char* version = malloc(parts.header_bytes);
  memcpy(version, parts.header, parts.header_bytes);
  version[8] = 9;
  FAILS(CROSSDOCK_UNSUPPORTED, "version 9",
        crossdock_session_from_parts(session, version, parts.header_bytes, buffers, n, &stream, ERR));
  free(version);
  buffers[0].data = NULL;
  n_freed = 0;
  free(buffers);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the stream is NULL", crossdock_session_to_parts(session, NULL, &parts, ERR));
  const crossdock_received one = {sizeof one, NULL, 8, NULL, NULL};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "buffer 0: 8 bytes at 0x0",
        crossdock_session_from_parts(session, parts.header, parts.header_bytes, &one, 1, &stream, ERR));
  parts.release(&parts);
  end(host, session);
}

const struct test_case parts_cases[] = {
    {"table_is_rebuilt_from_its_parts", table_is_rebuilt_from_its_parts},
    {"damaged_parts_are_released_and_rejected", damaged_parts_are_released_and_rejected},
    {NULL, NULL},
};
