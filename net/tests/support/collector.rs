//! A collector of traces, as OpenTelemetry's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use ringkeeper_testkit::own_address;

/// A span, and the server that has sent it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) server: String,
    pub(crate) span: Span,
}

impl Sent {
    /// An attribute as text.
    pub(crate) fn attribute(&self, key: &str) -> Option<String> {
        value(&self.span.attributes, key)
    }
}

fn value(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(is) => is.to_string(),
        other => panic!("{other:?}"),
    })
}

/// It runs until the test ends.
pub(crate) struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Sent>>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((own_address(), 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let spans = Arc::<Mutex<Vec<Sent>>>::default();
        let kept = Arc::clone(&spans);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let got = answer(stream.expect("a connection"));
                kept.lock().expect("no panic").extend(got);
            }
        });
        Self { address, spans }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}/v1/traces", self.address)
    }

    pub(crate) fn spans(&self) -> Vec<Sent> {
        self.spans.lock().expect("no panic").clone()
    }
}

fn answer(stream: TcpStream) -> Vec<Sent> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_ascii_lowercase());
    }
    assert_eq!(head[0], "post /v1/traces http/1.1");
    assert!(head.contains(&"content-type: application/x-protobuf".to_owned()), "{head:?}");
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    reader.read_exact(&mut body).expect("a body");
    let mut stream = reader.into_inner();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("sent");
    let request = ExportTraceServiceRequest::decode(body.as_slice()).expect("a message of OTLP");
    let mut spans = Vec::new();
    for of_server in request.resource_spans {
        let resource = of_server.resource.expect("a resource").attributes;
        assert_eq!(value(&resource, "service.name").as_deref(), Some("ringkeeper"));
        assert_eq!(value(&resource, "service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
        let server = value(&resource, "service.instance.id").expect("a server");
        let all = of_server.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.extend(all.map(|span| Sent { server: server.clone(), span }));
    }
    spans
}
