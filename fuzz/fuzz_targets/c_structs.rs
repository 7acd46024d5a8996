//! Imports Arrow's C structs with random counts, offsets, formats, names and metadata, and with
//! correct buffer sizes. An imported batch must be valid and support all operations, and its array
//! must be released exactly once.
#![no_main]

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_arrays::{import_batch, import_schema};
use crossdock_fuzz::{Bytes, exercise};
use crossdock_memory::Device;
use crossdock_plugin_api::{Owned, abi};
use crossdock_test_support::TestHost;
use libfuzzer_sys::fuzz_target;

const MAX_DEPTH: usize = 4;
/// Each entry is a format string, its number of buffers, and its number of children.
const FORMATS: [(&str, usize, usize); 49] = [
    ("n", 0, 0),
    ("b", 2, 0),
    ("c", 2, 0),
    ("C", 2, 0),
    ("s", 2, 0),
    ("S", 2, 0),
    ("i", 2, 0),
    ("I", 2, 0),
    ("l", 2, 0),
    ("L", 2, 0),
    ("e", 2, 0),
    ("f", 2, 0),
    ("g", 2, 0),
    ("z", 3, 0),
    ("Z", 3, 0),
    ("u", 3, 0),
    ("U", 3, 0),
    ("vz", 4, 0),
    ("vu", 4, 0),
    ("vu", 3, 0),
    ("d:5,2,32", 2, 0),
    ("d:12,2,64", 2, 0),
    ("d:10,2", 2, 0),
    ("d:40,2,256", 2, 0),
    ("d:99,2", 2, 0),
    ("w:3", 2, 0),
    ("w:0", 2, 0),
    ("tdD", 2, 0),
    ("tdm", 2, 0),
    ("tts", 2, 0),
    ("ttn", 2, 0),
    ("tss:", 2, 0),
    ("tsn:UTC", 2, 0),
    ("tDs", 2, 0),
    ("tiM", 2, 0),
    ("tiD", 2, 0),
    ("tin", 2, 0),
    ("+l", 2, 1),
    ("+L", 2, 1),
    ("+vl", 3, 1),
    ("+vL", 3, 1),
    ("+w:2", 1, 1),
    ("+w:2147483647", 1, 1),
    ("+s", 1, 2),
    ("+m", 2, 1),
    ("+us:0,1", 1, 2),
    ("+ud:0,5", 2, 2),
    ("+r", 0, 2),
    ("?", 2, 0),
];
/// The maximum number of pairs that the generated metadata declares, and the maximum declared
/// number of bytes of a key or a value.
const MAX_PAIRS: i64 = 512;
const MAX_PART_BYTES: i64 = 256;
const INDICES: [&str; 4] = ["c", "S", "i", "l"];

/// Number of released root arrays.
static RELEASED: AtomicUsize = AtomicUsize::new(0);

/// The `private_data` of a schema.
struct SchemaParts {
    texts: [CString; 2],
    metadata: Vec<u8>,
    children: Vec<*mut abi::ArrowSchema>,
    dictionary: Option<Box<abi::ArrowSchema>>,
}

unsafe extern "C" fn release_schema(schema: *mut abi::ArrowSchema) {
    // SAFETY: `Generator::schema` boxed the parts; the caller passes an unreleased schema.
    unsafe {
        (*schema).release = None;
        let parts = Box::from_raw((*schema).private_data.cast::<SchemaParts>());
        for child in &parts.children {
            drop(Owned::new(*Box::from_raw(*child)));
        }
        drop(parts.dictionary.map(|dictionary| Owned::new(*dictionary)));
        drop((parts.texts, parts.metadata));
    }
}

/// The `private_data` of an array.
struct ArrayParts {
    buffers: Vec<*const c_void>,
    _data: Vec<Vec<u8>>,
    children: Vec<*mut abi::ArrowArray>,
    dictionary: Option<Box<abi::ArrowArray>>,
    is_root: bool,
}

