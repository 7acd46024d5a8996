/* Cases of lifetimes, threads and independent hosts. */
#include <pthread.h>
#include <time.h>

#include "cases.h"

static void on_log_release(void* data) { (*(atomic_int*)data)++; }

static crossdock_host_handle* watched_host(atomic_int* released) {
  crossdock_str paths = crossdock_text(plugins);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &paths, .n_plugins = 1};
  crossdock_host_handle* host = NULL;
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  settings.log_data = released;
  settings.log_release = on_log_release;
  OK(crossdock_host_create(&settings, &host, ERR));
  return host;
}

/* Waits until a thread of the library has destroyed the plugin instances and released the log's
   data. crossdock_host_settle cannot be called, because the host has been destroyed. */
static void wait_for(atomic_int* released) {
  struct timespec nap = {0, 1000000};
  for (int i = 0; i < 60000 && *released == 0; i++) nanosleep(&nap, NULL);
  CHECK(*released == 1);
}

static void objects_may_be_released_in_any_order(void) {
  /* Tests all 120 orders in which host, session, stream, batch and writer can be released. If
     EVERY_NTH_ORDER is set to n, tests only every nth order. */
  const char* every = getenv("EVERY_NTH_ORDER");
  for (int order = 0; order < 120; order += every ? atoi(every) : 1) {
    atomic_int released = 0;
    crossdock_host_handle* host = watched_host(&released);
    crossdock_session* session = new_session(host);
    crossdock_batch_stream stream = STREAM;
    crossdock_batch batch = BATCH;
    crossdock_writer writer = WRITER;
    struct ArrowSchema schema;
    OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
    OK(stream.get_schema(&stream, &schema, ERR));
    OK(stream.get_next(&stream, NULL, &batch, ERR));
    crossdock_str path = crossdock_text(in_folder("permuted.arrow"));
    OK(crossdock_session_write_path(session, path, &schema, NULL, &writer, ERR));
    schema.release(&schema);
    int remaining[5] = {0, 1, 2, 3, 4}, rest = order;
    for (int n = 5; n > 0; n--) {
      int at = rest % n, what = remaining[at];
      rest /= n;
      for (int i = at; i + 1 < n; i++) remaining[i] = remaining[i + 1];
      CHECK(released == 0);
      if (what == 0) crossdock_host_destroy(host);
      if (what == 1) crossdock_session_destroy(session);
      if (what == 2) stream.release(&stream);
      if (what == 3) batch.array.array.release(&batch.array.array);
      if (what == 4) writer.release(&writer);
    }
    wait_for(&released);
    CHECK(has_no_file("permuted"));
  }
}

static void streams_and_writers_outlive_their_session_and_host(void) {
  atomic_int released = 0;
  crossdock_host_handle* host = watched_host(&released);
  crossdock_session* session = new_session(host);
  crossdock_batch_stream stream = STREAM;
  crossdock_writer writer = WRITER;
  struct ArrowSchema schema;
  const char* path = in_folder("outlived.arrow");
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  OK(stream.get_schema(&stream, &schema, ERR));
  OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &writer, ERR));
  schema.release(&schema);
  crossdock_host_destroy(host);
  crossdock_session_destroy(session);
  for (;;) {
    crossdock_batch batch = BATCH;
    OK(stream.get_next(&stream, NULL, &batch, ERR));
    if (!batch.array.array.release) break;
    OK(writer.write(&writer, NULL, &batch, NULL, ERR));
  }
  stream.release(&stream);
  OK(writer.finish(&writer, NULL, NULL, ERR));
  writer.release(&writer);
  wait_for(&released);
  host = new_host();
  session = new_session(host);
  CHECK(rows_of(session, path) == SAMPLE_ROWS);
  end(host, session);
}

static void each_host_has_its_own_ledger(void) {
  crossdock_host_handle *one = new_host(), *two = new_host();
  crossdock_session *first = new_session(one), *second = new_session(two);
  crossdock_batch_stream stream = STREAM;
  crossdock_batch batch = BATCH;
  OK(crossdock_session_read_path(first, crossdock_text(sample), NULL, &stream, ERR));
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  crossdock_ledger ledger = {.struct_size = sizeof ledger};
  OK(crossdock_host_ledger(two, &ledger, ERR));
  CHECK(ledger.live_bytes == 0);
  CHECK(rows_of(second, sample) == SAMPLE_ROWS);
  end(two, second);
  OK(crossdock_host_ledger(one, &ledger, ERR));
  CHECK(ledger.live_bytes > 0);
  batch.array.array.release(&batch.array.array);
  CHECK(count_rows(&stream) == SAMPLE_ROWS - 8192);
  end(one, first);
}

static void* read_the_sample(void* session) {
  CHECK(rows_of(session, sample) == SAMPLE_ROWS);
  return NULL;
}

