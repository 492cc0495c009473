//! A client of etcd's gRPC API, as thin as it can be: HTTP/2 by `h2`, messages by `prost`, and between them
//! gRPC's five bytes in front of a message and its status behind it (gRPC over HTTP2, PROTOCOL-HTTP2.md).
//! Whatever the generator spends on a request is taken from the machine that it measures.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream, client};
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use prost::Message;
use prost::bytes::{BufMut, Bytes, BytesMut};
use tokio::net::TcpStream;

/// A byte that says whether the message is compressed, and four for its length.
const PREFIX_LEN: usize = 5;

/// What a stream and a connection may send before it must be taken note of, in bytes.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 1 << 24;

/// A method of the API.
#[derive(Clone, Copy, Debug)]
pub(super) enum Method {
    Put,
    Range,
    DeleteRange,
    Watch,
}

impl Method {
    const ALL: [Self; 4] = [Self::Put, Self::Range, Self::DeleteRange, Self::Watch];

    const fn path(self) -> &'static str {
        match self {
            Self::Put => "/etcdserverpb.KV/Put",
            Self::Range => "/etcdserverpb.KV/Range",
            Self::DeleteRange => "/etcdserverpb.KV/DeleteRange",
            Self::Watch => "/etcdserverpb.Watch/Watch",
        }
    }
}

/// One connection. Clones share it.
#[derive(Clone)]
pub(super) struct Client {
    send: SendRequest<Bytes>,
    /// Of each method, in their order.
    uris: [Uri; Method::ALL.len()],
}

impl Client {
    /// Connects. What the connection needs doing is done by a task of the runtime that this is called in.
    pub(super) async fn connect(member: SocketAddr) -> Result<Self> {
        let context = || format!("cannot reach member {member}");
        let stream = TcpStream::connect(member).await.with_context(context)?;
        stream.set_nodelay(true)?;
        let mut builder = client::Builder::new();
        builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        let (send, connection) = builder.handshake(stream).await.with_context(context)?;
        // Its error reaches whoever has a request outstanding.
        tokio::spawn(async move { drop(connection.await) });
        let uri = |method: Method| format!("http://{member}{}", method.path()).parse();
        let [put, range, delete_range, watch] = Method::ALL.map(uri);
        Ok(Self { send, uris: [put?, range?, delete_range?, watch?] })
    }

    /// Sends a request and awaits its answer.
    pub(super) async fn call<Q: Message, R: Message + Default>(
        &self,
        method: Method,
        request: &Q,
    ) -> Result<R> {
        let (response, _) = self.send(method, request, true).await?;
        let (head, mut body) = response.await?.into_parts();
        ensure!(head.status.is_success(), "{method:?}: HTTP status {}", head.status);
        let message = read(&mut body).await?;
        // Without a message the status may stand in the head.
        match body.trailers().await? {
            Some(trailers) => check_status(&trailers),
            None => check_status(&head.headers),
        }
        .with_context(|| format!("{method:?}"))?;
        R::decode(unframed(&message)?).with_context(|| format!("the answer to {method:?}"))
    }

    /// Sends the first message of a stream of requests, and awaits that the stream of answers begins.
    pub(super) async fn stream(&self, method: Method, first: &impl Message) -> Result<Stream> {
        let (response, requests) = self.send(method, first, false).await?;
        let (head, answers) = response.await?.into_parts();
        ensure!(head.status.is_success(), "{method:?}: HTTP status {}", head.status);
        Ok(Stream { answers, received: BytesMut::new(), _requests: requests })
    }

    async fn send(
        &self,
        method: Method,
        request: &impl Message,
        is_last: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>)> {
        let mut send = self.send.clone().ready().await?;
        let head = Request::post(self.uris[method as usize].clone())
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
            .header(header::TE, HeaderValue::from_static("trailers"))
            .body(())?;
        let (response, mut stream) = send.send_request(head, false)?;
        stream.send_data(framed(request)?, is_last)?;
        Ok((response, stream))
    }
}

