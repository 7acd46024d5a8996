/* For injected bugs: creates arrays whose buffers belong to other arrays. */
#include "base.h"

static void release_unowned(struct ArrowArray* array) {
  for (int64_t i = 0; i < array->n_children; i++) {
    if (array->children[i]->release) array->children[i]->release(array->children[i]);
    free(array->children[i]);
  }
  if (array->dictionary) array->dictionary->release(array->dictionary);
  free(array->dictionary);
  free(array->children);
  free(array->buffers);
  array->release = NULL;
}

static void* allocated(size_t bytes) {
  void* memory = calloc(1, bytes + 1);
  if (!memory) abort();
  return memory;
}

static struct ArrowArray unowned(const struct ArrowArray* array) {
  struct ArrowArray copy = *array;
  copy.private_data = NULL;
  copy.release = release_unowned;
  copy.buffers = memcpy(allocated((size_t)array->n_buffers * sizeof *copy.buffers), array->buffers,
                        (size_t)array->n_buffers * sizeof *copy.buffers);
  copy.children = allocated((size_t)array->n_children * sizeof *copy.children);
  for (int64_t i = 0; i < array->n_children; i++) {
    copy.children[i] = allocated(sizeof **copy.children);
    *copy.children[i] = unowned(array->children[i]);
  }
  if (array->dictionary) {
    copy.dictionary = allocated(sizeof *copy.dictionary);
    *copy.dictionary = unowned(array->dictionary);
  }
  return copy;
}

void base_forget_owner(struct ArrowArray* array) {
  struct ArrowArray copy = unowned(array);
  array->release(array);
  *array = copy;
}
