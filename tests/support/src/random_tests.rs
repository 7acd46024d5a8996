//! Tests the generator. The tests have a file of their own, because other crates include the file
//! of the generator.

use crate::Random;

#[test]
fn random_numbers_equal_those_of_splitmix64() {
    let mut random = Random::new(1_234_567);
    let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
    assert_eq!([(); 3].map(|()| random.word()), expected);
}

#[test]
fn random_numbers_depend_on_the_order_of_the_seeds() {
    let first = |seeds: &[u64]| Random::of(seeds).word();
    assert_eq!(first(&[1, 2]), first(&[1, 2]));
    assert_ne!(first(&[1, 2]), first(&[2, 1]));
    assert_ne!(first(&[0, 0]), first(&[0]));
}

#[test]
fn random_choices_stay_within_their_bounds() {
    let mut random = Random::new(1);
    assert!((0..1000).all(|_| random.below(3) < 3));
    assert_eq!(random.below(0), 0);
    assert_eq!(*random.pick(&[7]), 7);
    assert_eq!(random.bytes(13).len(), 13);
}
