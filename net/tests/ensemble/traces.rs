//! Traces of requests, as a collector gets them.

use std::thread::sleep;
use std::time::Duration;

use ringkeeper_engine::trace::TraceId;
use ringkeeper_wire::{CreateMode, Request, SetDataRequest, Xid, Zxid};

use crate::cluster::Ensemble;
use crate::support::{Collector, Sent, wait_for};

fn children(spans: &[Sent], parent: &Sent) -> Vec<Sent> {
    let of_parent = spans.iter().filter(|sent| sent.span.parent_span_id == parent.span.span_id);
    of_parent.cloned().collect()
}

fn names(spans: &[Sent]) -> Vec<&str> {
    spans.iter().map(|sent| sent.span.name.as_str()).collect()
}

#[test]
fn a_write_through_a_follower_is_one_trace_with_the_leaders_part() {
    let collector = Collector::start();
    let endpoint = collector.endpoint();
    let ensemble =
        Ensemble::start_with(&format!("ringkeeper.traceSampleRate=1\nringkeeper.otlpEndpoint={endpoint}\n"));
    let leader = ensemble.leader();
    let follower = ensemble.others(leader)[0];
    let id = |server: usize| ensemble.seats()[server].id.to_string();
    let mut client = ensemble.connect(follower);
    client.create("/traced", b"secret", CreateMode::Persistent);
    let (trace, request, proposal) = wait_for("both parts of the trace", || {
        let spans = collector.spans();
        let of_path = |sent: &&Sent| sent.attribute("ringkeeper.path").as_deref() == Some("/traced");
        let request = spans.iter().find(of_path)?.clone();
        let trace: Vec<_> =
            spans.into_iter().filter(|sent| sent.span.trace_id == request.span.trace_id).collect();
        let proposal = trace.iter().find(|sent| sent.span.name == "propose")?.clone();
        Some((trace, request, proposal))
    });
    assert_eq!((&request.server, request.span.name.as_str()), (&id(follower), "CREA"));
    assert_eq!(request.attribute("ringkeeper.slow").as_deref(), Some("false"));
    assert!(request.span.parent_span_id.is_empty());
    assert_eq!(proposal.server, id(leader));
    assert_eq!(proposal.span.parent_span_id, request.span.span_id);
    // Whoever knows the request knows its trace.
    let number = |key| request.attribute(key).expect("an attribute");
    let zxid = u64::from_str_radix(number("ringkeeper.zxid").trim_start_matches("0x"), 16).expect("a zxid");
    let xid = Xid(number("ringkeeper.xid").parse().expect("a number"));
    let expected = TraceId::of(client.session.id, xid, Some(Zxid(zxid)));
    assert_eq!(request.span.trace_id, expected.to_bytes());
    let stages = children(&trace, &request);
    assert!(names(&stages).contains(&"leader"), "{stages:?}");
    let leaders = children(&trace, &proposal);
    // Its own log is not waited for if the peers are quicker.
    for stage in ["batch", "ack"] {
        assert!(names(&leaders).contains(&stage), "no {stage} in {leaders:?}");
    }
    let ack = leaders.iter().find(|sent| sent.span.name == "ack").expect("an acknowledgement");
    let peer = ack.attribute("ringkeeper.peer").expect("a peer");
    assert!(ensemble.others(leader).into_iter().any(|other| id(other) == peer), "{peer}");
    for sent in &trace {
        assert!(sent.span.start_time_unix_nano <= sent.span.end_time_unix_nano, "{sent:?}");
        assert!(!format!("{sent:?}").contains("secret"), "{sent:?}");
    }
    for stage in &stages {
        let (all, part) = (&request.span, &stage.span);
        assert!(all.start_time_unix_nano <= part.start_time_unix_nano, "{stage:?}");
        assert!(part.end_time_unix_nano <= all.end_time_unix_nano, "{stage:?}");
    }
    wait_for("the count", || {
        let mntr = ensemble.server(follower).ask("mntr").expect("an answer");
        let mut counts = mntr.lines().filter_map(|line| line.strip_prefix("zk_traces_exported\t"));
        counts.next()?.parse::<u64>().ok().filter(|exported| *exported > 0)
    });
}

#[test]
fn a_slow_request_is_traced_without_any_sampling() {
    let collector = Collector::start();
    let endpoint = collector.endpoint();
    let settings = format!(
        "ringkeeper.slowRequestMs=50\nringkeeper.peerTimeoutMs=20000\nringkeeper.otlpEndpoint={endpoint}\n"
    );
    let ensemble = Ensemble::start_with(&settings);
    let leader = ensemble.leader();
    let mut client = ensemble.connect(ensemble.others(leader)[0]);
    client.create("/slow", b"", CreateMode::Persistent);
    ensemble.pause(leader);
    client.send(&Request::SetData(SetDataRequest { path: "/slow".into(), data: Some(b""), version: -1 }));
    sleep(Duration::from_millis(200));
    ensemble.resume(leader);
    client.reply().expect("a reply").ok("/slow").expect("a write that succeeds");
    let request = wait_for("the trace", || {
        let is_it = |sent: &Sent| sent.attribute("ringkeeper.path").as_deref() == Some("/slow");
        collector.spans().into_iter().find(|sent| is_it(sent) && sent.span.name == "SETD")
    });
    assert_eq!(request.attribute("ringkeeper.slow").as_deref(), Some("true"));
    assert_eq!(request.attribute("ringkeeper.mostly").as_deref(), Some("leader"));
}
