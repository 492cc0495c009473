//! Kerberos between servers: links whose ends show and take tickets of a realm that is simulated.

use futures_lite::future::BoxedLocal;
use ringkeeper_engine::zab::Message;
use ringkeeper_host::links::{Accepted, Acceptor, Initiator, Kerberos, Key, Secrets, Ticket};
use ringkeeper_wire::Epoch;

use super::strangers::Server;
use super::*;

const REALM: &str = "R";

/// What a token is made with: who shows it, to whom, and the secret in it. The KDC gives out any ticket.
struct Keytab {
    principal: &'static str,
    /// Number of exchanges in which no KDC is reached, and whether one is that never answers.
    outage: Cell<u32>,
    is_silent: Cell<bool>,
    begun: Cell<u8>,
}

fn keytab(principal: &'static str) -> Rc<Keytab> {
    Rc::new(Keytab { principal, outage: Cell::new(0), is_silent: Cell::new(false), begun: Cell::new(0) })
}

impl Initiator for Keytab {
    fn begin(&self, host: &str) -> BoxedLocal<io::Result<Ticket>> {
        if self.is_silent.get() {
            return Box::pin(std::future::pending());
        }
        if self.outage.get() > 0 {
            self.outage.set(self.outage.get() - 1);
            return Box::pin(async { Err(io::Error::other("no KDC is reached")) });
        }
        self.begun.set(self.begun.get() + 1);
        let (service, key) = (format!("zk/{host}@{REALM}"), [self.begun.get(); 32]);
        let token = [&key[..], format!("{} {service}", self.principal).as_bytes()].concat();
        let finish = move |answer: Vec<u8>| -> BoxedLocal<io::Result<Key>> {
            let refused = || io::Error::other("it refuses the ticket");
            Box::pin(async move { (answer == service.as_bytes()).then_some(key).ok_or_else(refused) })
        };
        Box::pin(async move { Ok(Ticket { token, finish: Box::new(finish) }) })
    }
}

impl Acceptor for Keytab {
    fn accept(&self, token: Vec<u8>) -> BoxedLocal<io::Result<Accepted>> {
        let own = self.principal;
        Box::pin(async move {
            let (key, names) = token.split_first_chunk().ok_or_else(|| io::Error::other("no ticket"))?;
            let (principal, service) = str::from_utf8(names).expect("text").split_once(' ').expect("two");
            let accepted =
                Accepted { principal: principal.to_owned(), token: service.as_bytes().to_vec(), key: *key };
            (service == own)
                .then_some(accepted)
                .ok_or_else(|| io::Error::other("a ticket for another service"))
        })
    }
}

/// A server that shows its ticket, takes those of others, and takes the secrets that are `accepted`.
fn secrets(shows: Option<&Rc<Keytab>>, takes: Option<&Rc<Keytab>>, accepted: &[&[u8]]) -> Secrets {
    let kerberos = Kerberos {
        initiator: shows.map(|it| Rc::clone(it) as Rc<dyn Initiator>),
        acceptor: takes.map(|it| Rc::clone(it) as Rc<dyn Acceptor>),
        realm: REALM.to_owned(),
        service: Some("zk".to_owned()),
    };
    let accepted = accepted.iter().map(|&it| it.into()).collect();
    Secrets { own: b"own".as_slice().into(), accepted, kerberos: Some(kerberos) }
}

const ONE: &str = "zk/machine-0@R";
const TWO: &str = "zk/machine-1@R";

/// The first two servers after a while, of which the second one dials.
fn dialed(one: Secrets, two: Secrets) -> [Server; 2] {
    let machines = machines(1);
    let servers = [Server::start(&machines, 0, 1, one), Server::start(&machines, 1, 2, two)];
    run_until(&machines, 1_000_000);
    servers[1].links.send(ServerId(1), &Message::NewEpoch(Epoch(1)));
    run_until(&machines, 1_100_000);
    servers
}

