// A launch has a list of jobs. Their arguments follow each other in the arguments of the launch.
// The first argument of a job is its head. The lower half of the head is the exclusive end of the
// job's blocks. The upper half is the number of the job's arguments, including the head. The
// arguments after the head are those of the kernel; PARAMS names them.
#pragma once
#include "crossdock.cuh"

#define DEVICE static __device__ __forceinline__
#define THREADS 256
#define KERNEL(name) \
  extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ crossdock_kernel_args launch)
// Limits registers so that a multiprocessor can run this number of blocks at once.
#define KERNEL_BLOCKS(name, blocks) \
  extern "C" __global__ void __launch_bounds__(THREADS, blocks) name(const __grid_constant__ crossdock_kernel_args launch)
// The names of a job's arguments, in the order of rows.rs.
#define PARAMS(...) enum { HEAD, __VA_ARGS__ }

// All stores use this function, and all loads of read-only data use __ldg, so that an emulator can
// check them. `load` is for data that the same kernel writes.
#ifndef EMULATED
template <class T>
DEVICE void store(T* at, T value) {
  *at = value;
}

template <class T>
DEVICE T load(const T* at) {
  return *at;
}
#endif

// Bytes that a job reads.
struct Bytes {
  const u8* at;
  u64 len;
};

// Bytes that a job writes.
struct Target {
  u8* at;
  u64 len;
};

struct Job {
  const crossdock_arg* args;
  u32 n;
  // The index of this thread in the job, and the number of the job's threads.
  u64 thread;
  u64 threads;

  __device__ __forceinline__ u64 value(u32 i) const { return is(i, CROSSDOCK_ARG_VALUE) ? args[i].value : 0; }

  __device__ __forceinline__ Bytes read(u32 i) const {
    Bytes none = {0, 0};
    if (!is(i, CROSSDOCK_ARG_READ)) return none;
    Bytes bytes = {(const u8*)args[i].value, args[i].bytes};
    return bytes;
  }

  __device__ __forceinline__ Target write(u32 i) const {
    Target none = {0, 0};
    if (!is(i, CROSSDOCK_ARG_WRITE)) return none;
    Target target = {(u8*)args[i].value, args[i].bytes};
    return target;
  }

  __device__ __forceinline__ bool is(u32 i, u32 kind) const { return i < n && args[i].kind == kind; }
};

// Finds the job of this block. Returns false if the block belongs to no job.
DEVICE bool find_job(const crossdock_kernel_args& launch, Job& job) {
  u32 begin = 0;
  u64 n_args = launch.n_args < CROSSDOCK_MAX_KERNEL_ARGS ? launch.n_args : CROSSDOCK_MAX_KERNEL_ARGS;
  for (u64 at = 0; at < n_args;) {
    u64 head = launch.args[at].value;
    u32 end = (u32)head;
    u64 n = head >> 32;
    if (n == 0 || n > n_args - at) return false;
    if (blockIdx.x < end) {
      job.args = launch.args + at;
      job.n = (u32)n;
      job.thread = (u64)(blockIdx.x - begin) * THREADS + threadIdx.x;
      job.threads = (u64)(end - begin) * THREADS;
      return true;
    }
    begin = end;
    at += n;
  }
  return false;
}

#define FIND_JOB            \
  Job job;                  \
  if (!find_job(launch, job)) return
