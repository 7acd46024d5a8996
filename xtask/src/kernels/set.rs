//! Packs several images as a `crossdock_image_set`.

use super::nvrtc::Output;
use crossdock_plugin_api::abi;

/// The alignment of images. Cubins are ELF files, whose readers may require alignment.
const ALIGNMENT: usize = 64;

/// Packs the header, one table row for each image, and the images.
pub fn pack(images: &[(Output, u32, Vec<u8>)]) -> Vec<u8> {
    let rows = size_of::<abi::ImageSet>() + images.len() * size_of::<abi::Image>();
    let (mut head, mut body) = (Vec::new(), Vec::new());
    for (output, architecture, image) in images {
        body.resize((rows + body.len()).next_multiple_of(ALIGNMENT) - rows, 0);
        let kind = if *output == Output::Cubin { abi::IMAGE_CUBIN } else { abi::IMAGE_PTX };
        head.extend(kind.to_le_bytes());
        head.extend(architecture.to_le_bytes());
        head.extend(((rows + body.len()) as u64).to_le_bytes());
        head.extend((image.len() as u64).to_le_bytes());
        body.extend(image);
    }
    let mut set = Vec::new();
    set.extend(abi::IMAGE_SET_MAGIC.to_le_bytes());
    set.extend(((rows + body.len()) as u64).to_le_bytes());
    set.extend((images.len() as u32).to_le_bytes());
    set.extend(0u32.to_le_bytes());
    set.extend(head);
    set.extend(body);
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_image_set_contain_offset_and_size_of_each_image() {
        let set = pack(&[(Output::Cubin, 90, vec![7; 5]), (Output::Ptx, 70, b"ptx\0".to_vec())]);
        let word = |at: usize| u64::from_le_bytes(set[at..at + 8].try_into().unwrap());
        assert_eq!(&set[..8], b"XDIMGES1");
        assert_eq!(word(8), set.len() as u64);
        assert_eq!(word(16), 2);
        for (row, kind, architecture, image) in [(24, 1, 90, &[7; 5][..]), (48, 2, 70, b"ptx\0")] {
            assert_eq!(word(row), kind | architecture << 32);
            let at = word(row + 8) as usize;
            assert_eq!(at % ALIGNMENT, 0);
            assert_eq!(&set[at..at + word(row + 16) as usize], image);
        }
    }
}
