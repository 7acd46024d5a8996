/* The format `base-device`: Arrow device arrays in capsules. The plugin passes the arrays on
 * unchanged. */
#include "base.h"

/* --------------------------------------------------------------------------------- reading --- */

typedef struct reader {
  crossdock_instance* instance;
  struct ArrowSchema schema;
  struct ArrowDeviceArray* arrays;
  size_t n_arrays;
  size_t next;
} reader;

static size_t static_cursor;

static crossdock_code get_schema(crossdock_batch_stream* stream, struct ArrowSchema* out, crossdock_error* err) {
  reader* r = stream->private_data;
  struct ArrowSchema copy = base_schema_copy(&r->schema);
  if (!copy.release) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-device: no memory for a schema, or the schema is malformed");
  if (HAS(COLUMN_DROPPED) && copy.n_children > 1) {
    struct ArrowSchema* last = copy.children[--copy.n_children];
    last->release(last);
    free(last);
  }
  *out = copy;
  return CROSSDOCK_OK;
}

typedef struct needy {
  struct ArrowArray array;
  int* alive;
} needy;

static void release_needy(struct ArrowArray* array) {
  needy* own = array->private_data;
  struct ArrowArray again = own->array;
  if ((HAS(BATCH_NEEDS_INSTANCE) || HAS(DECODED_NEEDS_INSTANCE)) && *own->alive != 0) abort();
  own->array.release(&own->array);
  if (HAS(ARRAY_TWICE)) again.release(&again);
  free(own);
  array->release = NULL;
}

/* Replaces the release function by a function with a bug. */
void base_make_needy(struct ArrowArray* array, crossdock_instance* instance) {
  needy* own = malloc(sizeof *own);
  if (!own) return;
  own->array = *array;
  own->alive = instance->alive;
  array->private_data = own;
  array->release = release_needy;
}

static crossdock_code get_next(crossdock_batch_stream* stream, const crossdock_call* call, crossdock_batch* out,
                               crossdock_error* err) {
  reader* r = stream->private_data;
  size_t* cursor = HAS(STATIC_CURSOR) ? &static_cursor : &r->next;
  if (!HAS(CANCEL_IGNORED_READING) && base_cancelled(call, err) != CROSSDOCK_OK) return CROSSDOCK_CANCELLED;
  if (*cursor >= r->n_arrays || (HAS(THIRD_BATCH_DROPPED) && *cursor >= 2)) return CROSSDOCK_OK;
  if (HAS(SIZE_OVERWRITTEN)) out->struct_size = sizeof *out;
  if (HAS(PANICS_ON_ARRAYS) && r->arrays[*cursor].array.length < 0)
    return base_fail(err, CROSSDOCK_PANICKED, "base-device: unexpected number of rows");
  for (int64_t i = 0; HAS(ARRAYS_NOT_CHECKED) && i < r->arrays[*cursor].array.n_children; i++)
    if (!r->arrays[*cursor].array.children[i]->release) return base_fail(err, CROSSDOCK_BAD_DATA, "base-device: a child was released");
  out->array = r->arrays[*cursor];
  if (HAS(NEGATIVE_ROWS_READ_AS_NONE) && out->array.array.length < 0) out->array.array.length = 0;
  r->arrays[(*cursor)++].array.release = NULL;
  if (HAS(COLUMN_DROPPED) && out->array.array.n_children > 1) out->array.array.n_children--;
  for (int64_t i = 0; HAS(NESTED_NULL_COUNT) && out->array.array.children && i < out->array.array.n_children; i++) {
    const struct ArrowArray* column = out->array.array.children[i];
    if (!column || column->n_children == 0 || column->children[0]->null_count <= 0) continue;
    column->children[0]->null_count += column->children[0]->null_count < column->children[0]->length;
  }
  if (HAS(BATCH_NEEDS_INSTANCE) || HAS(ARRAY_TWICE)) base_make_needy(&out->array.array, r->instance);
  return CROSSDOCK_OK;
}

static void release_reader(crossdock_batch_stream* stream) {
  reader* r = stream->private_data;
  for (size_t i = 0; i < r->n_arrays; i++) {
    if (!r->arrays[i].array.release) continue;
    if (HAS(EXITS)) exit(0);
    if (!HAS(REST_LOST)) r->arrays[i].array.release(&r->arrays[i].array);
  }
  if (r->schema.release && !HAS(SCHEMA_LOST)) r->schema.release(&r->schema);
  free(r->arrays);
  free(r);
  stream->release = NULL;
}

