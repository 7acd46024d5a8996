/* Cases of crossdock_session_read_*. */
#include "cases.h"

static crossdock_host_handle* host;
static crossdock_session* session;
static void begin(void) {
  host = new_host();
  session = new_session(host);
  n_released = 0;
}

static crossdock_read_settings read_settings(const char* format) {
  crossdock_read_settings settings = {.struct_size = sizeof settings};
  settings.format = crossdock_text(format);
  return settings;
}

static void read_path_returns_all_batches(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  struct ArrowSchema schema;
  OK(stream.get_schema(&stream, &schema, ERR));
  CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == 21);
  schema.release(&schema);
  CHECK(count_rows(&stream) == SAMPLE_ROWS);
  crossdock_read_settings settings = read_settings("arrow-ipc");
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  CHECK(count_rows(&stream) == SAMPLE_ROWS);
  end(host, session);
}

static void get_next_returns_the_end_again(void) {
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

static void rejects_null_arguments(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  crossdock_str path = crossdock_text(sample);
  crossdock_read_settings settings = read_settings("arrow-c-data");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the session is NULL",
        crossdock_session_read_path(NULL, path, NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_session_read_path(session, path, NULL, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "path", crossdock_session_read_path(session, crossdock_text(""), NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "not a valid range",
        crossdock_session_read_bytes(session, NULL, 5, NULL, NULL, NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the source is NULL",
        crossdock_session_read_source(session, NULL, NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "n_capsules is 0",
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

static void reports_why_an_input_cannot_be_read(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  FAILS(CROSSDOCK_IO, "nowhere.arrow",
        crossdock_session_read_path(session, crossdock_text(in_folder("nowhere.arrow")), NULL, &stream, ERR));
  FAILS(CROSSDOCK_IO, "cannot open", crossdock_session_read_path(session, crossdock_text(folder), NULL, &stream, ERR));
  const char garbage[] = "no table";
  FAILS(CROSSDOCK_UNSUPPORTED, "no plugin recognises",
        crossdock_session_read_bytes(session, garbage, sizeof garbage, NULL, NULL, NULL, &stream, ERR));
  crossdock_read_settings settings = read_settings("arrow-ipc-file");
  FAILS(CROSSDOCK_BAD_DATA, "arrow-ipc",
        crossdock_session_read_bytes(session, garbage, sizeof garbage, NULL, NULL, &settings, &stream, ERR));
  settings = read_settings("no-such-format");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no-such-format",
        crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  settings = read_settings("arrow-ipc");
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

static void cancel_flag_of_a_call_cancels_that_call_only(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  crossdock_cancel cancel = {.is_set = 1, .struct_size = sizeof cancel};
  crossdock_call call = {.struct_size = sizeof call, .cancel = &cancel};
  crossdock_batch batch = BATCH;
  FAILS(CROSSDOCK_CANCELLED, "cancelled", stream.get_next(&stream, &call, &batch, ERR));
  call.struct_size = offsetof(crossdock_call, cancel); /* does not cover the field `cancel` */
  OK(stream.get_next(&stream, &call, &batch, ERR));
  batch.array.array.release(&batch.array.array);
  call.struct_size = sizeof call;
  cancel.is_set = 0;
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

static void progress_reports_bytes(void) {
  begin();
  size_t bytes;
  free(load(sample, &bytes));
  progress_calls = 0;
  crossdock_read_settings settings = read_settings("");
  settings.progress = on_progress;
  settings.progress_data = &progress_calls;
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  count_rows(&stream);
  CHECK(progress_calls > 0 && progress_total == bytes && progress_last <= bytes && progress_last > bytes / 2);
  end(host, session);
}

static void only_requested_columns_and_rows_are_read(void) {
  begin();
  crossdock_str distance = crossdock_text("distance"), year = crossdock_text("year"), none = crossdock_text("none");
  crossdock_path columns[] = {{&distance, 1}, {&year, 1}};
  crossdock_row_range rows[] = {{5, 10}, {20000, UINT64_MAX}};
  crossdock_read_settings settings = read_settings("");
  settings.flags = CROSSDOCK_READ_COLUMNS | CROSSDOCK_READ_ROWS;
  settings.columns = columns;
  settings.n_columns = 2;
  settings.rows = rows;
  settings.n_rows = 2;
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  struct ArrowSchema schema = {0};
  OK(stream.get_schema(&stream, &schema, ERR));
  CHECK(schema.n_children == 2);
  CHECK(strcmp(schema.children[0]->name, "distance") == 0 && strcmp(schema.children[1]->name, "year") == 0);
  schema.release(&schema);
  CHECK(count_rows(&stream) == 5 + SAMPLE_ROWS - 20000);

  settings.flags |= CROSSDOCK_READ_LIMIT;
  settings.limit = 7;
  settings.batch_rows = 1;
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  CHECK(count_rows(&stream) == 7);

  crossdock_str filters[] = {crossdock_text("distance >= 2500"), crossdock_text("month = 1")};
  settings.flags = CROSSDOCK_READ_COLUMNS;
  settings.filters = filters;
  settings.n_filters = 2;
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  uint64_t far = count_rows(&stream);
  CHECK(far > 0 && far < SAMPLE_ROWS);
  settings.flags |= CROSSDOCK_READ_LIMIT;
  settings.limit = far - 1;
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  CHECK(count_rows(&stream) == (int64_t)far - 1);
  filters[0] = crossdock_text("distance");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "'distance' is not a filter",
        crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  settings.n_filters = 0;
  settings.flags = CROSSDOCK_READ_COLUMNS | CROSSDOCK_READ_ROWS;

  columns[1].names = &none;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "there is no column 'none'",
        crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  rows[1].begin = 9;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "ascending",
        crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  settings.flags = 8;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "0x8",
        crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  settings.flags = CROSSDOCK_READ_ROWS;
  settings.rows = NULL;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "list of 2 row ranges",
        crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  end(host, session);
}

static void free_bytes(void* data) {
  free(data);
  n_released++;
}

static void bytes_are_released_with_the_last_batch(void) {
  begin();
  /* The file is uncompressed, so that batches use the bytes in place. */
  crossdock_option none = {crossdock_text("compression"), crossdock_text("none")};
  crossdock_convert_settings convert = {.struct_size = sizeof convert, .write_options = &none, .n_write_options = 1};
  const char* plain = in_folder("plain.arrow");
  OK(crossdock_session_convert(session, crossdock_text(sample), crossdock_text(plain), &convert, NULL, ERR));
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

static void bytes_are_released_on_failure(void) {
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
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "not a valid range",
        crossdock_session_read_bytes(session, NULL, 3, free_bytes, malloc(1), NULL, &stream, ERR));
  CHECK(n_released == 4);
  end(host, session);
}

/* A source that reads bytes in memory. */
struct source {
  char* data;
  size_t bytes, position;
  bool in_order, fails;
  atomic_int reads, maps, released;
};

static crossdock_code read_at(crossdock_source* source, uint64_t offset, void* to, size_t bytes, size_t* out_read,
                              crossdock_error* err) {
  struct source* state = source->private_data;
  state->reads++;
  if (state->fails && offset + bytes > state->bytes / 2) {
    err->code = CROSSDOCK_IO;
    err->message = "read error";
    return CROSSDOCK_IO;
  }
  if (state->in_order) {
    CHECK(offset == state->position);
    if (bytes > 1000) bytes = 1000; /* returns fewer bytes than requested, like a pipe */
  }
  size_t n = offset > state->bytes ? 0 : state->bytes - offset;
  if (n > bytes) n = bytes;
  memcpy(to, state->data + offset, n);
  state->position = offset + n;
  *out_read = n;
  return CROSSDOCK_OK;
}

static void release_source(crossdock_source* source) {
  ((struct source*)source->private_data)->released++;
  source->release = NULL;
}

static void retain_map(void* private) { ((struct source*)private)->maps++; }
static void release_map(void* private) { ((struct source*)private)->maps--; }

static crossdock_source source_of(struct source* state, const char* path) {
  memset(state, 0, sizeof *state);
  state->data = load(path, &state->bytes);
  crossdock_source source = {.struct_size = sizeof source};
  source.bytes = (int64_t)state->bytes;
  source.name = crossdock_text("the source");
  source.read_at = read_at;
  source.release = release_source;
  source.private_data = state;
  return source;
}

static void source_is_read_and_released(void) {
  begin();
  struct source state;
  crossdock_source source = source_of(&state, sample);
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_source(session, &source, NULL, &stream, ERR));
  CHECK(!source.release);
  CHECK(count_rows(&stream) == SAMPLE_ROWS && state.reads > 0);
  end(host, session);
  CHECK(state.released == 1);
  free(state.data);
}

static void mapped_source_is_not_copied(void) {
  begin();
  struct source state;
  crossdock_option none = {crossdock_text("compression"), crossdock_text("none")};
  crossdock_convert_settings convert = {.struct_size = sizeof convert, .write_options = &none, .n_write_options = 1};
  const char* plain = in_folder("plain.arrow");
  OK(crossdock_session_convert(session, crossdock_text(sample), crossdock_text(plain), &convert, NULL, ERR));
  crossdock_source source = source_of(&state, plain);
  source.map = state.data;
  source.map_private = &state;
  source.retain_map = retain_map;
  source.release_map = release_map;
  state.maps = 1; /* the source has one reference, which its `release` drops */
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_source(session, &source, NULL, &stream, ERR));
  crossdock_batch batch = BATCH;
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  const char* values = batch.array.array.children[0]->buffers[1];
  CHECK(values >= state.data && values < state.data + state.bytes);
  stream.release(&stream);
  CHECK(state.maps > 1);
  batch.array.array.release(&batch.array.array);
  end(host, session);
  CHECK(state.released == 1 && state.maps == 1);
  free(state.data);
}

static void source_without_length_is_read_in_order(void) {
  begin();
  struct source state;
  for (int named = 0; named < 2; named++) {
    crossdock_source source = source_of(&state, converted(session, "ordered.arrows"));
    source.bytes = -1;
    state.in_order = true;
    crossdock_read_settings settings = read_settings(named ? "arrow-ipc-stream" : "");
    crossdock_batch_stream stream = STREAM;
    OK(crossdock_session_read_source(session, &source, &settings, &stream, ERR));
    CHECK(count_rows(&stream) == SAMPLE_ROWS);
    crossdock_leaks leaks = LEAKS;
    OK(crossdock_host_settle(host, &leaks, ERR));
    leaks.release(&leaks);
    CHECK(state.released == 1);
    free(state.data);
  }
  end(host, session);
}

static void error_of_a_source_is_returned(void) {
  begin();
  struct source state;
  const char* streamed = converted(session, "torn.arrows");
  for (int in_order = 0; in_order < 2; in_order++) {
    crossdock_source source = source_of(&state, streamed);
    if (in_order) source.bytes = -1;
    state.in_order = in_order;
    state.fails = true;
    crossdock_batch_stream stream = STREAM;
    crossdock_error err = CROSSDOCK_ERROR_INIT;
    crossdock_code code = crossdock_session_read_source(session, &source, NULL, &stream, &err);
    while (code == CROSSDOCK_OK) {
      crossdock_batch batch = BATCH;
      code = stream.get_next(&stream, NULL, &batch, &err);
      CHECK(code != CROSSDOCK_OK || batch.array.array.release);
      if (batch.array.array.release) batch.array.array.release(&batch.array.array);
    }
    check_failure(__FILE__, __LINE__, CROSSDOCK_IO, "read error", code, &err);
    if (stream.release) stream.release(&stream);
    crossdock_leaks leaks = LEAKS;
    OK(crossdock_host_settle(host, &leaks, ERR));
    leaks.release(&leaks);
    CHECK(state.released == 1);
    free(state.data);
  }
  end(host, session);
}

static void source_is_released_on_failure(void) {
  begin();
  struct source state;
  crossdock_batch_stream stream = STREAM;
  crossdock_source source = source_of(&state, sample), again = source;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "session is NULL",
        crossdock_session_read_source(NULL, &source, NULL, &stream, ERR));
  CHECK(!source.release && state.released == 1);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "released", crossdock_session_read_source(session, &source, NULL, &stream, ERR));
  again.read_at = NULL;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "read_at", crossdock_session_read_source(session, &again, NULL, &stream, ERR));
  CHECK(state.released == 2);
  free(state.data);
  end(host, session);
}

static const int64_t numbers[3] = {1, -2, 3};

static void capsules_are_read_without_a_copy(void) {
  begin();
  struct ArrowSchema schema;
  struct ArrowArray array;
  make_schema(&schema);
  make_array(&array, numbers, 3);
  crossdock_capsule capsules[2] = {make_capsule("arrow_schema", &schema), make_capsule("arrow_array", &array)};
  crossdock_read_settings settings = read_settings("arrow-c-data");
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

static void capsules_in_host_memory_are_moved_to_the_device_of_the_session(void) {
  crossdock_str path = crossdock_text(plugins);
  crossdock_host_settings host_settings = {.struct_size = sizeof host_settings, .plugins = &path, .n_plugins = 1};
  host_settings.flags = CROSSDOCK_HOST_ONLY_GIVEN | CROSSDOCK_HOST_UNTOUCHABLE;
  crossdock_session_settings session_settings = {.struct_size = sizeof session_settings};
  session_settings.device.type = ARROW_DEVICE_EXT_DEV;
  crossdock_host_handle* host = NULL;
  crossdock_session* session = NULL;
  OK(crossdock_host_create(&host_settings, &host, ERR));
  OK(crossdock_session_create(host, &session_settings, &session, ERR));
  struct ArrowSchema schema;
  struct ArrowArray array;
  make_schema(&schema);
  make_array(&array, numbers, 3);
  crossdock_capsule capsules[2] = {make_capsule("arrow_schema", &schema), make_capsule("arrow_array", &array)};
  crossdock_read_settings settings = read_settings("arrow-c-data");
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_capsules(session, capsules, 2, &settings, &stream, ERR));
  crossdock_batch batch = BATCH;
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  CHECK(batch.array.device_type == ARROW_DEVICE_EXT_DEV && batch.array.array.length == 3);
  batch.array.array.release(&batch.array.array);
  stream.release(&stream);
  end(host, session);
}

static void settings_provide_the_schema_of_capsules(void) {
  begin();
  struct ArrowSchema schema;
  struct ArrowArray array;
  make_schema(&schema);
  make_array(&array, numbers, 3);
  crossdock_capsule capsule = make_capsule("arrow_array", &array);
  crossdock_read_settings settings = read_settings("arrow-c-data");
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

static void capsules_are_released_on_failure(void) {
  begin();
  struct ArrowSchema schema;
  struct ArrowArray array;
  crossdock_batch_stream stream = STREAM;
  const char* formats[] = {"", "no-such-format", "arrow-ipc", "arrow-c-stream", "arrow-c-data", "arrow-c-data"};
  const char* words[] = {"no format", "no-such-format", "arrow-ipc", "expected one stream", "expected 'arrow_array'",
                         "released"};
  for (int i = 0; i < 6; i++) {
    crossdock_read_settings settings = read_settings(formats[i]);
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
    {"read_path_returns_all_batches", read_path_returns_all_batches},
    {"get_next_returns_the_end_again", get_next_returns_the_end_again},
    {"reading_rejects_null_arguments", rejects_null_arguments},
    {"reports_why_an_input_cannot_be_read", reports_why_an_input_cannot_be_read},
    {"cancel_flag_of_a_call_cancels_that_call_only", cancel_flag_of_a_call_cancels_that_call_only},
    {"progress_reports_bytes", progress_reports_bytes},
    {"only_requested_columns_and_rows_are_read", only_requested_columns_and_rows_are_read},
    {"bytes_are_released_with_the_last_batch", bytes_are_released_with_the_last_batch},
    {"bytes_are_released_on_failure", bytes_are_released_on_failure},
    {"source_is_read_and_released", source_is_read_and_released},
    {"mapped_source_is_not_copied", mapped_source_is_not_copied},
    {"source_without_length_is_read_in_order", source_without_length_is_read_in_order},
    {"error_of_a_source_is_returned", error_of_a_source_is_returned},
    {"source_is_released_on_failure", source_is_released_on_failure},
    {"capsules_are_read_without_a_copy", capsules_are_read_without_a_copy},
    {"capsules_in_host_memory_are_moved_to_the_device_of_the_session", capsules_in_host_memory_are_moved_to_the_device_of_the_session},
    {"settings_provide_the_schema_of_capsules", settings_provide_the_schema_of_capsules},
    {"capsules_are_released_on_failure", capsules_are_released_on_failure},
    {NULL, NULL},
};
