// Strings stored as codes, each of which stands for several bytes. The codes of all values are
// contiguous, and so are their bytes. So threads process codes, not values. A lane processes a
// segment of 16 bytes of codes, and a warp processes a tile of 32 segments. To start decoding
// anywhere, a thread needs a mark of its segment: the position of the segment's bytes, and whether
// its first code is a literal, that is preceded by an escape.
#pragma once
#include "words.cuh"

// The escape, if codes have escapes: the next code is a literal byte.
#define ESCAPE 255u
// Bits in a mark and in the size of a chunk: the first code is a literal.
#define MARK_LITERAL 0x80000000u
#define CHUNK_LITERAL 0x8000000000000000ull
// Maximum number of bytes that a segment decodes to.
#define SEGMENT_BYTES 128
// Symbols, followed by one symbol of one byte for each literal.
#define SYMBOLS 512
// The position of a literal, which is part of the escape before it and has no position of its own.
#define NO_START 255u

// A misaligned integer. Not inlined, because misaligned integers are rare.
static __device__ __noinline__ i64 misaligned_integer(Bytes from, u64 i, u32 width, bool is_signed) {
  u64 word = bytewise(from.at + i * width, width);
  if (width == 8) return is_signed ? (i64)word : wide(word);
  u32 shift = 64 - 8 * width;
  return is_signed ? (i64)(word << shift) >> shift : (i64)word;
}

// Integers of any type: three arguments of a job.
struct Integers {
  Bytes from;
  u32 width;
  bool is_signed;

  __device__ __forceinline__ u64 n() const { return width == 0 ? 0 : from.len / width; }
  __device__ __forceinline__ i64 operator[](u64 i) const { return integer_at(from, i, width, is_signed); }

  // Loads the integers from index `first` on at positions `at`, `at + 32`, and so on, below `stop`.
  // All loads are in flight at once.
  template <u32 AT_ONCE>
  __device__ __forceinline__ void load(u64 first, u32 at, u32 stop, i64* to) const {
    if (is_aligned(from, width)) {
      const u8* begin = from.at + first * width;
      switch (width << 1 | is_signed) {
        case 2: return load_words<AT_ONCE>((const u8*)begin, at, stop, to);
        case 3: return load_words<AT_ONCE>((const i8*)begin, at, stop, to);
        case 4: return load_words<AT_ONCE>((const u16*)begin, at, stop, to);
        case 5: return load_words<AT_ONCE>((const i16*)begin, at, stop, to);
        case 8: return load_words<AT_ONCE>((const u32*)begin, at, stop, to);
        case 9: return load_words<AT_ONCE>((const i32*)begin, at, stop, to);
        case 16: return load_words<AT_ONCE>((const u64*)begin, at, stop, to);
        case 17: return load_words<AT_ONCE>((const i64*)begin, at, stop, to);
      }
    }
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      to[k] = at + k * 32 < stop ? misaligned_integer(from, first + at + k * 32, width, is_signed) : 0;
    }
  }

  template <u32 AT_ONCE, class T>
  static __device__ __forceinline__ void load_words(const T* from, u32 at, u32 stop, i64* to) {
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) to[k] = at + k * 32 < stop ? wide(__ldg(from + (at + k * 32))) : 0;
  }
};

DEVICE Integers integers(const Job& job, u32 at) {
  u64 width = job.value(at + 1);
  if (width != 1 && width != 2 && width != 4 && width != 8) width = 0;
  return Integers{job.read(at), (u32)width, job.value(at + 2) != 0};
}

// Codes of one byte that stand for up to 8 bytes each, or are escapes, as in FSST.
struct Symbols {
  typedef u8 Code;
  static const u32 SEGMENT_CODES = 16;
  static const bool ESCAPES = true;
  // In shared memory. Escapes and codes without a symbol have length 0.
  const u64* words;
  const u8* lengths;

  __device__ __forceinline__ u32 length(u32 symbol) const { return lengths[symbol]; }
  __device__ __forceinline__ Pair bytes(u32 symbol) const { return Pair{words[symbol], 0}; }
};