static void threads_may_share_a_session(void) {
  crossdock_host_handle* host = new_host();
  crossdock_session* session = new_session(host);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, read_the_sample, session) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  end(host, session);
}

static void* use_own_host(void* unused) {
  crossdock_host_handle* host = new_host();
  crossdock_session* session = new_session(host);
  CHECK(rows_of(session, sample) == SAMPLE_ROWS);
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "unknown", crossdock_host_load(host, crossdock_text("unknown"), ERR));
  crossdock_session_destroy(session);
  crossdock_host_destroy(host);
  return unused;
}

static void each_thread_may_have_a_host(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, use_own_host, NULL) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void* release_batch(void* data) {
  crossdock_batch* batch = data;
  batch->array.array.release(&batch->array.array);
  return NULL;
}

static void batch_may_be_released_on_another_thread(void) {
  crossdock_host_handle* host = new_host();
  crossdock_session* session = new_session(host);
  crossdock_batch_stream stream = STREAM;
  crossdock_batch batch = BATCH;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, release_batch, &batch) == 0 && pthread_join(thread, NULL) == 0);
  stream.release(&stream);
  end(host, session);
}

static void rejects_out_parameters_that_are_too_short(void) {
  crossdock_host_handle* host = new_host();
  crossdock_session* session = new_session(host);
  crossdock_str path = crossdock_text(sample), none = crossdock_text(in_folder("short.arrow"));
  crossdock_batch_stream stream = {.struct_size = 32};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "is 32", crossdock_session_read_path(session, path, NULL, &stream, ERR));
  crossdock_leaks leaks = {.struct_size = sizeof leaks - 8};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "is 32", crossdock_host_settle(host, &leaks, ERR));
  crossdock_candidates candidates = {.struct_size = 8};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "is 8", crossdock_host_candidates(host, 0, &candidates, ERR));
  crossdock_ledger ledger = {.struct_size = 7};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "is 7", crossdock_host_ledger(host, &ledger, ERR));
  crossdock_report report = {.struct_size = sizeof report - 8};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "is 72", crossdock_session_convert(session, path, none, NULL, &report, ERR));
  CHECK(!exists(none.data));

  stream.struct_size = sizeof stream;
  OK(crossdock_session_read_path(session, path, NULL, &stream, ERR));
  struct ArrowSchema schema;
  OK(stream.get_schema(&stream, &schema, ERR));
  crossdock_writer writer = {.struct_size = 16};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "is 16", crossdock_session_write_path(session, none, &schema, NULL, &writer, ERR));
  crossdock_plan plan = {.struct_size = 16};
  crossdock_device cpu = {-1, ARROW_DEVICE_CPU, 0};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "is 16", crossdock_session_plan(session, &schema, cpu, NULL, &plan, ERR));
  schema.release(&schema);
  /* The `struct_size` of a batch must cover the field `schema`. Later fields are filled in only if
     `struct_size` covers them. */
  crossdock_batch batch = {.struct_size = offsetof(crossdock_batch, schema)};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "expected at least", stream.get_next(&stream, NULL, &batch, ERR));
  batch.struct_size = offsetof(crossdock_batch, buffer_sizes);
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  CHECK(batch.array.array.length == 8192 && !batch.buffer_sizes);
  batch.array.array.release(&batch.array.array);
  stream.release(&stream);
  end(host, session);
}

static void panic_in_a_plugin_is_an_error(void) {
  crossdock_str paths[2] = {crossdock_text(plugins), crossdock_text(getenv("BAD_CITIZEN"))};
  CHECK(paths[1].data);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = paths, .n_plugins = 2};
  crossdock_host_handle* host = NULL;
  OK(crossdock_host_create(&settings, &host, ERR));
  crossdock_session* session = new_session(host);
  crossdock_batch_stream stream = STREAM;
  FAILS(CROSSDOCK_PANICKED, "injected panic",
        crossdock_session_read_bytes(session, "panic-open", 10, NULL, NULL, NULL, &stream, ERR));
  FAILS(CROSSDOCK_PANICKED, "injected panic",
        crossdock_session_read_bytes(session, "panic-schema", 12, NULL, NULL, NULL, &stream, ERR));
  OK(crossdock_session_read_bytes(session, "panic-next", 10, NULL, NULL, NULL, &stream, ERR));
  for (int i = 0; i < 2; i++) {
    crossdock_batch batch = BATCH;
    FAILS(CROSSDOCK_PANICKED, "injected panic", stream.get_next(&stream, NULL, &batch, ERR));
  }
  stream.release(&stream);
  OK(crossdock_session_read_bytes(session, "panic-stream-release", 20, NULL, NULL, NULL, &stream, ERR));
  stream.release(&stream);
  CHECK(rows_of(session, sample) == SAMPLE_ROWS);
  end(host, session);
}

