// Views of values that lie one after the other, each from where the one before it ends.
#include "codes.cuh"

// The longest value that a view holds itself.
#define HELD 12
// How often a lane looks where a value ends, one after the other.
#define ENDS_EACH 8

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

// By whole aligned words, where those lie within the data.
DEVICE Start start_of(Bytes data, u64 at, u32 n) {
  const u8* place = data.at + at;
  u32 skew = (u64)place & 3, words = (skew + n + 3) / 4;
  place -= skew;
  if (place < data.at || place + words * 4 > data.at + data.len) return start_by_bytes(data, at, n);
  u32 word[4];
#pragma unroll
  for (u32 w = 0; w < 4; w++) word[w] = w < words ? __ldg((const u32*)place + w) : 0;
  u64 low = word[0] | (u64)word[1] << 32, high = word[2] | (u64)word[3] << 32;
  // Nothing is shifted by 64.
  u32 shift = skew * 8;
  low = low >> shift | (high << 1) << (63 - shift);
  high >>= shift;
  if (n < 8) return Start{low & ((1ull << (8 * n)) - 1), 0};
  return Start{low, (u32)(high & ((1ull << (8 * (n - 8))) - 1))};
}

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

  // The view of value i, at these bytes; false where that is not possible.
  __device__ __forceinline__ bool put(u64 i, u64 begin, u64 end) const {
    u64 length = end - begin;
    bool right = end != NOTHING && begin <= end && end <= data.len && length <= 1ull << part && length < 1ull << 31;
    if (right && lengths.width != 0) right = lengths.n() > i && (u64)lengths[i] == length;
    Pair view = {0, 0};
    if (right) {
      u32 n = length <= HELD ? (u32)length : 4;
      Start start = start_of(data, begin, n);
      u64 number = begin >> part, place = number | (begin - (number << part)) << 32;
      view.low = length | (u64)(u32)start.low << 32;
      view.high = length <= HELD ? start.low >> 32 | (u64)start.high << 32 : place;
      if (length > HELD && (end - 1) >> part != number && number < over.len / 8 && ((u64)over.at & 7) == 0) {
        atomicMin((u64*)over.at + number, end);
      }
    }
    u8* at = views.at + i * 16;
    if (((u64)at & 15) == 0) {
      store128(at, view);
    } else {
      put_word<u64>(views, 2 * i, view.low);
      put_word<u64>(views, 2 * i + 1, view.high);
    }
    put_end(i + 1, right ? end : 0);
    return right;
  }

  __device__ __forceinline__ void put_end(u64 i, u64 end) const {
    if (i < ends.len / 8) put_word<u64>(ends, i, end == NOTHING ? 0 : end);
  }
};

// `where` says at which byte the value begins whose offset it is given; NOTHING where that is none. The lanes of a warp have
// values side by side: where one ends, the next begins.
template <class Where>
DEVICE u64 make_views(const Job& job, const Integers& offsets, const Views& views, const Where& where) {
  u64 n = views.views.len / 16, found = NOTHING;
  u32 lane = threadIdx.x % 32;
  if (offsets.n() < n + 1) return NOTHING;
  // Where a warp's last value ends the next warp's first begins: both look there.
  const u64 EACH = 32 * ENDS_EACH - 1;
#pragma unroll 1
  for (u64 first = job.thread / 32 * EACH; first < n; first += job.threads / 32 * EACH) {
    u64 stop = min64(n, first + EACH), before = 0;
#pragma unroll 1
    for (u64 at = first; at <= stop; at += 32) {
      u64 i = at + lane;
      u64 end = i <= stop ? where(offsets[i]) : NOTHING;
      u64 begin = __shfl_sync(WARP, end, lane - 1);
      if (lane == 0) begin = before;
      before = __shfl_sync(WARP, end, 31);
      if (i == 0) views.put_end(0, end);
      if (i > first && i <= stop && !views.put(i - 1, begin, end)) found = min64(found, i - 1);
    }
  }
  return found;
}

KERNEL(crossdock_views_of_offsets) {
  PARAMS(OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, DATA, PART, VIEWS, ENDS, OVER, CELL);
  FIND_JOB;
  Integers offsets = integers(job, OFFSETS);
  u64 part = job.value(PART);
  if (part > 31) return;
  Views views = {{{0, 0}, 0, false}, job.read(DATA), (u32)part, job.write(VIEWS), job.write(ENDS), job.write(OVER)};
  report(job.write(CELL), make_views(job, offsets, views, [](i64 at) { return at < 0 ? NOTHING : (u64)at; }));
}

// What the threads of a block share: what all of them look at now and then, and have no registers for. By this function and no
// pointer, so that the compiler knows that it is shared memory.
struct Coded {
  Integers offsets;
  Codes codes;
  Bytes marks;
  Bytes bases;
  Views views;
  u32 shift;
  u64 words[256];
  u8 lengths[256];
};
DEVICE Coded& coded() {
  __shared__ Coded memory;
  return memory;
}

// Where what a code stands for begins, by the mark of the segment that the code before it is in.
template <class Coder>
DEVICE u64 begin_of(const Coder& coder, i64 at) {
  const Codes& codes = coded().codes;
  if (at < (i64)codes.first || at > (i64)codes.last) return NOTHING;
  if ((u64)at == codes.first) return 0;
  u64 number = ((u64)at - 1) / Coder::EACH, chunk = number >> coded().shift;
  if (number >= coded().marks.len / 4 || chunk >= coded().bases.len / 8) return NOTHING;
  Segment<Coder> segment;
  segment.load(codes, number);
  u32 mark = word_at<u32>(coded().marks, number), n = (u32)((u64)at - number * Coder::EACH), bytes = 0;
  segment.resolve(mark >> 31);
  if (segment.escaped >> n & 1) return NOTHING;
  segment.each(n, [&](u32 k, u32 code, bool known, bool itself) {
    if (k < n) bytes += known ? coder.length(code) : itself;
  });
  return (word_at<u64>(coded().bases, chunk) & ~ITSELF_FIRST) + (mark & ~ITSELF) + bytes;
}

KERNEL_BLOCKS(crossdock_views_of_codes, 4) {
  PARAMS(CODES, WIDTH, ESCAPES, OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, TABLE, LENGTHS, SHIFT, MARKS, BASES, TOLD, TOLD_WIDTH,
         TOLD_SIGNED, DATA, PART, VIEWS, ENDS, OVER, CELL);
  FIND_JOB;
  u64 width = job.value(WIDTH), shift = job.value(SHIFT), part = job.value(PART);
  bool escapes = job.value(ESCAPES) != 0;
  if (shift < 5 || shift > 24 || part > 31 || (width != 1 && width != 2)) return;
  Coded& memory = coded();
  if (threadIdx.x == 0) {
    memory.offsets = integers(job, OFFSETS);
    memory.codes = codes_of(job.read(CODES), (u32)width, memory.offsets);
    memory.marks = job.read(MARKS);
    memory.bases = job.read(BASES);
    memory.views = {integers(job, TOLD), job.read(DATA), (u32)part, job.write(VIEWS), job.write(ENDS), job.write(OVER)};
    memory.shift = (u32)shift;
  }
  __syncthreads();
  with_coder(width, escapes, job.read(TABLE), job.read(LENGTHS), memory.words, memory.lengths, [&](auto coder, u64) {
    u64 found = make_views(job, coded().offsets, coded().views, [&](i64 at) { return begin_of(coder, at); });
    report(job.write(CELL), found);
  });
}
