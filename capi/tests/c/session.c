/* Cases of crossdock_session_create, _destroy and _cancel. */
#include <signal.h>

#include "cases.h"

static void rejects_null_sessions(void) {
  crossdock_session* session = NULL;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "the host is NULL", crossdock_session_create(NULL, NULL, &session, ERR));
  crossdock_host_handle* host = new_host();
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "out is NULL", crossdock_session_create(host, NULL, NULL, ERR));
  crossdock_session_destroy(NULL);
  crossdock_session_cancel(NULL);
  end_host(host);
}

static void session_accepts_settings(void) {
  crossdock_host_handle* host = new_host();
  crossdock_session* session = NULL;
  crossdock_session_settings settings = {.struct_size = sizeof settings};
  settings.device.type = ARROW_DEVICE_CPU;
  settings.flags = CROSSDOCK_SESSION_VALIDATE;
  settings.validate = CROSSDOCK_VALIDATE_FULL;
  settings.byte_budget = 1 << 20;
  OK(crossdock_session_create(host, &settings, &session, ERR));
  CHECK(rows_of(session, sample) == SAMPLE_ROWS);
  crossdock_session_destroy(session);
  settings.struct_size = offsetof(crossdock_session_settings, flags);
  settings.flags = 0x80; /* not covered by struct_size, therefore ignored */
  OK(crossdock_session_create(host, &settings, &session, ERR));
  end(host, session);
}

static void rejects_invalid_session_settings(void) {
  crossdock_host_handle* host = new_host();
  crossdock_session* session = NULL;
  crossdock_session_settings settings = {.struct_size = sizeof settings};
  settings.device.type = ARROW_DEVICE_CUDA;
  settings.device.id = 99;
  FAILS(CROSSDOCK_DEVICE, "cuda:99", crossdock_session_create(host, &settings, &session, ERR));
  settings.device.type = ARROW_DEVICE_CPU;
  settings.flags = CROSSDOCK_SESSION_VALIDATE;
  settings.validate = 2;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "validate is 2", crossdock_session_create(host, &settings, &session, ERR));
  settings.flags = 2;
  FAILS(CROSSDOCK_INVALID_ARGUMENT, "flags 0x2", crossdock_session_create(host, &settings, &session, ERR));
  CHECK(!session);
  end_host(host);
}

static crossdock_session* cancelled_session;
static void on_signal(int number) {
  (void)number;
  crossdock_session_cancel(cancelled_session);
}

static void session_can_be_cancelled_in_a_signal_handler(void) {
  crossdock_host_handle* host = new_host();
  crossdock_session* session = new_session(host);
  crossdock_batch_stream stream = STREAM, again = STREAM;
  crossdock_batch batch = BATCH;
  OK(crossdock_session_read_path(session, crossdock_text(sample), NULL, &stream, ERR));
  cancelled_session = session;
  signal(SIGUSR1, on_signal);
  CHECK(raise(SIGUSR1) == 0);
  signal(SIGUSR1, SIG_DFL);
  FAILS(CROSSDOCK_CANCELLED, "cancelled", stream.get_next(&stream, NULL, &batch, ERR));
  FAILS(CROSSDOCK_CANCELLED, "cancelled",
        crossdock_session_read_path(session, crossdock_text(sample), NULL, &again, ERR));
  const char* path = in_folder("cancelled.arrow");
  FAILS(CROSSDOCK_CANCELLED, "cancelled",
        crossdock_session_convert(session, crossdock_text(sample), crossdock_text(path), NULL, NULL, ERR));
  CHECK(has_no_file("cancelled"));
  stream.release(&stream);
  /* Cancelling one session does not affect other sessions. */
  crossdock_session* other = new_session(host);
  CHECK(rows_of(other, sample) == SAMPLE_ROWS);
  crossdock_session_destroy(other);
  end(host, session);
}

const struct test_case session_cases[] = {
    {"rejects_null_sessions", rejects_null_sessions},
    {"session_accepts_settings", session_accepts_settings},
    {"rejects_invalid_session_settings", rejects_invalid_session_settings},
    {"session_can_be_cancelled_in_a_signal_handler", session_can_be_cancelled_in_a_signal_handler},
    {NULL, NULL},
};
