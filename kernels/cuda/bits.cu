// Copies bitmaps so that each copy begins at a byte boundary, and combines two bitmaps with AND.
#include "bytes.cuh"

struct Shifted {
  Bytes from;
  u64 first;
  u64 len;
  __device__ u64 inner_len() const { return min64(from.len, len / 8); }
  __device__ u64 checked(u64 i) const { return below(bits_at(from, first + i * 8), i * 8, len); }
  __device__ Pair unchecked(u64 i) const { return pair_unchecked(from, first + i * 8); }
};

KERNEL(crossdock_shift_bits) {
  PARAMS(FROM, FIRST, LEN, TO);
  FIND_JOB;
  Shifted source = {job.read(FROM), job.value(FIRST) % 8, job.value(LEN)};
  fill(job, job.write(TO), source);
}

struct Merged {
  Bytes a;
  u64 first_a;
  Bytes b;
  u64 first_b;
  u64 len;
  __device__ u64 inner_len() const { return min64(min64(a.len, b.len), len / 8); }
  __device__ u64 checked(u64 i) const {
    return below(bits_at(a, first_a + i * 8) & bits_at(b, first_b + i * 8), i * 8, len);
  }
  __device__ Pair unchecked(u64 i) const {
    Pair x = pair_unchecked(a, first_a + i * 8), y = pair_unchecked(b, first_b + i * 8);
    Pair pair = {x.low & y.low, x.high & y.high};
    return pair;
  }
};

KERNEL(crossdock_merge_bits) {
  PARAMS(A, FIRST_A, B, FIRST_B, LEN, TO);
  FIND_JOB;
  Merged source = {job.read(A), job.value(FIRST_A) % 8, job.read(B), job.value(FIRST_B) % 8, job.value(LEN)};
  fill(job, job.write(TO), source);
}
