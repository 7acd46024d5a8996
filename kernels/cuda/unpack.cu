// Unpacks bit-packed integers, applies steps to them, and optionally replaces some of them by
// patches in the same pass.
#include "packed.cuh"

// Bytes of shared memory for packed rows: the size that every device has without an explicit
// request.
#define ROW_BYTES 49152

// Patches: the value at `indices[i] - first` becomes `values[i]`. A warp holds 32 patches, from
// patch `next` on, while it unpacks adjacent blocks. Patches are loaded one block ahead of their
// use.
template <class T>
struct Patches {
  Bytes indices;
  u32 width;
  u64 first;
  Bytes values;
  // Whether steps are applied to the values of patches.
  bool stepped;
  u64 n;
  u64 next;
  // This thread's patch; the index is NONE if there is none.
  u64 index;
  T value;

  __device__ __forceinline__ u64 index_at(u64 i) const { return (u64)integer_at(indices, i, width, false); }

  __device__ __forceinline__ void begin(u64 from) { next = first_at_least(indices, width, false, 0, n, first + from); }

  __device__ __forceinline__ void load() {
    u64 i = next + threadIdx.x % 32;
    index = i < n ? index_at(i) : NONE;
    value = i < n ? word_at<T>(values, i) : (T)0;
  }

  // Writes the patches at positions `from..end`, to which the whole warp has written before. If
  // indices do not ascend, some patches are skipped.
  __device__ __forceinline__ void put(const Steps<T>& steps, u64 from, u64 end, Target to) {
#pragma unroll 1
    for (;;) {
      u64 place = index - first;
      bool is_in_range = index >= first && place >= from && place < end;
      if (is_in_range) {
        Register<T> word[1] = {value};
        if (stepped) steps.apply(word);
        put_word(to, place, (T)word[0]);
      }
      u32 n_put = __popc(__ballot_sync(WARP, is_in_range));
      next += n_put;
      if (n_put > 0) load();
      if (n_put < 32) return;
    }
  }
};

// Finds the first patch with an error: its index is not greater than the index before it, or its
// position is out of range.
DEVICE u64 first_misplaced(const Job& job, Bytes indices, u32 width, u64 n, u64 first, u64 places) {
  auto wrong = [=](u64 i, Two indices) {
    u64 before = indices.a, index = indices.b;
    return (i > 0 && before >= index) || index < first || index - first >= places;
  };
  auto load_pair = [=](auto at) { return [=](u64 i) { return Two{at(i > 0 ? i - 1 : 0), at(i)}; }; };
  if (width != 4 || !is_aligned(indices, 4)) return first_wrong<1>(job, n, load_pair(Unaligned{indices, width, false}), wrong);
  return first_wrong<8>(job, n, load_pair(Aligned<u32>{(const u32*)indices.at}), wrong);
}

template <class T, bool PATCHED>
DEVICE void unpack(const Job& job, u32 first_step, Bytes packed, u32 bits, u64 first, Target to, u8* shared_rows,
                   Patches<T>* patches) {
  const u32 EACH = 16 / sizeof(T), WORDS = 16 / sizeof(Register<T>), LINES = BLOCK_VALUES * sizeof(T) / LINE_BYTES;
  const u32 ROUNDS = 2;
  u64 n = to.len / sizeof(T), n_blocks = blocks_of(first, n);
  // The launcher ensures that there are enough packed blocks.
  if (first >= BLOCK_VALUES || bits > sizeof(T) * 8 || packed.len / LINE_BYTES < n_blocks * bits) return;
  bool to_aligned = (((u64)to.at - first * sizeof(T)) & 15) == 0;
  u32 lane = threadIdx.x % 32;
  Steps<T> steps(job, first_step);
  Blocks<PATCHED> blocks(job, packed, bits, n_blocks, shared_rows, ROW_BYTES);
  if (PATCHED && blocks.at < blocks.end) {
    patches->begin(blocks.at == 0 ? 0 : blocks.at * BLOCK_VALUES - first);
    patches->load();
  }
#pragma unroll 1
  for (; blocks.at < blocks.end; blocks.advance()) {
    blocks.fetch_next();
    // The position of the block's first value in the target; it wraps if it is before the target.
    u64 begin = blocks.at * BLOCK_VALUES - first, from = blocks.at == 0 ? 0 : begin, end = begin + BLOCK_VALUES;
    bool is_whole = to_aligned && begin == from && end <= n;
    blocks.wait();
#pragma unroll 1
    for (u32 line = 0; line < LINES; line += ROUNDS * LINES_AT_ONCE) {
      Register<T> values[ROUNDS * WORDS];
#pragma unroll
      for (u32 r = 0; r < ROUNDS; r++) {
        blocks.template values_of<T>(line + r * LINES_AT_ONCE + lane / LINE_THREADS, values + r * WORDS);
      }
      steps.apply(values);
      u64 at = line * (LINE_BYTES / sizeof(T)) + lane * EACH;
      if (is_whole) {
#pragma unroll
        for (u32 r = 0; r < ROUNDS; r++) {
          Pair pair;
          memcpy(&pair, values + r * WORDS, 16);
          store128(to.at + (begin + at + r * LINES_AT_ONCE * (LINE_BYTES / sizeof(T))) * sizeof(T), pair);
        }
        continue;
      }
      T unpacked[ROUNDS * EACH];
      memcpy(unpacked, values, sizeof(unpacked));
#pragma unroll 1
      for (u32 k = 0; k < ROUNDS * EACH; k++) {
        u64 i = begin + at + k / EACH * LINES_AT_ONCE * (LINE_BYTES / sizeof(T)) + k % EACH;
        // Positions before the target wrap to values greater than n.
        if (i < n) put_word(to, i, unpacked[k]);
      }
    }
    if (!PATCHED) continue;
    __syncwarp();
    patches->put(steps, from, min64(end, n), to);
  }
}

