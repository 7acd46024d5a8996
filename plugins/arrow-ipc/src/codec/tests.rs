use super::*;

fn sample(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i / 7 % 251) as u8 ^ (i >> 9) as u8).collect()
}

fn unpack(codec: Codec, stored: &[u8]) -> Result<Vec<u8>> {
    let prefix = stored[..PREFIX_BYTES].try_into().unwrap();
    let content = codec.read_prefix(prefix, stored.len())?;
    let mut out = vec![0; content.bytes()];
    match content {
        StoredBuffer::Plain(_) => out.copy_from_slice(&stored[PREFIX_BYTES..]),
        StoredBuffer::Frame(_) => codec.decompress(&stored[PREFIX_BYTES..], &mut out)?,
    }
    Ok(out)
}

#[test]
fn round_trip_keeps_bytes() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        for bytes in [1, 7, 100, 65_536, 65_537, 1_000_003] {
            let from = sample(bytes);
            assert_eq!(unpack(codec, &codec.compress(&from).unwrap()).unwrap(), from, "{codec:?} {bytes}");
        }
    }
}

/// Creates the validity bitmap of 8192 rows, some of which are null.
fn validity(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0xff; 1024];
    let mut state = seed;
    for _ in 0..20 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes[(state >> 33) as usize % 1024] &= !(1 << (state >> 43 & 7));
    }
    bytes
}

#[test]
fn compression_is_deterministic() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let all: Vec<_> = (0..20).map(validity).collect();
        let reused: Vec<_> = all.iter().map(|from| codec.compress(from).unwrap()).collect();
        let fresh = all.iter().map(|from| {
            std::thread::scope(|scope| scope.spawn(|| codec.compress(from).unwrap()).join().unwrap())
        });
        assert!(fresh.eq(reused), "{codec:?}");
    }
}

#[test]
fn stores_incompressible_bytes_uncompressed() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let stored = codec.compress(&[1, 2, 3]).unwrap();
        assert_eq!(stored, [&[0xff; 8][..], &[1, 2, 3]].concat());
        assert_eq!(unpack(codec, &stored).unwrap(), [1, 2, 3]);
    }
}

#[test]
fn accepts_padding_and_rejects_other_bytes_after_a_frame() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut stored = codec.compress(&sample(10_000)).unwrap();
        stored.extend_from_slice(&[0; 40]);
        assert_eq!(unpack(codec, &stored).unwrap(), sample(10_000));
        stored.extend_from_slice(&[1]);
        assert!(unpack(codec, &stored).is_err());
    }
}

#[test]
fn decompresses_several_frames_in_one_buffer() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let parts = [sample(10_000), sample(200_003), sample(3_000)];
        let frames = parts.each_ref().map(|part| codec.compress(part).unwrap()[PREFIX_BYTES..].to_vec());
        let (content, all) = (parts.concat(), frames.concat());
        let unpack =
            |frames: &[u8]| unpack(codec, &[&(content.len() as i64).to_le_bytes()[..], frames].concat());
        assert_eq!(unpack(&all).unwrap(), content, "{codec:?}");
        assert_eq!(unpack(&[&all[..], &[0; 9]].concat()).unwrap(), content, "{codec:?}");
        let missing = frames[..2].concat();
        let apart = [&missing[..], &[0; 8], &frames[2]].concat();
        for wrong in [&all[..all.len() - 1], &missing, &apart, &[&all[..], &frames[2]].concat()] {
            assert!(unpack(wrong).is_err(), "{codec:?}");
        }
    }
}

#[test]
fn rejects_wrong_declared_lengths() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let stored = codec.compress(&sample(10_000)).unwrap();
        for claim in [0i64, 1, 9_999, 10_001, 20_000, 1 << 40, i64::MAX, i64::MIN, -2] {
            let mut lying = stored.clone();
            lying[..8].copy_from_slice(&claim.to_le_bytes());
            let error = unpack(codec, &lying).unwrap_err();
            assert_eq!(error.code(), crossdock_plugin_api::Code::BAD_DATA, "{codec:?} {claim}: {error}");
        }
    }
}

#[test]
fn rejects_frames_truncated_at_any_byte() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let stored = codec.compress(&sample(3_000)).unwrap();
        for end in 8..stored.len() {
            assert!(unpack(codec, &stored[..end]).is_err(), "{codec:?} {end}");
        }
    }
}

