//! Managed tensors and the capsules that Python passes them in. What is in them is the plugin's business; here they are
//! owned, described and handed over.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use crossdock_plugin_api::{Capsule, Device};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::capsules::name_of;
use crate::dlpack_abi::{
    self, DeviceType, IS_COPIED, MAJOR, MINOR, ManagedTensor, READ_ONLY, Tensor, VersionedTensor,
};
use crate::errors::undisturbed;
use crate::process::{generation, is_over};

/// The newest version that is understood, and made.
pub const VERSION: (u32, u32) = (MAJOR, MINOR);

/// Of a managed tensor.
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

    /// What a capsule is called from which the tensor has been taken.
    fn used(self) -> &'static CStr {
        match self {
            Form::Versioned => c"used_dltensor_versioned",
            Form::Legacy => c"used_dltensor",
        }
    }
}

/// A managed tensor that is ours: its deleter is called when it is dropped, on any thread. A deleter that needs the
/// interpreter's lock takes it.
pub struct Managed {
    form: Form,
    raw: NonNull<c_void>,
}

// SAFETY: a tensor may be passed on and its deleter called on any thread, by DLPack's contract; nothing changes it meanwhile.
unsafe impl Send for Managed {}
// SAFETY: as above.
unsafe impl Sync for Managed {}

impl Managed {
    /// # Safety
    /// A managed tensor of this form, the caller's to give.
    pub unsafe fn new(form: Form, raw: NonNull<c_void>) -> Self {
        Self { form, raw }
    }

    /// What a plugin gave.
    pub fn of_capsule(capsule: Capsule) -> crossdock_plugin_api::Result<Self> {
        let (which, raw) = capsule.take_any_self_freeing(&FORMS.map(Form::name))?;
        Ok(Self { form: FORMS.get(which).copied().unwrap_or(Form::Legacy), raw })
    }

    /// For a plugin.
    pub fn into_capsule(self) -> Capsule {
        let (form, raw) = self.into_parts();
        // SAFETY: a tensor of the form that the name says, which was ours; its deleter may be called on any thread.
        unsafe {
            match form {
                Form::Versioned => Capsule::of_self_freeing(form.name(), raw.cast(), free::<VersionedTensor>),
                Form::Legacy => Capsule::of_self_freeing(form.name(), raw.cast(), free::<ManagedTensor>),
            }
        }
    }

    /// From now on whoever has it calls its deleter.
    pub fn into_parts(self) -> (Form, NonNull<c_void>) {
        let parts = (self.form, self.raw);
        std::mem::forget(self);
        parts
    }

    /// What it says of itself; `None` where its layout is that of another major version.
    pub fn tensor(&self) -> Option<&Tensor> {
        // SAFETY: a live tensor of this form, which nobody changes; the version stands where it always does.
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

    /// Whether it has flags.
    pub fn is_versioned(&self) -> bool {
        self.form == Form::Versioned
    }

    /// Whether its bytes were made for it, as far as it can say.
    pub fn is_copied(&self) -> bool {
        // SAFETY: a live tensor of this form.
        self.form == Form::Versioned
            && unsafe { self.raw.cast::<VersionedTensor>().as_ref() }.flags & IS_COPIED != 0
    }

    /// The same tensor once more: both are gone before the memory is.
    pub fn again(of: &Arc<Managed>) -> Option<Managed> {
        if of.form != Form::Versioned || of.tensor().is_none() {
            return None;
        }
        // SAFETY: a live tensor of this form and version; what it points at lives as long as it, which the other one keeps.
        let mut tensor = unsafe { of.raw.cast::<VersionedTensor>().read() };
        tensor.deleter = Some(delete_again);
        tensor.manager_ctx = std::ptr::null_mut();
        let raw = NonNull::from(Box::leak(Box::new(Again { tensor, _of: of.clone() })));
        Some(Managed { form: Form::Versioned, raw: raw.cast() })
    }

    /// Whether it says that its bytes may only be read.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: a live tensor of this form.
        self.form == Form::Versioned
            && unsafe { self.raw.cast::<VersionedTensor>().as_ref() }.flags & READ_ONLY != 0
    }

