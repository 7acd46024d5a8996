/* Cases of crossdock_session_write_* and crossdock_session_plan. */
#include "cases.h"

static const int64_t numbers[3] = {1, -2, 3};

static crossdock_host_handle* host;
static crossdock_session* session;
static struct ArrowSchema schema;
static void begin(void) {
  host = new_host();
  session = new_session(host);
  n_released = 0;
  make_schema(&schema);
}

static void done(void) {
  schema.release(&schema);
  end(host, session);
}

static crossdock_write_settings write_settings(const char* format) {
  crossdock_write_settings settings = {.struct_size = sizeof settings};
  settings.format = crossdock_text(format);
  return settings;
}

static void file_appears_complete_when_finish_succeeds(void) {
  begin();
  const char* path = in_folder("whole.arrow");
  crossdock_writer writer = WRITER;
  OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &writer, ERR));
  for (int i = 0; i < 3; i++) {
    crossdock_batch batch = make_batch(numbers, 3);
    crossdock_capsules out = CAPSULES;
    OK(writer.write(&writer, NULL, &batch, i ? &out : NULL, ERR));
    CHECK(!batch.array.array.release && !out.release);
  }
  CHECK(!exists(path));
  OK(writer.finish(&writer, NULL, NULL, ERR));
  CHECK(exists(path) && rows_of(session, path) == 9);
  crossdock_batch late = make_batch(numbers, 3);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "finish was called", writer.write(&writer, NULL, &late, NULL, ERR));
  CHECK(!late.array.array.release);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "finish was called", writer.finish(&writer, NULL, NULL, ERR));
  writer.release(&writer);
  CHECK(!writer.release && exists(path));
  done();
}

static void writer_released_early_leaves_no_file(void) {
  begin();
  const char* path = in_folder("abandoned.arrow");
  crossdock_writer writer = WRITER;
  OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &writer, ERR));
  crossdock_batch batch = make_batch(numbers, 3);
  OK(writer.write(&writer, NULL, &batch, NULL, ERR));
  writer.release(&writer);
  CHECK(has_no_file("abandoned"));
  done();
}

static void failed_write_abandons_the_file(void) {
  begin();
  const char* path = in_folder("failed.arrow");
  const char* words[] = {"'n'", "the batch is NULL", "the batch is NULL", "cancelled"};
  crossdock_code codes[] = {CROSSDOCK_INVALID_ARGUMENT, CROSSDOCK_INVALID_ARGUMENT, CROSSDOCK_INVALID_ARGUMENT,
                            CROSSDOCK_CANCELLED};
  for (int i = 0; i < 4; i++) {
    crossdock_writer writer = WRITER;
    OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &writer, ERR));
    crossdock_batch batch = make_batch(numbers, 3);
    OK(writer.write(&writer, NULL, &batch, NULL, ERR));
    batch = make_batch(numbers, 3);
    crossdock_cancel cancel = {.is_set = 1, .struct_size = sizeof cancel};
    crossdock_call call = {.struct_size = sizeof call, .cancel = &cancel};
    if (i == 0) { /* the schema of the batch differs from that of the writer */
      make_schema(&batch.schema);
      batch.schema.children[0]->name = "other";
    }
    if (i == 1) batch.array.array.release(&batch.array.array);
    FAILS(codes[i], words[i], writer.write(&writer, i == 3 ? &call : NULL, i == 2 ? NULL : &batch, NULL, ERR));
    CHECK(i == 2 || (!batch.array.array.release && !batch.schema.release));
    if (i == 2) batch.array.array.release(&batch.array.array);
    batch = make_batch(numbers, 3);
    FAILS(CROSSDOCK_INVALID_ARGUMENT, "an earlier write failed", writer.write(&writer, NULL, &batch, NULL, ERR));
    FAILS(CROSSDOCK_INVALID_ARGUMENT, "an earlier write failed", writer.finish(&writer, NULL, NULL, ERR));
    CHECK(has_no_file("failed"));
    writer.release(&writer);
  }
  done();
  CHECK(n_released == 1 + 4 * 3 + 1);
}

static void batch_may_have_the_same_schema(void) {
  begin();
  crossdock_writer writer = WRITER;
  const char* path = in_folder("same-schema.arrow");
  OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &writer, ERR));
  crossdock_batch batch = make_batch(numbers, 3);
  make_schema(&batch.schema);
  OK(writer.write(&writer, NULL, &batch, NULL, ERR));
  CHECK(!batch.schema.release);
  OK(writer.finish(&writer, NULL, NULL, ERR));
  writer.release(&writer);
  CHECK(rows_of(session, path) == 3);
  done();
}

