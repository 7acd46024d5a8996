// Decompresses LZ4 frames ("LZ4 Frame Format" and "LZ4 Block Format"). A warp decodes a block.
//
// A warp decodes all sequences that begin in the next 32 bytes at once. Each lane parses its byte
// as if a sequence began there; the lanes that a chain of lengths reaches from lane 0 are right.
// Each output byte then finds its sequence. It is a literal, a byte before these sequences, or a
// copy of an earlier byte of the same sequences. Lanes follow such copies by pointer doubling, so
// no lane waits for a store of another one. Sequences that are too long for this, and the last
// sequence of a block, are decoded one by one.
//
// If the blocks of a frame are linked, matches also refer to the block before, which another warp
// may be decoding. For a byte whose source is there, a warp stores how far before its block the
// source is. Copies of the byte within the block get the same number. crossdock_resolve_lz4 then
// fills in these bytes.
#include "words.cuh"

// The number of compressed bytes that a warp has in shared memory.
#define LZ4_WINDOW 512
// The maximum number of output bytes of the sequences that are decoded at once.
#define LZ4_GROUP 64
// A source at or after this number is a literal: its position in the window plus this number.
#define LZ4_LITERAL 0x10000
// The minimum distance of a long match, so that 128 words can be copied at once: 512 bytes, and up
// to 7 bytes before the first word.
#define LZ4_DISTANCE 520
#define LZ4_MAX_BLOCK (4u << 20)
#define LZ4_MAX_OFFSET 65535u
#define LZ4_WRONG 0xffffffffu
// The number of pieces of a group.
#define LZ4_GROUP_PIECES 16
// The size of a piece of a buffer that is not compressed.
#define LZ4_PLAIN_PIECE 65536u

struct Lz4Scratch {
  ulonglong2 window[LZ4_WINDOW / 16];
  // Sequences of a group. The lower word of each has 16 bits each of: the first byte of its output
  // within the group, the number of its literals, their position in the window, and the offset of
  // its match. The upper word is 2^16 / offset, rounded up.
  ulonglong2 sequences[12];
};

// Not a parameter, so that the compiler knows in all functions that it is in shared memory.
__shared__ Lz4Scratch lz4_scratch[THREADS / 32];

DEVICE Lz4Scratch& lz4_own_scratch() { return lz4_scratch[threadIdx.x / 32]; }

DEVICE u32 lz4_lane() { return threadIdx.x % 32; }

// Loads the bytes from `at` on, which is a multiple of 16. The bytes outside of the range are 0.
// Not inlined, because it is used in several places.
static __device__ __noinline__ void lz4_fill_window(Bytes all, const u8* at) {
  u32 lane = lz4_lane();
  const u8* from = at + lane * 16;
  ulonglong2 vector = make_ulonglong2(0, 0);
  if (from >= all.at && from + 16 <= all.at + all.len) {
    vector = __ldg((const ulonglong2*)from);
  } else {
#pragma unroll 1
    for (u32 i = 0; i < 16; i++) {
      u64 byte = from + i >= all.at && from + i < all.at + all.len ? __ldg(from + i) : 0;
      if (i < 8) vector.x |= byte << (8 * i);
      if (i >= 8) vector.y |= byte << (8 * i - 64);
    }
  }
  __syncwarp();
  lz4_own_scratch().window[lane] = vector;
  __syncwarp();
}

// The bytes of a block. `at` is a multiple of 16; positions are relative to it.
struct Lz4Input {
  Bytes all;
  const u8* at;
  u32 end;
  // The position of the first byte in the window.
  u32 base;

  __device__ __forceinline__ const u8* window() const { return (const u8*)lz4_own_scratch().window; }

  __device__ __forceinline__ void move_to(u32 p) {
    base = p & ~15u;
    lz4_fill_window(all, at + base);
  }

  // Ensures that the window has `n` bytes from position `p` on.
  __device__ __forceinline__ void need(u32 p, u32 n) {
    if (p - base > LZ4_WINDOW - n) move_to(p);
  }

