//! Formats figures as a Markdown table.

/// A Markdown table of figures.
pub struct Table(Vec<[String; 4]>);

impl Table {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a row with the median of Crossdock's times and the median of the peer's times, in ns.
    pub fn row(&mut self, what: &str, crossdock_ns: &[u64], peer_ns: Option<&[u64]>) {
        let crossdock = median(crossdock_ns);
        let peer = peer_ns.map(median);
        let ratio =
            peer.map_or("-".to_string(), |peer| format!("{:.2}", crossdock as f64 / peer.max(1) as f64));
        self.0.push([what.to_string(), time(crossdock), peer.map_or("-".to_string(), time), ratio]);
    }

    pub fn markdown(&self) -> String {
        let mut text = String::from("| what | Crossdock | pyarrow | ratio |\n|---|---|---|---|\n");
        for [what, crossdock, peer, ratio] in &self.0 {
            text += &format!("| {what} | {crossdock} | {peer} | {ratio} |\n");
        }
        text
    }
}

/// Returns the median.
pub fn median(times: &[u64]) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.2} ms", ns as f64 / 1e6),
    }
}
