// Values that lie in parts: sums of whole numbers times factors, and floats cut in two.
#include "widen.cuh"

#define PART_ARGS 3
// A product of 64 bits and of less than this, so many times, is far from what 128 bits hold.
#define MOST_FACTOR (1ull << 60)
#define MOST_PARTS_OF_SUM 4

// Whether the i-th sum is one that an i64 holds; exactly, for those of which that is not plain.
static __device__ __noinline__ bool sum_fits(const crossdock_arg* parts, u32 n, u64 i) {
  u64 low = 0, high = 0;
#pragma unroll 1
  for (u32 p = 0; p < n; p++, parts += PART_ARGS) {
    u32 type = (u32)parts[1].value;
    Bytes from = {(const u8*)parts[0].value, parts[0].bytes};
    u64 number = integer_of(from, i, type), factor = parts[2].value, product = number * factor;
    bool negative = type % 2 != 0 && number >> 63 != 0;
    high += __umul64hi(number, factor) - (negative ? factor : 0);
    low += product;
    high += low < product;
  }
  return high == (low >> 63 != 0 ? ~0ull : 0);
}

// Sums wrap. The cell says which was the first that an i64 does not hold, where it is valid.
KERNEL_BLOCKS(crossdock_sum, 4) {
  PARAMS(TO, VALIDITY, FIRST, CELL, PARTS);
  FIND_JOB;
  Target to = job.write(TO);
  Bytes validity = job.read(VALIDITY);
  const u32 AT_ONCE = 2;
  u32 n_parts = (job.n - PARTS) / PART_ARGS;
  u64 n = to.len / 8, first = job.value(FIRST), found = NOTHING;
  bool aligned = ((u64)to.at & 7) == 0;
  if (n_parts > MOST_PARTS_OF_SUM) return;
  for (u32 p = 0; p < n_parts; p++) {
    u32 at = PARTS + p * PART_ARGS, type = (u32)job.value(at + 1);
    if (!is_integer(type) || job.read(at).len / width_of_integer(type) < n || job.value(at + 2) >= MOST_FACTOR) return;
    aligned = aligned && is_aligned(job.read(at), width_of_integer(type));
  }
  const crossdock_arg* parts = job.args + PARTS;
  auto wrong = [=](u64 i) { return !sum_fits(parts, n_parts, i) && is_set(validity, first + i); };
  u64 head = aligned ? min64(n, ((u64)to.at & 15) / 8) : n;
  u64 vectors = (n - head) / 2, after = head + vectors * 2;
#pragma unroll 1
  for (u64 v = job.thread / THREADS * AT_ONCE * THREADS + threadIdx.x; v < vectors; v += AT_ONCE * job.threads) {
    auto place = [=](u32 k) { return head + min64(v + k * THREADS, vectors - 1) * 2; };
    u64 sums[AT_ONCE * 2];
    // At least how far from 0 a sum might be; less than twice that is never lost to rounding.
    float reach[AT_ONCE * 2];
#pragma unroll
    for (u32 w = 0; w < AT_ONCE * 2; w++) {
      sums[w] = 0;
      reach[w] = 0;
    }
#pragma unroll 1
    for (u32 p = 0; p < n_parts; p++) {
      u32 at = PARTS + p * PART_ARGS, type = (u32)job.value(at + 1);
      u64 factor = job.value(at + 2), words[AT_ONCE * 2];
      load_widened<u64, AT_ONCE>(job.read(at), type, place, words);
#pragma unroll
      for (u32 w = 0; w < AT_ONCE * 2; w++) {
        sums[w] += words[w] * factor;
        float size = type == 16 ? (float)words[w] : (float)(i64)words[w];
        reach[w] += (size < 0 ? -size : size) * (float)factor;
      }
    }
    bool far = false;
#pragma unroll
    for (u32 w = 0; w < AT_ONCE * 2; w++) far |= reach[w] >= (float)(1ull << 62);
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (v + k * THREADS < vectors) store128(to.at + place(k) * 8, Pair{sums[2 * k], sums[2 * k + 1]});
    }
    if (!far) continue;
#pragma unroll 1
    for (u32 w = 0; w < AT_ONCE * 2; w++) {
      u64 at = place(w / 2) + w % 2;
      if (wrong(at)) found = min64(found, at);
    }
  }
#pragma unroll 1
  for (u64 i = job.thread; i < head + (n - after); i += job.threads) {
    u64 at = i < head ? i : after + (i - head), sum = 0;
#pragma unroll 1
    for (u32 p = 0; p < n_parts; p++) {
      u32 part = PARTS + p * PART_ARGS;
      sum += integer_of(job.read(part), at, (u32)job.value(part + 1)) * job.value(part + 2);
    }
    put_word(to, at, sum);
    if (wrong(at)) found = min64(found, at);
  }
  report(job.write(CELL), found);
}

