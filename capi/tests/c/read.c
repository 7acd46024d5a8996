/* crossdock_session_read_*. */
#include "cases.h"

static crossdock_host_handle* host;
static crossdock_session* session;
static void begin(void) {
  host = new_host();
  session = new_session(host);
  n_released = 0;
}

static crossdock_read_settings as(const char* format) {
  crossdock_read_settings settings = {.struct_size = sizeof settings};
  settings.format = crossdock_text(format);
  return settings;
}

static void a_path_becomes_batches(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  struct ArrowSchema schema;
  OK(stream.get_schema(&stream, &schema, ERR));
  CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == 21);
  schema.release(&schema);
  CHECK(count_rows(&stream) == SAMPLE_ROWS);
  crossdock_read_settings settings = as("arrow-ipc");
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  CHECK(count_rows(&stream) == SAMPLE_ROWS);
  end(host, session);
}

static void the_end_stays_the_end(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  crossdock_batch_stream moved = stream;
  stream.release = NULL;
  int batches = 0;
  for (int ends = 0; ends < 2;) {
    crossdock_batch batch = BATCH;
    OK(moved.get_next(&moved, NULL, &batch, ERR));
    if (batch.array.array.release) {
      CHECK(ends == 0);
      batches++;
      batch.array.array.release(&batch.array.array);
    } else {
      ends++;
    }
  }
  CHECK(batches == 4);
  moved.release(&moved);
  end(host, session);
}

