//! The compressed images of all kernels as one module, compiled for several architectures by `cargo
//! xtask kernels`.

mod lz4;

use std::sync::OnceLock;

/// The length of the image set in 8 bytes, followed by the set as an LZ4 block.
static PACKED: &[u8] = include_bytes!("../../images/crossdock.images.lz4");

/// The alignment of the set in memory. Cubins are ELF files, and ELF readers may require this
/// alignment.
const ALIGNMENT: usize = 64;

/// Returns the `crossdock_image_set`, which is decompressed at the first call. All kernels share
/// these bytes, so a device loads them once. The result is empty if decompression fails; a test
/// checks that decompression succeeds.
pub fn images() -> &'static [u8] {
    static SET: OnceLock<&'static [u8]> = OnceLock::new();
    SET.get_or_init(|| unpack(PACKED).unwrap_or(&[]))
}

fn unpack(packed: &[u8]) -> Option<&'static [u8]> {
    let (len, block) = packed.split_first_chunk::<8>()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let mut memory = vec![0; len.checked_add(ALIGNMENT)?];
    let begin = memory.as_ptr().align_offset(ALIGNMENT);
    lz4::decode(block, memory.get_mut(begin..begin.checked_add(len)?)?)?;
    // The image set is never freed, because it is used until the program ends.
    memory.leak().get(begin..begin + len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_plugin_api::abi;

    #[test]
    fn decompressed_image_set_has_its_declared_length() {
        let set = images();
        assert_eq!(set.as_ptr().align_offset(ALIGNMENT), 0);
        assert_eq!(set[..8], abi::IMAGE_SET_MAGIC.to_le_bytes());
        assert_eq!(set[8..16], (set.len() as u64).to_le_bytes());
    }

    #[test]
    fn unpack_rejects_malformed_bytes() {
        assert_eq!(unpack(&PACKED[..7]), None);
        assert_eq!(unpack(&PACKED[..PACKED.len() - 1]), None);
        assert_eq!(unpack(&u64::MAX.to_le_bytes()), None);
    }
}
