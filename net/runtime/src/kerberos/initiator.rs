//! Tickets with which a server proves to another one who it is.
//!
//! They are got with the keys of a keytab, and are kept in memory, apart for each service. The library gets
//! others with the keytab when half of their time is over. When a service refuses a ticket, or no context
//! comes about, the service's tickets are thrown away: its keys may have been replaced, and the next exchange
//! begins with a new ticket.

use std::ffi::CString;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use super::KerberosError;
use super::gssapi::{
    Buffer, CONTINUE_NEEDED, Context, Credential, Functions, KEY_BYTES, KeyValue, MECHANISM, Name, Status,
    Usage,
};

/// The service has to prove itself, too (`GSS_C_MUTUAL_FLAG`); tokens are for one use
/// (`GSS_C_REPLAY_FLAG`, `GSS_C_SEQUENCE_FLAG`), and keys for integrity (`GSS_C_INTEG_FLAG`).
const MUTUAL: u32 = 2;
const FLAGS: u32 = MUTUAL | 4 | 8 | 32;

/// Gets tickets for a principal.
pub struct Initiator {
    functions: Arc<Functions>,
    /// With its realm.
    principal: String,
    keytab: CString,
}

impl Initiator {
    /// Loads the library, and looks the principal up in the keytab. No KDC is asked.
    ///
    /// # Errors
    /// There is no library, or no key of the principal.
    pub fn open(principal: &str, keytab: &Path) -> Result<Arc<Self>, KerberosError> {
        let functions = Arc::new(Functions::load()?);
        let unusable = |status| KerberosError::Keytab {
            principal: principal.to_owned(),
            purpose: "get tickets",
            keytab: keytab.display().to_string(),
            reason: functions.explain(status),
        };
        let own = Name::canonical_text(&functions, principal).map_err(&unusable)?;
        let path = CString::new(keytab.as_os_str().as_encoded_bytes())?;
        // To acquire what gets tickets would ask the KDC, which may be down.
        let keys = [KeyValue { key: c"keytab".as_ptr(), value: path.as_ptr() }];
        Credential::acquire(&functions, &own, Usage::Accept, &keys).map(drop).map_err(unusable)?;
        Ok(Arc::new(Self { functions: Arc::clone(&functions), principal: own, keytab: path }))
    }

    /// Whom the tickets are for, with the realm.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// Gets a ticket for the service with this principal, if there is none yet; returns the first token.
    ///
    /// # Errors
    /// What the library says, such as that no KDC answers, or that it does not know one of the two.
    pub fn begin(self: &Arc<Self>, service: &str) -> Result<(Vec<u8>, Initiation), String> {
        let cache = cache(service).map_err(|error| error.to_string())?;
        let context = Context::new(Arc::clone(&self.functions));
        let mut initiation =
            Initiation { initiator: Arc::clone(self), context, service: service.to_owned(), cache };
        match initiation.step(None) {
            Ok((_, token)) => Ok((token, initiation)),
            Err(reason) => Err(initiation.give_up(reason)),
        }
    }

    fn credential(&self, cache: &CString) -> Result<Credential<'_>, Status> {
        let store = [
            KeyValue { key: c"client_keytab".as_ptr(), value: self.keytab.as_ptr() },
            KeyValue { key: c"ccache".as_ptr(), value: cache.as_ptr() },
        ];
        Credential::acquire(&self.functions, &self.principal, Usage::Initiate, &store)
    }
}

/// The name of the place in memory where the tickets for a service are.
fn cache(service: &str) -> Result<CString, std::ffi::NulError> {
    CString::new(format!("MEMORY:ringkeeper {service}"))
}

/// An exchange that waits for the service's token.
pub struct Initiation {
    initiator: Arc<Initiator>,
    context: Context,
    service: String,
    cache: CString,
}

impl Initiation {
    /// Takes the service's token, which proves who it is; returns a secret that the service alone knows, too
    /// (RFC 4401).
    ///
    /// # Errors
    /// It is not the service, or refuses the ticket.
    pub fn finish(mut self, token: &[u8]) -> Result<[u8; KEY_BYTES], String> {
        let finished = self.step(Some(token)).and_then(|(is_established, _)| match is_established {
            true => self.context.key().map_err(|status| self.initiator.functions.explain(status)),
            false => Err("it has not proved itself".to_owned()),
        });
        finished.map_err(|reason| self.give_up(reason))
    }

    /// The service refuses the ticket.
    pub fn refused(self) {
        self.forget_tickets();
    }

    /// Takes a token; whether both ends have proved themselves, and the next token.
    fn step(&mut self, token: Option<&[u8]>) -> Result<(bool, Vec<u8>), String> {
        let functions = &self.initiator.functions;
        let explain = |status| functions.explain(status);
        let credential = self.initiator.credential(&self.cache).map_err(explain)?;
        let service = Name::of_principal(functions, &self.service).map_err(explain)?;
        let input = token.map(Buffer::of);
        let mut flags = 0;
        // SAFETY: the pointers are to values that outlive the call, and the context is null or the library's.
        // There are no channel bindings; what is null is not asked for.
        let (major, token) = functions
            .output(|minor, output| unsafe {
                (functions.gss_init_sec_context)(
                    minor,
                    credential.1,
                    &raw mut self.context.handle,
                    service.1,
                    &MECHANISM,
                    FLAGS,
                    0,
                    null(),
                    input.as_ref().map_or(null(), |input| input),
                    null_mut(),
                    output,
                    &raw mut flags,
                    null_mut(),
                )
            })
            .map_err(explain)?;
        Ok((major & CONTINUE_NEEDED == 0 && flags & MUTUAL != 0, token))
    }

    fn give_up(&self, reason: String) -> String {
        self.forget_tickets();
        reason
    }

    fn forget_tickets(&self) {
        let functions = &self.initiator.functions;
        let (mut library, mut cache) = (null_mut(), null_mut());
        // SAFETY: the pointers are to values that outlive the calls; what a call has not made is not used. A
        // credential that still holds the cache keeps it alive.
        unsafe {
            if (functions.krb5_init_context)(&raw mut library) != 0 {
                return;
            }
            if (functions.krb5_cc_resolve)(library, self.cache.as_ptr(), &raw mut cache) == 0 {
                (functions.krb5_cc_destroy)(library, cache);
            }
            (functions.krb5_free_context)(library);
        }
    }
}