static void null_is_an_invalid_argument(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  crossdock_str path = crossdock_text(sample);
  crossdock_read_settings settings = as("arrow-c-data");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the session is NULL",
        crossdock_session_read_path(NULL, path, NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_session_read_path(session, path, NULL, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "path", crossdock_session_read_path(session, crossdock_text(""), NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no range",
        crossdock_session_read_bytes(session, NULL, 5, NULL, NULL, NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the source is NULL",
        crossdock_session_read_source(session, NULL, NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no capsules",
        crossdock_session_read_capsules(session, NULL, 0, &settings, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "not plausible",
        crossdock_session_read_capsules(session, NULL, 1, &settings, &stream, ERR));
  settings.n_options = 1;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "options", crossdock_session_read_path(session, path, &settings, &stream, ERR));
  CHECK(!stream.release);

  OK(crossdock_session_read_path(session, path, NULL, &stream, ERR));
  crossdock_batch batch = BATCH;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", stream.get_schema(&stream, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", stream.get_next(&stream, NULL, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "NULL", stream.get_next(NULL, NULL, &batch, ERR));
  stream.release(&stream);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "released", stream.get_next(&stream, NULL, &batch, ERR));
  end(host, session);
}

static void what_cannot_be_read_says_so(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  FAILS(CROSSDOCK_IO, "nowhere.arrow",
        crossdock_session_read_path(session, crossdock_text(in_folder("nowhere.arrow")), NULL, &stream, ERR));
  FAILS(CROSSDOCK_IO, "cannot open", crossdock_session_read_path(session, crossdock_text(folder), NULL, &stream, ERR));
  const char garbage[] = "neither fish nor flesh";
  FAILS(CROSSDOCK_UNSUPPORTED, "no plugin recognises",
        crossdock_session_read_bytes(session, garbage, sizeof garbage, NULL, NULL, NULL, &stream, ERR));
  crossdock_read_settings settings = as("arrow-ipc-file");
  FAILS(CROSSDOCK_BAD_DATA, "arrow-ipc",
        crossdock_session_read_bytes(session, garbage, sizeof garbage, NULL, NULL, &settings, &stream, ERR));
  settings = as("no-such-format");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no-such-format",
        crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  settings = as("arrow-ipc");
  crossdock_option option = {crossdock_text("colour"), crossdock_text("red")};
  settings.options = &option;
  settings.n_options = 1;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "colour",
        crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  settings.struct_size = offsetof(crossdock_read_settings, options);
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  CHECK(count_rows(&stream) == SAMPLE_ROWS);
  end(host, session);
}

static void a_calls_cancel_flag_stops_one_call(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  uint32_t cancel = 1;
  crossdock_call call = {.struct_size = sizeof call, .cancel = &cancel};
  crossdock_batch batch = BATCH;
  FAILS(CROSSDOCK_CANCELLED, "cancelled", stream.get_next(&stream, &call, &batch, ERR));
  call.struct_size = offsetof(crossdock_call, cancel); /* it does not tell of a flag */
  OK(stream.get_next(&stream, &call, &batch, ERR));
  batch.array.array.release(&batch.array.array);
  call.struct_size = sizeof call;
  cancel = 0;
  OK(stream.get_next(&stream, &call, &batch, ERR));
  batch.array.array.release(&batch.array.array);
  CHECK(count_rows(&stream) == SAMPLE_ROWS - 2 * 8192);
  end(host, session);
}

static atomic_int progress_calls;
static _Atomic uint64_t progress_total, progress_last;
static void on_progress(void* data, uint64_t done, uint64_t total) {
  CHECK(data == &progress_calls);
  progress_calls++;
  progress_total = total;
  if (done > progress_last) progress_last = done;
}

static void progress_is_told_in_bytes(void) {
  begin();
  size_t bytes;
  free(load(sample, &bytes));
  progress_calls = 0;
  crossdock_read_settings settings = as("");
  settings.progress = on_progress;
  settings.progress_data = &progress_calls;
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  count_rows(&stream);
  CHECK(progress_calls > 0 && progress_total == bytes && progress_last <= bytes && progress_last > bytes / 2);
  end(host, session);
}

static void free_bytes(void* data) {
  free(data);
  n_released++;
}

static void lent_bytes_are_given_back_with_the_last_batch(void) {
  begin();
  /* Not compressed, so that batches lie in the bytes. */
  crossdock_option none = {crossdock_text("compression"), crossdock_text("none")};
  crossdock_convert_settings how = {.struct_size = sizeof how, .write_options = &none, .n_write_options = 1};
  const char* plain = in_folder("plain.arrow");
  OK(crossdock_session_convert(session, crossdock_text(sample), crossdock_text(plain), &how, NULL, ERR));
  size_t bytes;
  char* data = load(plain, &bytes);
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_bytes(session, data, bytes, free_bytes, data, NULL, &stream, ERR));
  crossdock_batch batch = BATCH;
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  const char* values = batch.array.array.children[0]->buffers[1];
  CHECK(values >= data && values < data + bytes);
  CHECK(count_rows(&stream) == SAMPLE_ROWS - 8192);
  CHECK(n_released == 0);
  batch.array.array.release(&batch.array.array);
  end(host, session);
  CHECK(n_released == 1);
}

static void lent_bytes_are_given_back_on_failure(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  FAILS(CROSSDOCK_UNSUPPORTED, "recognises",
        crossdock_session_read_bytes(session, "abc", 3, free_bytes, malloc(1), NULL, &stream, ERR));
  CHECK(n_released == 1);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "session is NULL",
        crossdock_session_read_bytes(NULL, "abc", 3, free_bytes, malloc(1), NULL, &stream, ERR));
  CHECK(n_released == 2);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL",
        crossdock_session_read_bytes(session, "abc", 3, free_bytes, malloc(1), NULL, NULL, ERR));
  CHECK(n_released == 3);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no range",
        crossdock_session_read_bytes(session, NULL, 3, free_bytes, malloc(1), NULL, &stream, ERR));
  CHECK(n_released == 4);
  end(host, session);
}

/* A source over bytes in memory. */
struct source {
  char* data;
  size_t bytes, position;
  bool in_order, fails;
  atomic_int reads, maps, released;
};

