//! Decodes on the host with pure functions over slices, which check all inputs.

pub mod alp;
pub mod alprd;
pub mod bits;
pub mod byte_bool;
pub mod codecs;
pub mod coded;
pub mod constants;
pub mod date_time_parts;
pub mod decimals;
pub mod delta;
pub mod dictionary;
pub mod fastlanes;
pub mod fsst;
pub mod onpair;
pub mod patches;
pub mod rle;
pub mod run_end;
pub mod sequence;
pub mod sparse;
pub mod texts;
pub mod utf8;
pub mod views;
mod wide;
pub mod words;
pub mod zigzag;
