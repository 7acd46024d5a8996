// Codes and what they decode to: how much, and the bytes. See codes.cuh.
#include "codes.cuh"

// Tiles that are looked back over for whether one begins in an escape.
#define LOOK_BACK 32

DEVICE u32 highest(u32 bits) { return 31 - __clz(bits); }

// Whether the code after those of a warp's lanes that are `known` stands for itself: of others all are escapes, in pairs.
DEVICE u32 state_after(u32 known, u32 states, u32 before) { return known == 0 ? before : states >> highest(known) & 1; }

// Whether the first code of a chunk stands for itself. Where there are more escapes before it than are looked back over, the
// chunk counts as wrong.
template <class Coder>
DEVICE u32 state_before(const Codes& codes, u64 segment, u64& found) {
  if (segment * Coder::EACH <= codes.first) return 0;
#pragma unroll 1
  for (u32 step = 0; step < LOOK_BACK && segment >= (step + 1) * 32; step++) {
    Segment<Coder> before;
    before.load(codes, segment - (step + 1) * 32 + threadIdx.x % 32);
    before.resolve(0);
    u32 known = __ballot_sync(WARP, before.escapes != Segment<Coder>::ALL);
    u32 states = __ballot_sync(WARP, before.escaped >> Coder::EACH & 1);
    if (known != 0) return state_after(known, states, 0);
    if (segment == (step + 1) * 32) return 0;
  }
  found = min64(found, segment * Coder::EACH);
  return 0;
}

// At which bytes of their segment its codes begin.
template <u32 WORDS>
DEVICE void put_starts(u8* at, const u32 (&words)[WORDS]) {
  u64 low = words[0] | (u64)words[1] << 32, high = words[WORDS - 2] | (u64)words[WORDS - 1] << 32;
  if (WORDS == 4 && ((u64)at & 15) == 0) {
    store128(at, Pair{low, high});
  } else if (WORDS == 2 && ((u64)at & 7) == 0) {
    store((u64*)at, low);
  } else {
#pragma unroll
    for (u32 w = 0; w < WORDS; w++) put_bytewise(at + 4 * w, 4, words[w]);
  }
}

// A warp a chunk: 1 << shift segments.
template <class Coder>
DEVICE u64 measure(const Job& job, const Coder& coder, const Codes& codes, u32 shift, Target marks, Target starts, Target sizes) {
  // With one that has the place after the last code.
  u64 all = codes.from.len / sizeof(typename Coder::Code) / Coder::EACH + 1;
  u64 found = NOTHING;
  u32 lane = threadIdx.x % 32;
#pragma unroll 1
  for (u64 chunk = job.thread / 32; chunk < sizes.len / 8; chunk += job.threads / 32) {
    u64 begin = chunk << shift, end = min64(all, (chunk + 1) << shift);
    u32 first = 0, size = 0;
    if (begin < end && begin * Coder::EACH <= codes.last && end * Coder::EACH > codes.first) {
      u32 state = 0;
      if constexpr (Coder::ESCAPES) state = first = state_before<Coder>(codes, begin, found);
#pragma unroll 1
      for (u64 tile = begin; tile < end; tile += 32) {
        Segment<Coder> segment;
        segment.load(codes, tile + lane);
        u32 own = 0;
        if constexpr (Coder::ESCAPES) {
          segment.resolve(0);
          u32 known = __ballot_sync(WARP, segment.escapes != Segment<Coder>::ALL);
          u32 states = __ballot_sync(WARP, segment.escaped >> Coder::EACH & 1);
          own = state_after(known & ((1u << lane) - 1), states, state);
          state = state_after(known, states, state);
          segment.resolve(own);
        }
        u32 length = 0, with = 0, begins[Coder::EACH / 4];
        segment.template each<Coder::EACH / 4>([&](u32 k, const u32(&four)[4]) {
          u32 lengths = 0;
#pragma unroll
          for (u32 j = 0; j < 4; j++) lengths |= coder.length(four[j]) << (8 * j);
          // Each byte becomes the sum of those up to it: none is above 128.
          u32 sums = (lengths + length) * 0x01010101u;
          begins[k / 4] = sums << 8 | length;
          if (Coder::ESCAPES) begins[k / 4] |= bytes_of_bits(segment.escaped >> k);
          length = sums >> 24;
          with += __popc((lengths + 0x7f7f7f7fu) & 0x80808080u);
        });
        if (Coder::EACH - with != segment.without()) {
          segment.each([&](u32 k, const u32(&four)[4]) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
              bool right = coder.length(four[j]) != 0 || (Coder::ESCAPES && four[j] == ESCAPE);
              if (!right && (segment.inside >> (k + j) & 1) != 0) found = min64(found, (tile + lane) * Coder::EACH + k + j);
            }
          });
        }
        u32 upto = length;
#pragma unroll
        for (u32 step = 1; step < 32; step *= 2) {
          u32 lower = __shfl_sync(WARP, upto, lane - step);
          if (lane >= step) upto += lower;
        }
        if ((tile + lane + 1) * Coder::EACH <= starts.len) put_starts(starts.at + (tile + lane) * Coder::EACH, begins);
        if (tile + lane < marks.len / 4) put_word<u32>(marks, tile + lane, (size + upto - length) | own << 31);
        size += __shfl_sync(WARP, upto, 31);
      }
    }
    if (lane == 0) put_word<u64>(sizes, chunk, size | (u64)first << 63);
  }
  return found;
}

