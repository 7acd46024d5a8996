/* Errors, text, and memory of the host. */
#include <stdarg.h>
#include <stdio.h>

#include "csv.h"

enum { MESSAGE_BYTES = 512 };

static void free_message(crossdock_error* err) {
  free(err->private_data);
  err->message = NULL;
  err->release = NULL;
}

crossdock_code csv_no_memory(crossdock_error* err) {
  if (err) {
    err->code = CROSSDOCK_OUT_OF_MEMORY;
    err->message = "there is no memory for the plugin's own bookkeeping";
  }
  return CROSSDOCK_OUT_OF_MEMORY;
}

crossdock_code csv_fail(crossdock_error* err, crossdock_code code, const char* format, ...) {
  va_list arguments;
  char* text;
  size_t at, bytes;
  if (!err) return code;
  text = calloc(1, MESSAGE_BYTES);
  if (!text) return csv_no_memory(err);
  va_start(arguments, format);
  vsnprintf(text, MESSAGE_BYTES, format, arguments);
  va_end(arguments);
  bytes = strlen(text);
  for (at = 0; (at += csv_text_prefix(text + at, bytes - at)) < bytes;) text[at] = '?';
  for (at = 0; at < bytes; at++)
    if ((unsigned char)text[at] < ' ' || text[at] == 0x7F) text[at] = '?';
  err->code = code;
  err->message = text;
  err->private_data = text;
  err->release = free_message;
  return code;
}

crossdock_code csv_check_cancelled(const crossdock_call* call, crossdock_error* err) {
  return CROSSDOCK_IS_CANCELLED(call) ? csv_fail(err, CROSSDOCK_CANCELLED, "cancelled") : CROSSDOCK_OK;
}

/* Bytes of the character at the start of a text, as the Unicode standard lists them (table 3-7); 0: there is none. */
static size_t character(const unsigned char* at, size_t bytes) {
  const size_t n = at[0] < 0x80 ? 1 : at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : at[0] < 0xF5 ? 4 : 0;
  if (at[0] == 0 || n == 0 || n > bytes) return 0;
  for (size_t i = 1; i < n; i++)
    if ((at[i] & 0xC0) != 0x80) return 0;
  if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F)) return 0;
  return (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F) ? 0 : n;
}

size_t csv_text_prefix(const char* text, size_t bytes) {
  size_t at = 0, n;
  while (at < bytes && (n = character((const unsigned char*)text + at, bytes - at)) > 0) at += n;
  return at;
}

bool csv_is(crossdock_str text, const char* word) {
  return text.bytes == strlen(word) && memcmp(text.data, word, text.bytes) == 0;
}

char* csv_copy_text(const char* text, size_t bytes) {
  char* copy = calloc(bytes + 1, 1);
  if (copy && bytes) memcpy(copy, text, bytes);
  return copy;
}

crossdock_code csv_reserve(const crossdock_memory* memory, csv_block* block, size_t used, size_t wanted,
                           crossdock_error* err) {
  crossdock_allocation fresh = {0};
  csv_block grown = {.bytes = wanted > 2 * block->bytes ? wanted : 2 * block->bytes};
  crossdock_code code;
  if (block->block && wanted <= block->bytes) return CROSSDOCK_OK;
  if (grown.bytes < 1024) grown.bytes = 1024;
  code = memory->alloc(memory, CSV_CPU, grown.bytes, 64, NULL, &fresh, err);
  if (code != CROSSDOCK_OK) return code;
  grown.block = fresh.block;
  grown.at = memory->host_address(memory, CSV_CPU, fresh.address, grown.bytes);
  if (!grown.at) {
    csv_free(memory, &grown, 0);
    return csv_fail(err, CROSSDOCK_INTERNAL, "the host cannot reach memory of its own");
  }
  if (used) memcpy(grown.at, block->at, used);
  csv_free(memory, block, 0);
  *block = grown;
  return CROSSDOCK_OK;
}

void csv_free(const crossdock_memory* memory, csv_block* block, uint32_t flags) {
  if (block->block) memory->free(memory, block->block, NULL, 0, flags);
  *block = (csv_block){0};
}
