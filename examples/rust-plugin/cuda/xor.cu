// The kernel of example.xor. Compiled into xor.images by
//   cargo xtask kernels --source examples/rust-plugin/cuda/xor.cu
//       --output examples/rust-plugin/cuda/xor.images
#include "crossdock.cuh"

// The arguments of a launch, in the order of src/kernel.rs.
enum { WORDS, TO, PATTERN, N_ARGS };

// Grid-stride loop over items of T.
template <class T>
__device__ __forceinline__ u64 mixed(const u8* from, u8* to, u64 first_byte, u64 bytes, T pattern) {
  u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
  u64 first = first_byte / sizeof(T), n = bytes / sizeof(T);
#pragma unroll 1
  for (u64 i = first + thread; i < n; i += threads) ((T*)to)[i] = __ldg((const T*)from + i) ^ pattern;
  return n * sizeof(T);
}

// Grid-stride loop over items of 16 bytes.
__device__ __forceinline__ u64 mixed_in_pairs(const u8* from, u8* to, u64 bytes, u64 pattern) {
  u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
  u64 n = bytes / 16;
#pragma unroll 4
  for (u64 i = thread; i < n; i += threads) {
    ulonglong2 pair = __ldg((const ulonglong2*)from + i);
    pair.x ^= pattern;
    pair.y ^= pattern;
    ((ulonglong2*)to)[i] = pair;
  }
  return n * 16;
}

// TO[i] = WORDS[i] ^ byte i % 8 of PATTERN. Results equal those of the CPU implementation, and
// accesses stay within the two ranges.
extern "C" __global__ void example_xor(const __grid_constant__ crossdock_kernel_args launch) {
  const crossdock_arg* args = launch.args;
  if (launch.n_args != N_ARGS || args[WORDS].kind != CROSSDOCK_ARG_READ || args[TO].kind != CROSSDOCK_ARG_WRITE) return;
  const u8* from = (const u8*)args[WORDS].value;
  u8* to = (u8*)args[TO].value;
  u64 bytes = args[WORDS].bytes < args[TO].bytes ? args[WORDS].bytes : args[TO].bytes;
  u64 pattern = args[PATTERN].value;
  u64 both = (u64)from | (u64)to, done = 0;
  if (both % 16 == 0) done = mixed_in_pairs(from, to, bytes, pattern);
  if (both % 8 == 0) done = mixed<u64>(from, to, done, bytes, pattern);
  // The remaining bytes, or all bytes if they are too misaligned for wide loads.
  u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
#pragma unroll 1
  for (u64 i = done + thread; i < bytes; i += threads) to[i] = from[i] ^ (u8)(pattern >> (i % 8 * 8));
}
