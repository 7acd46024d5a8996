//! Compares the exported symbols with the symbols that the backend loads.

const DRIVER: &str = include_str!("../../../../memory/backend/src/cuda/driver.rs");
const EXPORTS: [&str; 6] = [
    include_str!("../../src/exports/device.rs"),
    include_str!("../../src/exports/ipc.rs"),
    include_str!("../../src/exports/mapped.rs"),
    include_str!("../../src/exports/memory.rs"),
    include_str!("../../src/exports/modules.rs"),
    include_str!("../../src/exports/streams.rs"),
];

/// Returns the symbols in the backend's table, whose lines have the form `init = cuInit(c_uint);`.
fn symbols() -> Vec<&'static str> {
    let after_equals = |line: &'static str| {
        let (symbol, _) = line.split_once(" = ")?.1.split_once('(')?;
        symbol.starts_with("cu").then_some(symbol)
    };
    DRIVER.lines().filter_map(after_equals).collect()
}

#[test]
fn driver_exports_every_symbol_that_the_backend_loads() {
    let symbols = symbols();
    assert!(symbols.len() > 40, "expected more than 40 symbols in the backend's table, got {symbols:?}");
    let missing: Vec<_> = symbols
        .iter()
        .filter(|symbol| !EXPORTS.iter().any(|text| text.contains(&format!("fn {symbol}("))))
        .collect();
    assert!(missing.is_empty(), "the simulated driver lacks {missing:?}");
}
