// Offsets: checked, rebased, and made wider or narrower.
#include "words.cuh"

KERNEL(crossdock_check_offsets) {
  PARAMS(OFFSETS, WIDTH, LIMIT, CELL);
  FIND_JOB;
  Bytes from = job.read(OFFSETS);
  u32 width = offset_width(job.value(WIDTH));
  i64 limit = limit_of(job.value(LIMIT));
  if (width == 0) return;
  u64 found = with_offsets(from, width, [=](auto at) {
    auto load = [=](u64 i) { return Two{i == 0 ? 0 : at(i - 1), at(i)}; };
    return first_wrong<decltype(at)::AT_ONCE>(job, from.len / width, load, [=](u64, Two two) { return two.b < two.a || two.b > limit; });
  });
  report(job.write(CELL), found);
}

// In place: what is read is written in the same launch, and not to be cached as if it were constant.
KERNEL(crossdock_rebase_offsets) {
  PARAMS(OFFSETS, WIDTH, BASE);
  FIND_JOB;
  Target offsets = job.write(OFFSETS);
  u32 width = offset_width(job.value(WIDTH));
  u64 base = job.value(BASE);
  if (width == 0) return;
  bool aligned = ((u64)offsets.at & (width - 1)) == 0;
  u64 n = offsets.len / width;
#pragma unroll 2
  for (u64 i = job.thread; i < n; i += job.threads) {
    u8* at = offsets.at + i * width;
    if (!aligned) {
      u64 word = 0;
#pragma unroll 1
      for (u32 b = 0; b < width; b++) word |= (u64)at[b] << (8 * b);
      put_bytewise(at, width, word - base);
    } else if (width == 4) {
      store((u32*)at, *(u32*)at - (u32)base);
    } else {
      store((u64*)at, *(u64*)at - base);
    }
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
  u64 found = with_offsets(from, width, [=](auto at) {
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
  report(job.write(CELL), found);
}
