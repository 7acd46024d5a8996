//! A ten-column batch through the loaded plugin arrow-c-device, whatever its number of rows.

use std::sync::Arc;
use std::time::Instant;

use arrow_schema::{DataType, Field, Schema};
use crossdock::memory::Backend;
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_schema};
use crossdock_plugin_api::{CallSettings, Device, Input, Options};

use crate::table::Table;
use crate::{Bench, Result};

const COLUMNS: usize = 10;
const ROUNDS: usize = 100;
const BATCHES: usize = 20;

pub fn batches(bench: &Bench, table: &mut Table) -> Result<()> {
    let [peer_out, peer_in] =
        bench.peer.pair(&["c_device".as_ref(), (ROUNDS * BATCHES).to_string().as_ref()])?;
    for rows in [1_000, 1_000_000] {
        let (out, back) = ours(rows, Device::CPU)?;
        let peer = (rows == 1_000).then_some((&peer_out[..], &peer_in[..]));
        table.row(&format!("10 columns, {rows} rows, to a C Device array"), &out, peer.map(|p| p.0));
        table.row(&format!("10 columns, {rows} rows, from a C Device array"), &back, peer.map(|p| p.1));
    }
    Ok(())
}

/// The same on a CUDA device, where a batch is ready by an event: what one costs besides, in copies, launches and
/// allocations.
pub fn on_cuda() -> Result<()> {
    let backend = Backend::builder().build();
    if let Err(missing) = backend.cuda() {
        println!("skipped: c-device on cuda:0: {missing}");
        return Ok(());
    }
    let mut table = Table::new();
    for rows in [1_000, 1_000_000] {
        let (out, back) = ours(rows, Device::cuda(0))?;
        table.row(&format!("10 columns on cuda:0, {rows} rows, to a C Device array"), &out, None);
        table.row(&format!("10 columns on cuda:0, {rows} rows, from a C Device array"), &back, None);
    }
    println!("{}", table.markdown());
    Ok(())
}

fn ours(rows: usize, device: Device) -> Result<(Vec<u64>, Vec<u64>)> {
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
    let (mut out, mut back) = (Vec::new(), Vec::new());
    let copied = host.backend().ledger().copied();
    // A few at a time, as batches come in life: what went out is still in the cache when it comes back.
    for _ in 0..ROUNDS {
        let mut capsules = Vec::new();
        for _ in 0..BATCHES {
            let batch = export_batch(&batch, false, stream)?;
            let start = Instant::now();
            let given = writer.write(&call, batch)?;
            out.push(start.elapsed().as_nanos() as u64);
            capsules.extend(given);
        }
        let input = Input::Capsules(capsules.into());
        let importer = plugin.importer()?;
        let mut reader = importer.open(&call, "arrow-c-device", input, Some(&schema), &Options::new())?;
        loop {
            let start = Instant::now();
            let Some(batch) = reader.next(&call)? else { break };
            back.push(start.elapsed().as_nanos() as u64);
            drop(batch);
        }
    }
    if back.len() != ROUNDS * BATCHES {
        return Err(format!("{} batches went out and {} came back", ROUNDS * BATCHES, back.len()).into());
    }
    let copied = host.backend().ledger().copied().since(copied).bytes();
    if copied != 0 {
        return Err(format!("{copied} bytes were copied, expected none").into());
    }
    Ok((out, back))
}
