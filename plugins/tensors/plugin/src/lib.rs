//! Exports the crate crossdock-tensors as the plugin `libcrossdock_tensors_plugin.so`.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_tensors::Tensors,
    name: "tensors",
    description: "Reads and writes safetensors, npy and npz files: one tensor per column",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "safetensors npy npz",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1 crossdock.host.loader/1 crossdock.host.tasks/1",
);