static crossdock_code read_at(crossdock_source* source, uint64_t offset, void* to, size_t bytes, size_t* out_read,
                              crossdock_error* err) {
  struct source* own = source->private_data;
  own->reads++;
  if (own->fails && offset + bytes > own->bytes / 2) {
    err->code = CROSSDOCK_IO;
    err->message = "the tape is torn";
    return CROSSDOCK_IO;
  }
  if (own->in_order) {
    CHECK(offset == own->position);
    if (bytes > 1000) bytes = 1000; /* as a pipe does */
  }
  size_t n = offset > own->bytes ? 0 : own->bytes - offset;
  if (n > bytes) n = bytes;
  memcpy(to, own->data + offset, n);
  own->position = offset + n;
  *out_read = n;
  return CROSSDOCK_OK;
}

static void release_source(crossdock_source* source) {
  ((struct source*)source->private_data)->released++;
  source->release = NULL;
}

static void retain_map(void* private) { ((struct source*)private)->maps++; }
static void release_map(void* private) { ((struct source*)private)->maps--; }

static crossdock_source source_of(struct source* own, const char* path) {
  memset(own, 0, sizeof *own);
  own->data = load(path, &own->bytes);
  crossdock_source source = {.struct_size = sizeof source};
  source.bytes = (int64_t)own->bytes;
  source.name = crossdock_text("the tape");
  source.read_at = read_at;
  source.release = release_source;
  source.private_data = own;
  return source;
}

static void a_source_of_the_callers_is_read_and_released(void) {
  begin();
  struct source own;
  crossdock_source source = source_of(&own, sample);
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_source(session, &source, NULL, &stream, ERR));
  CHECK(!source.release);
  CHECK(count_rows(&stream) == SAMPLE_ROWS && own.reads > 0);
  end(host, session);
  CHECK(own.released == 1);
  free(own.data);
}

static void a_source_in_memory_is_used_in_place(void) {
  begin();
  struct source own;
  crossdock_option none = {crossdock_text("compression"), crossdock_text("none")};
  crossdock_convert_settings how = {.struct_size = sizeof how, .write_options = &none, .n_write_options = 1};
  const char* plain = in_folder("plain.arrow");
  OK(crossdock_session_convert(session, crossdock_text(sample), crossdock_text(plain), &how, NULL, ERR));
  crossdock_source source = source_of(&own, plain);
  source.map = own.data;
  source.map_private = &own;
  source.retain_map = retain_map;
  source.release_map = release_map;
  own.maps = 1; /* the source's own share, which its release gives back */
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_source(session, &source, NULL, &stream, ERR));
  crossdock_batch batch = BATCH;
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  const char* values = batch.array.array.children[0]->buffers[1];
  CHECK(values >= own.data && values < own.data + own.bytes);
  stream.release(&stream);
  CHECK(own.maps > 1);
  batch.array.array.release(&batch.array.array);
  end(host, session);
  CHECK(own.released == 1 && own.maps == 1);
  free(own.data);
}

static void a_source_without_a_length_is_read_in_order(void) {
  begin();
  struct source own;
  for (int named = 0; named < 2; named++) {
    crossdock_source source = source_of(&own, converted(session, "ordered.arrows"));
    source.bytes = -1;
    own.in_order = true;
    crossdock_read_settings settings = as(named ? "arrow-ipc-stream" : "");
    crossdock_batch_stream stream = STREAM;
    OK(crossdock_session_read_source(session, &source, &settings, &stream, ERR));
    CHECK(count_rows(&stream) == SAMPLE_ROWS);
    crossdock_leaks leaks = LEAKS;
    OK(crossdock_host_settle(host, &leaks, ERR));
    leaks.release(&leaks);
    CHECK(own.released == 1);
    free(own.data);
  }
  end(host, session);
}