  // Adds the bytes that extend a length of 15 or 19. Returns false if the length exceeds `max`.
  __device__ __forceinline__ bool extend(u32& p, u32& length, u32 max) {
    while (p < end && length <= max) {
      need(p, 32);
      u32 byte = window()[p - base + lz4_lane()];
      u32 others = __ballot_sync(WARP, byte != 255);
      u32 n = others ? __ffs(others) - 1 : 32;
      length += 255 * n;
      p += n;
      if (others == 0) continue;
      length += __shfl_sync(WARP, byte, n);
      p++;
      return true;
    }
    return false;
  }
};

DEVICE u32 lz4_any_bits(u32 bits) {
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
  return __reduce_or_sync(WARP, bits);
#else
#pragma unroll
  for (u32 step = 16; step > 0; step /= 2) bits |= __shfl_xor_sync(WARP, bits, step);
  return bits;
#endif
}

template <bool IS_OUTPUT, class T>
DEVICE T lz4_load(const T* at) {
  return IS_OUTPUT ? load(at) : __ldg(at);
}

// Copies `n` bytes. The source is the input, or output at least LZ4_DISTANCE bytes before. Not
// inlined, because long copies are rare.
template <bool IS_OUTPUT>
static __device__ __noinline__ void lz4_copy(u8* to, const u8* from, u32 n) {
  u32 lane = lz4_lane();
  u32 head = n, words = 0;
  if (n >= 64) {
    // The loads of words stay within the source, because bytes at both ends are copied one by one.
    head = 4 + ((0 - (u32)(u64)to) & 3);
    words = (n - head - 8) / 4;
  }
#pragma unroll 1
  for (u32 i = lane; i < head; i += 32) store(to + i, lz4_load<IS_OUTPUT>(from + i));
  u32 skew = (u32)(u64)(from + head) & 3;
  const u32* begin = (const u32*)(from + head - skew);
#pragma unroll 1
  for (u32 first = 0; first < words; first += 128) {
    u32 low[4], high[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      u32 i = first + k * 32 + lane;
      low[k] = high[k] = 0;
      if (i < words) low[k] = lz4_load<IS_OUTPUT>(begin + i);
      if (i < words && skew != 0) high[k] = lz4_load<IS_OUTPUT>(begin + i + 1);
    }
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      u32 i = first + k * 32 + lane;
      u64 both = (u64)high[k] << 32 | low[k];
      if (i < words) store((u32*)(to + head) + i, (u32)(both >> (skew * 8)));
    }
    if (IS_OUTPUT) __syncwarp();
  }
#pragma unroll 1
  for (u32 i = head + words * 4 + lane; i < n; i += 32) store(to + i, lz4_load<IS_OUTPUT>(from + i));
}

// The output of a block. If the blocks are linked, `outside` has a number for each byte: how far
// before the block its source is, or 0. The numbers are 0 initially.
struct Lz4Output {
  u8* block;
  u16* outside;
  // The number of bytes written, and of bytes that may be written.
  u32 done;
  u32 room;
  // The number of bytes before the block to which matches may refer.
  u32 before;
};

// A byte, and its number in `outside`.
struct Lz4Byte {
  u8 value;
  u16 outside;
};

// The byte at position `i` relative to the block.
template <bool IS_LINKED>
DEVICE Lz4Byte lz4_earlier_byte(const Lz4Output& out, i32 i) {
  Lz4Byte byte = {0, 0};
  if (IS_LINKED && i < 0) {
    byte.outside = (u16)-i;
    return byte;
  }
  byte.value = load(out.block + i);
  if (IS_LINKED) byte.outside = load(out.outside + i);
  return byte;
}

template <bool IS_LINKED>
DEVICE void lz4_put(const Lz4Output& out, u32 i, Lz4Byte byte) {
  store(out.block + i, byte.value);
  if (IS_LINKED && byte.outside != 0) store(out.outside + i, byte.outside);
}

