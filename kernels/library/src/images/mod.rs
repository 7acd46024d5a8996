//! What CUDA devices run: all kernels as one module, compiled for several architectures by `cargo xtask kernels`, and
//! compressed.

mod lz4;

use std::sync::OnceLock;

/// How long the set is, in 8 bytes, and then the set as an LZ4 block.
static PACKED: &[u8] = include_bytes!("../../images/crossdock.images.lz4");

/// Where the set begins in memory: cubins are ELF files, which their readers may want aligned.
const ALIGNMENT: usize = 64;

/// A `crossdock_image_set`, unpacked when it is first asked for and kept. Every kernel has these same bytes, so that a
/// device loads them once. Empty if the packed bytes are broken, which a test rules out.
pub fn images() -> &'static [u8] {
    static SET: OnceLock<&'static [u8]> = OnceLock::new();
    SET.get_or_init(|| unpack(PACKED).unwrap_or(&[]))
}

fn unpack(packed: &[u8]) -> Option<&'static [u8]> {
    let (len, block) = packed.split_first_chunk::<8>()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let mut room = vec![0; len.checked_add(ALIGNMENT)?];
    let begin = room.as_ptr().align_offset(ALIGNMENT);
    lz4::decode(block, room.get_mut(begin..begin.checked_add(len)?)?)?;
    // For as long as the program runs, as a static would be.
    room.leak().get(begin..begin + len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_plugin_api::abi;

    #[test]
    fn the_images_unpack_to_a_set_of_the_length_that_it_says() {
        let set = images();
        assert_eq!(set.as_ptr().align_offset(ALIGNMENT), 0);
        assert_eq!(set[..8], abi::IMAGE_SET_MAGIC.to_le_bytes());
        assert_eq!(set[8..16], (set.len() as u64).to_le_bytes());
    }

    #[test]
    fn broken_bytes_are_nothing_and_no_panic() {
        assert_eq!(unpack(&PACKED[..7]), None);
        assert_eq!(unpack(&PACKED[..PACKED.len() - 1]), None);
        assert_eq!(unpack(&u64::MAX.to_le_bytes()), None);
    }
}
