//! Figures as rows.

/// Rows of a table in Markdown.
pub struct Table(Vec<[String; 4]>);

impl Table {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// One figure: our times and the peer's (if there is one), in ns.
    pub fn row(&mut self, what: &str, ours_ns: &[u64], peer_ns: Option<&[u64]>) {
        let ours = median(ours_ns);
        let peer = peer_ns.map(median);
        let ratio = peer.map_or("-".to_string(), |peer| format!("{:.2}", ours as f64 / peer.max(1) as f64));
        self.0.push([what.to_string(), time(ours), peer.map_or("-".to_string(), time), ratio]);
    }

    pub fn markdown(&self) -> String {
        let mut text = String::from("| what | Crossdock | pyarrow | ratio |\n|---|---|---|---|\n");
        for [what, ours, peer, ratio] in &self.0 {
            text += &format!("| {what} | {ours} | {peer} | {ratio} |\n");
        }
        text
    }
}

/// The middle one of the sorted times.
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
