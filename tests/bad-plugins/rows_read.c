/* Reads the format `base-rows`. A file consists of "BASEROWS", the length of the column's name
 * (4 bytes), the name, and frames. A frame consists of the number of rows (8 bytes), and for each
 * row its validity (1 byte) and its value (8 bytes). The number of rows ~0 marks the end. All
 * numbers are little-endian. */
#include "base.h"

enum { HEAD = 12, ROW = BASE_ROW, MAX_NAME = BASE_MAX_NAME, MAX_ROWS = BASE_MAX_ROWS, MAX_CONDITIONS = 64 };

/* The comparison of values with a literal. */
typedef struct condition {
  crossdock_comparison comparison;
  int64_t literal;
} condition;

/* A bug: a number of rows that no batch has room for. */
static const int64_t ABOVE_CAPACITY = MAX_ROWS + 1;

typedef struct reader {
  crossdock_instance* instance;
  crossdock_source source;
  uint64_t offset; /* the position of the next read */
  char name[MAX_NAME + 1];
  int n_frames;
  int has_failed;
  int has_ended;
  int is_fragment; /* whether only one frame is read */
  condition conditions[MAX_CONDITIONS];
  size_t n_conditions;
  int has_pruned;
  char* all; /* the whole source, if it is read at once */
  size_t n_all;
} reader;

/* A bug: reads the whole source in small steps, without checking for cancellation. */
static crossdock_code read_all(reader* r, crossdock_error* err) {
  size_t done = 0, got = 1;
  while (got > 0) {
    char* more = realloc(r->all, done + ROW);
    crossdock_code code;
    if (!more) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for the source");
    r->all = more;
    code = r->source.read_at(&r->source, done, more + done, ROW, &got, err);
    if (code != CROSSDOCK_OK) return code;
    done += got;
  }
  r->n_all = done;
  return CROSSDOCK_OK;
}

static crossdock_code read_some(reader* r, void* to, size_t bytes, size_t* out_read, crossdock_error* err) {
  if (!HAS(CANCEL_SEEN_AFTER_ALL_IS_READ)) return r->source.read_at(&r->source, r->offset, to, bytes, out_read, err);
  if (bytes > r->n_all - r->offset) bytes = r->n_all - r->offset;
  memcpy(to, r->all + r->offset, bytes);
  *out_read = bytes;
  return CROSSDOCK_OK;
}

/* Reads exactly `bytes` bytes. */
static crossdock_code read_exactly(reader* r, void* to, size_t bytes, crossdock_error* err) {
  size_t done = 0, got;
  while (done < bytes) {
    crossdock_code code = read_some(r, (char*)to + done, bytes - done, &got, err);
    for (int i = 0; HAS(WOKEN_READ_RETRIED) && code == CROSSDOCK_CANCELLED && i < 6; i++) {
      if (err && err->release) err->release(err);
      thrd_sleep(&(struct timespec){.tv_sec = 1}, NULL);
      code = read_some(r, (char*)to + done, bytes - done, &got, err);
    }
    if (HAS(WOKEN_READ_IS_BAD_DATA) && code == CROSSDOCK_CANCELLED) {
      if (err && err->release) err->release(err);
      return base_fail(err, CROSSDOCK_BAD_DATA, "base-rows: the source ends before its last row");
    }
    if (code != CROSSDOCK_OK) {
      if (!HAS(SOURCE_ERROR_IGNORED)) return code;
      if (err && err->release) err->release(err);
      got = 0;
    }
    if (got == 0 && HAS(SHORT_SOURCE_FILLED) && r->source.bytes > 0 && r->offset + bytes - done <= (uint64_t)r->source.bytes) {
      memset((char*)to + done, 0xff, bytes - done); /* up to the declared length of the source */
      got = bytes - done;
    }
    if (got == 0) return base_fail(err, CROSSDOCK_BAD_DATA, "base-rows: the source ends before its last row");
    r->offset += got;
    done += got;
  }
  return CROSSDOCK_OK;
}

