//! Creates by synchronous clients: table 2 of the paper, and many clients at once.

use anyhow::Result;

use super::bench::{
    Bench, CreateShape, GENERATOR_CPU, LATENCY_P50, LATENCY_P99, PAYLOAD_LEN, Place, SERVER_CPU, THROUGHPUT,
};
use super::experiment::{Experiment, Plan, View};
use super::published;
use super::scale::{Axis, Scale};
use crate::measure::as_f64;

const WORKERS: [usize; 3] = [1, 10, 20];
const CLIENTS: [usize; 6] = [1, 2, 10, 20, 100, 1000];
const SMALL_LEN: usize = 100;

const THROUGHPUT_VIEW: View = View::log(THROUGHPUT, "", "creates/s");

/// Table 2.
pub(crate) struct PaperCreates;

impl Experiment for PaperCreates {
    fn plan(&self) -> Plan {
        Plan {
            id: "table2",
            title: "Creates by 1, 10 and 20 workers",
            about: "Each worker creates a znode of 1 KiB, waits, asks for its deletion without waiting, and \
                    goes on. Only the creates count. The paper has each worker do 50,000; here they do what \
                    they can in the window.",
            x: Axis { label: "workers", scale: Scale::Log },
            views: vec![THROUGHPUT_VIEW, View::log(LATENCY_P50, "latency", "median latency of a create, us")],
            figures: vec![THROUGHPUT, LATENCY_P50, LATENCY_P99, SERVER_CPU, GENERATOR_CPU],
            published: published::table2(),
            etcd: true,
            floor: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let sizes = bench.sizes();
        create(bench, &sizes, &WORKERS, CreateShape { payload_len: PAYLOAD_LEN, delete: true })
    }
}

/// Creates of 100 B by up to a thousand clients.
pub(crate) struct ManyCreators;

impl Experiment for ManyCreators {
    fn plan(&self) -> Plan {
        Plan {
            id: "creates",
            title: "Creates of 100 B by 1 to 1,000 synchronous clients",
            about: "Each client creates znodes of 100 B under a parent of its own, one after the other.",
            x: Axis { label: "clients", scale: Scale::Log },
            views: vec![THROUGHPUT_VIEW, View::log(LATENCY_P99, "latency", "p99 latency of a create, us")],
            figures: vec![THROUGHPUT, LATENCY_P50, LATENCY_P99, SERVER_CPU, GENERATOR_CPU],
            etcd: true,
            floor: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size();
        create(bench, &[size], &CLIENTS, CreateShape { payload_len: SMALL_LEN, delete: false })
    }
}

fn create(bench: &mut Bench<'_>, sizes: &[usize], clients: &[usize], shape: CreateShape) -> Result<()> {
    bench.turns(sizes, |turn| {
        for clients in clients {
            turn.at(&format!("{clients} client(s)"));
            let measured = turn.create_synchronously(*clients, shape)?;
            turn.record_measurement(Place { series: "", x: as_f64(*clients as u64) }, &measured);
        }
        Ok(())
    })
}
