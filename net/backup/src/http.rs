//! HTTP for what is asked of servers and stores: a connection for each request, in the clear or with TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use ringkeeper_tls::ClientSettings;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// How long a connection may take, and each part of an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No connection, or it broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not as HTTP has it.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// Neither `http://` nor `https://`.
    #[error("{0} is no address of a server, such as http://127.0.0.1:8080")]
    Address(Uri),
    /// The certificates by which servers are verified cannot be read.
    #[error("{0}")]
    Tls(#[from] ringkeeper_tls::Error),
    /// Nothing came for a while.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Late,
}

/// Sends requests.
#[derive(Clone, Debug)]
pub struct Http {
    tls: Option<Arc<ClientConfig>>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Http {
    /// With the stores for `https://`; without them it cannot be spoken.
    ///
    /// # Errors
    /// The stores cannot be read.
    pub fn new(tls: Option<&ClientSettings>) -> Result<Self, HttpError> {
        Ok(Self { tls: tls.map(ClientSettings::load).transpose()?.map(Arc::new) })
    }

    /// Sends a request whose URI has scheme and authority, and returns the answer when its header is there.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<Incoming>, HttpError>
    where
        B: Body<Data: Send, Error: std::error::Error + Send + Sync + 'static> + Send + Unpin + 'static,
    {
        timeout(PATIENCE, self.try_send(request)).await.unwrap_or(Err(HttpError::Late))
    }

    async fn try_send<B>(&self, mut request: Request<B>) -> Result<Response<Incoming>, HttpError>
    where
        B: Body<Data: Send, Error: std::error::Error + Send + Sync + 'static> + Send + Unpin + 'static,
    {
        let uri = request.uri().clone();
        let stream = self.connect(&uri).await?;
        let authority = uri.authority().ok_or_else(|| HttpError::Address(uri.clone()))?;
        if !request.headers().contains_key(HOST) {
            let host = HeaderValue::from_str(authority.as_str()).map_err(io::Error::other)?;
            request.headers_mut().insert(HOST, host);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().map_err(io::Error::other)?;
        let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its error is that of the answer or of the body.
        tokio::spawn(connection);
        Ok(requests.send_request(request).await?)
    }

    async fn connect(&self, uri: &Uri) -> Result<Box<dyn Stream>, HttpError> {
        let unusable = || HttpError::Address(uri.clone());
        let host = uri.host().ok_or_else(unusable)?.trim_matches(['[', ']']);
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(unusable()),
        };
        let port = uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        if !is_encrypted {
            return Ok(Box::new(stream));
        }
        let missing = || io::Error::other("https:// needs a trust store (--tls-trust-store)");
        let config = self.tls.clone().ok_or_else(missing)?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
    }
}

/// The next part of an answer.
///
/// # Errors
/// The connection broke, or nothing came for a while.
pub async fn next_part(body: &mut Incoming) -> Result<Option<Bytes>, HttpError> {
    loop {
        let frame = timeout(PATIENCE, body.frame()).await.map_err(|_| HttpError::Late)?;
        match frame.transpose()?.map(hyper::body::Frame::into_data) {
            Some(Ok(data)) => return Ok(Some(data)),
            // Trailers.
            Some(Err(_)) => {}
            None => return Ok(None),
        }
    }
}

/// All of an answer.
///
/// # Errors
/// As [`next_part`].
pub async fn whole(mut body: Incoming) -> Result<Vec<u8>, HttpError> {
    let mut bytes = Vec::new();
    while let Some(part) = next_part(&mut body).await? {
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}
