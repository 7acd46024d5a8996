//! DLPack, the C exchange API, and the buffer protocol.

pub mod abi;
pub mod buffer_protocol;
pub mod by_type;
pub mod exchange_api;
pub mod exchange_functions;
pub mod export;
pub mod formats;
pub mod import;
pub mod import_in_place;
pub mod ml_dtypes;
pub mod producer;
pub mod row_counter;
pub mod tensor;
pub mod torch;