#[test]
fn a_ticket_has_to_be_that_of_the_server_that_shows_it() {
    for (service, shown, trouble) in [
        (ONE, TWO, ""),
        (ONE, "zk/MACHINE-1@R", ""),
        (ONE, ONE, "it refuses the ticket"),
        (ONE, "zk/machine-7@R", "it refuses the ticket"),
        (ONE, "HTTP/machine-1@R", "it refuses the ticket"),
        (ONE, "zk/machine-1@S", "it refuses the ticket"),
        (ONE, "zk@R", "it refuses the ticket"),
        ("zk/machine-7@R", TWO, "it refuses the ticket"),
    ] {
        let (one, two) = (keytab(service), keytab(shown));
        let [one, two] = dialed(secrets(None, Some(&one), &[]), secrets(Some(&two), None, &[]));
        let expected: &[&str] = if trouble.is_empty() { &["2 connected", "epoch 1"] } else { &[] };
        assert_eq!(
            (one.names(), two.links.trouble(ServerId(1))),
            (names(expected), trouble.to_owned()),
            "{shown}"
        );
    }
}

fn names(expected: &[&str]) -> Vec<String> {
    expected.iter().map(ToString::to_string).collect()
}

#[test]
fn an_ensemble_moves_from_secrets_to_tickets_by_taking_both() {
    let (one, two) = (keytab(ONE), keytab(TWO));
    let (shows, proves) = (|| secrets(Some(&two), None, &[]), || secrets(None, None, &[]));
    for (takes, dials, trouble) in [
        (secrets(None, Some(&one), &[b"own"]), shows(), ""),
        (secrets(None, Some(&one), &[b"own"]), proves(), ""),
        (secrets(None, Some(&one), &[]), proves(), "one of them demands a ticket of Kerberos"),
        (secrets(None, None, &[b"own"]), shows(), "it takes no ticket of Kerberos"),
        (Secrets::from("own"), shows(), "it takes no ticket of Kerberos"),
        (secrets(None, Some(&one), &[]), Secrets::from(""), "one of them demands a ticket of Kerberos"),
    ] {
        let [one, two] = dialed(takes, dials);
        let said = two.links.trouble(ServerId(1));
        assert!(said.contains(trouble) && said.is_empty() == trouble.is_empty(), "{trouble}: {said}");
        assert_eq!(one.names().is_empty(), !trouble.is_empty(), "{trouble}");
    }
}

/// The second server's ticket may have the host of either of its addresses; it asks for one for the host of
/// the first server that it dials.
#[test]
fn tickets_are_for_the_host_of_the_address_that_is_dialed() {
    for (takes, shown, down, connects) in [
        ("zk/machine-0@R", "zk/machine-1-b@R", 1, true),
        ("zk/machine-0-b@R", "zk/machine-1@R", 0, true),
        ("zk/machine-0-b@R", "zk/machine-1@R", 1, false),
        ("zk/machine-0@R", "zk/machine-2@R", 1, false),
    ] {
        let machines = machines(1);
        machines.network().take_down(0, down);
        let (one, two) = (keytab(takes), keytab(shown));
        let ensemble = [0, 1].map(|number| {
            [0, 1].map(|lan| PeerAddress { host: Machines::name_in(number, lan), ..peer(number) })
        });
        let ensemble = ensemble.concat();
        let listener =
            Server::start_in(&machines, 0, 1, secrets(None, Some(&one), &[]), ensemble.iter().cloned());
        let _dialer = Server::start_in(&machines, 1, 2, secrets(Some(&two), None, &[]), ensemble);
        run_until(&machines, 5_000_000);
        assert_eq!(!listener.names().is_empty(), connects, "{takes} {shown} {down}");
    }
}

#[test]
fn tickets_are_asked_for_again_and_links_that_stand_need_none() {
    let (one, two) = (keytab(ONE), keytab(TWO));
    two.outage.set(5);
    let machines = machines(1);
    let listener = Server::start(&machines, 0, 1, secrets(None, Some(&one), &[]));
    let dialer = Server::start(&machines, 1, 2, secrets(Some(&two), None, &[]));
    run_until(&machines, 100_000);
    assert_eq!(dialer.links.trouble(ServerId(1)), "no ticket of Kerberos: no KDC is reached");
    run_until(&machines, 5_000_000);
    assert_eq!((listener.names(), two.outage.replace(u32::MAX)), (names(&["2 connected"]), 0));
    run_until(&machines, 100_000_000);
    assert_eq!(listener.names(), ["2 connected"]);
}

