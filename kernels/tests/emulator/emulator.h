// Emulates CUDA on a CPU, for tests. The threads of a block are fibers that run in turn, and blocks
// run one after the other. Every load of read-only data and every store is checked against the
// argument ranges of the launch and the alignment of its type.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define EMULATED
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)

struct Dim3 {
  unsigned x;
};
extern Dim3 threadIdx, blockIdx;

struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
static inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }

// Aborts the process with a message. An access outside of the ranges is a bug, even if the results
// are right.
void fault(const char* what, const void* at, size_t bytes);
void check_access(bool write, const void* at, size_t bytes, size_t alignment);
// Waits for all threads of the block, or of the warp.
void meet_block();
void meet_warp();
extern unsigned long long warp_values[32];

template <class T>
static inline T __ldg(const T* at) {
  check_access(false, at, sizeof(T), alignof(T));
  return *at;
}

template <class T>
static inline void store(T* at, T value) {
  check_access(true, at, sizeof(T), alignof(T));
  *at = value;
}

template <class T>
static inline T load(const T* at) {
  check_access(true, at, sizeof(T), alignof(T));
  return *at;
}

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  unsigned long long both = (unsigned long long)high << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) result |= (unsigned)(both >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  return result;
}
static inline int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }

static inline unsigned long long atomicMin(unsigned long long* at, unsigned long long value) {
  check_access(true, at, 8, 8);
  unsigned long long old = *at;
  if (value < old) *at = value;
  return old;
}
static inline unsigned atomicMin(unsigned* at, unsigned value) {
  check_access(true, at, 4, 4);
  unsigned old = *at;
  if (value < old) *at = value;
  return old;
}
static inline unsigned atomicCAS(unsigned* at, unsigned expected, unsigned value) {
  check_access(true, at, 4, 4);
  unsigned old = *at;
  if (old == expected) *at = value;
  return old;
}
static inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
  check_access(true, at, 8, 8);
  unsigned long long old = *at;
  *at += value;
  return old;
}

// Works only on shared memory of a block. This memory is not a range of the launch, so the access
// is not checked.
static inline unsigned atomicOr(unsigned* at, unsigned value) {
  unsigned old = *at;
  *at |= value;
  return old;
}

static inline void __syncthreads() { meet_block(); }
static inline void __syncwarp() { meet_warp(); }
unsigned long long __shfl_sync(unsigned, unsigned long long value, unsigned lane);
unsigned long long __shfl_xor_sync(unsigned, unsigned long long value, unsigned mask);
unsigned __ballot_sync(unsigned, int value);
