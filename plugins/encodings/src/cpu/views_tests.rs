use super::*;

/// The view of one value by the format's definition.
fn view(value: &[u8], buffer: u32, offset: u32) -> View {
    let mut view = [0; 16];
    view[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
    if value.len() <= MAX_INLINE_BYTES {
        view[4..4 + value.len()].copy_from_slice(value);
    } else {
        view[4..8].copy_from_slice(&value[..4]);
        view[8..12].copy_from_slice(&buffer.to_le_bytes());
        view[12..].copy_from_slice(&offset.to_le_bytes());
    }
    view
}

fn text(n: usize, seed: u8) -> Vec<u8> {
    (0..n).map(|i| b'a' + ((i as u8).wrapping_mul(7).wrapping_add(seed)) % 26).collect()
}

fn message_of<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().message().to_owned()
}

#[test]
fn views_of_every_text_length_follow_the_arrow_specification() {
    let values: Vec<_> = (0..40).chain([3, 0, 12, 13, 1]).map(|n| text(n, n as u8)).collect();
    let data = values.concat();
    let lengths: Vec<u16> = values.iter().map(|v| v.len() as u16).collect();
    let mut views = vec![[0xaa; 16]; values.len()];
    let buffers = from_lengths(&lengths, &data, &mut views).unwrap();
    let offsets: Vec<i32> = std::iter::once(0)
        .chain(lengths.iter().scan(0, |at, n| {
            *at += i32::from(*n);
            Some(*at)
        }))
        .collect();
    assert_eq!(buffers, vec![0..data.len(); 1]);
    for (i, value) in values.iter().enumerate() {
        assert_eq!(views[i], view(value, 0, offsets[i] as u32), "{i}");
        assert_eq!(super::value(&views[i], &[&data[buffers[0].clone()]]).unwrap(), &value[..]);
    }
    let mut same = vec![[0xbb; 16]; values.len()];
    assert_eq!(from_offsets(&offsets, &data, &mut same).unwrap(), buffers);
    assert_eq!(same, views);
    check(&views, &[&data[buffers[0].clone()]], None, true).unwrap();
}

#[test]
fn short_values_need_no_buffer() {
    let mut views = [[0xaa; 16]; 3];
    assert_eq!(from_lengths(&[12u8, 0, 4], &text(16, 1), &mut views).unwrap(), []);
    assert_eq!(from_lengths::<u8>(&[], &[], &mut []).unwrap(), []);
    assert_eq!(single(b"short").unwrap(), (view(b"short", 0, 0), None));
    let value = text(13, 0);
    assert_eq!(single(&value).unwrap(), (view(&value, 0, 0), Some(&value[..])));
}

#[test]
fn splits_large_data_into_several_buffers() {
    let data = text(202, 3);
    let lengths = [20usize, 30, 5, 15, 40, 12, 40, 40];
    let ranges = || {
        lengths.iter().scan(0, |at, n| {
            *at += n;
            Some(*at - n..*at)
        })
    };
    let mut views = [[0; 16]; 8];
    let buffers = write(ranges(), 8, &data, 64, &mut views).unwrap();
    assert_eq!(buffers, [0..50, 55..110, 122..162, 162..202]);
    let slices: Vec<&[u8]> = buffers.iter().map(|b| &data[b.clone()]).collect();
    for (view, range) in views.iter().zip(ranges()) {
        assert_eq!(super::value(view, &slices).unwrap(), &data[range]);
    }
    assert!(buffers.iter().all(|b| b.len() <= 64));
    assert!(message_of(write(ranges(), 8, &data, 39, &mut views)).starts_with("value 4 has 40 bytes"));
}

#[test]
fn rejects_wrong_lengths_and_offsets() {
    let mut views = [[0; 16]; 2];
    assert_eq!(
        message_of(from_lengths(&[2u8, 3], b"abcd", &mut views)),
        "value 1 spans 2..5, expected a range within 4 bytes"
    );
    assert!(message_of(from_lengths(&[2u8, 1], b"abcd", &mut views)).contains("expected 3, got 4"));
    assert!(from_lengths(&[1u64, u64::MAX], b"abcd", &mut views).is_err());
    assert!(from_lengths(&[-1i8, 5], b"abcd", &mut views).is_err());
    assert!(from_lengths(&[4u8], b"abcd", &mut views).is_err());
    assert_eq!(
        message_of(from_offsets(&[3i32, 1, 4], b"abcd", &mut views)),
        "value 0 spans 3..1, expected a range within 4 bytes"
    );
    assert!(from_offsets(&[0i32, 1, 5], b"abcd", &mut views).is_err());
    assert!(from_offsets(&[-4i32, 1, 4], b"abcd", &mut views).is_err());
    assert!(message_of(from_offsets(&[0i32, 1], b"abcd", &mut views)).contains("expected 3, got 2"));
}

#[test]
fn rejects_malformed_views() {
    let data = text(40, 0);
    let value = &data[10..30];
    let right = view(value, 1, 10);
    let buffers: [&[u8]; 2] = [b"", &data];
    check(&[right, view(b"short", 9, 9)], &buffers, None, true).unwrap();
    let with = |at: usize, bytes: [u8; 4]| {
        let mut wrong = right;
        wrong[at..at + 4].copy_from_slice(&bytes);
        message_of(check(&[right, wrong], &buffers, None, false))
    };
    assert_eq!(with(0, (-1i32).to_le_bytes()), "view 1: a length of -1, expected 0 to 2147483647");
    assert_eq!(
        with(0, 31u32.to_le_bytes()),
        "view 1: 31 bytes from 10 on, expected a range within the 40 bytes of data buffer 1"
    );
    assert_eq!(
        with(8, 2u32.to_le_bytes()),
        "view 1: data buffer 2 does not exist, expected an index below 2"
    );
    assert_eq!(
        with(8, (-1i32).to_le_bytes()),
        "view 1: data buffer -1 does not exist, expected an index below 2"
    );
    assert!(with(8, 0u32.to_le_bytes()).contains("within the 0 bytes of data buffer 0"));
    assert!(with(12, 21u32.to_le_bytes()).contains("20 bytes from 21 on"));
    assert!(with(12, (-1i32).to_le_bytes()).contains("20 bytes from -1 on"));
    assert!(with(4, *b"zzzz").contains("a prefix of [122, 122, 122, 122]"));
    let mut padded = view(b"short", 0, 0);
    padded[15] = 1;
    assert!(message_of(check(&[padded], &buffers, None, false)).contains("expected zeros"));
}

#[test]
fn ignores_views_of_nulls() {
    let views = [[0xff; 16], view(b"ok", 0, 0)];
    let valid = |bits: &'static [u8]| Bits::new(bits, 0, 2).ok();
    check(&views, &[], valid(&[0b10]), true).unwrap();
    assert!(check(&views, &[], valid(&[0b11]), true).is_err());
    assert!(check(&views[..1], &[], valid(&[0b10]), true).is_err());
}

#[test]
fn checks_utf8_only_for_text() {
    let views = [view(&[0xff], 0, 0)];
    check(&views, &[], None, false).unwrap();
    assert!(message_of(check(&views, &[], None, true)).starts_with("value 0 is not valid UTF-8"));
}