static struct ArrowSchema schema_of(const char* name) {
  struct ArrowSchema column = {.format = "l", .name = name, .flags = ARROW_FLAG_NULLABLE};
  struct ArrowSchema* columns[] = {&column};
  const struct ArrowSchema root = {.format = "+s", .name = "", .n_children = 1, .children = columns};
  return base_schema_copy(&root);
}

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  reader* r = stream->private_data;
  struct ArrowSchema schema = schema_of(r->name);
  char first;
  size_t got;
  if (HAS(SCHEMA_READS) && r->source.bytes >= 0 && r->source.read_at(&r->source, 0, &first, 1, &got, err) != CROSSDOCK_OK)
    return CROSSDOCK_IO;
  if (!schema.release) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for a schema");
  *out = schema;
  return CROSSDOCK_OK;
}

/* ----------------------------------------------------------------------------------- tasks --- */

/* Runs longer than the calls between the end of a read and the end of the instance. */
static void slow_task(void* data) {
  const struct timespec half_a_second = {.tv_nsec = 500000000};
  (void)data;
  thrd_sleep(&half_a_second, NULL);
}

static void set_flag(void* flag) { *(int*)flag = 1; }

/* Runs a task on the host's threads and waits for it. */
static crossdock_code run_task(crossdock_instance* instance, crossdock_error* err) {
  const crossdock_host_tasks* tasks = instance->host->get_interface(instance->host, CROSSDOCK_HOST_TASKS_ID);
  crossdock_task_group* group;
  int has_run = 0;
  uint32_t done = 0;
  crossdock_code code;
  if (!tasks) return CROSSDOCK_OK; /* a bare host */
  code = tasks->group_create(tasks, &group, err);
  if (code != CROSSDOCK_OK) return code;
  code = tasks->run(tasks, group, HAS(TASK_LOST) ? slow_task : set_flag, &has_run, err);
  /* After a failure of `wait`, the task may still use `has_run`. */
  while (code == CROSSDOCK_OK && !HAS(TASK_LOST) && !done)
    if (tasks->wait(tasks, group, 1000, &done, NULL) != CROSSDOCK_OK) abort();
  if (!HAS(TASK_GROUP_LOST)) tasks->group_release(tasks, group);
  if (code == CROSSDOCK_OK && !HAS(TASK_LOST) && !has_run)
    return base_fail(err, CROSSDOCK_INTERNAL, "base-rows: a task that returned was not run");
  return code;
}

/* --------------------------------------------------------------------------------- filters --- */

static int holds(const condition* c, int64_t value) {
  switch (c->comparison) {
    case CROSSDOCK_COMPARE_EQUAL: return value == c->literal;
    case CROSSDOCK_COMPARE_NOT_EQUAL: return value != c->literal;
    case CROSSDOCK_COMPARE_LESS: return value < c->literal;
    case CROSSDOCK_COMPARE_LESS_EQUAL: return value <= c->literal;
    case CROSSDOCK_COMPARE_GREATER: return value > c->literal;
    default: return value >= c->literal;
  }
}

/* Whether a row fulfils all conditions. A null fulfils no condition. */
static int fulfils(const reader* r, const unsigned char* row) {
  int64_t value;
  memcpy(&value, row + 1, sizeof value);
  for (size_t i = 0; i < r->n_conditions; i++)
    if (row[0] == 0 || !holds(&r->conditions[i], value)) return 0;
  return 1;
}

/* Removes the rows that do not fulfil all conditions. Returns the number of rows that remain. */
static uint64_t prune(reader* r, unsigned char* rows, uint64_t n) {
  uint64_t kept = 0;
  if (r->n_conditions == 0 || HAS(PREDICATE_NOT_APPLIED)) return n;
  for (uint64_t i = 0; i < n; i++) {
    if (!fulfils(r, rows + i * ROW)) continue;
    if (HAS(MATCHING_ROW_PRUNED) && !r->has_pruned) {
      r->has_pruned = 1;
      continue;
    }
    memmove(rows + kept * ROW, rows + i * ROW, ROW);
    kept++;
  }
  return kept;
}

/* Takes the predicates that compare the column with a number. If rows are requested, no row may be
 * missing, because this reader does not select rows. */
