"""Certificates for the tests of TLS, made when they are needed."""

import datetime
import ipaddress
import subprocess

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.timezone.utc)
DAY = datetime.timedelta(days=1)


def name(common_name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption())


class Authority:
    """A certificate authority, and a folder for what it issues."""

    def __init__(self, folder, common_name="test ca"):
        self.folder = folder
        self.name = name(common_name)
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        builder = self._builder(self.name, self.key, NOW + DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = folder / f"{common_name.replace(' ', '-')}.pem"
        self.certificate.write_bytes(self._signed(builder))
        # With its key: what only a client shows that takes itself for its own authority.
        self.own = self.certificate.with_suffix(".own.pem")
        self.own.write_bytes(_pem(self.key) + self.certificate.read_bytes())

    def issue(self, subject, not_after=NOW + DAY, host="localhost"):
        """A file with key and certificate for `subject`, a common name or a whole name, on this machine, which `host`
        is a name of."""
        subject = name(subject) if isinstance(subject, str) else subject
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        builder = self._builder(subject, key, not_after)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        alternatives = x509.SubjectAlternativeName([x509.DNSName(host), address])
        builder = builder.add_extension(alternatives, critical=False)
        path = self.folder / f"{x509.random_serial_number():x}.pem"
        path.write_bytes(_pem(key) + self._signed(builder))
        return path

    def revoke(self, certificates, path):
        """Writes a list of revoked certificates, those in these files."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        builder = builder.last_update(NOW - DAY).next_update(NOW + DAY)
        builder = builder.add_extension(x509.CRLNumber(1), critical=False)
        for certificate in certificates:
            serial = x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW - DAY).build()
            builder = builder.add_revoked_certificate(revoked)
        path.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def keytools_stores(self, certificate, kind, password, extension):
        """A key store with what `certificate` holds, and a trust store with the authority, as Java's keytool makes
        them."""
        exported, key_store, trust_store = (self.folder / f"{name}.{extension}" for name in ("export", "key", "trust"))
        secret = ["-storetype", kind, "-storepass", password, "-noprompt"]
        for command in (
            ["openssl", "pkcs12", "-export", "-in", certificate, "-out", exported, "-passout", f"pass:{password}"],
            ["keytool", "-importkeystore", "-srckeystore", exported, "-srcstoretype", "PKCS12",
             "-srcstorepass", password, "-destkeystore", key_store, "-deststoretype", kind, "-deststorepass", password],
            ["keytool", "-importcert", "-file", self.certificate, "-keystore", trust_store, "-alias", "ca", *secret],
        ):
            subprocess.run([str(word) for word in command], check=True, capture_output=True)
        return key_store, trust_store

    def _builder(self, subject, key, not_after):
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return builder.not_valid_before(NOW - 10 * DAY).not_valid_after(not_after)

    def _signed(self, builder):
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
