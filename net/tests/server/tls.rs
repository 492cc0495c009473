//! TLS on the ports for clients: who is served, who is refused, and what the operator is told.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_testkit::{
    Authority, Credentials, append_request, connect_frame, granted_session, own_address,
};
use ringkeeper_tls::rustls::crypto::ring::default_provider;
use ringkeeper_tls::rustls::pki_types::pem::PemObject;
use ringkeeper_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ringkeeper_tls::rustls::version::{TLS12, TLS13};
use ringkeeper_tls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use ringkeeper_wire::frame::next_frame;
use ringkeeper_wire::{
    AclEntry, CreateRequest, ErrorCode, PathWatchRequest, Perms, Record, ReplyHeader, Request,
    SetDataRequest, Xid,
};

use crate::support::{Client, PATIENCE, Server, ServerSpec, Session, is_closed, run_to_end, wait_for};

/// The secure port; its address is the server's own, so one port does for all.
const SECURE_PORT: u16 = 25_281;

/// A certificate authority, the server's files, and where it listens.
struct Setup {
    authority: Authority,
    folder: tempfile::TempDir,
    address: SocketAddr,
}

/// A client with TLS: what it sends and receives is not interpreted further than a test needs it.
struct TlsClient {
    stream: StreamOwned<ClientConnection, TcpStream>,
    received: Vec<u8>,
}

impl Setup {
    fn new() -> Self {
        let setup = Self {
            authority: Authority::new("ca").expect("a key"),
            folder: tempfile::tempdir().expect("a folder"),
            address: (own_address(), SECURE_PORT).into(),
        };
        setup.write("trust.pem", &setup.authority.certificate());
        setup.write("key.pem", &setup.issue("server").store());
        setup
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).expect("written");
    }

    fn issue(&self, subject: &str) -> Credentials {
        let address = self.address.ip().to_string();
        self.authority.issue(subject, &[&address, "localhost"]).expect("a key")
    }

    /// A server with the secure port, and further options.
    fn start(&self, options: &[&str]) -> Server {
        Server::start_with(&self.arguments(options).iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn arguments(&self, options: &[&str]) -> Vec<String> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let own = [
            format!("secureClientPort={}", self.address.port()),
            format!("secureClientPortAddress={}", self.address.ip()),
            format!("ssl.keyStore.location={}", file("key.pem")),
            format!("ssl.trustStore.location={}", file("trust.pem")),
        ];
        let options = options.iter().map(|&option| option.to_owned());
        own.into_iter().chain(options).flat_map(|option| ["-o".to_owned(), option]).collect()
    }

    /// What a client of this version trusts and shows.
    fn client(
        &self,
        credentials: Option<&Credentials>,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.authority.certificate())).expect("a certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots);
        let Some(Credentials { key, certificate: own, .. }) = credentials else {
            return Arc::new(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        Arc::new(builder.with_client_auth_cert(vec![certificate(own)], key).expect("they fit"))
    }

    /// A client with these credentials that has a session.
    fn session_of(&self, credentials: &Credentials) -> TlsClient {
        let client = self.client(Some(credentials), &TLS13);
        let mut client = TlsClient::connect(self.address, &client).expect("connected");
        client.open_session().expect("a session");
        client
    }

    /// Whether the server refuses such a client. It may learn of it by its first request only.
    fn is_refused(&self, config: &Arc<ClientConfig>) -> bool {
        TlsClient::connect(self.address, config).and_then(|mut client| client.open_session()).is_err()
    }
}

/// A request that creates a znode for one identity.
fn create(path: &'static str, scheme: &str, id: &str) -> Vec<u8> {
    let acl = [AclEntry { perms: Perms::ALL, scheme: scheme.to_owned(), id: id.to_owned() }];
    let mut bytes = Vec::new();
    let acl = Some(acl.as_slice().into());
    let create = CreateRequest { path: path.into(), data: None, acl, flags: 0 };
    append_request(&mut bytes, Xid(1), &Request::Create(create));
    bytes
}

fn get(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_request(&mut bytes, Xid(2), &get_data(path));
    bytes
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

impl TlsClient {
    fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let tcp = TcpStream::connect(address)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        let session = ClientConnection::new(Arc::clone(config), "localhost".try_into().expect("a name"));
        Ok(Self { stream: StreamOwned::new(session.expect("a configuration"), tcp), received: Vec::new() })
    }

    fn open_session(&mut self) -> io::Result<Session> {
        self.stream.write_all(&connect_frame(&Session::default().connect_request(10_000, 0)))?;
        Ok(granted_session(&self.frame()?).expect("a session").0)
    }

    /// The error code of a request's reply.
    fn ask(&mut self, request: &[u8]) -> i32 {
        self.stream.write_all(request).expect("taken");
        ReplyHeader::from_bytes(&self.frame().expect("a reply")).expect("a header").err
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some((frame, len)) = next_frame(&self.received, usize::MAX).expect("a frame") {
                let frame = frame.to_vec();
                self.received.drain(..len);
                return Ok(frame);
            }
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.received.extend_from_slice(&buffer[..bytes]),
            }
        }
    }
}

