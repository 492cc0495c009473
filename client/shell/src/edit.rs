//! `edit`: the data of a znode in the user's editor.

use std::io::Write;
use std::process::Command;

use ringkeeper_client::Error;

use crate::error::ShellError;
use crate::out::Out;
use crate::render;
use crate::session::Session;

/// Opens the data in an editor; stores what comes back unless somebody else has changed the znode meanwhile.
pub(crate) fn edit(session: &Session, path: &str, out: &mut Out<'_>) -> Result<(), ShellError> {
    let (old, stat) = session.call(format!("get {path}"), |client| client.get_data(path))?;
    let mut file = tempfile::Builder::new()
        .prefix("znode-")
        .tempfile()
        .and_then(|mut file| file.write_all(&old).map(|()| file))
        .map_err(ShellError::io("a temporary file"))?;
    run_editor(file.path())?;
    let new =
        std::fs::read(file.path()).map_err(ShellError::io(format!("reading {}", file.path().display())))?;
    // Editors end the last line where there was no end of it.
    let new = match new.strip_suffix(b"\n") {
        Some(without) if !old.ends_with(b"\n") => without,
        _ => &new,
    };
    if new == old {
        return Ok(out.put("not changed", || serde_json::json!({ "path": path, "changed": false }))?);
    }
    match session.call(format!("set {path}"), |client| client.set_data(path, new, stat.version)) {
        Ok(stat) => Ok(out.put(&format!("version {}", stat.version), || render::stat_json(&stat))?),
        Err(error) => {
            file.disable_cleanup(true);
            let kept = file.path().display();
            let why = match &error {
                ShellError::Client { source: Error::BadVersion(_), .. } => {
                    "somebody else has changed it meanwhile"
                }
                _ => "it could not be stored",
            };
            eprintln!("{why}; your text is kept in {kept}");
            Err(error)
        }
    }
}

fn run_editor(file: &std::path::Path) -> Result<(), ShellError> {
    let editor = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let editor = editor.ok_or_else(|| ShellError::Usage("no editor: set $EDITOR".to_owned()))?;
    // Through a shell: the variable may hold options, too.
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(file)
        .status()
        .map_err(ShellError::io(format!("starting {editor}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(ShellError::Usage(format!("{editor} ended with {status}: nothing was stored")))
    }
}
