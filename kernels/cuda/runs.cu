// Expands runs: repeats each value up to the end of its run.
#include "runs.cuh"

struct Ends {
  Bytes from;
  u32 width;

  __device__ __forceinline__ u64 operator[](u64 i) const { return (u64)integer_at(from, i, width, false); }

  // The run of the value at `place`.
  __device__ __forceinline__ u64 run_of(u64 n, u64 place) const { return first_at_least(from, width, false, 0, n, place + 1); }

  // The index of the first end that is not greater than the end before it, or than 0 for the first
  // end. If no end is wrong but the last end is less than `covered`, the number of ends.
  __device__ __forceinline__ u64 wrong(const Job& job, u64 covered) const {
    u64 n = from.len / width;
    if (n == 0) return covered > 0 ? 0 : NONE;
    auto is_wrong = [](u64 i, Two ends) { return (u64)ends.b <= (i > 0 ? (u64)ends.a : 0); };
    auto load_pair = [](auto at) { return [=](u64 i) { return Two{at(i > 0 ? i - 1 : 0), at(i)}; }; };
    u64 first_error = width == 4 && is_aligned(from, 4)
                          ? first_wrong<4>(job, n, load_pair(Aligned<u32>{(const u32*)from.at}), is_wrong)
                          : first_wrong<1>(job, n, load_pair(Unaligned{from, width, false}), is_wrong);
    return job.thread == 0 && (*this)[n - 1] < covered ? min64(first_error, n) : first_error;
  }
};

// Expands runs of any alignment. Each warp expands an equal number of adjacent pieces. Returns the
// number of values.
template <class T>
static __device__ __noinline__ u64 expand(const Job& job, u32* marks, const Ends& ends, u64 first, Bytes values, Target to) {
  u64 n = to.len / sizeof(T), runs = min64(ends.from.len / ends.width, values.len / sizeof(T));
  if (runs == 0) return n;
  u64 warps = job.threads / 32, parts = (n + EXPANDED - 1) / EXPANDED, each = (parts + warps - 1) / warps;
  u64 begin = job.thread / 32 * each * EXPANDED, stop = min64(n, begin + each * EXPANDED);
  if (begin >= stop) return n;
  u64 base = ends.run_of(runs, first + begin);
  auto end_at = [&](u64 run) { return run < runs ? ends[run] : NONE; };
#pragma unroll 1
  for (; begin < stop; begin += EXPANDED) {
    u64 end = min64(stop, begin + EXPANDED);
    Begins begins = begins_of<u64>(marks, end_at, base, first + begin, first + end);
#pragma unroll 1
    for (u32 at = threadIdx.x % 32; at < EXPANDED; at += 32) {
      u32 none;
      u64 run = base + begins.up_to(at, none);
      if (begin + at < end) put_value(to, begin + at, value_at<T>(values, min64(run, runs - 1)));
    }
    u32 none;
    base += begins.up_to(EXPANDED - 1, none);
  }
  return n;
}

// Expands aligned runs. A thread writes 16 bytes at a time. Ends have 4 bytes. No count exceeds
// 2^30.
template <class T>
DEVICE void expand_words(const Job& job, u32* marks, const u32* ends, u32 runs, u32 first, const T* values, T* to, u32 n) {
  const u32 EACH = 16 / sizeof(T);
  u32 lane = threadIdx.x % 32;
  u32 warps = (u32)(job.threads / 32), parts = (n + EXPANDED - 1) / EXPANDED, each = (parts + warps - 1) / warps;
  u32 begin = (u32)(job.thread / 32) * each, stop = parts - begin > each ? begin + each : parts;
  if (begin >= parts) return;
  begin *= EXPANDED;
  stop = stop == parts ? n : stop * EXPANDED;
  u32 base = (u32)first_at_least({(const u8*)ends, (u64)runs * 4}, 4, false, 0, runs, (u64)first + begin + 1);
  auto end_at = [=](u32 run) { return run < runs ? __ldg(ends + run) : 0xffffffffu; };
#pragma unroll 1
  for (; begin < stop; begin += EXPANDED) {
    u32 end = stop - begin > EXPANDED ? begin + EXPANDED : stop;
    Begins begins = begins_of<u32>(marks, end_at, base, first + begin, first + end);
    auto value_of = [=](u32 run) { return __ldg(values + (base + run < runs ? base + run : runs - 1)); };
    u32 none, n_begins = begins.up_to(EXPANDED - 1, none);
    // If there is a lane for each run, the lane holds the run's value.
    bool few = n_begins < 32;
    T lane_value = few ? value_of(lane) : (T)0;
#pragma unroll 1
    for (u32 at = lane * EACH; at < EXPANDED; at += 32 * EACH) {
      u32 next, run = begins.up_to(at, next);
      T words[EACH];
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        if (e > 0) run += next >> e & 1;
        words[e] = few ? of_lane(lane_value, run) : value_of(run);
      }
      T* place = to + begin + at;
      if (begin + at + EACH <= end) {
        Pair pair;
        memcpy(&pair, words, 16);
        store128((u8*)place, pair);
        continue;
      }
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        if (begin + at + e < end) store(place + e, words[e]);
      }
    }
    base += n_begins;
  }
}

template <class T>
DEVICE u64 expand_all(const Job& job, u32* marks, const Ends& ends, u64 first, Bytes values, Target to) {
  if constexpr (sizeof(T) <= 8) {
    const u64 MAX = 1u << 30;
    u64 n = to.len / sizeof(T), runs = min64(ends.from.len / ends.width, values.len / sizeof(T));
    bool small = runs > 0 && runs <= MAX && n <= MAX && first <= MAX;
    if (small && ends.width == 4 && is_aligned(ends.from, 4) && is_aligned(values, sizeof(T)) && ((u64)to.at & 15) == 0) {
      expand_words(job, marks, (const u32*)ends.from.at, (u32)runs, (u32)first, (const T*)values.at, (T*)to.at, (u32)n);
      return n;
    }
  }
  return expand<T>(job, marks, ends, first, values, to);
}

KERNEL_BLOCKS(crossdock_expand_runs, 6) {
  PARAMS(ENDS, END_WIDTH, FIRST, VALUES, TO, WIDTH, CELL);
  FIND_JOB;
  __shared__ u32 marks[THREADS];
  Bytes values = job.read(VALUES);
  Target to = job.write(TO);
  u64 first = job.value(FIRST), width = job.value(END_WIDTH), places = 0;
  if (width != 1 && width != 2 && width != 4 && width != 8) return;
  Ends ends = {job.read(ENDS), (u32)width};
  switch (job.value(WIDTH)) {
    case 1: places = expand_all<u8>(job, marks, ends, first, values, to); break;
    case 2: places = expand_all<u16>(job, marks, ends, first, values, to); break;
    case 4: places = expand_all<u32>(job, marks, ends, first, values, to); break;
    case 8: places = expand_all<u64>(job, marks, ends, first, values, to); break;
    case 16: places = expand_all<Wide16>(job, marks, ends, first, values, to); break;
    case 32: places = expand_all<Wide32>(job, marks, ends, first, values, to); break;
  }
  report(job.write(CELL), ends.wrong(job, first + places));
}
