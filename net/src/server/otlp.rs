//! Traces as messages of OTLP, the protocol of OpenTelemetry.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use ringkeeper_engine::fourletter::operation;
use ringkeeper_engine::slow::{Explanation, StageTime};
use ringkeeper_engine::trace::{ProposalTimes, SpanId, TraceId};
use ringkeeper_wire::ServerId;

use super::clock::Clock;
use super::traces::Trace;

/// Of the W3C's Trace Context: the trace is recorded.
const SAMPLED: u32 = 1;

/// Numbers of spans for acknowledgements, behind those of the stages.
const FIRST_ACK: u64 = 100;

/// An `ExportTraceServiceRequest` about these traces, as this server saw them.
pub(super) fn encode(traces: &[Trace], server: ServerId, clock: Clock) -> Vec<u8> {
    let mut spans = Spans { server, began_us: clock.began_unix_us(), list: Vec::new() };
    for trace in traces {
        match trace {
            Trace::Request(explanation) => spans.request(explanation),
            Trace::Proposal(times) => spans.proposal(times),
        }
    }
    let about = vec![
        text("service.name", env!("CARGO_PKG_NAME").to_owned()),
        text("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        text("service.instance.id", server.to_string()),
    ];
    let scope = InstrumentationScope { name: env!("CARGO_PKG_NAME").to_owned(), ..Default::default() };
    let scope = ScopeSpans { scope: Some(scope), spans: spans.list, ..Default::default() };
    let resource = Resource { attributes: about, ..Default::default() };
    let of_server =
        ResourceSpans { resource: Some(resource), scope_spans: vec![scope], ..Default::default() };
    ExportTraceServiceRequest { resource_spans: vec![of_server] }.encode_to_vec()
}

struct Spans {
    server: ServerId,
    /// When the server's clock began, microseconds since the Unix epoch.
    began_us: u64,
    list: Vec<Span>,
}

/// A span's place in its trace.
struct Place {
    trace: TraceId,
    own: SpanId,
    parent: Option<SpanId>,
}

impl Spans {
    fn request(&mut self, explanation: &Explanation) {
        let Explanation { request, stages, mostly, peer } = explanation;
        let trace = request.trace();
        let mut about = vec![
            text("ringkeeper.session", request.session.to_string()),
            number("ringkeeper.xid", i64::from(request.xid.0)),
            number("ringkeeper.request.bytes", i64::try_from(request.bytes).unwrap_or(i64::MAX)),
            text("ringkeeper.mostly", mostly.name().to_owned()),
            attribute("ringkeeper.slow", Value::BoolValue(!request.sampled)),
        ];
        about.extend(request.path.clone().map(|path| text("ringkeeper.path", path)));
        about.extend(request.zxid.map(|zxid| text("ringkeeper.zxid", zxid.to_string())));
        about.extend(peer.map(of_peer));
        let place = Place { trace, own: trace.request(), parent: None };
        let (name, times) = (operation(Some(request.op)), (request.received_us, request.written_us));
        self.add(&place, name, SpanKind::Server, times, about);
        self.stages(trace, trace.request(), stages);
    }

    fn proposal(&mut self, times: &ProposalTimes) {
        let ProposalTimes { proposal, stages, proposed_us, acks } = times;
        let trace = times.trace();
        let own = trace.span(self.server, 0);
        let from_us = stages.first().map_or(*proposed_us, |first| first.from_us);
        let about = vec![
            text("ringkeeper.session", proposal.session.to_string()),
            number("ringkeeper.xid", i64::from(proposal.xid.0)),
            text("ringkeeper.zxid", proposal.zxid.to_string()),
        ];
        let place = Place { trace, own, parent: Some(trace.request()) };
        self.add(&place, "propose", SpanKind::Server, (from_us, proposal.published_us), about);
        self.stages(trace, own, stages);
        for (number, (peer, acked_us)) in (FIRST_ACK..).zip(acks) {
            let place = Place { trace, own: trace.span(self.server, number), parent: Some(own) };
            self.add(&place, "ack", SpanKind::Client, (*proposed_us, *acked_us), vec![of_peer(*peer)]);
        }
    }

    fn stages(&mut self, trace: TraceId, parent: SpanId, stages: &[StageTime]) {
        for (number, time) in (1..).zip(stages) {
            let place = Place { trace, own: trace.span(self.server, number), parent: Some(parent) };
            let name = time.stage.name();
            self.add(&place, name, SpanKind::Internal, (time.from_us, time.until_us), Vec::new());
        }
    }

    fn add(
        &mut self,
        place: &Place,
        name: &str,
        kind: SpanKind,
        (from_us, until_us): (u64, u64),
        attributes: Vec<KeyValue>,
    ) {
        let unix_ns = |us: u64| self.began_us.saturating_add(us).saturating_mul(1000);
        self.list.push(Span {
            trace_id: place.trace.to_bytes().to_vec(),
            span_id: place.own.to_bytes().to_vec(),
            parent_span_id: place.parent.map(|parent| parent.to_bytes().to_vec()).unwrap_or_default(),
            flags: SAMPLED,
            name: name.to_owned(),
            kind: kind.into(),
            start_time_unix_nano: unix_ns(from_us),
            end_time_unix_nano: unix_ns(until_us),
            attributes,
            ..Default::default()
        });
    }
}

fn of_peer(peer: ServerId) -> KeyValue {
    text("ringkeeper.peer", peer.to_string())
}

fn text(key: &str, value: String) -> KeyValue {
    attribute(key, Value::StringValue(value))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}