    /// Says that its bytes were made for it, so that they may be written.
    pub fn set_copied(&mut self) {
        if self.form == Form::Versioned {
            // SAFETY: a live tensor of ours that nobody else has seen.
            unsafe { self.raw.cast::<VersionedTensor>().as_mut() }.flags = IS_COPIED;
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: a live tensor, ours, of the form.
        unsafe {
            match self.form {
                Form::Versioned => free(self.raw.cast::<VersionedTensor>()),
                Form::Legacy => free(self.raw.cast::<ManagedTensor>()),
            }
        }
    }
}

/// A tensor that stands for another one.
#[repr(C)]
struct Again {
    tensor: VersionedTensor,
    _of: Arc<Managed>,
}

unsafe extern "C" fn delete_again(tensor: *mut VersionedTensor) {
    // SAFETY: made by `Managed::again`, whose box begins with the tensor; deleted once.
    drop(unsafe { Box::from_raw(tensor.cast::<Again>()) });
}

trait Deletes: Sized {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl Deletes for VersionedTensor {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

impl Deletes for ManagedTensor {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

/// # Safety
/// A live tensor, used no more.
unsafe fn free<T: Deletes>(tensor: NonNull<T>) {
    // SAFETY: by this function's own contract; the deleter stands where it always does, in any version.
    unsafe {
        if let Some(delete) = tensor.as_ref().deleter() {
            delete(tensor.as_ptr());
        }
    }
}

/// Takes the tensor out of a capsule, which is renamed.
///
/// # Errors
/// TypeError for what is no capsule of a tensor, or one whose tensor has been taken.
pub fn take(capsule: &Bound<'_, PyAny>, who: &str) -> PyResult<Managed> {
    for form in FORMS {
        // SAFETY: any object may be asked; the interpreter's lock is held, so that nobody else takes it meanwhile.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), form.name().as_ptr()) == 0 {
                continue;
            }
            let raw = ffi::PyCapsule_GetPointer(capsule.as_ptr(), form.name().as_ptr());
            if let Some(raw) = NonNull::new(raw)
                && ffi::PyCapsule_SetName(capsule.as_ptr(), form.used().as_ptr()) == 0
            {
                return Ok(Managed::new(form, raw));
            }
            return Err(PyErr::fetch(capsule.py()));
        }
    }
    Err(match name_of(capsule).as_deref() {
        Some("used_dltensor_versioned" | "used_dltensor") => PyTypeError::new_err(format!(
            "{who}: the capsule's tensor has been taken already: ask its producer for another one"
        )),
        Some(other) => PyTypeError::new_err(format!(
            "{who}: expected a capsule 'dltensor_versioned' or 'dltensor', got a capsule '{other}'"
        )),
        None => PyTypeError::new_err(format!(
            "{who}: expected a capsule 'dltensor_versioned' or 'dltensor', got a {}",
            capsule.get_type().name()?
        )),
    })
}

/// A capsule that deletes the tensor unless somebody takes it.
pub fn give(py: Python<'_>, tensor: Managed) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the name is static; the destructor frees what is under it. The context is a number.
    unsafe {
        let name = tensor.form.name().as_ptr();
        let capsule = ffi::PyCapsule_New(tensor.raw.as_ptr(), name, Some(destroy));
        let capsule = Bound::from_owned_ptr_or_err(py, capsule)?;
        // From here on it is the capsule's.
        tensor.into_parts();
        match generation() {
            0 => {}
            of => {
                ffi::PyCapsule_SetContext(capsule.as_ptr(), of as usize as *mut c_void);
            }
        }
        Ok(capsule)
    }
}

/// # Safety
/// A capsule that `give` made.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: by this function's own contract. Under its first name, which consumers change, the capsule has the tensor.
    unsafe {
        let Some(form) =
            FORMS.into_iter().find(|form| ffi::PyCapsule_IsValid(capsule, form.name().as_ptr()) != 0)
        else {
            return;
        };
        let raw = ffi::PyCapsule_GetPointer(capsule, form.name().as_ptr());
        let made_in = ffi::PyCapsule_GetContext(capsule) as usize as u32;
        if let Some(raw) = NonNull::new(raw)
            && !is_over(made_in)
        {
            undisturbed(Python::assume_attached(), || drop(Managed::new(form, raw)));
        }
    }
}

/// Where a tensor says that it lies, as far as streams go: on a CUDA device, or where nobody waits for a stream.
pub fn cuda_device(device: dlpack_abi::Device, own: Device) -> Option<Device> {
    match device.device_type {
        DeviceType::CUDA => Some(Device::cuda(device.device_id.into())),
        // It may say device 0, and is every device's: it is ours that it is to be ready on.
        DeviceType::CUDA_MANAGED if own.r#type == Device::cuda(0).r#type => Some(own),
        DeviceType::CUDA_MANAGED => Some(Device::cuda(device.device_id.into())),
        _ => None,
    }
}

/// A device as DLPack numbers it.
pub fn number_of(device: Device) -> PyResult<(i32, i32)> {
    let id = i32::try_from(device.id.max(0));
    let id = id.map_err(|_| PyRuntimeError::new_err(format!("{device} has no number in DLPack")))?;
    Ok((device.r#type, id))
}
