//! Where objects are: a folder, or a bucket of an object store that speaks S3's protocol.

use std::fs;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_lite::StreamExt;
use http_body_util::Full;
use object_store::aws::AmazonS3Builder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError as ClientError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutPayload};

use crate::http::{Http, HttpError, whole};
use crate::object::{self, Key, Unopened};

/// Why the store does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No store has this name.
    #[error("{0}: a store is a folder, or s3://BUCKET/PREFIX")]
    Name(String),
    /// There is no such folder.
    #[error("{0}: there is no backup store: name the folder that `ringkeeper backup --to` has made")]
    Missing(String),
    /// The folder cannot be made.
    #[error("{folder}: {source}")]
    Folder {
        /// The store.
        folder: String,
        /// Why.
        source: io::Error,
    },
    /// The store fails or refuses.
    #[error("the store: {0}")]
    Store(#[from] object_store::Error),
    /// An object is not as it was written.
    #[error("{name} in the store cannot be used: {source}")]
    Object {
        /// The object.
        name: String,
        /// Why.
        source: Unopened,
    },
    /// What was written is not what is read.
    #[error("{0} was written, and the store gives something else")]
    NotKept(String),
    /// An object does not say what it should.
    #[error("{name} in the store is malformed: {reason}")]
    Malformed {
        /// The object.
        name: String,
        /// Why.
        reason: String,
    },
    /// There are no random numbers.
    #[error("no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// How the store is reached.
#[derive(Clone)]
pub struct StoreSettings {
    /// A folder, or `s3://BUCKET/PREFIX`; its keys and endpoint are in the environment (`AWS_...`).
    pub name: String,
    /// Encrypts all objects.
    pub key: Option<Key>,
    /// What an object store is asked by.
    pub http: Http,
}

/// The objects of one backup.
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    key: Option<Key>,
}

impl Store {
    /// Opens a store. A folder is made if `makes`.
    ///
    /// # Errors
    /// It has no usable name, or the folder is not there and cannot or shall not be made.
    pub fn open(settings: StoreSettings, makes: bool) -> Result<Self, StoreError> {
        let StoreSettings { name, key, http } = settings;
        let Some(place) = name.strip_prefix("s3://") else {
            if name.contains("://") {
                return Err(StoreError::Name(name));
            }
            if makes {
                fs::create_dir_all(&name)
                    .map_err(|source| StoreError::Folder { folder: name.clone(), source })?;
            } else if !std::path::Path::new(&name).is_dir() {
                return Err(StoreError::Missing(name));
            }
            let objects = Arc::new(LocalFileSystem::new_with_prefix(&name)?.with_fsync(true));
            return Ok(Self { objects, prefix: Path::default(), key });
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let s3 = AmazonS3Builder::from_env().with_bucket_name(bucket).with_http_connector(Connector(http));
        Ok(Self { objects: Arc::new(s3.build()?), prefix: Path::from(prefix), key })
    }

    /// Writes an object and reads it back.
    ///
    /// # Errors
    /// The store refuses, or gives back something else.
    pub(crate) async fn put(&self, name: &str, contents: &[u8]) -> Result<(), StoreError> {
        let object = Bytes::from(object::close(name, contents, self.key.as_ref())?);
        let path = self.path(name);
        self.objects.put(&path, PutPayload::from_bytes(object.clone())).await?;
        match self.objects.get(&path).await?.bytes().await? == object {
            true => Ok(()),
            false => Err(StoreError::NotKept(name.to_owned())),
        }
    }

    /// What an object holds; `None` if it is not there.
    ///
    /// # Errors
    /// The store refuses, or the object is damaged or encrypted with another key.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let object = match self.objects.get(&self.path(name)).await {
            Ok(found) => found.bytes().await?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let opened = object::open(name, object.into(), self.key.as_ref());
        opened.map(Some).map_err(|source| StoreError::Object { name: name.to_owned(), source })
    }

    /// [`Self::get`] of an object that has to be there.
    pub(crate) async fn need(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let missing = || StoreError::Malformed { name: name.to_owned(), reason: "it is missing".into() };
        self.get(name).await?.ok_or_else(missing)
    }

    /// The names of all objects.
    ///
    /// # Errors
    /// The store refuses.
    pub(crate) async fn list(&self) -> Result<Vec<String>, StoreError> {
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        let mut found = self.objects.list(prefix);
        let mut names = Vec::new();
        while let Some(object) = found.try_next().await? {
            let parts = object.location.prefix_match(&self.prefix);
            names.extend(
                parts.map(|parts| parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/")),
            );
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes an object.
    ///
    /// # Errors
    /// The store refuses.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), StoreError> {
        Ok(self.objects.delete(&self.path(name)).await?)
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }
}

/// Has an object store asked by our HTTP.
#[derive(Debug)]
struct Connector(Http);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Requests(self.0.clone())))
    }
}

#[derive(Debug)]
struct Requests(Http);

#[async_trait]
impl HttpService for Requests {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, ClientError> {
        let answer = self.0.send(request).await.map_err(client_error)?;
        // Objects are short.
        let (head, body) = answer.into_parts();
        let body = whole(body).await.map_err(client_error)?;
        let body = Full::new(Bytes::from(body));
        Ok(HttpResponse::from_parts(
            head,
            HttpResponseBody::new(http_body_util::BodyExt::map_err(body, |never| match never {})),
        ))
    }
}

/// Tells which errors are worth another try.
fn client_error(error: HttpError) -> ClientError {
    let kind = match &error {
        HttpError::Io(_) => HttpErrorKind::Connect,
        HttpError::Http(_) => HttpErrorKind::Interrupted,
        HttpError::Late => HttpErrorKind::Timeout,
        HttpError::Address(_) | HttpError::Tls(_) => HttpErrorKind::Unknown,
    };
    ClientError::new(kind, error)
}
