//! Sets the SONAME of the library, which contains the ABI's major version.

fn main() {
    const HEADER: &str = "../plugin-api/include/crossdock.h";
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={HEADER}");
    let header = std::fs::read_to_string(HEADER).unwrap_or_default();
    let major = header.lines().find_map(|line| line.strip_prefix("#define CROSSDOCK_ABI_MAJOR "));
    match major {
        Some(major) => println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcrossdock.so.{major}"),
        None => println!("cargo::error={HEADER} does not define CROSSDOCK_ABI_MAJOR"),
    }
}
