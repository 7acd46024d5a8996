//! Arrow's C structs with every count and size taken from the fuzzer's bytes, beside a true table of sizes; formats, names and metadata
//! too, now and then: an error, or a sound batch that is used in all ways, and released once. Nothing else.
#![no_main]

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_arrays::{import_batch, import_schema};
use crossdock_fuzz::{Bytes, use_up};
use crossdock_memory::Device;
use crossdock_plugin_api::{Owned, abi};
use crossdock_test_support::TestHost;
use libfuzzer_sys::fuzz_target;

const DEEPEST: usize = 4;
/// A format, its buffers, its children.
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
/// Of metadata, the most pairs that are said to be there, and bytes of a key or a value.
const MOST_PAIRS: i64 = 512;
const MOST_PART: i64 = 256;
const INDICES: [&str; 4] = ["c", "S", "i", "l"];

/// How often an array was released that was handed over whole.
static RELEASED: AtomicUsize = AtomicUsize::new(0);

/// What a schema's struct points at.
struct SchemaParts {
    texts: [CString; 2],
    metadata: Vec<u8>,
    children: Vec<*mut abi::ArrowSchema>,
    dictionary: Option<Box<abi::ArrowSchema>>,
}

unsafe extern "C" fn release_schema(schema: *mut abi::ArrowSchema) {
    // SAFETY: made by `Maker::schema`, released once.
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

/// What an array's struct points at. Buffers are as aligned as Arrow recommends, half of the time.
struct ArrayParts {
    buffers: Vec<*const c_void>,
    _data: Vec<Vec<u8>>,
    children: Vec<*mut abi::ArrowArray>,
    dictionary: Option<Box<abi::ArrowArray>>,
    is_root: bool,
}

unsafe extern "C" fn release_array(array: *mut abi::ArrowArray) {
    // SAFETY: made by `Maker::array`, released once.
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

/// Both structs of a column, made side by side.
struct Maker<'a, 'b> {
    from: &'a mut Bytes<'b>,
    /// Of each buffer, in pre-order.
    sizes: Vec<i64>,
}

impl Maker<'_, '_> {
    fn column(&mut self, rows: i64, depth: usize) -> (abi::ArrowSchema, abi::ArrowArray) {
        let (format, buffers, children) =
            if depth == 0 { ("+s", 1, 2) } else { self.from.of(&FORMATS) };
        let children = if depth == DEEPEST { 0 } else { children };
        let is_dictionary = depth > 0 && depth < DEEPEST && self.from.byte() > 230;
        let format = if is_dictionary { self.from.of(&INDICES) } else { format };
        let (buffers, children) = if is_dictionary { (2, 0) } else { (buffers, children) };
        let data: Vec<Vec<u8>> = (0..self.from.count(buffers as i64).clamp(0, 8)).map(|_| self.data(rows)).collect();
        self.sizes.extend(data.iter().map(|data| data.len() as i64 - 64));
        let inside = |maker: &mut Self| {
            let rows = i64::from(maker.from.byte() % 24);
            maker.column(rows, depth + 1)
        };
        let made: Vec<_> = (0..self.from.count(children as i64).clamp(0, 4)).map(|_| inside(self)).collect();
        let dictionary = is_dictionary.then(|| inside(self));
        let (schemas, arrays): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        let (schema_of, array_of) = dictionary.unzip();
        (self.schema(format, schemas, schema_of), self.array(rows, depth == 0, data, arrays, array_of))
    }

    fn data(&mut self, rows: i64) -> Vec<u8> {
        let usual = (rows as usize + 2) * self.from.of(&[1, 2, 4, 8, 16]);
        let bytes = usize::try_from(self.from.count(usual as i64)).unwrap_or(0).min(4096);
        let mut data = self.from.some(bytes.min(96));
        data.resize(bytes + 64, 0);
        data
    }

    /// What the fuzzer has, behind this, up to its first zero.
    fn text(&mut self, begin: &[u8]) -> CString {
        let n = usize::from(self.from.byte() % 16);
        let mut bytes = [begin, &self.from.some(n)].concat();
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        CString::new(bytes).expect("no zero byte")
    }

    /// Pairs as Arrow has them, with numbers of any kind: what they say is there, for the reader has nothing but their word for it.
    fn metadata(&mut self) -> Vec<u8> {
        let pairs = i64::from(self.from.byte() % 4);
        let mut bytes = Vec::new();
        let number = |maker: &mut Self, bytes: &mut Vec<u8>, usual, most| {
            let n = maker.from.count(usual).clamp(i32::MIN.into(), most) as i32;
            bytes.extend(n.to_ne_bytes());
            usize::try_from(n).unwrap_or(0)
        };
        number(self, &mut bytes, pairs, MOST_PAIRS);
        for _ in 0..2 * pairs {
            let usual = i64::from(self.from.byte() % 8);
            let n = number(self, &mut bytes, usual, MOST_PART);
            bytes.extend(self.from.some(n));
        }
        // Of more pairs than these, each has an empty key and an empty value.
        bytes.resize(bytes.len() + 8 * MOST_PAIRS as usize, 0);
        bytes
    }

    fn schema(
        &mut self,
        format: &str,
        children: Vec<abi::ArrowSchema>,
        dictionary: Option<abi::ArrowSchema>,
    ) -> abi::ArrowSchema {
        let n = self.from.count(children.len() as i64).min(children.len() as i64);
        // What is above the flags says what else is made up.
        let what = self.from.byte();
        let format = match what >> 3 & 7 {
            7 => self.text(b""),
            6 => self.text(format.as_bytes()),
            _ => CString::new(format).expect("no zero byte"),
        };
        let name = if what >> 6 == 3 { self.text(b"") } else { c"c".to_owned() };
        let metadata = if what >> 5 == 5 { self.metadata() } else { Vec::new() };
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let texts = [format, name];
        let parts = Box::new(SchemaParts { texts, metadata, children, dictionary: dictionary.map(Box::new) });
        let parts = Box::leak(parts);
        abi::ArrowSchema {
            format: parts.texts[0].as_ptr(),
            name: parts.texts[1].as_ptr(),
            metadata: if parts.metadata.is_empty() { std::ptr::null() } else { parts.metadata.as_ptr().cast::<c_char>() },
            flags: i64::from(what & 7),
            n_children: n,
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
        // There are 64 bytes more than the table says, to lie at any address in.
        let place = |maker: &mut Self, data: &Vec<u8>| -> *const c_void {
            match maker.from.byte() {
                0..=8 => std::ptr::null(),
                9..=20 => data.as_ptr().wrapping_add(1).cast(),
                _ => data.as_ptr().wrapping_add(data.as_ptr().align_offset(64).min(63)).cast(),
            }
        };
        let buffers = data.iter().map(|data| place(self, data)).collect();
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let dictionary = dictionary.map(Box::new);
        let parts = Box::leak(Box::new(ArrayParts { buffers, _data: data, children, dictionary, is_root }));
        let (n_buffers, n_children) = (parts.buffers.len() as i64, parts.children.len() as i64);
        abi::ArrowArray {
            length: self.from.count(rows),
            null_count: self.from.of(&[0, -1, 0, -1, 1, 5, i64::MIN]),
            offset: self.from.of(&[0, 0, 0, 0, 1, 3, -1, i64::MAX]),
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
    let mut maker = Maker { from: &mut from, sizes: Vec::new() };
    let begin = maker.from.byte();
    let (schema, array) = maker.column(i64::from(begin % 24), 0);
    let metadata = if begin >= 240 { maker.metadata() } else { Vec::new() };
    let sizes = maker.sizes;
    // SAFETY: made above, ours to give.
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
            // SAFETY: as above; sizes and metadata live until the end of this function.
            let batch = unsafe { Owned::new(batch) };
            if let Ok(batch) = import_batch(batch, &Arc::new(schema), &host.memory()) {
                // An error is an answer.
                drop(use_up(&batch, &stream));
            }
        }
        Err(_) => drop(array),
    }
    drop((stream, schema));
    assert_eq!(RELEASED.load(Ordering::Relaxed), before + 1, "the array was released once");
    host.assert_nothing_leaked();
});
