// Reads single numbers on the device, and compares them with bounds.
#include "words.cuh"

KERNEL(crossdock_read_numbers) {
  PARAMS(FROM, WIDTH, SIGNED, CELLS);
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target cells = job.write(CELLS);
  u64 width = job.value(WIDTH);
  if (width != 4 && width != 8) return;
  u64 n = min64(from.len / width, cells.len / 8);
  for (u64 i = job.thread; i < n; i += job.threads) {
    put_word<i64>(cells, i, integer_at(from, i, (u32)width, job.value(SIGNED) != 0));
  }
}

KERNEL(crossdock_check_number) {
  PARAMS(FROM, WIDTH, SIGNED, MIN, MAX, CELL);
  FIND_JOB;
  Bytes from = job.read(FROM);
  u64 width = job.value(WIDTH);
  u64 first_error = NONE;
  if ((width == 4 || width == 8) && from.len >= width && job.thread == 0) {
    i64 number = integer_at(from, 0, (u32)width, job.value(SIGNED) != 0);
    if (number < (i64)job.value(MIN) || number > (i64)job.value(MAX)) first_error = 0;
  }
  report(job.write(CELL), first_error);
}
