//! Kerberos for clients that log in, by the GSS-API (RFC 2743) of MIT's library, which is loaded at run time
//! when there is a keytab: building and running without Kerberos need nothing of it.
//!
//! Calls may block, on the keytab or the cache of tickets seen before: they belong on a thread of their own.
#![expect(unsafe_code, reason = "MIT's library is written in C")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use libloading::Library;
use ringkeeper_engine::sasl::{Accepted, LoginError, SecurityContext};

/// The library, and what brings it.
const LIBRARY: &str = "libgssapi_krb5.so.2";
const PACKAGE: &str = "libgssapi-krb5-2 (Debian, Ubuntu) or krb5-libs (Fedora, RHEL)";

/// 1.2.840.113554.1.2.2, Kerberos.
const MECHANISM: Oid = Oid::new(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02");

/// 1.2.840.113554.1.2.2.1, a principal's name with all its components.
const PRINCIPAL: Oid = Oid::new(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01");

/// Bits of a status that say that a call failed, or that a context needs another token.
const FAILED: u32 = 0xffff_0000;
const CONTINUE_NEEDED: u32 = 1;

/// What a credential is for, and whose status is to be explained (`GSS_C_ACCEPT`, `GSS_C_GSS_CODE`,
/// `GSS_C_MECH_CODE`).
const ACCEPT: c_int = 2;
const GSS_CODE: c_int = 1;
const MECHANISM_CODE: c_int = 2;

/// Any length of time (`GSS_C_INDEFINITE`).
const INDEFINITE: u32 = u32::MAX;

/// Why nobody can log in by Kerberos: one sentence, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum KerberosError {
    /// The library is not installed, or another one.
    #[error("Krb5LoginModule needs MIT's {LIBRARY}, install {PACKAGE}: {}", cause(.0))]
    Library(#[from] libloading::Error),
    /// The keytab's path or the principal has a NUL byte.
    #[error("the keytab or the principal has a NUL byte in its name")]
    Name(#[from] std::ffi::NulError),
    /// The keytab cannot be used.
    #[error("{principal} cannot accept logins with {keytab}: {reason}")]
    Keytab {
        /// Who accepts.
        principal: String,
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

/// `gss_buffer_desc`.
#[repr(C)]
struct Buffer {
    length: usize,
    value: *mut c_void,
}

/// `gss_OID_desc`.
#[repr(C)]
struct Oid {
    length: u32,
    elements: *const c_void,
}

/// `gss_OID_set_desc`.
#[repr(C)]
struct OidSet {
    count: usize,
    elements: *const Oid,
}

/// `gss_key_value_element_desc`.
#[repr(C)]
struct KeyValue {
    key: *const c_char,
    value: *const c_char,
}

/// `gss_key_value_set_desc`.
#[repr(C)]
struct KeyValueSet {
    count: u32,
    elements: *const KeyValue,
}

impl Oid {
    #[expect(clippy::cast_possible_truncation, reason = "an identifier has a few bytes")]
    const fn new(bytes: &'static [u8]) -> Self {
        Self { length: bytes.len() as u32, elements: bytes.as_ptr().cast() }
    }
}

impl Buffer {
    const fn empty() -> Self {
        Self { length: 0, value: null_mut() }
    }

    /// A buffer to read from, while `bytes` live.
    const fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
    }
}

/// A name, a credential and a context of the library.
type Handle = *mut c_void;

/// The functions of the library that are used, with its types.
macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn(*mut u32, $($argument),*) -> u32,)*
        }

        impl Functions {
            fn load() -> Result<Self, libloading::Error> {
                // SAFETY: the library is MIT's by its name; its initializers have no preconditions.
                let library = unsafe { Library::new(LIBRARY)? };
                let functions = Self {
                    // SAFETY: the functions have these types in the GSS-API (RFC 2744) and its extensions
                    // (gssapi_ext.h), which MIT keeps compatible within the library's version 2.
                    $($name: unsafe { *library.get(concat!(stringify!($name), "\0").as_bytes())? },)*
                };
                // Never unloaded: threads keep data of the library until they end.
                std::mem::forget(library);
                Ok(functions)
            }
        }
    };
}

