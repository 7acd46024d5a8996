#include "calls.h"

#include "error.h"
#include "instance.h"

/* Text of n bytes becomes some 5 n bytes of numbers at worst, beside the window and a batch that somebody still holds. */
enum { PART_OF_LIMIT = 32, LEAST_BYTES = 4 << 10 };

crossdock_code csv_check_cancelled(const crossdock_call* call, crossdock_error* err) {
  return CROSSDOCK_IS_CANCELLED(call) ? csv_fail(err, CROSSDOCK_CANCELLED, "cancelled") : CROSSDOCK_OK;
}

void csv_tell_progress(const crossdock_call* call, uint64_t bytes_done, uint64_t bytes_total) {
  if (CROSSDOCK_HAS(call, progress_data) && call->progress) call->progress(call->progress_data, bytes_done, bytes_total);
}

size_t csv_within_budget(const crossdock_instance* instance, const crossdock_call* call, size_t bytes) {
  uint64_t least = bytes, limit = instance->memory_limit / PART_OF_LIMIT;
  if (limit > 0 && limit < least) least = limit;
  if (CROSSDOCK_HAS(call, byte_budget) && call->byte_budget > 0 && call->byte_budget < least) least = call->byte_budget;
  return least < LEAST_BYTES ? LEAST_BYTES : (size_t)least;
}