fn get_data(path: &str) -> Request<'_> {
    Request::GetData(PathWatchRequest { path: path.into(), watch: false })
}

#[test]
fn clients_with_certificates_are_served_by_either_version_beside_those_in_the_clear() {
    let setup = Setup::new();
    let server = setup.start(&["ssl.enabledProtocols=TLSv1.2,TLSv1.3"]);
    let mut plain = Client::connect(server.address(), 10_000);
    plain.create("/a", b"", ringkeeper_wire::CreateMode::Persistent);
    let (credentials, value) = (setup.issue("client"), vec![7; 900_000]);
    for version in [&TLS12, &TLS13] {
        let mut client =
            TlsClient::connect(setup.address, &setup.client(Some(&credentials), version)).expect("connected");
        client.open_session().expect("a session");
        // Requests and replies of many records, sent before the first reply is read.
        let mut requests = Vec::new();
        let set = SetDataRequest { path: "/a".into(), data: Some(&value), version: -1 };
        append_request(&mut requests, Xid(1), &Request::SetData(set));
        (2..12).for_each(|xid| append_request(&mut requests, Xid(xid), &get_data("/a")));
        client.stream.write_all(&requests).expect("taken");
        for xid in 1..12 {
            let reply = client.frame().expect("a reply");
            assert_eq!(i32::from_be_bytes(reply[..4].try_into().expect("a header")), xid);
            assert!(xid == 1 || reply[ReplyHeader::LEN + 4..].starts_with(&value));
        }
    }
    assert_eq!(plain.get("/a", false).map(|data| data.len()), Some(value.len()));
    assert_eq!(server.metric("zk_unsuccessful_handshake"), 0.0);
    assert!(server.word("conf").contains(&format!("secureClientPort={SECURE_PORT}\n")));
}

#[test]
fn every_request_of_a_client_that_sends_far_ahead_is_answered() {
    const REQUESTS: i32 = 4_000;
    let setup = Setup::new();
    let server = setup.start(&["globalOutstandingLimit=100"]);
    Client::connect(server.address(), 10_000).create("/a", b"", ringkeeper_wire::CreateMode::Persistent);
    let config = setup.client(Some(&setup.issue("client")), &TLS13);
    let mut client = TlsClient::connect(setup.address, &config).expect("connected");
    client.stream.sock.set_write_timeout(Some(PATIENCE)).expect("set");
    client.open_session().expect("a session");
    let mut requests = Vec::new();
    for xid in 1..=REQUESTS {
        let set = SetDataRequest { path: "/a".into(), data: Some(&[7; 1024]), version: -1 };
        append_request(&mut requests, Xid(xid), &Request::SetData(set));
    }
    client.stream.write_all(&requests).expect("taken");
    for xid in 1..=REQUESTS {
        let reply = ReplyHeader::from_bytes(&client.frame().expect("a reply")).expect("a header");
        assert_eq!((reply.xid, reply.err), (Xid(xid), ErrorCode::Ok.to_wire()));
    }
}

#[test]
fn a_client_that_is_not_trusted_is_refused_and_the_log_says_why() {
    let setup = Setup::new();
    let server = setup.start(&["ssl.clientHostnameVerification=true"]);
    let stranger = Authority::new("other").expect("a key").issue("client", &[]).expect("a key");
    let nameless = setup.authority.issue("client", &["192.0.2.1"]).expect("a key");
    let expired = setup.authority.issue_expired("client").expect("a key");
    let good = setup.issue("client");
    let good = |version| setup.client(Some(&good), version);
    let local = setup.authority.issue("client", &["127.0.0.1", &setup.address.ip().to_string()]);
    let local = setup.client(Some(&local.expect("a key")), &TLS13);
    for (refused, reason) in [
        (setup.client(None, &TLS13), "ssl.clientAuth=want"),
        (setup.client(Some(&stranger), &TLS13), "ssl.trustStore.location"),
        (setup.client(Some(&expired), &TLS13), "a new certificate"),
        (setup.client(Some(&nameless), &TLS13), "ssl.clientHostnameVerification"),
        (good(&TLS12), "ssl.enabledProtocols"),
    ] {
        let failed = server.metric("zk_unsuccessful_handshake");
        assert!(setup.is_refused(&refused), "{reason}");
        wait_for(reason, || server.log().contains(reason).then_some(()));
        assert_eq!(server.metric("zk_unsuccessful_handshake"), failed + 1.0, "{reason}");
    }
    let mut in_clear = TcpStream::connect(setup.address).expect("connected");
    in_clear.write_all(b"ruok").expect("sent");
    assert!(is_closed(&mut in_clear));
    wait_for("the reason", || server.log().contains("does not speak TLS").then_some(()));
    assert!(!setup.is_refused(&local));
}

