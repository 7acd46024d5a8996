// Combines values that are stored in parts. A value is a sum of products of an integer and a
// factor, or it is a float whose bits are split into a left part and a right part.
#include "widen.cuh"

#define ARGS_PER_PART 3
// The exclusive upper bound of factors. A sum of MAX_PARTS_OF_SUM products, each of a 64-bit
// integer and such a factor, fits in 128 bits.
#define FACTOR_LIMIT (1ull << 60)
#define MAX_PARTS_OF_SUM 4

// Whether an i64 can represent sum `i`. The check is exact but slow, so it is used only for sums
// that may overflow.
static __device__ __noinline__ bool sum_fits(const crossdock_arg* parts, u32 n, u64 i) {
  u64 low = 0, high = 0;
#pragma unroll 1
  for (u32 p = 0; p < n; p++, parts += ARGS_PER_PART) {
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

// Computes sums, which wrap on overflow. The cell becomes the index of the first non-null sum that
// an i64 cannot represent.
KERNEL_BLOCKS(crossdock_sum, 4) {
  PARAMS(TO, VALIDITY, FIRST, CELL, PARTS);
  FIND_JOB;
  Target to = job.write(TO);
  Bytes validity = job.read(VALIDITY);
  const u32 AT_ONCE = 2;
  u32 n_parts = (job.n - PARTS) / ARGS_PER_PART;
  u64 n = to.len / 8, first = job.value(FIRST), first_error = NONE;
  bool aligned = ((u64)to.at & 7) == 0;
  if (n_parts > MAX_PARTS_OF_SUM) return;
  for (u32 p = 0; p < n_parts; p++) {
    u32 at = PARTS + p * ARGS_PER_PART, type = (u32)job.value(at + 1);
    if (!is_integer(type) || job.read(at).len / width_of_integer(type) < n || job.value(at + 2) >= FACTOR_LIMIT) return;
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
    // An upper bound of the sum's absolute value. Rounding lowers this bound by less than a factor
    // of 2.
    float magnitude[AT_ONCE * 2];
#pragma unroll
    for (u32 w = 0; w < AT_ONCE * 2; w++) {
      sums[w] = 0;
      magnitude[w] = 0;
    }
#pragma unroll 1
    for (u32 p = 0; p < n_parts; p++) {
      u32 at = PARTS + p * ARGS_PER_PART, type = (u32)job.value(at + 1);
      u64 factor = job.value(at + 2), words[AT_ONCE * 2];
      load_widened<u64, AT_ONCE>(job.read(at), type, place, words);
#pragma unroll
      for (u32 w = 0; w < AT_ONCE * 2; w++) {
        sums[w] += words[w] * factor;
        float size = type == 16 ? (float)words[w] : (float)(i64)words[w];
        magnitude[w] += (size < 0 ? -size : size) * (float)factor;
      }
    }
    bool far = false;
#pragma unroll
    for (u32 w = 0; w < AT_ONCE * 2; w++) far |= magnitude[w] >= (float)(1ull << 62);
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (v + k * THREADS < vectors) store128(to.at + place(k) * 8, Pair{sums[2 * k], sums[2 * k + 1]});
    }
    if (!far) continue;
#pragma unroll 1
    for (u32 w = 0; w < AT_ONCE * 2; w++) {
      u64 at = place(w / 2) + w % 2;
      if (wrong(at)) first_error = min64(first_error, at);
    }
  }
#pragma unroll 1
  for (u64 i = job.thread; i < head + (n - after); i += job.threads) {
    u64 at = i < head ? i : after + (i - head), sum = 0;
#pragma unroll 1
    for (u32 p = 0; p < n_parts; p++) {
      u32 part = PARTS + p * ARGS_PER_PART;
      sum += integer_of(job.read(part), at, (u32)job.value(part + 1)) * job.value(part + 2);
    }
    put_word(to, at, sum);
    if (wrong(at)) first_error = min64(first_error, at);
  }
  report(job.write(CELL), first_error);
}

// Maximum number of left parts in a dictionary.
#define MAX_LEFT_PARTS 8

// Joins left and right parts to words.
template <class T>
struct Joiner {
  // The dictionary of left parts, padded with 0. The left parts are already shifted to their bits.
  // Null if the codes themselves are the left parts.
  const u64* lefts;
  u32 right_bits;
  // A code that is not below this limit is an error.
  u32 limit;
  __device__ __forceinline__ T join(T code, T right) const {
    T left = lefts ? (T)lefts[code % MAX_LEFT_PARTS] : (T)(code << right_bits);
    return left | (right & (T)(((T)1 << right_bits) - 1));
  }
};

template <class T>
DEVICE u64 join(const Job& job, Bytes codes, Bytes validity, u64 first, Bytes rights, Target to, Joiner<T> joiner) {
  const u32 AT_ONCE = 2, EACH = 16 / sizeof(T);
  u64 n = to.len / sizeof(T), first_error = NONE;
  if (codes.len / 2 < n || rights.len / sizeof(T) < n) return 0;
  auto wrong = [=](u64 i, T code) { return code >= joiner.limit && is_set(validity, first + i); };
  bool aligned = ((u64)to.at & (sizeof(T) - 1)) == 0 && is_aligned(codes, 2) && is_aligned(rights, sizeof(T));
  u64 head = aligned ? min64(n, ((0 - (u64)to.at) & 15) / sizeof(T)) : n;
  u64 vectors = (n - head) / EACH, after = head + vectors * EACH;
#pragma unroll 1
  for (u64 v = job.thread / THREADS * AT_ONCE * THREADS + threadIdx.x; v < vectors; v += AT_ONCE * job.threads) {
    auto place = [=](u32 k) { return head + min64(v + k * THREADS, vectors - 1) * EACH; };
    T code[AT_ONCE * EACH], words[AT_ONCE * EACH];
    load_as<u16, T, AT_ONCE>(codes, place, code);
    load_as<T, T, AT_ONCE>(rights, place, words);
    bool any_error = false;
#pragma unroll
    for (u32 w = 0; w < AT_ONCE * EACH; w++) {
      any_error |= code[w] >= joiner.limit;
      words[w] = joiner.join(code[w], words[w]);
    }
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (v + k * THREADS >= vectors) break;
      Pair pair;
      memcpy(&pair, words + k * EACH, 16);
      store128(to.at + place(k) * sizeof(T), pair);
    }
    if (!any_error) continue;
#pragma unroll 1
    for (u32 w = 0; w < AT_ONCE * EACH; w++) {
      u64 at = place(w / EACH) + w % EACH;
      if (wrong(at, word_at<u16>(codes, at))) first_error = min64(first_error, at);
    }
  }
#pragma unroll 1
  for (u64 i = job.thread; i < head + (n - after); i += job.threads) {
    u64 at = i < head ? i : after + (i - head);
    T code = word_at<u16>(codes, at);
    if (wrong(at, code)) first_error = min64(first_error, at);
    put_word(to, at, joiner.join(code, word_at<T>(rights, at)));
  }
  return first_error;
}

