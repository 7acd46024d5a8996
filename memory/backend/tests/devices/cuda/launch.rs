//! Tests clusters and the priorities of streams.

use crossdock_plugin_api::{Error, abi};
use cudarc::driver::sys;

use super::{GPU, backend};
use crate::common::{SIZE, range_arg, table};
use crate::launch::sum;

#[test]
fn launches_clusters() {
    let Some(backend) = backend("launches_clusters") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let stream = t.stream_default(GPU).unwrap();
    let to = t.upload(GPU, &[1; 8]).unwrap();
    let size = abi::Launch { blocks: [4, 2, 2], threads: [2, 1, 1], cluster: [2, 2, 1], ..SIZE };
    let args = [range_arg(abi::ARG_WRITE, to.address, 8)];
    match t.launch_sized(stream, &sum(), &size, &args) {
        Ok(()) => assert_eq!(t.download(GPU, to.address, 8).unwrap(), [0; 8]),
        Err(error) => assert!(error.message().contains("need compute capability 9.0"), "{error}"),
    }
    t.free(to);
}

#[test]
fn streams_have_the_nearest_priority_of_the_device() {
    let Some(backend) = backend("streams_have_the_nearest_priority_of_the_device") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let create = |priority| {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the out parameter is a local variable.
        Error::check(|err| unsafe {
            t.functions().stream_create.unwrap()(t.raw(), GPU, priority, 0, &mut stream, err)
        })
        .unwrap();
        stream
    };
    let priority_of = |stream| {
        let mut priority = i32::MAX;
        // SAFETY: the stream is alive, and the out parameter is a local variable.
        let code = unsafe {
            let raw = t.functions().stream_raw.unwrap()(t.raw(), stream);
            sys::cuStreamGetPriority(raw.cast(), &mut priority)
        };
        assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
        priority
    };
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: the out parameters are local variables, and the context stays retained.
    let code = unsafe {
        let mut context = std::ptr::null_mut();
        assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut context, 0), sys::CUresult::CUDA_SUCCESS);
        assert_eq!(sys::cuCtxSetCurrent(context), sys::CUresult::CUDA_SUCCESS);
        sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest)
    };
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
    assert!(greatest < -1 && least == 0, "{greatest}..{least}");
    // A stream that was destroyed is used again only for the same priority.
    for _ in 0..2 {
        let streams = [0, -1, i32::MIN, i32::MAX].map(create);
        assert_eq!(streams.map(priority_of), [0, -1, greatest, least]);
        streams.into_iter().for_each(|stream| t.stream_destroy(stream));
    }
    assert!(backend.leaks().is_empty());
}
