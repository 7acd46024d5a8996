/* crossdock_version, crossdock_check_version, crossdock_host_*. */
#include <sys/stat.h>

#include "cases.h"

static void the_version_is_told_and_checked(void) {
  CHECK(strchr(crossdock_version(), '.'));
  OK(CROSSDOCK_CHECK_VERSION(ERR));
  FAILS(CROSSDOCK_VERSION, "compiled for 0.999", crossdock_check_version(0, 999, ERR));
  FAILS(CROSSDOCK_VERSION, "compiled for 7.0", crossdock_check_version(7, 0, ERR));
  CHECK(crossdock_check_version(7, 0, NULL) == CROSSDOCK_VERSION);
}

static void null_is_an_invalid_argument(void) {
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

static void a_host_with_default_settings_looks_in_the_usual_places(void) {
  crossdock_host_handle* host = NULL;
  OK(crossdock_host_create(NULL, &host, ERR));
  end_host(host);
}

static void settings_of_an_older_program_are_as_good(void) {
  crossdock_str given = crossdock_text(plugins);
  crossdock_host_settings settings = {.struct_size = offsetof(crossdock_host_settings, flags)};
  crossdock_host_handle* host = NULL;
  settings.plugins = &given;
  settings.n_plugins = 1;
  settings.flags = 0xffffffff; /* beyond its size: not looked at */
  settings.log_level = 99;
  OK(crossdock_host_create(&settings, &host, ERR));
  OK(crossdock_host_load(host, crossdock_text("arrow-ipc"), ERR));

  /* An older answer is filled in as far as it reaches. */
  crossdock_ledger ledger;
  memset(&ledger, 0x55, sizeof ledger);
  ledger.struct_size = offsetof(crossdock_ledger, cached_bytes);
  OK(crossdock_host_ledger(host, &ledger, ERR));
  CHECK(ledger.struct_size == offsetof(crossdock_ledger, cached_bytes));
  CHECK(ledger.live_bytes == 0 && ledger.live_blocks == 0);
  CHECK(ledger.cached_bytes == UINT64_C(0x5555555555555555));
  end_host(host);
}

static void settings_that_make_no_sense_are_refused(void) {
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

static void a_newer_program_is_told_what_this_library_does_not_know(void) {
  struct {
    crossdock_host_settings known;
    uint64_t later;
  } settings = {.known = {.struct_size = sizeof settings}};
  crossdock_host_handle* host = NULL;
  OK(crossdock_host_create(&settings.known, &host, ERR));
  end_host(host);
  settings.later = 1;
  FAILS(CROSSDOCK_VERSION, "too old", crossdock_host_create(&settings.known, &host, ERR));
}

/* A file in the folder, of these bytes and this mode. */
static const char* put(const char* name, const void* data, size_t bytes, mode_t mode) {
  const char* path = in_folder(name);
  FILE* file = fopen(path, "wb");
  CHECK(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0 && chmod(path, mode) == 0);
  return path;
}

/* A plugin that anybody may write, which is why it is refused. */
static const char* writable_plugin(void) {
  char from[4096];
  size_t bytes;
  snprintf(from, sizeof from, "%s/libcrossdock_arrow_c_device_plugin.so", plugins);
  void* data = load(from, &bytes);
  const char* path = put("writable.so", data, bytes, 0666);
  free(data);
  return path;
}

static crossdock_host_handle* host_over(const char* path, uint32_t flags) {
  crossdock_str given = crossdock_text(path);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &given, .n_plugins = 1};
  crossdock_host_handle* host = NULL;
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN | flags;
  OK(crossdock_host_create(&settings, &host, ERR));
  return host;
}

static void candidates_are_listed_with_what_became_of_them(void) {
  writable_plugin();
  put("text.so", "no plugin", 9, 0644);
  crossdock_str given[2] = {crossdock_text(plugins), crossdock_text(folder)};
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = given, .n_plugins = 2};
  crossdock_host_handle* host = NULL;
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  OK(crossdock_host_create(&settings, &host, ERR));
  for (uint32_t with = 0; with < 2; with++) {
    crossdock_candidates list = {.struct_size = sizeof list};
    OK(crossdock_host_candidates(host, with, &list, ERR));
    int seen = 0;
    for (size_t i = 0; i < list.n_candidates; i++) {
      const crossdock_candidate* c = &list.candidates[i];
      CHECK(c->struct_size == sizeof *c && c->origin.bytes > 0);
      if (contains(c->path, "libcrossdock_arrow_ipc_plugin.so")) {
        CHECK(c->status == CROSSDOCK_CANDIDATE_CHOSEN && is(c->name, "arrow-ipc") && c->reason.bytes == 0);
        CHECK(contains(c->formats, "arrow-ipc-file") && c->version.bytes > 0 && c->description.bytes > 0);
        seen++;
      } else if (contains(c->path, "writable.so")) {
        CHECK(c->status == CROSSDOCK_CANDIDATE_REFUSED && is(c->reason, "writable"));
        CHECK(is(c->name, "arrow-c-device") && contains(c->message, "chmod go-w"));
        seen++;
      } else if (contains(c->path, "text.so")) {
        CHECK(c->status == CROSSDOCK_CANDIDATE_REFUSED && is(c->reason, "not-elf") && c->name.bytes == 0);
        seen++;
      }
    }
    CHECK(seen == 3);
    list.release(&list);
    CHECK(!list.release && !list.candidates && list.n_candidates == 0);
  }
  crossdock_candidates list = {.struct_size = sizeof list};
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "load is 2", crossdock_host_candidates(host, 2, &list, ERR));
  end_host(host);
}

