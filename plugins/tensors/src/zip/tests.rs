//! Tests of archives, and of archives that are changed at one place.

use crossdock_memory::Result;
use crossdock_plugin_api::{BufferedSink, Code};

use super::read::Entry;
use super::{ArchiveWriter, Compression, END, Inflater, check_crc, check_name, read};
use crate::crc::Crc32;
use crate::test_source::{sink, stored};

fn archive(members: &[(&str, &[u8])], compression: Compression) -> Vec<u8> {
    let (sink, bytes) = sink();
    let mut out = BufferedSink::new(sink);
    let mut writer = ArchiveWriter::new(compression);
    for (name, data) in members {
        writer.member(&mut out, name, &mut |f| data.chunks(1000).try_for_each(&mut *f)).unwrap();
    }
    writer.finish(&mut out).unwrap();
    out.flush().unwrap();
    drop(out);
    let written = bytes.lock().unwrap();
    written.clone()
}

fn noise(n: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..n).map(next).collect()
}

/// Decompresses all members in pieces.
fn contents(bytes: &[u8], piece_bytes: usize) -> Result<Vec<(String, Vec<u8>)>> {
    let file = stored(bytes);
    let content = |entry: Entry| {
        let member = entry.member.map_err(crossdock_memory::Error::unsupported)?;
        let mut data = vec![0; member.bytes as usize];
        if member.is_deflated {
            let mut inflater = Inflater::new(&member);
            for piece in data.chunks_mut(piece_bytes) {
                inflater.read(&|| Ok(()), &file, piece)?;
            }
        } else {
            file.read(member.offset, &mut data)?;
            let mut crc = Crc32::new();
            crc.add(&data);
            check_crc(crc, &member)?;
        }
        Ok((entry.name, data))
    };
    read(&file)?.into_iter().map(content).collect()
}

#[test]
fn members_round_trip() {
    let (empty, noise, zeros) = (Vec::new(), noise(300_001), vec![0; 300_001]);
    let members: Vec<(&str, &[u8])> =
        vec![("empty", &empty), ("noise", &noise), ("\u{e9}", &zeros), ("", b"x")];
    for compression in [Compression::None, Compression::Deflate] {
        let bytes = archive(&members, compression);
        for piece_bytes in [1 << 20, 4096, 997] {
            let got = contents(&bytes, piece_bytes).unwrap();
            let expected: Vec<_> =
                members.iter().map(|(name, data)| (name.to_string(), data.to_vec())).collect();
            assert!(got == expected, "{compression:?} {piece_bytes}");
        }
    }
    assert_eq!(contents(&archive(&[], Compression::None), 1).unwrap(), []);
}

#[test]
fn data_of_stored_members_is_aligned() {
    let names: Vec<String> = (0..70).map(|n| "n".repeat(n)).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"abc"[..])).collect();
    for entry in read(&stored(&archive(&members, Compression::None))).unwrap() {
        assert_eq!(entry.member.unwrap().offset % 64, 0, "{}", entry.name);
    }
}

#[test]
fn skipped_bytes_are_part_of_the_checksum() {
    let data = noise(200_000);
    let bytes = archive(&[("a", &data)], Compression::Deflate);
    let file = stored(&bytes);
    let member = read(&file).unwrap().remove(0).member.unwrap();
    let mut inflater = Inflater::new(&member);
    let mut rest = vec![0; 50_000];
    inflater.skip(&|| Ok(()), &file, 150_000).unwrap();
    assert_eq!((inflater.position(), inflater.is_at_end()), (150_000, false));
    inflater.read(&|| Ok(()), &file, &mut rest).unwrap();
    assert!(inflater.is_at_end());
    assert_eq!(rest, data[150_000..]);
    let wrong = super::Member { crc: member.crc ^ 1, ..member };
    let mut inflater = Inflater::new(&wrong);
    let error = inflater.skip(&|| Ok(()), &file, 200_000).unwrap_err();
    assert!(error.message().contains("CRC-32"), "{error}");
}