/// A stream of answers to a stream of requests that has no end.
pub(super) struct Stream {
    answers: RecvStream,
    /// What has come and was not taken.
    received: BytesMut,
    /// Dropped, it would end.
    _requests: SendStream<Bytes>,
}

impl Stream {
    /// Awaits the next answer.
    pub(super) async fn next<R: Message + Default>(&mut self) -> Result<R> {
        loop {
            if let Some(frame) = take_frame(&mut self.received)? {
                return R::decode(unframed(&frame)?).context("an answer of a stream");
            }
            let part = self.answers.data().await.context("the stream has ended")??;
            self.answers.flow_control().release_capacity(part.len())?;
            self.received.extend_from_slice(&part);
        }
    }
}

/// The first frame of what was received, once it is there whole.
fn take_frame(received: &mut BytesMut) -> Result<Option<BytesMut>> {
    let Some([_, len @ ..]) = received.first_chunk::<PREFIX_LEN>() else { return Ok(None) };
    let len = PREFIX_LEN + usize::try_from(u32::from_be_bytes(*len))?;
    Ok((received.len() >= len).then(|| received.split_to(len)))
}

fn framed(message: &impl Message) -> Result<Bytes> {
    let len = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX_LEN + len);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(len)?);
    message.encode(&mut frame)?;
    Ok(frame.freeze())
}

/// The one message of an answer.
fn unframed(frame: &[u8]) -> Result<&[u8]> {
    let Some((&[compressed, ref len @ ..], message)) = frame.split_first_chunk::<PREFIX_LEN>() else {
        bail!("{} bytes are no message", frame.len());
    };
    let len = u32::from_be_bytes(*len);
    ensure!(compressed == 0, "a compressed message, which was not asked for");
    ensure!(usize::try_from(len)? == message.len(), "a message of {len} bytes in {}", message.len());
    Ok(message)
}

async fn read(body: &mut RecvStream) -> Result<Bytes> {
    let mut whole = Bytes::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        // Nearly always there is one part only.
        whole = if whole.is_empty() { part } else { [whole, part].concat().into() };
    }
    Ok(whole)
}

fn check_status(headers: &HeaderMap) -> Result<()> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        Some(status) => bail!("gRPC status {status}: {}", text("grpc-message").unwrap_or("no message")),
        None => bail!("an answer without a gRPC status"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::PutRequest;
    use super::*;

    #[test]
    fn a_message_is_framed_and_unframed() {
        let put = PutRequest { key: "key".into(), value: "value".into() };
        let frame = framed(&put).unwrap();
        assert_eq!(PutRequest::decode(unframed(&frame).unwrap()).unwrap(), put);
        assert!(unframed(&frame[..frame.len() - 1]).is_err());
        assert!(unframed(&[]).is_err());
    }

    #[test]
    fn messages_of_a_stream_are_taken_one_by_one_when_they_are_whole() {
        let put = PutRequest { key: "key".into(), value: "value".into() };
        let frame = framed(&put).unwrap();
        let mut received = BytesMut::from(&[&frame[..], &frame[..4]].concat()[..]);
        assert_eq!(take_frame(&mut received).unwrap().unwrap(), frame);
        assert!(take_frame(&mut received).unwrap().is_none());
        received.extend_from_slice(&frame[4..]);
        assert_eq!(take_frame(&mut received).unwrap().unwrap(), frame);
        assert!(received.is_empty());
    }

    #[test]
    fn only_a_status_of_zero_is_an_answer() {
        let with = |status: &'static str| {
            HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(status))])
        };
        assert!(check_status(&with("0")).is_ok());
        assert!(check_status(&with("8")).unwrap_err().to_string().contains("gRPC status 8"));
        assert!(check_status(&HeaderMap::new()).is_err());
    }
}
