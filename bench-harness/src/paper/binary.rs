//! ringkeeper's server binary, where cargo puts it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

const NAME: &str = "ringkeeper";

/// The server beside this program, built anew so that it is of the same sources; as it is where there is no
/// cargo.
pub(crate) fn beside_this_program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("the harness's own path")?;
    let folder = own.parent().context("the harness is in no folder")?;
    let binary = folder.join(NAME);
    // Set for programs that `cargo run` runs.
    if let Some(cargo) = std::env::var_os("CARGO") {
        eprintln!("building the server");
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--bin", NAME]);
        // Set for this program. Build scripts that look at them would run anew, now and afterwards.
        for (name, _) in std::env::vars() {
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                build.env_remove(name);
            }
        }
        if folder.file_name().is_some_and(|profile| profile == "release") {
            build.arg("--release");
        }
        ensure!(build.status()?.success(), "the server does not build: see above");
    }
    ensure!(
        binary.exists(),
        "no {}: build it (cargo build --release), or name it with --ringkeeper",
        binary.display()
    );
    Ok(binary)
}