KERNEL_BLOCKS(crossdock_measure_codes, 4) {
  PARAMS(CODES, WIDTH, ESCAPES, OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, TABLE, LENGTHS, SHIFT, MARKS, STARTS, SIZES, TABLE_CELL,
         CELL);
  FIND_JOB;
  __shared__ u64 words[SYMBOLS];
  __shared__ u8 lengths[SYMBOLS];
  u64 width = job.value(WIDTH), shift = job.value(SHIFT);
  if (shift < 5 || shift > 24) return;
  Integers offsets = integers(job, OFFSETS);
  with_coder(width, job.value(ESCAPES) != 0, job.read(TABLE), job.read(LENGTHS), words, lengths, [&](auto coder, u64 wrong) {
    Codes codes = codes_of(job.read(CODES), sizeof(typename decltype(coder)::Code), offsets);
    report(job.write(TABLE_CELL), wrong);
    u64 found = measure(job, coder, codes, (u32)shift, job.write(MARKS), job.write(STARTS), job.write(SIZES));
    report(job.write(CELL), found);
  });
}

// Sizes of chunks become where they begin; the cell becomes the sum. For one block, whose threads have as many each.
KERNEL(crossdock_add_sizes) {
  PARAMS(SIZES, CELL);
  FIND_JOB;
  __shared__ u64 sums[THREADS / 32];
  Target sizes = job.write(SIZES);
  u64* cell = cell_of(job.write(CELL));
  if (job.thread >= THREADS || ((u64)sizes.at & 7) != 0 || !cell) return;
  u64* at = (u64*)sizes.at;
  u64 n = sizes.len / 8, each = (n + THREADS - 1) / THREADS;
  u64 begin = min64(n, threadIdx.x * each), end = min64(n, begin + each), own = 0;
#pragma unroll 8
  for (u64 i = begin; i < end; i++) own += at[i] & ~ITSELF_FIRST;
  u32 lane = threadIdx.x % 32;
  u64 upto = own;
#pragma unroll
  for (u32 step = 1; step < 32; step *= 2) {
    u64 lower = __shfl_sync(WARP, upto, lane - step);
    if (lane >= step) upto += lower;
  }
  if (lane == 31) sums[threadIdx.x / 32] = upto;
  __syncthreads();
  for (u32 warp = 0; warp < threadIdx.x / 32; warp++) upto += sums[warp];
  u64 sum = upto - own;
#pragma unroll 8
  for (u64 i = begin; i < end; i++) {
    u64 size = at[i];
    store(at + i, sum | (size & ITSELF_FIRST));
    sum += size & ~ITSELF_FIRST;
  }
  if (threadIdx.x == THREADS - 1) store(cell, upto);
}

// Words of 8 bytes in which a warp puts together what a tile decodes to, behind up to 15 bytes that were left over.
#define SLICE (32 * SEGMENT_BYTES / 8 + 2)

// What the threads of a block share; among it what all of them look at now and then, and have no registers for. By this
// function and no pointer, so that the compiler knows that it is shared memory.
struct Decoding {
  Codes codes;
  Bytes marks;
  Bytes bases;
  Target to;
  u32 shift;
  u64 group;
  ulonglong2 slices[THREADS / 32][SLICE / 2];
  u64 words[SYMBOLS];
  u8 lengths[SYMBOLS];
};
DEVICE Decoding& decoding() {
  __shared__ Decoding memory;
  return memory;
}