/* The number of rows is read where it is needed, and compared with the capacity. */
static void batch_has_its_number_of_rows_on_the_device(void) {
  begin();
  static const int64_t two = 2, four = 4, negative = -1;
  static const int64_t* const wrong[] = {&four, &negative};
  const char* path = in_folder("counted.arrow");
  crossdock_writer writer = WRITER;
  OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &writer, ERR));
  crossdock_batch batch = make_batch(numbers, 3);
  batch.n_rows_device = &two;
  uint64_t rows = 0;
  OK(crossdock_session_count_rows(session, &batch, &rows, ERR));
  CHECK(rows == 2 && batch.array.array.release);
  OK(writer.write(&writer, NULL, &batch, NULL, ERR));
  OK(writer.finish(&writer, NULL, NULL, ERR));
  writer.release(&writer);
  CHECK(rows_of(session, path) == 2);
  for (int i = 0; i < 2; i++) {
    batch = make_batch(numbers, 3);
    batch.n_rows_device = wrong[i];
    FAILS(CROSSDOCK_BAD_DATA, i ? "is -1, expected 0 to 3" : "is 4, expected 0 to 3",
          crossdock_session_count_rows(session, &batch, &rows, ERR));
    OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &writer, ERR));
    FAILS(CROSSDOCK_BAD_DATA, "expected 0 to 3", writer.write(&writer, NULL, &batch, NULL, ERR));
    writer.release(&writer);
  }
  batch = make_batch(numbers, 3);
  OK(crossdock_session_count_rows(session, &batch, &rows, ERR));
  CHECK(rows == 3);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_session_count_rows(session, &batch, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "NULL", crossdock_session_count_rows(session, NULL, &rows, ERR));
  batch.array.array.release(&batch.array.array);
  done();
}

static void reports_why_an_output_cannot_be_written(void) {
  begin();
  crossdock_writer writer = WRITER;
  crossdock_str path = crossdock_text(in_folder("refused.arrow"));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the session is NULL",
        crossdock_session_write_path(NULL, path, &schema, NULL, &writer, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the schema is NULL",
        crossdock_session_write_path(session, path, NULL, NULL, &writer, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL",
        crossdock_session_write_path(session, path, &schema, NULL, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "path",
        crossdock_session_write_path(session, crossdock_text(""), &schema, NULL, &writer, ERR));
  FAILS(CROSSDOCK_IO, "nowhere",
        crossdock_session_write_path(session, crossdock_text(in_folder("nowhere/x.arrow")), &schema, NULL, &writer, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "cannot tell the format",
        crossdock_session_write_path(session, crossdock_text(in_folder("refused.xyz")), &schema, NULL, &writer, ERR));
  crossdock_write_settings settings = write_settings("arrow-c-data");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "capsules",
        crossdock_session_write_path(session, path, &schema, &settings, &writer, ERR));
  settings = write_settings("arrow-ipc");
  crossdock_option option = {crossdock_text("compression"), crossdock_text("rar")};
  settings.options = &option;
  settings.n_options = 1;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "rar",
        crossdock_session_write_path(session, path, &schema, &settings, &writer, ERR));
  struct ArrowSchema released = {0};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "released",
        crossdock_session_write_path(session, path, &released, NULL, &writer, ERR));
  CHECK(!writer.release && has_no_file("refused"));
  done();
}

/* A sink in memory that fails after `limit` bytes. */
struct sink {
  char* data;
  size_t bytes, limit;
  int released;
};

static crossdock_code sink_write(crossdock_sink* sink, const void* from, size_t bytes, crossdock_error* err) {
  struct sink* state = sink->private_data;
  if (state->bytes + bytes > state->limit) {
    err->code = CROSSDOCK_IO;
    err->message = "write error";
    return CROSSDOCK_IO;
  }
  state->data = realloc(state->data, state->bytes + bytes + 1);
  CHECK(state->data);
  memcpy(state->data + state->bytes, from, bytes);
  state->bytes += bytes;
  return CROSSDOCK_OK;
}

static void release_sink(crossdock_sink* sink) {
  ((struct sink*)sink->private_data)->released++;
  sink->release = NULL;
}

static crossdock_sink sink_of(struct sink* state, size_t limit, const char* name) {
  memset(state, 0, sizeof *state);
  state->limit = limit;
  crossdock_sink sink = {.struct_size = sizeof sink};
  sink.name = crossdock_text(name);
  sink.write = sink_write;
  sink.release = release_sink;
  sink.private_data = state;
  return sink;
}

