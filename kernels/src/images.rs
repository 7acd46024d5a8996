//! What CUDA devices run: all kernels as one module, compiled for several architectures by `cargo xtask kernels`.

/// Cubins are ELF files, which their reader may want aligned.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static SET: &Aligned<[u8]> = &Aligned(*include_bytes!("../images/crossdock.images"));

/// A `crossdock_image_set`. Every kernel has these same bytes, so that a device loads them once.
pub const IMAGES: &[u8] = &SET.0;
