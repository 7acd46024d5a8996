/* A plugin in C that does nothing. Definitions on the command line replace fields of its metadata
   and entry, and add faults. */
#include "crossdock.h"

#include <stdio.h>

#ifndef NAME
#define NAME "c-nothing"
#endif
#ifndef VERSION
#define VERSION "1.0.0"
#endif
#ifndef RANGE
#define RANGE CROSSDOCK_API_RANGE
#endif
#ifndef REQUIRED
#define REQUIRED ""
#endif
#ifndef MAJOR
#define MAJOR CROSSDOCK_ABI_MAJOR
#endif
#ifndef MINOR
#define MINOR CROSSDOCK_ABI_MINOR
#endif
#ifndef ENTRY_MAJOR
#define ENTRY_MAJOR MAJOR
#endif
#ifndef META_SIZE
#define META_SIZE sizeof(crossdock_plugin_meta)
#endif
#ifndef META_MAGIC
#define META_MAGIC CROSSDOCK_META_MAGIC
#endif
#ifndef SIZES
#define SIZES CROSSDOCK_META_SIZES_INIT
#endif
#ifndef N_SIZES
#define N_SIZES CROSSDOCK_META_N_SIZES
#endif
#ifndef TOOLCHAIN
#define TOOLCHAIN "cc"
#endif
#ifndef PANIC
#define PANIC "none"
#endif
#ifndef INTERFACES
#define INTERFACES ""
#endif
#ifndef FORMATS
#define FORMATS ""
#endif
#ifndef LICENCE
#define LICENCE "Apache-2.0"
#endif
#ifndef ENTRY_MAGIC
#define ENTRY_MAGIC CROSSDOCK_PLUGIN_MAGIC
#endif
#ifndef DESTROY
#define DESTROY destroy
#endif

#define TEXT(text) {text, sizeof(text) - 1}

struct crossdock_instance {
  const crossdock_host* host;
};

#ifdef RAN
/* Appends the plugin's name to the file RAN when the plugin is loaded. */
__attribute__((constructor)) static void ran(void) {
  FILE* file = fopen(RAN, "a");
  if (file) {
    fputs(NAME "\n", file);
    fclose(file);
  }
}
#endif

#ifdef ENDS_IN_LOAD
/* Ends the process while the plugin is loaded. */
__attribute__((constructor)) static void ends(void) { __builtin_trap(); }
#endif

#ifdef FORKS_AND_ENDS_IN_LOAD
#include <unistd.h>
__attribute__((constructor)) static void forks_and_ends(void) {
  if (fork() == 0) {
    /* The child keeps the parent's open files, except standard streams, and ends after 20 s. */
    for (int i = 0; i < 3; i++) close(i);
    alarm(20);
    for (;;) pause();
  }
  __builtin_trap();
}
#endif

#ifdef UNRESOLVED
extern int undefined_function(void);
#endif

static crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) {
  static crossdock_instance instances[64];
  static int n = 0;
#ifdef CREATE_FAILS
  err->message = "no licence key was found";
  err->code = CROSSDOCK_UNSUPPORTED;
  return CROSSDOCK_UNSUPPORTED;
#endif
#ifdef ENDS_IN_CREATE
  __builtin_trap();
#endif
#ifdef WAITS_IN_CREATE
  /* Waits until another process opens the pipe for reading. */
  fclose(fopen(WAITS_IN_CREATE, "w"));
#endif
#ifdef CREATE_GARBAGE
  return 4711;
#endif
#ifdef UNRESOLVED
  n += undefined_function();
#endif
#ifdef WARNS
  const crossdock_host_log* log = host->get_interface(host, CROSSDOCK_HOST_LOG_ID);
  const crossdock_str warning = TEXT("the\n\033[31mlicence ends"), note = TEXT("all is well");
  log->write(log, CROSSDOCK_LOG_WARN, warning);
  log->write(log, CROSSDOCK_LOG_INFO, note);
#endif
  (void)err;
  instances[n].host = host;
  *out = &instances[n++ % 64];
  return CROSSDOCK_OK;
}

static void destroy(crossdock_instance* instance) { instance->host = NULL; }

static const void* get_interface(crossdock_instance* instance, const char* id) {
  (void)instance;
  (void)id;
  return NULL;
}

#ifndef NO_ENTRY
CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {
    ENTRY_MAGIC, sizeof(crossdock_plugin_entry), ENTRY_MAJOR, MINOR, 0, create, DESTROY, get_interface};
#else
const void* const unused_functions[] = {create, destroy, get_interface};
#endif

#ifdef META_POINTERS
CROSSDOCK_EXPORT const void* const crossdock_plugin_meta_v1[512] = {&crossdock_plugin_v1, &crossdock_plugin_v1};
#elif !defined(NO_META)
CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {
    .magic = META_MAGIC,
    .struct_size = META_SIZE,
    .abi_major = MAJOR,
    .abi_minor = MINOR,
    .n_sizes = N_SIZES,
    .name = NAME,
    .version = VERSION,
    .api_range = RANGE,
    .licence = LICENCE,
    .toolchain = TOOLCHAIN,
    .panic = PANIC,
    .interfaces = INTERFACES,
    .formats = FORMATS,
    .required = REQUIRED,
    .description = "does nothing",
    .sizes = SIZES,
};
#endif
