use super::patches::ChunkOffsets;
use super::*;

fn message(error: crossdock_plugin_api::Error) -> String {
    error.message().to_owned()
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

const PATCHES: &[u8] = &[8, 3, 16, 1, 24, 1];

fn with_patches(field: u8, patches: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2, patches.len() as u8][..], patches].concat()
}

#[test]
fn expect_empty_rejects_metadata() {
    assert!(expect_empty(&[]).is_ok());
    assert_eq!(message(expect_empty(&[8, 1]).unwrap_err()), "2 bytes of metadata, expected none");
}

#[test]
fn absent_fields_have_defaults_and_unknown_fields_are_ignored() {
    assert_eq!(BitPacked::read(&[], PType::U32, 10).unwrap(), BitPacked::default());
    assert_eq!(BitPacked::read(&[0x78, 1, 8, 6], PType::U32, 10).unwrap().bit_width, 6);
    assert_eq!(VarBin::read(&[]).unwrap().offsets_ptype, PType::U8);
}

#[test]
fn repeated_number_is_overwritten_and_repeated_message_is_rejected() {
    assert_eq!(BitPacked::read(&[8, 6, 8, 7], PType::U32, 10).unwrap().bit_width, 7);
    let twice = with_patches(3, PATCHES).repeat(2);
    assert!(message(BitPacked::read(&twice, PType::U32, 10).unwrap_err()).contains("the field is repeated"));
}

#[test]
fn rejects_widths_beyond_the_type() {
    for (of, max) in [(PType::U8, 8), (PType::I16, 16), (PType::U32, 32), (PType::I64, 64)] {
        assert_eq!(BitPacked::read(&[8, max], of, 1).unwrap().bit_width, max.into());
        let error = message(BitPacked::read(&[8, max + 1], of, 1).unwrap_err());
        assert!(error.contains(&format!("expected 0 to {max}")), "{error}");
    }
    assert!(BitPacked::read(&[8, 6], PType::F32, 1).is_err());
    assert!(BitPacked::read(&[16, 0xff, 7], PType::U8, 1).is_ok());
    assert!(message(BitPacked::read(&[16, 0x80, 8], PType::U8, 1).unwrap_err()).contains("less than 1024"));
}

#[test]
fn rejects_invalid_numbers_of_patches() {
    let read = Patches::read(PATCHES, 3).unwrap();
    assert_eq!((read.len, read.offset, read.indices_ptype, read.chunk_offsets), (3, 1, PType::U16, None));
    assert_eq!(message(Patches::read(PATCHES, 2).unwrap_err()), "3 patches for 2 values, expected 1 to 2");
    assert!(Patches::read(&[], 2).is_err());
    assert!(message(Patches::read(&[8, 1, 24, 5], 2).unwrap_err()).contains("expected an unsigned integer"));
    let far = [&[8, 1, 16][..], &[0xff; 8], &[0x7f]].concat();
    assert!(message(Patches::read(&far, 2).unwrap_err()).contains("with an offset"));
}

#[test]
fn chunk_offsets_are_ignored_without_their_type() {
    let chunks = |tail: &[u8]| Patches::read(&[PATCHES, tail].concat(), 3000).map(|p| p.chunk_offsets);
    assert_eq!(chunks(&[32, 3]).unwrap(), None);
    let chunk_offsets = chunks(&[32, 3, 40, 3, 48, 2]).unwrap();
    assert_eq!(chunk_offsets, Some(ChunkOffsets { len: 3, ptype: PType::U64, offset_within_chunk: 2 }));
    assert_eq!(chunks(&[32, 0, 40, 0, 48, 0]).unwrap().map(|c| c.ptype), Some(PType::U8));
    assert!(chunks(&[32, 3, 40, 9]).is_err());
}

#[test]
fn rejects_exponents_out_of_range() {
    let read = Alp::read(&[8, 14, 16, 12], PType::F64, 9).unwrap();
    assert_eq!((read.exp_e, read.exp_f, read.patches), (14, 12, None));
    assert!(message(Alp::read(&[8, 19], PType::F64, 9).unwrap_err()).contains("expected 0 to 18"));
    assert!(message(Alp::read(&[16, 11], PType::F32, 9).unwrap_err()).contains("expected 0 to 10"));
    assert!(Alp::read(&[8, 1], PType::F16, 9).is_err());
}

#[test]
fn reads_packed_and_unpacked_left_parts() {
    let packed = [8, 48, 16, 2, 26, 4, 0x80, 1, 0xff, 1, 32, 1];
    let read = AlpRd::read(&packed, PType::F64, 9).unwrap();
    assert_eq!((read.right_bit_width, &read.dictionary[..]), (48, &[128, 255][..]));
    assert_eq!(AlpRd::read(&[8, 48, 16, 2, 24, 0x80, 1, 24, 0xff, 1, 32, 1], PType::F64, 9).unwrap(), read);
    assert_eq!(AlpRd::read(&[8, 48, 16, 1, 26, 2, 7, 8], PType::F64, 9).unwrap().dictionary, [7]);
    assert!(
        message(AlpRd::read(&[8, 48, 16, 3, 26, 2, 7, 8], PType::F64, 9).unwrap_err()).contains("expected 3")
    );
    assert!(AlpRd::read(&[8, 48, 26, 3, 0x80, 0x80, 4], PType::F64, 9).is_err());
    assert!(AlpRd::read(&[8, 48, 26, 1, 0x80], PType::F64, 9).is_err());
    for width in [47, 64] {
        assert!(message(AlpRd::read(&[8, width], PType::F64, 9).unwrap_err()).contains("expected 48 to 63"));
    }
    assert!(message(AlpRd::read(&[8, 48], PType::F32, 9).unwrap_err()).contains("expected 16 to 31"));
}

