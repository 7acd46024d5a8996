// Creates the views of values whose bytes are contiguous. The data is divided into parts of `1 <<
// part` bytes. A view refers to a part by its number.
#include "codes.cuh"

// The maximum length of an inline value.
#define MAX_INLINE 12
// The number of values that a lane processes at once, and the number of values that a warp
// processes at a time. The second number is one less than a power of two, because a warp also loads
// the end of its last value.
#define VIEWS_AT_ONCE 4
#define VIEWS_OF_WARP 255

// The first bytes of a value, as many as its view contains (at most 12), padded with zeros.
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

// The aligned words around `n` bytes of data, all within the data.
struct Around {
  u32 words[4];

  __device__ __forceinline__ void load(const u8* place, u32 n) {
    u32 skew = (u64)place & 3, count = n == 0 ? 0 : (skew + n + 3) / 4;
#pragma unroll
    for (u32 w = 0; w < 4; w++) words[w] = w < count ? __ldg((const u32*)(place - skew) + w) : 0;
  }

  // The bytes begin `skew` bytes into the first word.
  __device__ __forceinline__ Start start(u32 skew, u32 n) const {
    u32 part[3];
#pragma unroll
    for (u32 w = 0; w < 3; w++) part[w] = (u32)((words[w] | (u64)words[w + 1] << 32) >> (8 * skew));
    u64 low = part[0] | (u64)part[1] << 32;
    if (n < 8) return Start{low & ((1ull << (8 * n)) - 1), 0};
    return Start{low, (u32)(part[2] & ((1ull << (8 * (n - 8))) - 1))};
  }
};

// Replaces the length of each value that the fast path does not support.
#define NO_LENGTH 0xffffffffu

// The number of bytes of a value that are in its view.
DEVICE u32 bytes_in_view(u32 length) { return length <= MAX_INLINE ? length : 4; }

// The maximum length of a value in parts of `1 << part` bytes.
DEVICE u32 max_length_of(u64 part) { return (u32)min64(1ull << part, (1ull << 31) - 1); }

// The input and output of all views.
struct Views {
  // The expected lengths of the values. Their width is 0 if no lengths are expected.
  Integers lengths;
  Bytes data;
  // A part of the data has `1 << part` bytes.
  u32 part;
  Target views;
  // Receives the begin of the first value and the end of each value; empty if the caller does not
  // need them.
  Target ends;
  // Receives, for each part, the end of the value that begins in this part and ends in the next
  // part.
  Target over;
  // The maximum length of a value.
  u32 max_length;

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
    if (i < ends.len / 8) put_word<u64>(ends, i, end == NONE ? 0 : end);
  }
};

DEVICE Pair view_of(u32 length, Start start, u64 place) {
  Pair view = {length | (u64)(u32)start.low << 32, start.low >> 32 | (u64)start.high << 32};
  if (length > MAX_INLINE) view.high = place;
  return view;
}

// Writes a view without the restrictions of the fast path: several parts, any alignment, invalid
// ranges. Returns whether the value is valid.
static __device__ __noinline__ bool put_any(const Views& views, u64 i, u64 begin, u64 end, u32 expected) {
  u64 length = end - begin;
  bool is_valid = begin <= end && end <= views.data.len && length <= views.max_length;
  is_valid &= views.lengths.width == 0 || expected == length;
  Pair view = {0, 0};
  if (is_valid) {
    u64 number = begin >> views.part, place = number | (begin - (number << views.part)) << 32;
    view = view_of((u32)length, start_by_bytes(views.data, begin, bytes_in_view((u32)length)), place);
    bool is_over = length > MAX_INLINE && (end - 1) >> views.part != number;
    if (is_over && number < views.over.len / 8 && ((u64)views.over.at & 7) == 0) {
      atomicMin((u64*)views.over.at + number, end);
    }
  }
  views.put(i, view);
  views.put_end(i + 1, is_valid ? end : 0);
  return is_valid;
}

// Uses the offset of a value as its begin.
struct Direct {
  struct Read {
    i64 at;
  };
  __device__ __forceinline__ Read read(bool, i64 at) const { return Read{at}; }
  __device__ __forceinline__ u64 begin(Read read) const { return read.at < 0 ? NONE : (u64)read.at; }
};

