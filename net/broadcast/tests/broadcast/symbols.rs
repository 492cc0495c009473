//! What the library leaves alone in the programs that link it.

use std::process::Command;

/// The server's program sets the allocator's options, by a feature of the runtime. A program that links the
/// library may have other plans.
#[test]
fn the_library_changes_nothing_of_the_whole_process() {
    let features = |package: &str| {
        let mut tree = Command::new(env!("CARGO"));
        tree.args(["tree", "--package", package, "--edges", "normal,features"]);
        let output = tree.args(["--invert", "ringkeeper-runtime", "--offline"]).output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let feature = "ringkeeper-runtime feature \"process-wide\"";
    assert!(features("ringkeeper").contains(feature), "the server has it");
    let library = features("ringkeeper-broadcast");
    assert!(!library.contains(feature), "{library}");
}
