/* Calls the plugin as a host does: finds its entry, creates an instance, and decodes an array of
 * one node. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "crossdock.h"

#define EXPECT(what) \
  if (!(what)) return fprintf(stderr, "test.c:%d: expected %s\n", __LINE__, #what), 1

static void nothing(const crossdock_host* host) { (void)host; }
static const void* no_interface(const crossdock_host* host, const char* id) { return (void)host, (void)id, NULL; }
static const crossdock_host HOST = {.struct_size = sizeof HOST, .abi_major = CROSSDOCK_ABI_MAJOR,
    .abi_minor = CROSSDOCK_ABI_MINOR, .retain = nothing, .release = nothing, .get_interface = no_interface};

int main(void) {
  void* library = dlopen("./libcrossdock_@SNAKE@_plugin.so", RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  const crossdock_plugin_entry* entry = dlsym(library, "crossdock_plugin_v1");
  EXPECT(entry && entry->magic == CROSSDOCK_PLUGIN_MAGIC);
  crossdock_error err = {.struct_size = sizeof err};
  crossdock_instance* instance = NULL;
  EXPECT(entry->create(&HOST, &instance, &err) == CROSSDOCK_OK);
  const crossdock_encoding* encoding = entry->get_interface(instance, CROSSDOCK_ENCODING_ID);
  EXPECT(encoding);

  const crossdock_str* ids = NULL;
  size_t n_ids = 0;
  EXPECT(encoding->ids(instance, &ids, &n_ids, &err) == CROSSDOCK_OK && n_ids == 1);
  EXPECT(ids->bytes == strlen("@ID@") && memcmp(ids->data, "@ID@", ids->bytes) == 0);

  int32_t stored[] = {1, -2, 0};
  unsigned char reference[] = {0xe8, 3, 0, 0}; /* 1000 */
  struct ArrowSchema schema = {.format = "i", .name = ""};
  crossdock_encoded_buffer buffer = {.struct_size = sizeof buffer, .address = stored, .bytes = sizeof stored,
      .alignment = 4, .device = {-1, ARROW_DEVICE_CPU, 0}};
  crossdock_encoded_node node = {.struct_size = sizeof node, .encoding = *ids, .schema = &schema, .length = 3,
      .metadata = reference, .metadata_bytes = sizeof reference, .n_buffers = 1};
  crossdock_encoded_array array = {.struct_size = sizeof array, .nodes = &node, .n_nodes = 1, .buffers = &buffer,
      .n_buffers = 1};
  crossdock_call call = {.struct_size = sizeof call, .device = {-1, ARROW_DEVICE_CPU, 0}};
  crossdock_batch batch = {.struct_size = sizeof batch};
  int64_t bytes = 0;
  EXPECT(encoding->check(instance, &array, 0, &err) == CROSSDOCK_OK);
  const crossdock_row_range all = {0, 3}, some = {1, 3};
  EXPECT(encoding->size(instance, &array, 0, &all, &bytes, &err) == CROSSDOCK_OK && bytes == 12);
  EXPECT(encoding->decode(instance, &call, &array, 0, &all, NULL, 0, &batch, &err) == CROSSDOCK_OK);
  struct ArrowArray* root = &batch.array.array;
  EXPECT(root->length == 3 && root->n_children == 1);
  const int32_t* values = root->children[0]->buffers[1];
  EXPECT(values[0] == 1001 && values[1] == 998 && values[2] == 1000);
  root->release(root);
  EXPECT(!root->release);

  crossdock_decode_plan plan = {.struct_size = sizeof plan, .device = {-1, ARROW_DEVICE_CPU, 0}, .rows = all};
  EXPECT(encoding->plan(instance, &array, 0, plan.device, &some, &plan, &err) == CROSSDOCK_OK);
  EXPECT(plan.rows.begin == 1 && plan.rows.end == 3);
  EXPECT(encoding->decode(instance, &call, &array, 0, &plan.rows, NULL, 0, &batch, &err) == CROSSDOCK_OK);
  values = root->children[0]->buffers[1];
  EXPECT(root->length == 2 && values[0] == 998 && values[1] == 1000);
  root->release(root);

  node.length = 4; /* malformed: the buffer has 3 values */
  EXPECT(encoding->check(instance, &array, 0, &err) == CROSSDOCK_BAD_DATA && strstr(err.message, "12 bytes"));
  if (err.release) err.release(&err);
  entry->destroy(instance);
  return 0;
}