functions! {
    gss_import_name(*const Buffer, *const Oid, *mut Handle);
    gss_canonicalize_name(Handle, *const Oid, *mut Handle);
    gss_display_name(Handle, *mut Buffer, *mut *const Oid);
    gss_release_name(*mut Handle);
    gss_acquire_cred_from(
        Handle, u32, *const OidSet, c_int, *const KeyValueSet, *mut Handle, *mut *const OidSet, *mut u32
    );
    gss_release_cred(*mut Handle);
    gss_accept_sec_context(
        *mut Handle, Handle, *const Buffer, *const c_void, *mut Handle, *mut *const Oid, *mut Buffer,
        *mut u32, *mut u32, *mut Handle
    );
    gss_delete_sec_context(*mut Handle, *mut Buffer);
    gss_wrap(Handle, c_int, u32, *const Buffer, *mut c_int, *mut Buffer);
    gss_unwrap(Handle, *const Buffer, *mut Buffer, *mut c_int, *mut u32);
    gss_display_status(u32, c_int, *const Oid, *mut u32, *mut Buffer);
    gss_release_buffer(*mut Buffer);
}

/// The status of a call that failed.
#[derive(Clone, Copy)]
struct Status {
    major: u32,
    minor: u32,
}

impl Functions {
    /// Makes a call; its status if it failed.
    fn call(&self, call: impl FnOnce(*mut u32) -> u32) -> Result<u32, Status> {
        let mut minor = 0;
        let major = call(&raw mut minor);
        if major & FAILED == 0 { Ok(major) } else { Err(Status { major, minor }) }
    }

    /// Makes a call that fills a buffer; returns what it holds.
    fn output(&self, call: impl FnOnce(*mut u32, *mut Buffer) -> u32) -> Result<(u32, Vec<u8>), Status> {
        let mut buffer = Buffer::empty();
        let called = self.call(|minor| call(minor, &raw mut buffer));
        let bytes = if buffer.value.is_null() {
            Vec::new()
        } else {
            // SAFETY: the library has filled the buffer with so many bytes, and nobody else has it.
            unsafe { std::slice::from_raw_parts(buffer.value.cast::<u8>(), buffer.length) }.to_vec()
        };
        // SAFETY: the buffer is empty or the library's, and is not used again.
        let _ = self.call(|minor| unsafe { (self.gss_release_buffer)(minor, &raw mut buffer) });
        called.map(|major| (major, bytes))
    }

    /// What the library says about a failure, without control characters: a client may have chosen parts of
    /// it.
    fn explain(&self, status: Status) -> String {
        // The mechanism knows more; where it knows nothing, its status is 0.
        let (value, kind) = match status {
            Status { minor: 0, major } => (major, GSS_CODE),
            Status { minor, .. } => (minor, MECHANISM_CODE),
        };
        let mut next = 0;
        // SAFETY: the pointers are to values that outlive the call.
        let text = self.output(|minor, buffer| unsafe {
            (self.gss_display_status)(minor, value, kind, &MECHANISM, &raw mut next, buffer)
        });
        match text {
            Ok((_, text)) => String::from_utf8_lossy(&text).replace(char::is_control, " "),
            Err(_) => format!("status {:#x}, {}", status.major, status.minor),
        }
    }

    fn refused(&self, status: Status) -> LoginError {
        LoginError::Kerberos(self.explain(status).into())
    }
}

/// A name, to be released.
struct Name<'a>(&'a Functions, Handle);

impl<'a> Name<'a> {
    fn of_principal(functions: &'a Functions, principal: &str) -> Result<Self, Status> {
        let text = Buffer::of(principal.as_bytes());
        let mut name = Self(functions, null_mut());
        // SAFETY: the pointers are to values that outlive the call.
        functions.call(|minor| unsafe {
            (functions.gss_import_name)(minor, &raw const text, &PRINCIPAL, &raw mut name.1)
        })?;
        Ok(name)
    }

    /// As Kerberos would write it: with a realm.
    fn canonical(&self) -> Result<Self, Status> {
        let mut name = Self(self.0, null_mut());
        // SAFETY: the pointers are to values that outlive the call, and this name is the library's.
        self.0.call(|minor| unsafe {
            (self.0.gss_canonicalize_name)(minor, self.1, &MECHANISM, &raw mut name.1)
        })?;
        Ok(name)
    }

    fn text(&self) -> Result<String, Status> {
        // SAFETY: the name is the library's until it is dropped; the type is not asked for.
        let shown = self
            .0
            .output(|minor, buffer| unsafe { (self.0.gss_display_name)(minor, self.1, buffer, null_mut()) });
        shown.map(|(_, text)| String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        // SAFETY: the name is the library's or null, and is not used again.
        let _ = self.0.call(|minor| unsafe { (self.0.gss_release_name)(minor, &raw mut self.1) });
    }
}

/// A credential, to be released.
struct Credential<'a>(&'a Functions, Handle);

