//! Exports the crate crossdock-vortex-file as the plugin `libcrossdock_vortex_file_plugin.so`.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_vortex_file::VortexFile,
    name: "vortex-file",
    description: "Reads Vortex files: loads the segments still encoded, and decodes them on the device",
    interfaces: "crossdock.importer/1",
    formats: "vortex",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1 crossdock.host.loader/1 crossdock.host.tasks/1 crossdock.host.decode/1",
);
