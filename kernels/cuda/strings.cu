// Views of values that lie one after the other, each from where the one before it ends.
#include "codes.cuh"

// The longest value that a view holds itself.
#define HELD 12
// How many values a lane has before it at once, and a warp before it goes on. Where its last one ends the next warp's first
// begins: both look there.
#define VIEWS_AT_ONCE 4
#define VIEWS_OF_WARP 255

// The first bytes of a value, as many as a view holds, and zeros behind it.
struct Start {
  u64 low;
  u32 high;
};

static __device__ __noinline__ Start start_by_bytes(Bytes data, u64 at, u32 n) {
  Start start = {0, 0};
#pragma unroll 1
  for (u32 b = 0; b < n; b++) {
    u64 byte = byte_at(data, at + b);
    if (b < 8) {
      start.low |= byte << (8 * b);
    } else {
      start.high |= (u32)byte << (8 * (b - 8));
    }
  }
  return start;
}

// The whole aligned words that hold `n` bytes of data from byte `at` on, where those lie within it.
struct Around {
  u32 words[4];

  __device__ __forceinline__ void load(const u8* place, u32 n) {
    u32 skew = (u64)place & 3, count = n == 0 ? 0 : (skew + n + 3) / 4;
#pragma unroll
    for (u32 w = 0; w < 4; w++) words[w] = w < count ? __ldg((const u32*)(place - skew) + w) : 0;
  }

  // Which begin `skew` bytes into the first.
  __device__ __forceinline__ Start start(u32 skew, u32 n) const {
    u32 part[3];
#pragma unroll
    for (u32 w = 0; w < 3; w++) part[w] = (u32)((words[w] | (u64)words[w + 1] << 32) >> (8 * skew));
    u64 low = part[0] | (u64)part[1] << 32;
    if (n < 8) return Start{low & ((1ull << (8 * n)) - 1), 0};
    return Start{low, (u32)(part[2] & ((1ull << (8 * (n - 8))) - 1))};
  }
};

// Of no value.
#define NO_LENGTH 0xffffffffu

// How many bytes of a value its view holds.
DEVICE u32 held_of(u32 length) { return length <= HELD ? length : 4; }

// The longest value that a view can say of where it lies, in parts of 1 << part bytes.
DEVICE u32 longest_of(u64 part) { return (u32)min64(1ull << part, (1ull << 31) - 1); }

// What is told of values, and what becomes of it.
struct Views {
  // How long each is, if that is told.
  Integers lengths;
  Bytes data;
  // Data is in parts, which begin every 1 << part bytes.
  u32 part;
  Target views;
  // Where values end, after where the first begins; of no bytes where nobody asks.
  Target ends;
  // Of each part, where the value ends that began in it, if that is in the next.
  Target over;
  // The longest value that there can be.
  u32 longest;

  __device__ __forceinline__ void put(u64 i, Pair view) const {
    u8* at = views.at + i * 16;
    if (((u64)at & 15) == 0) {
      store128(at, view);
    } else {
      put_bytewise(at, 8, view.low);
      put_bytewise(at + 8, 8, view.high);
    }
  }

  __device__ __forceinline__ void put_end(u64 i, u64 end) const {
    if (i < ends.len / 8) put_word<u64>(ends, i, end == NOTHING ? 0 : end);
  }
};

DEVICE Pair view_of(u32 length, Start start, u64 place) {
  Pair view = {length | (u64)(u32)start.low << 32, start.low >> 32 | (u64)start.high << 32};
  if (length > HELD) view.high = place;
  return view;
}

// The view of a value that is none of the many: it lies in one of several parts, or where words are not whole, or not where it
// says. Answers whether it does.
static __device__ __noinline__ bool put_any(const Views& views, u64 i, u64 begin, u64 end, u32 told) {
  u64 length = end - begin;
  bool right = begin <= end && end <= views.data.len && length <= views.longest;
  right &= views.lengths.width == 0 || told == length;
  Pair view = {0, 0};
  if (right) {
    u64 number = begin >> views.part, place = number | (begin - (number << views.part)) << 32;
    view = view_of((u32)length, start_by_bytes(views.data, begin, held_of((u32)length)), place);
    bool is_over = length > HELD && (end - 1) >> views.part != number;
    if (is_over && number < views.over.len / 8 && ((u64)views.over.at & 7) == 0) {
      atomicMin((u64*)views.over.at + number, end);
    }
  }
  views.put(i, view);
  views.put_end(i + 1, right ? end : 0);
  return right;
}