impl Drop for Credential<'_> {
    fn drop(&mut self) {
        // SAFETY: the credential is the library's or null, and is not used again.
        let _ = self.0.call(|minor| unsafe { (self.0.gss_release_cred)(minor, &raw mut self.1) });
    }
}

/// A service that clients log in to.
pub struct Service {
    functions: Functions,
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
        let service = Self { functions: Functions::load()?, principal: principal.to_owned(), keytab };
        let usable = service.credential().map(drop);
        usable.map_err(|status| KerberosError::Keytab {
            principal: principal.to_owned(),
            keytab: shown,
            reason: service.functions.explain(status),
        })?;
        Ok(Arc::new(service))
    }

    /// The realm of names that are written without one; none if it is not configured.
    #[must_use]
    pub fn default_realm(&self) -> Option<String> {
        let name =
            Name::of_principal(&self.functions, "name").and_then(|name| name.canonical()?.text()).ok()?;
        name.split_once('@').map(|(_, realm)| realm.to_owned())
    }

    /// Begins a login.
    #[must_use]
    pub fn context(self: &Arc<Self>) -> Context {
        Context { service: Arc::clone(self), handle: null_mut() }
    }

    /// Reads the keytab. A credential is made for each login, so that a keytab that was replaced counts from
    /// the next one on.
    fn credential(&self) -> Result<Credential<'_>, Status> {
        let functions = &self.functions;
        let name = Name::of_principal(functions, &self.principal)?;
        let mechanisms = OidSet { count: 1, elements: &MECHANISM };
        let value = self.keytab.as_ref().map_or(null(), |keytab| keytab.as_ptr());
        let entry = KeyValue { key: c"keytab".as_ptr(), value };
        let store = KeyValueSet { count: u32::from(self.keytab.is_some()), elements: &raw const entry };
        let mut credential = Credential(functions, null_mut());
        // SAFETY: the pointers are to values that outlive the call; what is null is not asked for.
        functions.call(|minor| unsafe {
            (functions.gss_acquire_cred_from)(
                minor,
                name.1,
                INDEFINITE,
                &raw const mechanisms,
                ACCEPT,
                &raw const store,
                &raw mut credential.1,
                null_mut(),
                null_mut(),
            )
        })?;
        Ok(credential)
    }
}

/// The login of one client.
pub struct Context {
    service: Arc<Service>,
    /// Null before the first token.
    handle: Handle,
}

// SAFETY: a context of MIT's library belongs to no thread; two may not use it at once, which `&mut self`
// guarantees.
unsafe impl Send for Context {}

impl SecurityContext for Context {
    fn accept(&mut self, token: &[u8]) -> Result<Accepted, LoginError> {
        let functions = &self.service.functions;
        let refused = |status| functions.refused(status);
        let credential = self.service.credential().map_err(refused)?;
        let input = Buffer::of(token);
        let mut client = Name(functions, null_mut());
        // SAFETY: the pointers are to values that outlive the call, and the context is null or the library's.
        // There are no channel bindings; what is null is not asked for.
        let (major, token) = functions
            .output(|minor, output| unsafe {
                (functions.gss_accept_sec_context)(
                    minor,
                    &raw mut self.handle,
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
            (functions.gss_wrap)(minor, self.handle, 0, 0, &raw const message, null_mut(), output)
        });
        wrapped.map(|(_, bytes)| bytes).map_err(|status| functions.refused(status))
    }

    fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, LoginError> {
        let (functions, message) = (&self.service.functions, Buffer::of(message));
        // SAFETY: the context is null, which the library refuses, or its own; the message outlives the call.
        let opened = functions.output(|minor, output| unsafe {
            (functions.gss_unwrap)(minor, self.handle, &raw const message, output, null_mut(), null_mut())
        });
        match opened {
            Ok((0, bytes)) => Ok(bytes),
            Ok(_) => Err(LoginError::Kerberos("a message was repeated, or is out of order".into())),
            Err(status) => Err(functions.refused(status)),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let functions = &self.service.functions;
        // SAFETY: the context is the library's or null, and is not used again; it ends without a last token.
        let _ = functions.call(|minor| unsafe {
            (functions.gss_delete_sec_context)(minor, &raw mut self.handle, null_mut())
        });
    }
}
