/* Creates the batches that rows_read.c returns. */
#include "base.h"

enum { ROW = 9, RARE = 26 };

/* Converts stored rows to a validity bitmap and values. */
static void spread(const unsigned char* rows, size_t n, unsigned char* validity, unsigned char* values) {
  memset(validity, 0, (n + 7) / 8);
  for (size_t i = 0; i < n; i++) {
    if (rows[i * ROW] != 0 || HAS(NULL_DROPPED)) validity[i / 8] |= (unsigned char)(1 << (i % 8));
    memcpy(values + 8 * i, rows + i * ROW + 1, 8);
  }
  if (HAS(RARE_VALUE_CHANGED) && n > 0 && values[0] % 64 == RARE) values[0] ^= 1;
}

/* A kernel for host memory that counts unset bits. Its arguments are a bitmap, the number of
 * bits, and the address of the result. */
static crossdock_code count(const crossdock_arg* args, size_t n_args) {
  const unsigned char* bits = (const unsigned char*)(uintptr_t)args[0].value;
  int64_t unset = 0;
  if (n_args != 3) return CROSSDOCK_INVALID_ARGUMENT;
  for (uint64_t i = 0; i < args[1].value; i++) unset += !(bits[i / 8] >> (i % 8) & 1);
  memcpy((void*)(uintptr_t)args[2].value, &unset, sizeof unset);
  return CROSSDOCK_OK;
}

static crossdock_code count_nulls(const base_column* own, size_t n, crossdock_stream* stream, int64_t* out,
                                  crossdock_error* err) {
  static const crossdock_kernel KERNEL = {.struct_size = sizeof KERNEL, .name = "base_count", .host_function = count};
  const crossdock_launch size = {.struct_size = sizeof size, .blocks = {1, 1, 1}, .threads = {1, 1, 1}};
  const crossdock_arg args[] = {{(uintptr_t)own->buffers[0], (n + 7) / 8, CROSSDOCK_ARG_READ, 0},
                                {n, 0, CROSSDOCK_ARG_VALUE, 0},
                                {(uintptr_t)out, sizeof *out, CROSSDOCK_ARG_WRITE, 0}};
  const crossdock_memory* memory = own->memory;
  crossdock_code code = memory->launch(memory, HAS(LAUNCH_ON_DEFAULT_STREAM) ? NULL : stream, &KERNEL, &size, args, 3, err);
  if (code == CROSSDOCK_OK) code = memory->stream_synchronize(memory, stream, err);
  *out -= HAS(NULL_COUNT) && *out > 0;
  return code;
}

crossdock_code base_rows_give(crossdock_instance* instance, const crossdock_call* call, const unsigned char* rows, size_t n,
                              size_t n_given, crossdock_batch* out, crossdock_error* err) {
  unsigned char* spread_out = malloc((n + 7) / 8 + 8 * n + 1);
  base_column* own;
  crossdock_stream* stream;
  int64_t nulls = 0;
  crossdock_code code;
  if (!spread_out) return base_fail(err, CROSSDOCK_OUT_OF_MEMORY, "base-rows: no memory for a batch");
  own = base_column_new(instance, 0, err);
  if (!own) {
    free(spread_out);
    return CROSSDOCK_OUT_OF_MEMORY;
  }
  spread(rows, n, spread_out, spread_out + (n + 7) / 8);
  code = base_column_stream(own, call, &stream, err);
  if (code == CROSSDOCK_OK) code = base_column_fill(own, 0, spread_out, (n + 7) / 8, stream, err);
  if (code == CROSSDOCK_OK) code = base_column_fill(own, 1, spread_out + (n + 7) / 8, 8 * n, stream, err);
  if (code == CROSSDOCK_OK) code = count_nulls(own, n, stream, &nulls, err);
  if (code == CROSSDOCK_OK) code = base_column_give(own, stream, (int64_t)n_given, nulls, out, err);
  free(spread_out);
  if (code != CROSSDOCK_OK) base_column_free(own);
  return code;
}