#[test]
fn archive_may_have_a_comment() {
    let mut bytes = archive(&[("a", b"some bytes")], Compression::None);
    let comment = [&END[..], &[0; 30]].concat();
    let at = bytes.len() - 2;
    bytes[at] = comment.len() as u8;
    bytes.extend(comment);
    assert_eq!(contents(&bytes, 100).unwrap().len(), 1);
    bytes.extend([0; 70_000]);
    assert!(contents(&bytes, 100).is_err());
}

/// An archive with so many members has a directory with 64-bit sizes.
#[test]
fn directory_may_have_64_bit_sizes() {
    let names: Vec<String> = (0..65_536).map(|i| i.to_string()).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
    let bytes = archive(&members, Compression::None);
    let entries = read(&stored(&bytes)).unwrap();
    assert_eq!(entries.len(), 65_536);
    assert_eq!(entries[65_535].name, "65535");
    let at = bytes.len() - 22 - 20;
    for (at, part) in
        [(at + 8, "truncated"), (at, "65536 members, expected 65535"), (at - 56, "end of a zip64 directory")]
    {
        let mut changed = bytes.clone();
        changed[at + 3] ^= 0x40;
        let error = read(&stored(&changed)).unwrap_err();
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn every_truncated_archive_is_an_error() {
    for compression in [Compression::None, Compression::Deflate] {
        let bytes = archive(&[("a", b"some bytes"), ("b", b"other bytes")], compression);
        for n in 0..bytes.len() {
            let error = contents(&bytes[..n], 100).unwrap_err();
            assert_eq!(error.code(), Code::BAD_DATA, "{n} bytes: {error}");
        }
    }
}

/// A change of a byte of the members' data must be an error, unless the byte has no meaning, such
/// as the padding before a block without compression. Changes of other bytes must not panic.
#[test]
fn changed_data_is_an_error_or_has_no_effect() {
    let data = noise(500);
    for compression in [Compression::None, Compression::Deflate] {
        let bytes = archive(&[("a", &data), ("b", &[7; 2000])], compression);
        let entries = read(&stored(&bytes)).unwrap().into_iter();
        let members: Vec<_> = entries.map(|entry| entry.member.unwrap()).collect();
        let expected = contents(&bytes, 100).unwrap();
        for at in 0..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= mask;
                let result = contents(&changed, 100);
                let is_data =
                    members.iter().any(|m| (m.offset..m.offset + m.stored_bytes).contains(&(at as u64)));
                let is_found = result.is_err_and(|error| error.code() == Code::BAD_DATA);
                let is_allowed = || contents(&changed, 100) == Ok(expected.clone());
                assert!(!is_data || is_found || is_allowed(), "{compression:?}: byte {at} ^ {mask:#x}");
            }
        }
    }
}

/// The offset of the header of member `i` in the central directory. Each name has 1 byte.
fn central(bytes: &[u8], i: usize) -> usize {
    let begin = u32::from_le_bytes(bytes[end(bytes) + 16..end(bytes) + 20].try_into().unwrap()) as usize;
    begin + i * 47
}

/// The offset of the end of the central directory.
fn end(bytes: &[u8]) -> usize {
    bytes.len() - 22
}

/// A change of an archive: writes a number of 4 bytes at an offset.
type Change = fn(&[u8]) -> (usize, u32);

