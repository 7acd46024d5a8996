//! An external DLPack library for the tests. It produces tensors with any fields, and reads
//! exported tensors.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow_schema::{Field, Schema};
use crossdock_arrays::{DeviceBatch, export_batch, export_schema, import_batch, import_schema};
use crossdock_dlpack::DlPack;
use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_plugin_api::{
    CallSettings, Capsule, Device, Input, Instance, Options, Owned, ReadRequest, Result, abi, entry,
};
use crossdock_test_support::TestHost;
use dlpark::DlpackFlags;
pub use dlpark::ffi::{DLDataType, DLDataTypeCode as Code, DLDevice, DLDeviceType};
use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};

static ENTRY: abi::PluginEntry = entry::<DlPack>();

pub fn instance(host: &TestHost) -> Instance {
    // SAFETY: the entry is statically linked and therefore never unloaded, and every test drops its
    // instance before its host.
    unsafe { Instance::create(&ENTRY, host.raw()) }.unwrap()
}

pub const fn dtype(code: Code, bits: u8) -> DLDataType {
    DLDataType { code, bits, lanes: 1 }
}

pub const INT64: DLDataType = dtype(Code::INT, 64);
pub const INT32: DLDataType = dtype(Code::INT, 32);
pub const BOOL: DLDataType = dtype(Code::BOOL, 8);

/// Every dtype that Arrow or the extension type `crossdock.number` supports.
pub const DTYPES: [DLDataType; 23] = [
    dtype(Code::INT, 8),
    dtype(Code::INT, 16),
    INT32,
    INT64,
    dtype(Code::UINT, 8),
    dtype(Code::UINT, 16),
    dtype(Code::UINT, 32),
    dtype(Code::UINT, 64),
    dtype(Code::FLOAT, 16),
    dtype(Code::FLOAT, 32),
    dtype(Code::FLOAT, 64),
    BOOL,
    dtype(Code::BFLOAT, 16),
    dtype(Code::FLOAT8_E3M4, 8),
    dtype(Code::FLOAT8_E4M3, 8),
    dtype(Code::FLOAT8_E4M3B11FNUZ, 8),
    dtype(Code::FLOAT8_E4M3FN, 8),
    dtype(Code::FLOAT8_E4M3FNUZ, 8),
    dtype(Code::FLOAT8_E5M2, 8),
    dtype(Code::FLOAT8_E5M2FNUZ, 8),
    dtype(Code::FLOAT8_E8M0FNU, 8),
    dtype(Code::COMPLEX, 64),
    dtype(Code::COMPLEX, 128),
];