// Copies a match of `n` bytes. Not inlined, because long matches are rare.
template <bool IS_LINKED>
static __device__ __noinline__ void lz4_copy_match(Lz4Output out, u32 offset, u32 n) {
  u32 lane = lz4_lane();
  // Repeats the bytes before the match: all of it if the blocks are linked, otherwise until the
  // distance is large enough for whole words.
  u32 distance = offset * ((LZ4_DISTANCE - 1) / offset + 1), first = n;
  if (!IS_LINKED) first = n < distance - offset ? n : distance - offset;
  u32 step = 32 % offset, i = lane % offset;
#pragma unroll 1
  for (u32 k = lane; k < first; k += 32) {
    lz4_put<IS_LINKED>(out, out.done + k, lz4_earlier_byte<IS_LINKED>(out, (i32)(out.done - offset + i)));
    i += step;
    if (i >= offset) i -= offset;
  }
  __syncwarp();
  u8* to = out.block + out.done + first;
  if (n > first) lz4_copy<true>(to, to - distance, n - first);
}

// The source of output byte `x` of a group: a literal, or a byte of the output relative to the
// beginning of the group.
DEVICE i32 lz4_source(ulonglong2 sequence, u32 x) {
  u32 low = (u32)sequence.x, high = (u32)(sequence.x >> 32);
  u32 i = x - (low & 0xffff), literals = low >> 16, offset = high >> 16;
  if (i < literals) return (i32)(LZ4_LITERAL + (high & 0xffff) + i);
  u32 repeats = (i - literals) * (u32)sequence.y >> 16;
  return (i32)(x - offset - repeats * offset);
}

// The byte of a group with this source.
template <bool IS_LINKED>
DEVICE Lz4Byte lz4_byte(const Lz4Input& in, const Lz4Output& out, i32 source) {
  Lz4Byte literal = {0, 0};
  if (source < LZ4_LITERAL) return lz4_earlier_byte<IS_LINKED>(out, (i32)out.done + source);
  literal.value = in.window()[source - LZ4_LITERAL];
  return literal;
}

