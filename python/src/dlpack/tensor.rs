//! Owns DLPack's managed tensors, and moves them into and out of Python's capsules.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use crossdock_plugin_api::{Capsule, Device};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::arrow::capsules::name_of;
use crate::dlpack::abi::{
    self as dlpack_abi, DeviceType, IS_COPIED, MAJOR, MINOR, ManagedTensor, READ_ONLY, Tensor,
    VersionedTensor,
};
use crate::runtime::errors::keep_exception;
use crate::runtime::process::{generation, must_leak};

/// The newest DLPack version that is supported, and the version of exported tensors.
pub const VERSION: (u32, u32) = (MAJOR, MINOR);

/// The C struct that represents a managed tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Versioned,
    Legacy,
}

const FORMS: [Form; 2] = [Form::Versioned, Form::Legacy];

impl Form {
    fn name(self) -> &'static CStr {
        match self {
            Form::Versioned => c"dltensor_versioned",
            Form::Legacy => c"dltensor",
        }
    }

    /// The name of a capsule whose tensor was consumed.
    fn used_name(self) -> &'static CStr {
        match self {
            Form::Versioned => c"used_dltensor_versioned",
            Form::Legacy => c"used_dltensor",
        }
    }
}

/// An owned managed tensor. Dropping the tensor calls its deleter, on any thread. A deleter that
/// needs the interpreter's lock acquires the lock itself.
pub struct Managed {
    form: Form,
    raw: NonNull<c_void>,
}

// SAFETY: DLPack allows calling a deleter on any thread.
unsafe impl Send for Managed {}
// SAFETY: shared references only read the struct. Only `set_copied` and `set_dtype` change the
// struct, through `&mut self`.
unsafe impl Sync for Managed {}

impl Managed {
    /// # Safety
    /// `raw` is a live managed tensor of this form, and the caller passes its ownership.
    pub unsafe fn new(form: Form, raw: NonNull<c_void>) -> Self {
        Self { form, raw }
    }

    /// Takes the tensor out of a plugin's capsule.
    pub fn from_capsule(capsule: Capsule) -> crossdock_plugin_api::Result<Self> {
        let (which, raw) = capsule.take_any_self_freeing(&FORMS.map(Form::name))?;
        Ok(Self { form: FORMS.get(which).copied().unwrap_or(Form::Legacy), raw })
    }

    /// Moves the tensor into a capsule for a plugin.
    pub fn into_capsule(self) -> Capsule {
        let (form, raw) = self.into_parts();
        // SAFETY: `raw` is an owned tensor of the form that the name states, and `free` calls its
        // deleter.
        unsafe {
            match form {
                Form::Versioned => {
                    Capsule::from_self_freeing(form.name(), raw.cast(), free::<VersionedTensor>)
                }
                Form::Legacy => Capsule::from_self_freeing(form.name(), raw.cast(), free::<ManagedTensor>),
            }
        }
    }

    /// Passes ownership: the caller must call the deleter.
    pub fn into_parts(self) -> (Form, NonNull<c_void>) {
        let parts = (self.form, self.raw);
        std::mem::forget(self);
        parts
    }

    /// Returns the tensor's description, or `None` if its major version is unknown.
    pub fn tensor(&self) -> Option<&Tensor> {
        // SAFETY: `self` owns a live tensor of this form. The version's offset is the same in every
        // version.
        unsafe {
            match self.form {
                Form::Legacy => Some(&self.raw.cast::<ManagedTensor>().as_ref().tensor),
                Form::Versioned => {
                    let managed = self.raw.cast::<VersionedTensor>();
                    let version = &raw const (*managed.as_ptr()).version;
                    let known = (*version).major == MAJOR;
                    known.then(|| &(*managed.as_ptr()).tensor)
                }
            }
        }
    }

    /// Returns whether the tensor has flags.
    pub fn is_versioned(&self) -> bool {
        self.form == Form::Versioned
    }

