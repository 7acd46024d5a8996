//! Loads the driver's functions by name. The functions are declared to return integers, because a
//! driver may return error codes that are unknown here.
//!
//! A driver of CUDA 12.2 or later is required. Functions that were added later are `Option`s.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys;

use super::cuda_missing::CudaMissing;

/// The driver's opaque handles.
pub(crate) type Context = *mut c_void;
pub(crate) type RawStream = *mut c_void;
pub(crate) type RawEvent = *mut c_void;
pub(crate) type MemPool = *mut c_void;
pub(crate) type Module = *mut c_void;
pub(crate) type Function = *mut c_void;
/// A `CUmemGenericAllocationHandle`.
pub(crate) type MemHandle = u64;
/// An address on a device.
pub(crate) type DevicePtr = u64;
/// A `CUdevice`, which is the ordinal of a device.
pub(crate) type Ordinal = c_int;

macro_rules! driver {
    (
        required { $( $name:ident = $symbol:ident ( $($arg:ty),* ); )* }
        optional { $( $newer:ident = $newer_symbol:ident ( $($newer_arg:ty),* ); )* }
    ) => {
        /// The loaded library. Each function returns a `CUresult` as a number, 0 for success.
        #[derive(Clone, Copy)]
        pub(crate) struct Driver {
            $( pub $name: unsafe extern "C" fn($($arg),*) -> c_int, )*
            $( pub $newer: Option<unsafe extern "C" fn($($newer_arg),*) -> c_int>, )*
        }

        impl Driver {
            /// Loads the library, which stays loaded until the process ends.
            pub(crate) fn load() -> Result<Self, CudaMissing> {
                // SAFETY: `is_culib_present` loads a library only by the official names of the
                // driver, so only the driver's own initialisers run.
                if !unsafe { sys::is_culib_present() } {
                    return Err(CudaMissing::Library);
                }
                // SAFETY: each type is the signature in the driver's header, with handles as
                // pointers and `CUresult` as an integer.
                unsafe {
                    Ok(Self {
                        $( $name: *sys::culib().get(stringify!($symbol).as_bytes())
                            .map_err(|_| CudaMissing::Symbol { symbol: stringify!($symbol) })?, )*
                        $( $newer: sys::culib().get(stringify!($newer_symbol).as_bytes()).ok().map(|symbol| *symbol), )*
                    })
                }
            }
        }

        /// The bindings in `cudarc` are those of CUDA 12.2, so this test does not compile if a
        /// required function is newer. Only a test with a driver of CUDA 12.2 could show that the
        /// driver has all required functions.
        #[cfg(test)]
        #[test]
        fn requires_no_function_newer_than_cuda_12_2() {
            assert_eq!(sys::CUDA_VERSION, 12020);
            $( assert_ne!(sys::$symbol as *const () as usize, 0); )*
        }
    };
}

