//! A plugin that panics in one of its functions. The name of the format selects the function. A
//! panic in `create` is tested with a plugin in C, because `create` receives no format.
//!
//! The formats `three-of-five` and `six-of-five` do not panic. Their batch has a capacity of five
//! rows, and its number of rows, three or six, is on the device.
//!
//! The module `opener` opens URIs.
#![allow(clippy::panic)]

mod opener;

use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, Capsule, ColumnPlan, Device, Error, Exporter, Format, Host, Importer,
    Input, Opener, Options, Owned, Plugin, ReadRequest, Result, Sink, abi,
};

/// The formats, one for each function that panics.
const FORMATS: [&str; 12] = [
    "panic-open",
    "panic-schema",
    "panic-next",
    "panic-stream-release",
    "panic-plan",
    "panic-begin",
    "panic-write",
    "panic-finish",
    "panic-writer-release",
    "fail",
    "three-of-five",
    "six-of-five",
];

/// The numbers of rows of the formats that do not panic.
static COUNTERS: [i64; 2] = [3, 6];

struct BadCitizen {
    formats: Vec<Format>,
}

fn panic_if(format: &str, function: &str) {
    if format == function {
        panic!("{function}: injected panic");
    }
}

impl Plugin for BadCitizen {
    fn create(_host: Host) -> Result<Self> {
        let formats = FORMATS.iter().map(|name| {
            let mut format = Format::new(name, "panics in the function of its name");
            format.bytes = true;
            format.device_rows = *name == "three-of-five";
            format.extensions = vec![format!(".{name}")];
            format.magics = vec![(0, name.as_bytes().to_vec())];
            format
        });
        Ok(Self { formats: formats.collect() })
    }
    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }
    fn opener(&self) -> Option<&dyn Opener> {
        Some(self)
    }
}

/// A stream or a writer of the format with this name.
struct PanickingObject(String);

impl Importer for BadCitizen {
    fn formats(&self) -> &[Format] {
        &self.formats
    }
    fn open(
        &self,
        _call: &Call<'_>,
        _input: Input,
        request: &ReadRequest<'_>,
    ) -> Result<Box<dyn BatchStream>> {
        let format = request.format;
        panic_if(format, "panic-open");
        if format == "fail" {
            return Err(Error::bad_data("injected failure"));
        }
        Ok(Box::new(PanickingObject(format.to_string())))
    }
}

unsafe extern "C" fn release_batch(array: *mut abi::ArrowArray) {
    // SAFETY: the caller passes a valid struct, which owns nothing but constants.
    unsafe { (*array).release = None };
}

/// A batch without columns.
fn batch(counter: &'static i64) -> Owned<abi::Batch> {
    struct Buffers([*const core::ffi::c_void; 1]);
    // SAFETY: the list never changes.
    unsafe impl Sync for Buffers {}
    static BUFFERS: Buffers = Buffers([core::ptr::null()]);
    let mut batch = abi::Batch::new();
    batch.array.device_type = abi::DEVICE_CPU;
    batch.array.device_id = -1;
    batch.array.array = abi::ArrowArray {
        length: 5,
        n_buffers: 1,
        buffers: BUFFERS.0.as_ptr().cast_mut(),
        release: Some(release_batch),
        ..abi::ArrowArray::default()
    };
    batch.n_rows_device = counter;
    // SAFETY: the batch is valid: it consists of constants, and `release_batch` clears its release.
    unsafe { Owned::new(batch) }
}

unsafe extern "C" fn release_nothing(schema: *mut abi::ArrowSchema) {
    // SAFETY: the caller passes a valid struct, which owns nothing but constants.
    unsafe { (*schema).release = None };
}

impl BatchStream for PanickingObject {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        panic_if(&self.0, "panic-schema");
        let schema = abi::ArrowSchema {
            format: c"+s".as_ptr(),
            name: c"".as_ptr(),
            release: Some(release_nothing),
            ..abi::ArrowSchema::default()
        };
        // SAFETY: the schema is valid; its strings are constants and its `release` clears it.
        Ok(unsafe { Owned::new(schema) })
    }
    fn next(&mut self, _call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        panic_if(&self.0, "panic-next");
        match std::mem::take(&mut self.0).as_str() {
            "three-of-five" => Ok(Some(batch(&COUNTERS[0]))),
            "six-of-five" => Ok(Some(batch(&COUNTERS[1]))),
            other => {
                self.0 = other.to_string();
                Ok(None)
            }
        }
    }
}

impl Drop for PanickingObject {
    fn drop(&mut self) {
        if self.0 == "panic-stream-release" || self.0 == "panic-writer-release" {
            panic!("{}: injected panic", self.0);
        }
    }
}

impl Exporter for BadCitizen {
    fn formats(&self) -> &[Format] {
        &self.formats
    }
    fn plan(
        &self,
        _call: &Call<'_>,
        format: &str,
        _schema: &abi::ArrowSchema,
        _from: Device,
        _options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        panic_if(format, "panic-plan");
        Ok(Vec::new())
    }
    fn begin(
        &self,
        _call: &Call<'_>,
        format: &str,
        _schema: &abi::ArrowSchema,
        _options: &Options,
        _sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        panic_if(format, "panic-begin");
        if format == "fail" {
            return Err(Error::unsupported("injected failure"));
        }
        Ok(Box::new(PanickingObject(format.to_string())))
    }
}

impl BatchWriter for PanickingObject {
    fn write(&mut self, _call: &Call<'_>, _batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        panic_if(&self.0, "panic-write");
        Ok(Vec::new())
    }
    fn finish(&mut self, _call: &Call<'_>) -> Result<Vec<Capsule>> {
        panic_if(&self.0, "panic-finish");
        Ok(Vec::new())
    }
}

crossdock_plugin_api::crossdock_plugin!(
    BadCitizen,
    name: "bad-citizen",
    description: "panics wherever it is called",
    interfaces: "crossdock.importer/1 crossdock.exporter/1 crossdock.opener/1",
    formats: "panic-open panic-schema panic-next panic-stream-release panic-plan panic-begin panic-write panic-finish \
              panic-writer-release fail three-of-five six-of-five",
    schemes: "citizen",
);
