//! The commands and their options: zkCli's by name and letter, and the ones that it lacks.

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A command line inside the shell.
#[derive(Debug, Parser)]
#[command(multicall = true, disable_help_flag = true, subcommand_required = true, max_term_width = 100)]
#[command(help_template = "{subcommands}\n\n`help COMMAND` tells its options.")]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists children
    Ls(Ls),
    /// Shows the data of a znode
    Get(Get),
    /// Shows the metadata of a znode
    Stat(PathAndWatch),
    /// Creates a znode
    Create(Create),
    /// Sets the data of a znode
    Set(Set),
    /// Deletes a znode without children
    Delete(Delete),
    /// Deletes a znode and all below it
    #[command(visible_alias = "rmr")]
    Deleteall(DeleteAll),
    /// Shows an access control list
    #[command(name = "getAcl", alias = "getacl")]
    GetAcl(GetAcl),
    /// Sets an access control list
    #[command(name = "setAcl", alias = "setacl")]
    SetAcl(SetAcl),
    /// Counts all znodes below one
    #[command(name = "getAllChildrenNumber", alias = "getallchildrennumber")]
    GetAllChildrenNumber(OnePath),
    /// Lists this session's ephemeral znodes
    #[command(name = "getEphemerals", alias = "getephemerals")]
    GetEphemerals(OptionalPath),
    /// Lets the server catch up with the leader
    Sync(OnePath),
    /// Sets limits for a subtree
    Setquota(SetQuota),
    /// Shows the limits and the use of a subtree
    Listquota(OnePath),
    /// Takes limits of a subtree away
    Delquota(DelQuota),
    /// Lets an identity use these subtrees alone, whatever the ACLs say
    Setrule(SetRule),
    /// Shows the rules of identities
    Listrules,
    /// Takes the rule of an identity away
    Delrule(DelRule),
    /// Limits what the clients of a subtree may use
    Settenant(SetTenant),
    /// Shows these limits of all subtrees
    Listtenants,
    /// Takes these limits of a subtree away
    Deltenant(OnePath),
    /// Shows what a client may do with a znode, and which rule or ACL decides
    Explain(Explain),
    /// Watches a znode, or a subtree, until it is told not to
    #[command(name = "addWatch", alias = "addwatch")]
    AddWatch(AddWatch),
    /// Takes watches of a znode away
    Removewatches(RemoveWatches),
    /// Whether watches that fire are shown: on or off
    Printwatches(PrintWatches),
    /// Draws a subtree
    Tree(Tree),
    /// Sums up the data below each child
    Du(OptionalPath),
    /// Finds znodes in a subtree
    Find(Find),
    /// Copies a subtree
    Cp(Copy),
    /// Writes a subtree as JSON lines
    Export(Export),
    /// Creates what `export` has written
    Import(Import),
    /// Opens the data of a znode in $VISUAL or $EDITOR and stores it if nobody else has changed it
    Edit(OnePath),
    /// Shows a proof of identity
    Addauth(AddAuth),
    /// The session's identities
    Whoami,
    /// The ensemble's configuration
    Config(Config),
    /// Changes the ensemble's members
    Reconfig(Reconfig),
    /// The version of this shell
    Version,
    /// Goes to other servers, in a new session
    Connect(Connect),
    /// Ends the session; `connect` opens another
    Close,
    /// The last commands, numbered
    History,
    /// Runs a command of the history again
    Redo(Redo),
    /// Leaves the shell
    #[command(visible_alias = "exit")]
    Quit,
}

/// Words in the form that the parser expects: zkCli has a few long options with one dash, and so has `find`
/// elsewhere.
pub(crate) fn normalize(words: Vec<String>) -> Vec<String> {
    let long: &[&str] = match words.first().map(String::as_str) {
        Some("reconfig") => &["-add", "-remove", "-members", "-file"],
        Some("find") => &["-name"],
        _ => &[],
    };
    words
        .into_iter()
        .map(|word| if long.contains(&word.as_str()) { format!("-{word}") } else { word })
        .collect()
}

