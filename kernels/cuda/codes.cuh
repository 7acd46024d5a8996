// Strings that are stored as codes. Each code stands for several bytes. The codes of all values are
// contiguous, and their decoded bytes are contiguous too. Therefore threads process codes, not
// values. A segment is the 8 or 16 codes that one lane processes. A tile is the 32 segments that a
// warp processes at once. A chunk is `1 << shift` segments. A literal is a code that follows an
// escape and stands for itself. Each segment has a mark, so that decoding can start at any segment.
// The mark is the position of the segment's decoded bytes in the chunk's decoded bytes, and whether
// the segment's first code is a literal.
#pragma once
#include "words.cuh"

// The code that is an escape, if codes have escapes. The code after an escape is a literal.
#define ESCAPE 255u
// The highest bits of a mark and of a chunk's size. They are set if the first code is a literal.
#define MARK_LITERAL 0x80000000u
#define CHUNK_LITERAL 0x8000000000000000ull
// Maximum number of bytes that a segment decodes to.
#define SEGMENT_BYTES 128
// The number of symbols: one for each of 256 codes, then one of one byte for each of 256 literals.
#define SYMBOLS 512
// Stored as the position of a literal. No value can begin at a literal, because it belongs to the
// escape before it.
#define NO_START 255u

// Loads a misaligned integer. Not inlined, because misaligned integers are rare.
static __device__ __noinline__ i64 misaligned_integer(Bytes from, u64 i, u32 width, bool is_signed) {
  u64 word = bytewise(from.at + i * width, width);
  if (width == 8) return is_signed ? (i64)word : wide(word);
  u32 shift = 64 - 8 * width;
  return is_signed ? (i64)(word << shift) >> shift : (i64)word;
}

// Integers of any type. A job has three arguments for them: their bytes, their width, and whether
// they are signed.
struct Integers {
  Bytes from;
  u32 width;
  bool is_signed;

  __device__ __forceinline__ u64 n() const { return width == 0 ? 0 : from.len / width; }
  __device__ __forceinline__ i64 operator[](u64 i) const { return integer_at(from, i, width, is_signed); }

  // Loads the integers at indices `first + at`, `first + at + 32`, and so on. Integers from index
  // `first + stop` on are not loaded; they become 0. All loads are in flight at once.
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

// Codes of one byte, as in FSST. A code is an escape, or stands for up to 8 bytes.
struct Symbols {
  typedef u8 Code;
  static const u32 SEGMENT_CODES = 16;
  static const bool ESCAPES = true;
  // Both arrays are in shared memory. Escapes and codes without a symbol have length 0.
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

// Replaces a code that belongs to no value.
#define NO_TOKEN 0xffffffffu

// All codes, and the range `first..last` of the codes that belong to values.
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

// Returns a bit for each of the 4 bytes of `word`. The bit is set if the byte is 255.
DEVICE u32 escapes_of(u32 word) {
  u32 high = ((word & 0x7f7f7f7fu) + 0x01010101u) & word & 0x80808080u;
  return ((high >> 7) * 0x01020408u) >> 24 & 0xf;
}

// Returns a byte for each of the 4 lowest bits: 255 if the bit is set, else 0.
DEVICE u32 bytes_of_bits(u32 bits) { return ((bits & 0xf) * 0x00204081u & 0x01010101u) * 0xffu; }

// The segment of a lane: its codes, and masks with a bit for each code.
template <class Coder>
struct Segment {
  static const u32 SEGMENT_CODES = Coder::SEGMENT_CODES, ALL = (1u << SEGMENT_CODES) - 1;
  static const u32 WORDS = SEGMENT_CODES * sizeof(typename Coder::Code) / 4;
  u32 words[WORDS];
  // A bit of `inside` is set if the code belongs to a value. A bit of `escapes` is set if the code
  // belongs to a value and is 255. `resolve` sets `escaped`: its bits are set for literals.
  // `escaped` has one more bit, for the code after the segment.
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
      // Codes that belong to no value become 255, which has no bytes.
      if (inside != ALL) {
#pragma unroll
        for (u32 w = 0; w < WORDS; w++) words[w] |= ~bytes_of_bits(inside >> (4 * w));
      }
    }
  }

  // Finds the literals. `first` is 1 if the first code is a literal, else 0. In a sequence of codes
  // 255, every second code is a literal. The carries of one subtraction find the literals of all
  // sequences at once.
  __device__ __forceinline__ void resolve(u32 first) {
    if constexpr (Coder::ESCAPES) {
      const u32 ODD = 0xaaaaaaaau;
      u32 free = escapes & ~first;
      escaped = (((free << 1 | ODD) - free) ^ ODD) ^ (escapes | first);
    }
  }

  // The number of codes that may have no bytes: escapes, and codes that belong to no value. Any
  // other code without bytes is an error.
  __device__ __forceinline__ u32 n_without_bytes() const { return __popc(ALL & (~inside | (escapes & ~escaped))); }

  // Calls `use` for each group of four codes, with the index of the group's first code and with the
  // four codes as symbols or tokens. `UNROLL` calls overlap, if there are enough registers.
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

// Copies symbols to shared memory. All threads of the block must call this together. Returns a code
// whose symbol does not have 1 to 8 bytes, or NONE if the thread found no such code.
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

// Calls `use` with the coder for codes of `width` bytes, and with the result of share_symbols, or
// NONE if codes have no escapes. `words` and `shared_lengths` are in shared memory.
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
