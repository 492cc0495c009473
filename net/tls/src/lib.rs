//! TLS as Apache ZooKeeper's settings describe it: what the `ssl.*` keys mean, and the configuration of
//! rustls that follows from them. Has no socket; whoever has one drives rustls, a client by
//! [`ClientSession`].
//!
//! Only what is safe today is offered: TLS 1.2 and 1.3 with forward secrecy and authenticated encryption.
//! A setting that asks for less is refused by name, so that nobody believes in a protection or a
//! compatibility that is not there.

mod client;
mod decryption;
mod der;
mod elliptic;
mod error;
mod jks;
mod name;
mod offer;
mod party;
mod password;
mod peer;
mod pkcs12;
mod reload;
mod server;
mod session;
mod settings;
mod store;
mod validity;
mod versions;

pub use client::ClientSettings;
pub use error::Error;
pub use name::{subject, uris};
pub use offer::{CipherSuites, Versions};
pub use party::Party;
pub use password::Password;
pub use peer::{PeerConfig, PeerSettings, bears_name};
pub use reload::Stores;
pub use rustls;
pub use server::{ClientAuth, ServerSettings};
pub use session::ClientSession;
pub use settings::Settings;
pub use store::{StoreKind, StoreSettings};
pub use validity::{ListValidity, Validity};
