/* Cases of URIs, which the plugin of the environment variable BAD_CITIZEN opens: citizen://NAME is
   the content of a file. */
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"

static crossdock_host_handle* host;
static crossdock_session* session;
static void begin(void) {
  crossdock_str paths[2] = {crossdock_text(plugins), crossdock_text(getenv("BAD_CITIZEN"))};
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = paths, .n_plugins = 2};
  CHECK(paths[1].data);
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  OK(crossdock_host_create(&settings, &host, ERR));
  session = new_session(host);
}

/* The URI of a file, in one of four static buffers. */
static crossdock_str uri_of(const char* path) {
  static char uris[4][4096];
  static int next;
  char* uri = uris[next++ % 4];
  snprintf(uri, sizeof uris[0], "citizen://%s", path);
  return crossdock_text(uri);
}

/* Creates a file with five rows and this name in the folder. */
static const char* small(const char* name) {
  crossdock_read_settings settings = {.struct_size = sizeof settings, .flags = CROSSDOCK_READ_LIMIT, .limit = 5};
  crossdock_batch_stream stream = STREAM;
  crossdock_writer writer = WRITER;
  struct ArrowSchema schema;
  const char* path = in_folder(name);
  OK(crossdock_session_read_path(session, crossdock_text(sample), &settings, &stream, ERR));
  OK(stream.get_schema(&stream, &schema, ERR));
  OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &writer, ERR));
  schema.release(&schema);
  for (;;) {
    crossdock_batch batch = BATCH;
    OK(stream.get_next(&stream, NULL, &batch, ERR));
    if (!batch.array.array.release) break;
    OK(writer.write(&writer, NULL, &batch, NULL, ERR));
  }
  OK(writer.finish(&writer, NULL, NULL, ERR));
  writer.release(&writer);
  stream.release(&stream);
  return path;
}

/* Adds up the rows of the stream until the end or an error. Returns the code of `get_next`. */
static int drain(struct ArrowArrayStream* stream, int64_t* rows) {
  for (*rows = 0;;) {
    struct ArrowArray batch = {0};
    int code = stream->get_next(stream, &batch);
    if (code != 0 || !batch.release) return code;
    *rows += batch.length;
    batch.release(&batch);
  }
}

/* Storage options with the folder of the cases. */
static crossdock_option folder_option(void) {
  return (crossdock_option){crossdock_text("folder"), crossdock_text(folder)};
}

static void read_path_reads_uris(void) {
  begin();
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, uri_of(sample), NULL, &stream, ERR));
  CHECK(count_rows(&stream) == SAMPLE_ROWS);
  small("five.arrow");
  crossdock_option option = folder_option();
  crossdock_read_settings settings = {.struct_size = sizeof settings, .storage_options = &option, .n_storage_options = 1};
  OK(crossdock_session_read_path(session, uri_of("five.arrow"), &settings, &stream, ERR));
  CHECK(count_rows(&stream) == 5);
  end(host, session);
}

static void scan_reads_uris_and_paths(void) {
  begin();
  small("five.arrow");
  crossdock_option option = folder_option();
  crossdock_read_settings settings = {.struct_size = sizeof settings};
  const crossdock_str mixed[] = {uri_of(sample), crossdock_text(sample), uri_of(in_folder("five.arrow"))};
  struct ArrowArrayStream stream;
  int64_t rows;
  OK(crossdock_session_scan_to_host(session, mixed, 3, &settings, &stream, ERR));
  CHECK(drain(&stream, &rows) == 0 && rows == 2 * SAMPLE_ROWS + 5);
  stream.release(&stream);

  const crossdock_str uris[] = {uri_of("five.arrow"), uri_of("five.arrow")};
  settings.storage_options = &option;
  settings.n_storage_options = 1;
  settings.flags = CROSSDOCK_READ_LIMIT;
  settings.limit = 8;
  OK(crossdock_session_scan_to_host(session, uris, 2, &settings, &stream, ERR));
  CHECK(drain(&stream, &rows) == 0 && rows == 8);
  stream.release(&stream);
  struct ArrowDeviceArrayStream on_device;
  OK(crossdock_session_scan(session, uris, 2, &settings, &on_device, ERR));
  struct ArrowDeviceArray batch = {0};
  CHECK(on_device.get_next(&on_device, &batch) == 0 && batch.array.length == 5);
  batch.array.release(&batch.array);
  on_device.release(&on_device);
  end(host, session);
}

