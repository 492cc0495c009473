//! The folder of an ensemble.

use std::fmt::Write;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use super::{EnsembleArgs, EnsembleError};
use crate::config::Config;

/// Difference between a server's client port and its quorum and election ports; for client port 2181 they are
/// ZooKeeper's usual 2888 and 3888.
const QUORUM_OFFSET: u16 = 707;
const ELECTION_OFFSET: u16 = 1707;

/// Difference between a server's client port and that of its admin listener: ZooKeeper's usual 8080 is often
/// taken.
const ADMIN_OFFSET: u16 = 5000;

/// The file in which a server's configuration is.
pub(super) const CONFIG_FILE: &str = "zoo.cfg";

/// The file that a server's log goes to.
pub(super) const LOG_FILE: &str = "server.log";

/// An ensemble as its folder describes it.
#[derive(Debug)]
pub(super) struct Layout {
    folder: PathBuf,
    pub(super) servers: Vec<Member>,
}

/// One server of it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: u64,
    /// Holds the server's files.
    pub(super) folder: PathBuf,
    pub(super) client: SocketAddr,
    quorum_port: u16,
    /// Where its admin listener is, if it has one of its own.
    admin: Option<SocketAddr>,
}

impl Layout {
    /// Reads the folder, or creates it.
    pub(super) fn open(args: &EnsembleArgs) -> Result<Self, EnsembleError> {
        let failed = |error| EnsembleError::Folder { folder: args.dir.clone(), error };
        fs::create_dir_all(&args.dir).map_err(failed)?;
        let folder = args.dir.canonicalize().map_err(failed)?;
        if !folder.join("1").join(CONFIG_FILE).exists() {
            write(&folder, args.servers.unwrap_or(3), args.client_port.unwrap_or(2181)).map_err(failed)?;
        }
        let layout = Self::read(folder)?;
        layout.agrees_with(args)?;
        Ok(layout)
    }

    fn read(folder: PathBuf) -> Result<Self, EnsembleError> {
        let mut servers = Vec::new();
        for id in 1.. {
            let own = folder.join(id.to_string());
            let file = own.join(CONFIG_FILE);
            if !file.exists() {
                break;
            }
            let (config, _) = Config::read(&file)?;
            if !config.data_dir.starts_with(&own) {
                return Err(EnsembleError::Moved { file, data_dir: config.data_dir });
            }
            let quorum_port = config.own_server().map_or(0, |server| server.first().quorum_port);
            let admin = config.admin_socket().filter(|_| config.admin.is_named());
            servers.push(Member { id, folder: own, client: config.client_socket(), quorum_port, admin });
        }
        Ok(Self { folder, servers })
    }

