//! Kerberos for clients that log in and for servers of one ensemble, by the GSS-API (RFC 2743) of MIT's
//! library, which is loaded at run time when there is a keytab: building and running without Kerberos need
//! nothing of it.
//!
//! Calls may block, on the keytab, the cache of tickets seen before or the KDC: they belong on a thread of
//! their own.
#![expect(unsafe_code, reason = "MIT's library is written in C")]

mod gssapi;
mod initiator;

use std::ffi::CString;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ringkeeper_engine::sasl::{Accepted, LoginError, SecurityContext};

use gssapi::{
    Buffer, CONTINUE_NEEDED, Credential, Functions, KEY_BYTES, KeyValue, LIBRARY, Name, Status, Usage,
};
pub use initiator::{Initiation, Initiator};

/// What brings the library.
const PACKAGE: &str = "libgssapi-krb5-2 (Debian, Ubuntu) or krb5-libs (Fedora, RHEL)";

/// Why Kerberos cannot be used: one sentence, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum KerberosError {
    /// The library is not installed, or another one.
    #[error("Krb5LoginModule needs MIT's {LIBRARY}, install {PACKAGE}: {}", cause(.0))]
    Library(#[from] libloading::Error),
    /// The keytab's path or the principal has a NUL byte.
    #[error("the keytab or the principal has a NUL byte in its name")]
    Name(#[from] std::ffi::NulError),
    /// The keytab cannot be used.
    #[error("{principal} cannot {purpose} with {keytab}: {reason}")]
    Keytab {
        /// Whose keys it should have.
        principal: String,
        /// What they are for.
        purpose: &'static str,
        /// The keytab.
        keytab: String,
        /// What the library says.
        reason: String,
    },
}

/// What the system says: the error itself only names the call.
fn cause(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A service that clients log in to, or servers.
pub struct Service {
    functions: Arc<Functions>,
    principal: String,
    /// As MIT's library and Java write it: with or without `FILE:`. Without one, the library has a default.
    keytab: Option<CString>,
}

impl Service {
    /// Loads the library, and looks the principal up in the keytab.
    ///
    /// # Errors
    /// There is no library, or no key of the principal.
    pub fn open(principal: &str, keytab: Option<&Path>) -> Result<Arc<Self>, KerberosError> {
        let shown = keytab.map_or_else(|| "the default keytab".to_owned(), |path| path.display().to_string());
        let keytab = keytab.map(|path| CString::new(path.as_os_str().as_encoded_bytes())).transpose()?;
        let functions = Arc::new(Functions::load()?);
        let unusable = |status| KerberosError::Keytab {
            principal: principal.to_owned(),
            purpose: "accept logins",
            keytab: shown.clone(),
            reason: functions.explain(status),
        };
        let own = Name::canonical_text(&functions, principal).map_err(&unusable)?;
        let service = Self { functions: Arc::clone(&functions), principal: own, keytab };
        service.credential().map(drop).map_err(unusable)?;
        Ok(Arc::new(service))
    }

    /// Who accepts, with the realm.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// The realm of names that are written without one; none if it is not configured.
    #[must_use]
    pub fn default_realm(&self) -> Option<String> {
        let name = Name::canonical_text(&self.functions, "name").ok()?;
        name.split_once('@').map(|(_, realm)| realm.to_owned())
    }

    /// Begins a login.
    #[must_use]
    pub fn context(self: &Arc<Self>) -> Context {
        Context { service: Arc::clone(self), context: gssapi::Context::new(Arc::clone(&self.functions)) }
    }

    /// Reads the keytab. A credential is made for each login, so that a keytab that was replaced counts from
    /// the next one on.
    fn credential(&self) -> Result<Credential<'_>, Status> {
        let keytab =
            self.keytab.iter().map(|keytab| KeyValue { key: c"keytab".as_ptr(), value: keytab.as_ptr() });
        let store: Vec<_> = keytab.collect();
        Credential::acquire(&self.functions, &self.principal, Usage::Accept, &store)
    }

    fn refused(&self, status: Status) -> LoginError {
        LoginError::Kerberos(self.functions.explain(status).into())
    }
}

/// The login of one client or server.
pub struct Context {
    service: Arc<Service>,
    context: gssapi::Context,
}

impl Context {
    /// A secret that the client alone knows, too, once its ticket is accepted (RFC 4401).
    ///
    /// # Errors
    /// The login is not complete.
    pub fn key(&self) -> Result<[u8; KEY_BYTES], LoginError> {
        self.context.key().map_err(|status| self.service.refused(status))
    }
}

impl SecurityContext for Context {
    fn accept(&mut self, token: &[u8]) -> Result<Accepted, LoginError> {
        let service = &self.service;
        let (functions, refused) = (&service.functions, |status| service.refused(status));
        let credential = service.credential().map_err(refused)?;
        let input = Buffer::of(token);
        let mut client = Name::none(functions);
        // SAFETY: the pointers are to values that outlive the call, and the context is null or the library's.
        // There are no channel bindings; what is null is not asked for.
        let (major, token) = functions
            .output(|minor, output| unsafe {
                (functions.gss_accept_sec_context)(
                    minor,
                    &raw mut self.context.handle,
                    credential.1,
                    &raw const input,
                    null(),
                    &raw mut client.1,
                    null_mut(),
                    output,
                    null_mut(),
                    null_mut(),
                    null_mut(),
                )
            })
            .map_err(refused)?;
        let established = major & CONTINUE_NEEDED == 0;
        let principal = established.then(|| client.text()).transpose().map_err(refused)?;
        Ok(Accepted { token, principal })
    }

    fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, LoginError> {
        let (functions, message) = (&self.service.functions, Buffer::of(message));
        // SAFETY: the context is null, which the library refuses, or its own; the message outlives the call.
        let wrapped = functions.output(|minor, output| unsafe {
            (functions.gss_wrap)(minor, self.context.handle, 0, 0, &raw const message, null_mut(), output)
        });
        wrapped.map(|(_, bytes)| bytes).map_err(|status| self.service.refused(status))
    }

    fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, LoginError> {
        let (functions, message) = (&self.service.functions, Buffer::of(message));
        // SAFETY: the context is null, which the library refuses, or its own; the message outlives the call.
        let opened = functions.output(|minor, output| unsafe {
            (functions.gss_unwrap)(
                minor,
                self.context.handle,
                &raw const message,
                output,
                null_mut(),
                null_mut(),
            )
        });
        match opened {
            Ok((0, bytes)) => Ok(bytes),
            Ok(_) => Err(LoginError::Kerberos("a message was repeated, or is out of order".into())),
            Err(status) => Err(self.service.refused(status)),
        }
    }
}
