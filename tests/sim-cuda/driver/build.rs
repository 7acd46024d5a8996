//! Sets the soname to `libcuda.so.1`, the name under which programs load the CUDA driver.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
