//! Who can log in by SASL, from a file in the format of the Java Authentication and Authorization Service
//! (`javax.security.auth.login.Configuration`): users with passwords, or the keytab of Kerberos.
//!
//! ```text
//! Server {
//!     org.apache.zookeeper.server.auth.DigestLoginModule required
//!     user_alice="a password"
//!     user_bob="another one";
//!     com.sun.security.auth.module.Krb5LoginModule required
//!     useKeyTab=true keyTab="/etc/zookeeper.keytab" principal="zookeeper/host@REALM";
//! };
//! ```

use std::path::PathBuf;

use ringkeeper_engine::acl::is_sasl_id;
use ringkeeper_engine::sasl::Users;

/// The module of users with passwords.
const DIGEST_MODULE: &str = "org.apache.zookeeper.server.auth.DigestLoginModule";

/// The module of Kerberos.
const KERBEROS_MODULE: &str = "com.sun.security.auth.module.Krb5LoginModule";

/// What stands before a user's name in the option that has the password.
const USER_PREFIX: &str = "user_";

/// A login module of a section, with its options.
struct Module {
    line: usize,
    class: String,
    options: Vec<(String, String)>,
}

/// The service that principals of Kerberos log in to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KerberosService {
    /// Its principal.
    pub(crate) principal: String,
    /// The file with its keys, if it is not the system's.
    pub(crate) keytab: Option<PathBuf>,
}

/// The principal that this server is for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnKeytab {
    /// The principal.
    pub(crate) principal: String,
    /// The file with its keys.
    pub(crate) keytab: PathBuf,
}

/// How this server proves itself to others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Learner {
    /// `USER:PASSWORD`.
    Password(String),
    Keytab(OwnKeytab),
}

/// How others prove themselves to this server: `USER:PASSWORD` of each, or by tickets for a service.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Peers {
    pub(super) users: Vec<String>,
    pub(super) kerberos: Option<KerberosService>,
}

/// Who can log in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Logins {
    pub(super) users: Users,
    pub(super) kerberos: Option<KerberosService>,
}

/// Who can log in by a section of a JAAS file; nobody if there is none, and there need not be one. Errors
/// name the line.
pub(super) fn logins(text: &str, section: &str, is_optional: bool) -> Result<Logins, String> {
    let mut logins = Logins::default();
    let modules = match modules(text, section, "sasl.serverconfig") {
        Err(_) if is_optional => return Ok(logins),
        modules => modules?,
    };
    for module in modules {
        match &*module.class {
            DIGEST_MODULE => {
                for (user, password) in module.users() {
                    if user.is_empty() || !is_sasl_id(user) {
                        return Err(module.error(&format!("{user:?} cannot be the name of a user")));
                    }
                    logins.users.insert(user, password);
                }
            }
            KERBEROS_MODULE => logins.kerberos = Some(module.kerberos()?),
            _ => return Err(module.is_unknown()),
        }
    }
    if logins == Logins::default() {
        return Err(format!("section {section} names no user: write user_NAME=\"PASSWORD\" into it"));
    }
    Ok(logins)
}

/// The servers that this one takes for peers, by a section.
pub(super) fn peers(text: &str, section: &str) -> Result<Peers, String> {
    let mut peers = Peers::default();
    for module in modules(text, section, "quorum.auth.server.saslLoginContext")? {
        match &*module.class {
            DIGEST_MODULE => {
                peers.users.extend(module.users().map(|(user, password)| format!("{user}:{password}")));
            }
            KERBEROS_MODULE => peers.kerberos = Some(module.kerberos()?),
            _ => return Err(module.is_unknown()),
        }
    }
    if peers == Peers::default() {
        return Err(format!("section {section} names no server: write user_NAME=\"PASSWORD\" into it"));
    }
    Ok(peers)
}

/// Who this server is, by a section.
pub(super) fn learner(text: &str, section: &str) -> Result<Learner, String> {
    for module in modules(text, section, "quorum.auth.learner.saslLoginContext")? {
        match &*module.class {
            DIGEST_MODULE => {
                if let (Some(user), Some(password)) = (module.option("username"), module.option("password")) {
                    return Ok(Learner::Password(format!("{user}:{password}")));
                }
            }
            KERBEROS_MODULE => {
                let KerberosService { principal, keytab } = module.kerberos()?;
                let keytab = keytab.ok_or_else(|| module.error("write keyTab=\"FILE\""))?;
                return Ok(Learner::Keytab(OwnKeytab { principal, keytab }));
            }
            _ => return Err(module.is_unknown()),
        }
    }
    let remedy = "write username=\"NAME\" password=\"PASSWORD\" into it";
    Err(format!("section {section} does not say who this server is: {remedy}"))
}

