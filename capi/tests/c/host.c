/* Cases of crossdock_version, crossdock_check_version and crossdock_host_*. */
#include <sys/stat.h>

#include "cases.h"

static void reports_and_checks_the_version(void) {
  CHECK(strchr(crossdock_version(), '.'));
  OK(CROSSDOCK_CHECK_VERSION(ERR));
  FAILS(CROSSDOCK_WRONG_VERSION, "compiled for 1.0.999", crossdock_check_version(1, 0, 999, ERR));
  FAILS(CROSSDOCK_WRONG_VERSION, "compiled for 7.0.0", crossdock_check_version(7, 0, 0, ERR));
  CHECK(crossdock_check_version(7, 0, 0, NULL) == CROSSDOCK_WRONG_VERSION);
}

static void rejects_null_arguments(void) {
  crossdock_host_handle* host = new_host();
  crossdock_candidates candidates = {.struct_size = sizeof candidates};
  crossdock_ledger ledger = {.struct_size = sizeof ledger};
  crossdock_leaks leaks = LEAKS;
  crossdock_str name = crossdock_text("arrow-ipc");
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_host_create(NULL, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the host is NULL", crossdock_host_candidates(NULL, 0, &candidates, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_host_candidates(host, 0, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the host is NULL", crossdock_host_load(NULL, name, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "is empty", crossdock_host_load(host, crossdock_text(NULL), ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the host is NULL", crossdock_host_ledger(NULL, &ledger, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_host_ledger(host, NULL, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the host is NULL", crossdock_host_settle(NULL, &leaks, ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_host_settle(host, NULL, ERR));
  CHECK(crossdock_host_ledger(NULL, NULL, NULL) == CROSSDOCK_INVALID_ARGUMENT);
  crossdock_str nowhere = {NULL, 5};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "name", crossdock_host_load(host, nowhere, ERR));
  crossdock_host_destroy(NULL);
  end_host(host);
}

static void default_settings_search_standard_places(void) {
  crossdock_host_handle* host = NULL;
  OK(crossdock_host_create(NULL, &host, ERR));
  end_host(host);
}

static void accepts_shorter_settings_of_older_programs(void) {
  crossdock_str paths = crossdock_text(plugins);
  crossdock_host_settings settings = {.struct_size = offsetof(crossdock_host_settings, flags)};
  crossdock_host_handle* host = NULL;
  settings.plugins = &paths;
  settings.n_plugins = 1;
  settings.flags = 0xffffffff; /* not covered by struct_size, therefore ignored */
  settings.log_level = 99;
  OK(crossdock_host_create(&settings, &host, ERR));
  OK(crossdock_host_load(host, crossdock_text("arrow-ipc"), ERR));

  /* A shorter struct of an older program is filled in up to its size. */
  crossdock_ledger ledger;
  memset(&ledger, 0x55, sizeof ledger);
  ledger.struct_size = offsetof(crossdock_ledger, cached_bytes);
  OK(crossdock_host_ledger(host, &ledger, ERR));
  CHECK(ledger.struct_size == offsetof(crossdock_ledger, cached_bytes));
  CHECK(ledger.live_bytes == 0 && ledger.live_blocks == 0);
  CHECK(ledger.cached_bytes == UINT64_C(0x5555555555555555));
  end_host(host);
}

static void rejects_invalid_host_settings(void) {
  crossdock_host_settings settings = {.struct_size = 3};
  crossdock_host_handle* host = NULL;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "struct_size is 3", crossdock_host_create(&settings, &host, ERR));
  settings.struct_size = sizeof settings;
  settings.flags = 1u << 30;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "flags 0x40000000", crossdock_host_create(&settings, &host, ERR));
  settings.flags = 0;
  settings.log_level = 6;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "log_level is 6", crossdock_host_create(&settings, &host, ERR));
  settings.log_level = 0;
  settings.n_plugins = 1;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "plugins", crossdock_host_create(&settings, &host, ERR));
  crossdock_str empty = crossdock_text("");
  settings.plugins = &empty;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "plugins", crossdock_host_create(&settings, &host, ERR));
  CHECK(!host);
}

static void rejects_unknown_settings_of_newer_programs(void) {
  struct {
    crossdock_host_settings known;
    uint64_t later;
  } settings = {.known = {.struct_size = sizeof settings}};
  crossdock_host_handle* host = NULL;
  OK(crossdock_host_create(&settings.known, &host, ERR));
  end_host(host);
  settings.later = 1;
  FAILS(CROSSDOCK_WRONG_VERSION, "too old", crossdock_host_create(&settings.known, &host, ERR));
}

/* Creates a file in the folder. Returns its path. */
static const char* write_file(const char* name, const void* data, size_t bytes, mode_t mode) {
  const char* path = in_folder(name);
  FILE* file = fopen(path, "wb");
  CHECK(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0 && chmod(path, mode) == 0);
  return path;
}