#[derive(Debug, Args)]
pub(crate) struct OnePath {
    /// A znode
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct OptionalPath {
    /// A znode
    #[arg(default_value = "/")]
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct PathAndWatch {
    /// Leave a watch
    #[arg(short)]
    pub(crate) watch: bool,
    /// A znode
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Show its metadata, too
    #[arg(short)]
    pub(crate) stat: bool,
    /// Leave a watch for children
    #[arg(short)]
    pub(crate) watch: bool,
    /// Everything below, as paths
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
    /// A znode
    #[arg(default_value = "/")]
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Show its metadata, too
    #[arg(short)]
    pub(crate) stat: bool,
    /// Leave a watch for its data
    #[arg(short)]
    pub(crate) watch: bool,
    /// Show the data in base64
    #[arg(short)]
    pub(crate) base64: bool,
    /// A znode
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Sequential: the server appends a number
    #[arg(short)]
    pub(crate) sequential: bool,
    /// Ephemeral: it goes with the session
    #[arg(short, conflicts_with_all = ["container", "ttl"])]
    pub(crate) ephemeral: bool,
    /// Container: it goes with its last child
    #[arg(short, conflicts_with_all = ["ttl", "sequential"])]
    pub(crate) container: bool,
    /// It goes when it was not changed for so many milliseconds and has no children
    #[arg(short, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ttl: Option<u64>,
    /// Where
    pub(crate) path: String,
    /// Its data
    #[arg(default_value = "", allow_hyphen_values = true)]
    pub(crate) data: String,
    /// Who may do what, as scheme:id:permissions,... such as world:anyone:r
    pub(crate) acl: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// Show its metadata afterwards
    #[arg(short)]
    pub(crate) stat: bool,
    /// Only if the data has this version
    #[arg(short, allow_negative_numbers = true)]
    pub(crate) version: Option<i32>,
    /// A znode
    pub(crate) path: String,
    /// Its new data
    #[arg(allow_hyphen_values = true)]
    pub(crate) data: String,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Only if the data has this version
    #[arg(short, allow_negative_numbers = true)]
    pub(crate) version: Option<i32>,
    /// A znode
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteAll {
    /// How many deletes are on their way at once
    #[arg(short, default_value = "1000", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) batch: u16,
    /// A znode
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct GetAcl {
    /// Show its metadata, too
    #[arg(short)]
    pub(crate) stat: bool,
    /// A znode
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct SetAcl {
    /// Show its metadata afterwards
    #[arg(short)]
    pub(crate) stat: bool,
    /// Only if the list has this version
    #[arg(short, allow_negative_numbers = true, conflicts_with = "recursive")]
    pub(crate) version: Option<i32>,
    /// Everything below, too
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
    /// A znode
    pub(crate) path: String,
    /// Who may do what, as scheme:id:permissions,... with permissions out of c(reate) d(elete) r(ead) w(rite)
    /// a(dmin)
    pub(crate) acl: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Limits {
    /// Number of znodes that is too many, told in the server's log
    #[arg(short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) count: Option<i64>,
    /// Number of bytes that is too many, told in the server's log
    #[arg(short = 'b', value_name = "BYTES", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) bytes: Option<i64>,
    /// Number of znodes that a server with enforceQuota allows
    #[arg(short = 'N', value_name = "COUNT", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) count_hard: Option<i64>,
    /// Number of bytes that a server with enforceQuota allows
    #[arg(short = 'B', value_name = "BYTES", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) bytes_hard: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct SetQuota {
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// The top of the subtree
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct DelQuota {
    /// The number of znodes
    #[arg(short = 'n')]
    pub(crate) count: bool,
    /// The number of bytes
    #[arg(short = 'b')]
    pub(crate) bytes: bool,
    /// The enforced number of znodes
    #[arg(short = 'N')]
    pub(crate) count_hard: bool,
    /// The enforced number of bytes
    #[arg(short = 'B')]
    pub(crate) bytes_hard: bool,
    /// The top of the subtree
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct SetRule {
    /// Whom it binds, such as sasl:alice, ip:10.0.0.0/8, or world:anyone for those whom no other rule binds
    pub(crate) identity: String,
    /// Pairs of an access and the top of a subtree, such as `acl /tenants/a read /shared`. The access is
    /// none, read (whatever the ACLs say), acl (what they say), or all
    #[arg(required = true, value_name = "ACCESS PATH")]
    pub(crate) subtrees: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DelRule {
    /// Whom it binds
    pub(crate) identity: String,
}

#[derive(Debug, Args)]
pub(crate) struct SetTenant {
    /// The top of the subtree
    pub(crate) path: String,
    /// All of its limits, such as `ops=1000 znodes=5000`: ops and bytes a second, watches and sessions on
    /// each server, znodes and bytes of data in the ensemble; burst is for how many seconds the rates may be
    /// saved up
    #[arg(value_name = "KEY=NUMBER")]
    pub(crate) limits: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A znode
    pub(crate) path: String,
    /// The client's identities, as `whoami` shows them
    #[arg(required = true, value_name = "IDENTITY")]
    pub(crate) identities: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum WatchMode {
    Persistent,
    PersistentRecursive,
}

#[derive(Debug, Args)]
pub(crate) struct AddWatch {
    /// Of the znode and its children, or of the whole subtree
    #[arg(short, value_enum, ignore_case = true, default_value = "PERSISTENT_RECURSIVE")]
    pub(crate) mode: WatchMode,
    /// A znode, which need not exist
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveWatches {
    /// Those of children
    #[arg(short, group = "kind")]
    pub(crate) children: bool,
    /// Those of data
    #[arg(short, group = "kind")]
    pub(crate) data: bool,
    /// All of them (the default)
    #[arg(short, group = "kind")]
    pub(crate) all: bool,
    /// A znode
    pub(crate) path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct PrintWatches {
    /// on or off; without it, which of them it is
    pub(crate) switch: Option<Switch>,
}

#[derive(Debug, Args)]
pub(crate) struct Tree {
    /// Levels to show
    #[arg(short = 'L', value_name = "LEVELS")]
    pub(crate) levels: Option<usize>,
    /// A znode
    #[arg(default_value = "/")]
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct Find {
    /// The top of the subtree
    #[arg(default_value = "/")]
    pub(crate) path: String,
    /// Names of this pattern: * for any letters, ? for one, [..] for one of several
    #[arg(short, long, value_name = "PATTERN")]
    pub(crate) name: Option<String>,
    /// Ephemeral ones
    #[arg(short, long)]
    pub(crate) ephemeral: bool,
    /// Those of one session, such as 0x100000000000001
    #[arg(long, value_name = "SESSION", value_parser = parse_session)]
    pub(crate) owner: Option<i64>,
    /// With at least so many bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) min_bytes: Option<u32>,
    /// With at least so many children
    #[arg(long, value_name = "COUNT")]
    pub(crate) min_children: Option<u32>,
}

fn parse_session(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map(u64::cast_signed)
        .map_err(|_| format!("{text:?} is not a session id, such as 0x100000000000001"))
}

#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// Replace the data of znodes that exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// The top of the subtree
    pub(crate) from: String,
    /// Where its copy goes; must not exist without -f
    pub(crate) to: String,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The top of the subtree
    pub(crate) path: String,
    /// Where to write [default: the standard output]
    pub(crate) file: Option<std::path::PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Replace the data of znodes that exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Where the subtree goes
    pub(crate) path: String,
    /// What `export` has written
    pub(crate) file: std::path::PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct AddAuth {
    /// Such as digest
    pub(crate) scheme: String,
    /// Such as user:password
    #[arg(default_value = "")]
    pub(crate) auth: String,
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    /// Only what a client needs to connect
    #[arg(short)]
    pub(crate) client: bool,
    /// Leave a watch
    #[arg(short)]
    pub(crate) watch: bool,
    /// Show its metadata, too
    #[arg(short)]
    pub(crate) stat: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Reconfig {
    /// Show the metadata of the new configuration
    #[arg(short)]
    pub(crate) stat: bool,
    /// Only if the configuration has this version (hexadecimal)
    #[arg(short, value_parser = parse_session)]
    pub(crate) version: Option<i64>,
    /// Servers to add, as server.id=host:port:port;port, separated by commas
    #[arg(long, conflicts_with_all = ["members", "file"])]
    pub(crate) add: Option<String>,
    /// Ids of servers to remove, separated by commas
    #[arg(long, conflicts_with_all = ["members", "file"])]
    pub(crate) remove: Option<String>,
    /// All members, in place of the present ones
    #[arg(long, conflicts_with = "file")]
    pub(crate) members: Option<String>,
    /// A file with all members, one a line
    #[arg(long)]
    pub(crate) file: Option<std::path::PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// host:port,host:port/chroot [default: as before]
    pub(crate) servers: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Redo {
    /// Its number in `history`
    pub(crate) number: usize,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Line::try_parse_from(normalize(shlex::split(line).expect("balanced quotes"))).map(|line| line.command)
    }

    #[test]
    fn the_commands_are_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn every_form_of_zkclis_guide_is_understood() {
        for line in [
            "ls -s -w /",
            "ls -R /a",
            "get -s -w /a",
            "stat -w /a",
            "create /a",
            "create -s -e /a data",
            "create -c /a",
            "create -t 10 /a data world:anyone:cdrwa",
            "set -s -v 1 /a data",
            "set /a -1",
            "delete -v -1 /a",
            "deleteall /a -b 10",
            "setquota -n 10 /a",
            "setquota -N 10 -B 5 /a",
            "delquota -n /a",
            "delquota /a",
            "listquota /a",
            "getAcl -s /a",
            "setAcl -R /a world:anyone:r",
            "setAcl -s -v 1 /a world:anyone:r",
            "addauth digest user:password",
            "addWatch -m PERSISTENT /a",
            "removewatches /a -d",
            "printwatches off",
            "reconfig -s -add server.5=h:1:2;3",
            "reconfig -v 100000003 -remove 3,4",
            "config -c",
            "sync /a",
            "connect h:2181",
            "redo 3",
            "getAllChildrenNumber /a",
            "getEphemerals",
            "find /a -name b*",
            "whoami",
            "version",
            "quit",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        for line in [
            "create -e -c /a",
            "create -e -t 5 /a",
            "setquota /a",
            "create -t 0 /a",
            "reconfig -add a -members b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn an_unknown_command_is_refused_with_the_nearest_known() {
        let error = parse("creat /a").unwrap_err().to_string();
        assert!(error.contains("create"), "{error}");
    }
}
