/* Cases of crossdock_session_scan and crossdock_session_scan_to_host. */
#include "cases.h"

static crossdock_host_handle* host;
static crossdock_session* session;
static void begin(void) {
  host = new_host();
  session = new_session(host);
}

static int64_t rows_of_stream(struct ArrowArrayStream* stream) {
  int64_t rows = 0;
  for (;;) {
    struct ArrowArray batch = {0};
    CHECK(stream->get_next(stream, &batch) == 0);
    if (!batch.release) break;
    rows += batch.length;
    batch.release(&batch);
  }
  stream->release(stream);
  return rows;
}

static int64_t rows_of_device_stream(struct ArrowDeviceArrayStream* stream) {
  int64_t rows = 0;
  CHECK(stream->device_type == ARROW_DEVICE_CPU);
  for (;;) {
    struct ArrowDeviceArray batch = {0};
    CHECK(stream->get_next(stream, &batch) == 0);
    if (!batch.array.release) break;
    CHECK(batch.device_type == ARROW_DEVICE_CPU && batch.sync_event == NULL);
    rows += batch.array.length;
    batch.array.release(&batch.array);
  }
  stream->release(stream);
  return rows;
}

static void scan_reads_files_one_after_another(void) {
  begin();
  const crossdock_str paths[] = {crossdock_text(sample), crossdock_text(sample)};
  struct ArrowArrayStream stream;
  OK(crossdock_session_scan_to_host(session, paths, 2, NULL, &stream, ERR));
  struct ArrowSchema schema;
  CHECK(stream.get_schema(&stream, &schema) == 0 && schema.n_children == 21);
  schema.release(&schema);
  CHECK(rows_of_stream(&stream) == 2 * SAMPLE_ROWS);
  struct ArrowDeviceArrayStream on_device;
  OK(crossdock_session_scan(session, paths, 2, NULL, &on_device, ERR));
  CHECK(rows_of_device_stream(&on_device) == 2 * SAMPLE_ROWS);
  end(host, session);
}

static void scan_selects_columns_and_rows_of_all_files_together(void) {
  begin();
  const crossdock_str paths[] = {crossdock_text(sample), crossdock_text(sample)};
  struct ArrowArrayStream stream;
  struct ArrowSchema schema;
  OK(crossdock_session_scan_to_host(session, paths, 1, NULL, &stream, ERR));
  CHECK(stream.get_schema(&stream, &schema) == 0);
  const crossdock_str names[] = {crossdock_text(schema.children[1]->name)};
  const crossdock_path columns[] = {{names, 1}};
  const crossdock_row_range rows[] = {{1, 3}, {SAMPLE_ROWS - 1, SAMPLE_ROWS + 5}};
  crossdock_read_settings settings = {.struct_size = sizeof settings, .flags = CROSSDOCK_READ_COLUMNS | CROSSDOCK_READ_ROWS};
  settings.columns = columns;
  settings.n_columns = 1;
  settings.rows = rows;
  settings.n_rows = 2;
  struct ArrowDeviceArrayStream selected;
  OK(crossdock_session_scan(session, paths, 2, &settings, &selected, ERR));
  struct ArrowSchema selected_schema;
  CHECK(selected.get_schema(&selected, &selected_schema) == 0);
  CHECK(selected_schema.n_children == 1 && strcmp(selected_schema.children[0]->name, schema.children[1]->name) == 0);
  selected_schema.release(&selected_schema);
  CHECK(rows_of_device_stream(&selected) == 8);
  schema.release(&schema);
  stream.release(&stream);
  end(host, session);
}

static void stream_of_a_scan_may_outlive_the_session(void) {
  begin();
  const crossdock_str path = crossdock_text(sample);
  struct ArrowArrayStream stream;
  OK(crossdock_session_scan_to_host(session, &path, 1, NULL, &stream, ERR));
  crossdock_session_destroy(session);
  CHECK(rows_of_stream(&stream) == SAMPLE_ROWS);
  end_host(host);
}

static void scan_reports_why_files_cannot_be_read(void) {
  begin();
  const crossdock_str paths[] = {crossdock_text(sample), crossdock_text("nowhere.arrow")};
  struct ArrowArrayStream stream;
  stream.release = NULL;
  FAILS(CROSSDOCK_IO, "nowhere.arrow", crossdock_session_scan_to_host(session, paths + 1, 1, NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "at least one file", crossdock_session_scan_to_host(session, paths, 0, NULL, &stream, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_session_scan_to_host(session, paths, 1, NULL, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the session is NULL", crossdock_session_scan_to_host(NULL, paths, 1, NULL, &stream, ERR));
  CHECK(!stream.release);
  OK(crossdock_session_scan_to_host(session, paths, 2, NULL, &stream, ERR));
  struct ArrowArray batch = {0};
  int code, batches = 0;
  while ((code = stream.get_next(&stream, &batch)) == 0) {
    CHECK(batch.release);
    batch.release(&batch);
    batches++;
  }
  CHECK(batches == 4 && strstr(stream.get_last_error(&stream), "nowhere.arrow"));
  stream.release(&stream);
  end(host, session);
}

const struct test_case scan_cases[] = {
    {"scan_reads_files_one_after_another", scan_reads_files_one_after_another},
    {"scan_selects_columns_and_rows_of_all_files_together", scan_selects_columns_and_rows_of_all_files_together},
    {"stream_of_a_scan_may_outlive_the_session", stream_of_a_scan_may_outlive_the_session},
    {"scan_reports_why_files_cannot_be_read", scan_reports_why_files_cannot_be_read},
    {NULL, NULL}};