// Codes that stand for up to 16 bytes each, as in OnPair.
template <class C>
struct Tokens {
  typedef C Code;
  static const u32 SEGMENT_CODES = 8;
  static const bool ESCAPES = false;
  Bytes tokens;
  Bytes lengths;

  __device__ __forceinline__ u32 length(u32 code) const {
    u32 length = code < lengths.len ? __ldg(lengths.at + code) : 0;
    return length <= 16 ? length : 0;
  }
  __device__ __forceinline__ Pair bytes(u32 code) const {
    if ((u64)code * 16 + 16 > tokens.len) return Pair{0, 0};
    const u8* at = tokens.at + (u64)code * 16;
    if (((u64)at & 15) == 0) return aligned128(at);
    return Pair{word_at<u64>(tokens, (u64)code * 2), word_at<u64>(tokens, (u64)code * 2 + 1)};
  }
};

// Replaces codes that belong to no value.
#define NO_TOKEN 0xffffffffu

// Codes, and the range of codes that belong to values.
struct Codes {
  Bytes from;
  u64 first;
  u64 last;
};

DEVICE u64 clamped(i64 at, u64 low, u64 high) { return at < (i64)low ? low : min64((u64)at, high); }

// The range of codes between the first and the last offset, clamped to the codes.
DEVICE Codes codes_of(Bytes from, u32 width, const Integers& offsets) {
  u64 n = from.len / width, entries = offsets.n();
  if (entries == 0) return Codes{from, 0, 0};
  u64 first = clamped(offsets[0], 0, n);
  return Codes{from, first, clamped(offsets[entries - 1], first, n)};
}

static __device__ __noinline__ u32 word_by_bytes(Bytes from, u64 at) {
  u32 word = 0;
#pragma unroll 1
  for (u32 b = 0; b < 4; b++) word |= (u32)byte_at(from, at + b) << (8 * b);
  return word;
}

// Returns a bit for each of 4 bytes: whether it is 255.
DEVICE u32 escapes_of(u32 word) {
  u32 high = ((word & 0x7f7f7f7fu) + 0x01010101u) & word & 0x80808080u;
  return ((high >> 7) * 0x01020408u) >> 24 & 0xf;
}

// Returns 4 bytes: 255 for a set bit, else 0.
DEVICE u32 bytes_of_bits(u32 bits) { return ((bits & 0xf) * 0x00204081u & 0x01010101u) * 0xffu; }

// A segment of codes, one per lane.
template <class Coder>
struct Segment {
  static const u32 SEGMENT_CODES = Coder::SEGMENT_CODES, ALL = (1u << SEGMENT_CODES) - 1;
  static const u32 WORDS = SEGMENT_CODES * sizeof(typename Coder::Code) / 4;
  u32 words[WORDS];
  // One bit per code: `inside`, whether it belongs to a value; `escapes`, whether it also is 255.
  // After `resolve`, `escaped`: whether it is a literal, also for the code after the last one.
  u32 inside;
  u32 escapes;
  u32 escaped;

  __device__ __forceinline__ void load(const Codes& codes, u64 segment) {
    const u32 BYTES = sizeof(words);
    u64 first = segment * SEGMENT_CODES, at = segment * BYTES;
    const u8* place = codes.from.at + at;
    if (at + BYTES <= codes.from.len && ((u64)place & (BYTES - 1)) == 0) {
      if constexpr (BYTES == 16) {
        Pair pair = aligned128(place);
        memcpy(words, &pair, 16);
      } else {
        u64 word = aligned64(place);
        memcpy(words, &word, 8);
      }
    } else if (at >= 7 && at + 24 <= codes.from.len) {
      Pair pair = pair_unchecked(codes.from, at * 8);
      memcpy(words, &pair, BYTES);
    } else {
#pragma unroll
      for (u32 w = 0; w < BYTES / 4; w++) words[w] = word_by_bytes(codes.from, at + 4 * w);
    }
    u32 low = codes.first > first ? (u32)min64(codes.first - first, SEGMENT_CODES) : 0;
    u32 high = codes.last > first ? (u32)min64(codes.last - first, SEGMENT_CODES) : 0;
    inside = ((1u << high) - 1) & ~((1u << low) - 1);
    escapes = escaped = 0;
    if constexpr (Coder::ESCAPES) {
#pragma unroll
      for (u32 w = 0; w < WORDS; w++) escapes |= escapes_of(words[w]) << (4 * w);
      escapes &= inside;
      // Codes that belong to no value become escapes without a literal.
      if (inside != ALL) {
#pragma unroll
        for (u32 w = 0; w < WORDS; w++) words[w] |= ~bytes_of_bits(inside >> (4 * w));
      }
    }
  }