#[test]
fn a_client_without_a_certificate_is_served_where_none_is_needed() {
    for option in ["ssl.clientAuth=want", "ssl.clientAuth=None"] {
        let setup = Setup::new();
        let _server = setup.start(&[option]);
        assert!(!setup.is_refused(&setup.client(None, &TLS13)), "{option}");
    }
}

#[test]
fn handshakes_that_do_not_go_on_are_limited_and_hold_up_nobody() {
    let setup = Setup::new();
    let server = setup.start(&["netty.server.outstandingHandshake.limit=2"]);
    let client = setup.client(Some(&setup.issue("client")), &TLS13);
    let silent: Vec<_> = (0..2).map(|_| TcpStream::connect(setup.address).expect("connected")).collect();
    wait_for("two handshakes", || (server.metric("zk_outstanding_tls_handshake") == 2.0).then_some(()));
    assert!(setup.is_refused(&client));
    assert_eq!(server.metric("zk_tls_handshake_exceeded"), 1.0);
    Client::connect(server.address(), 10_000).close();
    drop(silent);
    wait_for("room", || (!setup.is_refused(&client)).then_some(()));
}

#[test]
fn half_open_handshakes_count_among_the_connections_of_their_address() {
    let setup = Setup::new();
    let server = setup.start(&["maxClientCnxns=2"]);
    let silent: Vec<_> = (0..2).map(|_| TcpStream::connect(setup.address).expect("connected")).collect();
    wait_for("a refusal", || {
        let refused = TcpStream::connect(setup.address).and_then(|mut third| {
            third.set_read_timeout(Some(Duration::from_millis(200)))?;
            third.read(&mut [0])
        });
        matches!(refused, Ok(0)).then_some(())
    });
    drop(silent);
    assert!(!server.log().contains("panicked"));
}

#[test]
fn a_unified_port_takes_clients_with_tls_and_in_the_clear() {
    let setup = Setup::new();
    let server = setup.start(&["client.portUnification=true"]);
    let client = setup.client(Some(&setup.issue("client")), &TLS13);
    for address in [setup.address, server.address()] {
        let mut tls = TlsClient::connect(address, &client).expect("connected");
        tls.stream.write_all(b"ruok").expect("sent");
        let mut answer = String::new();
        // The server's end comes with TLS's own farewell, or reading would fail.
        tls.stream.read_to_string(&mut answer).expect("an answer and its end");
        assert_eq!(answer, "imok", "{address}");
        TlsClient::connect(address, &client).and_then(|mut tls| tls.open_session()).expect("a session");
    }
    assert_eq!(server.word("ruok"), "imok");
    Client::connect(server.address(), 10_000).close();
}

#[test]
fn stores_that_change_are_read_again_and_bad_ones_change_nothing() {
    let setup = Setup::new();
    let path = |name: &str| setup.folder.path().join(name);
    // As Kubernetes mounts a secret: the file is a link through a folder that is a link, which is replaced.
    let replace = |folder: &str, text: &str| {
        fs::create_dir(path(folder)).expect("made");
        fs::write(path(folder).join("trust.pem"), text).expect("written");
        std::os::unix::fs::symlink(folder, path("next")).expect("linked");
        fs::rename(path("next"), path("data")).expect("replaced");
    };
    replace("first", &setup.authority.certificate());
    let server = setup.start(&[&format!("ssl.trustStore.location={}", path("data/trust.pem").display())]);
    let other = Authority::new("other").expect("a key");
    let (old, new) = (setup.issue("client"), other.issue("client", &[]).expect("a key"));
    let (old, new) = (setup.client(Some(&old), &TLS13), setup.client(Some(&new), &TLS13));
    assert!(!setup.is_refused(&old) && setup.is_refused(&new));
    replace("broken", "nothing of use");
    wait_for("a warning", || server.log().contains("holds no certificate").then_some(()));
    assert!(!setup.is_refused(&old) && setup.is_refused(&new));
    replace("second", &other.certificate());
    wait_for("the new authority", || (!setup.is_refused(&new)).then_some(()));
    assert!(setup.is_refused(&old));
}

