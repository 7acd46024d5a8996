// Bitmaps copied to where they begin on a byte, and merged.
#include "bytes.cuh"

struct Shifted {
  Bytes from;
  u64 first;
  u64 len;
  __device__ u64 inner() const { return min64(from.len, len / 8); }
  __device__ u64 safe(u64 i) const { return below(bits_at(from, first + i * 8), i * 8, len); }
  __device__ Pair inside(u64 i) const { return pair_inside(from, first + i * 8); }
};

KERNEL(crossdock_shift_bits) {
  PARAMS(FROM, FIRST, LEN, TO);
  FIND_JOB;
  Shifted of = {job.read(FROM), job.value(FIRST) % 8, job.value(LEN)};
  fill(job, job.write(TO), of);
}
