//! Exports the crate crossdock-encodings as the plugin `libcrossdock_encodings_plugin.so`.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_encodings::Encodings,
    name: "encodings",
    description: "Decodes encoded arrays in Vortex's encodings: trees of nodes in capsules or as bytes",
    interfaces: "crossdock.importer/1 crossdock.exporter/1 crossdock.encoding/1 crossdock.encoder/1",
    formats: "encoded-array encodings",
    encodings: "fastlanes.bitpacked fastlanes.delta fastlanes.for fastlanes.rle vortex.alp vortex.alprd vortex.bool \
                vortex.bytebool vortex.chunked vortex.constant vortex.datetimeparts vortex.decimal \
                vortex.decimal_byte_parts vortex.dict vortex.ext vortex.fixed_size_list vortex.fsst vortex.list \
                vortex.listview vortex.map vortex.masked vortex.null vortex.onpair vortex.pco vortex.primitive vortex.runend \
                vortex.sequence vortex.sparse vortex.struct vortex.varbin vortex.varbinview vortex.zigzag vortex.zstd",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1",
);
