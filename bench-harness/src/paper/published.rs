//! Figures that were published: ZooKeeper: Wait-free coordination for Internet-scale systems (USENIX ATC
//! 2010), measured on dual-core 2.1 GHz Xeons with 4 GB, gigabit Ethernet, and a disk of its own for the log.

/// A curve that others have measured elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) figure: &'static str,
    /// How many, where that was said.
    pub(crate) servers: Option<usize>,
    /// As ours that it goes with.
    pub(crate) series: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Published {
    /// As a legend names it.
    pub(crate) fn name(&self) -> String {
        let series = if self.series.is_empty() { String::new() } else { format!(", {}", self.series) };
        let servers = self.servers.map_or_else(String::new, |servers| format!(", {servers} servers"));
        format!("paper (2010){servers}{series}")
    }
}

/// Table 1: operations a second with 0 % and with 100 % reads.
pub(crate) fn table1() -> Vec<Published> {
    let of = |(servers, writes, reads)| Published {
        figure: super::THROUGHPUT,
        servers: Some(servers),
        series: "",
        points: vec![(0.0, writes), (100.0, reads)],
    };
    [
        (3, 21_000.0, 87_000.0),
        (5, 18_000.0, 165_000.0),
        (7, 14_000.0, 257_000.0),
        (9, 12_000.0, 296_000.0),
        (13, 8_000.0, 460_000.0),
    ]
    .map(of)
    .into()
}

/// Table 2: creates a second by 1, 10 and 20 workers.
pub(crate) fn table2() -> Vec<Published> {
    let of = |(servers, [one, ten, twenty]): (usize, [f64; 3])| Published {
        figure: super::THROUGHPUT,
        servers: Some(servers),
        series: "",
        points: vec![(1.0, one), (10.0, ten), (20.0, twenty)],
    };
    [
        (3, [776.0, 2074.0, 2740.0]),
        (5, [748.0, 1832.0, 2336.0]),
        (7, [758.0, 1572.0, 1934.0]),
        (9, [711.0, 1540.0, 1890.0]),
    ]
    .map(of)
    .into()
}

/// Table 3: seconds for 200 to 1,600 barriers, by 50, 100 and 200 clients.
pub(crate) fn table3() -> Vec<Published> {
    let of = |(series, seconds): (&'static str, [f64; 4])| Published {
        figure: super::barriers::TIME,
        servers: None,
        series,
        points: [200.0, 400.0, 800.0, 1600.0].into_iter().zip(seconds).collect(),
    };
    [
        ("50 clients", [9.4, 16.4, 28.9, 54.0]),
        ("100 clients", [19.8, 34.1, 55.9, 102.7]),
        ("200 clients", [41.0, 62.0, 112.1, 234.4]),
    ]
    .map(of)
    .into()
}

/// Section 2.3's estimate: seconds for 5,000 changes, one after the other and pipelined.
pub(crate) fn section23() -> Vec<Published> {
    let of = |(series, seconds)| Published {
        figure: super::reconfigure::TIME,
        servers: None,
        series,
        points: vec![(5000.0, seconds)],
    };
    [(super::reconfigure::ONE_BY_ONE, 10.0), (super::reconfigure::PIPELINED, 1.0)].map(of).into()
}
