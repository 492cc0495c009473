//! `ringkeeper export-config`: the members that the log names, in the files of Apache ZooKeeper.
//!
//! ```text
//! zoo.cfg                      the server's settings, with dynamicConfigFile in place of the members
//! zoo.cfg.dynamic.100000002    their lines, sorted as text; the version is in the name, in hex
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringkeeper_wire::ServerId;

use super::export::recover;
use super::{MigrateError, say};
use crate::config::{Config, Members, Property, ServerSpec, read_properties};
use crate::server::{Folder, FolderError};

/// How long a running server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// In the answer to the four-letter word `conf`, what stands before the members.
const MEMBERSHIP: &str = "membership: \n";

/// Only the operator reads what may hold passwords.
const MODE: u32 = 0o600;

#[derive(Args)]
pub(crate) struct ExportConfigArgs {
    /// The configuration of the server, which may run; its data folder is locked otherwise
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The folder for zoo.cfg and zoo.cfg.dynamic.VERSION; made if it is missing
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// dataDir in the zoo.cfg that is written, such as the folder that `ringkeeper export` makes [default: as
    /// in FILE]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Where the running server takes clients, after a reconfig that has moved it [default: as in FILE]
    #[arg(long, value_name = "ADDRESS:PORT")]
    server: Option<SocketAddr>,
}

/// Does what `ringkeeper export-config` is asked.
///
/// # Errors
/// The server tells no members, its folder cannot be read, or there are such files already.
pub(crate) fn export_config(args: &ExportConfigArgs) -> Result<(), MigrateError> {
    let (config, _) = Config::read(&args.config)?;
    let address = args.server.unwrap_or_else(|| address(&config));
    let (members, version) = match running(address)? {
        Some(named) => named,
        None => stopped(&config, address)?,
    };
    if members.iter().next().is_none() {
        return Err(MigrateError::NoMembers(args.config.clone()));
    }
    let failed = |source| MigrateError::Target { folder: args.to.clone(), source };
    fs::create_dir_all(&args.to).map_err(failed)?;
    let folder = args.to.canonicalize().map_err(failed)?;
    let dynamic = folder.join(format!("zoo.cfg.dynamic.{version:x}"));
    let properties = read_properties(&args.config)?;
    let own = config.id_in_folder().and_then(|id| members.get(ServerId(id)));
    let text = static_text(&properties, &config, own, args.data_dir.as_deref(), &dynamic);
    write(&dynamic, &dynamic_text(&members)).map_err(failed)?;
    write(&folder.join("zoo.cfg"), &text).map_err(failed)?;
    say(format_args!(
        "wrote {} and, with {} members, {}",
        folder.join("zoo.cfg").display(),
        members.iter().count(),
        dynamic.display()
    ));
    Ok(())
}

/// Where the server takes clients by its configuration.
fn address(config: &Config) -> SocketAddr {
    let mut address = config.client_socket();
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    address
}

/// The members by the log of the server that runs with this configuration; `None` if it does not run, or does
/// not tell.
pub(crate) fn members_of_running(config: &Config) -> Option<Members> {
    let (members, _) = running(address(config)).ok()??;
    Some(members)
}

/// The members that a running server names, with their version; `None` if nobody listens there.
fn running(address: SocketAddr) -> Result<Option<(Members, u64)>, MigrateError> {
    let Ok(stream) = TcpStream::connect_timeout(&address, ANSWER_MAX) else { return Ok(None) };
    let answer = ask(stream).unwrap_or_default();
    let Some((_, text)) = answer.split_once(MEMBERSHIP) else { return Err(MigrateError::Silent(address)) };
    let named =
        Members::parse(text).map_err(|reason| MigrateError::Members { from: address.to_string(), reason })?;
    Ok(Some(named))
}

