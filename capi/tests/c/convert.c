/* Cases of crossdock_session_convert. */
#include "cases.h"

static crossdock_host_handle* host;
static crossdock_session* session;
static void begin(void) {
  host = new_host();
  session = new_session(host);
}

static atomic_int calls;
static void on_progress(void* data, uint64_t done, uint64_t total) {
  CHECK(data == &calls && (total == 0 || done <= total));
  calls++;
}

static void conversion_reports_its_stages(void) {
  begin();
  crossdock_str via[2] = {crossdock_text("arrow-c-device"), crossdock_text("arrow-c-stream")};
  crossdock_str columns[2] = {crossdock_text("carrier"), crossdock_text("day")};
  crossdock_option none = {crossdock_text("compression"), crossdock_text("none")};
  crossdock_convert_settings settings = {.struct_size = sizeof settings};
  settings.from = crossdock_text("arrow-ipc");
  settings.to = crossdock_text("arrow-ipc-stream");
  settings.via = via;
  settings.n_via = 2;
  settings.columns = columns;
  settings.n_columns = 2;
  settings.write_options = &none;
  settings.n_write_options = 1;
  settings.progress = on_progress;
  settings.progress_data = &calls;
  crossdock_report report = {.struct_size = sizeof report};
  crossdock_str output = crossdock_text(in_folder("converted.bytes"));
  OK(crossdock_session_convert(session, crossdock_text(sample), output, &settings, &report, ERR));
  CHECK(calls > 0 && report.rows == SAMPLE_ROWS && report.batches == 4 && report.time_ns > 0);
  CHECK(report.n_stages == 4 && is(report.stages[0].kind, "read") && is(report.stages[3].kind, "write"));
  CHECK(is(report.stages[1].plugin, "arrow-c-device") && is(report.stages[2].format, "arrow-c-stream"));
  uint64_t copied = 0;
  for (size_t i = 0; i < report.n_stages; i++) {
    const crossdock_stage* stage = &report.stages[i];
    CHECK(stage->struct_size == sizeof *stage && stage->rows == SAMPLE_ROWS);
    copied += stage->copied_h2h + stage->copied_h2d + stage->copied_d2h + stage->copied_d2d;
  }
  CHECK(report.copied == copied && report.stages[1].copied_h2h == 0);
  size_t bytes;
  free(load(output.data, &bytes));
  CHECK(report.bytes == bytes);
  report.release(&report);
  CHECK(!report.release && report.n_stages == 0);
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, output, NULL, &stream, ERR));
  struct ArrowSchema schema;
  OK(stream.get_schema(&stream, &schema, ERR));
  CHECK(schema.n_children == 2 && strcmp(schema.children[0]->name, "carrier") == 0);
  schema.release(&schema);
  CHECK(count_rows(&stream) == SAMPLE_ROWS);
  end(host, session);
}

static void conversion_fills_in_report_and_accepts_null_report(void) {
  begin();
  crossdock_report report;
  memset(&report, 0, sizeof report);
  report.struct_size = sizeof report;
  crossdock_str output = crossdock_text(in_folder("older.arrow"));
  OK(crossdock_session_convert(session, crossdock_text(sample), output, NULL, &report, ERR));
  CHECK(report.rows == SAMPLE_ROWS && report.n_stages == 2);
  report.release(&report);
  OK(crossdock_session_convert(session, crossdock_text(sample), output, NULL, NULL, ERR));
  end(host, session);
}

static void failed_conversion_leaves_no_file(void) {
  begin();
  crossdock_str in = crossdock_text(sample), out = crossdock_text(in_folder("failed.arrow"));
  crossdock_convert_settings settings = {.struct_size = sizeof settings};
  crossdock_str name = crossdock_text("unknown");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the session is NULL",
        crossdock_session_convert(NULL, in, out, NULL, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "path", crossdock_session_convert(session, crossdock_text(""), out, NULL, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "path", crossdock_session_convert(session, in, crossdock_text(""), NULL, NULL, ERR));
  FAILS(CROSSDOCK_IO, "nowhere",
        crossdock_session_convert(session, crossdock_text("nowhere"), out, NULL, NULL, ERR));
  settings.via = &name;
  settings.n_via = 1;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "unknown", crossdock_session_convert(session, in, out, &settings, NULL, ERR));
  settings.n_via = 0;
  settings.columns = &name;
  settings.n_columns = 1;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no column 'unknown'",
        crossdock_session_convert(session, in, out, &settings, NULL, ERR));
  settings.columns = NULL;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "columns", crossdock_session_convert(session, in, out, &settings, NULL, ERR));
  settings.n_columns = 0;
  settings.to = name;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "unknown", crossdock_session_convert(session, in, out, &settings, NULL, ERR));

  /* The input is damaged, so the conversion fails after it has written some batches. */
  size_t bytes;
  char* data = load(sample, &bytes);
  const char* damaged = in_folder("damaged.arrow");
  FILE* file = fopen(damaged, "wb");
  data[bytes / 2] ^= 0x55; /* this byte is in a compressed batch */
  CHECK(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
  free(data);
  FAILS(CROSSDOCK_BAD_DATA, "", crossdock_session_convert(session, crossdock_text(damaged), out, NULL, NULL, ERR));
  CHECK(has_no_file("failed"));
  end(host, session);
}

const struct test_case convert_cases[] = {
    {"conversion_reports_its_stages", conversion_reports_its_stages},
    {"conversion_fills_in_report_and_accepts_null_report", conversion_fills_in_report_and_accepts_null_report},
    {"failed_conversion_leaves_no_file", failed_conversion_leaves_no_file},
    {NULL, NULL},
};