#[test]
fn a_revoked_certificate_is_refused_and_so_is_one_without_a_valid_list() {
    let setup = Setup::new();
    let (good, bad) = (setup.issue("good"), setup.issue("bad"));
    let write = |authority: &Authority, revoked: &[&Credentials], is_valid| {
        setup.write("crl.pem", &authority.revocation_list(revoked, is_valid).expect("signed"));
    };
    write(&setup.authority, &[&bad], true);
    let file = setup.folder.path().join("crl.pem").display().to_string();
    let server = setup.start(&["ssl.crl=true", &format!("ringkeeper.ssl.crlFile={file}")]);
    let (good_client, bad_client) = (setup.client(Some(&good), &TLS13), setup.client(Some(&bad), &TLS13));
    let becomes_refused = |client, reason: &str| {
        wait_for(reason, || (setup.is_refused(client) && server.log().contains(reason)).then_some(()));
    };
    becomes_refused(&bad_client, "ringkeeper.ssl.crlFile lists the client's certificate");
    let mut open = TlsClient::connect(setup.address, &good_client).expect("connected");
    open.open_session().expect("a session");

    write(&setup.authority, &[&good], true);
    wait_for("the new list", || (!setup.is_refused(&bad_client)).then_some(()));
    assert!(setup.is_refused(&good_client));
    let mut request = Vec::new();
    append_request(&mut request, Xid(1), &get_data("/"));
    assert_eq!(open.ask(&request), ErrorCode::Ok.to_wire());

    write(&setup.authority, &[], false);
    becomes_refused(&bad_client, "replace the issuer's list in ringkeeper.ssl.crlFile");
    write(&Authority::new("other").expect("a key"), &[], true);
    becomes_refused(&bad_client, "add the list of the issuer");
}

#[test]
fn a_certificates_subject_is_an_identity_that_acls_name() {
    let setup = Setup::new();
    let super_user = "X509AuthenticationProvider.superUser=CN=root";
    let server = setup.start(&[super_user, "enforce.auth.enabled=true", "enforce.auth.schemes=x509"]);
    let open = |subject: &str| setup.session_of(&setup.issue(subject));
    let (mut client, mut other, mut root) = (open("client"), open("other"), open("root"));
    assert_eq!(client.ask(&create("/named", "x509", "CN=client")), ErrorCode::Ok.to_wire());
    assert_eq!(client.ask(&create("/auth", "auth", "")), ErrorCode::Ok.to_wire());
    assert_eq!(client.ask(&create("/wrong", "x509", "client")), ErrorCode::InvalidAcl.to_wire());
    for path in ["/named", "/auth"] {
        assert_eq!(client.ask(&get(path)), ErrorCode::Ok.to_wire(), "{path}");
        assert_eq!(other.ask(&get(path)), ErrorCode::NoAuth.to_wire(), "{path}");
        assert_eq!(root.ask(&get(path)), ErrorCode::Ok.to_wire(), "{path}");
    }
    // In the clear nobody has a certificate.
    let mut plain = Client::connect(server.address(), 10_000);
    let refused = plain.call(&get_data("/named"));
    assert_eq!(refused.err, ErrorCode::SessionClosedRequireSaslAuth.to_wire());
}