pub fn device_of(device: Device) -> DLDevice {
    DLDevice { device_type: DLDeviceType(device.r#type as u32), device_id: device.id.max(0) as i32 }
}

/// The fields of a tensor to produce. Each field may be invalid.
#[derive(Clone)]
pub struct Spec {
    pub versioned: bool,
    pub version: DLPackVersion,
    pub dtype: DLDataType,
    pub shape: Option<Vec<i64>>,
    pub ndim: Option<i32>,
    pub strides: Option<Vec<i64>>,
    pub device: DLDevice,
    /// The buffer that contains the tensor, and the offset of the first element in this buffer in
    /// bytes.
    pub data: Option<(Buffer, u64)>,
    /// The tensor's `byte_offset`. The tensor's `data` is the first element's address minus this
    /// number.
    pub byte_offset: u64,
    pub has_deleter: bool,
    pub freed: Arc<AtomicUsize>,
}

/// Copies bytes to memory that the host allocates on a device.
pub fn bytes_on(host: &TestHost, device: Device, bytes: &[u8]) -> Buffer {
    let stream = host.stream(device);
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    host.memory().alloc_with(&stream, bytes.len(), fill).unwrap().freeze(&stream).unwrap()
}

impl Spec {
    /// Creates the fields of a contiguous tensor.
    pub fn new(host: &TestHost, device: Device, dtype: DLDataType, shape: &[i64], bytes: &[u8]) -> Self {
        let mut strides = vec![1i64; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i].max(1);
        }
        Self {
            versioned: true,
            version: DLPackVersion::CURRENT,
            dtype,
            shape: Some(shape.to_vec()),
            ndim: None,
            strides: Some(strides),
            device: device_of(device),
            data: (!bytes.is_empty()).then(|| (bytes_on(host, device, bytes), 0)),
            byte_offset: 0,
            has_deleter: true,
            freed: Arc::default(),
        }
    }

    pub fn from_i64(host: &TestHost, device: Device, values: &[i64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Self::new(host, device, INT64, &[values.len() as i64], &bytes)
    }

    pub fn legacy(mut self) -> Self {
        self.versioned = false;
        self
    }

    pub fn frees(&self) -> usize {
        self.freed.load(Ordering::SeqCst)
    }

    pub fn capsule(&self) -> Capsule {
        let mut owner = Box::new(TensorOwner { spec: self.clone(), managed: Managed::None });
        let list = |list: &mut Option<Vec<i64>>| {
            list.as_mut().map_or(std::ptr::null_mut(), |list| list.as_mut_ptr())
        };
        let data = self.data.as_ref().map_or(0, |(buffer, at)| buffer.address() + at);
        let tensor = DLTensor {
            data: data.wrapping_sub(self.byte_offset) as *mut c_void,
            device: self.device,
            ndim: self.ndim.unwrap_or(self.shape.as_ref().map_or(0, Vec::len) as i32),
            dtype: self.dtype,
            shape: list(&mut owner.spec.shape),
            strides: list(&mut owner.spec.strides),
            byte_offset: self.byte_offset,
        };
        let owner = Box::into_raw(owner);
        if !self.has_deleter {
            // A tensor without a deleter is never freed. It is kept reachable, so that leak
            // checkers do not report it.
            UNFREED.lock().unwrap().push(owner as usize);
        }
        let manager_ctx = owner.cast::<c_void>();
        // SAFETY: `owner` is the result of `Box::into_raw`, and only the tensor's deleter frees it.
        unsafe {
            if self.versioned {
                (*owner).managed = Managed::Versioned(DLManagedTensorVersioned {
                    version: self.version,
                    manager_ctx,
                    deleter: self.has_deleter.then_some(delete_versioned as unsafe extern "C" fn(_)),
                    flags: DlpackFlags::empty(),
                    dl_tensor: tensor,
                });
            } else {
                (*owner).managed = Managed::Legacy(DLManagedTensor {
                    dl_tensor: tensor,
                    manager_ctx,
                    deleter: self.has_deleter.then_some(delete_legacy as unsafe extern "C" fn(_)),
                });
            }
            match &mut (*owner).managed {
                Managed::Versioned(managed) => Capsule::from_self_freeing(
                    c"dltensor_versioned",
                    NonNull::from(managed),
                    |managed: NonNull<DLManagedTensorVersioned>| {
                        if let Some(deleter) = (*managed.as_ptr()).deleter {
                            deleter(managed.as_ptr());
                        }
                    },
                ),
                Managed::Legacy(managed) => Capsule::from_self_freeing(
                    c"dltensor",
                    NonNull::from(managed),
                    |managed: NonNull<DLManagedTensor>| {
                        if let Some(deleter) = (*managed.as_ptr()).deleter {
                            deleter(managed.as_ptr());
                        }
                    },
                ),
                Managed::None => unreachable!(),
            }
        }
    }
}

static UNFREED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

struct TensorOwner {
    spec: Spec,
    managed: Managed,
}

enum Managed {
    None,
    Legacy(DLManagedTensor),
    Versioned(DLManagedTensorVersioned),
}

unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: `capsule` created the tensor, whose `manager_ctx` is a boxed `TensorOwner`. A deleter
    // is called only once.
    unsafe { delete((*managed).manager_ctx) }
}

unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: `capsule` created the tensor, whose `manager_ctx` is a boxed `TensorOwner`. A deleter
    // is called only once.
    unsafe { delete((*managed).manager_ctx) }
}

unsafe fn delete(owner: *mut c_void) {
    // SAFETY: both deleters pass the boxed `TensorOwner` that `capsule` leaked, and only one of
    // them is called.
    let owner = unsafe { Box::from_raw(owner.cast::<TensorOwner>()) };
    owner.spec.freed.fetch_add(1, Ordering::SeqCst);
}

/// An exported tensor that was taken out of its capsule.
pub struct ExportedTensor {
    pub versioned: bool,
    pub flags: u64,
    pub dtype: DLDataType,
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
    pub device: DLDevice,
    pub address: u64,
    pub byte_offset: u64,
    raw: NonNull<c_void>,
}

impl ExportedTensor {
    pub fn take(capsule: Capsule) -> Self {
        let versioned = capsule.name() == c"dltensor_versioned";
        let name = if versioned { c"dltensor_versioned" } else { c"dltensor" };
        let raw = capsule.take_self_freeing(name).unwrap();
        // SAFETY: a capsule of this name contains a managed tensor of this kind, and dropping the
        // result deletes it.
        unsafe {
            let (tensor, flags) = if versioned {
                let managed = raw.cast::<DLManagedTensorVersioned>().as_ref();
                assert_eq!(managed.version.major, 1);
                (managed.dl_tensor, managed.flags.bits())
            } else {
                (raw.cast::<DLManagedTensor>().as_ref().dl_tensor, 0)
            };
            assert!(!tensor.shape.is_null() && !tensor.strides.is_null(), "strides are always set");
            let list = |list: *const i64| std::slice::from_raw_parts(list, tensor.ndim as usize).to_vec();
            Self {
                versioned,
                flags,
                dtype: tensor.dtype,
                shape: list(tensor.shape),
                strides: list(tensor.strides),
                device: tensor.device,
                address: tensor.data as u64,
                byte_offset: tensor.byte_offset,
                raw,
            }
        }
    }