fn ask(mut stream: TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(b"conf")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The members that a stopped server's log names, or else its configuration. A running one was looked for at
/// `address`.
fn stopped(config: &Config, address: SocketAddr) -> Result<(Members, u64), MigrateError> {
    let folder = Folder::lock(config).map_err(|error| match error {
        FolderError::Locked(in_use) => MigrateError::Elsewhere { in_use, address },
        other => other.into(),
    })?;
    let recovered = recover(&folder)?;
    Ok(match recovered.state.membership() {
        Some(membership) => (membership.members.clone(), membership.quorums.since.0),
        None => (config.members(), 0),
    })
}

/// The lines of the members, their groups and weights.
fn dynamic_text(members: &Members) -> String {
    let text = members.describe(0);
    let mut lines: Vec<_> = text.lines().filter(|line| !line.starts_with("version=")).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// The settings without the members, as ZooKeeper rewrites them: comments are lost. The ports of clients go,
/// too, when the line that is exported of the server, `own`, has them. If only the line in its configuration
/// does, they are set in place of it.
fn static_text(
    properties: &[Property],
    config: &Config,
    own: Option<&ServerSpec>,
    data_dir: Option<&Path>,
    dynamic: &Path,
) -> String {
    let has_client = own.is_some_and(|own| own.client.is_some());
    let configured = config.own_server().and_then(|own| own.client.as_ref()).filter(|_| !has_client);
    let is_left_out = |key: &str| {
        let is_client = match key {
            "clientPort" => has_client || configured.is_some(),
            "clientPortAddress" => has_client || configured.is_some_and(|(host, _)| host.is_some()),
            _ => false,
        };
        let is_folder = matches!(key, "dataDir" | "dataLogDir");
        let of_members = ["server.", "group.", "weight."].iter().any(|prefix| key.starts_with(prefix));
        of_members
            || matches!(key, "dynamicConfigFile" | "peerType")
            || is_client
            || (is_folder && data_dir.is_some())
    };
    let escaped = |text: &str| text.replace('\\', "\\\\");
    let kept = properties.iter().filter(|property| !is_left_out(&property.key));
    let mut text: String =
        kept.map(|property| format!("{}={}\n", escaped(&property.key), escaped(&property.value))).collect();
    if let Some((host, port)) = configured {
        text += &format!("clientPort={port}\n");
        text.extend(host.iter().map(|host| format!("clientPortAddress={}\n", escaped(host))));
    }
    if let Some(folder) = data_dir {
        text += &format!("dataDir={}\n", escaped(&folder.display().to_string()));
    }
    text + &format!("dynamicConfigFile={}\n", escaped(&dynamic.display().to_string()))
}

/// Writes a file that is not there yet, durably.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(key: &str, value: &str) -> Property {
        Property { line: 1, key: key.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn members_are_sorted_as_text_without_their_version() {
        let text = "server.10=c:1:2:observer;5\nserver.2=b:1:2;5\nserver.1=a:3:4:participant;5\nversion=1f";
        let (members, _) = Members::parse(text).expect("valid");
        assert_eq!(
            dynamic_text(&members),
            "server.10=c:1:2:observer;0.0.0.0:5\nserver.1=a:3:4:participant;0.0.0.0:5\n\
             server.2=b:1:2:participant;0.0.0.0:5"
        );
    }

    #[test]
    fn settings_keep_all_but_the_members_and_what_their_lines_say() {
        let (members, _) = Members::parse("server.1=a:1:2;2181").expect("valid");
        let config =
            Config { my_id: Some(1), servers: members.iter().cloned().collect(), ..Config::default() };
        let properties = [
            property("tickTime", "2000"),
            property("dataDir", "/ours"),
            property("clientPort", "2181"),
            property("server.1", "a:1:2;2181"),
            property("peerType", "participant"),
            property("dynamicConfigFile", "old"),
        ];
        let dynamic = Path::new("/etc/zoo.cfg.dynamic.1f");
        assert_eq!(
            static_text(&properties, &config, config.own_server(), Some(Path::new("/theirs")), dynamic),
            "tickTime=2000\ndataDir=/theirs\ndynamicConfigFile=/etc/zoo.cfg.dynamic.1f\n"
        );
        let alone = Config { servers: Vec::new(), ..config };
        assert_eq!(
            static_text(&properties[..3], &alone, None, None, dynamic),
            "tickTime=2000\ndataDir=/ours\nclientPort=2181\ndynamicConfigFile=/etc/zoo.cfg.dynamic.1f\n"
        );
    }

    #[test]
    fn the_client_port_is_that_of_the_exported_line_or_else_of_the_configuration() {
        let server = |text| ServerSpec::parse(1, text).expect("valid");
        let written = |configured, exported, settings: &[Property]| {
            let config = Config { my_id: Some(1), servers: vec![server(configured)], ..Config::default() };
            let text = static_text(settings, &config, Some(&server(exported)), None, Path::new("new"));
            text.strip_suffix("dynamicConfigFile=new\n").expect("last").to_owned()
        };
        let port = [property("clientPort", "2181"), property("clientPortAddress", "::1")];
        assert_eq!(written("a:1:2", "a:1:2;31177", &port), "", "a reconfig has named it");
        assert_eq!(written("a:1:2;[::1]:2181", "a:1:2", &[]), "clientPort=2181\nclientPortAddress=::1\n");
        assert_eq!(written("a:1:2;2181", "a:1:2", &port), "clientPortAddress=::1\nclientPort=2181\n");
        assert_eq!(written("a:1:2", "a:1:2", &port), "clientPort=2181\nclientPortAddress=::1\n");
    }
}