static void conversion_reads_a_uri(void) {
  begin();
  small("five.arrow");
  crossdock_option option = folder_option();
  crossdock_convert_settings settings = {.struct_size = sizeof settings, .storage_options = &option, .n_storage_options = 1};
  const char* output = in_folder("from-uri.arrow");
  OK(crossdock_session_convert(session, uri_of("five.arrow"), crossdock_text(output), &settings, NULL, ERR));
  CHECK(rows_of(session, output) == 5);
  OK(crossdock_session_convert(session, uri_of(sample), crossdock_text(output), NULL, NULL, ERR));
  CHECK(rows_of(session, output) == SAMPLE_ROWS);
  end(host, session);
}

/* Requires that all functions that read return the same error for this input. */
static void every_function_fails(crossdock_code expected, const char* words, crossdock_str input,
                                 const crossdock_option* options, size_t n) {
  crossdock_read_settings read = {.struct_size = sizeof read, .storage_options = options, .n_storage_options = n};
  crossdock_convert_settings convert = {.struct_size = sizeof convert, .storage_options = options, .n_storage_options = n};
  crossdock_batch_stream stream = STREAM;
  struct ArrowArrayStream on_host;
  struct ArrowDeviceArrayStream on_device;
  crossdock_str output = crossdock_text(in_folder("none.arrow"));
  FAILS(expected, words, crossdock_session_read_path(session, input, &read, &stream, ERR));
  FAILS(expected, words, crossdock_session_scan(session, &input, 1, &read, &on_device, ERR));
  FAILS(expected, words, crossdock_session_scan_to_host(session, &input, 1, &read, &on_host, ERR));
  FAILS(expected, words, crossdock_session_convert(session, input, output, &convert, NULL, ERR));
  CHECK(!exists(output.data));
}

static void reports_why_a_uri_cannot_be_opened(void) {
  begin();
  crossdock_option unknown = {crossdock_text("unknown"), crossdock_text("value")};
  every_function_fails(CROSSDOCK_IO, "could not open 'citizen://fail': injected failure", crossdock_text("citizen://fail"), NULL, 0);
  every_function_fails(CROSSDOCK_IO, "could not open 'citizen:///nowhere'", uri_of("/nowhere"), NULL, 0);
  every_function_fails(CROSSDOCK_INVALID_ARGUMENT, "has no option 'unknown'", uri_of(sample), &unknown, 1);
  every_function_fails(CROSSDOCK_INVALID_ARGUMENT, "schemes that a plugin opens: citizen", crossdock_text("other://a"), NULL, 0);
  every_function_fails(CROSSDOCK_INVALID_ARGUMENT, "install the plugin 'object-store'",
                       crossdock_text("s3://bucket/a.arrow"), NULL, 0);
  every_function_fails(CROSSDOCK_INVALID_ARGUMENT, "storage_options: a list of 1 elements", uri_of(sample), NULL, 1);
  every_function_fails(CROSSDOCK_PANICKED, "panic", crossdock_text("citizen://panic"), NULL, 0);
  /* The session replaces the instance that panicked. */
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, uri_of(sample), NULL, &stream, ERR));
  CHECK(count_rows(&stream) == SAMPLE_ROWS);
  end(host, session);
}

static void scan_reports_why_a_later_input_cannot_be_opened(void) {
  begin();
  small("five.arrow");
  crossdock_option option = folder_option();
  crossdock_read_settings settings = {.struct_size = sizeof settings, .storage_options = &option, .n_storage_options = 1};
  const crossdock_str inputs[][2] = {{uri_of("five.arrow"), crossdock_text("citizen://fail")},
                                     {uri_of("five.arrow"), crossdock_text(sample)}};
  const char* const words[] = {"injected failure", "the storage option 'folder' applies only to URIs"};
  for (int i = 0; i < 2; i++) {
    struct ArrowArrayStream stream;
    int64_t rows;
    OK(crossdock_session_scan_to_host(session, inputs[i], 2, &settings, &stream, ERR));
    CHECK(drain(&stream, &rows) != 0 && rows == 5);
    CHECK(strstr(stream.get_last_error(&stream), words[i]));
    stream.release(&stream);
  }
  end(host, session);
}