static void a_source_that_fails_is_heard(void) {
  begin();
  struct source own;
  const char* streamed = converted(session, "torn.arrows");
  for (int in_order = 0; in_order < 2; in_order++) {
    crossdock_source source = source_of(&own, streamed);
    if (in_order) source.bytes = -1;
    own.in_order = in_order;
    own.fails = true;
    crossdock_batch_stream stream = STREAM;
    crossdock_error err = CROSSDOCK_ERROR_INIT;
    crossdock_code code = crossdock_session_read_source(session, &source, NULL, &stream, &err);
    while (code == CROSSDOCK_OK) {
      crossdock_batch batch = BATCH;
      code = stream.get_next(&stream, NULL, &batch, &err);
      CHECK(code != CROSSDOCK_OK || batch.array.array.release);
      if (batch.array.array.release) batch.array.array.release(&batch.array.array);
    }
    check_failure(__FILE__, __LINE__, CROSSDOCK_IO, "the tape is torn", code, &err);
    if (stream.release) stream.release(&stream);
    crossdock_leaks leaks = LEAKS;
    OK(crossdock_host_settle(host, &leaks, ERR));
    leaks.release(&leaks);
    CHECK(own.released == 1);
    free(own.data);
  }
  end(host, session);
}

static void a_source_is_taken_on_failure_too(void) {
  begin();
  struct source own;
  crossdock_batch_stream stream = STREAM;
  crossdock_source source = source_of(&own, sample), again = source;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "session is NULL",
        crossdock_session_read_source(NULL, &source, NULL, &stream, ERR));
  CHECK(!source.release && own.released == 1);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "released", crossdock_session_read_source(session, &source, NULL, &stream, ERR));
  again.read_at = NULL;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "read_at", crossdock_session_read_source(session, &again, NULL, &stream, ERR));
  CHECK(own.released == 2);
  free(own.data);
  end(host, session);
}

static const int64_t numbers[3] = {1, -2, 3};

static void capsules_become_batches_in_place(void) {
  begin();
  struct ArrowSchema schema;
  struct ArrowArray array;
  make_schema(&schema);
  make_array(&array, numbers, 3);
  crossdock_capsule capsules[2] = {make_capsule("arrow_schema", &schema), make_capsule("arrow_array", &array)};
  crossdock_read_settings settings = as("arrow-c-data");
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_capsules(session, capsules, 2, &settings, &stream, ERR));
  CHECK(!capsules[0].release && !capsules[1].release && !schema.release && !array.release);
  crossdock_batch batch = BATCH;
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  CHECK(batch.array.array.length == 3 && values_of(&batch.array.array) == numbers);
  CHECK(count_rows(&stream) == 0);
  batch.array.array.release(&batch.array.array);
  end(host, session);
  CHECK(n_released == 2);
}

static void capsules_in_host_memory_arrive_on_the_session_s_device(void) {
  crossdock_str given = crossdock_text(plugins);
  crossdock_host_settings all = {.struct_size = sizeof all, .plugins = &given, .n_plugins = 1};
  all.flags = CROSSDOCK_HOST_ONLY_GIVEN | CROSSDOCK_HOST_UNTOUCHABLE;
  crossdock_session_settings on = {.struct_size = sizeof on};
  on.device.type = ARROW_DEVICE_EXT_DEV;
  crossdock_host_handle* host = NULL;
  crossdock_session* session = NULL;
  OK(crossdock_host_create(&all, &host, ERR));
  OK(crossdock_session_create(host, &on, &session, ERR));
  struct ArrowSchema schema;
  struct ArrowArray array;
  make_schema(&schema);
  make_array(&array, numbers, 3);
  crossdock_capsule capsules[2] = {make_capsule("arrow_schema", &schema), make_capsule("arrow_array", &array)};
  crossdock_read_settings settings = as("arrow-c-data");
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_capsules(session, capsules, 2, &settings, &stream, ERR));
  crossdock_batch batch = BATCH;
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  CHECK(batch.array.device_type == ARROW_DEVICE_EXT_DEV && batch.array.array.length == 3);
  batch.array.array.release(&batch.array.array);
  stream.release(&stream);
  end(host, session);
}