static void a_place_that_is_not_there_is_a_warning(void) {
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

static void loading_by_name_says_why_not(void) {
  crossdock_host_handle* host = new_host();
  OK(crossdock_host_load(host, crossdock_text("arrow-ipc"), ERR));
  OK(crossdock_host_load(host, crossdock_text("arrow-ipc"), ERR));
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "no plugin 'nobody'", crossdock_host_load(host, crossdock_text("nobody"), ERR));
  end_host(host);

  writable_plugin();
  host = host_over(folder, 0);
  crossdock_error err = CROSSDOCK_ERROR_INIT;
  CHECK(crossdock_host_load(host, crossdock_text("arrow-c-device"), &err) == CROSSDOCK_UNSUPPORTED);
  CHECK(strstr(err.message, "writable.so") && strcmp(err.details, "refused: writable") == 0);
  crossdock_error_clear(&err);
  end_host(host);
}

static void a_file_that_was_given_must_be_a_plugin_unless_the_caller_is_lenient(void) {
  const char* missing = in_folder("missing.so");
  const char* wrong = put("wrong.so", "no plugin", 9, 0644);
  crossdock_str given = crossdock_text(missing);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &given, .n_plugins = 1};
  crossdock_host_handle* host = NULL;
  FAILS(CROSSDOCK_IO, "missing.so", crossdock_host_create(&settings, &host, ERR));
  given = crossdock_text(wrong);
  FAILS(CROSSDOCK_UNSUPPORTED, "wrong.so", crossdock_host_create(&settings, &host, ERR));
  CHECK(!host);
  host = host_over(wrong, CROSSDOCK_HOST_LENIENT);
  crossdock_candidates list = {.struct_size = sizeof list};
  OK(crossdock_host_candidates(host, 0, &list, ERR));
  CHECK(list.n_candidates == 1 && is(list.candidates[0].reason, "not-elf"));
  list.release(&list);
  end_host(host);
}

struct heard {
  int lines, about_text, level;
  atomic_int released;
};

static void hear(void* data, int32_t level, crossdock_str plugin, crossdock_str message) {
  struct heard* heard = data;
  CHECK(plugin.data && contains(message, ""));
  heard->lines++;
  heard->about_text += contains(message, "text.so");
  if (level > heard->level) heard->level = level;
}

static void no_more(void* data) { ((struct heard*)data)->released++; }

static void the_log_hears_its_own_host_as_loudly_as_asked(void) {
  put("text.so", "no plugin", 9, 0644);
  writable_plugin();
  crossdock_str given = crossdock_text(folder);
  struct heard quiet = {0}, all = {0};
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &given, .n_plugins = 1};
  crossdock_host_handle *one = NULL, *two = NULL;
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  settings.log = hear;
  settings.log_release = no_more;
  settings.log_data = &quiet;
  OK(crossdock_host_create(&settings, &one, ERR));
  CHECK(quiet.lines == 1 && quiet.level == CROSSDOCK_LOG_WARN && quiet.about_text == 0);
  settings.log_level = CROSSDOCK_LOG_DEBUG;
  settings.log_data = &all;
  OK(crossdock_host_create(&settings, &two, ERR));
  CHECK(all.lines >= 2 && all.about_text == 1 && all.level == CROSSDOCK_LOG_DEBUG);
  CHECK(quiet.lines == 1);
  end_host(one);
  CHECK(quiet.released == 1 && all.released == 0);
  end_host(two);
  CHECK(all.released == 1);

  /* Also when nothing comes of it. */
  struct heard failed = {0};
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

