// Measures and decodes codes. See codes.cuh.
#include "codes.cuh"

// Maximum number of tiles before a chunk that are read to find out whether the chunk's first code
// is a literal.
#define LOOK_BACK 32

DEVICE u32 highest(u32 bits) { return 31 - __clz(bits); }

// Whether the code after a warp's segments is a literal. `before` is the same flag for the first
// code of the segments. A bit of `known` is set if its segment has a code that is no escape. The
// last segment with such a code decides. All other segments consist of an even number of escapes,
// so they do not change the flag.
DEVICE u32 is_literal_after(u32 known, u32 literals, u32 before) { return known == 0 ? before : literals >> highest(known) & 1; }

// Whether the first code of a segment is a literal. If too many escapes precede this code, the code
// is reported as an error.
template <class Coder>
DEVICE u32 is_literal_before(const Codes& codes, u64 segment, u64& first_error) {
  if (segment * Coder::SEGMENT_CODES <= codes.first) return 0;
#pragma unroll 1
  for (u32 step = 0; step < LOOK_BACK && segment >= (step + 1) * 32; step++) {
    Segment<Coder> before;
    before.load(codes, segment - (step + 1) * 32 + threadIdx.x % 32);
    before.resolve(0);
    u32 known = __ballot_sync(WARP, before.escapes != Segment<Coder>::ALL);
    u32 literals = __ballot_sync(WARP, before.escaped >> Coder::SEGMENT_CODES & 1);
    if (known != 0) return is_literal_after(known, literals, 0);
    if (segment == (step + 1) * 32) return 0;
  }
  first_error = min64(first_error, segment * Coder::SEGMENT_CODES);
  return 0;
}

// Writes, for each code of a segment, the position of its bytes within the segment's bytes.
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

// Computes the marks of segments, the positions of codes and the sizes of chunks. Each warp
// measures a chunk of `1 << shift` segments at a time.
template <class Coder>
DEVICE u64 measure(const Job& job, const Coder& coder, const Codes& codes, u32 shift, Target marks, Target starts, Target sizes) {
  // The number of segments, including the segment that contains the end position.
  u64 all = codes.from.len / sizeof(typename Coder::Code) / Coder::SEGMENT_CODES + 1;
  u64 first_error = NONE;
  u32 lane = threadIdx.x % 32;
#pragma unroll 1
  for (u64 chunk = job.thread / 32; chunk < sizes.len / 8; chunk += job.threads / 32) {
    u64 begin = chunk << shift, end = min64(all, (chunk + 1) << shift);
    u32 first = 0, size = 0;
    if (begin < end && begin * Coder::SEGMENT_CODES <= codes.last && end * Coder::SEGMENT_CODES > codes.first) {
      u32 tile_literal = 0;
      if constexpr (Coder::ESCAPES) tile_literal = first = is_literal_before<Coder>(codes, begin, first_error);
#pragma unroll 1
      for (u64 tile = begin; tile < end; tile += 32) {
        Segment<Coder> segment;
        segment.load(codes, tile + lane);
        u32 literal = 0;
        if constexpr (Coder::ESCAPES) {
          segment.resolve(0);
          u32 known = __ballot_sync(WARP, segment.escapes != Segment<Coder>::ALL);
          u32 literals = __ballot_sync(WARP, segment.escaped >> Coder::SEGMENT_CODES & 1);
          literal = is_literal_after(known & ((1u << lane) - 1), literals, tile_literal);
          tile_literal = is_literal_after(known, literals, tile_literal);
          segment.resolve(literal);
        }
        u32 length = 0, n_with_bytes = 0, begins[Coder::SEGMENT_CODES / 4];
        segment.template for_each<Coder::SEGMENT_CODES / 4>([&](u32 k, const u32(&four)[4]) {
          u32 lengths = 0;
#pragma unroll
          for (u32 j = 0; j < 4; j++) lengths |= coder.length(four[j]) << (8 * j);
          // Byte `j` of `sums` is the total length of the segment's codes up to code `k + j`. No
          // sum exceeds 128.
          u32 sums = (lengths + length) * 0x01010101u;
          begins[k / 4] = sums << 8 | length;
          if (Coder::ESCAPES) begins[k / 4] |= bytes_of_bits(segment.escaped >> k);
          length = sums >> 24;
          n_with_bytes += __popc((lengths + 0x7f7f7f7fu) & 0x80808080u);
        });
        if (Coder::SEGMENT_CODES - n_with_bytes != segment.n_without_bytes()) {
          segment.for_each([&](u32 k, const u32(&four)[4]) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
              bool is_valid = coder.length(four[j]) != 0 || (Coder::ESCAPES && four[j] == ESCAPE);
              if (!is_valid && (segment.inside >> (k + j) & 1) != 0) {
                first_error = min64(first_error, (tile + lane) * Coder::SEGMENT_CODES + k + j);
              }
            }
          });
        }
        u32 prefix = length;
#pragma unroll
        for (u32 step = 1; step < 32; step *= 2) {
          u32 lower = __shfl_sync(WARP, prefix, lane - step);
          if (lane >= step) prefix += lower;
        }
        if ((tile + lane + 1) * Coder::SEGMENT_CODES <= starts.len) {
          put_starts(starts.at + (tile + lane) * Coder::SEGMENT_CODES, begins);
        }
        if (tile + lane < marks.len / 4) put_word<u32>(marks, tile + lane, (size + prefix - length) | literal << 31);
        size += __shfl_sync(WARP, prefix, 31);
      }
    }
    if (lane == 0) put_word<u64>(sizes, chunk, size | (u64)first << 63);
  }
  return first_error;
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
    u64 first_error = measure(job, coder, codes, (u32)shift, job.write(MARKS), job.write(STARTS), job.write(SIZES));
    report(job.write(CELL), first_error);
  });
}