// A few left parts, which codes name.
#define MOST_LEFTS 8

// What makes words of left and right parts.
template <class T>
struct Cut {
  // Left parts in their places, 0 for what no code may name; of no bytes where codes are left parts themselves.
  const u64* lefts;
  u32 right_bits;
  // Codes from here on are wrong.
  u32 limit;
  __device__ __forceinline__ T join(T code, T right) const {
    T left = lefts ? (T)lefts[code % MOST_LEFTS] : (T)(code << right_bits);
    return left | (right & (T)(((T)1 << right_bits) - 1));
  }
};

template <class T>
DEVICE u64 join(const Job& job, Bytes codes, Bytes validity, u64 first, Bytes rights, Target to, Cut<T> cut) {
  const u32 AT_ONCE = 2, EACH = 16 / sizeof(T);
  u64 n = to.len / sizeof(T), found = NOTHING;
  if (codes.len / 2 < n || rights.len / sizeof(T) < n) return 0;
  auto wrong = [=](u64 i, T code) { return code >= cut.limit && is_set(validity, first + i); };
  bool aligned = ((u64)to.at & (sizeof(T) - 1)) == 0 && is_aligned(codes, 2) && is_aligned(rights, sizeof(T));
  u64 head = aligned ? min64(n, ((0 - (u64)to.at) & 15) / sizeof(T)) : n;
  u64 vectors = (n - head) / EACH, after = head + vectors * EACH;
#pragma unroll 1
  for (u64 v = job.thread / THREADS * AT_ONCE * THREADS + threadIdx.x; v < vectors; v += AT_ONCE * job.threads) {
    auto place = [=](u32 k) { return head + min64(v + k * THREADS, vectors - 1) * EACH; };
    T named[AT_ONCE * EACH], words[AT_ONCE * EACH];
    load_as<u16, T, AT_ONCE>(codes, place, named);
    load_as<T, T, AT_ONCE>(rights, place, words);
    bool beyond = false;
#pragma unroll
    for (u32 w = 0; w < AT_ONCE * EACH; w++) {
      beyond |= named[w] >= cut.limit;
      words[w] = cut.join(named[w], words[w]);
    }
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (v + k * THREADS >= vectors) break;
      Pair pair;
      memcpy(&pair, words + k * EACH, 16);
      store128(to.at + place(k) * sizeof(T), pair);
    }
    if (!beyond) continue;
#pragma unroll 1
    for (u32 w = 0; w < AT_ONCE * EACH; w++) {
      u64 at = place(w / EACH) + w % EACH;
      if (wrong(at, word_at<u16>(codes, at))) found = min64(found, at);
    }
  }
#pragma unroll 1
  for (u64 i = job.thread; i < head + (n - after); i += job.threads) {
    u64 at = i < head ? i : after + (i - head);
    T code = word_at<u16>(codes, at);
    if (wrong(at, code)) found = min64(found, at);
    put_word(to, at, cut.join(code, word_at<T>(rights, at)));
  }
  return found;
}

// The cell says which was the first code, where it is valid, that names no left part; or the first left part of too many bits.
KERNEL_BLOCKS(crossdock_join, 4) {
  PARAMS(CODES, VALIDITY, FIRST, RIGHTS, RIGHT_BITS, NAMED, TO, WIDTH, CELL, LEFTS);
  __shared__ u64 lefts[MOST_LEFTS];
  FIND_JOB;
  u32 bits = (u32)job.value(RIGHT_BITS), n_lefts = job.n - LEFTS, width = (u32)job.value(WIDTH);
  bool named = job.value(NAMED) != 0;
  if (bits == 0 || bits >= width * 8 || n_lefts > MOST_LEFTS) return;
  if (threadIdx.x < MOST_LEFTS) lefts[threadIdx.x] = threadIdx.x < n_lefts ? job.value(LEFTS + threadIdx.x) << bits : 0;
  __syncthreads();
  Bytes codes = job.read(CODES), validity = job.read(VALIDITY), rights = job.read(RIGHTS);
  Target to = job.write(TO);
  u64 first = job.value(FIRST), found = NOTHING;
  u32 left_bits = width * 8 - bits, limit = named ? n_lefts : left_bits < 32 ? 1u << left_bits : ~0u;
  const u64* names = named ? lefts : 0;
  switch (width) {
    case 4: found = join<u32>(job, codes, validity, first, rights, to, Cut<u32>{names, bits, limit}); break;
    case 8: found = join<u64>(job, codes, validity, first, rights, to, Cut<u64>{names, bits, limit}); break;
  }
  report(job.write(CELL), found);
}
