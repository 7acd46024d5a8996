// Values by their numbers, and values that are repeated.
#include "words.cuh"

// A value of 16 or 32 bytes, as of decimals and views.
struct Wide16 {
  u64 words[2];
};
struct Wide32 {
  u64 words[4];
};

template <class T>
DEVICE T value_at(Bytes from, u64 i) {
  if constexpr (sizeof(T) <= 8) {
    return word_at<T>(from, i);
  } else {
    T value;
#pragma unroll
    for (u32 w = 0; w < sizeof(T) / 8; w++) value.words[w] = word_at<u64>(from, i * (sizeof(T) / 8) + w);
    return value;
  }
}

template <class T>
DEVICE void put_value(Target to, u64 i, T value) {
  if constexpr (sizeof(T) <= 8) {
    put_word(to, i, value);
  } else {
#pragma unroll
    for (u32 w = 0; w < sizeof(T) / 8; w++) put_word(to, i * (sizeof(T) / 8) + w, value.words[w]);
  }
}

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

// Values that a warp writes at a time: each of its lanes knows of 32 where runs begin.
#define PART 1024

struct Ends {
  Bytes from;
  u32 width;

  __device__ __forceinline__ u64 operator[](u64 i) const { return (u64)integer_at(from, i, width, false); }

  // The run that the value at `place` is of.
  __device__ __forceinline__ u64 run_of(u64 n, u64 place) const { return first_at_least(from, width, false, 0, n, place + 1); }

  // The first that does not rise above the one before, or 0; as many as there are if the last does not reach `covered`.
  __device__ __forceinline__ u64 wrong(const Job& job, u64 covered) const {
    u64 n = from.len / width, found = NOTHING;
#pragma unroll 1
    for (u64 i = job.thread; i < n; i += job.threads) {
      u64 end = (*this)[i];
      if (end <= (i == 0 ? 0 : (*this)[i - 1])) found = min64(found, i);
      if (i + 1 == n && end < covered) found = min64(found, n);
    }
    if (n == 0 && covered > 0) found = 0;
    return found;
  }
};

// Where runs begin among a part's values: of a lane's 32, as bits, and how many do before those.
struct Begins {
  u32 bits;
  u32 before;

  // How many begin up to value `i`, and which of the 32 from it on do.
  __device__ __forceinline__ u32 up_to(u32 i, u32& from) const {
    u32 word = __shfl_sync(WARP, bits, i / 32), counted = __shfl_sync(WARP, before, i / 32);
    from = word >> i % 32;
    return counted + __popc(word & ((2u << i % 32) - 1));
  }
};

// Those of the runs from `base` on. Ends that do not rise are told elsewhere: whatever they are, this comes to an end.
DEVICE Begins begins_of(const Ends& ends, u64 base, u64 runs, u64 origin, u64 covered) {
  __shared__ u32 marks[THREADS];
  u32 lane = threadIdx.x % 32;
  u32* mine = marks + threadIdx.x - lane;
  mine[lane] = 0;
  __syncwarp();
#pragma unroll 1
  for (u64 run = base; run <= base + PART; run += 32) {
    u64 end = run + lane < runs ? ends[run + lane] : NOTHING;
    u64 place = end - origin;
    if (end >= origin && place < PART) atomicOr(mine + place / 32, 1u << place % 32);
    if (__ballot_sync(WARP, end >= covered)) break;
  }
  __syncwarp();
  Begins begins = {mine[lane], 0};
  u32 all = __popc(begins.bits);
#pragma unroll
  for (u32 step = 1; step < 32; step *= 2) {
    u32 lower = __shfl_sync(WARP, all, lane - step);
    if (lane >= step) all += lower;
  }
  begins.before = all - __popc(begins.bits);
  return begins;
}

// How many places there are. Each warp has as many parts as the others, one after the other.
template <class T>
DEVICE u64 expand(const Job& job, const Ends& ends, u64 first, Bytes values, Target to) {
  const u32 EACH = sizeof(T) < 16 ? 16 / sizeof(T) : 1;
  u64 n = to.len / sizeof(T), runs = min64(ends.from.len / ends.width, values.len / sizeof(T));
  if (runs == 0) return n;
  bool whole = ((u64)to.at & 15) == 0;
  u64 warps = job.threads / 32, parts = (n + PART - 1) / PART, each = (parts + warps - 1) / warps;
  u64 begin = job.thread / 32 * each * PART, stop = min64(n, begin + each * PART);
  if (begin >= stop) return n;
  u64 base = ends.run_of(runs, first + begin);
#pragma unroll 1
  for (; begin < stop; begin += PART) {
    u64 end = min64(stop, begin + PART);
    Begins begins = begins_of(ends, base, runs, first + begin, first + end);
#pragma unroll 1
    for (u32 at = 0; at < PART; at += 32 * EACH) {
      u32 lane_at = at + threadIdx.x % 32 * EACH, next;
      u64 i = begin + lane_at, run = base + begins.up_to(lane_at, next);
      T words[EACH];
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        if (e > 0) run += next >> e & 1;
        words[e] = value_at<T>(values, min64(run, runs - 1));
      }
      if (sizeof(T) < 16 && whole && i + EACH <= end) {
        Pair pair;
        memcpy(&pair, words, 16);
        store128(to.at + i * sizeof(T), pair);
        continue;
      }
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        if (i + e < end) put_value(to, i + e, words[e]);
      }
    }
    u32 none;
    base += begins.up_to(PART - 1, none);
  }
  return n;
}

KERNEL_BLOCKS(crossdock_expand_runs, 6) {
  PARAMS(ENDS, END_WIDTH, FIRST, VALUES, TO, WIDTH, CELL);
  FIND_JOB;
  Bytes values = job.read(VALUES);
  Target to = job.write(TO);
  u64 first = job.value(FIRST), width = job.value(END_WIDTH), places = 0;
  if (width != 1 && width != 2 && width != 4 && width != 8) return;
  Ends ends = {job.read(ENDS), (u32)width};
  switch (job.value(WIDTH)) {
    case 1: places = expand<u8>(job, ends, first, values, to); break;
    case 2: places = expand<u16>(job, ends, first, values, to); break;
    case 4: places = expand<u32>(job, ends, first, values, to); break;
    case 8: places = expand<u64>(job, ends, first, values, to); break;
    case 16: places = expand<Wide16>(job, ends, first, values, to); break;
    case 32: places = expand<Wide32>(job, ends, first, values, to); break;
  }
  report(job.write(CELL), ends.wrong(job, first + places));
}