/// The login modules of a section, which a key has named.
fn modules(text: &str, section: &str, key: &str) -> Result<Vec<Module>, String> {
    let mut sections = Parser::new(text)?.sections()?;
    match sections.iter().position(|(name, _)| name == section) {
        Some(at) => Ok(sections.swap_remove(at).1),
        None => {
            let names: Vec<_> = sections.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!("there is no section {section}, only {names:?}: {key} names one"))
        }
    }
}

impl Module {
    fn error(&self, reason: &str) -> String {
        format!("line {}: {reason}", self.line)
    }

    fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Names with their passwords.
    fn users(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options
            .iter()
            .filter_map(|(key, password)| Some((key.strip_prefix(USER_PREFIX)?, password.as_str())))
    }

    fn is_unknown(&self) -> String {
        let known = format!("only {DIGEST_MODULE} and {KERBEROS_MODULE} are");
        self.error(&format!("{} is not supported, {known}", self.class))
    }

    /// Options that say how Java gets and renews tickets have no meaning here: who accepts needs none, and
    /// who dials gets them with the keytab.
    fn kerberos(&self) -> Result<KerberosService, String> {
        if self.option("useKeyTab") != Some("true") {
            let reason = "a server logs in without a person: write useKeyTab=true and keyTab=\"FILE\"";
            return Err(self.error(reason));
        }
        let principal =
            self.option("principal").ok_or_else(|| self.error("write principal=\"zookeeper/HOST@REALM\""))?;
        let keytab = self.option("keyTab").map(|path| path.strip_prefix("FILE:").unwrap_or(path).into());
        Ok(KerberosService { principal: principal.to_owned(), keytab })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A name, a value or a quoted text.
    Word(String),
    Symbol(char),
}

/// Tokens, each with its line.
struct Parser(std::iter::Peekable<std::vec::IntoIter<(usize, Token)>>);

impl Parser {
    fn new(text: &str) -> Result<Self, String> {
        Ok(Self(tokens(text)?.into_iter().peekable()))
    }

    /// All sections of the file, by name.
    fn sections(mut self) -> Result<Vec<(String, Vec<Module>)>, String> {
        let mut sections = Vec::<(String, Vec<Module>)>::new();
        while let Some(&(line, _)) = self.0.peek() {
            let name = self.word("the name of a section")?.1;
            if sections.iter().any(|(known, _)| *known == name) {
                return Err(format!("line {line}: section {name} stands here twice"));
            }
            self.symbol('{')?;
            let mut modules = Vec::new();
            while !self.is_next('}') {
                modules.push(self.module()?);
            }
            self.symbol('}')?;
            self.symbol(';')?;
            sections.push((name, modules));
        }
        Ok(sections)
    }

    fn module(&mut self) -> Result<Module, String> {
        let (line, class) = self.word("a login module")?;
        let flag = self.word("required, requisite, sufficient or optional")?.1;
        if !["required", "requisite", "sufficient", "optional"].contains(&&*flag.to_ascii_lowercase()) {
            return Err(format!(
                "line {line}: {flag:?} is none of required, requisite, sufficient and optional"
            ));
        }
        let mut options = Vec::new();
        while !self.is_next(';') {
            let key = self.word("an option, or a semicolon behind the last")?.1;
            self.symbol('=')?;
            let (line, value) = self.word("the value of an option")?;
            if value.contains("${") {
                return Err(format!(
                    "line {line}: the value of {key} names a property of Java: write it out"
                ));
            }
            options.push((key, value));
        }
        self.symbol(';')?;
        Ok(Module { line, class, options })
    }

    fn is_next(&mut self, symbol: char) -> bool {
        self.0.peek().is_some_and(|(_, token)| *token == Token::Symbol(symbol))
    }

    fn word(&mut self, what: &str) -> Result<(usize, String), String> {
        match self.0.next() {
            Some((line, Token::Word(word))) => Ok((line, word)),
            Some((line, Token::Symbol(symbol))) => {
                Err(format!("line {line}: expected {what}, found {symbol:?}"))
            }
            None => Err(format!("expected {what}, found the end of the file")),
        }
    }

