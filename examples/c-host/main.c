/*
 * Moves a table through two plugins. arrow-ipc reads the table, arrow-c-device exports every batch
 * as Arrow's C struct and imports it again, and arrow-ipc writes the table. No column is copied.
 * Arrow's structs do not contain the sizes of buffers, so the host reads the last offset of each
 * column of variable length. The ledger may count these few bytes as copied.
 *
 *     c-host IN.arrow OUT.arrow [PLUGIN-FOLDER]
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <crossdock-host.h>

struct totals {
  int64_t rows;
  int batches;
};

/* Uses an exported batch. A real program would call a consumer of Arrow's C Device structs here. */
static void count(const struct ArrowDeviceArray* array, struct totals* totals) {
  totals->rows += array->array.length;
  totals->batches++;
}

/* Imports capsules, and writes their batches. */
static crossdock_code import_and_write(crossdock_session* session, crossdock_capsules* capsules, crossdock_writer* to,
                                 crossdock_error* err) {
  crossdock_read_settings settings = {.struct_size = sizeof settings};
  crossdock_batch_stream stream = {.struct_size = sizeof stream};
  settings.format = crossdock_text("arrow-c-device");
  crossdock_code code = crossdock_session_read_capsules(session, capsules->capsules, capsules->n_capsules, &settings,
                                                        &stream, err);
  while (code == CROSSDOCK_OK) {
    crossdock_batch batch = {.struct_size = sizeof batch};
    code = stream.get_next(&stream, NULL, &batch, err);
    if (code != CROSSDOCK_OK || !batch.array.array.release) break;
    code = to->write(to, NULL, &batch, NULL, err); /* takes ownership of the batch, also on failure */
  }
  if (stream.release) stream.release(&stream);
  return code;
}

/* Exports each batch to capsules, counts it, imports it and writes it. */
static crossdock_code move_batches(crossdock_session* session, crossdock_batch_stream* from,
                                   crossdock_writer* exporter, crossdock_writer* to, struct totals* totals,
                                   crossdock_error* err) {
  crossdock_code code = CROSSDOCK_OK;
  while (code == CROSSDOCK_OK) {
    crossdock_batch batch = {.struct_size = sizeof batch};
    crossdock_capsules capsules = {.struct_size = sizeof capsules};
    code = from->get_next(from, NULL, &batch, err);
    if (code != CROSSDOCK_OK || !batch.array.array.release) break;
    code = exporter->write(exporter, NULL, &batch, &capsules, err);
    if (code != CROSSDOCK_OK) break;
    for (size_t i = 0; i < capsules.n_capsules; i++)
      if (strcmp(capsules.capsules[i].name, "arrow_device_array") == 0) count(capsules.capsules[i].pointer, totals);
    code = import_and_write(session, &capsules, to, err); /* takes ownership of each capsule */
    capsules.release(&capsules); /* releases the list */
  }
  return code == CROSSDOCK_OK ? to->finish(to, NULL, NULL, err) : code;
}

static crossdock_code move_table(crossdock_session* session, const char* in, const char* out, struct totals* totals,
                                 crossdock_error* err) {
  crossdock_batch_stream from = {.struct_size = sizeof from};
  crossdock_writer exporter = {.struct_size = sizeof exporter}, to = {.struct_size = sizeof to};
  crossdock_write_settings as_capsules = {.struct_size = sizeof as_capsules};
  struct ArrowSchema schema = {0};
  as_capsules.format = crossdock_text("arrow-c-device");

  crossdock_code code = crossdock_session_read_path(session, crossdock_text(in), NULL, &from, err);
  if (code == CROSSDOCK_OK) code = from.get_schema(&from, &schema, err);
  if (code == CROSSDOCK_OK) code = crossdock_session_write_capsules(session, &schema, &as_capsules, &exporter, err);
  if (code == CROSSDOCK_OK) code = crossdock_session_write_path(session, crossdock_text(out), &schema, NULL, &to, err);
  if (code == CROSSDOCK_OK) code = move_batches(session, &from, &exporter, &to, totals, err);

  /* Objects that were not created have no `release`. If the writer is not finished, no file
     remains. */
  if (to.release) to.release(&to);
  if (exporter.release) exporter.release(&exporter);
  if (schema.release) schema.release(&schema);
  if (from.release) from.release(&from);
  return code;
}

static crossdock_code run(const char* in, const char* out, const char* plugins, crossdock_error* err) {
  crossdock_str folder = crossdock_text(plugins);
  crossdock_host_settings settings = {.struct_size = sizeof settings};
  crossdock_host_handle* host = NULL;
  crossdock_session* session = NULL;
  struct totals totals = {0, 0};
  settings.plugins = &folder;
  settings.n_plugins = plugins ? 1 : 0; /* default: the plugins that are installed with the library */

  crossdock_code code = CROSSDOCK_CHECK_VERSION(err);
  if (code == CROSSDOCK_OK) code = crossdock_host_create(&settings, &host, err);
  if (code == CROSSDOCK_OK) code = crossdock_session_create(host, NULL, &session, err);
  if (code == CROSSDOCK_OK) code = move_table(session, in, out, &totals, err);
  crossdock_session_destroy(session);

  if (code == CROSSDOCK_OK) {
    crossdock_ledger ledger = {.struct_size = sizeof ledger};
    crossdock_leaks leaks = {.struct_size = sizeof leaks};
    code = crossdock_host_settle(host, &leaks, err);
    if (code == CROSSDOCK_OK) code = crossdock_host_ledger(host, &ledger, err);
    if (code == CROSSDOCK_OK)
      printf("%" PRId64 " rows in %d batches; %" PRIu64 " bytes copied, %zu leaks\n", totals.rows, totals.batches,
             ledger.copied_h2h, leaks.n_leaks);
    if (leaks.release) leaks.release(&leaks);
  }
  crossdock_host_destroy(host);
  return code;
}

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    fprintf(stderr, "usage: %s IN.arrow OUT.arrow [PLUGIN-FOLDER]\n", argv[0]);
    return 2;
  }
  crossdock_error err = CROSSDOCK_ERROR_INIT;
  crossdock_code code = run(argv[1], argv[2], argc > 3 ? argv[3] : NULL, &err);
  if (code != CROSSDOCK_OK) fprintf(stderr, "error %d: %s\n", (int)code, err.message);
  if (code != CROSSDOCK_OK && err.details) fprintf(stderr, "%s\n", err.details);
  crossdock_error_clear(&err);
  return code == CROSSDOCK_OK ? 0 : 1;
}