/* Moves the objects out of the capsules. */
static crossdock_code take(reader* r, crossdock_capsules* list, crossdock_error* err) {
  r->arrays = calloc(list->n_capsules ? list->n_capsules : 1, sizeof *r->arrays);
  if (!r->arrays) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-device: no memory for arrays");
  for (size_t i = 0; i < list->n_capsules; i++) {
    /* The stride of the list is the size of its first element. */
    crossdock_capsule* capsule = (void*)((char*)list->capsules + i * list->capsules->struct_size);
    if (strcmp(capsule->name, "arrow_schema") == 0) {
      struct ArrowSchema* schema = capsule->pointer;
      if (r->schema.release) continue;
      r->schema = *schema;
      schema->release = NULL;
    } else if (strcmp(capsule->name, "arrow_device_array") == 0) {
      struct ArrowDeviceArray* array = capsule->pointer;
      if (!array->array.release) return base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base-device: the array of a capsule was released");
      r->arrays[r->n_arrays++] = *array;
      array->array.release = NULL;
      if (HAS(ARRAY_RELEASED_EARLY)) base_forget_owner(&r->arrays[r->n_arrays - 1].array);
    } else {
      return base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base-device: expected a capsule arrow_schema or arrow_device_array");
    }
  }
  return CROSSDOCK_OK;
}

crossdock_code base_device_open(crossdock_instance* instance, crossdock_capsules* capsules, const struct ArrowSchema* schema,
                                crossdock_batch_stream* out, crossdock_error* err) {
  reader* r = calloc(1, sizeof *r);
  crossdock_batch_stream partial = {.private_data = r};
  crossdock_code code =
      r ? take(r, capsules, err) : base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-device: no memory for a reader");
  capsules->release(capsules);
  if (!r) return code;
  r->instance = instance;
  if (code == CROSSDOCK_OK && HAS(ALL_REFUSED)) code = base_fail(err, CROSSDOCK_UNSUPPORTED, "base-device: unsupported");
  if (code == CROSSDOCK_OK && !r->schema.release && schema) r->schema = base_schema_copy(schema);
  if (code == CROSSDOCK_OK && !r->schema.release)
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base-device: expected a capsule with a schema");
  if (code == CROSSDOCK_OK && schema && !base_schema_same(schema, &r->schema))
    code = base_fail(err, CROSSDOCK_INVALID_ARGUMENT, "base-device: the schema of the arrays differs from the expected schema");
  if (code != CROSSDOCK_OK) {
    release_reader(&partial);
    return code;
  }
  static_cursor = 0;
  out->get_schema = get_schema;
  out->get_next = get_next;
  out->release = release_reader;
  out->private_data = r;
  if (HAS(COLUMNS_NOT_SELECTED)) out->honoured = CROSSDOCK_HONOURS_COLUMNS;
  return CROSSDOCK_OK;
}

/* --------------------------------------------------------------------------------- writing --- */

typedef struct writer {
  crossdock_instance* instance;
  struct ArrowSchema schema;
  int has_written;
} writer;

/* A list of capsules with their objects, in one allocation with a reference count. */
typedef struct parcel {
  int users;
  int* alive;
  crossdock_capsule capsules[2];
  struct ArrowSchema schema;
  struct ArrowDeviceArray array;
} parcel;

static void leave(parcel* own) {
  if (__atomic_sub_fetch(&own->users, 1, __ATOMIC_ACQ_REL) == 0) free(own);
}

static void release_schema_capsule(crossdock_capsule* capsule) {
  parcel* own = capsule->private_data;
  capsule->release = NULL;
  if (HAS(CAPSULE_NEEDS_INSTANCE) && *own->alive != 0) {
    fputs("the instance is destroyed\n", stderr);
    abort();
  }
  if (own->schema.release) own->schema.release(&own->schema);
  leave(own);
}

static void release_array_capsule(crossdock_capsule* capsule) {
  parcel* own = capsule->private_data;
  capsule->release = NULL;
  if (own->array.array.release) own->array.array.release(&own->array.array);
  leave(own);
}

static void release_list(crossdock_capsules* list) {
  parcel* own = list->private_data;
  list->release = NULL;
  for (size_t i = 0; i < list->n_capsules; i++)
    if (own->capsules[i].release) own->capsules[i].release(&own->capsules[i]);
  leave(own);
}