static void sink_receives_the_same_bytes_as_a_file(void) {
  begin();
  struct sink state;
  crossdock_sink sink = sink_of(&state, SIZE_MAX, "drain.arrow");
  crossdock_writer writer = WRITER, to_file = WRITER;
  const char* path = in_folder("drained.arrow");
  OK(crossdock_session_write_sink(session, &sink, &schema, NULL, &writer, ERR));
  OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &to_file, ERR));
  CHECK(!sink.release);
  crossdock_batch batch = make_batch(numbers, 3), same = make_batch(numbers, 3);
  OK(writer.write(&writer, NULL, &batch, NULL, ERR));
  OK(to_file.write(&to_file, NULL, &same, NULL, ERR));
  OK(writer.finish(&writer, NULL, NULL, ERR));
  OK(to_file.finish(&to_file, NULL, NULL, ERR));
  CHECK(state.released == 1);
  writer.release(&writer);
  to_file.release(&to_file);
  size_t bytes;
  char* data = load(path, &bytes);
  CHECK(bytes == state.bytes && memcmp(data, state.data, bytes) == 0);
  free(data);
  free(state.data);
  done();
}

static void error_of_a_sink_is_returned(void) {
  begin();
  for (size_t limit = 0; limit < 600; limit += 100) {
    struct sink state;
    crossdock_sink sink = sink_of(&state, limit, "");
    crossdock_write_settings settings = write_settings("arrow-ipc-file");
    crossdock_writer writer = WRITER;
    crossdock_error err = CROSSDOCK_ERROR_INIT;
    crossdock_code code = crossdock_session_write_sink(session, &sink, &schema, &settings, &writer, &err);
    for (int i = 0; i < 3 && code == CROSSDOCK_OK; i++) {
      crossdock_batch batch = make_batch(numbers, 3);
      code = writer.write(&writer, NULL, &batch, NULL, &err);
      CHECK(!batch.array.array.release);
    }
    if (code == CROSSDOCK_OK) code = writer.finish(&writer, NULL, NULL, &err);
    check_failure(__FILE__, __LINE__, CROSSDOCK_IO, "write error", code, &err);
    if (writer.release) {
      FAILS(CROSSDOCK_INVALID_ARGUMENT, "", writer.finish(&writer, NULL, NULL, ERR));
      writer.release(&writer);
    }
    CHECK(state.released == 1);
    free(state.data);
  }
  done();
}

static void sink_is_released_on_failure(void) {
  begin();
  struct sink state;
  crossdock_writer writer = WRITER;
  crossdock_sink sink = sink_of(&state, SIZE_MAX, "drain");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "cannot tell the format",
        crossdock_session_write_sink(session, &sink, &schema, NULL, &writer, ERR));
  CHECK(state.released == 1);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the sink is NULL",
        crossdock_session_write_sink(session, &sink, &schema, NULL, &writer, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the sink is NULL",
        crossdock_session_write_sink(session, NULL, &schema, NULL, &writer, ERR));
  sink = sink_of(&state, SIZE_MAX, "drain.arrow");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the session is NULL",
        crossdock_session_write_sink(NULL, &sink, &schema, NULL, &writer, ERR));
  CHECK(state.released == 1 && !sink.release);
  done();
}

static void capsules_are_written_without_a_copy(void) {
  begin();
  crossdock_write_settings settings = write_settings("arrow-c-device");
  crossdock_writer writer = WRITER;
  OK(crossdock_session_write_capsules(session, &schema, &settings, &writer, ERR));
  crossdock_batch batch = make_batch(numbers, 3);
  crossdock_capsules out = CAPSULES;
  OK(writer.write(&writer, NULL, &batch, &out, ERR));
  CHECK(out.n_capsules == 2 && strcmp(out.capsules[0].name, "arrow_schema") == 0);
  CHECK(strcmp(out.capsules[1].name, "arrow_device_array") == 0);
  struct ArrowDeviceArray* exported = out.capsules[1].pointer;
  struct ArrowDeviceArray moved = *exported; /* like a consumer that moves the array out */
  exported->array.release = NULL;
  CHECK(values_of(&moved.array) == numbers && moved.device_type == ARROW_DEVICE_CPU);
  for (size_t i = 0; i < out.n_capsules; i++) out.capsules[i].release(&out.capsules[i]);
  out.release(&out);
  CHECK(!out.release);
  crossdock_capsules rest = CAPSULES;
  OK(writer.finish(&writer, NULL, &rest, ERR));
  CHECK(!rest.release);
  writer.release(&writer);
  CHECK(n_released == 0);
  moved.array.release(&moved.array);
  CHECK(n_released == 1);
  done();
}

static void list_releases_the_capsules_that_remain_in_it(void) {
  begin();
  crossdock_write_settings settings = write_settings("arrow-c-data");
  crossdock_writer writer = WRITER;
  OK(crossdock_session_write_capsules(session, &schema, &settings, &writer, ERR));
  crossdock_batch batch = make_batch(numbers, 3);
  crossdock_capsules out = CAPSULES;
  OK(writer.write(&writer, NULL, &batch, &out, ERR));
  CHECK(n_released == 0);
  out.release(&out);
  CHECK(n_released == 1);
  writer.release(&writer);
  done();
}

