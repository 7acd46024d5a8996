// Values by their numbers.
#include "wide.cuh"

// Several that lie side by side, at an address that suits them all.
template <class C, u32 N>
DEVICE void load_codes(const u8* at, C (&codes)[N]) {
  const u32 BYTES = sizeof(C) * N;
  if constexpr (BYTES >= 16) {
#pragma unroll
    for (u32 b = 0; b < BYTES / 16; b++) {
      Pair pair = aligned128(at + b * 16);
      memcpy((u8*)codes + b * 16, &pair, 16);
    }
  } else if constexpr (BYTES == 8) {
    u64 word = __ldg((const u64*)at);
    memcpy(codes, &word, 8);
  } else if constexpr (BYTES == 4) {
    u32 word = __ldg((const u32*)at);
    memcpy(codes, &word, 4);
  } else {
    u16 word = __ldg((const u16*)at);
    memcpy(codes, &word, 2);
  }
}

// Where the values, and the codes of 16 bytes of them, lie as they should: 16 bytes a thread and step, two under way. `at`
// gives the value that a code numbers. Answers how many values from the first on were taken: those of the target's whole 16
// bytes.
template <class T, class C, class At>
DEVICE u64 take_aligned(const Job& job, Bytes codes, Bytes validity, u64 first_bit, u64 limit, Target to, u64& found, const At& value_of) {
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
    bool bad = false;
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        bool there = (u64)code[k][e] < limit;
        bad |= !there;
        // What is null comes as it will.
        value[k][e] = there ? value_of(code[k][e]) : (T)0;
      }
    }
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      u64 place = v + k * THREADS;
      if (place >= vectors) break;
      Pair pair;
      memcpy(&pair, value[k], 16);
      store128(to.at + place * 16, pair);
      if (!bad) continue;
#pragma unroll 1
      for (u32 e = 0; e < EACH; e++) {
        u64 at = place * EACH + e;
        u64 own = (u64)integer_at(codes, at, sizeof(C), false);
        if (own >= limit && is_set(validity, first_bit + at)) found = min64(found, at);
      }
    }
  }
  return vectors * EACH;
}

// Values of so many bytes at most each block brings close first.
#define HELD_BYTES 2048

template <class T, class C>
DEVICE u64 take_by(const Job& job, Bytes codes, Bytes validity, u64 first_bit, Bytes values, Target to, u64& found) {
  const T* far = (const T*)values.at;
  u64 limit = values.len / sizeof(T);
  if (values.len > HELD_BYTES) {
    return take_aligned<T, C>(job, codes, validity, first_bit, limit, to, found, [=](C code) { return __ldg(far + code); });
  }
  __shared__ u64 held[HELD_BYTES / 8];
  T* table = (T*)held;
  for (u32 i = threadIdx.x; i < limit; i += THREADS) table[i] = __ldg(far + i);
  __syncthreads();
  return take_aligned<T, C>(job, codes, validity, first_bit, limit, to, found, [=](C code) { return table[code]; });
}

template <class T>
DEVICE u64 take(const Job& job, Bytes codes, u32 code_width, Bytes validity, u64 first_bit, Bytes values, Target to) {
  u64 n = to.len / sizeof(T), limit = values.len / sizeof(T), found = NOTHING, done = 0;
  if (codes.len / code_width < n) return 0;
  if constexpr (sizeof(T) <= 8) {
    bool whole = (((u64)to.at | (u64)codes.at) & 15) == 0 && ((u64)values.at & (sizeof(T) - 1)) == 0;
    switch (whole ? code_width : 0) {
      case 1: done = take_by<T, u8>(job, codes, validity, first_bit, values, to, found); break;
      case 2: done = take_by<T, u16>(job, codes, validity, first_bit, values, to, found); break;
      case 4: done = take_by<T, u32>(job, codes, validity, first_bit, values, to, found); break;
      case 8: done = take_by<T, u64>(job, codes, validity, first_bit, values, to, found); break;
    }
  }
#pragma unroll 1
  for (u64 i = done + job.thread; i < n; i += job.threads) {
    u64 code = (u64)integer_at(codes, i, code_width, false);
    T value = {};
    if (code < limit) {
      value = value_at<T>(values, code);
    } else if (is_set(validity, first_bit + i)) {
      found = min64(found, i);
    }
    put_value(to, i, value);
  }
  return found;
}

KERNEL(crossdock_take) {
  PARAMS(CODES, CODE_WIDTH, VALIDITY, FIRST_BIT, VALUES, TO, WIDTH, CELL);
  FIND_JOB;
  Bytes codes = job.read(CODES), validity = job.read(VALIDITY), values = job.read(VALUES);
  Target to = job.write(TO);
  u64 bit = job.value(FIRST_BIT), width = job.value(CODE_WIDTH), found = 0;
  if (width != 1 && width != 2 && width != 4 && width != 8) return;
  switch (job.value(WIDTH)) {
    case 1: found = take<u8>(job, codes, (u32)width, validity, bit, values, to); break;
    case 2: found = take<u16>(job, codes, (u32)width, validity, bit, values, to); break;
    case 4: found = take<u32>(job, codes, (u32)width, validity, bit, values, to); break;
    case 8: found = take<u64>(job, codes, (u32)width, validity, bit, values, to); break;
    case 16: found = take<Wide16>(job, codes, (u32)width, validity, bit, values, to); break;
    case 32: found = take<Wide32>(job, codes, (u32)width, validity, bit, values, to); break;
  }
  report(job.write(CELL), found);
}
