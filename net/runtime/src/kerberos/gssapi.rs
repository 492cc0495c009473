//! The functions of MIT's library that are used, with their types, and values that are released with it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use libloading::Library;

/// The library. It brings libkrb5, on which it depends.
pub(super) const LIBRARY: &str = "libgssapi_krb5.so.2";

/// 1.2.840.113554.1.2.2, Kerberos.
pub(super) const MECHANISM: Oid = Oid::new(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02");

/// 1.2.840.113554.1.2.2.1, a principal's name with all its components.
const PRINCIPAL: Oid = Oid::new(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01");

/// Bits of a status that say that a call failed, or that a context needs another token.
const FAILED: u32 = 0xffff_0000;
pub(super) const CONTINUE_NEEDED: u32 = 1;

/// What a credential is for (`gss_cred_usage_t`).
#[derive(Clone, Copy)]
pub(super) enum Usage {
    Initiate = 1,
    Accept = 2,
}

/// Whose status is to be explained (`GSS_C_GSS_CODE`, `GSS_C_MECH_CODE`).
const GSS_CODE: c_int = 1;
const MECHANISM_CODE: c_int = 2;

/// Any length of time (`GSS_C_INDEFINITE`).
const INDEFINITE: u32 = u32::MAX;

/// The key of a context that both ends have made (`GSS_C_PRF_KEY_FULL`), and what a key of ours is made for.
const PRF_KEY_FULL: c_int = 0;
const KEY_PURPOSE: &[u8] = b"ringkeeper links";

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 32;

/// `gss_buffer_desc`.
#[repr(C)]
pub(super) struct Buffer {
    length: usize,
    value: *mut c_void,
}

/// `gss_OID_desc`.
#[repr(C)]
pub(super) struct Oid {
    length: u32,
    elements: *const c_void,
}

/// `gss_OID_set_desc`.
#[repr(C)]
pub(super) struct OidSet {
    count: usize,
    elements: *const Oid,
}

/// `gss_key_value_element_desc`.
#[repr(C)]
pub(super) struct KeyValue {
    pub(super) key: *const c_char,
    pub(super) value: *const c_char,
}

/// `gss_key_value_set_desc`.
#[repr(C)]
pub(super) struct KeyValueSet {
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
    pub(super) const fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
    }
}

/// A name, a credential and a context of the library.
pub(super) type Handle = *mut c_void;

/// Where a function of the GSS-API puts the mechanism's status.
type Minor = *mut u32;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of the library that are used, with its types.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            pub(super) fn load() -> Result<Self, libloading::Error> {
                // SAFETY: the library is MIT's by its name; its initializers have no preconditions.
                let library = unsafe { Library::new(LIBRARY)? };
                let functions = Self {
                    // SAFETY: the functions have these types in the GSS-API (RFC 2744), its extensions
                    // (RFC 4401, gssapi_ext.h) and libkrb5 (krb5.h), which MIT keeps compatible within the
                    // libraries' versions 2 and 3.
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
    gss_import_name(Minor, *const Buffer, *const Oid, *mut Handle) -> u32;
    gss_canonicalize_name(Minor, Handle, *const Oid, *mut Handle) -> u32;
    gss_display_name(Minor, Handle, *mut Buffer, *mut *const Oid) -> u32;
    gss_release_name(Minor, *mut Handle) -> u32;
    gss_acquire_cred_from(
        Minor, Handle, u32, *const OidSet, c_int, *const KeyValueSet, *mut Handle, *mut *const OidSet,
        *mut u32
    ) -> u32;
    gss_release_cred(Minor, *mut Handle) -> u32;
    gss_init_sec_context(
        Minor, Handle, *mut Handle, Handle, *const Oid, u32, u32, *const c_void, *const Buffer,
        *mut *const Oid, *mut Buffer, *mut u32, *mut u32
    ) -> u32;
    gss_accept_sec_context(
        Minor, *mut Handle, Handle, *const Buffer, *const c_void, *mut Handle, *mut *const Oid, *mut Buffer,
        *mut u32, *mut u32, *mut Handle
    ) -> u32;
    gss_delete_sec_context(Minor, *mut Handle, *mut Buffer) -> u32;
    gss_wrap(Minor, Handle, c_int, u32, *const Buffer, *mut c_int, *mut Buffer) -> u32;
    gss_unwrap(Minor, Handle, *const Buffer, *mut Buffer, *mut c_int, *mut u32) -> u32;
    gss_pseudo_random(Minor, Handle, c_int, *const Buffer, isize, *mut Buffer) -> u32;
    gss_display_status(Minor, u32, c_int, *const Oid, *mut u32, *mut Buffer) -> u32;
    gss_release_buffer(Minor, *mut Buffer) -> u32;
    krb5_init_context(*mut Handle) -> i32;
    krb5_free_context(Handle) -> ();
    krb5_cc_resolve(Handle, *const c_char, *mut Handle) -> i32;
    krb5_cc_destroy(Handle, Handle) -> i32;
}

/// The status of a call that failed.
#[derive(Clone, Copy)]
pub(super) struct Status {
    major: u32,
    minor: u32,
}

impl Functions {
    /// Makes a call; its status if it failed.
    pub(super) fn call(&self, call: impl FnOnce(*mut u32) -> u32) -> Result<u32, Status> {
        let mut minor = 0;
        let major = call(&raw mut minor);
        if major & FAILED == 0 { Ok(major) } else { Err(Status { major, minor }) }
    }

    /// Makes a call that fills a buffer; returns what it holds.
    pub(super) fn output(
        &self,
        call: impl FnOnce(*mut u32, *mut Buffer) -> u32,
    ) -> Result<(u32, Vec<u8>), Status> {
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
    pub(super) fn explain(&self, status: Status) -> String {
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
}

/// A name, to be released.
pub(super) struct Name<'a>(&'a Functions, pub(super) Handle);

impl<'a> Name<'a> {
    /// A name that the library is to fill in.
    pub(super) const fn none(functions: &'a Functions) -> Self {
        Self(functions, null_mut())
    }

    pub(super) fn of_principal(functions: &'a Functions, principal: &str) -> Result<Self, Status> {
        let text = Buffer::of(principal.as_bytes());
        let mut name = Self::none(functions);
        // SAFETY: the pointers are to values that outlive the call.
        functions.call(|minor| unsafe {
            (functions.gss_import_name)(minor, &raw const text, &PRINCIPAL, &raw mut name.1)
        })?;
        Ok(name)
    }

    /// A principal as Kerberos writes it: with a realm.
    pub(super) fn canonical_text(functions: &'a Functions, principal: &str) -> Result<String, Status> {
        Self::of_principal(functions, principal)?.canonical()?.text()
    }

    fn canonical(&self) -> Result<Self, Status> {
        let mut name = Self::none(self.0);
        // SAFETY: the pointers are to values that outlive the call, and this name is the library's.
        self.0.call(|minor| unsafe {
            (self.0.gss_canonicalize_name)(minor, self.1, &MECHANISM, &raw mut name.1)
        })?;
        Ok(name)
    }

    pub(super) fn text(&self) -> Result<String, Status> {
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
pub(super) struct Credential<'a>(&'a Functions, pub(super) Handle);

impl<'a> Credential<'a> {
    /// What a principal can do with the files that `store` names.
    pub(super) fn acquire(
        functions: &'a Functions,
        principal: &str,
        usage: Usage,
        store: &[KeyValue],
    ) -> Result<Self, Status> {
        let name = Name::of_principal(functions, principal)?;
        let mechanisms = OidSet { count: 1, elements: &MECHANISM };
        let count = u32::try_from(store.len()).expect("two files at most");
        let store = KeyValueSet { count, elements: store.as_ptr() };
        let mut credential = Self(functions, null_mut());
        // SAFETY: the pointers are to values that outlive the call; what is null is not asked for.
        functions.call(|minor| unsafe {
            (functions.gss_acquire_cred_from)(
                minor,
                name.1,
                INDEFINITE,
                &raw const mechanisms,
                usage as c_int,
                &raw const store,
                &raw mut credential.1,
                null_mut(),
                null_mut(),
            )
        })?;
        Ok(credential)
    }
}

impl Drop for Credential<'_> {
    fn drop(&mut self) {
        // SAFETY: the credential is the library's or null, and is not used again.
        let _ = self.0.call(|minor| unsafe { (self.0.gss_release_cred)(minor, &raw mut self.1) });
    }
}

/// One end of an exchange of tokens, to be deleted.
pub(super) struct Context {
    pub(super) functions: Arc<Functions>,
    /// Null before the first token.
    pub(super) handle: Handle,
}

// SAFETY: a context of MIT's library belongs to no thread. Two threads may not use it at once: whoever uses
// the handle has the context.
unsafe impl Send for Context {}

impl Context {
    pub(super) const fn new(functions: Arc<Functions>) -> Self {
        Self { functions, handle: null_mut() }
    }

    /// A secret that the two ends alone know once the context is established (RFC 4401).
    pub(super) fn key(&self) -> Result<[u8; KEY_BYTES], Status> {
        let purpose = Buffer::of(KEY_PURPOSE);
        // SAFETY: the context is null, which the library refuses, or its own; the purpose outlives the call.
        let (_, key) = self.functions.output(|minor, output| unsafe {
            (self.functions.gss_pseudo_random)(
                minor,
                self.handle,
                PRF_KEY_FULL,
                &raw const purpose,
                KEY_BYTES.cast_signed(),
                output,
            )
        })?;
        key.try_into().map_err(|_| Status { major: FAILED, minor: 0 })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is the library's or null, and is not used again; it ends without a last token.
        let _ = self.functions.call(|minor| unsafe {
            (self.functions.gss_delete_sec_context)(minor, &raw mut self.handle, null_mut())
        });
    }
}