  // In a sequence of escapes, every other one escapes the code after it. The carries of one
  // subtraction find them in all sequences at once.
  __device__ __forceinline__ void resolve(u32 first) {
    if constexpr (Coder::ESCAPES) {
      const u32 ODD = 0xaaaaaaaau;
      u32 free = escapes & ~first;
      escaped = (((free << 1 | ODD) - free) ^ ODD) ^ (escapes | first);
    }
  }

  // The number of codes that have no bytes and are no error: escapes, and codes outside of the
  // values.
  __device__ __forceinline__ u32 n_without_bytes() const { return __popc(ALL & (~inside | (escapes & ~escaped))); }

  // Calls `use` with the index of every fourth code, and that code and the next three as symbols or
  // tokens. `UNROLL` calls overlap, if there are enough registers.
  template <u32 UNROLL = 1, class Use>
  __device__ __forceinline__ void for_each(const Use& use) const {
    const u32 BITS = 8 * sizeof(typename Coder::Code), STEP = 4 * BITS / 32;
    u32 remaining[WORDS], bits = Coder::ESCAPES ? escaped & inside : inside;
#pragma unroll
    for (u32 w = 0; w < WORDS; w++) remaining[w] = words[w];
#pragma unroll UNROLL
    for (u32 k = 0; k < SEGMENT_CODES; k += 4) {
      u32 codes[4];
#pragma unroll
      for (u32 j = 0; j < 4; j++) {
        u32 code = remaining[j * BITS / 32] >> (j * BITS % 32) & ((1u << BITS) - 1), bit = bits >> j & 1;
        codes[j] = Coder::ESCAPES ? code | bit << 8 : (bit != 0 ? code : NO_TOKEN);
      }
      use(k, codes);
#pragma unroll
      for (u32 w = 0; w + STEP < WORDS; w++) remaining[w] = remaining[w + STEP];
      bits >>= 4;
    }
  }
};

// Copies symbols to shared memory. All threads of the block must call this together. Returns a
// symbol of a length other than 1 to 8, or NONE.
DEVICE u64 share_symbols(Bytes table, Bytes lengths, u64* words, u8* shared_lengths) {
  u64 first_error = NONE;
  for (u32 code = threadIdx.x; code < 256; code += THREADS) {
    words[256 + code] = code;
    shared_lengths[256 + code] = 1;
    u32 length = 0;
    if (code < ESCAPE && code < lengths.len) {
      length = __ldg(lengths.at + code);
      if (length == 0 || length > 8) {
        first_error = code;
        length = 0;
      }
    }
    if ((u64)code * 8 + 8 > table.len) length = 0;
    shared_lengths[code] = (u8)length;
    words[code] = length == 0 ? 0 : word_at<u64>(table, code) & ~0ull >> (64 - 8 * length);
  }
  __syncthreads();
  return first_error;
}

// Calls `use` with the coder for codes of `width` bytes, with or without escapes, and the result of
// share_symbols. `words` and `shared_lengths` are in shared memory.
template <class Use>
DEVICE void with_coder(u64 width, bool escapes, Bytes table, Bytes lengths, u64* words, u8* shared_lengths, const Use& use) {
  if (escapes) {
    if (width != 1) return;
    u64 first_error = share_symbols(table, lengths, words, shared_lengths);
    use(Symbols{words, shared_lengths}, first_error);
  } else if (width == 1) {
    use(Tokens<u8>{table, lengths}, NONE);
  } else if (width == 2) {
    use(Tokens<u16>{table, lengths}, NONE);
  }
}
