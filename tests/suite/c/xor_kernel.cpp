// Runs the kernel of examples/rust-plugin on the CPU, one CUDA thread after another, with sources
// and targets at every alignment. The bytes before and after each target must not change.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMULATED
#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__

struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct Dim3 {
  unsigned x;
};
static Dim3 threadIdx, blockIdx, blockDim = {8}, gridDim = {3};

static const unsigned char* readable;
static size_t n_readable;

template <class T>
static T __ldg(const T* at) {
  size_t first = (size_t)((const unsigned char*)at - readable);
  if (first > n_readable || sizeof(T) > n_readable - first || (uintptr_t)at % alignof(T)) {
    fprintf(stderr, "a read of %zu bytes at %zu of %zu\n", sizeof(T), first, n_readable);
    exit(1);
  }
  return *at;
}

#include "xor.cu"

int main() {
  const size_t SIZES[] = {0, 1, 7, 8, 9, 15, 16, 17, 33, 100, 1000};
  const uint64_t pattern = 0x8877665544332211;
  alignas(16) static unsigned char words[1200], to[1200], before[1200];
  for (size_t i = 0; i < sizeof words; i++) words[i] = (unsigned char)(i * 31 + i / 7);
  int cases = 0;
  for (size_t from_at = 0; from_at < 17; from_at++)
    for (size_t to_at = 1; to_at < 18; to_at += from_at % 3 + 1)
      for (size_t bytes : SIZES) {
        for (size_t i = 0; i < sizeof to; i++) before[i] = to[i] = (unsigned char)(i ^ 0xa5);
        readable = words + from_at;
        n_readable = bytes;
        static crossdock_kernel_args launch;
        launch.n_args = 3;
        launch.args[0] = {(uint64_t)(words + from_at), bytes, CROSSDOCK_ARG_READ, 0};
        launch.args[1] = {(uint64_t)(to + to_at), bytes, CROSSDOCK_ARG_WRITE, 0};
        launch.args[2] = {pattern, 0, CROSSDOCK_ARG_VALUE, 0};
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
          for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) example_xor(launch);
        for (size_t i = 0; i < bytes; i++) before[to_at + i] = words[from_at + i] ^ (unsigned char)(pattern >> (i % 8 * 8));
        if (memcmp(before, to, sizeof to) != 0) {
          fprintf(stderr, "wrong result for %zu bytes from %zu to %zu\n", bytes, from_at, to_at);
          return 1;
        }
        cases++;
      }
  printf("%d cases\n", cases);
  return cases > 1000 ? 0 : 1;
}
