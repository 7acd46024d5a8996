#include "output.h"

#include <string.h>

#include "error.h"
#include "text.h"

enum { BUFFER_BYTES = 128 << 10 };

void csv_output_take(csv_output* output, const crossdock_memory* memory, crossdock_sink* from) {
  memset(output, 0, sizeof *output);
  CROSSDOCK_MOVE(&output->sink, from);
  output->memory = memory;
}

crossdock_code csv_output_begin(csv_output* output, crossdock_error* err) {
  return csv_block_reserve(output->memory, &output->buffer, 0, BUFFER_BYTES, "the text that is being written", err);
}

void csv_output_release(csv_output* output) {
  csv_block_free(output->memory, &output->buffer, 0);
  if (output->sink.release) output->sink.release(&output->sink);
}

static crossdock_code send(csv_output* output, const void* data, size_t bytes, crossdock_error* err) {
  crossdock_code code = bytes ? output->sink.write(&output->sink, data, bytes, err) : CROSSDOCK_OK;
  if (code == CROSSDOCK_OK) output->written += bytes;
  return code;
}

crossdock_code csv_output_flush(csv_output* output, crossdock_error* err) {
  size_t bytes = output->used;
  output->used = 0;
  return send(output, output->buffer.at, bytes, err);
}

crossdock_code csv_output_put(csv_output* output, const char* data, size_t bytes, crossdock_error* err) {
  if (bytes > output->buffer.bytes - output->used) {
    crossdock_code code = csv_output_flush(output, err);
    if (code != CROSSDOCK_OK) return code;
    if (bytes > output->buffer.bytes) return send(output, data, bytes, err);
  }
  if (bytes) memcpy(output->buffer.at + output->used, data, bytes);
  output->used += bytes;
  return CROSSDOCK_OK;
}

static bool needs_quotes(const csv_options* options, const char* text, size_t bytes) {
  const csv_dialect dialect = options->dialect;
  /* An empty text may stand for a null, or make a blank line. */
  if (bytes == 0) return dialect.quote || options->null_bytes == 0;
  if (bytes == options->null_bytes && memcmp(text, options->null, bytes) == 0) return true;
  /* It would be taken for a byte order mark at the start of a file. */
  if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) return true;
  for (size_t i = 0; i < bytes; i++) {
    char c = text[i];
    if (c == dialect.delimiter || c == '\n' || c == '\r' || (dialect.quote && c == dialect.quote)) return true;
  }
  return false;
}

const char* csv_output_refusal(const csv_options* options, const char* text, size_t bytes) {
  if (bytes > 0 && memchr(text, '\0', bytes)) return "it has a NUL byte, which no text file has";
  if (csv_utf8_prefix(text, bytes) < bytes) return "it is not UTF-8";
  if (!options->dialect.quote && needs_quotes(options, text, bytes))
    return "it would be read as something else without quotes; leave out quote=none, or choose another delimiter or null";
  return NULL;
}

crossdock_code csv_output_put_value(csv_output* output, const csv_options* options, const char* text, size_t bytes,
                                    crossdock_error* err) {
  const char quote = options->dialect.quote;
  crossdock_code code;
  if (!needs_quotes(options, text, bytes)) return csv_output_put(output, text, bytes, err);
  code = csv_output_put(output, &quote, 1, err);
  /* From one quote to the next, each of which is written twice. */
  while (code == CROSSDOCK_OK && bytes > 0) {
    const char* next = memchr(text, quote, bytes);
    size_t n = next ? (size_t)(next - text) + 1 : bytes;
    code = csv_output_put(output, text, n, err);
    if (code == CROSSDOCK_OK && next) code = csv_output_put(output, &quote, 1, err);
    text += n;
    bytes -= n;
  }
  return code != CROSSDOCK_OK ? code : csv_output_put(output, &quote, 1, err);
}