    fn agrees_with(&self, args: &EnsembleArgs) -> Result<(), EnsembleError> {
        let (count, port) = (self.servers.len(), self.servers[0].client.port());
        let differs = |found: String, wanted: String| {
            Err(EnsembleError::Other { folder: self.folder.clone(), found, wanted })
        };
        match (args.servers, args.client_port) {
            (Some(wanted), _) if usize::from(wanted) != count => {
                differs(format!("{count} servers"), format!("{wanted}"))
            }
            (_, Some(wanted)) if wanted != port => {
                differs(format!("client ports from {port}"), format!("{wanted}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether each server can have its ports.
    pub(super) fn check_ports(&self) -> Result<(), EnsembleError> {
        for server in &self.servers {
            let admin = server.admin.map(|admin| admin.port());
            for port in [server.client.port(), server.quorum_port].into_iter().chain(admin) {
                if TcpListener::bind((server.client.ip(), port)).is_err() {
                    return Err(EnsembleError::Port { server: server.id, port });
                }
            }
        }
        Ok(())
    }

    /// The text with the connection string, and hints for the user.
    pub(super) fn greeting(&self) -> String {
        let (count, survives) = (self.servers.len(), (self.servers.len() - 1) / 2);
        let clients: Vec<_> = self.servers.iter().map(|server| server.client.to_string()).collect();
        let mut text = format!("{count} servers in {}\n", self.folder.display());
        if count.is_multiple_of(2) {
            let _ = writeln!(
                text,
                "hint: {count} servers survive no more failures ({survives}) than {} do: take an odd number",
                count - 1
            );
        }
        let _ = writeln!(text, "connection string: {}", clients.join(","));
        let admins: Vec<_> = self.servers.iter().filter_map(|server| server.admin).collect();
        if let Some(first) = admins.first() {
            let others: String = admins[1..].iter().map(|admin| format!(", {admin}")).collect();
            let _ = writeln!(text, "probes and metrics: http://{first}/metrics{others}");
        }
        text.push_str("Ctrl-C ends them all\n\n");
        text
    }

    /// Where the servers' logs are.
    pub(super) fn logs(&self) -> String {
        let logs: Vec<_> =
            self.servers.iter().map(|server| server.folder.join(LOG_FILE).display().to_string()).collect();
        logs.join(", ")
    }
}

fn write(folder: &Path, count: u16, client_port: u16) -> io::Result<()> {
    let mut servers = String::new();
    for id in 1..=count {
        let own = client_port + id - 1;
        let _ = writeln!(
            servers,
            "server.{id}=127.0.0.1:{}:{}:participant;127.0.0.1:{own}",
            own + QUORUM_OFFSET,
            own + ELECTION_OFFSET
        );
    }
    // The first server's configuration is written last, since its presence means that the folder is complete.
    for id in (1..=count).rev() {
        let own = folder.join(id.to_string());
        let data = own.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), format!("{id}\n"))?;
        let config = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nmaxClientCnxns=0\n\
             4lw.commands.whitelist=*\nadmin.serverPort={}\n{servers}",
            data.display(),
            client_port + id - 1 + ADMIN_OFFSET
        );
        fs::write(own.join(CONFIG_FILE), config)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(folder: &Path, servers: Option<u16>, client_port: Option<u16>) -> EnsembleArgs {
        EnsembleArgs { servers, dir: folder.to_owned(), client_port }
    }

    #[test]
    fn a_folder_laid_out_once_is_read_again_and_another_wish_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let made = Layout::open(&args(folder.path(), Some(5), Some(26_900))).expect("laid out");
        assert_eq!(made.servers.len(), 5);
        let again = Layout::open(&args(folder.path(), None, None)).expect("read");
        let clients = |layout: &Layout| layout.servers.iter().map(|server| server.client).collect::<Vec<_>>();
        assert_eq!(clients(&made), clients(&again));
        let error = Layout::open(&args(folder.path(), Some(3), None)).expect_err("five").to_string();
        assert!(error.contains("with 5 servers, not with 3"), "{error}");
        let error = Layout::open(&args(folder.path(), None, Some(2181))).expect_err("26900").to_string();
        assert!(error.contains("with client ports from 26900, not with 2181"), "{error}");
    }

    #[test]
    fn every_server_reads_the_same_ensemble() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let layout = Layout::open(&args(folder.path(), Some(3), Some(26_910))).expect("laid out");
        let described: Vec<_> = layout
            .servers
            .iter()
            .map(|server| Config::read(&server.folder.join(CONFIG_FILE)).expect("valid").0)
            .map(|config| config.members().describe(0))
            .collect();
        assert!(
            described[0].starts_with("server.1=127.0.0.1:27617:28617:participant;127.0.0.1:26910\n"),
            "{}",
            described[0]
        );
        assert!(described.iter().all(|text| *text == described[0]));
    }

    #[test]
    fn a_port_in_use_is_named_with_its_server() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let layout = Layout::open(&args(folder.path(), Some(3), Some(26_920))).expect("laid out");
        for port in [26_921, 27_628, 31_921] {
            let _taken = TcpListener::bind(("127.0.0.1", port)).expect("free");
            let error = layout.check_ports().expect_err("in use").to_string();
            assert!(error.starts_with(&format!("port {port} of server 2 is in use")), "{error}");
        }
    }

    #[test]
    fn a_folder_that_was_moved_is_not_served_from_elsewhere() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let old = folder.path().join("old");
        Layout::open(&args(&old, Some(1), Some(26_930))).expect("laid out");
        let new = folder.path().join("new");
        fs::rename(&old, &new).expect("moved");
        let error = Layout::open(&args(&new, None, None)).expect_err("moved").to_string();
        // Its myid is looked for where it was.
        assert!(error.contains("old/1/data"), "{error}");
    }

    #[test]
    fn an_even_number_gets_a_hint() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let four = Layout::open(&args(folder.path(), Some(4), Some(26_940))).expect("laid out").greeting();
        assert!(four.contains("4 servers survive no more failures (1) than 3 do"), "{four}");
        assert!(four.contains("connection string: 127.0.0.1:26940,127.0.0.1:26941,"), "{four}");
        assert!(four.contains("metrics: http://127.0.0.1:31940/metrics, 127.0.0.1:31941,"), "{four}");
    }
}