static void take_conditions(reader* r, const crossdock_read_request* request, crossdock_batch_stream* out) {
  if (!(request->flags & CROSSDOCK_READ_FILTER) || (request->flags & CROSSDOCK_READ_ROWS)) return;
  for (size_t i = 0; i < request->n_predicates && i < MAX_CONDITIONS; i++) {
    const crossdock_predicate* predicate = CROSSDOCK_AT(request->predicates, i);
    const crossdock_path* column = &predicate->column;
    condition* to = &r->conditions[r->n_conditions];
    if (column->n_names != 1 || !base_is(column->names[0], r->name) || strcmp(predicate->type->format, "l") != 0) continue;
    if (predicate->comparison < CROSSDOCK_COMPARE_EQUAL || predicate->comparison > CROSSDOCK_COMPARE_GREATER_EQUAL) continue;
    to->comparison = predicate->comparison;
    to->literal = ((const int64_t*)predicate->literal->buffers[1])[predicate->literal->offset];
    r->n_conditions++;
    out->exact_predicates |= UINT64_C(1) << i;
  }
  if (r->n_conditions > 0) out->honoured |= CROSSDOCK_PRUNES_ROWS;
}

/* ---------------------------------------------------------------------------------- frames --- */

static crossdock_code next_frame(reader* r, const crossdock_call* call, crossdock_batch* out, crossdock_error* err) {
  crossdock_stream* extra;
  unsigned char* rows;
  uint64_t n, n_given;
  char first;
  size_t got;
  crossdock_code code;
  if (HAS(PIPE_REREAD)) {
    code = r->source.read_at(&r->source, 0, &first, 1, &got, err);
    if (code != CROSSDOCK_OK) return code;
  }
  code = read_exactly(r, &n, sizeof n, err);
  if (HAS(SOURCE_ERROR_IGNORED) && code != CROSSDOCK_OK && r->source.bytes >= 0 && r->offset < (uint64_t)r->source.bytes) {
    if (err && err->release) err->release(err);
    return CROSSDOCK_OK;
  }
  if (code != CROSSDOCK_OK) return code;
  if (n == UINT64_MAX) {
    r->has_ended = 1;
    return CROSSDOCK_OK;
  }
  r->n_frames++;
  if (n > MAX_ROWS && HAS(ASSERTS_ON_BYTES)) abort();
  if (n > MAX_ROWS && HAS(PANICS_ON_BYTES)) return base_fail(err, CROSSDOCK_PANICKED, "base-rows: an unexpected number of rows");
  if (n > MAX_ROWS) return base_fail(err, CROSSDOCK_BAD_DATA, "base-rows: a frame declares more rows than the maximum");
  while (HAS(NEVER_ENDS) && call->byte_budget > 0 && call->byte_budget < n * ROW) continue;
  rows = malloc(n * ROW + 1);
  if (!rows) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for rows");
  code = read_exactly(r, rows, n * ROW, err);
  if (code == CROSSDOCK_OK) code = run_task(r->instance, err);
  if (code == CROSSDOCK_OK) n = prune(r, rows, n);
  if (HAS(BUDGET_CUTS_ROWS) && call->byte_budget > 0 && n > 1) n--;
  n_given = n - ((HAS(LAST_ROW_DROPPED) || (HAS(MAPPED_ROW_DROPPED) && r->source.map)) && n > 1) + HAS(ROW_BEYOND_THE_END);
  if (code == CROSSDOCK_OK) code = base_rows_give(r->instance, call, rows, n, n_given, out, err);
  if (code == CROSSDOCK_OK && HAS(ROWS_ABOVE_CAPACITY)) out->n_rows_device = &ABOVE_CAPACITY;
  free(rows);
  if (code == CROSSDOCK_OK && HAS(STREAM_LOST))
    code = r->instance->memory->stream_create(r->instance->memory, BASE_CPU, 0, 0, &extra, err);
  if (code == CROSSDOCK_OK && HAS(BORROWED_STREAM_DESTROYED)) {
    code = r->instance->memory->stream_default(r->instance->memory, BASE_CPU, &extra, err);
    if (code == CROSSDOCK_OK) r->instance->memory->stream_destroy(r->instance->memory, extra);
  }
  if (call->progress) call->progress(call->progress_data, r->offset + (HAS(PROGRESS_BEYOND) ? 1 << 20 : 0), r->source.bytes < 0 ? 0 : (uint64_t)r->source.bytes);
  return code;
}