/// Asserts that an archive of two members with 100 bytes each is rejected after some changes.
#[track_caller]
fn assert_rejected(compression: Compression, changes: &[Change], part: &str) {
    let mut bytes = archive(&[("a", &[1; 100]), ("b", &[2; 100])], compression);
    for change in changes {
        let (at, number) = change(&bytes);
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    let error = contents(&bytes, 1000).unwrap_err();
    assert!(error.message().contains(part), "{part:?} is not in {:?}", error.message());
}

#[test]
fn rejects_malformed_directories() {
    use Compression::{Deflate, None};
    assert_rejected(None, &[|b| (end(b) + 18, 7 << 16)], "no end of a central directory");
    assert_rejected(None, &[|b| (central(b, 1) + 42, 0)], "the local header has another name");
    assert_rejected(None, &[|b| (central(b, 1) + 42, 5)], "no local header at byte 5");
    assert_rejected(None, &[|b| (central(b, 1) + 42, 1 << 30)], "truncated");
    assert_rejected(None, &[|b| (central(b, 1) + 42, u32::MAX)], "truncated");
    assert_rejected(None, &[|b| (end(b) + 16, 1 << 30)], "expected at most");
    assert_rejected(None, &[|b| (end(b) + 12, 1 << 30)], "expected at most");
    assert_rejected(None, &[|b| (end(b) + 12, 94 - 1)], "truncated");
    assert_rejected(None, &[|b| (end(b) + 8, 0x0003_0003)], "2 members, expected 3");
    assert_rejected(None, &[|b| (end(b) + 8, u32::MAX)], "2 members, expected 65535");
    assert_rejected(None, &[|b| (end(b) + 4, 1)], "several disks");
    assert_rejected(Deflate, &[|b| (central(b, 0) + 8, 0x0008_0009)], "encrypted");
    assert_rejected(Deflate, &[|b| (central(b, 0) + 10, 14)], "the local header has compression method 8");
}

#[test]
fn rejects_members_that_overlap_or_have_other_sizes() {
    use Compression::{Deflate, None};
    let grown: [Change; 2] = [|b| (central(b, 0) + 20, 160), |b| (central(b, 0) + 24, 160)];
    assert_rejected(None, &grown, "'a' and 'b' of the archive overlap");
    assert_rejected(None, &[|b| (central(b, 0) + 24, 99)], "declares 99 bytes");
    assert_rejected(None, &[|b| (central(b, 0) + 20, 1 << 30)], "the central directory is at");
    assert_rejected(Deflate, &[|b| (central(b, 0) + 24, 1 << 30)], "declares 1073741824 bytes");
    assert_rejected(Deflate, &[|b| (central(b, 0) + 24, 99)], "more than 99 bytes");
    assert_rejected(Deflate, &[|b| (central(b, 0) + 24, 101)], "ends after 100 bytes, expected 101");
    assert_rejected(Deflate, &[|b| (central(b, 0) + 16, 7)], "declares 00000007");
    assert_rejected(None, &[|b| (central(b, 0) + 16, 7)], "declares 00000007");
}

#[test]
fn encrypted_members_are_named() {
    let mut bytes = archive(&[("a", &[1; 100]), ("b", &[2; 100])], Compression::None);
    let at = central(&bytes, 1) + 8;
    bytes[at] |= 1;
    let entries = read(&stored(&bytes)).unwrap();
    assert!(entries[0].member.is_ok());
    assert_eq!(entries[1].member, Err("an encrypted member of the archive".to_owned()));
}

#[test]
fn names_that_lead_out_of_a_folder_are_not_supported() {
    for (name, part) in [
        ("/a.npy", "'/a.npy' is not supported: it is an absolute path"),
        ("\\a.npy", "absolute path"),
        ("C:\\a.npy", "absolute path"),
        ("c:a.npy", "absolute path"),
        ("../a.npy", "'..'"),
        ("a/../../b.npy", "'..'"),
        ("a\\..\\b.npy", "'..'"),
    ] {
        let entries =
            read(&stored(&archive(&[("fine.npy", b"x"), (name, b"x")], Compression::None))).unwrap();
        assert!(entries[0].member.is_ok());
        let why = entries[1].member.as_ref().unwrap_err();
        assert!(why.contains(part), "{name}: {why}");
    }
    for name in ["a..npy", "..a/b.npy", "a/b/c.npy", ".npy", "1:a.npy", "ab:c.npy"] {
        assert!(check_name(name).is_ok(), "{name}");
    }
}