#[test]
fn valid_frame_is_decoded_after_invalid_frame() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let good = codec.compress(&sample(3_000)).unwrap();
        let mut bad_data = good.clone();
        bad_data.truncate(good.len() - 5);
        assert!(unpack(codec, &bad_data).is_err());
        assert_eq!(unpack(codec, &good).unwrap(), sample(3_000));
    }
}

#[test]
fn flipped_bits_are_rejected_or_harmless() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let good = codec.compress(&sample(2_000)).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad_data = good.clone();
            bad_data[bit / 8] ^= 1 << (bit % 8);
            // If the frame has no checksum, a flipped bit in its content cannot be detected.
            let _ = unpack(codec, &bad_data);
        }
    }
}

#[test]
fn decompresses_pieces_of_any_size() {
    let from = sample(200_003);
    let (first, second) = from.split_at(100_000);
    let mut stored = Codec::Lz4.compress(first).unwrap();
    stored.extend_from_slice(&Codec::Lz4.compress(second).unwrap()[PREFIX_BYTES..]);
    stored.extend_from_slice(&[0; 40]);
    let unpack = |frame: &[u8], max: usize| {
        let mut out = vec![0; from.len()];
        let each = |_, next: &mut dyn FnMut(&[u8]) -> Result<()>| frame.chunks(max).try_for_each(next);
        Codec::Lz4.decompress_pieces(frame.len(), &mut out, each).map(|()| out)
    };
    for max in [1, 3, 4_096, 65_536, 1 << 20] {
        let frame = &stored[PREFIX_BYTES..];
        assert_eq!(unpack(frame, max).unwrap(), from, "{max}");
        for wrong in [&frame[..frame.len() - 60], &[frame, &[0; 30]].concat(), &[frame, &[1]].concat()] {
            assert!(unpack(wrong, max).is_err(), "{max}");
        }
    }
}

#[test]
fn header_of_a_frame_tells_how_its_blocks_are_stored() {
    use lz4::FrameHeader;
    let frame = |bytes: usize| Codec::Lz4.compress(&sample(bytes)).unwrap()[PREFIX_BYTES..].to_vec();
    let header = FrameHeader { bytes: 7, block_bytes: 65536, are_linked: false };
    assert_eq!(FrameHeader::read(&frame(1_000_000), 1_000_000), Some(header));
    // BD 0x60: blocks of up to 1 MiB. The right checksum is found by trying all of them.
    let is_known = |flags: u8, rest: &[u8], content: usize| {
        (0..=255).find_map(|checksum| {
            let bytes = [&[0x04, 0x22, 0x4d, 0x18, flags, 0x60], rest, &[checksum], &[0; 12]].concat();
            FrameHeader::read(&bytes, content)
        })
    };
    let large = FrameHeader { block_bytes: 1 << 20, ..header };
    assert_eq!(is_known(0x60, &[], 5_000_000), Some(large));
    assert_eq!(is_known(0x40, &[], 1 << 20), Some(large), "one block cannot refer to another one");
    assert_eq!(is_known(0x40, &[], (1 << 20) + 1), Some(FrameHeader { are_linked: true, ..large }));
    let size = 5u64.to_le_bytes();
    assert_eq!(is_known(0x48, &size, 5), Some(FrameHeader { bytes: 15, ..large }));
    assert_eq!(is_known(0x48, &size, 6), None, "another length");
    assert_eq!(is_known(0x44, &[], 5), None, "a checksum of the content");
    assert_eq!(is_known(0x50, &[], 5), None, "checksums of blocks");
    assert_eq!(is_known(0x41, &[1, 0, 0, 0], 5), None, "a dictionary");
    assert_eq!(is_known(0x80, &[], 5), None, "another version");
    let mut damaged = frame(1_000_000);
    damaged[6] ^= 1;
    assert_eq!(FrameHeader::read(&damaged, 1_000_000), None, "a wrong checksum of the header");
    assert_eq!(FrameHeader::read(&frame(1_000_000)[..6], 1_000_000), None, "a truncated header");
    let skippable = [&0x184d_2a50u32.to_le_bytes()[..], &[0; 20]].concat();
    assert_eq!(FrameHeader::read(&skippable, 5), None, "a skippable frame");
}