// A word of the block's slices.
DEVICE u64& slice_word(u32 i) { return ((u64*)decoding().slices)[i]; }

// A word in which others put their bytes, too.
DEVICE void put_together(u32 i, u64 word) {
  u32* at = (u32*)&slice_word(i);
  if ((u32)word != 0) atomicOr(at, (u32)word);
  if (word >> 32 != 0) atomicOr(at + 1, (u32)(word >> 32));
}

// Bytes, one after the other from a byte of the block's slices on. Only what others have no bytes in is stored as a whole.
struct Writer {
  // Words.
  u32 next;
  u32 first;
  u64 word;
  u64 head;
  // Bits of the word that are there.
  u32 bits;

  __device__ __forceinline__ explicit Writer(u32 at) : next(at / 8), first(next), word(0), head(0), bits(at % 8 * 8) {}

  // As many as `length` says, at most 8; those behind are zero. Without a branch: of a warp's lanes one is always through with
  // its word.
  __device__ __forceinline__ void put(u64 bytes, u32 length) {
    u32 end = bits + length * 8;
    bool is_full = end >= 64, is_head = next == first;
    word |= bytes << bits;
    if (is_full && !is_head) slice_word(next) = word;
    head = is_full && is_head ? word : head;
    // Nothing is shifted by 64.
    word = is_full ? bytes >> 8 >> (56 - bits) : word;
    next += is_full;
    bits = end % 64;
  }

  __device__ __forceinline__ void finish() const {
    if (next != first) put_together(first, head);
    if (bits != 0) put_together(next, word);
  }
};

// Of a vector that is not all of this warp's, those bytes that are.
DEVICE void put_bytes(Target to, i64 place, const u8* vector, u32 begin, u32 end) {
  u32 lane = threadIdx.x % 32;
  if (lane >= begin && lane < end && (u64)(place + lane) < to.len) store(to.at + (place + lane), vector[lane]);
  __syncwarp();
}

// Tiles one after the other, so that what is left over goes with the next one's bytes, and is stored with them.
template <class Coder>
DEVICE void decode_tiles(const Coder& coder, u64 tile, u64 end) {
  const Codes& codes = decoding().codes;
  const Bytes &marks = decoding().marks, &bases = decoding().bases;
  const Target& to = decoding().to;
  u32 lane = threadIdx.x % 32;
  const u32 SLICE_AT = threadIdx.x / 32 * SLICE;
  ulonglong2* slice = decoding().slices[threadIdx.x / 32];
  // The vector of the target that the slice's first becomes, the bytes in it that are another warp's, and those that are there.
  u64 chunk = tile * 32 >> decoding().shift;
  u64 base = chunk < bases.len / 8 ? word_at<u64>(bases, chunk) & ~ITSELF_FIRST : 0;
  base += tile * 32 < marks.len / 4 ? word_at<u32>(marks, tile * 32) & ~ITSELF : 0;
  u32 others = ((u64)to.at + base) & 15, held = others;
  i64 place = (i64)base - others;
#pragma unroll 1
  for (; tile < end; tile++) {
    u64 number = tile * 32 + lane;
    Segment<Coder> segment;
    segment.load(codes, number);
    u32 mark = number < marks.len / 4 ? word_at<u32>(marks, number) : 0;
    segment.resolve(mark >> 31);
    u32 own = mark & ~ITSELF, low = __shfl_sync(WARP, own, 0);
    // Whatever a mark says, the lane stays within its slice.
    Writer writer(SLICE_AT * 8 + held + (u32)min64(own - low, lane * SEGMENT_BYTES));
    if (segment.inside != 0) {
      segment.each([&](u32, const u32(&four)[4]) {
        u32 lengths[4];
        Pair bytes[4];
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
          lengths[j] = coder.length(four[j]);
          bytes[j] = coder.bytes(four[j]);
        }
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
          if (Coder::ESCAPES) {
            writer.put(bytes[j].low, lengths[j]);
          } else {
            writer.put(bytes[j].low, lengths[j] < 8 ? lengths[j] : 8);
            if (lengths[j] > 8) writer.put(bytes[j].high, lengths[j] - 8);
          }
        }
      });
      writer.finish();
    }
    __syncwarp();
    u32 at = (writer.next - SLICE_AT) * 8 + writer.bits / 8;
    held = __shfl_sync(WARP, at, highest(__ballot_sync(WARP, segment.inside != 0)));
    u32 vectors = held / 16;
    if (vectors == 0) continue;
    if (others != 0) put_bytes(to, place, (const u8*)slice, others, 16);
