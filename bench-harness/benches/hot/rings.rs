//! A message from one task to another and an answer back, through the rings that connect the server's
//! executors.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use criterion::Criterion;
use futures_lite::future::zip;
use ringkeeper_runtime::reactor::{Executor, start_thread};
use ringkeeper_runtime::ring::{Consumer, Producer, ring};

/// As many as nobody ever waits for.
const CAPACITY: usize = 1024;

type Ends = (Producer<u64>, Consumer<u64>);

/// `ring/round_trip/*`: two hops each.
pub(crate) fn round_trips(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ring");
    group.bench_function("round_trip/one_executor", |bencher| {
        bencher.iter_custom(|count| {
            let (here, there) = crossed();
            let executor = Executor::new("both").expect("io_uring is available");
            executor.run(async { zip(asking(here, count), answering(there, count)).await.0 })
        });
    });
    group.bench_function("round_trip/two_executors", |bencher| {
        bencher.iter_custom(|count| {
            let (here, there) = crossed();
            let other = start_thread("answering", Duration::ZERO, move || answering(there, count));
            let asking_executor = Executor::new("asking").expect("io_uring is available");
            let elapsed = asking_executor.run(asking(here, count));
            other.expect("io_uring is available").join().expect("it does not panic");
            elapsed
        });
    });
    group.finish();
}

/// Two ends, each with what the other one puts in.
fn crossed() -> (Ends, Ends) {
    let ((to_there, from_here), (to_here, from_there)) = (ring(CAPACITY), ring(CAPACITY));
    ((to_there, from_there), (to_here, from_here))
}

async fn asking((to, from): Ends, count: u64) -> Duration {
    let start = Instant::now();
    for number in 0..count {
        to.push(number).expect("one message has room");
        assert_eq!(next(&from).await, number);
    }
    start.elapsed()
}

async fn answering((to, from): Ends, count: u64) {
    for _ in 0..count {
        let number = next(&from).await;
        to.push(number).expect("one message has room");
    }
}

/// As the server's tasks wait: parked until a message is there.
async fn next(from: &Consumer<u64>) -> u64 {
    loop {
        if let Some(message) = from.pop() {
            return message;
        }
        poll_fn(|cx| from.poll_ready(cx)).await;
    }
}
