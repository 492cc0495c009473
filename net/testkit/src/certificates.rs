//! Certificates for tests, made when they are needed.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A private key and its certificate, as PEM.
#[derive(Clone)]
pub struct Credentials {
    /// PKCS#8.
    pub key: String,
    /// Signed by the authority.
    pub certificate: String,
}

impl Authority {
    /// An authority of this name.
    ///
    /// # Errors
    /// No key can be made.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = of_subject(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its own certificate, as PEM.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// Credentials for `subject`, who is reached by `names`.
    ///
    /// # Errors
    /// A name is neither a host's nor an address.
    pub fn issue(&self, subject: &str, names: &[&str]) -> Result<Credentials> {
        let mut params = of_subject(subject);
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        self.sign(&params)
    }

    /// Credentials that are no longer valid.
    ///
    /// # Errors
    /// No key can be made.
    pub fn issue_expired(&self, subject: &str) -> Result<Credentials> {
        let mut params = of_subject(subject);
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Credentials> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?.pem();
        Ok(Credentials { key: key.serialize_pem(), certificate })
    }
}

impl Credentials {
    /// Key and certificate in one file, as ZooKeeper wants them.
    #[must_use]
    pub fn store(&self) -> String {
        format!("{}{}", self.key, self.certificate)
    }
}

fn of_subject(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