// Shared memory of a warp for its values, which saves registers. Code calls a function instead of
// passing a pointer, so that the compiler knows the address space.
struct ValueBegins {
  // The begins of values. Each begin is also the end of the value before.
  u64 begins[VIEWS_OF_WARP + 1];
  // The expected lengths.
  u32 expected[VIEWS_OF_WARP + 1];
};
DEVICE ValueBegins& value_begins() {
  __shared__ ValueBegins memory[THREADS / 32];
  return memory[threadIdx.x / 32];
}

// Finds the begins of values `first..=first + stop`. `where` converts an offset to a byte position,
// or to NONE if the offset is invalid.
template <class Where>
DEVICE void find_begins(const Integers& offsets, const Integers& lengths, const Where& where, u64 first, u32 stop) {
  const u32 N = VIEWS_AT_ONCE;
  ValueBegins& values = value_begins();
#pragma unroll 1
  for (u32 at = threadIdx.x % 32; at <= stop; at += 32 * N) {
    i64 read[N], expected[N];
    offsets.load<N>(first, at, stop + 1, read);
    if (lengths.width != 0) lengths.load<N>(first, at, stop, expected);
    typename Where::Read places[N];
#pragma unroll
    for (u32 k = 0; k < N; k++) places[k] = where.read(at + k * 32 <= stop, read[k]);
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      u32 i = at + k * 32;
      if (i > stop) continue;
      values.begins[i] = where.begin(places[k]);
      values.expected[i] = (u64)expected[k] < NO_LENGTH ? (u32)expected[k] : NO_LENGTH;
    }
  }
  __syncwarp();
}

// Writes the views of values `first..first + stop`, whose begins have been found. Returns the first
// invalid value. Members that every iteration needs are copied to locals, because the compiler must
// assume that stores change the members.
DEVICE u64 put_views(const Views& views, u64 first, u32 stop) {
  const u32 N = VIEWS_AT_ONCE;
  const ValueBegins& values = value_begins();
  const u8* data = views.data.at;
  u8* to = views.views.at + first * 16;
  const bool has_lengths = views.lengths.width != 0, wants_ends = views.ends.len != 0;
  // The fast path is for one part, so that 32 bits are enough for a position.
  const bool is_plain = ((u64)to & 15) == 0 && ((u64)data & 3) == 0 && views.data.len <= 1ull << views.part;
  const u32 high = is_plain ? (u32)views.data.len & ~3u : 0, max_length = views.max_length;
  u64 first_error = NONE;
#pragma unroll 1
  for (u32 at = threadIdx.x % 32; at < stop; at += 32 * N) {
    u32 begins[N], lengths[N], slow = 0;
    Around around[N];
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      u32 i = at + k * 32;
      u64 begin = i < stop ? values.begins[i] : NONE, end = i < stop ? values.begins[i + 1] : NONE;
      begins[k] = (u32)begin;
      lengths[k] = (u32)end - (u32)begin;
      bool is_fast = is_plain && (begin | end) >> 32 == 0 && begins[k] <= (u32)end && (u32)end <= high && lengths[k] <= max_length;
      if (!is_fast || (has_lengths && values.expected[i] != lengths[k])) lengths[k] = NO_LENGTH;
      around[k].load(data + begins[k], lengths[k] == NO_LENGTH ? 0 : bytes_in_view(lengths[k]));
    }
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      u32 i = at + k * 32, length = lengths[k];
      if (i < stop && length == NO_LENGTH) slow |= 1u << k;
      if (length == NO_LENGTH) continue;
      Start start = around[k].start(begins[k] & 3, bytes_in_view(length));
      store128(to + i * 16, view_of(length, start, (u64)begins[k] << 32));
      if (wants_ends) views.put_end(first + i + 1, begins[k] + length);
    }
#pragma unroll 1
    for (; slow != 0; slow &= slow - 1) {
      u32 i = at + (__ffs(slow) - 1) * 32;
      bool is_valid = put_any(views, first + i, values.begins[i], values.begins[i + 1], values.expected[i]);
      if (!is_valid) first_error = min64(first_error, first + i);
    }
  }
  __syncwarp();
  return first_error;
}

template <class Where>
DEVICE u64 make_views(const Job& job, const Integers& offsets, const Views& views, const Where& where) {
  u64 n = views.views.len / 16, first_error = NONE;
  if (offsets.n() < n + 1 || (views.lengths.width != 0 && views.lengths.n() < n)) return n == 0 ? NONE : 0;
#pragma unroll 1
  for (u64 first = job.thread / 32 * VIEWS_OF_WARP; first < n; first += job.threads / 32 * VIEWS_OF_WARP) {
    u32 stop = (u32)min64(n - first, VIEWS_OF_WARP);
    find_begins(offsets, views.lengths, where, first, stop);
    if (first == 0 && threadIdx.x % 32 == 0) views.put_end(0, value_begins().begins[0]);
    first_error = min64(first_error, put_views(views, first, stop));
  }
  return first_error;
}

