#include "input.h"

#include <string.h>

#include "calls.h"
#include "error.h"

enum { WINDOW_BYTES = 128 << 10, LEAST_BYTES = 16 << 10 };

void csv_input_take(csv_input* input, const crossdock_memory* memory, crossdock_source* from) {
  memset(input, 0, sizeof *input);
  CROSSDOCK_MOVE(&input->source, from);
  input->memory = memory;
}

static crossdock_code make_room(csv_input* input, crossdock_error* err) {
  size_t kept = csv_input_bytes(input);
  if (input->start > 0 && kept > 0) memmove(input->window.at, csv_input_text(input), kept);
  input->start = 0;
  input->end = kept;
  /* One byte is for the NUL at the end. */
  if (input->window.bytes < kept + LEAST_BYTES + 1)
    return csv_block_reserve(input->memory, &input->window, kept,
                             input->window.block ? 2 * input->window.bytes : WINDOW_BYTES, "the text that is being read",
                             err);
  return CROSSDOCK_OK;
}

crossdock_code csv_input_more(csv_input* input, const crossdock_call* call, crossdock_error* err) {
  crossdock_source* source = &input->source;
  size_t room, got = 0;
  crossdock_code code = csv_check_cancelled(call, err);
  if (code == CROSSDOCK_OK) code = make_room(input, err);
  if (code != CROSSDOCK_OK) return code;
  room = input->window.bytes - 1 - input->end;
  code = source->read_at(source, input->offset, input->window.at + input->end, room, &got, err);
  if (code != CROSSDOCK_OK) return code;
  if (got > room)
    return csv_fail(err, CROSSDOCK_INVALID_ARGUMENT, "the source read %zu bytes into %zu", got, room);
  if (got == 0 && source->bytes >= 0 && input->offset < (uint64_t)source->bytes)
    return csv_fail(err, CROSSDOCK_IO, "the source ends after %llu bytes; expected %lld",
                    (unsigned long long)input->offset, (long long)source->bytes);
  input->offset += got;
  input->end += got;
  input->at_end = got == 0;
  if (input->at_end) input->window.at[input->end] = '\0';
  csv_tell_progress(call, input->offset, source->bytes < 0 ? 0 : (uint64_t)source->bytes);
  return CROSSDOCK_OK;
}

void csv_input_release(csv_input* input) {
  csv_block_free(input->memory, &input->window, 0);
  if (input->source.release) input->source.release(&input->source);
}