/* Creates a plugin that is refused because all users may write to it. */
static const char* writable_plugin(void) {
  char from[4096];
  size_t bytes;
  snprintf(from, sizeof from, "%s/libcrossdock_arrow_c_device_plugin.so", plugins);
  void* data = load(from, &bytes);
  const char* path = write_file("writable.so", data, bytes, 0666);
  free(data);
  return path;
}

static crossdock_host_handle* host_over(const char* path, uint32_t flags) {
  crossdock_str paths = crossdock_text(path);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &paths, .n_plugins = 1};
  crossdock_host_handle* host = NULL;
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN | flags;
  OK(crossdock_host_create(&settings, &host, ERR));
  return host;
}

static void lists_candidates_with_status_and_reason(void) {
  writable_plugin();
  write_file("text.so", "no plugin", 9, 0644);
  crossdock_str paths[2] = {crossdock_text(plugins), crossdock_text(folder)};
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = paths, .n_plugins = 2};
  crossdock_host_handle* host = NULL;
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  OK(crossdock_host_create(&settings, &host, ERR));
  for (uint32_t must_load = 0; must_load < 2; must_load++) {
    crossdock_candidates list = {.struct_size = sizeof list};
    OK(crossdock_host_candidates(host, must_load, &list, ERR));
    int n_checked = 0;
    for (size_t i = 0; i < list.n_candidates; i++) {
      const crossdock_candidate* c = &list.candidates[i];
      CHECK(c->struct_size == sizeof *c && c->origin.bytes > 0);
      if (contains(c->path, "libcrossdock_arrow_ipc_plugin.so")) {
        CHECK(c->status == CROSSDOCK_CANDIDATE_CHOSEN && is(c->name, "arrow-ipc") && c->reason.bytes == 0);
        CHECK(contains(c->formats, "arrow-ipc-file") && c->version.bytes > 0 && c->description.bytes > 0);
        n_checked++;
      } else if (contains(c->path, "writable.so")) {
        CHECK(c->status == CROSSDOCK_CANDIDATE_REFUSED && is(c->reason, "writable"));
        CHECK(is(c->name, "arrow-c-device") && contains(c->message, "chmod go-w"));
        n_checked++;
      } else if (contains(c->path, "text.so")) {
        CHECK(c->status == CROSSDOCK_CANDIDATE_REFUSED && is(c->reason, "not-elf") && c->name.bytes == 0);
        n_checked++;
      }
    }
    CHECK(n_checked == 3);
    list.release(&list);
    CHECK(!list.release && !list.candidates && list.n_candidates == 0);
  }
  crossdock_candidates list = {.struct_size = sizeof list};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "load is 2", crossdock_host_candidates(host, 2, &list, ERR));
  end_host(host);
}

static void missing_plugin_folder_is_a_warning(void) {
  CHECK(setenv("CROSSDOCK_PLUGIN_PATH", in_folder("nowhere"), 1) == 0);
  crossdock_host_handle* host = NULL;
  OK(crossdock_host_create(NULL, &host, ERR));
  CHECK(unsetenv("CROSSDOCK_PLUGIN_PATH") == 0);
  crossdock_candidates list = {.struct_size = sizeof list};
  OK(crossdock_host_candidates(host, 0, &list, ERR));
  CHECK(list.n_warnings == 1 && contains(list.warnings[0], "nowhere"));
  list.release(&list);
  end_host(host);
}