    /// The elements in row-major order.
    pub fn elements(&self, host: &TestHost, device: Device) -> Vec<u8> {
        let width = usize::from(self.dtype.bits) / 8;
        if self.shape.contains(&0) {
            assert_eq!(self.address, 0, "data of size 0 is NULL");
            return Vec::new();
        }
        let reach: i64 = self.shape.iter().zip(&self.strides).map(|(n, stride)| (n - 1) * stride).sum();
        let bytes = (reach as usize + 1) * width;
        let owner = ForeignOwner::new(());
        // SAFETY: the shape and strides of the tensor describe these bytes, and `self` keeps them
        // alive during this function.
        let buffer = unsafe { Buffer::foreign(&owner, device, self.address, Some(bytes as u64), Ready::Now) };
        let view = buffer.host_view(&host.stream(device)).unwrap();
        elements(&view, 0, width, &self.shape, &self.strides)
    }
}

impl Drop for ExportedTensor {
    fn drop(&mut self) {
        // SAFETY: `take` took the tensor out of its capsule, and only this drop deletes it.
        unsafe {
            if self.versioned {
                let raw = self.raw.cast::<DLManagedTensorVersioned>().as_ptr();
                ((*raw).deleter.unwrap())(raw);
            } else {
                let raw = self.raw.cast::<DLManagedTensor>().as_ptr();
                ((*raw).deleter.unwrap())(raw);
            }
        }
    }
}

/// Returns the elements of a tensor in row-major order.
pub fn elements(bytes: &[u8], first: i64, width: usize, shape: &[i64], strides: &[i64]) -> Vec<u8> {
    match (shape.split_first(), strides.split_first()) {
        (Some((n, shape)), Some((stride, strides))) => {
            (0..*n).flat_map(|i| elements(bytes, first + i * stride, width, shape, strides)).collect()
        }
        _ => bytes[first as usize * width..][..width].to_vec(),
    }
}

/// Imports tensors. Returns the schema and the batches.
pub fn import(
    host: &TestHost,
    instance: &Instance,
    device: Device,
    capsules: Vec<Capsule>,
    schema: Option<&Schema>,
    options: &Options,
) -> Result<(Schema, Vec<DeviceBatch>)> {
    let call = CallSettings::new(device);
    let schema = schema.map(|schema| export_schema(schema).unwrap());
    let input = Input::Capsules(capsules.into());
    let importer = instance.importer().unwrap();
    let mut stream = importer.open(
        &call,
        input,
        &ReadRequest::new("dlpack").with_schema(schema.as_deref()).with_options(options),
    )?;
    let schema = import_schema(&stream.schema()?)?;
    let shared = Arc::new(schema.clone());
    let mut batches = Vec::new();
    while let Some(batch) = stream.next(&call)? {
        batches.push(import_batch(batch, &shared, &host.memory())?);
    }
    Ok((schema, batches))
}

/// Exports a batch as tensors.
pub fn export(
    host: &TestHost,
    instance: &Instance,
    device: Device,
    batch: &DeviceBatch,
    format: &str,
    options: &Options,
) -> Result<Vec<ExportedTensor>> {
    let call = CallSettings::new(device);
    let schema = export_schema(batch.schema()).unwrap();
    let mut writer = instance.exporter().unwrap().begin(&call, format, &schema, options, None)?;
    let raw: Owned<abi::Batch> = export_batch(batch, false, &host.stream(batch.device())).unwrap();
    let capsules = writer.write(&call, raw)?;
    assert!(writer.finish(&call)?.is_empty());
    Ok(capsules.into_iter().map(ExportedTensor::take).collect())
}

/// Returns all bytes of the values buffer of a column's innermost array.
pub fn value_bytes(host: &TestHost, batch: &DeviceBatch, column: usize) -> Vec<u8> {
    let mut array = &batch.columns()[column];
    while let Some(child) = array.children().first() {
        array = child;
    }
    match &array.buffers()[1] {
        None => Vec::new(),
        Some(buffer) => buffer.host_view(&host.stream(batch.device())).unwrap().to_vec(),
    }
}

pub fn metadata_of<'a>(field: &'a Field, key: &str) -> Option<&'a str> {
    field.metadata().get(key).map(String::as_str)
}
