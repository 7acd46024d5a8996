// Finds runs among the values of a warp.
#pragma once
#include "wide.cuh"

// The number of values that a warp expands at a time: a piece. Each lane has a bitmap of 32 of
// these values. A bit is set if a run begins at the value.
#define EXPANDED 1024

// The begins of runs among the values of a warp. `bits` is the bitmap of this lane's 32 values.
// `before` is the number of begins among the values of lower lanes.
struct Begins {
  u32 bits;
  u32 before;

  // The number of begins up to value `i`. `from` becomes the bitmap from value `i` on.
  __device__ __forceinline__ u32 up_to(u32 i, u32& from) const {
    u32 word = __shfl_sync(WARP, bits, i / 32), counted = __shfl_sync(WARP, before, i / 32);
    from = word >> i % 32;
    return counted + __popc(word & ((2u << i % 32) - 1));
  }
};

// Finds the begins of the runs from `base` on. `end_at` returns the end of a run, or the maximum of
// U if there is no such run. The loop terminates even if ends do not ascend. Ends::wrong reports
// that error.
template <class U, class EndAt>
DEVICE Begins begins_of(u32* marks, const EndAt& end_at, U base, U origin, U covered) {
  u32 lane = threadIdx.x % 32;
  u32* warp_marks = marks + threadIdx.x - lane;
  warp_marks[lane] = 0;
  __syncwarp();
#pragma unroll 1
  for (U run = base; run <= base + EXPANDED; run += 32) {
    U end = end_at(run + lane), place = end - origin;
    if (end >= origin && place < EXPANDED) atomicOr(warp_marks + place / 32, 1u << place % 32);
    if (__ballot_sync(WARP, end >= covered)) break;
  }
  __syncwarp();
  Begins begins = {warp_marks[lane], 0};
  u32 all = __popc(begins.bits);
#pragma unroll
  for (u32 step = 1; step < 32; step *= 2) {
    u32 lower = __shfl_sync(WARP, all, lane - step);
    if (lane >= step) all += lower;
  }
  begins.before = all - __popc(begins.bits);
  return begins;
}
