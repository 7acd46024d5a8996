// Cells: numbers that the host reads.
#pragma once
#include "job.cuh"

#define NOTHING 0xffffffffffffffffull
#define WARP 0xffffffffu

DEVICE u64 min64(u64 a, u64 b) { return a < b ? a : b; }
DEVICE u64 max64(u64 a, u64 b) { return a > b ? a : b; }

DEVICE u64* cell_of(Target target) {
  return target.len == 8 && ((u64)target.at & 7) == 0 ? (u64*)target.at : 0;
}

// Lowers the cell to the lowest index that a thread of the warp found; NOTHING where it found none. Its threads come here
// together, and wait for no other warp.
DEVICE void report(Target target, u64 found) {
  if (__ballot_sync(WARP, found != NOTHING) == 0) return;
  for (u32 step = 16; step > 0; step /= 2) found = min64(found, __shfl_xor_sync(WARP, found, step));
  u64* cell = cell_of(target);
  if ((threadIdx.x & 31) == 0 && found != NOTHING && cell) atomicMin(cell, found);
}

// Adds what the threads of the block counted to the cell. All of them come here together.
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
