// A cell is a u64 that the host reads after a launch. A kernel writes a number to the cell, for
// example the index of the first error.
#pragma once
#include "job.cuh"

#define NONE 0xffffffffffffffffull
#define WARP 0xffffffffu

DEVICE u64 min64(u64 a, u64 b) { return a < b ? a : b; }
DEVICE u64 max64(u64 a, u64 b) { return a > b ? a : b; }

DEVICE u64* cell_of(Target target) {
  return target.len == 8 && ((u64)target.at & 7) == 0 ? (u64*)target.at : 0;
}

// Lowers the cell to the minimum of the indices that the warp's threads pass. NONE stands for no
// index. All threads of the warp must call this together.
DEVICE void report(Target target, u64 index) {
  if (__ballot_sync(WARP, index != NONE) == 0) return;
  for (u32 step = 16; step > 0; step /= 2) index = min64(index, __shfl_xor_sync(WARP, index, step));
  u64* cell = cell_of(target);
  if ((threadIdx.x & 31) == 0 && index != NONE && cell) atomicMin(cell, index);
}

// Adds the sum of the block's counts to the cell. All threads of the block must call this together.
DEVICE void add(Target target, u64 n) {
  __shared__ u64 sums[THREADS / 32];
  for (u32 step = 16; step > 0; step /= 2) n += __shfl_xor_sync(WARP, n, step);
  if ((threadIdx.x & 31) == 0) sums[threadIdx.x / 32] = n;
  __syncthreads();
  u64* cell = cell_of(target);
  if (threadIdx.x != 0 || !cell) return;
  u64 sum = 0;
  for (u32 i = 0; i < THREADS / 32; i++) sum += sums[i];
  if (sum != 0) atomicAdd(cell, sum);
}