static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  reader* r = stream->private_data;
  uint64_t scratch;
  crossdock_code code;
  if (base_cancelled(call, err) != CROSSDOCK_OK) return CROSSDOCK_CANCELLED;
  if (r->has_ended || (r->is_fragment && r->n_frames == 1)) return CROSSDOCK_OK;
  scratch = base_scratch_take(HAS(DRIVER_MEMORY));
  code = next_frame(r, call, out, err);
  if (code != CROSSDOCK_OK) r->has_failed = 1;
  base_scratch_give(scratch);
  return code;
}

static void release_reader(crossdock_batch_stream* stream) {
  reader* r = stream->private_data;
  const uint64_t end = 8; /* the size in bytes of the end mark after the last frame */
  const int is_abandoned = r->n_frames == 1 && !r->has_failed && r->source.bytes > 0 && (uint64_t)r->source.bytes > r->offset + end;
  if (HAS(THROWS_IN_RELEASE) && is_abandoned) base_throw();
  base_lock(HAS(BLOCKS) && is_abandoned);
  base_lock(HAS(BLOCKS) && is_abandoned);
  r->source.release(&r->source);
  free(r->all);
  free(r);
  if (!HAS(RELEASE_NOT_CLEARED)) stream->release = NULL;
}

static crossdock_code read_head(reader* r, const struct ArrowSchema* expected, crossdock_error* err) {
  char head[HEAD];
  uint32_t bytes;
  struct ArrowSchema own;
  crossdock_code code = read_exactly(r, head, HEAD, err);
  if (code != CROSSDOCK_OK) return code;
  memcpy(&bytes, head + 8, sizeof bytes);
  if (memcmp(head, "BASEROWS", 8) != 0 || bytes > MAX_NAME)
    return base_fail(err, CROSSDOCK_BAD_DATA, "base-rows: the source does not begin with BASEROWS and a short name");
  code = read_exactly(r, r->name, bytes, err);
  if (code != CROSSDOCK_OK) return code;
  for (uint32_t i = 0; i < bytes; i++)
    if (r->name[i] <= 0) return base_fail(err, CROSSDOCK_BAD_DATA, "base-rows: the column's name is not ASCII");
  if (!expected) return CROSSDOCK_OK;
  own = schema_of(r->name);
  if (!own.release) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for a schema");
  if (!base_schema_same(expected, &own) && !HAS(OTHER_COLUMNS_IGNORED))
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base-rows: the schema of the rows differs from the expected schema");
  own.release(&own);
  return code;
}

crossdock_code base_rows_open(crossdock_instance* instance, crossdock_source* source, const crossdock_read_request* request,
                              crossdock_batch_stream* out, crossdock_error* err) {
  reader* r = calloc(1, sizeof *r);
  crossdock_batch_stream partial = {.get_schema = get_schema, .get_next = get_next, .release = release_reader, .private_data = r};
  crossdock_code code;
  if (!r) {
    source->release(source);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for a reader");
  }
  r->instance = instance;
  r->source = *source;
  code = HAS(CANCEL_SEEN_AFTER_ALL_IS_READ) ? read_all(r, err) : CROSSDOCK_OK;
  if (code == CROSSDOCK_OK) code = read_head(r, request->schema, err);
  if (code == CROSSDOCK_OK && request->fragment && !HAS(FRAGMENT_IGNORED)) {
    r->is_fragment = 1;
    code = base_find_frame(&r->source, request->fragment, request->fragment_bytes, &r->offset, err);
  }
  if (code != CROSSDOCK_OK) {
    release_reader(&partial);
    return code;
  }
  out->get_schema = partial.get_schema;
  out->get_next = partial.get_next;
  out->release = partial.release;
  out->private_data = partial.private_data;
  take_conditions(r, request, out);
  if (HAS(ROWS_NOT_SELECTED)) out->honoured = CROSSDOCK_HONOURS_ROWS;
  if (HAS(WRITE_OPTION_UNKNOWN)) {
    static const crossdock_option OPTION = {TEXT("level"), TEXT("9")};
    out->write_options = &OPTION;
    out->n_write_options = 1;
  }
  if (HAS(ROW_COUNT_GUESSED)) {
    out->honoured = CROSSDOCK_HAS_ROW_COUNT;
    out->n_rows = 1u << 20;
  }
  return CROSSDOCK_OK;
}