static void loading_reports_why_a_plugin_is_refused(void) {
  crossdock_host_handle* host = new_host();
  OK(crossdock_host_load(host, crossdock_text("arrow-ipc"), ERR));
  OK(crossdock_host_load(host, crossdock_text("arrow-ipc"), ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no plugin 'unknown'", crossdock_host_load(host, crossdock_text("unknown"), ERR));
  end_host(host);

  writable_plugin();
  host = host_over(folder, 0);
  crossdock_error err = CROSSDOCK_ERROR_INIT;
  CHECK(crossdock_host_load(host, crossdock_text("arrow-c-device"), &err) == CROSSDOCK_UNSUPPORTED);
  CHECK(strstr(err.message, "writable.so") && strcmp(err.details, "refused: writable") == 0);
  crossdock_error_clear(&err);
  end_host(host);
}

static void create_rejects_invalid_plugin_files_unless_lenient(void) {
  const char* missing = in_folder("missing.so");
  const char* wrong = write_file("wrong.so", "no plugin", 9, 0644);
  crossdock_str paths = crossdock_text(missing);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &paths, .n_plugins = 1};
  crossdock_host_handle* host = NULL;
  FAILS(CROSSDOCK_IO, "missing.so", crossdock_host_create(&settings, &host, ERR));
  paths = crossdock_text(wrong);
  FAILS(CROSSDOCK_UNSUPPORTED, "wrong.so", crossdock_host_create(&settings, &host, ERR));
  CHECK(!host);
  host = host_over(wrong, CROSSDOCK_HOST_LENIENT);
  crossdock_candidates list = {.struct_size = sizeof list};
  OK(crossdock_host_candidates(host, 0, &list, ERR));
  CHECK(list.n_candidates == 1 && is(list.candidates[0].reason, "not-elf"));
  list.release(&list);
  end_host(host);
}

struct log_state {
  int messages, messages_about_text, level;
  atomic_int released;
};

static void on_log(void* data, int32_t level, crossdock_str plugin, crossdock_str message) {
  struct log_state* state = data;
  CHECK(plugin.data && contains(message, ""));
  state->messages++;
  state->messages_about_text += contains(message, "text.so");
  if (level > state->level) state->level = level;
}

static void on_log_release(void* data) { ((struct log_state*)data)->released++; }

static void log_receives_messages_of_its_own_host_and_level(void) {
  write_file("text.so", "no plugin", 9, 0644);
  writable_plugin();
  crossdock_str paths = crossdock_text(folder);
  struct log_state warnings = {0}, all = {0};
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &paths, .n_plugins = 1};
  crossdock_host_handle *one = NULL, *two = NULL;
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  settings.log = on_log;
  settings.log_release = on_log_release;
  settings.log_data = &warnings;
  OK(crossdock_host_create(&settings, &one, ERR));
  CHECK(warnings.messages == 1 && warnings.level == CROSSDOCK_LOG_WARN && warnings.messages_about_text == 0);
  settings.log_level = CROSSDOCK_LOG_DEBUG;
  settings.log_data = &all;
  OK(crossdock_host_create(&settings, &two, ERR));
  CHECK(all.messages >= 2 && all.messages_about_text == 1 && all.level == CROSSDOCK_LOG_DEBUG);
  CHECK(warnings.messages == 1);
  end_host(one);
  CHECK(warnings.released == 1 && all.released == 0);
  end_host(two);
  CHECK(all.released == 1);

  /* The log's data is also released if crossdock_host_create fails. */
  struct log_state failed = {0};
  settings.log_data = &failed;
  settings.flags = 1u << 30;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "flags", crossdock_host_create(&settings, &one, ERR));
  CHECK(failed.released == 1);
  settings.log_level = 77;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "log_level", crossdock_host_create(&settings, &one, ERR));
  CHECK(failed.released == 2);
  settings.log_level = 0;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_host_create(&settings, NULL, ERR));
  CHECK(failed.released == 3);
}

struct warning_state {
  int warnings;
  atomic_int released;
};

static void on_warning(void* data, int32_t level, crossdock_str plugin, crossdock_str message) {
  struct warning_state* state = data;
  if (!is(plugin, "arrow-ipc")) return;
  CHECK(level == CROSSDOCK_LOG_WARN && contains(message, "after the end"));
  state->warnings++;
}

static void on_warning_release(void* data) { ((struct warning_state*)data)->released++; }

static void log_receives_warnings_of_plugins(void) {
  crossdock_host_handle* plain = new_host();
  crossdock_session* session = new_session(plain);
  size_t bytes;
  char* data = load(converted(session, "more.arrows"), &bytes);
  end(plain, session);
  data = realloc(data, bytes + 8);
  CHECK(data);
  memcpy(data + bytes, "no Arrow", 8);
  const char* path = write_file("more.arrows", data, bytes + 8, 0644);

  crossdock_str paths = crossdock_text(plugins);
  struct warning_state one = {0}, other = {0};
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &paths, .n_plugins = 1};
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  settings.log = on_warning;
  settings.log_release = on_warning_release;
  settings.log_data = &one;
  crossdock_host_handle *host = NULL, *other_host = NULL;
  OK(crossdock_host_create(&settings, &host, ERR));
  settings.log_data = &other;
  OK(crossdock_host_create(&settings, &other_host, ERR));
  session = new_session(host);
  CHECK(rows_of(session, path) == SAMPLE_ROWS && one.warnings == 1);
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_bytes(session, data, bytes + 8, NULL, NULL, NULL, &stream, ERR));
  CHECK(count_rows(&stream) == SAMPLE_ROWS && one.warnings == 2 && other.warnings == 0);
  end(host, session);
  end_host(other_host);
  CHECK(one.released == 1 && other.released == 1);
  free(data);
}

