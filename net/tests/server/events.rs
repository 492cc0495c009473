//! The codes of warnings and errors: each is on the page for operators.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/events.md");

/// Where a server's warnings and errors come from.
const SOURCES: [&str; 6] =
    ["net/src", "net/runtime/src", "net/broadcast/src", "net/tls/src", "log/src", "engine/host/src"];

/// All codes in a text, with what stands around each.
fn codes<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let is_code = |code: &&str| code.starts_with("RK") && code[2..].bytes().all(|byte| byte.is_ascii_digit());
    text.split(mark).filter(|part| part.len() == 6).filter(is_code).collect()
}

/// Calls `look` with the path and text of each source below a folder.
fn each_source(folder: &Path, look: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            each_source(&path, look);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            look(&path, &fs::read_to_string(&path).expect("UTF-8"));
        }
    }
}

#[test]
fn every_warning_and_error_has_a_code_that_is_on_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut in_source = BTreeSet::new();
    for folder in SOURCES {
        each_source(&root.join(folder), &mut |path, text| {
            in_source.extend(codes(text, "\"").into_iter().map(str::to_owned));
            for event in ["tracing::warn!(", "tracing::error!("] {
                for rest in text.split(event).skip(1) {
                    let begins = rest.trim_start();
                    assert!(begins.starts_with("code = "), "{}: {}", path.display(), &begins[..60]);
                }
            }
        });
    }
    let on_page = codes(PAGE, "`");
    let distinct: BTreeSet<_> = on_page.iter().map(|code| (*code).to_owned()).collect();
    assert_eq!(on_page.len(), distinct.len(), "a code stands twice on the page");
    assert_eq!(distinct, in_source, "docs/events.md and the source name different codes");
    assert!(in_source.len() > 50, "{in_source:?}");
}
