/* The opener: URIs "base://numbers" and "base://empty", whose contents are in memory. */
#include "base.h"

#define N_BYTES 10000

static unsigned char numbers[N_BYTES];
static once_flag filled = ONCE_FLAG_INIT;

static void fill(void) {
  for (size_t i = 0; i < N_BYTES; i++) numbers[i] = (unsigned char)(i * 7 + i / 256);
}

typedef struct opened {
  crossdock_instance* instance;
  size_t bytes;
  char version[32];
} opened;

static crossdock_code read_at(crossdock_source* source, uint64_t offset, void* to, size_t bytes, size_t* out_read,
                              crossdock_error* err) {
  static _Atomic uint64_t cursor;
  const opened* o = source->private_data;
  size_t n = offset < o->bytes ? o->bytes - (size_t)offset : 0;
  (void)err;
  if (n > bytes) n = bytes;
  if (HAS(URI_READ_STOPS_EARLY) && n > 4096) n = 4096;
  if (HAS(URI_CURSOR_SHARED)) {
    cursor = offset;
    thrd_sleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    offset = cursor;
    if (offset + n > N_BYTES) offset = 0;
  }
  if (n > 0) memcpy(to, numbers + offset, n);
  *out_read = n;
  return CROSSDOCK_OK;
}

static void release(crossdock_source* source) {
  opened* o = source->private_data;
  if (!HAS(URI_HOST_LOST)) o->instance->host->release(o->instance->host);
  free(o);
  if (!HAS(URI_NOT_CLEARED)) source->release = NULL;
}

static crossdock_code open_uri(crossdock_instance* instance, const crossdock_call* call, crossdock_str uri,
                               const crossdock_option* options, size_t n_options, crossdock_source* out,
                               crossdock_error* err) {
  static _Atomic int n_opened;
  const crossdock_host* host = instance->host;
  const int is_empty = base_is(uri, "base://empty");
  opened* o;
  (void)options;
  if (CROSSDOCK_IS_CANCELLED(call) && !HAS(URI_CANCEL_IGNORED)) return base_cancelled(call, err);
  if (CROSSDOCK_CHECK_CALL(call) != CROSSDOCK_OK)
    return base_fail(err, CROSSDOCK_CHECK_CALL(call), "base: the call has a reserved field or an unknown setting");
  if (n_options > 0 && !HAS(URI_OPTION_IGNORED))
    return base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base: the opener has no options");
  if (!is_empty && !base_is(uri, "base://numbers") && !HAS(URI_ANY_OPENED))
    return base_fail(err, CROSSDOCK_IO, "base: no content has this URI");
  o = calloc(1, sizeof *o);
  if (!o) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base: no memory for a source");
  call_once(&filled, fill);
  o->instance = instance;
  o->bytes = is_empty ? 0 : N_BYTES;
  snprintf(o->version, sizeof o->version, "v%d", HAS(URI_VERSION_CHANGES) ? ++n_opened : 1);
  host->retain(host);
  out->bytes = HAS(URI_LENGTH_UNKNOWN) ? -1 : (int64_t)o->bytes;
  out->name = (crossdock_str)TEXT("base://");
  out->version = (crossdock_str){o->version, strlen(o->version)};
  out->read_at = read_at;
  out->release = release;
  out->private_data = o;
  return CROSSDOCK_OK;
}

/* BUG_SCHEME_IN_CAPITALS changes BASE_SCHEME. */
static const crossdock_str SCHEMES[] = {TEXT(BASE_SCHEME)};

static crossdock_code schemes(crossdock_instance* instance, const crossdock_str** out, size_t* n_out, crossdock_error* err) {
  (void)instance, (void)err;
  *out = SCHEMES;
  *n_out = 1;
  return CROSSDOCK_OK;
}

const crossdock_opener BASE_OPENER = {sizeof BASE_OPENER, schemes, open_uri};
