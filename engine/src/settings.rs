//! The operator's settings for requests.

use crate::acl::DigestAlgorithm;
use crate::limits::Limits;
use crate::mutation::Mutation;

/// Settings that decide what a request may do. They must be the same on all servers of an ensemble, since
/// each leader applies its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether znodes with a time to live can be created (`zookeeper.extendedTypesEnabled`). On by default.
    /// ZooKeeper has it off, since its servers from before TTLs would take such znodes for ephemerals.
    pub extended_types_enabled: bool,
    /// Whether every ACL check passes (`zookeeper.skipACL`).
    pub skip_acl: bool,
    /// Whether hard quotas are enforced (`zookeeper.enforceQuota`).
    pub enforce_quota: bool,
    /// Whether clients can have identities of the scheme `digest`
    /// (`zookeeper.DigestAuthenticationProvider.enabled`).
    pub digest_enabled: bool,
    /// The hash in ids of the scheme `digest` (`zookeeper.DigestAuthenticationProvider.digestAlg`).
    pub digest_algorithm: DigestAlgorithm,
    /// The digest identity, `user:base64`, that bypasses all ACLs
    /// (`zookeeper.DigestAuthenticationProvider.superDigest`).
    pub super_digest: Option<String>,
    /// Whether clients can show certificates, so that ACLs may name their subjects (scheme `x509`).
    pub x509_enabled: bool,
    /// Whether a client's SPIFFE id can be its identity of the scheme `x509`, instead of the subject.
    pub spiffe_enabled: bool,
    /// The identity of the scheme `x509` that bypasses all ACLs
    /// (`zookeeper.X509AuthenticationProvider.superUser`).
    pub super_subject: Option<String>,
    /// Whether ACLs may have entries of the scheme `sasl`.
    pub sasl_enabled: bool,
    /// Whether the ensemble may be reconfigured by clients (`reconfigEnabled`).
    pub reconfig_enabled: bool,
    /// Whether an ensemble needs two voters at least (`standaloneEnabled`).
    pub standalone_enabled: bool,
    /// Whether clients may give servers several addresses (`multiAddress.enabled`).
    pub multi_address_enabled: bool,
    /// How much a client may ask for and have kept.
    pub limits: Limits,
    /// Planted fault for the simulator's canary runs; never set in production.
    pub mutation: Mutation,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            extended_types_enabled: true,
            skip_acl: false,
            enforce_quota: false,
            digest_enabled: true,
            digest_algorithm: DigestAlgorithm::default(),
            super_digest: None,
            x509_enabled: false,
            spiffe_enabled: false,
            super_subject: None,
            sasl_enabled: false,
            reconfig_enabled: false,
            standalone_enabled: true,
            multi_address_enabled: false,
            limits: Limits::default(),
            mutation: Mutation::None,
        }
    }
}
