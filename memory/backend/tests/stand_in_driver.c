/* A stand-in for libcuda.so. The environment sets the number of devices and the result of
   cuInit. */
#include <stdlib.h>
#include <string.h>

static int number(const char* name, int default_value) {
  const char* text = getenv(name);
  return text ? atoi(text) : default_value;
}

int cuInit(unsigned flags) { return flags ? 1 : number("STAND_IN_INIT", 0); }

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = number("STAND_IN_DEVICES", 1);
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 40; /* a handle is not an ordinal */
  return 0;
}

int cuDeviceGetName(char* name, int length, int device) {
  if (device < 40) return 101;
  strncpy(name, "Stand-in", (size_t)length);
  return 0;
}

#ifndef WITHOUT_MEMORY
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = ((size_t)(device - 39)) << 30;
  return 0;
}
#endif

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? device - 40 : attribute == 115;
  return 0;
}

/* Functions that must exist, but are not called when looking for devices. */
#define UNUSED(name) int name(void) { return 999; }
UNUSED(cuGetErrorName)
UNUSED(cuDeviceGetUuid_v2)
UNUSED(cuDeviceCanAccessPeer)
UNUSED(cuDevicePrimaryCtxRetain)
UNUSED(cuCtxGetCurrent)
UNUSED(cuCtxSetCurrent)
UNUSED(cuCtxSynchronize)
UNUSED(cuThreadExchangeStreamCaptureMode)
UNUSED(cuMemPoolCreate)
UNUSED(cuMemPoolDestroy)
UNUSED(cuMemPoolSetAttribute)
UNUSED(cuMemPoolGetAttribute)
UNUSED(cuMemPoolSetAccess)
UNUSED(cuMemPoolTrimTo)
UNUSED(cuMemAllocFromPoolAsync)
UNUSED(cuMemFreeAsync)
UNUSED(cuMemAlloc_v2)
UNUSED(cuMemGetInfo_v2)
UNUSED(cuMemFree_v2)
UNUSED(cuMemGetAllocationGranularity)
UNUSED(cuMemCreate)
UNUSED(cuMemRelease)
UNUSED(cuMemRetainAllocationHandle)
UNUSED(cuMemGetAllocationPropertiesFromHandle)
UNUSED(cuMemAddressReserve)
UNUSED(cuMemAddressFree)
UNUSED(cuMemMap)
UNUSED(cuMemUnmap)
UNUSED(cuMemSetAccess)
UNUSED(cuMemExportToShareableHandle)
UNUSED(cuMemImportFromShareableHandle)
UNUSED(cuMemHostAlloc)
UNUSED(cuMemFreeHost)
UNUSED(cuMemcpyAsync)
UNUSED(cuMemsetD8Async)
UNUSED(cuPointerGetAttributes)
UNUSED(cuStreamCreate)
UNUSED(cuStreamCreateWithPriority)
UNUSED(cuCtxGetStreamPriorityRange)
UNUSED(cuStreamDestroy_v2)
UNUSED(cuStreamQuery)
UNUSED(cuStreamSynchronize)
UNUSED(cuStreamWaitEvent)
UNUSED(cuStreamGetCtx)
UNUSED(cuStreamIsCapturing)
UNUSED(cuEventCreate)
UNUSED(cuEventDestroy_v2)
UNUSED(cuEventRecord)
UNUSED(cuEventQuery)
UNUSED(cuEventSynchronize)
UNUSED(cuIpcGetMemHandle)
UNUSED(cuIpcOpenMemHandle_v2)
UNUSED(cuIpcCloseMemHandle)
UNUSED(cuIpcGetEventHandle)
UNUSED(cuIpcOpenEventHandle)
UNUSED(cuModuleLoadData)
UNUSED(cuModuleUnload)
UNUSED(cuModuleGetFunction)
UNUSED(cuFuncSetAttribute)
UNUSED(cuLaunchKernel)