unsafe extern "C" fn release_array(array: *mut abi::ArrowArray) {
    // SAFETY: `Generator::array` boxed the parts; the caller passes an unreleased array.
    unsafe {
        (*array).release = None;
        let parts = Box::from_raw((*array).private_data.cast::<ArrayParts>());
        for child in &parts.children {
            drop(Owned::new(*Box::from_raw(*child)));
        }
        drop(parts.dictionary.map(|dictionary| Owned::new(*dictionary)));
        RELEASED.fetch_add(parts.is_root.into(), Ordering::Relaxed);
    }
}

/// Generates the schema and the array of a column.
struct Generator<'a, 'b> {
    from: &'a mut Bytes<'b>,
    /// The size of each buffer in bytes, in pre-order of the arrays.
    sizes: Vec<i64>,
}

impl Generator<'_, '_> {
    fn column(&mut self, rows: i64, depth: usize) -> (abi::ArrowSchema, abi::ArrowArray) {
        let (format, buffers, children) = if depth == 0 { ("+s", 1, 2) } else { self.from.choose(&FORMATS) };
        let children = if depth == MAX_DEPTH { 0 } else { children };
        let is_dictionary = depth > 0 && depth < MAX_DEPTH && self.from.byte() > 230;
        let format = if is_dictionary { self.from.choose(&INDICES) } else { format };
        let (buffers, children) = if is_dictionary { (2, 0) } else { (buffers, children) };
        let data: Vec<Vec<u8>> =
            (0..self.from.count(buffers as i64).clamp(0, 8)).map(|_| self.data(rows)).collect();
        self.sizes.extend(data.iter().map(|data| data.len() as i64 - 64));
        let child = |generator: &mut Self| {
            let rows = i64::from(generator.from.byte() % 24);
            generator.column(rows, depth + 1)
        };
        let columns: Vec<_> =
            (0..self.from.count(children as i64).clamp(0, 4)).map(|_| child(self)).collect();
        let dictionary = is_dictionary.then(|| child(self));
        let (schemas, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let (schema_of, array_of) = dictionary.unzip();
        (self.schema(format, schemas, schema_of), self.array(rows, depth == 0, data, arrays, array_of))
    }

    fn data(&mut self, rows: i64) -> Vec<u8> {
        let usual = (rows as usize + 2) * self.from.choose(&[1, 2, 4, 8, 16]);
        let bytes = usize::try_from(self.from.count(usual as i64)).unwrap_or(0).min(4096);
        let mut data = self.from.take(bytes.min(96));
        data.resize(bytes + 64, 0);
        data
    }

    /// `begin` followed by random bytes, up to the first zero.
    fn text(&mut self, begin: &[u8]) -> CString {
        let n = usize::from(self.from.byte() % 16);
        let mut bytes = [begin, &self.from.take(n)].concat();
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        CString::new(bytes).expect("no zero byte")
    }

    /// Returns Arrow metadata with random counts and lengths. The metadata contains all bytes that
    /// it declares, because a reader cannot know the actual length.
    fn metadata(&mut self) -> Vec<u8> {
        let pairs = i64::from(self.from.byte() % 4);
        let mut bytes = Vec::new();
        let number = |generator: &mut Self, bytes: &mut Vec<u8>, usual, max| {
            let n = generator.from.count(usual).clamp(i32::MIN.into(), max) as i32;
            bytes.extend(n.to_ne_bytes());
            usize::try_from(n).unwrap_or(0)
        };
        number(self, &mut bytes, pairs, MAX_PAIRS);
        for _ in 0..2 * pairs {
            let usual = i64::from(self.from.byte() % 8);
            let n = number(self, &mut bytes, usual, MAX_PART_BYTES);
            bytes.extend(self.from.take(n));
        }
        // A reader reads the added zeros as pairs with an empty key and an empty value.
        bytes.resize(bytes.len() + 8 * MAX_PAIRS as usize, 0);
        bytes
    }

    fn schema(
        &mut self,
        format: &str,
        children: Vec<abi::ArrowSchema>,
        dictionary: Option<abi::ArrowSchema>,
    ) -> abi::ArrowSchema {
        let n_children = self.from.count(children.len() as i64).min(children.len() as i64);
        // The low three bits of `choice` select the flags, and the other bits select the random
        // parts.
        let choice = self.from.byte();
        let format = match choice >> 3 & 7 {
            7 => self.text(b""),
            6 => self.text(format.as_bytes()),
            _ => CString::new(format).expect("no zero byte"),
        };
        let name = if choice >> 6 == 3 { self.text(b"") } else { c"c".to_owned() };
        let metadata = if choice >> 5 == 5 { self.metadata() } else { Vec::new() };
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let texts = [format, name];
        let parts = Box::new(SchemaParts { texts, metadata, children, dictionary: dictionary.map(Box::new) });
        let parts = Box::leak(parts);
        abi::ArrowSchema {
            format: parts.texts[0].as_ptr(),
            name: parts.texts[1].as_ptr(),
            metadata: if parts.metadata.is_empty() {
                std::ptr::null()
            } else {
                parts.metadata.as_ptr().cast::<c_char>()
            },
            flags: i64::from(choice & 7),
            n_children,
            children: parts.children.as_mut_ptr(),
            dictionary: parts.dictionary.as_deref_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut),
            release: Some(release_schema),
            private_data: std::ptr::from_mut(parts).cast(),
        }
    }