static void release_source(crossdock_source* source) {
  *(int*)source->private_data += 1;
  source->release = NULL;
}

static void storage_options_apply_only_to_uris(void) {
  begin();
  crossdock_option option = folder_option();
  crossdock_read_settings settings = {.struct_size = sizeof settings, .storage_options = &option, .n_storage_options = 1};
  every_function_fails(CROSSDOCK_INVALID_ARGUMENT, "the storage option 'folder' applies only to URIs",
                       crossdock_text(sample), &option, 1);
  crossdock_batch_stream stream = STREAM;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "apply only to URIs: expected none for bytes, got 1",
        crossdock_session_read_bytes(session, "", 0, NULL, NULL, &settings, &stream, ERR));
  int n_sources_released = 0;
  crossdock_source source = {.struct_size = sizeof source, .release = release_source, .private_data = &n_sources_released};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "expected none for a source",
        crossdock_session_read_source(session, &source, &settings, &stream, ERR));
  CHECK(n_sources_released == 1);
  struct ArrowSchema schema;
  make_schema(&schema);
  crossdock_capsule capsule = make_capsule("arrow_schema", &schema);
  settings.format = crossdock_text("arrow-c-data");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "expected none for capsules",
        crossdock_session_read_capsules(session, &capsule, 1, &settings, &stream, ERR));
  CHECK(!capsule.release);
  end(host, session);
}

static void path_may_look_like_a_uri(void) {
  begin();
  CHECK(chdir(folder) == 0 && mkdir("citizen:", 0777) == 0 && mkdir("other:", 0777) == 0);
  small("citizen:/uri.arrow");
  small("other:/uri.arrow");
  CHECK(rows_of(session, "./citizen://uri.arrow") == 5 && rows_of(session, "other://uri.arrow") == 5);
  crossdock_batch_stream stream = STREAM;
  FAILS(CROSSDOCK_IO, "could not open 'citizen://uri.arrow'",
        crossdock_session_read_path(session, crossdock_text("citizen://uri.arrow"), NULL, &stream, ERR));
  end(host, session);
}

static void outputs_are_no_uris(void) {
  begin();
  CHECK(chdir(folder) == 0 && mkdir("s3:", 0777) == 0);
  const char* const outputs[] = {"citizen://out.arrow", "s3://out.arrow"};
  struct ArrowSchema schema;
  make_schema(&schema);
  for (int i = 0; i < 2; i++) {
    crossdock_str output = crossdock_text(outputs[i]);
    crossdock_writer writer = WRITER;
    FAILS(CROSSDOCK_INVALID_ARGUMENT, "expected a path, because URIs can only be read",
          crossdock_session_convert(session, crossdock_text(sample), output, NULL, NULL, ERR));
    FAILS(CROSSDOCK_INVALID_ARGUMENT, outputs[i],
          crossdock_session_write_path(session, output, &schema, NULL, &writer, ERR));
    CHECK(!exists(outputs[i]));
  }
  schema.release(&schema);
  end(host, session);
}

const struct test_case uri_cases[] = {
    {"read_path_reads_uris", read_path_reads_uris},
    {"scan_reads_uris_and_paths", scan_reads_uris_and_paths},
    {"conversion_reads_a_uri", conversion_reads_a_uri},
    {"reports_why_a_uri_cannot_be_opened", reports_why_a_uri_cannot_be_opened},
    {"scan_reports_why_a_later_input_cannot_be_opened", scan_reports_why_a_later_input_cannot_be_opened},
    {"storage_options_apply_only_to_uris", storage_options_apply_only_to_uris},
    {"path_may_look_like_a_uri", path_may_look_like_a_uri},
    {"outputs_are_no_uris", outputs_are_no_uris},
    {NULL, NULL},
};
