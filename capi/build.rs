//! Gives the library the name by which programs ask the loader for it: the ABI's major version is in it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcrossdock.so.0");
}