#[test]
fn rejects_sequences_that_overflow() {
    let read = Sequence::read(&hex("0a02181312021806"), PType::I64, 100).unwrap();
    assert_eq!((read.base.int(), read.multiplier), (Some(-10), 3));
    // The sequence begins at 200, with a step of -100.
    let falling = hex("0a0320c801120318c701");
    assert_eq!(Sequence::read(&falling, PType::U8, 3).unwrap().multiplier, -100);
    assert!(message(Sequence::read(&falling, PType::U8, 4).unwrap_err()).contains("does not fit into u8"));
    assert!(Sequence::read(&hex("0a0218021202207f"), PType::I8, 2).is_err());
    assert!(Sequence::read(&hex("0a0218001202207f"), PType::I8, 2).is_ok());
    let max = format!("0a022000120b20{}01", "ff".repeat(9));
    assert_eq!(Sequence::read(&hex(&max), PType::U64, 2).unwrap().multiplier, u64::MAX.into());
    assert!(Sequence::read(&hex(&max), PType::U64, usize::MAX).is_err());
    assert!(
        message(Sequence::read(&hex("0a021813"), PType::I64, 1).unwrap_err()).contains("the step is missing")
    );
    assert!(Sequence::read(&hex("0a02181312021001"), PType::F64, 1).is_err());
}

#[test]
fn rejects_references_of_wrong_type() {
    assert_eq!(reference(&[0x18, 0x80, 1], PType::I32).unwrap().int(), Some(64));
    assert!(reference(&[0x18, 0x80, 1], PType::F32).is_err());
    assert!(reference(&[8, 0], PType::I32).is_err());
}

#[test]
fn reads_decimal_widths_of_1_to_32_bytes() {
    let widths: Vec<_> = (0..6).map(|n| Decimal::read(&[8, n]).unwrap().value_bytes).collect();
    assert_eq!(widths, [1, 2, 4, 8, 16, 32]);
    assert!(Decimal::read(&[8, 6]).is_err());
    assert_eq!(DecimalByteParts::read(&[8, 7]).unwrap().ptype, PType::I64);
    assert!(message(DecimalByteParts::read(&[]).unwrap_err()).contains("expected signed"));
    assert!(message(DecimalByteParts::read(&[8, 7, 16, 1]).unwrap_err()).contains("in 2 parts"));
}

#[test]
fn rejects_delta_and_rle_metadata_with_wrong_number_of_blocks() {
    let read = Delta::read(&[8, 0x80, 16, 16, 5], 2043).unwrap();
    assert_eq!((read.deltas_len, read.offset), (2048, 5));
    assert!(Delta::read(&[8, 0x80, 16, 16, 5], 2044).is_err());
    assert!(Delta::read(&[8, 0x81, 16], 1).is_err());
    let rle = |offsets: u8| Rle::read(&[8, 9, 16, 0x80, 8, 24, 1, 32, offsets, 40, 2], 1000);
    assert_eq!(rle(1).unwrap().values_len, 9);
    assert!(message(rle(2).unwrap_err()).contains("expected one per block"));
    assert!(Rle::read(&[24, 2], 0).is_err());
}

#[test]
fn rejects_values_without_runs() {
    assert!(RunEnd::read(&[], 0).is_ok());
    assert!(message(RunEnd::read(&[], 1).unwrap_err()).contains("no runs for 1 values"));
    assert!(RunEnd::read(&[24, 1], 0).is_err());
    assert!(RunEnd::read(&[8, 6, 16, 1], 1).is_err());
    let far = [&[16, 1, 24][..], &[0xff; 8], &[0x7f]].concat();
    assert!(RunEnd::read(&far, 1).is_err());
}

#[test]
fn reads_metadata_of_other_encodings() {
    let dict = Dict::read(&[8, 5, 16, 1, 24, 0, 32, 1]).unwrap();
    assert_eq!((dict.values_len, dict.codes_ptype, dict.codes_nullable), (5, PType::U16, Some(false)));
    assert_eq!(Dict::read(&[]).unwrap().codes_nullable, None);
    assert!(Dict::read(&[16, 10]).is_err());
    assert!(Sparse::read(&with_patches(1, PATCHES), 3).is_ok());
    assert!(message(Sparse::read(&[], 3).unwrap_err()).contains("is missing"));
    let list = ListView::read(&hex("08904e10011802")).unwrap();
    assert_eq!((list.elements_len, list.offsets_ptype, list.sizes_ptype), (10000, PType::U16, PType::U32));
    assert_eq!(List::read(&hex("08904e1001")).unwrap().elements_len, 10000);
    let fsst = Fsst::read(&[8, 1, 16, 6]).unwrap();
    assert_eq!((fsst.lengths_ptype, fsst.codes_offsets_ptype), (PType::U16, PType::I32));
    assert!(Fsst::read(&[8, 9]).is_err());
    assert!(OnPair::read(&[24, 0x80, 0x80, 4, 48, 1]).is_ok());
    assert!(OnPair::read(&[24, 0x81, 0x80, 4, 48, 1]).is_err());
    assert!(message(OnPair::read(&[48, 2]).unwrap_err()).contains("expected u8 or u16"));
    assert_eq!(DateTimeParts::read(&[8, 7, 16, 2]).unwrap().subseconds, PType::U8);
}
