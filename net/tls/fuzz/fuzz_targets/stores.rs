//! Whatever stands in a certificate or in the file of a store, the server takes it or says what is wrong. The
//! first byte says what it is. Good beginnings are the files of `net/tls/testdata`, and stores without an
//! authentication code, which would keep changes out (`openssl pkcs12 -export -nomac -iter 1`).
#![no_main]

use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use ringkeeper_tls::rustls::pki_types::CertificateDer;
use ringkeeper_tls::{Party, Password, ServerSettings, Settings, StoreKind, StoreSettings, subject};

const PASSWORD: &str = "changeit";

fuzz_target!(|bytes: &[u8]| {
    let Some((what, bytes)) = bytes.split_first() else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let write = |bytes: &[u8]| std::fs::write(file.path(), bytes).expect("written");
    write(bytes);
    match what % 5 {
        0 => drop(subject(&CertificateDer::from(bytes))),
        1 => {
            let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/key.jks");
            open(StoreKind::Jks, &good, Some(file.path().to_owned()));
        }
        2 => {
            write(&[bytes, jks_digest(bytes).as_slice()].concat());
            open(StoreKind::Jks, file.path(), None);
        }
        3 => open(StoreKind::Pkcs12, file.path(), None),
        _ => open(StoreKind::Pem, file.path(), None),
    }
});

/// Opens one file as the key store and as the trust store.
fn open(kind: StoreKind, path: &Path, revocation_lists: Option<PathBuf>) {
    let store = || StoreSettings {
        password: Password::from(PASSWORD.to_owned()),
        kind: Some(kind),
        ..StoreSettings::at(path)
    };
    let common =
        Settings { key_store: store(), trust_store: store(), revocation_lists, ..Settings::default() };
    let settings = ServerSettings { common, ..ServerSettings::default() };
    if let Err(error) = settings.load(Party::Client) {
        assert!(!error.to_string().contains(PASSWORD));
    }
}

/// What stands at the end of a JKS store, so that a changed one is not refused for it.
fn jks_digest(bytes: &[u8]) -> Vec<u8> {
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(&PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>());
    digest.update(b"Mighty Aphrodite");
    digest.update(bytes);
    digest.finish().as_ref().to_vec()
}
