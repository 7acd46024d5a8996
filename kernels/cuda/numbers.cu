// Single numbers on the device: read for the host, and held against what it expects.
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
  PARAMS(FROM, WIDTH, SIGNED, LEAST, MOST, CELL);
  FIND_JOB;
  Bytes from = job.read(FROM);
  u64 width = job.value(WIDTH);
  u64 found = NOTHING;
  if ((width == 4 || width == 8) && from.len >= width && job.thread == 0) {
    i64 number = integer_at(from, 0, (u32)width, job.value(SIGNED) != 0);
    if (number < (i64)job.value(LEAST) || number > (i64)job.value(MOST)) found = 0;
  }
  report(job.write(CELL), found);
}
