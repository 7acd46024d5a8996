/* Allocates device memory from the driver instead of the host. */
#include "base.h"

uint64_t base_scratch_take(int is_wanted) {
  void* driver = is_wanted ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
  int (*retain)(void**, int);
  int (*make_current)(void*);
  int (*take)(uint64_t*, size_t);
  void* context;
  uint64_t scratch;
  if (!driver) return 0;
  retain = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  make_current = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  take = (int (*)(uint64_t*, size_t))dlsym(driver, "cuMemAlloc_v2");
  if (retain(&context, 0) != 0 || make_current(context) != 0 || take(&scratch, 64 << 20) != 0) return 0;
  return scratch;
}

void base_scratch_give(uint64_t scratch) {
  void* driver = scratch ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
  if (!driver) return;
  ((int (*)(uint64_t))dlsym(driver, "cuMemFree_v2"))(scratch);
  ((int (*)(void*))dlsym(driver, "cuCtxSetCurrent"))(NULL);
  ((int (*)(int))dlsym(driver, "cuDevicePrimaryCtxRelease_v2"))(0);
}