// Shared memory of a block for values that all threads need rarely, which saves registers. Code
// calls a function instead of passing a pointer, so that the compiler knows the address space.
struct ViewJob {
  Integers offsets;
  Views views;
  // Used only if offsets refer to codes.
  Codes codes;
  Bytes marks;
  Bytes bases;
  Bytes starts;
  // Binary logarithms of the codes per segment, and of the segments per chunk.
  u32 segment_shift;
  u32 shift;

  // Whether the marks cover all codes of the values.
  __device__ __forceinline__ bool are_measured() const {
    bool are_aligned = ((u64)marks.at & 3) == 0 && ((u64)bases.at & 7) == 0;
    u64 segment = codes.last >> segment_shift;
    return are_aligned && codes.last < starts.len && segment < marks.len / 4 && segment >> shift < bases.len / 8;
  }
};
DEVICE ViewJob& view_job() {
  __shared__ ViewJob memory;
  return memory;
}

KERNEL_BLOCKS(crossdock_views_of_offsets, 4) {
  PARAMS(OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, DATA, PART, VIEWS, ENDS, OVER, CELL);
  FIND_JOB;
  u64 part = job.value(PART);
  if (part > 31) return;
  if (threadIdx.x == 0) {
    view_job().offsets = integers(job, OFFSETS);
    view_job().views = {{{0, 0}, 0, false}, job.read(DATA), (u32)part, job.write(VIEWS), job.write(ENDS), job.write(OVER),
                      max_length_of(part)};
  }
  __syncthreads();
  report(job.write(CELL), make_views(job, view_job().offsets, view_job().views, Direct{}));
}

// Finds the begin of a value, whose offset is the index of its first code. The marks of codes give
// the position of this code's bytes. For the index after the last code, they give the end of all
// bytes.
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
  u32 segment_shift;
  u32 shift;

  __device__ __forceinline__ Read read(bool is_valid, i64 at) const {
    is_valid = is_valid && (u64)at - first <= last - first;
    // An invalid index is replaced by a valid one, so that no branch delays the next load.
    u64 code = is_valid ? (u64)at : first, segment = code >> segment_shift;
    u32 start = __ldg(starts + code), mark = __ldg(marks + segment);
    return Read{is_valid ? start : NO_START, mark, __ldg(bases + (segment >> shift))};
  }
  __device__ __forceinline__ u64 begin(Read read) const {
    return read.start == NO_START ? NONE : (read.base & ~CHUNK_LITERAL) + (read.mark & ~MARK_LITERAL) + read.start;
  }
};

KERNEL_BLOCKS(crossdock_views_of_codes, 4) {
  PARAMS(N_CODES, SEGMENT_SHIFT, OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, SHIFT, MARKS, BASES, STARTS, LENGTHS, LENGTH_WIDTH,
         LENGTH_SIGNED, DATA, PART, VIEWS, ENDS, OVER, CELL);
  FIND_JOB;
  u64 segment_shift = job.value(SEGMENT_SHIFT), shift = job.value(SHIFT), part = job.value(PART);
  if (segment_shift > 4 || shift < 5 || shift > 24 || part > 31) return;
  ViewJob& memory = view_job();
  if (threadIdx.x == 0) {
    memory.offsets = integers(job, OFFSETS);
    memory.codes = codes_of(Bytes{0, job.value(N_CODES)}, 1, memory.offsets);
    memory.marks = job.read(MARKS);
    memory.bases = job.read(BASES);
    memory.starts = job.read(STARTS);
    memory.views = {integers(job, LENGTHS), job.read(DATA), (u32)part, job.write(VIEWS), job.write(ENDS), job.write(OVER),
                    max_length_of(part)};
    memory.segment_shift = (u32)segment_shift;
    memory.shift = (u32)shift;
    // If the check fails, a width of 0 makes all values invalid.
    if (!memory.are_measured()) memory.offsets.width = 0;
  }
  __syncthreads();
  Measured measured = {memory.starts.at, (const u32*)memory.marks.at, (const u64*)memory.bases.at, memory.codes.first,
                       memory.codes.last, memory.segment_shift, memory.shift};
  report(job.write(CELL), make_views(job, memory.offsets, memory.views, measured));
}