// Where values begin whose offsets say it themselves.
struct Direct {
  struct Read {
    i64 at;
  };
  __device__ __forceinline__ Read read(bool, i64 at) const { return Read{at}; }
  __device__ __forceinline__ u64 begin(Read read) const { return read.at < 0 ? NOTHING : (u64)read.at; }
};

// What the warps of a block know of the values before them, each in its own part: registers are for what is under way. By this
// function and no pointer, so that the compiler knows that it is shared memory.
struct Looked {
  // Where a value begins, and the one before it ends.
  u64 begins[VIEWS_OF_WARP + 1];
  // How long it is, as is told.
  u32 told[VIEWS_OF_WARP + 1];
};
DEVICE Looked& looked() {
  __shared__ Looked memory[THREADS / 32];
  return memory[threadIdx.x / 32];
}

// Looks where values first..=first + stop begin: `where` says at which byte, of an offset; NOTHING where that is none.
template <class Where>
DEVICE void look(const Integers& offsets, const Integers& lengths, const Where& where, u64 first, u32 stop) {
  const u32 N = VIEWS_AT_ONCE;
  Looked& values = looked();
#pragma unroll 1
  for (u32 at = threadIdx.x % 32; at <= stop; at += 32 * N) {
    i64 read[N], told[N];
    offsets.load<N>(first, at, stop + 1, read);
    if (lengths.width != 0) lengths.load<N>(first, at, stop, told);
    typename Where::Read places[N];
#pragma unroll
    for (u32 k = 0; k < N; k++) places[k] = where.read(at + k * 32 <= stop, read[k]);
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      u32 i = at + k * 32;
      if (i > stop) continue;
      values.begins[i] = where.begin(places[k]);
      values.told[i] = (u64)told[k] < NO_LENGTH ? (u32)told[k] : NO_LENGTH;
    }
  }
  __syncwarp();
}

// The views of values first..first + stop, which have been looked for. Answers which is the first that is wrong. What is asked
// of every value is kept at hand: a store might change it, for all that the compiler knows.
DEVICE u64 put_views(const Views& views, u64 first, u32 stop) {
  const u32 N = VIEWS_AT_ONCE;
  const Looked& values = looked();
  const u8* data = views.data.at;
  u8* to = views.views.at + first * 16;
  const bool is_told = views.lengths.width != 0, are_asked = views.ends.len != 0;
  // All in one part, so that 32 bits say where they are.
  const bool is_plain = ((u64)to & 15) == 0 && ((u64)data & 3) == 0 && views.data.len <= 1ull << views.part;
  const u32 high = is_plain ? (u32)views.data.len & ~3u : 0, longest = views.longest;
  u64 found = NOTHING;
#pragma unroll 1
  for (u32 at = threadIdx.x % 32; at < stop; at += 32 * N) {
    u32 begins[N], lengths[N], others = 0;
    Around around[N];
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      u32 i = at + k * 32;
      u64 begin = i < stop ? values.begins[i] : NOTHING, end = i < stop ? values.begins[i + 1] : NOTHING;
      begins[k] = (u32)begin;
      lengths[k] = (u32)end - (u32)begin;
      bool is_many = is_plain && (begin | end) >> 32 == 0 && begins[k] <= (u32)end && (u32)end <= high && lengths[k] <= longest;
      if (!is_many || (is_told && values.told[i] != lengths[k])) lengths[k] = NO_LENGTH;
      around[k].load(data + begins[k], lengths[k] == NO_LENGTH ? 0 : held_of(lengths[k]));
    }
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      u32 i = at + k * 32, length = lengths[k];
      if (i < stop && length == NO_LENGTH) others |= 1u << k;
      if (length == NO_LENGTH) continue;
      Start start = around[k].start(begins[k] & 3, held_of(length));
      store128(to + i * 16, view_of(length, start, (u64)begins[k] << 32));
      if (are_asked) views.put_end(first + i + 1, begins[k] + length);
    }
#pragma unroll 1
    for (; others != 0; others &= others - 1) {
      u32 i = at + (__ffs(others) - 1) * 32;
      if (!put_any(views, first + i, values.begins[i], values.begins[i + 1], values.told[i])) found = min64(found, first + i);
    }
  }
  __syncwarp();
  return found;
}