    fn symbol(&mut self, expected: char) -> Result<(), String> {
        match self.0.next() {
            Some((_, Token::Symbol(symbol))) if symbol == expected => Ok(()),
            // What stands in its place may be a password.
            Some((line, _)) => Err(format!("line {line}: expected {expected:?}")),
            None => Err(format!("expected {expected:?}, found the end of the file")),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let len = if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.find("*/").ok_or_else(|| format!("line {line}: a comment without an end"))?;
            end + 4
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            let (word, len) = quoted(rest).ok_or_else(|| format!("line {line}: a quote is not closed"))?;
            tokens.push((line, Token::Word(word)));
            len
        } else if is_word_char(first) {
            let len = rest.find(|char| !is_word_char(char)).unwrap_or(rest.len());
            tokens.push((line, Token::Word(rest[..len].to_owned())));
            len
        } else {
            if !first.is_whitespace() {
                tokens.push((line, Token::Symbol(first)));
            }
            first.len_utf8()
        };
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    Ok(tokens)
}

fn is_word_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || ".-_$*".contains(char) || char >= '\u{a0}'
}

/// The text in quotes at the front of `rest`, with Java's escapes resolved, and its length with the quotes.
/// It ends on its line.
fn quoted(rest: &str) -> Option<(String, usize)> {
    let mut word = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        word.push(match char {
            '"' => return Some((word, at + 1)),
            '\n' | '\r' => return None,
            '\\' => match chars.next()?.1 {
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\x0b',
                digit @ '0'..='7' => {
                    let digits_max = if digit <= '3' { 3 } else { 2 };
                    let octal = &rest.as_bytes()[at + 1..];
                    let digits =
                        octal.iter().take(digits_max).take_while(|byte| (b'0'..=b'7').contains(byte));
                    let digits = digits.count();
                    let code =
                        octal[..digits].iter().fold(0, |code, digit| code * 8 + u32::from(digit - b'0'));
                    chars.by_ref().take(digits - 1).for_each(drop);
                    char::from_u32(code)?
                }
                '\n' | '\r' => return None,
                other => other,
            },
            other => other,
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(entries: &[(&str, &str)]) -> Users {
        let mut users = Users::default();
        entries.iter().for_each(|(user, password)| users.insert(user, password));
        users
    }

    #[test]
    fn the_users_of_a_section_are_read_as_java_reads_them() {
        let text = r#"
            // A comment, and another /* one
            QuorumServer { some.other.Module sufficient useKeyTab=true keyTab="/etc/zk.keytab"; };
            Server {
                org.apache.zookeeper.server.auth.DigestLoginModule REQUIRED /* over
                    two lines */ debug=true user_alice = "a // \"b\" \101\7" user_super=plain-text.1;
                org.apache.zookeeper.server.auth.DigestLoginModule optional
                    "user_bob@REALM"="" user_m\u{fc}ller="p\u{e4}ss";
            };"#;
        let text = text.replace("\\u{fc}", "\u{fc}").replace("\\u{e4}", "\u{e4}");
        let all = [
            ("alice", "a // \"b\" A\x07"),
            ("super", "plain-text.1"),
            ("bob@REALM", ""),
            ("m\u{fc}ller", "p\u{e4}ss"),
        ];
        assert_eq!(logins(&text, "Server", false), Ok(Logins { users: expected(&all), kerberos: None }));
    }

    #[test]
    fn a_keytab_stands_alone_or_beside_users() {
        let keytab = format!(
            "{KERBEROS_MODULE} required useKeyTab=true storeKey=true useTicketCache=false
             principal=\"zk/host@R\""
        );
        let service = |path: Option<&str>| {
            Some(KerberosService { principal: "zk/host@R".to_owned(), keytab: path.map(PathBuf::from) })
        };
        let text = format!("Server {{ {keytab} keyTab=\"FILE:/etc/zk.keytab\"; }};");
        let alone = Logins { users: Users::default(), kerberos: service(Some("/etc/zk.keytab")) };
        assert_eq!(logins(&text, "Server", false), Ok(alone));
        let text = format!("Server {{ {DIGEST_MODULE} required user_a=b; {keytab}; }};");
        let both = Logins { users: expected(&[("a", "b")]), kerberos: service(None) };
        assert_eq!(logins(&text, "Server", false), Ok(both));
    }

    #[test]
    fn servers_have_users_and_keytabs_of_their_own() {
        let keytab = |options| format!("{KERBEROS_MODULE} required useKeyTab=true {options};");
        let text = format!(
            "QuorumServer {{ {DIGEST_MODULE} required user_a=1 user_b=2; }};
             QuorumLearner {{ {DIGEST_MODULE} required username=a password=1; }};
             Keytab {{ {} }};
             Both {{ {DIGEST_MODULE} required user_a=1; {} }};
             NoFile {{ {} }};
             Other {{ my.Module required; }};",
            keytab("principal=\"zk/zoo1@R\" keyTab=\"/zk.keytab\""),
            keytab("principal=\"zk/zoo1\""),
            keytab("principal=\"zk/zoo1\""),
        );
        let service = |principal: &str, path: Option<&str>| {
            Some(KerberosService { principal: principal.to_owned(), keytab: path.map(PathBuf::from) })
        };
        let users = |users: &[&str]| users.iter().map(ToString::to_string).collect();
        let digest = Peers { users: users(&["a:1", "b:2"]), kerberos: None };
        assert_eq!(peers(&text, "QuorumServer"), Ok(digest));
        let kerberos = Peers { users: Vec::new(), kerberos: service("zk/zoo1@R", Some("/zk.keytab")) };
        assert_eq!(peers(&text, "Keytab"), Ok(kerberos));
        let both = Peers { users: users(&["a:1"]), kerberos: service("zk/zoo1", None) };
        assert_eq!(peers(&text, "Both"), Ok(both));
        assert_eq!(learner(&text, "QuorumLearner"), Ok(Learner::Password("a:1".to_owned())));
        let own = OwnKeytab { principal: "zk/zoo1@R".to_owned(), keytab: PathBuf::from("/zk.keytab") };
        assert_eq!(learner(&text, "Keytab"), Ok(Learner::Keytab(own)));
        assert_eq!(logins(&text, "Server", true), Ok(Logins::default()));
        for (error, reason) in [
            (
                peers(&text, "Other").expect_err("a foreign class"),
                "line 6: my.Module is not supported, only org",
            ),
            (peers(&text, "QuorumLearner").expect_err("no users"), "section QuorumLearner names no server"),
            (learner(&text, "QuorumServer").expect_err("no name"), "section QuorumServer does not say who"),
            (learner(&text, "NoFile").expect_err("no file"), "line 5: write keyTab="),
            (learner(&text, "Nobody").expect_err("no section"), "there is no section Nobody, only"),
        ] {
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_its_line_and_without_its_secrets() {
        let module = DIGEST_MODULE;
        for (text, reason) in [
            (
                format!("Client {{ {module} required user_a=b; }};"),
                "there is no section Server, only [\"Client\"]",
            ),
            ("Server {\n};".to_owned(), "section Server names no user"),
            (
                format!("Server {{\n{KERBEROS_MODULE} required; }};"),
                "line 2: a server logs in without a person: write useKeyTab=true",
            ),
            (
                format!("Server {{\n{KERBEROS_MODULE} required useKeyTab=true; }};"),
                "line 2: write principal=\"zookeeper/HOST@REALM\"",
            ),
            (
                "Server { my.Module required user_a=b; };".to_owned(),
                "line 1: my.Module is not supported, only org",
            ),
            (format!("Server {{ {module} always; }};"), "line 1: \"always\" is none of required"),
            (format!("Server {{ {module} required user_a=\"b;\n }};"), "line 1: a quote is not closed"),
            (format!("/* Server {{ {module}"), "line 1: a comment without an end"),
            (format!("Server {{ {module} required user_a=b"), "expected an option, or a semicolon behind"),
            (format!("Server {{ {module} required\nuser_a pw;"), "line 2: expected '='"),
            (format!("Server {{ {module} required user_a=b; }}"), "expected ';', found the end"),
            (
                format!("Server {{ {module} required user_a=\"${{p}}\"; }};"),
                "line 1: the value of user_a names a property",
            ),
            (
                format!("Server {{ {module} required \"user_a@b@c\"=p; }};"),
                "line 1: \"a@b@c\" cannot be the name",
            ),
            (
                format!("Server {{ {module} required user_a=b; }};").repeat(2),
                "line 1: section Server stands here twice",
            ),
        ] {
            let error = logins(&text, "Server", false).expect_err(&text);
            assert!(error.starts_with(reason), "{error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }
}
