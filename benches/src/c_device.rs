//! Exports and imports a ten-column batch through the loaded plugin arrow-c-device.

use std::sync::Arc;
use std::time::Instant;

use arrow_schema::{DataType, Field, Schema};
use crossdock::memory::Backend;
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_schema};
use crossdock_plugin_api::{CallSettings, Device, Input, Options, ReadRequest};

use crate::table::Table;
use crate::{Bench, Result};

const COLUMNS: usize = 10;
const ROUNDS: usize = 100;
const BATCHES: usize = 20;

pub fn batches(bench: &Bench, table: &mut Table) -> Result<()> {
    let [peer_exports, peer_imports] =
        bench.peer.pair(&["c_device".as_ref(), (ROUNDS * BATCHES).to_string().as_ref()])?;
    for rows in [1_000, 1_000_000] {
        let (exports, imports) = measure(rows, Device::CPU)?;
        let peer = (rows == 1_000).then_some((&peer_exports[..], &peer_imports[..]));
        table.row(&format!("10 columns, {rows} rows, to a C Device array"), &exports, peer.map(|p| p.0));
        table.row(&format!("10 columns, {rows} rows, from a C Device array"), &imports, peer.map(|p| p.1));
    }
    Ok(())
}

/// Measures export and import of batches on a CUDA device, where each batch has an event.
pub fn on_cuda() -> Result<()> {
    let backend = Backend::builder().build();
    if let Err(reason) = backend.cuda() {
        println!("skipped: c-device on cuda:0: {reason}");
        return Ok(());
    }
    let mut table = Table::new();
    for rows in [1_000, 1_000_000] {
        let (exports, imports) = measure(rows, Device::cuda(0))?;
        table.row(&format!("10 columns on cuda:0, {rows} rows, to a C Device array"), &exports, None);
        table.row(&format!("10 columns on cuda:0, {rows} rows, from a C Device array"), &imports, None);
    }
    println!("{}", table.markdown());
    Ok(())
}

/// Returns the times of exports and of imports, in ns.
fn measure(rows: usize, device: Device) -> Result<(Vec<u64>, Vec<u64>)> {
    let host = crate::load::host()?;
    let session = host.session().device(device).open()?;
    let plugins = session.plugins();
    let plugin = plugins
        .iter()
        .find(|p| p.name() == "arrow-c-device")
        .ok_or("the plugin arrow-c-device is missing")?;
    let stream = session.stream();
    let on_host = session.memory().default_stream(Device::CPU)?;
    let fields: Vec<_> = (0..COLUMNS).map(|i| Field::new(format!("c{i}"), DataType::Int64, true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let column = || -> Result<DeviceArray> {
        let data = session.memory().alloc_with(&on_host, rows * 8, |to| {
            to.fill(1);
            Ok(())
        })?;
        let buffers = vec![None, Some(data.freeze(&on_host)?)];
        Ok(DeviceArray::try_new(DataType::Int64, rows, 0, Some(0), buffers, vec![], None)?)
    };
    let columns = (0..COLUMNS).map(|_| column()).collect::<Result<_>>()?;
    let batch = DeviceBatch::try_new(schema.clone(), rows, columns)?.move_to(stream, device)?;

    let call = CallSettings::new(device);
    let schema = export_schema(&schema)?;
    let options = Options::new().with("schema", "first");
    let mut writer = plugin.exporter()?.begin(&call, "arrow-c-device", &schema, &options, None)?;
    let (mut exports, mut imports) = (Vec::new(), Vec::new());
    let copied_before = host.backend().ledger().copied();
    // Exports a few batches before they are imported, as applications do. An exported batch is then
    // still in the cache when it is imported.
    for _ in 0..ROUNDS {
        let mut capsules = Vec::new();
        for _ in 0..BATCHES {
            let batch = export_batch(&batch, false, stream)?;
            let start = Instant::now();
            let written = writer.write(&call, batch)?;
            exports.push(start.elapsed().as_nanos() as u64);
            capsules.extend(written);
        }
        let input = Input::Capsules(capsules.into());
        let importer = plugin.importer()?;
        let mut reader =
            importer.open(&call, input, &ReadRequest::new("arrow-c-device").with_schema(Some(&*schema)))?;
        loop {
            let start = Instant::now();
            let Some(batch) = reader.next(&call)? else { break };
            imports.push(start.elapsed().as_nanos() as u64);
            drop(batch);
        }
    }
    if imports.len() != ROUNDS * BATCHES {
        return Err(
            format!("{} batches were exported, but {} imported", ROUNDS * BATCHES, imports.len()).into()
        );
    }
    let copied = host.backend().ledger().copied().since(copied_before).bytes();
    if copied != 0 {
        return Err(format!("{copied} bytes were copied, expected none").into());
    }
    Ok((exports, imports))
}