driver! {
    required {
        init = cuInit(c_uint);
        driver_get_version = cuDriverGetVersion(*mut c_int);
        get_error_name = cuGetErrorName(c_int, *mut *const c_char);
        device_get_count = cuDeviceGetCount(*mut c_int);
        device_get = cuDeviceGet(*mut Ordinal, c_int);
        device_get_name = cuDeviceGetName(*mut c_char, c_int, Ordinal);
        device_total_mem = cuDeviceTotalMem_v2(*mut usize, Ordinal);
        device_get_attribute = cuDeviceGetAttribute(*mut c_int, c_int, Ordinal);
        device_get_uuid = cuDeviceGetUuid_v2(*mut [u8; 16], Ordinal);
        device_can_access_peer = cuDeviceCanAccessPeer(*mut c_int, Ordinal, Ordinal);
        primary_ctx_retain = cuDevicePrimaryCtxRetain(*mut Context, Ordinal);
        ctx_get_current = cuCtxGetCurrent(*mut Context);
        ctx_set_current = cuCtxSetCurrent(Context);
        ctx_synchronize = cuCtxSynchronize();
        thread_exchange_capture_mode = cuThreadExchangeStreamCaptureMode(*mut c_int);
        mem_pool_create = cuMemPoolCreate(*mut MemPool, *const MemPoolProps);
        mem_pool_destroy = cuMemPoolDestroy(MemPool);
        mem_pool_set_attribute = cuMemPoolSetAttribute(MemPool, c_int, *mut c_void);
        mem_pool_get_attribute = cuMemPoolGetAttribute(MemPool, c_int, *mut c_void);
        mem_pool_set_access = cuMemPoolSetAccess(MemPool, *const MemAccess, usize);
        mem_pool_trim_to = cuMemPoolTrimTo(MemPool, usize);
        mem_alloc_from_pool_async = cuMemAllocFromPoolAsync(*mut DevicePtr, usize, MemPool, RawStream);
        mem_free_async = cuMemFreeAsync(DevicePtr, RawStream);
        mem_get_info = cuMemGetInfo_v2(*mut usize, *mut usize);
        mem_alloc = cuMemAlloc_v2(*mut DevicePtr, usize);
        mem_free = cuMemFree_v2(DevicePtr);
        mem_get_granularity = cuMemGetAllocationGranularity(*mut usize, *const MemProps, c_int);
        mem_create = cuMemCreate(*mut MemHandle, usize, *const MemProps, c_ulonglong);
        mem_release = cuMemRelease(MemHandle);
        mem_retain_handle = cuMemRetainAllocationHandle(*mut MemHandle, DevicePtr);
        mem_get_properties = cuMemGetAllocationPropertiesFromHandle(*mut MemProps, MemHandle);
        mem_address_reserve = cuMemAddressReserve(*mut DevicePtr, usize, usize, DevicePtr, c_ulonglong);
        mem_address_free = cuMemAddressFree(DevicePtr, usize);
        mem_map = cuMemMap(DevicePtr, usize, usize, MemHandle, c_ulonglong);
        mem_unmap = cuMemUnmap(DevicePtr, usize);
        mem_set_access = cuMemSetAccess(DevicePtr, usize, *const MemAccess, usize);
        mem_export = cuMemExportToShareableHandle(*mut c_int, MemHandle, c_int, c_ulonglong);
        mem_import = cuMemImportFromShareableHandle(*mut MemHandle, *mut c_void, c_int);
        mem_host_alloc = cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        mem_free_host = cuMemFreeHost(*mut c_void);
        memcpy_async = cuMemcpyAsync(DevicePtr, DevicePtr, usize, RawStream);
        memset_d8_async = cuMemsetD8Async(DevicePtr, u8, usize, RawStream);
        pointer_get_attributes = cuPointerGetAttributes(c_uint, *mut c_int, *mut *mut c_void, DevicePtr);
        stream_create = cuStreamCreate(*mut RawStream, c_uint);
        stream_create_with_priority = cuStreamCreateWithPriority(*mut RawStream, c_uint, c_int);
        ctx_get_stream_priority_range = cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
        stream_destroy = cuStreamDestroy_v2(RawStream);
        stream_synchronize = cuStreamSynchronize(RawStream);
        stream_query = cuStreamQuery(RawStream);
        stream_wait_event = cuStreamWaitEvent(RawStream, RawEvent, c_uint);
        stream_get_ctx = cuStreamGetCtx(RawStream, *mut Context);
        stream_is_capturing = cuStreamIsCapturing(RawStream, *mut c_int);
        event_create = cuEventCreate(*mut RawEvent, c_uint);
        event_destroy = cuEventDestroy_v2(RawEvent);
        event_record = cuEventRecord(RawEvent, RawStream);
        event_query = cuEventQuery(RawEvent);
        event_synchronize = cuEventSynchronize(RawEvent);
        ipc_get_mem_handle = cuIpcGetMemHandle(*mut IpcHandle, DevicePtr);
        ipc_open_mem_handle = cuIpcOpenMemHandle_v2(*mut DevicePtr, IpcHandle, c_uint);
        ipc_close_mem_handle = cuIpcCloseMemHandle(DevicePtr);
        ipc_get_event_handle = cuIpcGetEventHandle(*mut IpcHandle, RawEvent);
        ipc_open_event_handle = cuIpcOpenEventHandle(*mut RawEvent, IpcHandle);
        module_load_data = cuModuleLoadData(*mut Module, *const c_void);
        module_unload = cuModuleUnload(Module);
        module_get_function = cuModuleGetFunction(*mut Function, Module, *const c_char);
        func_set_attribute = cuFuncSetAttribute(Function, c_int, c_int);
        launch_kernel = cuLaunchKernel(
            Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, RawStream, *mut *mut c_void,
            *mut *mut c_void
        );
    }
    optional {
        ctx_record_event = cuCtxRecordEvent(Context, RawEvent);
        launch_kernel_ex = cuLaunchKernelEx(
            *const LaunchConfig, Function, *mut *mut c_void, *mut *mut c_void
        );
    }
}