// The cell becomes the index of the first non-null code that is an error: a code that is not in the
// dictionary or, without a dictionary, a left part with too many bits.
KERNEL_BLOCKS(crossdock_join, 4) {
  PARAMS(CODES, VALIDITY, FIRST, RIGHTS, RIGHT_BITS, HAS_DICTIONARY, TO, WIDTH, CELL, LEFTS);
  __shared__ u64 lefts[MAX_LEFT_PARTS];
  FIND_JOB;
  u32 bits = (u32)job.value(RIGHT_BITS), n_lefts = job.n - LEFTS, width = (u32)job.value(WIDTH);
  bool has_dictionary = job.value(HAS_DICTIONARY) != 0;
  if (bits == 0 || bits >= width * 8 || n_lefts > MAX_LEFT_PARTS) return;
  if (threadIdx.x < MAX_LEFT_PARTS) lefts[threadIdx.x] = threadIdx.x < n_lefts ? job.value(LEFTS + threadIdx.x) << bits : 0;
  __syncthreads();
  Bytes codes = job.read(CODES), validity = job.read(VALIDITY), rights = job.read(RIGHTS);
  Target to = job.write(TO);
  u64 first = job.value(FIRST), first_error = NONE;
  u32 left_bits = width * 8 - bits, limit = has_dictionary ? n_lefts : left_bits < 32 ? 1u << left_bits : ~0u;
  const u64* dictionary = has_dictionary ? lefts : 0;
  switch (width) {
    case 4: first_error = join<u32>(job, codes, validity, first, rights, to, Joiner<u32>{dictionary, bits, limit}); break;
    case 8: first_error = join<u64>(job, codes, validity, first, rights, to, Joiner<u64>{dictionary, bits, limit}); break;
  }
  report(job.write(CELL), first_error);
}