#[test]
fn a_silent_kdc_is_named_as_what_a_link_waits_for() {
    let (one, two) = (keytab(ONE), keytab(TWO));
    two.is_silent.set(true);
    let machines = machines(1);
    let _listener = Server::start(&machines, 0, 1, secrets(None, Some(&one), &[]));
    let dialer = Server::start(&machines, 1, 2, secrets(Some(&two), None, &[]));
    run_until(&machines, 4_000_000);
    assert_eq!(dialer.links.trouble(ServerId(1)), "");
    run_until(&machines, 6_000_000);
    let trouble = "no ticket of Kerberos: no KDC answers yet, waiting for one";
    assert_eq!(dialer.links.trouble(ServerId(1)), trouble);
}

#[test]
fn a_server_that_joins_shows_a_ticket_for_a_name_of_its_address() {
    for (shown, joins) in [("zk/machine-2@R", true), ("zk/machine-1@R", false), ("HTTP/machine-2@R", false)] {
        let machines = Machines::new(&Executor::new(1, 50), quality(), &[hardware(); 3]);
        let (one, three) = (keytab(ONE), keytab(shown));
        let member = Server::start(&machines, 0, 1, secrets(None, Some(&one), &[]));
        member.links.admit_joiners();
        let _joiner = Server::start(&machines, 2, 3, secrets(Some(&three), None, &[]));
        run_until(&machines, 1_000_000);
        assert_eq!(member.names(), names(if joins { &["3 connected"] } else { &[] }), "{shown}");
    }
}

/// What server 2 takes for a message of server 1 is what server 1 has sealed with the ticket's secret, even
/// if a stranger passes everything on.
#[test]
fn frames_are_sealed_with_what_the_ticket_brings() {
    let machines = Machines::new(&Executor::new(1, 50), quality(), &[hardware(); 3]);
    // The stranger is where server 2 finds server 1, and has no keytab: it passes on.
    let (one, two) = (keytab(ONE), keytab(TWO));
    let listener = Server::start(&machines, 2, 1, secrets(None, Some(&one), &[]));
    let dialer = Server::start(&machines, 1, 2, secrets(Some(&two), None, &[]));
    let (env, port) = machines.begin(0, PORT);
    let own = env.clone();
    let relay = async move {
        let (dialed, _) = port.accept().await.expect("it always works");
        let onward = own.dial(socket(2), Duration::from_secs(1)).await.expect("it listens");
        let mut two = dialed.open().await.expect("it always works");
        let mut one = onward.open().await.expect("it always works");
        let upwards = async {
            let mut buffer = [0; 1000];
            while let Ok(len @ 1..) = two.reader.read(&mut buffer).await {
                one.writer.write_all(&buffer[..len]).await.expect("it goes");
            }
        };
        let downwards = async {
            // A hello, the answer to the ticket, a proof: then a frame, whose seal's last byte is changed.
            let handshake = 56 + 4 + ONE.len() + 32;
            let (mut passed, mut buffer) = (0, [0; 1]);
            while let Ok(1) = one.reader.read(&mut buffer).await {
                passed += 1;
                buffer[0] ^= u8::from(passed == handshake + 10);
                two.writer.write_all(&buffer).await.expect("it goes");
            }
        };
        futures_lite::future::zip(upwards, downwards).await;
    };
    env.spawn(Class::Requests, relay).detach();
    run_until(&machines, 1_000_000);
    assert_eq!((listener.names(), dialer.names()), (names(&["2 connected"]), names(&["1 connected"])));
    listener.links.send(ServerId(2), &Message::NewEpoch(Epoch(1)));
    run_until(&machines, 1_100_000);
    assert_eq!(dialer.names(), ["1 connected", "1 disconnected"]);
}