    /// Returns whether the data was copied for this tensor. False for a legacy tensor, which has no
    /// flags.
    pub fn is_copied(&self) -> bool {
        // SAFETY: `self` owns a live tensor of this form. The flags' offset is the same in every
        // version.
        self.form == Form::Versioned
            && unsafe { self.raw.cast::<VersionedTensor>().as_ref() }.flags & IS_COPIED != 0
    }

    /// Returns a second tensor with the same data, or `None` for a legacy tensor. The data is
    /// released after both tensors are deleted.
    pub fn share(original: &Arc<Managed>) -> Option<Managed> {
        if original.form != Form::Versioned || original.tensor().is_none() {
            return None;
        }
        // SAFETY: `original` owns a live tensor of this form and version. The copy keeps
        // `original`, and with it the shape and strides that both point to.
        let mut tensor = unsafe { original.raw.cast::<VersionedTensor>().read() };
        tensor.deleter = Some(delete_shared);
        tensor.manager_ctx = std::ptr::null_mut();
        let raw = NonNull::from(Box::leak(Box::new(SharedTensor { tensor, _original: original.clone() })));
        Some(Managed { form: Form::Versioned, raw: raw.cast() })
    }

    /// Returns whether the data is read-only.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: `self` owns a live tensor of this form. The flags' offset is the same in every
        // version.
        self.form == Form::Versioned
            && unsafe { self.raw.cast::<VersionedTensor>().as_ref() }.flags & READ_ONLY != 0
    }

    /// Changes the type of the elements to another type of the same width.
    pub fn set_dtype(&mut self, dtype: dlpack_abi::DataType) {
        if self.form == Form::Versioned {
            // SAFETY: `self` owns a live tensor of this form, and `&mut` excludes other references.
            unsafe { self.raw.cast::<VersionedTensor>().as_mut() }.tensor.dtype = dtype;
        }
    }

    /// Marks the data as copied for this tensor and writable.
    pub fn set_copied(&mut self) {
        if self.form == Form::Versioned {
            // SAFETY: `self` owns a live tensor of this form, and `&mut` excludes other references.
            unsafe { self.raw.cast::<VersionedTensor>().as_mut() }.flags = IS_COPIED;
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: `self` owns a live tensor of this form, and drop runs once.
        unsafe {
            match self.form {
                Form::Versioned => free(self.raw.cast::<VersionedTensor>()),
                Form::Legacy => free(self.raw.cast::<ManagedTensor>()),
            }
        }
    }
}

/// A tensor that refers to the data of another tensor.
#[repr(C)]
struct SharedTensor {
    // This must be the first field, because the deleter uses the address of this field as the
    // address of the whole struct.
    tensor: VersionedTensor,
    _original: Arc<Managed>,
}

unsafe extern "C" fn delete_shared(tensor: *mut VersionedTensor) {
    // SAFETY: `Managed::share` boxed a `SharedTensor`, which begins with the tensor. DLPack calls a
    // deleter once.
    drop(unsafe { Box::from_raw(tensor.cast::<SharedTensor>()) });
}

