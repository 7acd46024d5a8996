#include "emulator.h"

#include "all.cu"

Dim3 threadIdx, blockIdx;

namespace {
const unsigned N = THREADS;
const size_t STACK = 128 * 1024;
enum State { RUNS, AT_BLOCK, AT_WARP, DONE };

ucontext_t scheduler, fibers[N];
State states[N];
char* stacks;
unsigned current;
const crossdock_kernel_args* args;
void (*kernel)(crossdock_kernel_args);
unsigned long long values[N];
const char* name = "";

void run_fiber() {
  kernel(*args);
  states[current] = DONE;
  swapcontext(&fibers[current], &scheduler);
}

void meet(State state) {
  unsigned me = current;
  states[me] = state;
  swapcontext(&fibers[me], &scheduler);
}

bool all_at(unsigned begin, unsigned end, State state) {
  bool any = false;
  for (unsigned t = begin; t < end; t++) {
    if (states[t] == state) any = true;
    // It is an error if a thread returns before a barrier at which other threads wait.
    else return false;
  }
  return any;
}

void run_block(unsigned block) {
  for (unsigned t = 0; t < N; t++) {
    getcontext(&fibers[t]);
    fibers[t].uc_stack.ss_sp = stacks + t * STACK;
    fibers[t].uc_stack.ss_size = STACK;
    fibers[t].uc_link = &scheduler;
    makecontext(&fibers[t], run_fiber, 0);
    states[t] = RUNS;
  }
  blockIdx.x = block;
  for (;;) {
    bool ran = false;
    for (unsigned t = 0; t < N; t++) {
      if (states[t] != RUNS) continue;
      ran = true;
      current = threadIdx.x = t;
      swapcontext(&scheduler, &fibers[t]);
    }
    if (ran) continue;
    bool woke = false;
    for (unsigned w = 0; w < N; w += 32) {
      if (!all_at(w, w + 32, AT_WARP)) continue;
      for (unsigned t = w; t < w + 32; t++) states[t] = RUNS;
      woke = true;
    }
    if (!woke && all_at(0, N, AT_BLOCK)) {
      for (unsigned t = 0; t < N; t++) states[t] = RUNS;
      woke = true;
    }
    if (woke) continue;
    for (unsigned t = 0; t < N; t++) {
      if (states[t] != DONE) fault("threads wait at a barrier that others do not reach", 0, t);
    }
    return;
  }
}
}  // namespace

void fault(const char* what, const void* at, size_t bytes) {
  fprintf(stderr, "emulated %s, block %u, thread %u: %s (%p, %zu bytes)\n", name, blockIdx.x, current, what, at, bytes);
  for (uint64_t i = 0; i < args->n_args; i++) {
    const crossdock_arg& arg = args->args[i];
    fprintf(stderr, "  %llu: kind %u, %#llx, %llu bytes\n", (u64)i, arg.kind, arg.value, arg.bytes);
  }
  abort();
}

void check_access(bool write, const void* at, size_t bytes, size_t alignment) {
  uint64_t begin = (uint64_t)at;
  if (begin % alignment != 0) fault("a misaligned address", at, bytes);
  uint32_t kind = write ? CROSSDOCK_ARG_WRITE : CROSSDOCK_ARG_READ;
  // Checks the range of the previous access first, because most accesses are in the same range.
  static uint64_t last[2];
  for (uint64_t i = 0; i <= args->n_args; i++) {
    uint64_t at = i == 0 ? last[write] : i - 1;
    const crossdock_arg& arg = args->args[at];
    if (at >= args->n_args || arg.kind != kind || begin < arg.value || begin + bytes > arg.value + arg.bytes) continue;
    last[write] = at;
    return;
  }
  fault(write ? "a store outside all ranges" : "a load outside all ranges", at, bytes);
}

void meet_block() { meet(AT_BLOCK); }
void meet_warp() { meet(AT_WARP); }

unsigned long long __shfl_sync(unsigned, unsigned long long value, unsigned lane) {
  values[current] = value;
  meet(AT_WARP);
  unsigned long long result = values[current / 32 * 32 + lane % 32];
  meet(AT_WARP);
  return result;
}

unsigned long long __shfl_xor_sync(unsigned mask, unsigned long long value, unsigned lanes) {
  return __shfl_sync(mask, value, (current % 32) ^ lanes);
}

unsigned __ballot_sync(unsigned, int value) {
  values[current] = value != 0;
  meet(AT_WARP);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; lane++) bits |= (unsigned)values[current / 32 * 32 + lane] << lane;
  meet(AT_WARP);
  return bits;
}

// Emulates one launch.
extern "C" void emulate(const char* kernel_name, void* entry, unsigned blocks, const crossdock_arg* list, uint64_t n) {
  static crossdock_kernel_args launch;
  memset(&launch, 0xee, sizeof launch);
  launch.n_args = n;
  memcpy(launch.args, list, n * sizeof *list);
  if (!stacks) stacks = (char*)malloc(N * STACK);
  args = &launch;
  name = kernel_name;
  kernel = (void (*)(crossdock_kernel_args))entry;
  for (unsigned block = 0; block < blocks; block++) run_block(block);
}