// Decodes the sequences that begin at the 32 bytes from position `p` on, as far as they are short
// enough. Returns the number of bytes written: 0 if the first sequence is too long, and LZ4_WRONG
// for an error.
template <bool IS_LINKED>
DEVICE u32 lz4_group(Lz4Input& in, u32& p, const Lz4Output& out) {
  u32 lane = lz4_lane(), up_to = WARP >> (31 - lane);
  Lz4Scratch& scratch = lz4_own_scratch();
  const u8* window = in.window();
  u32 at = p - in.base, limit = in.end - in.base;
  u32 token = window[at + lane];
  u32 literals = token >> 4, length = token & 15, from = at + lane + 1;
  u32 more = 0;
  if (literals == 15) more = window[from++];
  literals += more;
  // A length of 15 + 255 or more continues in another byte. It is too long in any case.
  bool is_short = literals <= LZ4_GROUP;
  u32 next = from + (is_short ? literals : 0);
  u32 offset = window[next] | (u32)window[next + 1] << 8;
  next += 2;
  if (length == 15) length += window[next++];
  u32 n = literals + length + 4;
  // After a sequence with a match, there is another sequence.
  is_short = is_short && n <= LZ4_GROUP && next < limit;
  if ((__ballot_sync(WARP, is_short) & 1) == 0) return 0;
  next -= at;
  // Each round doubles the length of the chains. At most 11 sequences begin in 32 bytes.
  u32 chain = is_short ? 1u << lane : 0, behind = is_short ? next : 32, sum = is_short ? n : 0;
#pragma unroll
  for (u32 round = 0; round < 4; round++) {
    u32 lane_behind = behind & 31;
    u32 chain_behind = __shfl_sync(WARP, chain, lane_behind);
    u32 sum_behind = __shfl_sync(WARP, sum, lane_behind);
    u32 far_behind = __shfl_sync(WARP, behind, lane_behind);
    if (behind >= 32) continue;
    chain |= chain_behind;
    sum += sum_behind;
    behind = far_behind;
  }
  u32 start = __shfl_sync(WARP, sum, 0) - sum;
  bool is_begin = (__shfl_sync(WARP, chain, 0) >> lane & 1) != 0 && start + n <= LZ4_GROUP;
  u32 begins = __ballot_sync(WARP, is_begin);
  u32 last = 31 - __clz(begins);
  u32 total = __shfl_sync(WARP, start + n, last);
  bool is_wrong = is_begin && (offset == 0 || offset > out.before + out.done + start + literals);
  if (__ballot_sync(WARP, is_wrong) != 0 || total > out.room - out.done) return LZ4_WRONG;
  u32 mark = is_begin ? 1u << (start & 31) : 0;
  u32 marks_low = lz4_any_bits(start < 32 ? mark : 0), marks_high = lz4_any_bits(start < 32 ? 0 : mark);
  if (is_begin) {
    // A longer offset exceeds every match of a group.
    u32 inverse = offset < LZ4_GROUP ? (u32)(65536.0f / (float)offset) + 1 : 0;
    u64 word = (u64)(from | offset << 16) << 32 | (start | literals << 16);
    scratch.sequences[__popc(begins & up_to) - 1] = make_ulonglong2(word, inverse);
  }
  __syncwarp();
  u32 low = __popc(marks_low & up_to) - 1, high = __popc(marks_low) + __popc(marks_high & up_to) - 1;
  bool has_low = lane < total, has_high = lane + 32 < total;
  i32 low_from = has_low ? lz4_source(scratch.sequences[low], lane) : -1;
  i32 high_from = has_high ? lz4_source(scratch.sequences[high], lane + 32) : -1;
  while (__ballot_sync(WARP, (u32)low_from < LZ4_GROUP || (u32)high_from < LZ4_GROUP) != 0) {
    u32 low_lane = (u32)low_from & 31, high_lane = (u32)high_from & 31;
    i32 low_low = (i32)__shfl_sync(WARP, low_from, low_lane);
    i32 low_high = (i32)__shfl_sync(WARP, high_from, low_lane);
    i32 high_low = (i32)__shfl_sync(WARP, low_from, high_lane);
    i32 high_high = (i32)__shfl_sync(WARP, high_from, high_lane);
    if ((u32)low_from < LZ4_GROUP) low_from = low_from < 32 ? low_low : low_high;
    if ((u32)high_from < LZ4_GROUP) high_from = high_from < 32 ? high_low : high_high;
  }
  Lz4Byte low_byte, high_byte;
  if (has_low) low_byte = lz4_byte<IS_LINKED>(in, out, low_from);
  if (has_high) high_byte = lz4_byte<IS_LINKED>(in, out, high_from);
  if (has_low) lz4_put<IS_LINKED>(out, out.done + lane, low_byte);
  if (has_high) lz4_put<IS_LINKED>(out, out.done + lane + 32, high_byte);
  p += __shfl_sync(WARP, next, last);
  // The next sequences read this output, and use the same scratch memory.
  __syncwarp();
  return total;
}

// Decodes a block. Returns the number of bytes written, or LZ4_WRONG. Not inlined, so that the
// variables of the caller are not in registers meanwhile.
template <bool IS_LINKED>
static __device__ __noinline__ u32 lz4_block(Lz4Input in, u32 p, Lz4Output out) {
  in.move_to(p);
#pragma unroll 1
  while (p < in.end) {
    // The last lane's sequence has up to 1 + 1 + 64 + 2 + 1 bytes.
    in.need(p, 128);
    u32 n = lz4_group<IS_LINKED>(in, p, out);
    if (n == LZ4_WRONG) return LZ4_WRONG;
    out.done += n;
    if (n != 0) continue;
    u32 token = in.window()[p - in.base];
    p++;
    u32 literals = token >> 4, length = (token & 15) + 4;
    if (literals == 15 && !in.extend(p, literals, out.room)) return LZ4_WRONG;
    if (literals > in.end - p || literals > out.room - out.done) return LZ4_WRONG;
    lz4_copy<false>(out.block + out.done, in.at + p, literals);
    p += literals;
    out.done += literals;
    if (p == in.end) return out.done;
    if (in.end - p < 2) return LZ4_WRONG;
    in.need(p, 2);
    u32 offset = in.window()[p - in.base] | (u32)in.window()[p - in.base + 1] << 8;
    p += 2;
    if (length == 19 && !in.extend(p, length, out.room)) return LZ4_WRONG;
    if (offset == 0 || offset > out.before + out.done || length > out.room - out.done) return LZ4_WRONG;
    __syncwarp();
    lz4_copy_match<IS_LINKED>(out, offset, length);
    out.done += length;
    __syncwarp();
  }
  return LZ4_WRONG;
}