// Replaces the size of each chunk by the position of the chunk's bytes, and writes the total size
// to the cell. Only one block works; its threads process equal shares of the chunks.
KERNEL(crossdock_add_sizes) {
  PARAMS(SIZES, CELL);
  FIND_JOB;
  __shared__ u64 sums[THREADS / 32];
  Target sizes = job.write(SIZES);
  u64* cell = cell_of(job.write(CELL));
  if (job.thread >= THREADS || ((u64)sizes.at & 7) != 0 || !cell) return;
  u64* at = (u64*)sizes.at;
  u64 n = sizes.len / 8, per_thread = (n + THREADS - 1) / THREADS;
  u64 begin = min64(n, threadIdx.x * per_thread), end = min64(n, begin + per_thread), own_sum = 0;
#pragma unroll 8
  for (u64 i = begin; i < end; i++) own_sum += at[i] & ~CHUNK_LITERAL;
  u32 lane = threadIdx.x % 32;
  u64 prefix = own_sum;
#pragma unroll
  for (u32 step = 1; step < 32; step *= 2) {
    u64 lower = __shfl_sync(WARP, prefix, lane - step);
    if (lane >= step) prefix += lower;
  }
  if (lane == 31) sums[threadIdx.x / 32] = prefix;
  __syncthreads();
  for (u32 warp = 0; warp < threadIdx.x / 32; warp++) prefix += sums[warp];
  u64 sum = prefix - own_sum;
#pragma unroll 8
  for (u64 i = begin; i < end; i++) {
    u64 size = at[i];
    store(at + i, sum | (size & CHUNK_LITERAL));
    sum += size & ~CHUNK_LITERAL;
  }
  if (threadIdx.x == THREADS - 1) store(cell, prefix);
}

// The number of words of a slice. A slice is shared memory in which a warp collects the bytes of a
// tile. Before these bytes, it has up to 15 bytes that remain from the previous tile.
#define SLICE (32 * SEGMENT_BYTES / 8 + 2)

// Shared memory of a block. It also holds values that all threads need rarely, which saves
// registers. Code calls a function instead of passing a pointer, so that the compiler knows the
// address space.
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

DEVICE u64& slice_word(u32 i) { return ((u64*)decoding().slices)[i]; }

// Stores bytes into a word that other threads also write to.
DEVICE void merge_word(u32 i, u64 word) {
  u32* at = (u32*)&slice_word(i);
  if ((u32)word != 0) atomicOr(at, (u32)word);
  if (word >> 32 != 0) atomicOr(at + 1, (u32)(word >> 32));
}

// Writes consecutive bytes to the block's slices. A word that may also have bytes of other threads
// is merged; all other words are stored as a whole.
struct Writer {
  // The index of the current word, and of the first word that this thread writes.
  u32 next;
  u32 first;
  u64 word;
  u64 head;
  // The number of bits in `word`.
  u32 bits;

  __device__ __forceinline__ explicit Writer(u32 at) : next(at / 8), first(next), word(0), head(0), bits(at % 8 * 8) {}

  // Writes `length` bytes, at most 8. The unused bytes of `bytes` are 0. The code has no branch,
  // because in almost every call some lane of the warp completes a word.
  __device__ __forceinline__ void put(u64 bytes, u32 length) {
    u32 end = bits + length * 8;
    bool is_full = end >= 64, is_head = next == first;
    word |= bytes << bits;
    if (is_full && !is_head) slice_word(next) = word;
    head = is_full && is_head ? word : head;
    // Shifts in two steps, because a shift by 64 bits is undefined.
    word = is_full ? bytes >> 8 >> (56 - bits) : word;
    next += is_full;
    bits = end % 64;
  }

  __device__ __forceinline__ void finish() const {
    if (next != first) merge_word(first, head);
    if (bits != 0) merge_word(next, word);
  }
};

// Writes bytes `begin..end` of a vector that this warp shares with another warp.
DEVICE void put_bytes(Target to, i64 target_at, const u8* vector, u32 begin, u32 end) {
  u32 lane = threadIdx.x % 32;
  if (lane >= begin && lane < end && (u64)(target_at + lane) < to.len) store(to.at + (target_at + lane), vector[lane]);
  __syncwarp();
}

