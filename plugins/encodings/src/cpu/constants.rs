//! Repeats constants.

use crossdock_plugin_api::{Error, Result};

/// Repeats the bytes of a value until `out` is full. For bools use
/// [`bits::fill`](super::bits::fill).
pub fn repeat(value: &[u8], out: &mut [u8]) -> Result<()> {
    if value.is_empty() || !out.len().is_multiple_of(value.len()) {
        return Err(Error::bad_data(format!(
            "constant: expected an output of whole values of {} bytes, got {} bytes",
            value.len(),
            out.len()
        )));
    }
    match value.len() {
        1 => fill::<1>(value, out),
        2 => fill::<2>(value, out),
        4 => fill::<4>(value, out),
        8 => fill::<8>(value, out),
        16 => fill::<16>(value, out),
        32 => fill::<32>(value, out),
        n => out.chunks_exact_mut(n).for_each(|to| to.copy_from_slice(value)),
    }
    Ok(())
}

fn fill<const N: usize>(value: &[u8], out: &mut [u8]) {
    if let Some(value) = value.first_chunk::<N>() {
        out.as_chunks_mut().0.fill(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_values_of_every_width() {
        for width in (1..=40).chain([64]) {
            let value: Vec<u8> = (1..=width).collect();
            let mut out = vec![0; value.len() * 7];
            repeat(&value, &mut out).unwrap();
            assert_eq!(out, value.repeat(7));
        }
        repeat(&[1, 2], &mut []).unwrap();
    }

    #[test]
    fn rejects_output_length_that_is_no_multiple_of_the_value_size() {
        let e = repeat(&[1, 2], &mut [0; 3]).unwrap_err();
        assert_eq!(e.message(), "constant: expected an output of whole values of 2 bytes, got 3 bytes");
        assert!(repeat(&[], &mut [0; 3]).is_err() && repeat(&[], &mut []).is_err());
    }
}