// The 32 bits from byte `i` on, which need not be aligned; 0 outside of the range.
DEVICE u32 lz4_header(Bytes from, u64 i) {
  if (from.len < 4 || i > from.len - 4) return 0;
  u32 word = 0;
#pragma unroll
  for (u32 k = 0; k < 4; k++) word |= (u32)__ldg(from.at + i + k) << (8 * k);
  return word;
}

// Whether the bytes from the end mark of a frame on are the mark and less than 64 bytes of zeros.
DEVICE bool lz4_is_end(Bytes from, u64 i) {
  if (i > from.len || from.len - i < 4 || from.len - i >= 68) return false;
  bool is_zero = true;
  for (u64 k = i + lz4_lane(); k < from.len; k += 32) is_zero = is_zero && __ldg(from.at + k) == 0;
  return __ballot_sync(WARP, !is_zero) == 0;
}

// The words of a buffer in the list of buffers: the number of pieces before it, the range of its
// frame's blocks, or of its content if it is not compressed, the range of its output, and the size
// of a block, which only the last block may not have. This is 0 if the buffer is not compressed,
// and its highest bit is set if the blocks are linked.
enum { LZ4_PIECES, LZ4_BEGIN, LZ4_END, LZ4_TO, LZ4_BYTES, LZ4_BLOCK, LZ4_WORDS };
#define LZ4_LINKED (1ull << 63)

struct Lz4Buffer {
  Bytes frame;
  Target to;
  u16* outside;
  // The size of a piece.
  u64 size;
  bool is_compressed;
  bool is_linked;
};

// Reads buffer `i`. Returns false if one of its ranges is wrong. `from` may be empty.
DEVICE bool lz4_read_buffer(Bytes buffers, u64 i, Bytes from, Target to, Target outside, Lz4Buffer& buffer) {
  u64 word = i * LZ4_WORDS, begin = word_at<u64>(buffers, word + LZ4_BEGIN);
  u64 end = word_at<u64>(buffers, word + LZ4_END), first = word_at<u64>(buffers, word + LZ4_TO);
  u64 bytes = word_at<u64>(buffers, word + LZ4_BYTES), block = word_at<u64>(buffers, word + LZ4_BLOCK);
  if (first > to.len || bytes > to.len - first) return false;
  buffer.to.at = to.at + first;
  buffer.to.len = bytes;
  buffer.is_compressed = block != 0;
  buffer.is_linked = (block & LZ4_LINKED) != 0;
  buffer.size = block == 0 ? LZ4_PLAIN_PIECE : block & ~LZ4_LINKED;
  if (buffer.size == 0 || buffer.size > LZ4_MAX_BLOCK) return false;
  buffer.outside = 0;
  if (buffer.is_linked) {
    if (((u64)outside.at & 1) != 0 || outside.len / 2 < to.len) return false;
    buffer.outside = (u16*)outside.at + first;
  }
  if (begin > end || end > from.len) return false;
  // The loads of a window stay within the bytes of the frame.
  buffer.frame.at = from.at + begin;
  buffer.frame.len = end - begin;
  return true;
}