static void reads_and_writes_on_the_untouchable_device(void) {
  crossdock_str paths = crossdock_text(plugins);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &paths, .n_plugins = 1};
  crossdock_session_settings session_settings = {.struct_size = sizeof session_settings};
  crossdock_host_handle* host = NULL;
  crossdock_session* session = NULL;
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN | CROSSDOCK_HOST_UNTOUCHABLE;
  OK(crossdock_host_create(&settings, &host, ERR));
  session_settings.device.type = ARROW_DEVICE_EXT_DEV;
  OK(crossdock_session_create(host, &session_settings, &session, ERR));
  crossdock_batch_stream stream = STREAM;
  crossdock_writer writer = WRITER;
  struct ArrowSchema schema;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  OK(stream.get_schema(&stream, &schema, ERR));
  const char* path = in_folder("untouchable.arrow");
  OK(crossdock_session_write_path(session, crossdock_text(path), &schema, NULL, &writer, ERR));
  schema.release(&schema);
  for (;;) {
    crossdock_batch batch = BATCH;
    OK(stream.get_next(&stream, NULL, &batch, ERR));
    if (!batch.array.array.release) break;
    CHECK(batch.array.device_type == ARROW_DEVICE_EXT_DEV && batch.array.device_id == 0);
    OK(writer.write(&writer, NULL, &batch, NULL, ERR));
  }
  stream.release(&stream);
  OK(writer.finish(&writer, NULL, NULL, ERR));
  writer.release(&writer);
  crossdock_ledger ledger = {.struct_size = sizeof ledger};
  OK(crossdock_host_ledger(host, &ledger, ERR));
  CHECK(ledger.copied_h2d > 0 && ledger.copied_d2h > 0);
  CHECK(rows_of(session, path) == SAMPLE_ROWS);
  end(host, session);
}

/* The plugin's batch has a capacity of five rows, and its number of rows is on the device. */
static void number_of_rows_stays_on_the_device_if_it_is_requested(void) {
  crossdock_str path = crossdock_text(getenv("BAD_CITIZEN"));
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &path, .n_plugins = 1};
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  crossdock_host_handle* host = NULL;
  OK(crossdock_host_create(&settings, &host, ERR));
  crossdock_session* session = new_session(host);
  crossdock_read_settings read = {.struct_size = sizeof read};
  for (uint32_t flags = 0; flags <= CROSSDOCK_READ_DEVICE_ROWS; flags += CROSSDOCK_READ_DEVICE_ROWS) {
    crossdock_batch_stream stream = STREAM;
    read.flags = flags;
    read.format = crossdock_text("three-of-five");
    OK(crossdock_session_read_bytes(session, "", 0, NULL, NULL, &read, &stream, ERR));
    crossdock_batch batch = BATCH;
    OK(stream.get_next(&stream, NULL, &batch, ERR));
    CHECK(batch.array.array.length == (flags ? 5 : 3) && !batch.n_rows_device == !flags);
    uint64_t rows = 0;
    OK(crossdock_session_count_rows(session, &batch, &rows, ERR));
    CHECK(rows == 3);
    batch.array.array.release(&batch.array.array);
    stream.release(&stream);
    read.format = crossdock_text("six-of-five");
    OK(crossdock_session_read_bytes(session, "", 0, NULL, NULL, &read, &stream, ERR));
    if (!flags) {
      FAILS(CROSSDOCK_BAD_DATA, "is 6, expected 0 to 5", stream.get_next(&stream, NULL, &batch, ERR));
    } else {
      OK(stream.get_next(&stream, NULL, &batch, ERR));
      FAILS(CROSSDOCK_BAD_DATA, "is 6, expected 0 to 5", crossdock_session_count_rows(session, &batch, &rows, ERR));
      batch.array.array.release(&batch.array.array);
    }
    stream.release(&stream);
  }
  end(host, session);
}

const struct test_case lifetime_cases[] = {
    {"objects_may_be_released_in_any_order", objects_may_be_released_in_any_order},
    {"streams_and_writers_outlive_their_session_and_host", streams_and_writers_outlive_their_session_and_host},
    {"each_host_has_its_own_ledger", each_host_has_its_own_ledger},
    {"threads_may_share_a_session", threads_may_share_a_session},
    {"each_thread_may_have_a_host", each_thread_may_have_a_host},
    {"batch_may_be_released_on_another_thread", batch_may_be_released_on_another_thread},
    {"rejects_out_parameters_that_are_too_short", rejects_out_parameters_that_are_too_short},
    {"panic_in_a_plugin_is_an_error", panic_in_a_plugin_is_an_error},
    {"reads_and_writes_on_the_untouchable_device", reads_and_writes_on_the_untouchable_device},
    {"number_of_rows_stays_on_the_device_if_it_is_requested", number_of_rows_stays_on_the_device_if_it_is_requested},
    {NULL, NULL},
};