KERNEL_BLOCKS(crossdock_unpack, 4) {
  PARAMS(PACKED, BITS, FIRST, TO, WIDTH, STEPS);
  FIND_JOB;
  __shared__ ulonglong2 rows[ROW_BYTES / 16];
  u8* shared_rows = (u8*)rows;
  Bytes packed = job.read(PACKED);
  Target to = job.write(TO);
  u64 bits = job.value(BITS), first = job.value(FIRST);
  if (bits > 64) return;
  switch (job.value(WIDTH)) {
    case 1: return unpack<u8, false>(job, STEPS, packed, (u32)bits, first, to, shared_rows, 0);
    case 2: return unpack<u16, false>(job, STEPS, packed, (u32)bits, first, to, shared_rows, 0);
    case 4: return unpack<u32, false>(job, STEPS, packed, (u32)bits, first, to, shared_rows, 0);
    case 8: return unpack<u64, false>(job, STEPS, packed, (u32)bits, first, to, shared_rows, 0);
  }
}

// There is one kernel per width, so that each kernel can use its own number of registers. For words
// of up to 4 bytes, a multiprocessor runs three blocks at once; for 8 bytes, two.
template <class T>
DEVICE void unpack_patched(const Job& job) {
  PARAMS(PACKED, BITS, FIRST, TO, INDICES, INDEX_WIDTH, FIRST_INDEX, VALUES, STEPPED, CELL, STEPS);
  __shared__ ulonglong2 rows[ROW_BYTES / 16];
  Bytes indices = job.read(INDICES), values = job.read(VALUES);
  Target to = job.write(TO);
  u64 bits = job.value(BITS), width = job.value(INDEX_WIDTH);
  if (bits > 64 || (width != 1 && width != 2 && width != 4 && width != 8)) return;
  Patches<T> patches = {indices, (u32)width, job.value(FIRST_INDEX), values, job.value(STEPPED) != 0,
                        indices.len / width, 0, NONE, 0};
  if (words_of<T>(values) < patches.n) return;
  unpack<T, true>(job, STEPS, job.read(PACKED), (u32)bits, job.value(FIRST), to, (u8*)rows, &patches);
  report(job.write(CELL), first_misplaced(job, indices, (u32)width, patches.n, patches.first, to.len / sizeof(T)));
}

KERNEL_BLOCKS(crossdock_unpack_patched_1, 3) {
  FIND_JOB;
  unpack_patched<u8>(job);
}

KERNEL_BLOCKS(crossdock_unpack_patched_2, 3) {
  FIND_JOB;
  unpack_patched<u16>(job);
}

KERNEL_BLOCKS(crossdock_unpack_patched_4, 3) {
  FIND_JOB;
  unpack_patched<u32>(job);
}

KERNEL_BLOCKS(crossdock_unpack_patched_8, 2) {
  FIND_JOB;
  unpack_patched<u64>(job);
}
