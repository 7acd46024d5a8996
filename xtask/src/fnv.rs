//! FNV-1a hashes, which detect accidental changes. They do not protect against forgery.

/// The 64-bit FNV-1a hash.
pub fn fnv1a<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    hashed(bytes.into_iter().copied())
}

fn hashed(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A hash for random selection. Hashes of the same bytes with different values of `number` are
/// independent.
pub fn mixed<'a>(number: u64, bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    let hash = hashed(bytes.into_iter().copied().chain(number.to_le_bytes()));
    // The high bits of FNV hashes of similar inputs are similar, so this line mixes the bits.
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_published_fnv1a_hashes() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn hashes_of_similar_numbers_and_names_are_independent() {
        let high = |number, name: &str| mixed(number, name.as_bytes()) >> 63;
        let of = |number| (0..64).fold(0_u64, |bits, i| bits << 1 | high(number, &format!("name {i}")));
        // 32 of 64 random bits are expected to agree.
        assert!((12..=52).contains(&(of(1) ^ of(2)).count_ones()), "{:064b} {:064b}", of(1), of(2));
        assert!((12..=52).contains(&of(1).count_ones()), "{:064b}", of(1));
    }
}