trait HasDeleter: Sized {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl HasDeleter for VersionedTensor {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

impl HasDeleter for ManagedTensor {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

/// # Safety
/// `tensor` is live, owned by the caller, and not used afterwards.
unsafe fn free<T: HasDeleter>(tensor: NonNull<T>) {
    // SAFETY: the caller owns the live tensor. The deleter's offset is the same in every version.
    unsafe {
        if let Some(delete) = tensor.as_ref().deleter() {
            delete(tensor.as_ptr());
        }
    }
}

/// Consumes a capsule: takes its tensor, and renames it as DLPack requires. Errors name the caller
/// `who`.
///
/// # Errors
/// TypeError if the object is not a capsule of a tensor, or was consumed before.
pub fn take(capsule: &Bound<'_, PyAny>, who: &str) -> PyResult<Managed> {
    for form in FORMS {
        // SAFETY: `PyCapsule_IsValid` accepts any object. The other functions require a valid
        // capsule, which that check ensures. The interpreter's lock is held, so no other thread
        // consumes the capsule during this function.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), form.name().as_ptr()) == 0 {
                continue;
            }
            let raw = ffi::PyCapsule_GetPointer(capsule.as_ptr(), form.name().as_ptr());
            if let Some(raw) = NonNull::new(raw)
                && ffi::PyCapsule_SetName(capsule.as_ptr(), form.used_name().as_ptr()) == 0
            {
                return Ok(Managed::new(form, raw));
            }
            return Err(PyErr::fetch(capsule.py()));
        }
    }
    Err(match name_of(capsule).as_deref() {
        Some("used_dltensor_versioned" | "used_dltensor") => PyTypeError::new_err(format!(
            "{who}: the capsule was already consumed: request a new one from its producer"
        )),
        Some(other) => PyTypeError::new_err(format!(
            "{who}: expected a capsule 'dltensor_versioned' or 'dltensor', got capsule '{other}'"
        )),
        None => PyTypeError::new_err(format!(
            "{who}: expected a capsule 'dltensor_versioned' or 'dltensor', got {}",
            capsule.get_type().name()?
        )),
    })
}

/// Creates a capsule. Its destructor deletes the tensor if no consumer has taken it.
pub fn new_capsule(py: Python<'_>, tensor: Managed) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the name is static, and `destroy` frees the tensor under it. The context is a number,
    // not a pointer.
    unsafe {
        let name = tensor.form.name().as_ptr();
        let capsule = ffi::PyCapsule_New(tensor.raw.as_ptr(), name, Some(destroy));
        let capsule = Bound::from_owned_ptr_or_err(py, capsule)?;
        // The capsule owns the tensor now.
        tensor.into_parts();
        // The context of a new capsule is NULL, which represents generation 0.
        match generation() {
            0 => {}
            generation => {
                ffi::PyCapsule_SetContext(capsule.as_ptr(), generation as usize as *mut c_void);
            }
        }
        Ok(capsule)
    }
}

/// # Safety
/// `capsule` was created by `new_capsule`.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: `new_capsule` stored an owned tensor under the form's name. A consumer that takes it
    // changes the name.
    unsafe {
        let Some(form) =
            FORMS.into_iter().find(|form| ffi::PyCapsule_IsValid(capsule, form.name().as_ptr()) != 0)
        else {
            return;
        };
        let raw = ffi::PyCapsule_GetPointer(capsule, form.name().as_ptr());
        let generation = ffi::PyCapsule_GetContext(capsule) as usize as u32;
        if let Some(raw) = NonNull::new(raw)
            && !must_leak(generation)
        {
            keep_exception(Python::assume_attached(), || drop(Managed::new(form, raw)));
        }
    }
}

/// Returns the CUDA device of a tensor, or `None` if its data needs no stream. `session_device` is
/// the session's device.
pub fn cuda_device(device: dlpack_abi::Device, session_device: Device) -> Option<Device> {
    match device.device_type {
        DeviceType::CUDA => Some(Device::cuda(device.device_id.into())),
        // Managed memory is accessible on every device, whatever its id. It has to be ready on the
        // session's device.
        DeviceType::CUDA_MANAGED if session_device.r#type == Device::cuda(0).r#type => Some(session_device),
        DeviceType::CUDA_MANAGED => Some(Device::cuda(device.device_id.into())),
        _ => None,
    }
}

/// Returns DLPack's device type and device id.
pub fn number_of(device: Device) -> PyResult<(i32, i32)> {
    let id = i32::try_from(device.id.max(0));
    let id = id.map_err(|_| {
        PyRuntimeError::new_err(format!("{device} has no DLPack device id: expected at most {}", i32::MAX))
    })?;
    Ok((device.r#type, id))
}
