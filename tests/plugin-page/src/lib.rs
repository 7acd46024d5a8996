//! The Rust code blocks of `docs/plugins.md`, concatenated in their order.

include!(concat!(env!("OUT_DIR"), "/page.rs"));