#pragma unroll 1
    for (u32 v = lane; v < vectors; v += 32) {
      ulonglong2 vector = slice[v];
      slice[v] = make_ulonglong2(0, 0);
      i64 byte = place + v * 16;
      if ((v > 0 || others == 0) && (u64)byte + 16 <= to.len) store128(to.at + byte, Pair{vector.x, vector.y});
    }
    if (lane == 0) {
      slice[0] = slice[vectors];
      slice[vectors] = make_ulonglong2(0, 0);
    }
    others = 0;
    place += vectors * 16;
    held %= 16;
    __syncwarp();
  }
  // Nobody comes after.
  put_bytes(to, place, (const u8*)slice, others, held);
  if (lane == 0) slice[0] = make_ulonglong2(0, 0);
  __syncwarp();
}

template <class Coder>
DEVICE void decode(const Job& job, const Coder& coder) {
  const u64 EACH = 32 * Coder::EACH;
  const Decoding& memory = decoding();
  // Each of these tiles has a code that belongs to a value.
  u64 first = memory.codes.first / EACH, end = (memory.codes.last + EACH - 1) / EACH;
  if (memory.codes.first == memory.codes.last) return;
  u32 lane = threadIdx.x % 32;
  for (u32 v = lane; v < SLICE / 2; v += 32) decoding().slices[threadIdx.x / 32][v] = make_ulonglong2(0, 0);
  __syncwarp();
#pragma unroll 1
  for (u64 tile = first + job.thread / 32 * memory.group; tile < end; tile += job.threads / 32 * memory.group) {
    decode_tiles(coder, tile, min64(end, tile + memory.group));
  }
}

KERNEL_BLOCKS(crossdock_decode_codes, 4) {
  PARAMS(CODES, WIDTH, ESCAPES, OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, TABLE, LENGTHS, SHIFT, MARKS, BASES, GROUP, TO);
  FIND_JOB;
  u64 width = job.value(WIDTH), shift = job.value(SHIFT);
  bool escapes = job.value(ESCAPES) != 0;
  if (shift < 5 || shift > 24 || (width != 1 && width != 2)) return;
  Decoding& memory = decoding();
  if (threadIdx.x == 0) {
    memory.codes = codes_of(job.read(CODES), (u32)width, integers(job, OFFSETS));
    memory.marks = job.read(MARKS);
    memory.bases = job.read(BASES);
    memory.to = job.write(TO);
    memory.shift = (u32)shift;
    memory.group = max64(1, job.value(GROUP));
  }
  __syncthreads();
  with_coder(width, escapes, job.read(TABLE), job.read(LENGTHS), memory.words, memory.lengths,
             [&](auto coder, u64) { decode(job, coder); });
}

// Tokens at 16 bytes each, and their lengths; the cell says which is the first that is not 1 to 16 bytes of the dictionary.
KERNEL(crossdock_make_tokens) {
  PARAMS(DICTIONARY, OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, TOKENS, LENGTHS, CELL);
  FIND_JOB;
  Bytes dictionary = job.read(DICTIONARY);
  Integers offsets = integers(job, OFFSETS);
  Target tokens = job.write(TOKENS), lengths = job.write(LENGTHS);
  u64 n = min64(tokens.len / 16, lengths.len), found = NOTHING;
  if (offsets.n() < n + 1) return;
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += job.threads) {
    i64 begin = offsets[i], end = offsets[i + 1];
    bool right = begin >= 0 && begin < end && end - begin <= 16 && (u64)end <= dictionary.len;
    u64 length = right ? (u64)(end - begin) : 0, token[2] = {0, 0};
#pragma unroll 1
    for (u64 b = 0; b < length; b++) token[b / 8] |= (u64)byte_at(dictionary, (u64)begin + b) << (8 * (b % 8));
    put_word<u64>(tokens, 2 * i, token[0]);
    put_word<u64>(tokens, 2 * i + 1, token[1]);
    store(lengths.at + i, (u8)length);
    if (!right) found = min64(found, i);
  }
  report(job.write(CELL), found);
}
