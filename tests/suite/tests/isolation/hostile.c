/* A hostile plugin. The file that it reads names the action: a crash, an endless loop, or an
 * attempt to access the system. After an attempt, the error message has the action and errno, or 0
 * if the attempt succeeded. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "crossdock.h"

#define TEXT(literal) {literal, sizeof(literal) - 1}

struct crossdock_instance {
  const crossdock_host* host;
};

/* The test checks whether this file exists. HOSTILE_FILE is a path that is set at compile time. */
__attribute__((constructor)) static void at_load(void) {
  int file = open(HOSTILE_FILE, O_CREAT | O_WRONLY, 0600);
  if (file >= 0) close(file);
}

static crossdock_code fail(crossdock_error* err, const char* message) {
  if (err) err->message = message;
  return CROSSDOCK_BAD_DATA;
}

static int is(const char* action, const char* name) { return strcmp(action, name) == 0; }

static volatile int never;

/* Returns -1 and sets errno if the attempt fails, like a system call. */
static int attempt(const char* action) {
  char* const none[] = {NULL};
  if (is(action, "write-file")) return open(HOSTILE_FILE ".written", O_CREAT | O_WRONLY, 0600);
  if (is(action, "read-file")) return open("/etc/passwd", O_RDONLY);
  if (is(action, "list-folder")) return open("/", O_RDONLY | O_DIRECTORY);
  if (is(action, "read-library")) return open("/usr", O_RDONLY | O_DIRECTORY);
  if (is(action, "socket")) return socket(AF_INET, SOCK_STREAM, 0);
  if (is(action, "local-socket")) return socket(AF_UNIX, SOCK_STREAM, 0);
  if (is(action, "fork")) return fork();
  if (is(action, "exec")) return execve("/bin/true", none, none);
  if (is(action, "kill")) return kill(getppid(), SIGKILL);
  if (is(action, "trace")) return (int)ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
  if (is(action, "remove-file")) return unlink(HOSTILE_FILE ".existing");
  if (is(action, "make-folder")) return mkdir(HOSTILE_FILE ".folder", 0700);
  if (is(action, "type-into-terminal")) return ioctl(0, TIOCSTI, "x");
  if (is(action, "driver-ioctl")) return ioctl(0, 0x4601, NULL);
  if (is(action, "limit-host")) return prlimit(getppid(), RLIMIT_NOFILE, NULL, &(struct rlimit){0});
  if (is(action, "pin-host")) {
    cpu_set_t all;
    return sched_getaffinity(0, sizeof all, &all) ? -1 : sched_setaffinity(getppid(), sizeof all, &all);
  }
  if (is(action, "signal-by-file")) return fcntl(0, F_SETOWN, getppid());
  if (is(action, "unblock-errors")) return fcntl(2, F_SETFL, O_NONBLOCK | fcntl(2, F_GETFL));
  if (is(action, "lock-file")) return flock(2, LOCK_SH);
  if (is(action, "lock-record")) return fcntl(2, F_SETLK, &(struct flock){.l_type = F_UNLCK});
  if (is(action, "lock-open-file")) return fcntl(2, F_OFD_SETLK, &(struct flock){.l_type = F_UNLCK});
  if (is(action, "lease")) return fcntl(2, F_SETLEASE, F_UNLCK);
  if (is(action, "notify")) return fcntl(2, F_NOTIFY, 0);
  if (is(action, "capabilities")) {
    static char status[4096];
    int file = open("/proc/self/status", O_RDONLY);
    ssize_t n = read(file, status, sizeof status - 1);
    close(file);
    if (n <= 0 || strstr(status, "CapEff:\t0000000000000000")) errno = EPERM;
    return n > 0 && errno == 0 ? 0 : -1;
  }
  if (is(action, "pass-pid-fd")) {
    int pair[2], on = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 0;
    int result = setsockopt(pair[0], SOL_SOCKET, 76 /* SO_PASSPIDFD */, &on, sizeof on);
    close(pair[0]), close(pair[1]);
    return result;
  }
  if (is(action, "datagrams")) return socketpair(AF_UNIX, SOCK_DGRAM, 0, (int[2]){0, 0});
  if (is(action, "standard-input")) return (int)read(0, &errno, 1) == 0 ? 0 : -1;
  if (is(action, "take-memory")) {
    volatile char* memory = malloc((size_t)1 << 30);
    if (memory) memory[1 << 29] = 1;
    free((void*)memory);
    return memory ? 0 : -1;
  }
  if (is(action, "take-memory-as-file")) {
    static const char much[1 << 20];
    int file = memfd_create("much", 0);
    for (int i = 0; file >= 0 && i < 1 << 10; i++) {
      if (write(file, much, sizeof much) < 0) return -1;
    }
    close(file);
    return file < 0 ? -1 : 0;
  }
  errno = ENOSYS;
  return -1;
}

