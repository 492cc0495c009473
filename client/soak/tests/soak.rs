//! Half a minute of the soak. For more of it, run the program: see the client's README.

use std::process::Command;

#[test]
fn recipes_keep_their_promises_while_servers_are_killed() {
    let Some(server) = ringkeeper_testkit::ringkeeper_binary() else { return };
    let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
    soak.arg("--binary").arg(server).args(["--seconds", "30", "--fault-every", "1000"]);
    let output = soak.output().expect("the soak runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}
