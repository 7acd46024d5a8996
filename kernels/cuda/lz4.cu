// Decompresses LZ4 frames ("LZ4 Frame Format"). A warp decodes a block.
//
// If the blocks of a frame are linked, matches also refer to the block before, which another warp
// may be decoding. For a byte whose source is there, a warp stores how far before its block the
// source is. Copies of the byte within the block get the same number. crossdock_resolve_lz4 then
// fills in these bytes.
#include "lz4_block.cuh"

#define LZ4_MAX_BLOCK (4u << 20)
#define LZ4_MAX_OFFSET 65535u
// The number of pieces of a group.
#define LZ4_GROUP_PIECES 16
// The size of a piece of a buffer that is not compressed.
#define LZ4_PLAIN_PIECE 65536u

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
