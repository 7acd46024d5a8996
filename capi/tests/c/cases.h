/* What the cases of this program share. Each case is a function that ends the process with a line when it fails. */
#ifndef CASES_H
#define CASES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crossdock-host.h"

struct test_case {
  const char* name;
  void (*run)(void);
};
/* One list for each file; the last name is NULL. */
extern const struct test_case host_cases[], session_cases[], read_cases[], write_cases[], convert_cases[], lifetime_cases[];

/* From the command line: folders of plugins, the sample, an empty folder. */
extern const char *plugins, *sample, *folder;

#define SAMPLE_ROWS 27004

#define CHECK(what)                                                       \
  do {                                                                    \
    if (!(what)) fail(__FILE__, __LINE__, #what);                         \
  } while (0)
_Noreturn void fail(const char* file, int line, const char* what);

/* The call succeeds. `err` is the name of the crossdock_error that it was given. */
#define OK(call)                                                          \
  do {                                                                    \
    crossdock_error err = CROSSDOCK_ERROR_INIT;                           \
    if ((call) != CROSSDOCK_OK) fail(__FILE__, __LINE__, err.message);    \
    CHECK(err.release == NULL);                                           \
  } while (0)

/* The call fails with this code and with these words in its message; and without an error struct, with the code alone. */
#define FAILS(expected, words, call)                                      \
  do {                                                                    \
    crossdock_error err = CROSSDOCK_ERROR_INIT;                           \
    check_failure(__FILE__, __LINE__, expected, words, (call), &err);     \
  } while (0)
void check_failure(const char* file, int line, crossdock_code expected, const char* words, crossdock_code got,
                   crossdock_error* err);

#define ERR (&err)
#define STREAM {.struct_size = sizeof(crossdock_batch_stream)}
#define WRITER {.struct_size = sizeof(crossdock_writer)}
#define BATCH {.struct_size = sizeof(crossdock_batch)}
#define CAPSULES {.struct_size = sizeof(crossdock_capsules)}
#define LEAKS {.struct_size = sizeof(crossdock_leaks)}

crossdock_host_handle* new_host(void);
crossdock_session* new_session(crossdock_host_handle* host);
/* Destroys the host, after having made sure that nothing is left in its memory. */
void end_host(crossdock_host_handle* host);
/* The same, and the session before it. */
void end(crossdock_host_handle* host, crossdock_session* session);

bool is(crossdock_str text, const char* expected);
bool contains(crossdock_str text, const char* part);
/* "FOLDER/NAME", in one of a few buffers that are used in turn. */
const char* in_folder(const char* name);
bool exists(const char* path);
/* No file in the folder has `part` in its name. */
bool nothing_left(const char* part);
/* The whole file, to be freed. */
void* load(const char* path, size_t* bytes);

/* The rows of all that is left; releases the stream. */
int64_t count_rows(crossdock_batch_stream* stream);
int64_t rows_of(crossdock_session* session, const char* path);
/* The sample in another format, by its ending. */
const char* converted(crossdock_session* session, const char* name);

/* A table of one column "n" of int64, made by hand. `n_released` counts the arrays and schemas that were given back. */
extern atomic_int n_released;
void make_schema(struct ArrowSchema* out);
void make_array(struct ArrowArray* out, const int64_t* values, int64_t n);
crossdock_batch make_batch(const int64_t* values, int64_t n);
crossdock_capsule make_capsule(const char* name, void* pointer);
/* Where the values of the column are. */
const int64_t* values_of(const struct ArrowArray* batch);

#endif
