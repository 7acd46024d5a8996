/* Copies schemas, because schemas that the host passes are borrowed. */
#include "base.h"

static size_t number_at(const char* at) {
  int32_t n;
  memcpy(&n, at, sizeof n);
  return n > 0 ? (size_t)n : 0;
}

/* The size of Arrow metadata in bytes. Metadata consists of the number of pairs, and a length
 * and a text for each key and value. */
size_t base_metadata_bytes(const char* metadata) {
  size_t bytes = 4;
  for (size_t left = 2 * number_at(metadata); left > 0; left--) bytes += 4 + number_at(metadata + bytes);
  return bytes;
}

static void* copy_of(const void* from, size_t bytes) {
  void* to = malloc(bytes);
  return to ? memcpy(to, from, bytes) : NULL;
}

void base_schema_release(struct ArrowSchema* schema) {
  for (int64_t i = 0; i < schema->n_children; i++) {
    struct ArrowSchema* child = schema->children[i];
    if (child && child->release) child->release(child);
    free(child);
  }
  if (schema->dictionary && schema->dictionary->release) schema->dictionary->release(schema->dictionary);
  free(schema->dictionary);
  free(schema->children);
  free((char*)schema->format);
  free((char*)schema->name);
  free((char*)schema->metadata);
  schema->release = NULL;
}

static struct ArrowSchema* copy_on_heap(const struct ArrowSchema* schema) {
  struct ArrowSchema* copy = schema ? malloc(sizeof *copy) : NULL;
  if (copy) *copy = base_schema_copy(schema);
  return copy;
}

struct ArrowSchema base_schema_copy(const struct ArrowSchema* schema) {
  const char* name = schema->name ? schema->name : "";
  struct ArrowSchema copy = {.flags = schema->flags, .n_children = schema->n_children, .release = base_schema_release};
  int complete;
  if (!schema->format || schema->n_children < 0 || (schema->n_children > 0 && !schema->children))
    return (struct ArrowSchema){.release = NULL};
  copy.format = copy_of(schema->format, strlen(schema->format) + 1);
  copy.name = copy_of(name, strlen(name) + 1);
  if (schema->metadata) copy.metadata = copy_of(schema->metadata, base_metadata_bytes(schema->metadata));
  copy.children = calloc(schema->n_children > 0 ? (size_t)schema->n_children : 1, sizeof *copy.children);
  complete = copy.format && copy.name && copy.children && (copy.metadata || !schema->metadata);
  if (!copy.children) copy.n_children = 0;
  for (int64_t i = 0; i < copy.n_children; i++) {
    copy.children[i] = copy_on_heap(schema->children[i]);
    complete = complete && copy.children[i] && copy.children[i]->release;
  }
  if (schema->dictionary) {
    copy.dictionary = copy_on_heap(schema->dictionary);
    complete = complete && copy.dictionary && copy.dictionary->release;
  }
  if (!complete) base_schema_release(&copy);
  return copy;
}

int base_schema_same(const struct ArrowSchema* left, const struct ArrowSchema* right) {
  int same = left->n_children == right->n_children;
  for (int64_t i = 0; same && i < left->n_children; i++)
    same = strcmp(left->children[i]->name, right->children[i]->name) == 0 &&
           strcmp(left->children[i]->format, right->children[i]->format) == 0;
  return same;
}
