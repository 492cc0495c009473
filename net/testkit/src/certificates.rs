//! Certificates for tests, made when they are needed.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData, RevokedCertParams, SanType,
    SerialNumber, date_time_ymd,
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
    serial: SerialNumber,
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
    /// A name is neither a host's nor an address nor a URI.
    pub fn issue(&self, subject: &str, names: &[&str]) -> Result<Credentials> {
        let mut params = of_subject(subject);
        for &name in names {
            let names = match name.contains("://") {
                true => vec![SanType::URI(name.try_into()?)],
                false => CertificateParams::new([name.to_owned()])?.subject_alt_names,
            };
            params.subject_alt_names.extend(names);
        }
        self.sign(params)
    }

    /// Credentials that are no longer valid.
    ///
    /// # Errors
    /// No key can be made.
    pub fn issue_expired(&self, subject: &str) -> Result<Credentials> {
        let mut params = of_subject(subject);
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(params)
    }

    /// A list of revoked certificates, as PEM; one that has expired long ago unless it is valid.
    ///
    /// # Errors
    /// It cannot be signed.
    pub fn revocation_list(&self, revoked: &[&Credentials], is_valid: bool) -> Result<String> {
        let revoked = revoked.iter().map(|credentials| RevokedCertParams {
            serial_number: credentials.serial.clone(),
            revocation_time: date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2001, 1, 1),
            next_update: date_time_ymd(if is_valid { 4000 } else { 2001 }, 2, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(&self.0)?.pem()?)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Credentials> {
        let key = KeyPair::generate()?;
        // Of its own, since it is a part of the key.
        let serial = SerialNumber::from_slice(&key.der_bytes()[1..9]);
        params.serial_number = Some(serial.clone());
        let certificate = params.signed_by(&key, &self.0)?.pem();
        Ok(Credentials { key: key.serialize_pem(), certificate, serial })
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
