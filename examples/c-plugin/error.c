#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#include "alloc.h"

enum { MESSAGE_BYTES = 1024 };

static void release(crossdock_error* err) {
  CSV_FREE(err->private_data);
  err->private_data = NULL;
  err->message = NULL;
  err->release = NULL;
}

crossdock_code csv_no_memory(crossdock_error* err) {
  if (err) {
    err->code = CROSSDOCK_OUT_OF_MEMORY;
    err->message = "there is no memory for the plugin's own bookkeeping";
    err->details = NULL;
    err->release = NULL;
  }
  return CROSSDOCK_OUT_OF_MEMORY;
}

/* A cut may fall into the middle of a character, and messages are UTF-8. */
static void end_with_dots(char* text) {
  size_t end = MESSAGE_BYTES - sizeof "...";
  while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
  memcpy(text + end, "...", sizeof "...");
}

crossdock_code csv_fail(crossdock_error* err, crossdock_code code, const char* format, ...) {
  va_list arguments;
  char* text;
  int bytes;
  if (!err) return code;
  text = CSV_MALLOC(MESSAGE_BYTES);
  if (!text) {
    csv_no_memory(err);
    err->code = code;
    return code;
  }
  va_start(arguments, format);
  bytes = vsnprintf(text, MESSAGE_BYTES, format, arguments);
  va_end(arguments);
  if (bytes < 0) text[0] = '\0';
  if (bytes >= MESSAGE_BYTES) end_with_dots(text);
  err->code = code;
  err->message = text;
  err->details = NULL;
  err->private_data = text;
  err->release = release;
  return code;
}