#[test]
fn a_spiffe_id_is_an_identity_instead_of_the_subject() {
    let setup = Setup::new();
    let super_user = "X509AuthenticationProvider.superUser=spiffe://example.org/root";
    let server = setup.start(&["ringkeeper.ssl.spiffeTrustDomains=example.com, example.org", super_user]);
    let issue = |uris: &[&str]| setup.authority.issue("alike", uris).expect("a key");
    let id = "spiffe://example.org/ns/prod/sa/billing";
    let mut client = setup.session_of(&issue(&[id]));
    assert_eq!(client.ask(&create("/named", "x509", id)), ErrorCode::Ok.to_wire());
    assert_eq!(client.ask(&create("/auth", "auth", "")), ErrorCode::Ok.to_wire());
    assert_eq!(client.ask(&create("/alike", "x509", "CN=alike")), ErrorCode::Ok.to_wire());
    assert_eq!(
        client.ask(&create("/wrong", "x509", "spiffe://example.org")),
        ErrorCode::InvalidAcl.to_wire()
    );
    let (granted, refused) = (ErrorCode::Ok.to_wire(), ErrorCode::NoAuth.to_wire());
    for (shown, own, alike) in [
        (&[id][..], granted, refused),
        (&["spiffe://example.org/ns/prod/sa/other"], refused, refused),
        (&["spiffe://example.org/root"], granted, granted),
        (&["localhost", "https://example.org/"], refused, granted),
    ] {
        let mut client = setup.session_of(&issue(shown));
        for (path, expected) in [("/named", own), ("/auth", own), ("/alike", alike)] {
            assert_eq!(client.ask(&get(path)), expected, "{shown:?} {path}");
        }
    }
    for uris in [&["spiffe://example.net/a"][..], &[id, "https://example.org/"], &["SPIFFE://example.org/a"]]
    {
        assert!(setup.is_refused(&setup.client(Some(&issue(uris)), &TLS13)), "{uris:?}");
    }
    wait_for("a reason", || server.log().contains("spiffe://example.net/a").then_some(()));
}

#[test]
fn a_server_may_have_the_secure_port_alone() {
    let setup = Setup::new();
    let folder = setup.folder.path();
    let mut config = format!("dataDir={}\n", folder.join("data").display());
    for option in setup.arguments(&[]).iter().filter(|argument| *argument != "-o") {
        config += &format!("{option}\n");
    }
    setup.write("zoo.cfg", &config);
    let mut server = std::process::Command::new(env!("CARGO_BIN_EXE_ringkeeper"))
        .args(["server", "-c"])
        .arg(folder.join("zoo.cfg"))
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("started");
    let client = setup.client(Some(&setup.issue("client")), &TLS13);
    wait_for("a session", || (!setup.is_refused(&client)).then_some(()));
    server.kill().expect("killed");
    server.wait().expect("ended");
}

#[test]
fn settings_that_cannot_be_honoured_stop_the_start_and_are_named() {
    let setup = Setup::new();
    setup.write("empty.pem", "");
    setup.write("other.pem", &format!("{}{}", setup.issue("a").key, setup.issue("b").certificate));
    setup.write("store.bcfks", "");
    setup.write("store.txt", "");
    let file = |name: &str| setup.folder.path().join(name).display().to_string();
    for (option, words) in [
        ("ssl.keyStore.location=".to_owned(), "name a file with the server's private key"),
        (format!("ssl.keyStore.location={}", file("none.pem")), "none.pem: cannot be read"),
        (format!("ssl.keyStore.location={}", file("empty.pem")), "holds no private key"),
        (format!("ssl.keyStore.location={}", file("other.pem")), "key and certificate cannot be used"),
        (format!("ssl.keyStore.location={}", file("store.bcfks")), "keytool -importkeystore"),
        (format!("ssl.keyStore.location={}", file("store.txt")), "set the type"),
        ("ssl.trustStore.location=".to_owned(), "ssl.clientAuth=none"),
        (format!("ssl.trustStore.location={}", file("empty.pem")), "holds no certificate"),
        ("ssl.enabledProtocols=TLSv1.1".to_owned(), "TLSv1.1 is broken"),
        ("ssl.ciphersuites=ECDHE-RSA-AES128-GCM-SHA256".to_owned(), "no suite of a version"),
        ("ssl.clientAuth=maybe".to_owned(), "none of need, want and none"),
        ("ssl.ocsp=true".to_owned(), "a revoked certificate"),
        ("ssl.crl=true".to_owned(), "ringkeeper.ssl.crlFile=FILE"),
        (format!("ringkeeper.ssl.crlFile={}", file("empty.pem")), "holds no list"),
        (format!("ringkeeper.ssl.crlFile={}", file("none.pem")), "none.pem: cannot be read"),
        ("fips-mode=true".to_owned(), "FIPS"),
        ("ssl.context.supplier.class=a.B".to_owned(), "Java class"),
        ("ssl.authProvider=mine".to_owned(), "Java class"),
        ("ringkeeper.ssl.spiffeTrustDomains=spiffe://a".to_owned(), "no trust domain"),
    ] {
        let arguments = setup.arguments(&[&option]);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let output = run_to_end(Path::new(setup.folder.path()), &ServerSpec::new().with(&arguments));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(78), 1), "{option}: {said}");
        assert!(said.contains(words), "{option}: {said}");
    }
}
