//! Table 3: double barriers.

use anyhow::Result;

use super::bench::{Bench, Place, SERVER_CPU, Turn};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use super::{layout, published};
use crate::double_barrier::cross;
use crate::measure::{as_f64, fresh_root};

/// The figure of the paper.
pub(crate) const TIME: &str = "time";

const OPERATIONS: &str = "barrier operations";

/// Clients, and barriers for each of them.
type Shape = (&'static [(usize, &'static str)], &'static [usize]);

const FULL: Shape =
    (&[(50, "50 clients"), (100, "100 clients"), (200, "200 clients")], &[200, 400, 800, 1600]);
const QUICK: Shape = (&[(50, "50 clients")], &[25, 50, 200]);

/// Table 3.
pub(crate) struct Barriers;

impl Experiment for Barriers {
    fn plan(&self) -> Plan {
        Plan {
            id: "table3",
            title: "Double barriers",
            about: "Each client enters one barrier after the other, then leaves them in the same order \
                    (section 2.4 of the paper: a ready znode lets clients in, watches on one another let \
                    them out). That nobody got through too early is checked. The paper: 1,950 to 3,100 \
                    barrier operations a second, 10,700 to 17,000 requests; it does not say on how many \
                    servers.",
            x: Axis { label: "barriers", scale: Scale::Log },
            views: vec![
                View::log(TIME, "", "time for all of them, s"),
                View::log(OPERATIONS, "rate", "barrier operations (enter or leave)/s"),
            ],
            figures: vec![TIME, OPERATIONS, "requests", SERVER_CPU],
            published: published::table3(),
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size();
        bench.turns(&[size], |turn| {
            let (clients, barriers) = turn.pace().pick(QUICK, FULL);
            for (clients, series) in clients {
                for barriers in barriers {
                    turn.at(&format!("{series}, {barriers} barriers"));
                    measure(turn, *clients, series, *barriers)?;
                }
            }
            Ok(())
        })
    }
}

fn measure(turn: &mut Turn<'_, '_>, clients: usize, series: &str, barriers: usize) -> Result<()> {
    let root = fresh_root();
    layout::create_many(turn.addresses(), &root, barriers)?;
    let mut rate = turn.rate("requests");
    let (crossed, around) =
        turn.around(|addresses| cross(addresses, &root, (clients, barriers), &mut rate))?;
    let seconds = crossed.elapsed.as_secs_f64();
    let operations = as_f64((2 * clients * barriers) as u64);
    let mut figures = vec![
        (TIME, "s", seconds),
        (OPERATIONS, "operations/s", operations / seconds),
        ("requests", "requests/s", as_f64(crossed.requests) / seconds),
    ];
    figures.extend(around.server_cpu_figure(crossed.requests));
    let objections = around.objections();
    turn.record(Place { series, x: as_f64(barriers as u64) }, &figures, &objections);
    Ok(())
}