/* ------------------------------------------------------------------------------ a batch --- */

static struct ArrowSchema column_schema = {.format = "u", .name = "text", .flags = 0};
static struct ArrowSchema* schema_children[] = {&column_schema};
static void release_schema(struct ArrowSchema* schema) { schema->release = NULL; }
static void release_tree(struct crossdock_encoded_array* array) { array->release = NULL; }
static void release_array(struct ArrowArray* array) { array->release = NULL; }

/* Two texts; the first one ends after the end of the second. */
static int32_t offsets[] = {0, 60, 4};
static const char text[64] = "text";
static const void* column_buffers[] = {NULL, offsets, text};
static const void* batch_buffers[] = {NULL};
static struct ArrowArray column_array = {.length = 2, .n_buffers = 3, .buffers = column_buffers, .release = release_array};
static struct ArrowArray* array_children[] = {&column_array};

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  (void)stream, (void)err;
  column_schema.release = release_schema;
  *out = (struct ArrowSchema){.format = "+s", .name = "", .n_children = 1, .children = schema_children, .release = release_schema};
  return CROSSDOCK_OK;
}

static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  const char* action = stream->private_data;
  (void)call, (void)err;
  if (is(action, "next-crash")) *(volatile int*)0 = never;
  column_array.release = release_array;
  offsets[1] = is(action, "valid") ? 4 : 60;
  if (is(action, "many-rows")) column_array.length = 1 << 30;
  out->array.array = (struct ArrowArray){.length = column_array.length, .n_buffers = 1, .n_children = 1, .buffers = batch_buffers,
                                         .children = array_children, .release = release_array};
  out->array.device_id = -1;
  out->array.device_type = ARROW_DEVICE_CPU;
  stream->private_data = (void*)"next-crash";
  return CROSSDOCK_OK;
}

static const crossdock_host_log* release_log;

static void release_stream(crossdock_batch_stream* stream) {
  crossdock_str message_text = TEXT("still releasing");
  stream->release = NULL;
  while (release_log) release_log->write(release_log, CROSSDOCK_LOG_WARN, message_text);
}

/* --------------------------------------------------------------------------- the action --- */

/* Requests that the host decodes an array with less validation than the session has. */
static crossdock_code decode_unvalidated(const crossdock_host* host, crossdock_error* err) {
  static struct ArrowSchema schema = {.format = "i", .name = "tens"};
  const crossdock_host_decode* decoder = host->get_interface(host, CROSSDOCK_HOST_DECODE_ID);
  crossdock_encoded_node node = {.struct_size = sizeof node, .encoding = TEXT("test.tens"), .schema = &schema, .length = 7};
  crossdock_encoded_array array = {.struct_size = sizeof array, .nodes = &node, .n_nodes = 1};
  crossdock_call call = {.struct_size = sizeof call, .device = {-1, ARROW_DEVICE_CPU, 0}, .validate = CROSSDOCK_VALIDATE_LAYOUT};
  crossdock_batch decoded = {.struct_size = sizeof decoded};
  schema.release = release_schema;
  array.release = release_tree;
  if (decoder->decode(decoder, &call, &array, NULL, &decoded, NULL) != CROSSDOCK_OK) return fail(err, "not decoded");
  decoded.array.array.release(&decoded.array.array);
  return fail(err, "decoded");
}