static void write_capsules_requires_format_and_out(void) {
  begin();
  crossdock_writer writer = WRITER;
  crossdock_write_settings settings = write_settings("");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no format",
        crossdock_session_write_capsules(session, &schema, &settings, &writer, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no format",
        crossdock_session_write_capsules(session, &schema, NULL, &writer, ERR));
  settings = write_settings("arrow-ipc");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "writes bytes",
        crossdock_session_write_capsules(session, &schema, &settings, &writer, ERR));
  settings = write_settings("arrow-c-data");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the session is NULL",
        crossdock_session_write_capsules(NULL, &schema, &settings, &writer, ERR));
  OK(crossdock_session_write_capsules(session, &schema, &settings, &writer, ERR));
  crossdock_batch batch = make_batch(numbers, 3);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", writer.write(&writer, NULL, &batch, NULL, ERR));
  CHECK(!batch.array.array.release && n_released == 1);
  writer.release(&writer);
  crossdock_capsules out = CAPSULES;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "released", writer.finish(&writer, NULL, &out, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "NULL", writer.finish(NULL, NULL, &out, ERR));
  done();
}

static void plan_has_a_verdict_for_each_column(void) {
  begin();
  crossdock_device cpu = {-1, ARROW_DEVICE_CPU, 0};
  crossdock_write_settings settings = write_settings("arrow-c-device");
  crossdock_plan plan = {.struct_size = sizeof plan};
  OK(crossdock_session_plan(session, &schema, cpu, &settings, &plan, ERR));
  CHECK(plan.n_columns == 1 && is(plan.columns[0].name, "n") && plan.columns[0].verdict == CROSSDOCK_ZERO_COPY);
  CHECK(plan.columns[0].struct_size == sizeof plan.columns[0] && contains(plan.columns[0].reason, "refers to the buffers"));
  CHECK(plan.columns[0].to.type == ARROW_DEVICE_CPU);
  plan.release(&plan);
  CHECK(!plan.release && plan.n_columns == 0);
  settings = write_settings("arrow-ipc");
  OK(crossdock_session_plan(session, &schema, cpu, &settings, &plan, ERR));
  CHECK(plan.n_columns == 1 && plan.columns[0].verdict <= CROSSDOCK_CANNOT && plan.columns[0].reason.bytes > 0);
  plan.release(&plan);
  settings = write_settings("arrow-c-device");
  crossdock_device elsewhere = {0, ARROW_DEVICE_EXT_DEV, 0};
  OK(crossdock_session_plan(session, &schema, elsewhere, &settings, &plan, ERR));
  CHECK(plan.columns[0].verdict == CROSSDOCK_COPIED && contains(plan.columns[0].reason, "untouchable"));
  plan.release(&plan);

  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no format", crossdock_session_plan(session, &schema, cpu, NULL, &plan, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the schema is NULL",
        crossdock_session_plan(session, NULL, cpu, &settings, &plan, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL",
        crossdock_session_plan(session, &schema, cpu, &settings, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the session is NULL",
        crossdock_session_plan(NULL, &schema, cpu, &settings, &plan, ERR));
  settings = write_settings("unknown");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "unknown", crossdock_session_plan(session, &schema, cpu, &settings, &plan, ERR));
  done();
}

const struct test_case write_cases[] = {
    {"file_appears_complete_when_finish_succeeds", file_appears_complete_when_finish_succeeds},
    {"writer_released_early_leaves_no_file", writer_released_early_leaves_no_file},
    {"failed_write_abandons_the_file", failed_write_abandons_the_file},
    {"batch_may_have_the_same_schema", batch_may_have_the_same_schema},
    {"batch_has_its_number_of_rows_on_the_device", batch_has_its_number_of_rows_on_the_device},
    {"reports_why_an_output_cannot_be_written", reports_why_an_output_cannot_be_written},
    {"sink_receives_the_same_bytes_as_a_file", sink_receives_the_same_bytes_as_a_file},
    {"error_of_a_sink_is_returned", error_of_a_sink_is_returned},
    {"sink_is_released_on_failure", sink_is_released_on_failure},
    {"capsules_are_written_without_a_copy", capsules_are_written_without_a_copy},
    {"list_releases_the_capsules_that_remain_in_it", list_releases_the_capsules_that_remain_in_it},
    {"write_capsules_requires_format_and_out", write_capsules_requires_format_and_out},
    {"plan_has_a_verdict_for_each_column", plan_has_a_verdict_for_each_column},
    {NULL, NULL},
};