static void paths_may_contain_any_bytes_but_nul(void) {
  size_t bytes;
  char from[4096];
  snprintf(from, sizeof from, "%s/libcrossdock_arrow_ipc_plugin.so", plugins);
  void* data = load(from, &bytes);
  const char* plugin = write_file("na\xff" "me.so", data, bytes, 0755);
  free(data);
  data = load(sample, &bytes);
  const char* path = write_file("na\xff" "me.arrow", data, bytes, 0644);
  free(data);
  crossdock_host_handle* host = host_over(plugin, 0);
  crossdock_candidates list = {.struct_size = sizeof list};
  OK(crossdock_host_candidates(host, 0, &list, ERR));
  CHECK(list.n_candidates == 1 && is(list.candidates[0].path, plugin));
  CHECK(list.candidates[0].status == CROSSDOCK_CANDIDATE_CHOSEN);
  list.release(&list);
  crossdock_session* session = new_session(host);
  const char* out = in_folder("na\xff" "me-out.arrows");
  OK(crossdock_session_convert(session, crossdock_text(path), crossdock_text(out), NULL, NULL, ERR));
  CHECK(rows_of(session, path) == SAMPLE_ROWS && rows_of(session, out) == SAMPLE_ROWS);
  crossdock_batch_stream stream = STREAM;
  FAILS(CROSSDOCK_IO, "na\xef\xbf\xbdme-none",
        crossdock_session_read_path(session, crossdock_text(in_folder("na\xff" "me-none")), NULL, &stream, ERR));
  end(host, session);
}

static void memory_limit_is_enforced(void) {
  crossdock_str paths = crossdock_text(plugins);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &paths, .n_plugins = 1};
  crossdock_host_handle* host = NULL;
  settings.memory_limit = 10000;
  settings.threads = 1;
  OK(crossdock_host_create(&settings, &host, ERR));
  crossdock_session* session = new_session(host);
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  crossdock_batch batch = BATCH;
  FAILS(CROSSDOCK_OUT_OF_MEMORY, "10000", stream.get_next(&stream, NULL, &batch, ERR));
  CHECK(!batch.array.array.release);
  stream.release(&stream);
  end(host, session);
}

static void ledger_and_leaks_report_unreleased_memory(void) {
  crossdock_host_handle* host = new_host();
  crossdock_session* session = new_session(host);
  crossdock_batch_stream stream = STREAM;
  crossdock_batch batch = BATCH;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  OK(stream.get_next(&stream, NULL, &batch, ERR));
  stream.release(&stream);
  crossdock_ledger ledger = {.struct_size = sizeof ledger};
  OK(crossdock_host_ledger(host, &ledger, ERR));
  CHECK(ledger.live_bytes > 0 && ledger.live_blocks > 0);
  crossdock_leaks leaks = LEAKS;
  OK(crossdock_host_settle(host, &leaks, ERR));
  uint64_t bytes = 0;
  for (size_t i = 0; i < leaks.n_leaks; i++) {
    CHECK(leaks.leaks[i].struct_size == sizeof leaks.leaks[i] && contains(leaks.leaks[i].account, "arrow-ipc"));
    CHECK(leaks.leaks[i].device.type == ARROW_DEVICE_CPU && leaks.leaks[i].blocks > 0);
    bytes += leaks.leaks[i].bytes;
  }
  CHECK(bytes == ledger.live_bytes);
  leaks.release(&leaks);
  batch.array.array.release(&batch.array.array);
  end(host, session);
}

const struct test_case host_cases[] = {
    {"reports_and_checks_the_version", reports_and_checks_the_version},
    {"rejects_null_arguments", rejects_null_arguments},
    {"default_settings_search_standard_places", default_settings_search_standard_places},
    {"accepts_shorter_settings_of_older_programs", accepts_shorter_settings_of_older_programs},
    {"rejects_invalid_host_settings", rejects_invalid_host_settings},
    {"rejects_unknown_settings_of_newer_programs", rejects_unknown_settings_of_newer_programs},
    {"lists_candidates_with_status_and_reason", lists_candidates_with_status_and_reason},
    {"missing_plugin_folder_is_a_warning", missing_plugin_folder_is_a_warning},
    {"loading_reports_why_a_plugin_is_refused", loading_reports_why_a_plugin_is_refused},
    {"create_rejects_invalid_plugin_files_unless_lenient", create_rejects_invalid_plugin_files_unless_lenient},
    {"log_receives_messages_of_its_own_host_and_level", log_receives_messages_of_its_own_host_and_level},
    {"log_receives_warnings_of_plugins", log_receives_warnings_of_plugins},
    {"paths_may_contain_any_bytes_but_nul", paths_may_contain_any_bytes_but_nul},
    {"memory_limit_is_enforced", memory_limit_is_enforced},
    {"ledger_and_leaks_report_unreleased_memory", ledger_and_leaks_report_unreleased_memory},
    {NULL, NULL},
};