struct told {
  int warnings;
  atomic_int released;
};

static void hear_of_arrow_ipc(void* data, int32_t level, crossdock_str plugin, crossdock_str message) {
  struct told* told = data;
  if (!is(plugin, "arrow-ipc")) return;
  CHECK(level == CROSSDOCK_LOG_WARN && contains(message, "after the end"));
  told->warnings++;
}

static void forget_told(void* data) { ((struct told*)data)->released++; }

static void the_log_hears_the_warnings_of_plugins(void) {
  crossdock_host_handle* plain = new_host();
  crossdock_session* session = new_session(plain);
  size_t bytes;
  char* data = load(converted(session, "more.arrows"), &bytes);
  end(plain, session);
  data = realloc(data, bytes + 8);
  CHECK(data);
  memcpy(data + bytes, "no Arrow", 8);
  const char* path = put("more.arrows", data, bytes + 8, 0644);

  crossdock_str given = crossdock_text(plugins);
  struct told one = {0}, other = {0};
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &given, .n_plugins = 1};
  settings.flags = CROSSDOCK_HOST_ONLY_GIVEN;
  settings.log = hear_of_arrow_ipc;
  settings.log_release = forget_told;
  settings.log_data = &one;
  crossdock_host_handle *host = NULL, *deaf = NULL;
  OK(crossdock_host_create(&settings, &host, ERR));
  settings.log_data = &other;
  OK(crossdock_host_create(&settings, &deaf, ERR));
  session = new_session(host);
  CHECK(rows_of(session, path) == SAMPLE_ROWS && one.warnings == 1);
  crossdock_batch_stream stream = STREAM;
  OK(crossdock_session_read_bytes(session, data, bytes + 8, NULL, NULL, NULL, &stream, ERR));
  CHECK(count_rows(&stream) == SAMPLE_ROWS && one.warnings == 2 && other.warnings == 0);
  end(host, session);
  end_host(deaf);
  CHECK(one.released == 1 && other.released == 1);
  free(data);
}

static void paths_are_any_bytes_but_nul(void) {
  size_t bytes;
  char from[4096];
  snprintf(from, sizeof from, "%s/libcrossdock_arrow_ipc_plugin.so", plugins);
  void* data = load(from, &bytes);
  const char* plugin = put("na\xff" "me.so", data, bytes, 0755);
  free(data);
  data = load(sample, &bytes);
  const char* path = put("na\xff" "me.arrow", data, bytes, 0644);
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

static void the_memory_limit_holds(void) {
  crossdock_str given = crossdock_text(plugins);
  crossdock_host_settings settings = {.struct_size = sizeof settings, .plugins = &given, .n_plugins = 1};
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

static void the_ledger_and_the_leaks_tell_what_is_held(void) {
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
    {"the_version_is_told_and_checked", the_version_is_told_and_checked},
    {"null_is_an_invalid_argument", null_is_an_invalid_argument},
    {"a_host_with_default_settings_looks_in_the_usual_places", a_host_with_default_settings_looks_in_the_usual_places},
    {"settings_of_an_older_program_are_as_good", settings_of_an_older_program_are_as_good},
    {"settings_that_make_no_sense_are_refused", settings_that_make_no_sense_are_refused},
    {"a_newer_program_is_told_what_this_library_does_not_know",
     a_newer_program_is_told_what_this_library_does_not_know},
    {"candidates_are_listed_with_what_became_of_them", candidates_are_listed_with_what_became_of_them},
    {"a_place_that_is_not_there_is_a_warning", a_place_that_is_not_there_is_a_warning},
    {"loading_by_name_says_why_not", loading_by_name_says_why_not},
    {"a_file_that_was_given_must_be_a_plugin_unless_the_caller_is_lenient",
     a_file_that_was_given_must_be_a_plugin_unless_the_caller_is_lenient},
    {"the_log_hears_its_own_host_as_loudly_as_asked", the_log_hears_its_own_host_as_loudly_as_asked},
    {"the_log_hears_the_warnings_of_plugins", the_log_hears_the_warnings_of_plugins},
    {"paths_are_any_bytes_but_nul", paths_are_any_bytes_but_nul},
    {"the_memory_limit_holds", the_memory_limit_holds},
    {"the_ledger_and_the_leaks_tell_what_is_held", the_ledger_and_the_leaks_tell_what_is_held},
    {NULL, NULL},
};
