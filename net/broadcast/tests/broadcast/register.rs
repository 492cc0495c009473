//! The example, with processes of its own: `cargo run -p ringkeeper-broadcast --example register`.

use std::path::PathBuf;
use std::process::Command;

/// The example, built now if the run of the tests has not built it. By itself the package has other features,
/// and would be built anew.
fn example() -> PathBuf {
    let own = std::env::current_exe().expect("this test's file");
    // target/PROFILE/deps/THIS
    let profile = own.ancestors().nth(2).expect("a profile's folder");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--example", "register"]);
    // Set by the cargo that runs this test. Build scripts that look at them would run anew, now and
    // afterwards.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            build.env_remove(name);
        }
    }
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo runs").success(), "the example builds");
    profile.join("examples/register")
}

#[test]
fn the_register_machine_survives_the_loss_of_its_leader() {
    let output = Command::new(example()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("was killed (SIGKILL)"), "{said}");
    assert!(said.ends_with("all members agree, and nothing acknowledged is lost\n"), "{said}");
}