/* A bug: removes the validity bitmaps of columns, so that nulls become values. */
static void show_nulls(struct ArrowArray* root) {
  for (int64_t i = 0; i < root->n_children; i++) {
    struct ArrowArray* column = root->children[i];
    if (column->n_buffers == 2 && column->n_children == 0 && column->null_count != 0 && !column->dictionary) {
      column->buffers[0] = NULL;
      column->null_count = 0;
    }
  }
}

/* A bug: copies the values of Int64 columns to other addresses. The copies are never freed,
 * because the consumer may still use the array. */
static void copy_numbers(parcel* own) {
  for (int64_t i = 0; i < own->schema.n_children; i++) {
    struct ArrowArray* column = own->array.array.children[i];
    const size_t bytes = 8 * (size_t)(column->offset + column->length);
    void* copy;
    if (strcmp(own->schema.children[i]->format, "l") != 0 || !(copy = malloc(bytes + 1))) continue;
    if (bytes > 0) column->buffers[1] = memcpy(copy, column->buffers[1], bytes);
  }
}

static crossdock_code give(writer* w, struct ArrowDeviceArray* array, crossdock_capsules* out, crossdock_error* err) {
  parcel* own = calloc(1, sizeof *own);
  struct ArrowSchema copy = {0};
  if (own) copy = base_schema_copy(&w->schema);
  if (!copy.release) {
    free(own);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-device: no memory for capsules");
  }
  if (HAS(METADATA_DROPPED)) {
    for (int64_t i = 0; i < copy.n_children; i++) {
      free((char*)copy.children[i]->metadata);
      copy.children[i]->metadata = NULL;
    }
  }
  own->alive = w->instance->alive;
  own->schema = copy;
  own->capsules[0] = (crossdock_capsule){sizeof(crossdock_capsule), "arrow_schema", &own->schema, release_schema_capsule, own};
  own->capsules[1] =
      (crossdock_capsule){sizeof(crossdock_capsule), "arrow_device_array", &own->array, release_array_capsule, own};
  out->n_capsules = array ? 2 : 1;
  own->users = 1 + (int)out->n_capsules;
  if (array) {
    own->array = *array;
    array->array.release = NULL;
    if (HAS(BATCH_RELEASED_EARLY)) base_forget_owner(&own->array.array);
    if (HAS(NULLS_EXPORTED_AS_VALUES)) show_nulls(&own->array.array);
    if (HAS(COPY_CALLED_ZERO_COPY)) copy_numbers(own);
  }
  out->capsules = own->capsules;
  out->release = release_list;
  out->private_data = own;
  return CROSSDOCK_OK;
}

static crossdock_code write(crossdock_writer* self, const crossdock_call* call, crossdock_batch* batch,
                            crossdock_capsules* out, crossdock_error* err) {
  writer* w = self->private_data;
  crossdock_code code = HAS(CANCEL_IGNORED_WRITING) ? CROSSDOCK_OK : base_cancelled(call, err);
  if (HAS(THROWS) && code != CROSSDOCK_OK) base_throw();
  if (code == CROSSDOCK_OK) code = give(w, &batch->array, out, err);
  if (code == CROSSDOCK_OK) w->has_written = 1;
  if (batch->array.array.release) batch->array.array.release(&batch->array.array);
  if (batch->schema.release) batch->schema.release(&batch->schema);
  return code;
}

static crossdock_code finish(crossdock_writer* self, const crossdock_call* call, crossdock_capsules* out,
                             crossdock_error* err) {
  writer* w = self->private_data;
  (void)call;
  return w->has_written ? CROSSDOCK_OK : give(w, NULL, out, err);
}

static void release_writer(crossdock_writer* self) {
  writer* w = self->private_data;
  w->schema.release(&w->schema);
  free(w);
  self->release = NULL;
}

crossdock_code base_device_begin(crossdock_instance* instance, const struct ArrowSchema* schema, crossdock_writer* out,
                                 crossdock_error* err) {
  writer* w = calloc(1, sizeof *w);
  if (w) w->schema = base_schema_copy(schema);
  if (!w || !w->schema.release) {
    free(w);
    return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-device: no memory for a writer");
  }
  w->instance = instance;
  out->write = write;
  out->finish = finish;
  out->release = release_writer;
  out->private_data = w;
  return CROSSDOCK_OK;
}
