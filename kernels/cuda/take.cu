// Looks up values by code.
#include "wide.cuh"

// Looks up aligned values. A thread writes several vectors of 16 bytes at once. `value_of` returns
// the value of a code. Only whole vectors of the target are written. Returns the number of values
// in these vectors.
template <class T, class C, class At>
DEVICE u64 take_aligned(const Job& job, Bytes codes, Bytes validity, u64 first_bit, u64 limit, Target to, u64& first_error,
                        const At& value_of) {
  const u32 EACH = 16 / sizeof(T), AT_ONCE = 4;
  u64 vectors = to.len / 16;
#pragma unroll 1
  for (u64 v = job.thread / THREADS * AT_ONCE * THREADS + threadIdx.x; v < vectors; v += AT_ONCE * job.threads) {
    C code[AT_ONCE][EACH];
    T value[AT_ONCE][EACH];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      load_codes(codes.at + min64(v + k * THREADS, vectors - 1) * EACH * sizeof(C), code[k]);
    }
    bool any_error = false;
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        bool is_in_range = (u64)code[k][e] < limit;
        any_error |= !is_in_range;
        // A code out of range gives 0. It is no error if it is null.
        value[k][e] = is_in_range ? value_of(code[k][e]) : (T)0;
      }
    }
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      u64 place = v + k * THREADS;
      if (place >= vectors) break;
      Pair pair;
      memcpy(&pair, value[k], 16);
      store128(to.at + place * 16, pair);
      if (!any_error) continue;
#pragma unroll 1
      for (u32 e = 0; e < EACH; e++) {
        u64 at = place * EACH + e;
        u64 single_code = (u64)integer_at(codes, at, sizeof(C), false);
        if (single_code >= limit && is_set(validity, first_bit + at)) first_error = min64(first_error, at);
      }
    }
  }
  return vectors * EACH;
}

// Each block copies the values to shared memory if they have at most this many bytes.
#define MAX_SHARED_BYTES 2048

template <class T, class C>
DEVICE u64 take_by(const Job& job, Bytes codes, Bytes validity, u64 first_bit, Bytes values, Target to, u64& first_error) {
  const T* in_device = (const T*)values.at;
  u64 limit = values.len / sizeof(T);
  if (values.len > MAX_SHARED_BYTES) {
    return take_aligned<T, C>(job, codes, validity, first_bit, limit, to, first_error, [=](C code) { return __ldg(in_device + code); });
  }
  __shared__ u64 memory[MAX_SHARED_BYTES / 8];
  T* table = (T*)memory;
  for (u32 i = threadIdx.x; i < limit; i += THREADS) table[i] = __ldg(in_device + i);
  __syncthreads();
  return take_aligned<T, C>(job, codes, validity, first_bit, limit, to, first_error, [=](C code) { return table[code]; });
}

template <class T>
DEVICE u64 take(const Job& job, Bytes codes, u32 code_width, Bytes validity, u64 first_bit, Bytes values, Target to) {
  u64 n = to.len / sizeof(T), limit = values.len / sizeof(T), first_error = NONE, n_taken = 0;
  if (codes.len / code_width < n) return 0;
  if constexpr (sizeof(T) <= 8) {
    bool aligned = (((u64)to.at | (u64)codes.at) & 15) == 0 && ((u64)values.at & (sizeof(T) - 1)) == 0;
    switch (aligned ? code_width : 0) {
      case 1: n_taken = take_by<T, u8>(job, codes, validity, first_bit, values, to, first_error); break;
      case 2: n_taken = take_by<T, u16>(job, codes, validity, first_bit, values, to, first_error); break;
      case 4: n_taken = take_by<T, u32>(job, codes, validity, first_bit, values, to, first_error); break;
      case 8: n_taken = take_by<T, u64>(job, codes, validity, first_bit, values, to, first_error); break;
    }
  }
#pragma unroll 1
  for (u64 i = n_taken + job.thread; i < n; i += job.threads) {
    u64 code = (u64)integer_at(codes, i, code_width, false);
    T value = {};
    if (code < limit) {
      value = value_at<T>(values, code);
    } else if (is_set(validity, first_bit + i)) {
      first_error = min64(first_error, i);
    }
    put_value(to, i, value);
  }
  return first_error;
}

KERNEL(crossdock_take) {
  PARAMS(CODES, CODE_WIDTH, VALIDITY, FIRST_BIT, VALUES, TO, WIDTH, CELL);
  FIND_JOB;
  Bytes codes = job.read(CODES), validity = job.read(VALIDITY), values = job.read(VALUES);
  Target to = job.write(TO);
  u64 bit = job.value(FIRST_BIT), width = job.value(CODE_WIDTH), first_error = 0;
  if (width != 1 && width != 2 && width != 4 && width != 8) return;
  switch (job.value(WIDTH)) {
    case 1: first_error = take<u8>(job, codes, (u32)width, validity, bit, values, to); break;
    case 2: first_error = take<u16>(job, codes, (u32)width, validity, bit, values, to); break;
    case 4: first_error = take<u32>(job, codes, (u32)width, validity, bit, values, to); break;
    case 8: first_error = take<u64>(job, codes, (u32)width, validity, bit, values, to); break;
    case 16: first_error = take<Wide16>(job, codes, (u32)width, validity, bit, values, to); break;
    case 32: first_error = take<Wide32>(job, codes, (u32)width, validity, bit, values, to); break;
  }
  report(job.write(CELL), first_error);
}
