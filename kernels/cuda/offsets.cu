// Checks, rebases and converts offsets.
#include "words.cuh"

KERNEL(crossdock_check_offsets) {
  PARAMS(OFFSETS, WIDTH, LIMIT, CELL);
  FIND_JOB;
  Bytes from = job.read(OFFSETS);
  u32 width = offset_width(job.value(WIDTH));
  i64 limit = limit_of(job.value(LIMIT));
  if (width == 0) return;
  u64 first_error = first_wrong_step(job, from, width, [=](i64 before, i64 offset) { return offset < before || offset > limit; });
  report(job.write(CELL), first_error);
}

DEVICE Pair minus(Pair pair, u32 base) {
  u64 low = (u32)((u32)pair.low - base), high = (u32)((u32)pair.high - base);
  return Pair{low | (u64)((u32)(pair.low >> 32) - base) << 32, high | (u64)((u32)(pair.high >> 32) - base) << 32};
}
DEVICE Pair minus(Pair pair, u64 base) { return Pair{pair.low - base, pair.high - base}; }

// Subtracts `base` from `n` aligned words. A thread processes several vectors of 16 bytes at once.
template <class T>
DEVICE void rebase(const Job& job, T* at, u64 n, T base) {
  const u32 EACH = 16 / sizeof(T), AT_ONCE = 4;
  u64 head = min64(n, ((0 - (u64)at) & 15) / sizeof(T));
  u64 vectors = (n - head) / EACH, after = head + vectors * EACH;
  ulonglong2* middle = (ulonglong2*)(at + head);
#pragma unroll 1
  for (u64 v = job.thread; v < vectors; v += AT_ONCE * job.threads) {
    Pair pairs[AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (v + k * job.threads < vectors) {
        ulonglong2 both = middle[v + k * job.threads];
        pairs[k] = Pair{both.x, both.y};
      }
    }
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (v + k * job.threads < vectors) store128((u8*)(middle + v + k * job.threads), minus(pairs[k], base));
    }
  }
  for (u64 i = job.thread; i < head + (n - after); i += job.threads) {
    u64 k = i < head ? i : after + (i - head);
    store(at + k, (T)(at[k] - base));
  }
}

// Subtracts BASE from offsets in place. Offsets are not loaded by __ldg, because its cache is not
// coherent with stores of the same launch.
KERNEL(crossdock_rebase_offsets) {
  PARAMS(OFFSETS, WIDTH, BASE);
  FIND_JOB;
  Target offsets = job.write(OFFSETS);
  u32 width = offset_width(job.value(WIDTH));
  u64 base = job.value(BASE);
  if (width == 0) return;
  u64 n = offsets.len / width;
  if (((u64)offsets.at & (width - 1)) != 0) {
#pragma unroll 1
    for (u64 i = job.thread; i < n; i += job.threads) {
      u8* at = offsets.at + i * width;
      u64 word = 0;
#pragma unroll 1
      for (u32 b = 0; b < width; b++) word |= (u64)at[b] << (8 * b);
      put_bytewise(at, width, word - base);
    }
  } else if (width == 4) {
    rebase<u32>(job, (u32*)offsets.at, n, (u32)base);
  } else {
    rebase<u64>(job, (u64*)offsets.at, n, base);
  }
}

KERNEL(crossdock_convert_offsets) {
  PARAMS(FROM, WIDTH, BASE, TO, TO_WIDTH, CELL);
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target to = job.write(TO);
  u64 base = job.value(BASE);
  u32 width = offset_width(job.value(WIDTH)), to_width = offset_width(job.value(TO_WIDTH));
  if (width == 0 || to_width == 0) return;
  u64 first_error = with_offsets(from, width, [=](auto at) {
    return first_wrong<decltype(at)::AT_ONCE>(job, min64(from.len / width, to.len / to_width), at, [=](u64 i, i64 offset) {
      offset = (i64)((u64)offset - base);
      if (to_width == 8) {
        put_word<i64>(to, i, offset);
        return false;
      }
      put_word<i32>(to, i, (i32)offset);
      return (i64)(i32)offset != offset;
    });
  });
  report(job.write(CELL), first_error);
}