// Decodes a piece of a buffer. Returns whether it is right.
DEVICE bool lz4_piece(const Lz4Buffer& buffer, u64 piece) {
  Bytes frame = buffer.frame;
  if (piece > buffer.to.len / buffer.size) return false;
  u64 start = piece * buffer.size, rest = buffer.to.len - start, i = 0;
  u32 n = (u32)min64(rest, buffer.size);
  u8* to = buffer.to.at + start;
  if (!buffer.is_compressed) {
    if (start > frame.len || n > frame.len - start) return false;
    lz4_copy<false>(to, frame.at + start, n);
    return true;
  }
#pragma unroll 1
  for (u64 k = 0; k < piece; k++) {
    u32 header = lz4_header(frame, i);
    if (header == 0) return false;
    i += 4 + (u64)(header & 0x7fffffffu);
  }
  u32 header = lz4_header(frame, i), stored = header & 0x7fffffffu;
  if (header == 0 || stored > frame.len - i - 4 || stored > LZ4_MAX_BLOCK) return false;
  const u8* begin = frame.at + i + 4;
  if ((header >> 31) != 0) {
    if (stored != n) return false;
    lz4_copy<false>(to, begin, n);
  } else {
    u32 skew = (u32)(u64)begin & 15, before = buffer.is_linked ? (u32)min64(start, LZ4_MAX_OFFSET) : 0;
    Lz4Input in = {frame, begin - skew, skew + stored, 0};
    Lz4Output out = {to, buffer.is_linked ? buffer.outside + start : 0, 0, n, before};
    if ((buffer.is_linked ? lz4_block<true>(in, skew, out) : lz4_block<false>(in, skew, out)) != n) return false;
  }
  return rest > n || lz4_is_end(frame, i + 4 + stored);
}

// The last of `n` buffers that begins at or before piece `piece` of all pieces.
DEVICE u64 lz4_buffer_of(Bytes buffers, u64 n, u64 piece) {
  u64 low = 0, high = n;
  while (high - low > 1) {
    u64 middle = (low + high) / 2;
    if (word_at<u64>(buffers, middle * LZ4_WORDS + LZ4_PIECES) <= piece) low = middle;
    else high = middle;
  }
  return low;
}

KERNEL_BLOCKS(crossdock_decompress_lz4, 4) {
  PARAMS(FROM, BUFFERS, PIECES, TO, OUTSIDE, CELL);
  FIND_JOB;
  Bytes from = job.read(FROM), buffers = job.read(BUFFERS);
  Target to = job.write(TO), outside = job.write(OUTSIDE);
  u64 n = buffers.len / (8 * LZ4_WORDS), pieces = job.value(PIECES), wrong = NONE;
#pragma unroll 1
  for (u64 piece = job.thread / 32; piece < pieces && n > 0; piece += job.threads / 32) {
    u64 i = lz4_buffer_of(buffers, n, piece), before = word_at<u64>(buffers, i * LZ4_WORDS + LZ4_PIECES);
    Lz4Buffer buffer;
    bool is_right = piece >= before && lz4_read_buffer(buffers, i, from, to, outside, buffer) &&
                    lz4_piece(buffer, piece - before);
    if (!is_right) wrong = min64(wrong, i);
    __syncwarp();
  }
  report(job.write(CELL), wrong);
}

// Pieces of a frame, which follow each other. A group ends with its frame, or before a piece whose
// number among all pieces is a multiple of LZ4_GROUP_PIECES. Positions are relative to the frame.
struct Lz4Pieces {
  u64 begin;
  u64 end;

  // The position from which on matches of the next group may refer to this one.
  __device__ __forceinline__ u64 tail() const {
    return end - begin > LZ4_MAX_OFFSET ? end - LZ4_MAX_OFFSET : begin;
  }
};

// The group of piece `piece`, if the first piece of the frame is `first`.
DEVICE Lz4Pieces lz4_group_of(const Lz4Buffer& buffer, u64 piece, u64 first) {
  u64 number = piece / LZ4_GROUP_PIECES * LZ4_GROUP_PIECES;
  Lz4Pieces group;
  group.begin = number > first ? (number - first) * buffer.size : 0;
  group.end = min64((number + LZ4_GROUP_PIECES - first) * buffer.size, buffer.to.len);
  return group;
}

// Sources, as numbers in `outside` refer to them: a number of at most `before` is a distance to a
// byte before `at`. A higher number refers to a byte before the group.
struct Lz4Sources {
  const u8* at;
  const u16* outside;
  u32 before;
};