static void a_schema_of_the_callers_serves_capsules_without_one(void) {
  begin();
  struct ArrowSchema schema;
  struct ArrowArray array;
  make_schema(&schema);
  make_array(&array, numbers, 3);
  crossdock_capsule capsule = make_capsule("arrow_array", &array);
  crossdock_read_settings settings = as("arrow-c-data");
  crossdock_batch_stream stream = STREAM;
  settings.schema = &schema;
  OK(crossdock_session_read_capsules(session, &capsule, 1, &settings, &stream, ERR));
  CHECK(schema.release && count_rows(&stream) == 3);
  make_array(&array, numbers, 3);
  capsule = make_capsule("arrow_array", &array);
  schema.children[0]->format = "u";
  settings.format = crossdock_text("arrow-c-data");
  OK(crossdock_session_read_capsules(session, &capsule, 1, &settings, &stream, ERR));
  crossdock_batch batch = BATCH;
  FAILS(CROSSDOCK_BAD_DATA, "buffers", stream.get_next(&stream, NULL, &batch, ERR));
  stream.release(&stream);
  schema.release(&schema);
  end(host, session);
  CHECK(n_released == 3);
}

static void capsules_are_taken_on_failure_too(void) {
  begin();
  struct ArrowSchema schema;
  struct ArrowArray array;
  crossdock_batch_stream stream = STREAM;
  const char* formats[] = {"", "no-such-format", "arrow-ipc", "arrow-c-stream", "arrow-c-data", "arrow-c-data"};
  const char* words[] = {"no format", "no-such-format", "arrow-ipc", "expected one stream", "expected 'arrow_array'",
                         "released"};
  for (int i = 0; i < 6; i++) {
    crossdock_read_settings settings = as(formats[i]);
    make_schema(&schema);
    make_array(&array, numbers, 3);
    crossdock_capsule capsules[2] = {make_capsule("arrow_schema", &schema),
                                     make_capsule(i == 4 ? "some_array" : "arrow_array", &array)};
    if (i == 5) {
      capsules[1].release(&capsules[1]);
      CHECK(n_released == 11);
    }
    FAILS(CROSSDOCK_INVALID_ARGUMENT, words[i],
          crossdock_session_read_capsules(session, capsules, 2, &settings, &stream, ERR));
    CHECK(!capsules[0].release && !capsules[1].release);
  }
  end(host, session);
  CHECK(n_released == 12);
}

const struct test_case read_cases[] = {
    {"a_path_becomes_batches", a_path_becomes_batches},
    {"the_end_stays_the_end", the_end_stays_the_end},
    {"null_is_an_invalid_argument_to_reading", null_is_an_invalid_argument},
    {"what_cannot_be_read_says_so", what_cannot_be_read_says_so},
    {"a_calls_cancel_flag_stops_one_call", a_calls_cancel_flag_stops_one_call},
    {"progress_is_told_in_bytes", progress_is_told_in_bytes},
    {"lent_bytes_are_given_back_with_the_last_batch", lent_bytes_are_given_back_with_the_last_batch},
    {"lent_bytes_are_given_back_on_failure", lent_bytes_are_given_back_on_failure},
    {"a_source_of_the_callers_is_read_and_released", a_source_of_the_callers_is_read_and_released},
    {"a_source_in_memory_is_used_in_place", a_source_in_memory_is_used_in_place},
    {"a_source_without_a_length_is_read_in_order", a_source_without_a_length_is_read_in_order},
    {"a_source_that_fails_is_heard", a_source_that_fails_is_heard},
    {"a_source_is_taken_on_failure_too", a_source_is_taken_on_failure_too},
    {"capsules_become_batches_in_place", capsules_become_batches_in_place},
    {"capsules_in_host_memory_arrive_on_the_session_s_device", capsules_in_host_memory_arrive_on_the_session_s_device},
    {"a_schema_of_the_callers_serves_capsules_without_one", a_schema_of_the_callers_serves_capsules_without_one},
    {"capsules_are_taken_on_failure_too", capsules_are_taken_on_failure_too},
    {NULL, NULL},
};