    fn array(
        &mut self,
        rows: i64,
        is_root: bool,
        data: Vec<Vec<u8>>,
        children: Vec<abi::ArrowArray>,
        dictionary: Option<abi::ArrowArray>,
    ) -> abi::ArrowArray {
        // The data is 64 bytes larger than the size given to the importer, so that any alignment
        // fits.
        let address_of = |generator: &mut Self, data: &Vec<u8>| -> *const c_void {
            match generator.from.byte() {
                0..=8 => std::ptr::null(),
                9..=20 => data.as_ptr().wrapping_add(1).cast(),
                _ => data.as_ptr().wrapping_add(data.as_ptr().align_offset(64).min(63)).cast(),
            }
        };
        let buffers = data.iter().map(|data| address_of(self, data)).collect();
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let dictionary = dictionary.map(Box::new);
        let parts = Box::leak(Box::new(ArrayParts { buffers, _data: data, children, dictionary, is_root }));
        let (n_buffers, n_children) = (parts.buffers.len() as i64, parts.children.len() as i64);
        abi::ArrowArray {
            length: self.from.count(rows),
            null_count: self.from.choose(&[0, -1, 0, -1, 1, 5, i64::MIN]),
            offset: self.from.choose(&[0, 0, 0, 0, 1, 3, -1, i64::MAX]),
            n_buffers: self.from.count(n_buffers).min(n_buffers),
            n_children: self.from.count(n_children).min(n_children),
            buffers: parts.buffers.as_mut_ptr(),
            children: parts.children.as_mut_ptr(),
            dictionary: parts.dictionary.as_deref_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut),
            release: Some(release_array),
            private_data: std::ptr::from_mut(parts).cast(),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let host = TestHost::new();
    let stream = host.stream(Device::CPU);
    let mut from = Bytes(bytes);
    let mut generator = Generator { from: &mut from, sizes: Vec::new() };
    let begin = generator.from.byte();
    let (schema, array) = generator.column(i64::from(begin % 24), 0);
    let metadata = if begin >= 240 { generator.metadata() } else { Vec::new() };
    let sizes = generator.sizes;
    // SAFETY: `column` created both structs, and nothing else releases them.
    let (schema, array) = unsafe { (Owned::new(schema), Owned::new(array)) };
    let before = RELEASED.load(Ordering::Relaxed);
    match import_schema(&schema) {
        Ok(schema) => {
            let mut batch = abi::Batch::new();
            batch.array.array = array.into_raw();
            batch.array.device_type = Device::CPU.r#type;
            (batch.buffer_sizes, batch.n_buffer_sizes) = (sizes.as_ptr(), sizes.len());
            if !metadata.is_empty() {
                batch.metadata = metadata.as_ptr().cast();
            }
            // SAFETY: the array is owned by the batch only; sizes and metadata live until the end
            // of this function.
            let batch = unsafe { Owned::new(batch) };
            if let Ok(batch) = import_batch(batch, &Arc::new(schema), &host.memory()) {
                // An error is a valid result.
                drop(exercise(&batch, &stream));
            }
        }
        Err(_) => drop(array),
    }
    drop((stream, schema));
    assert_eq!(RELEASED.load(Ordering::Relaxed), before + 1, "the array was released once");
    host.assert_nothing_leaked();
});
