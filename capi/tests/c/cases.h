/* Helpers of the cases. A case is a function that exits with a message if it fails. */
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
/* The cases of each file. The last element of each list has the name NULL. */
extern const struct test_case host_cases[], session_cases[], read_cases[], scan_cases[], parts_cases[], uri_cases[], write_cases[], convert_cases[], lifetime_cases[];

/* Arguments of the program: a folder of plugins, the sample file, and an empty folder. */
extern const char *plugins, *sample, *folder;

#define SAMPLE_ROWS 27004

#define CHECK(what)                                                       \
  do {                                                                    \
    if (!(what)) fail(__FILE__, __LINE__, #what);                         \
  } while (0)
_Noreturn void fail(const char* file, int line, const char* what);

/* Requires that `call` succeeds. `call` passes ERR as the argument for the error. */
#define OK(call)                                                          \
  do {                                                                    \
    crossdock_error err = CROSSDOCK_ERROR_INIT;                           \
    if ((call) != CROSSDOCK_OK) fail(__FILE__, __LINE__, err.message);    \
    CHECK(err.release == NULL);                                           \
  } while (0)

/* Requires that `call` fails with the code `expected` and a message that contains `words`. `call`
   passes ERR as the argument for the error. */
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
/* Requires that the host has no leaks, and destroys it. */
void end_host(crossdock_host_handle* host);
/* Destroys the session and the host, which must have no leaks. */
void end(crossdock_host_handle* host, crossdock_session* session);

bool is(crossdock_str text, const char* expected);
bool contains(crossdock_str text, const char* part);
/* Returns "FOLDER/NAME" in one of four static buffers. */
const char* in_folder(const char* name);
bool exists(const char* path);
/* Whether no file in the folder has `part` in its name. */
bool has_no_file(const char* part);
/* Reads a file. The caller frees the result. */
void* load(const char* path, size_t* bytes);

/* Counts the rows of all remaining batches, and releases the stream. */
int64_t count_rows(crossdock_batch_stream* stream);
int64_t rows_of(crossdock_session* session, const char* path);
/* Converts the sample to the format of the file extension. Returns the path. */
const char* converted(crossdock_session* session, const char* name);

/* Functions that create a table with one int64 column "n". `n_released` counts the arrays and
   schemas of this table that were released. */
extern atomic_int n_released;
void make_schema(struct ArrowSchema* out);
void make_array(struct ArrowArray* out, const int64_t* values, int64_t n);
crossdock_batch make_batch(const int64_t* values, int64_t n);
crossdock_capsule make_capsule(const char* name, void* pointer);
/* Returns the values of the column "n". */
const int64_t* values_of(const struct ArrowArray* batch);

#endif
