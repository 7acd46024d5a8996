//! Exports and imports the columns of a batch as DLPack tensors through the loaded plugin dlpack.

use std::sync::Arc;
use std::time::Instant;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_schema};
use crossdock_plugin_api::{CallSettings, Device, Input, Options, ReadRequest};

use crate::table::Table;
use crate::{Bench, Result};

const ROUNDS: usize = 8000;

pub fn columns(bench: &Bench, table: &mut Table) -> Result<()> {
    let [peer_exports, peer_imports] = bench.peer.pair(&["dlpack".as_ref(), ROUNDS.to_string().as_ref()])?;
    for (columns, rows) in [(1, 1_000), (1, 1_000_000), (10, 1_000)] {
        let (exports, imports) = measure(columns, rows)?;
        let peer = ((columns, rows) == (1, 1_000)).then_some((&peer_exports[..], &peer_imports[..]));
        let what = format!("{columns} column{}, {rows} rows", if columns == 1 { "" } else { "s" });
        table.row(&format!("{what}, to DLPack"), &exports, peer.map(|p| p.0));
        table.row(&format!("{what}, from DLPack"), &imports, peer.map(|p| p.1));
    }
    Ok(())
}

/// Returns the times of exports (`write`) and of imports (`open` and `next`) of one batch, in ns.
fn measure(columns: usize, rows: usize) -> Result<(Vec<u64>, Vec<u64>)> {
    let host = crate::load::host()?;
    let session = host.session().open()?;
    let plugins = session.plugins();
    let plugin = plugins.iter().find(|p| p.name() == "dlpack").ok_or("the plugin dlpack is missing")?;
    let stream = session.stream();
    let fields: Vec<_> =
        (0..columns).map(|i| Field::new(format!("c{i}"), DataType::Float64, false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let column = || -> Result<DeviceArray> {
        let data = session.memory().alloc_with(stream, rows * 8, |to| {
            to.fill(1);
            Ok(())
        })?;
        let buffers = vec![None, Some(data.freeze(stream)?)];
        Ok(DeviceArray::try_new(DataType::Float64, rows, 0, Some(0), buffers, vec![], None)?)
    };
    let arrays = (0..columns).map(|_| column()).collect::<Result<_>>()?;
    let batch = DeviceBatch::try_new(schema.clone(), rows, arrays)?;

    let call = CallSettings::new(Device::CPU);
    let schema = export_schema(&schema)?;
    let options = Options::new();
    let mut writer = plugin.exporter()?.begin(&call, "dlpack", &schema, &options, None)?;
    let importer = plugin.importer()?;
    let (mut exports, mut imports) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let batch = export_batch(&batch, false, stream)?;
        let start = Instant::now();
        let capsules = writer.write(&call, batch)?;
        exports.push(start.elapsed().as_nanos() as u64);
        let start = Instant::now();
        let mut reader = importer.open(
            &call,
            Input::Capsules(capsules.into()),
            &ReadRequest::new("dlpack").with_options(&options),
        )?;
        let batch = reader.next(&call)?;
        imports.push(start.elapsed().as_nanos() as u64);
        if batch.is_none() {
            return Err("a batch was exported, but none imported".into());
        }
    }
    Ok((exports, imports))
}
