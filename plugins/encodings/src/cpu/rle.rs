//! Decodes FastLanes run lengths: each block of 1024 values has its own dictionary, in order of
//! first use.

use crossdock_plugin_api::{Error, Result};

use super::bits::Bits;
use super::dictionary;
use super::fastlanes::BLOCK;
use super::words::{Index, check_len};

/// The parts of an array.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a, V, I, O> {
    /// All dictionaries, concatenated.
    pub values: &'a [V],
    /// The index of each value in the dictionary of its block. The indices cover whole blocks.
    pub indices: &'a [I],
    /// One validity bit per index. Null indices are ignored.
    pub valid: Option<Bits<'a>>,
    /// Where each block's dictionary begins in `values`. The first entry may be any number, and is
    /// subtracted from all entries.
    pub begins: &'a [O],
}

impl<V: Copy, I: Index, O: Index> Runs<'_, V, I, O> {
    /// Writes values `offset..offset + out.len()`. The value for a null index is any value of the
    /// block's dictionary, or `null` if this dictionary is empty. If a dictionary has one value,
    /// the indices of its block are ignored.
    pub fn decode(&self, offset: usize, null: V, out: &mut [V]) -> Result<()> {
        self.check(offset, out.len())?;
        let (mut at, mut rest) = (offset, out);
        for block in 0..self.begins.len() {
            let (now, later) = rest.split_at_mut(rest.len().min((block + 1) * BLOCK - at));
            let values = self.dictionary(block)?;
            let indices = &self.indices[at..at + now.len()];
            let valid = self.valid.map(|valid| valid.slice(at, now.len())).transpose()?;
            match values {
                [only] => now.fill(*only),
                _ => dictionary::take(indices, valid, values, null, now)
                    .map_err(|e| e.context(format_args!("rle: block {block} from value {at} on")))?,
            }
            at += now.len();
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        if offset >= BLOCK {
            return Err(Error::bad_data(format!("rle: expected an offset below {BLOCK}, got {offset}")));
        }
        let n_indices = self.indices.len();
        if !n_indices.is_multiple_of(BLOCK) || n_indices < offset.saturating_add(len) {
            return Err(Error::bad_data(format!(
                "rle: expected whole blocks of {BLOCK} indices for {len} values after offset {offset}, got {n_indices} indices"
            )));
        }
        if let Some(valid) = self.valid {
            valid.expect_len("rle: validity bits", n_indices)?;
        }
        check_len("rle: begins of dictionaries, one per block", n_indices / BLOCK, self.begins.len())
    }

    /// The dictionary of a block.
    fn dictionary(&self, block: usize) -> Result<&[V]> {
        let first = self.begins[0].index();
        let position = |begin: &O| begin.index().checked_sub(first);
        let from = position(&self.begins[block]);
        let to = self.begins.get(block + 1).map_or(Some(self.values.len()), position);
        let values = from.zip(to).and_then(|(from, to)| self.values.get(from..to));
        values.ok_or_else(|| {
            let end = self.begins.get(block + 1).map_or("the end".to_owned(), O::to_string);
            Error::bad_data(format!(
                "rle: expected a dictionary within the {} values from {first} on, got values {} to {end} for block {block}",
                self.values.len(),
                self.begins[block]
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three blocks, whose dictionaries have two values, one value and three values. The last block
    /// is used only in part.
    const BEGINS: [u16; 3] = [7, 9, 10];
    const VALUES: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

    fn indices() -> Vec<u8> {
        let one = |i: usize| [i * 2 / 1024, 200, i * 3 / 1024];
        (0..3 * 1024).map(|i| one(i % 1024)[i / 1024] as u8).collect()
    }

    fn runs<'a>(indices: &'a [u8], valid: Option<Bits<'a>>) -> Runs<'a, f32, u8, u16> {
        Runs { values: &VALUES, indices, valid, begins: &BEGINS }
    }

    #[test]
    fn each_block_has_its_own_dictionary() {
        let indices = indices();
        let expected = |i: usize| match i / 1024 {
            0 => VALUES[usize::from(indices[i])],
            1 => 3.0,
            _ => VALUES[3 + usize::from(indices[i])],
        };
        for (offset, len) in [(0, 3072), (3, 1021), (3, 1022), (1023, 2049), (0, 0), (5, 1), (0, 1024)] {
            let mut out = vec![0.0; len];
            runs(&indices, None).decode(offset, 0.0, &mut out).unwrap();
            let expected: Vec<f32> = (offset..offset + len).map(expected).collect();
            assert_eq!(out, expected, "{len} from {offset} on");
        }
    }

    #[test]
    fn rejects_indices_out_of_range_unless_null() {
        let mut indices = indices();
        indices[2050] = 3;
        let mut out = vec![0.0; 3000];
        let e = runs(&indices, None).decode(10, 0.0, &mut out).unwrap_err();
        let expected =
            "rle: block 2 from value 2048 on: dictionary: expected codes below 3, got 3 at index 2";
        assert_eq!(e.message(), expected);
        let mut valid = [0xff; 384];
        valid[2050 / 8] = !(1 << (2050 % 8));
        let valid = Bits::new(&valid, 0, 3072).unwrap();
        runs(&indices, Some(valid)).decode(10, -1.0, &mut out).unwrap();
        assert_eq!(out[2050 - 10 - 1..][..3], [4.0, VALUES[3], 4.0]);
    }

    #[test]
    fn rejects_invalid_lengths_and_dictionaries() {
        let indices = indices();
        let mut out = vec![0.0; 3072];
        let error = |runs: Runs<'_, f32, u8, u16>, offset, out: &mut [f32]| {
            runs.decode(offset, 0.0, out).unwrap_err().message().to_owned()
        };
        let all = runs(&indices, None);
        assert_eq!(error(all, 1024, &mut out), "rle: expected an offset below 1024, got 1024");
        let blocks = "rle: expected whole blocks of 1024 indices for 3072 values after offset";
        assert_eq!(error(all, 1, &mut out), format!("{blocks} 1, got 3072 indices"));
        let short = runs(&indices[..3071], None);
        assert_eq!(error(short, 0, &mut out), format!("{blocks} 0, got 3071 indices"));
        let valid = Some(Bits::new(&[0; 384], 0, 3071).unwrap());
        assert!(error(runs(&indices, valid), 0, &mut out).starts_with("rle: validity bits"));
        let begins = |begins| Runs { begins, ..all };
        let expected = "rle: begins of dictionaries, one per block: expected 3, got 2";
        assert_eq!(error(begins(&[0, 2]), 0, &mut out), expected);
        for (wrong, got) in [
            (&[7, 6, 10], "7 on, got values 7 to 6 for block 0"),
            (&[7, 9, 8], "7 on, got values 9 to 8 for block 1"),
            (&[0, 2, 7], "0 on, got values 2 to 7 for block 1"),
            (&[7, 14, 14], "7 on, got values 7 to 14 for block 0"),
        ] {
            let expected = format!("rle: expected a dictionary within the 6 values from {got}");
            assert_eq!(error(begins(wrong), 0, &mut out), expected);
        }
    }
}
