//! Tests several CUDA devices, if there are any.

use crossdock_plugin_api::Device;

use super::{GPU, backend, content, skip};
use crate::common::{copy, table};

#[test]
fn copy_between_devices_works_on_a_stream_of_source_or_target() {
    const TEST: &str = "copy_between_devices_works_on_a_stream_of_source_or_target";
    let Some(backend) = backend(TEST) else { return };
    let n = backend.cuda().unwrap().devices.len();
    if n < 2 {
        return skip(TEST, &format!("it needs two CUDA devices, and there are {n}"));
    }
    let account = backend.account("test");
    let t = table(&account);
    let other = Device::cuda(1);
    for bytes in [1, 1000, (4 << 20) + 5] {
        let source = content(bytes);
        for (on, from, to) in [(GPU, GPU, other), (other, GPU, other), (GPU, other, GPU), (other, other, GPU)]
        {
            let stream = t.stream_default(on).unwrap();
            let first = t.upload(from, &source).unwrap();
            let second = t.alloc(to, bytes).unwrap();
            t.stream_synchronize(t.stream_default(from).unwrap()).unwrap();
            t.stream_synchronize(t.stream_default(to).unwrap()).unwrap();
            t.copies(stream, &[copy((to, second.address), (from, first.address), bytes)]).unwrap();
            t.stream_synchronize(stream).unwrap();
            assert_eq!(t.download(to, second.address, bytes).unwrap(), source, "{from} to {to} on {on}");
            t.free(first);
            t.free(second);
        }
    }
    let block = t.upload(other, &[1]).unwrap();
    assert_eq!(t.pointer(block.address).unwrap().0, other);
    t.free(block);
}