// Resolves the numbers of the `n` bytes from `to` on. If IS_LAST, all sources are complete, and no
// number remains.
template <bool IS_LAST>
static __device__ __noinline__ void lz4_resolve(u8* to, u16* outside, u32 n, Lz4Sources from) {
  enum { N = IS_LAST ? 32 : 16 };
  // Neighbouring threads have neighbouring bytes, because their sources often are neighbours, too.
  // All loads come before the first store, so that they overlap.
#pragma unroll 1
  for (u32 first = threadIdx.x; first < n; first += THREADS * N) {
    u16 number[N], left[N];
    u8 byte[N];
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      u32 i = first + k * THREADS;
      number[k] = i < n ? load(outside + i) : 0;
    }
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      u32 away = number[k];
      bool is_known = away != 0 && away <= from.before;
      byte[k] = is_known ? load(from.at - away) : 0;
      left[k] = (u16)(away - from.before);
      if (!IS_LAST && is_known) left[k] = load(from.outside - away);
    }
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      u32 i = first + k * THREADS;
      if (number[k] != 0 && number[k] <= from.before) store(to + i, byte[k]);
      if (!IS_LAST && number[k] != 0) store(outside + i, left[k]);
    }
  }
}

// Completes the bytes from `begin` to `end`, whose numbers refer to the beginning of a group.
DEVICE void lz4_complete(const Lz4Buffer& buffer, u64 group, u64 begin, u64 end) {
  Lz4Sources from = {buffer.to.at + group, buffer.outside + group, (u32)min64(group, LZ4_MAX_OFFSET)};
  if (begin < end) lz4_resolve<true>(buffer.to.at + begin, buffer.outside + begin, (u32)(end - begin), from);
}

// Completes the tails of the groups of a frame, one after the other.
DEVICE void lz4_complete_tails(const Lz4Buffer& buffer, u64 first) {
  Lz4Pieces group = {};
#pragma unroll 1
  for (u64 piece = first; group.end < buffer.to.len; piece += LZ4_GROUP_PIECES) {
    group = lz4_group_of(buffer, piece, first);
    if (group.begin == 0) continue;
    lz4_complete(buffer, group.begin, group.tail(), group.end);
    __syncthreads();
  }
}

// Completes the bytes whose sources are before their pieces. A chain of sources may lead through
// all pieces of a frame, so there are three steps. Each is a launch.
// 0. Resolves the numbers within each group, one piece after the other. The remaining numbers refer
//    to the beginning of the group.
// 1. Completes the tails of the groups of each frame, one group after the other.
// 2. Completes all other bytes. Their sources are in the tails.
KERNEL_BLOCKS(crossdock_resolve_lz4, 2) {
  PARAMS(BUFFERS, PIECES, STEP, TO, OUTSIDE);
  FIND_JOB;
  Bytes buffers = job.read(BUFFERS), none = {0, 0};
  Target to = job.write(TO), outside = job.write(OUTSIDE);
  u64 n = buffers.len / (8 * LZ4_WORDS), pieces = job.value(PIECES), step = job.value(STEP);
  u64 begin = job.thread / THREADS, stride = job.threads / THREADS;
  u64 size = step == 0 ? LZ4_GROUP_PIECES : 1, end = step == 1 ? n : (pieces + size - 1) / size;
  if (n == 0) return;
#pragma unroll 1
  for (u64 i = begin; i < end; i += stride) {
#pragma unroll 1
    for (u64 k = 0; k < size; k++) {
      u64 piece = i * size + k, number = step == 1 ? i : lz4_buffer_of(buffers, n, piece);
      u64 first = word_at<u64>(buffers, number * LZ4_WORDS + LZ4_PIECES);
      Lz4Buffer buffer = {};
      lz4_read_buffer(buffers, number, none, to, outside, buffer);
      if (!buffer.outside) continue;
      if (step == 1) {
        lz4_complete_tails(buffer, first);
        continue;
      }
      u64 at = (piece - first) * buffer.size;
      if (piece < first || at >= buffer.to.len) continue;
      u64 up_to = min64(at + buffer.size, buffer.to.len);
      Lz4Pieces group = lz4_group_of(buffer, piece, first);
      if (step == 2) {
        lz4_complete(buffer, group.begin, at, min64(up_to, group.tail()));
      } else if (at > group.begin) {
        Lz4Sources from = {buffer.to.at + at, buffer.outside + at, (u32)(at - group.begin)};
        lz4_resolve<false>(buffer.to.at + at, buffer.outside + at, (u32)(up_to - at), from);
        __syncthreads();
      }
    }
  }
}
