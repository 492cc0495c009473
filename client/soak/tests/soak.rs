//! Half a minute of the soak. For more of it, run the program: see the client's README.

use std::process::Command;

#[test]
fn recipes_keep_their_promises_while_servers_are_killed() {
    let soak = std::path::Path::new(env!("CARGO_BIN_EXE_soak"));
    let server =
        std::env::var_os("RINGKEEPER_BIN").map_or_else(|| soak.with_file_name("ringkeeper"), Into::into);
    if !server.is_file() {
        eprintln!("skipped: set RINGKEEPER_BIN, or build the ringkeeper binary");
        return;
    }
    let mut soak = Command::new(soak);
    soak.arg("--binary").arg(server).args(["--seconds", "30", "--fault-every", "1000"]);
    let output = soak.output().expect("the soak runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}