static crossdock_code open_action(crossdock_instance* instance, const crossdock_call* call,
                                  const crossdock_read_request* request, crossdock_batch_stream* out, crossdock_error* err) {
  const crossdock_input* input = request->input;
  static char action[64], message[128];
  static const char* const streams[] = {"next-crash", "false-offset", "valid", "many-rows", "log-in-release"};
  crossdock_source source = *input->sources;
  size_t n = 0;
  (void)instance;
  input->sources->release = NULL;
  source.read_at(&source, 0, action, sizeof action - 1, &n, NULL);
  source.release(&source);
  action[n] = 0;
  if (is(action, "crash")) *(volatile int*)0 = 1;
  if (is(action, "exit")) _exit(3); /* not exit(), for which a sanitizer changes the status */
  if (is(action, "abort")) abort();
  if (is(action, "hang")) while (!never) continue;
  if (is(action, "report-forever")) {
    for (uint64_t bytes = 0; !never; bytes++, usleep(1000)) call->progress(call->progress_data, bytes, 0);
  }
  if (is(action, "hang-until-cancelled")) {
    while (!CROSSDOCK_IS_CANCELLED(call)) usleep(1000);
    return CROSSDOCK_CANCELLED;
  }
  if (is(action, "decode-unvalidated")) return decode_unvalidated(instance->host, err);
  if (is(action, "log")) {
    const crossdock_host_log* log = instance->host->get_interface(instance->host, CROSSDOCK_HOST_LOG_ID);
    crossdock_str message_text = TEXT("a log message");
    log->write(log, CROSSDOCK_LOG_WARN, message_text);
    return fail(err, "logged");
  }
  if (is(action, "print")) {
    printf("not a response\n");
    fflush(stdout);
    return fail(err, "printed");
  }
  if (is(action, "log-in-release")) release_log = instance->host->get_interface(instance->host, CROSSDOCK_HOST_LOG_ID);
  for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
    if (!is(action, streams[i])) continue;
    out->get_schema = get_schema;
    out->get_next = get_next;
    out->release = release_stream;
    out->private_data = (void*)streams[i];
    return CROSSDOCK_OK;
  }
  errno = 0;
  n = (size_t)snprintf(message, sizeof message, "%s: ", action);
  snprintf(message + n, sizeof message - n, "%d", attempt(action) < 0 ? errno : 0);
  return fail(err, message);
}

static const crossdock_str extensions[] = {TEXT(".action")};
static const crossdock_format format = {
    .struct_size = sizeof format, .name = TEXT("actions"), .description = TEXT("runs hostile actions"), .flags = CROSSDOCK_FORMAT_BYTES,
    .extensions = extensions, .n_extensions = 1};

static crossdock_code formats(crossdock_instance* instance, const crossdock_format** out, size_t* n_out, crossdock_error* err) {
  (void)instance, (void)err;
  *out = &format;
  *n_out = 1;
  return CROSSDOCK_OK;
}

static const crossdock_importer importer = {.struct_size = sizeof importer, .formats = formats, .open = open_action};

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  crossdock_instance* instance = malloc(sizeof *instance);
  if (!instance) return fail(err, "no memory");
  instance->host = host;
  *out = instance;
  return CROSSDOCK_OK;
}

static void destroy(crossdock_instance* instance) {
  fputs("an instance was destroyed\n", stderr);
  free(instance);
}

static const void* get_interface(crossdock_instance* instance, const char* id) {
  (void)instance;
  return is(id, CROSSDOCK_IMPORTER_ID) ? &importer : NULL;
}

CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {
    CROSSDOCK_PLUGIN_MAGIC, sizeof(crossdock_plugin_entry), CROSSDOCK_ABI_MAJOR, CROSSDOCK_ABI_MINOR, 0,
    create, destroy, get_interface};

CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {
    .magic = CROSSDOCK_META_MAGIC, .struct_size = sizeof(crossdock_plugin_meta), .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR, .n_sizes = CROSSDOCK_META_N_SIZES, .name = "hostile", .version = "1.0.0",
    .api_range = CROSSDOCK_API_RANGE, .licence = "Apache-2.0", .toolchain = "C", .panic = "none", .interfaces = CROSSDOCK_IMPORTER_ID,
    .formats = "actions", .description = "runs hostile actions", .sizes = CROSSDOCK_META_SIZES_INIT};