// Decodes consecutive tiles. An incomplete vector at the end of a tile is completed by the next
// tile.
template <class Coder>
DEVICE void decode_tiles(const Coder& coder, u64 tile, u64 end) {
  const Codes& codes = decoding().codes;
  const Bytes &marks = decoding().marks, &bases = decoding().bases;
  const Target& to = decoding().to;
  u32 lane = threadIdx.x % 32;
  const u32 SLICE_AT = threadIdx.x / 32 * SLICE;
  ulonglong2* slice = decoding().slices[threadIdx.x / 32];
  // `target_at` is the position of the slice's first vector in the target. `skipped` is the number
  // of bytes of that vector that another warp writes. `filled` is the number of bytes in the slice,
  // including the skipped bytes.
  u64 chunk = tile * 32 >> decoding().shift;
  u64 base = chunk < bases.len / 8 ? word_at<u64>(bases, chunk) & ~CHUNK_LITERAL : 0;
  base += tile * 32 < marks.len / 4 ? word_at<u32>(marks, tile * 32) & ~MARK_LITERAL : 0;
  u32 skipped = ((u64)to.at + base) & 15, filled = skipped;
  i64 target_at = (i64)base - skipped;
#pragma unroll 1
  for (; tile < end; tile++) {
    u64 number = tile * 32 + lane;
    Segment<Coder> segment;
    segment.load(codes, number);
    u32 mark = number < marks.len / 4 ? word_at<u32>(marks, number) : 0;
    segment.resolve(mark >> 31);
    u32 position = mark & ~MARK_LITERAL, low = __shfl_sync(WARP, position, 0);
    // The lane stays within its slice even if the mark is wrong.
    Writer writer(SLICE_AT * 8 + filled + (u32)min64(position - low, lane * SEGMENT_BYTES));
    if (segment.inside != 0) {
      segment.for_each([&](u32, const u32(&four)[4]) {
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
    filled = __shfl_sync(WARP, at, highest(__ballot_sync(WARP, segment.inside != 0)));
    u32 vectors = filled / 16;
    if (vectors == 0) continue;
    if (skipped != 0) put_bytes(to, target_at, (const u8*)slice, skipped, 16);
#pragma unroll 1
    for (u32 v = lane; v < vectors; v += 32) {
      ulonglong2 vector = slice[v];
      slice[v] = make_ulonglong2(0, 0);
      i64 byte = target_at + v * 16;
      if ((v > 0 || skipped == 0) && (u64)byte + 16 <= to.len) store128(to.at + byte, Pair{vector.x, vector.y});
    }
    if (lane == 0) {
      slice[0] = slice[vectors];
      slice[vectors] = make_ulonglong2(0, 0);
    }
    skipped = 0;
    target_at += vectors * 16;
    filled %= 16;
    __syncwarp();
  }
  // The last vector may be incomplete.
  put_bytes(to, target_at, (const u8*)slice, skipped, filled);
  if (lane == 0) slice[0] = make_ulonglong2(0, 0);
  __syncwarp();
}

template <class Coder>
DEVICE void decode(const Job& job, const Coder& coder) {
  const u64 TILE_CODES = 32 * Coder::SEGMENT_CODES;
  const Decoding& memory = decoding();
  // The range of the tiles that have at least one code of a value.
  u64 first = memory.codes.first / TILE_CODES, end = (memory.codes.last + TILE_CODES - 1) / TILE_CODES;
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

// Writes the tokens, padded to 16 bytes each, and their lengths. The cell becomes the index of the
// first invalid token. A token is valid if it has 1 to 16 bytes and is within the dictionary.
KERNEL(crossdock_make_tokens) {
  PARAMS(DICTIONARY, OFFSETS, OFFSET_WIDTH, OFFSET_SIGNED, TOKENS, LENGTHS, CELL);
  FIND_JOB;
  Bytes dictionary = job.read(DICTIONARY);
  Integers offsets = integers(job, OFFSETS);
  Target tokens = job.write(TOKENS), lengths = job.write(LENGTHS);
  u64 n = min64(tokens.len / 16, lengths.len), first_error = NONE;
  if (offsets.n() < n + 1) return;
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += job.threads) {
    i64 begin = offsets[i], end = offsets[i + 1];
    bool is_valid = begin >= 0 && begin < end && end - begin <= 16 && (u64)end <= dictionary.len;
    u64 length = is_valid ? (u64)(end - begin) : 0, token[2] = {0, 0};
#pragma unroll 1
    for (u64 b = 0; b < length; b++) token[b / 8] |= (u64)byte_at(dictionary, (u64)begin + b) << (8 * (b % 8));
    put_word<u64>(tokens, 2 * i, token[0]);
    put_word<u64>(tokens, 2 * i + 1, token[1]);
    store(lengths.at + i, (u8)length);
    if (!is_valid) first_error = min64(first_error, i);
  }
  report(job.write(CELL), first_error);
}
