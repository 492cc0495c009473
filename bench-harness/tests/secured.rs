//! Servers that take clients by TLS alone, and nobody who has not logged in.
//!
//! The `ringkeeper` binary of this workspace serves, if it is built (or named by `RINGKEEPER_BIN`); without
//! it the test says so, and does nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ringkeeper_testkit::{Ensemble, Program, Seat, TlsFiles, WorkFolder, ringkeeper_binary};

const HARNESS: &str = env!("CARGO_BIN_EXE_bench-harness");

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(60);

/// Its port for TLS.
const SECURE_PORT: u16 = 2281;

/// A server with these files for TLS, and the user `generator`.
fn serve(binary: &Path, tls: &TlsFiles, folder: &Path, seat: Seat) -> Ensemble {
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    let users = format!("Server {{ {module} required user_generator=\"right\"; }};\n");
    let users = secret(folder, "jaas.conf", &users);
    let settings = format!(
        "maxClientCnxns=0\nsecureClientPort={SECURE_PORT}\nsecureClientPortAddress={}\n{}\
         java.security.auth.login.config={}\n\
         authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
         enforce.auth.enabled=true\nenforce.auth.schemes=sasl\n",
        seat.ip,
        tls.server_settings(),
        users.display()
    );
    let work = WorkFolder::new("test", &std::env::temp_dir()).unwrap();
    let program = Program::ringkeeper(binary, &[]).unwrap();
    Ensemble::start(&program, vec![seat], &settings, work, START_MAX).unwrap()
}

/// A file that nobody else may read.
fn secret(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file
}

#[test]
fn servers_are_measured_that_refuse_the_clear_and_whoever_has_not_logged_in() {
    let Some(binary) = ringkeeper_binary() else { return };
    let folder = tempfile::tempdir().unwrap();
    let seat = Seat::on_own_addresses(1).remove(0);
    let (host, plain) = (seat.ip.to_string(), seat.client());
    let tls = TlsFiles::new(std::slice::from_ref(&host)).unwrap();
    let client = tls.client("generator").unwrap();
    let (trust, keys) = (client.trust_store.location.unwrap(), client.key_store.location.unwrap());
    let _server = serve(&binary, &tls, folder.path(), seat);
    let out = folder.path().join("results");
    let paper = |servers: &str, more: &[(&str, &Path)]| {
        let mut command = Command::new(HARNESS);
        command.args(["paper", "--quick", "--runs", "1", "--sessions", "8", "--others-max", "100"]);
        command.args(["--only", "outstanding,churn", "--servers", servers, "--out"]).arg(&out);
        more.iter().for_each(|(option, file)| {
            command.arg(option).arg(file);
        });
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let secured = format!("{host}:{SECURE_PORT}");
    let by_tls = [("--tls-trust-store", &*trust), ("--tls-key-store", &*keys)];
    let with = |login: &str| {
        let file = secret(folder.path(), "login", login);
        let more = [&by_tls[..], &[("--login-file", &*file)]].concat();
        paper(&secured, &more)
    };

    let refusals = [
        (paper(&secured, &[]), "no session on server"),
        (paper(&plain.to_string(), &[]), "the server wants a login (--login-file)"),
        (paper(&secured, &by_tls), "the server wants a login (--login-file)"),
        (with("generator:wrong"), "the server has refused the login"),
        (paper(&secured, &[("--tls-trust-store", &folder.path().join("none.pem"))]), "none.pem"),
    ];
    for ((is_well, said), reason) in refusals {
        assert!(!is_well && said.contains(reason), "{reason}: {said}");
        assert!(!said.contains("wrong"), "a password is shown: {said}");
    }

    let (is_well, said) = with("generator:right\n");
    assert!(is_well, "{said}");
    let csv = |id: &str| fs::read_to_string(out.join(format!("paper/{id}.csv"))).unwrap();
    for text in [csv("outstanding"), csv("churn")] {
        assert!(text.contains("TLS, logged in by DigestMd5") && text.contains("\nservice,"), "{text}");
        assert!(!text.contains("right"), "a password is shown: {text}");
    }
}

#[test]
fn files_of_servers_that_run_are_refused_for_servers_that_the_harness_starts() {
    let output =
        Command::new(HARNESS).args(["paper", "--login-file", "login"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("--servers"), "{said}");
}
