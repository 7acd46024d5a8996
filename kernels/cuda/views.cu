// Checks views and renumbers their buffers. The view of a value of at most 12 bytes contains the
// whole value. The view of a longer value consists of the length, the first 4 bytes, the number of
// the buffer and the offset.
#include "utf8.cuh"

#define MAX_INLINE 12
// The threads of a warp check a value of at least this length together.
#define LONG_BYTES 64

struct View {
  u32 word[4];
  __device__ u32 byte(u64 i) const { return word[i / 4] >> (8 * (i % 4)) & 0xff; }
};

DEVICE View view_at(Bytes views, u64 i) {
  View view;
  const u8* at = views.at + i * 16;
  if (((u64)at & 15) == 0) {
    Pair pair = aligned128(at);
    view.word[0] = (u32)pair.low;
    view.word[1] = (u32)(pair.low >> 32);
    view.word[2] = (u32)pair.high;
    view.word[3] = (u32)(pair.high >> 32);
  } else {
    for (u32 k = 0; k < 4; k++) view.word[k] = word_at<u32>(views, i * 4 + k);
  }
  return view;
}

// Whether an inline value is followed by zeros and, if it is text, is UTF-8.
static __device__ __noinline__ bool short_is_valid(const View& view, u32 len, bool utf8) {
  u64 low = view.word[1] | (u64)view.word[2] << 32;
  u32 high = view.word[3];
  u64 padding = len >= 8 ? (len >= 12 ? 0 : high >> (8 * (len - 8))) : (low >> (8 * len)) | high;
  if (padding != 0) return false;
  if (!utf8 || (((low | high) & HIGH_BITS) == 0)) return true;
  bool is_valid = true;
#pragma unroll 1
  for (u32 i = 0; i < len; i++) {
    is_valid &= utf8_byte([&](u64 at) { return view.byte(4 + at); }, 0, len, i);
  }
  return is_valid;
}

// Whether 8 bytes of a value from byte `at` on, or fewer at its end, are UTF-8.
static __device__ __noinline__ bool long_is_valid(Bytes data, u64 begin, u64 end, u64 at) {
  u64 stop = min64(at + 8, end);
  if (stop - at == 8 && at >= 7 && at + 16 <= data.len && (bits_unchecked(data, at * 8) & HIGH_BITS) == 0) return true;
  bool is_valid = true;
#pragma unroll 1
  for (; at < stop; at++) {
    is_valid &= utf8_byte([=](u64 i) { return (u32)byte_at(data, i); }, begin, end, at);
  }
  return is_valid;
}

KERNEL(crossdock_check_views) {
  PARAMS(VIEWS, VALIDITY, FIRST, UTF8, N_DATA, WINDOW, CELL, DATA);
  FIND_JOB;
  Bytes views = job.read(VIEWS), validity = job.read(VALIDITY);
  u64 first = job.value(FIRST), n_data = job.value(N_DATA), window = job.value(WINDOW);
  bool utf8 = job.value(UTF8) != 0;
  u64 n_here = job.n - DATA;
  u64 n = views.len / 16;
  u64 first_error = NONE;
  // All threads of a warp do the same number of rounds, since they check long values together.
  u64 rounds = (n + job.threads - 1) / job.threads;
  for (u64 round = 0; round < rounds; round++) {
    u64 i = job.thread + round * job.threads;
    bool is_valid = true, is_long = false;
    u64 begin = 0, len = 0;
    Bytes data = {0, 0};
    if (i < n && is_set(validity, first + i)) {
      View view = view_at(views, i);
      i32 length = (i32)view.word[0], buffer = (i32)view.word[2], offset = (i32)view.word[3];
      if (length <= MAX_INLINE) {
        is_valid = window != 0 || (length >= 0 && short_is_valid(view, (u32)length, utf8));
      } else if (buffer < 0 || (u64)buffer >= n_data) {
        is_valid = window != 0;
      } else if ((u64)buffer >= window && (u64)buffer - window < n_here) {
        data = job.read((u32)(DATA + ((u64)buffer - window)));
        begin = (u64)(u32)offset;
        len = (u64)length;
        is_valid = offset >= 0 && begin + len <= data.len;
        for (u32 k = 0; is_valid && k < 4; k++) is_valid = byte_at(data, begin + k) == view.byte(4 + k);
        if (is_valid && utf8 && len < LONG_BYTES) {
          for (u64 at = begin; at < begin + len; at += 8) is_valid &= long_is_valid(data, begin, begin + len, at);
        }
        is_long = is_valid && utf8 && len >= LONG_BYTES;
      }
    }
    for (u32 pending = __ballot_sync(WARP, is_long); pending != 0; pending &= pending - 1) {
      u32 lane = __ffs(pending) - 1;
      Bytes bytes = {(const u8*)__shfl_sync(WARP, (u64)data.at, lane), __shfl_sync(WARP, data.len, lane)};
      u64 from = __shfl_sync(WARP, begin, lane);
      u64 end = from + __shfl_sync(WARP, len, lane);
      bool all = true;
      for (u64 at = from + (threadIdx.x & 31) * 8; at < end; at += 32 * 8) all &= long_is_valid(bytes, from, end, at);
      all = __ballot_sync(WARP, !all) == 0;
      if ((threadIdx.x & 31) == lane) is_valid = all;
    }
    if (!is_valid) first_error = min64(first_error, i);
  }
  report(job.write(CELL), first_error);
}

// Adds ADD to the buffer numbers of views in place. Views are not loaded by __ldg, because its
// cache is not coherent with stores of the same launch.
KERNEL(crossdock_renumber_views) {
  PARAMS(VIEWS, ADD);
  FIND_JOB;
  Target views = job.write(VIEWS);
  u32 more = (u32)job.value(ADD);
  u64 n = views.len / 16;
  if (((u64)views.at & 15) != 0) {
#pragma unroll 1
    for (u64 i = job.thread; i < n; i += job.threads) {
      const u8* at = views.at + i * 16;
      u32 words[2] = {0, 0};
      for (u32 b = 0; b < 4; b++) {
        words[0] |= (u32)at[b] << (8 * b);
        words[1] |= (u32)at[8 + b] << (8 * b);
      }
      if ((i32)words[0] > MAX_INLINE) put_bytewise(views.at + i * 16 + 8, 4, words[1] + more);
    }
    return;
  }
  const u32 AT_ONCE = 4;
  ulonglong2* all = (ulonglong2*)views.at;
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += AT_ONCE * job.threads) {
    ulonglong2 view[AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) view[k] = all[min64(i + k * job.threads, n - 1)];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (i + k * job.threads >= n || (i32)(u32)view[k].x <= MAX_INLINE) continue;
      u64 buffer = (u32)((u32)view[k].y + more);
      store(all + i + k * job.threads, make_ulonglong2(view[k].x, view[k].y >> 32 << 32 | buffer));
    }
  }
}