/// `CUmemPoolProps`, 88 bytes.
#[repr(C)]
pub(crate) struct MemPoolProps {
    pub alloc_type: c_int,
    pub handle_types: c_int,
    pub location: MemLocation,
    pub win32_security_attributes: *mut c_void,
    pub max_size: usize,
    pub reserved: [u8; 56],
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemLocation {
    pub r#type: c_int,
    pub id: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(crate) struct MemAccess {
    pub location: MemLocation,
    pub flags: c_int,
}

/// `CUmemAllocationProp`, 32 bytes.
#[repr(C)]
pub(crate) struct MemProps {
    pub alloc_type: c_int,
    pub handle_types: c_int,
    pub location: MemLocation,
    pub win32_handle_meta_data: *mut c_void,
    pub flags: [u8; 8],
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub blocks: [c_uint; 3],
    pub threads: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub stream: RawStream,
    pub attributes: *mut LaunchAttribute,
    pub n_attributes: c_uint,
}

/// `CUlaunchAttribute`, 72 bytes.
#[repr(C)]
pub(crate) struct LaunchAttribute {
    id: c_uint,
    padding: c_uint,
    value: [c_uint; 16],
}

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
    const CLUSTER: c_uint = 4;

    pub(crate) fn cluster([x, y, z]: [u32; 3]) -> Self {
        let mut value = [0; 16];
        [value[0], value[1], value[2]] = [x, y, z];
        Self { id: Self::CLUSTER, padding: 0, value }
    }
}

pub(crate) const IPC_HANDLE_BYTES: usize = 64;

/// `CUipcMemHandle` and `CUipcEventHandle`: bytes that are valid in other processes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle(pub [u8; IPC_HANDLE_BYTES]);

const _: () = assert!(size_of::<IpcHandle>() == size_of::<sys::CUipcMemHandle>());
const _: () = assert!(size_of::<IpcHandle>() == size_of::<sys::CUipcEventHandle>());
const _: () = assert!(size_of::<LaunchConfig>() == size_of::<sys::CUlaunchConfig>());
const _: () = assert!(size_of::<LaunchAttribute>() == size_of::<sys::CUlaunchAttribute>());
const _: () = assert!(size_of::<MemPoolProps>() == size_of::<sys::CUmemPoolProps>());
const _: () = assert!(size_of::<MemProps>() == size_of::<sys::CUmemAllocationProp>());
const _: () = assert!(size_of::<MemAccess>() == size_of::<sys::CUmemAccessDesc>());

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub(crate) const FUNCTION_MAX_DYNAMIC_SHARED: c_int = 8;
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const NOT_READY: c_int = 600;

pub(crate) const ATTRIBUTE_CAPABILITY_MAJOR: c_int = 75;
pub(crate) const ATTRIBUTE_CAPABILITY_MINOR: c_int = 76;
pub(crate) const ATTRIBUTE_MEMORY_POOLS: c_int = 115;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, which means ordinary device memory.
pub(crate) const ALLOCATION_PINNED: c_int = 1;
pub(crate) const LOCATION_DEVICE: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const HANDLE_FILE: c_int = 1;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
pub(crate) const GRANULARITY_MINIMUM: c_int = 0;
pub(crate) const ACCESS_READ_WRITE: c_int = 3;
pub(crate) const POOL_RELEASE_THRESHOLD: c_int = 4;
pub(crate) const POOL_RESERVED_CURRENT: c_int = 5;
pub(crate) const POOL_USED_CURRENT: c_int = 7;

/// `CU_MEMHOSTALLOC_PORTABLE`: all contexts of the process can use the memory.
pub(crate) const HOST_ALLOC_PORTABLE: c_uint = 1;
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_PER_THREAD`.
pub(crate) const STREAM_PER_THREAD: RawStream = std::ptr::without_provenance_mut(2);
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_EVENT_INTERPROCESS`, which is valid only together with `EVENT_DISABLE_TIMING`.
pub(crate) const EVENT_INTERPROCESS: c_uint = 4;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which `cuIpcOpenMemHandle` requires.
pub(crate) const IPC_LAZY_PEER_ACCESS: c_uint = 1;
pub(crate) const CAPTURE_MODE_RELAXED: c_int = 2;

pub(crate) const POINTER_MEMORY_TYPE: c_int = 2;
pub(crate) const POINTER_DEVICE_ORDINAL: c_int = 9;
/// `CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE`.
pub(crate) const POINTER_IPC_CAPABLE: c_int = 10;
pub(crate) const POINTER_RANGE_START: c_int = 11;
pub(crate) const POINTER_RANGE_SIZE: c_int = 12;
pub(crate) const POINTER_IS_MANAGED: c_int = 8;
pub(crate) const MEMORY_TYPE_HOST: c_int = 1;
pub(crate) const MEMORY_TYPE_DEVICE: c_int = 2;
