//! The Rust blocks of `docs/plugins.md`, joined in their order.

include!(concat!(env!("OUT_DIR"), "/page.rs"));
