//! Extracts the Rust code of `docs/plugins.md`, so that the code on the page is compiled.
#![allow(clippy::expect_used)]

use std::path::Path;

fn main() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plugins.md");
    println!("cargo::rerun-if-changed={}", page.display());
    let text = std::fs::read_to_string(&page).expect("docs/plugins.md");
    let mut code = String::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line) {
            (false, "```rust") => inside = true,
            (true, "```") => inside = false,
            (true, line) => code = code + line + "\n",
            _ => {}
        }
    }
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("page.rs"), code).expect("page.rs in OUT_DIR");
}