template <class Where>
DEVICE u64 make_views(const Job& job, const Integers& offsets, const Views& views, const Where& where) {
  u64 n = views.views.len / 16, found = NOTHING;
  if (offsets.n() < n + 1 || (views.lengths.width != 0 && views.lengths.n() < n)) return n == 0 ? NOTHING : 0;
#pragma unroll 1
  for (u64 first = job.thread / 32 * VIEWS_OF_WARP; first < n; first += job.threads / 32 * VIEWS_OF_WARP) {
    u32 stop = (u32)min64(n - first, VIEWS_OF_WARP);
    look(offsets, views.lengths, where, first, stop);
    if (first == 0 && threadIdx.x % 32 == 0) views.put_end(0, looked().begins[0]);
    found = min64(found, put_views(views, first, stop));
  }
  return found;
}

// What the threads of a block share: what all of them look at now and then, and have no registers for. By this function and no
// pointer, so that the compiler knows that it is shared memory.
struct Making {
  Integers offsets;
  Views views;
  // Those of codes.
  Codes codes;
  Bytes marks;
  Bytes bases;
  Bytes starts;
  // A segment has 1 << each codes, a chunk 1 << shift segments.
  u32 each;
  u32 shift;

  // Those of the values have marks, and starts.
  __device__ __forceinline__ bool are_measured() const {
    bool are_aligned = ((u64)marks.at & 3) == 0 && ((u64)bases.at & 7) == 0;
    u64 segment = codes.last >> each;
    return are_aligned && codes.last < starts.len && segment < marks.len / 4 && segment >> shift < bases.len / 8;
  }
};
DEVICE Making& making() {
  __shared__ Making memory;
  return memory;
}

KERNEL_BLOCKS(crossdock_views_of_offsets, 4) {
  PARAMS(OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, DATA, PART, VIEWS, ENDS, OVER, CELL);
  FIND_JOB;
  u64 part = job.value(PART);
  if (part > 31) return;
  if (threadIdx.x == 0) {
    making().offsets = integers(job, OFFSETS);
    making().views = {{{0, 0}, 0, false}, job.read(DATA), (u32)part, job.write(VIEWS), job.write(ENDS), job.write(OVER),
                      longest_of(part)};
  }
  __syncthreads();
  report(job.write(CELL), make_views(job, making().offsets, making().views, Direct{}));
}

// Where what a code stands for begins, or, after the last, ends: as many bytes into its segment as its start says.
struct Measured {
  struct Read {
    u32 start;
    u32 mark;
    u64 base;
  };
  const u8* starts;
  const u32* marks;
  const u64* bases;
  u64 first;
  u64 last;
  u32 each;
  u32 shift;

  __device__ __forceinline__ Read read(bool is_here, i64 at) const {
    is_here = is_here && (u64)at - first <= last - first;
    // In place of one that is not there any other is read, so that no branch keeps the next one waiting.
    u64 code = is_here ? (u64)at : first, segment = code >> each;
    u32 start = __ldg(starts + code), mark = __ldg(marks + segment);
    return Read{is_here ? start : NO_START, mark, __ldg(bases + (segment >> shift))};
  }
  __device__ __forceinline__ u64 begin(Read read) const {
    return read.start == NO_START ? NOTHING : (read.base & ~ITSELF_FIRST) + (read.mark & ~ITSELF) + read.start;
  }
};

KERNEL_BLOCKS(crossdock_views_of_codes, 4) {
  PARAMS(N, EACH, OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, SHIFT, MARKS, BASES, STARTS, TOLD, TOLD_WIDTH, TOLD_SIGNED, DATA, PART,
         VIEWS, ENDS, OVER, CELL);
  FIND_JOB;
  u64 each = job.value(EACH), shift = job.value(SHIFT), part = job.value(PART);
  if (each > 4 || shift < 5 || shift > 24 || part > 31) return;
  Making& memory = making();
  if (threadIdx.x == 0) {
    memory.offsets = integers(job, OFFSETS);
    memory.codes = codes_of(Bytes{0, job.value(N)}, 1, memory.offsets);
    memory.marks = job.read(MARKS);
    memory.bases = job.read(BASES);
    memory.starts = job.read(STARTS);
    memory.views = {integers(job, TOLD), job.read(DATA), (u32)part, job.write(VIEWS), job.write(ENDS), job.write(OVER),
                    longest_of(part)};
    memory.each = (u32)each;
    memory.shift = (u32)shift;
    // Else no value is where it says.
    if (!memory.are_measured()) memory.offsets.width = 0;
  }
  __syncthreads();
  Measured measured = {memory.starts.at, (const u32*)memory.marks.at, (const u64*)memory.bases.at, memory.codes.first,
                       memory.codes.last, memory.each, memory.shift};
  report(job.write(CELL), make_views(job, memory.offsets, memory.views, measured));
}
