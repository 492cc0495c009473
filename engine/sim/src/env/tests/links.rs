//! The host's links between servers, over simulated connections.

use ringkeeper_engine::level::Level;
use ringkeeper_engine::zab::Message;
use ringkeeper_host::links::{MAGIC, Secrets};
use ringkeeper_wire::Epoch;

use super::strangers::{Server, accepting, between, dialing};
use super::*;
use crate::random::Random;

/// Output that waits for a peer, beyond which it is disconnected.
const OUTPUT_BYTES_MAX: u64 = 128 << 20;

fn both(machines: &Machines) -> [Server; 2] {
    [0, 1].map(|number| Server::start(machines, number, number as u64 + 1, b"secret"))
}

fn epoch(number: u32) -> Message {
    Message::NewEpoch(Epoch(number))
}

#[test]
fn messages_go_both_ways_between_connected_and_disconnected() {
    for seed in 0..50 {
        let machines = machines(seed);
        let [one, two] = both(&machines);
        one.links.send(ServerId(2), &epoch(9));
        run_until(&machines, 1_000_000);
        for number in 0..3 {
            one.links.send(ServerId(2), &epoch(number));
            two.links.send(ServerId(1), &epoch(10 + number));
        }
        run_until(&machines, 1_100_000);
        machines.network().break_off(0, 1);
        run_until(&machines, 1_110_000);
        let expected = ["2 connected", "epoch 10", "epoch 11", "epoch 12", "2 disconnected"];
        assert_eq!(one.names(), expected, "seed {seed}");
        let expected = ["1 connected", "epoch 0", "epoch 1", "epoch 2", "1 disconnected"];
        assert_eq!(two.names(), expected, "seed {seed}");
    }
}

#[test]
fn a_connection_dialed_anew_takes_the_place_of_the_old_one() {
    for seed in 0..50 {
        let machines = machines(seed);
        let [one, _two] = both(&machines);
        run_until(&machines, 1_000_000);
        // The dialer's machine loses its power, and nobody tells the listener.
        machines.end(1, 3_600_000_000);
        let two = Server::start(&machines, 1, 2, b"secret");
        run_until(&machines, 2_000_000);
        two.links.send(ServerId(1), &epoch(1));
        run_until(&machines, 3_000_000);
        let expected = ["2 connected", "2 disconnected", "2 connected", "epoch 1"];
        assert_eq!(one.names(), expected, "seed {seed}");
    }
}

#[test]
fn a_peer_that_does_not_read_is_cut_off_and_its_output_dropped() {
    let machines = machines(1);
    let [one, _two] = both(&machines);
    run_until(&machines, 1_000_000);
    machines.network().block(0, 1);
    let long = Message::Forward(vec![0; 4 << 20].into());
    (0..2 * OUTPUT_BYTES_MAX / (4 << 20)).for_each(|_| one.links.send(ServerId(2), &long));
    run_until(&machines, 1_100_000);
    assert_eq!(one.names(), ["2 connected", "2 disconnected"]);
    machines.network().unblock(0, 1);
    run_until(&machines, 10_000_000);
    assert_eq!(one.names(), ["2 connected", "2 disconnected", "2 connected"]);
}

#[test]
fn servers_without_a_common_secret_refuse_each_other_and_say_so() {
    let machines = machines(1);
    let one = Server::start(&machines, 0, 1, b"right");
    let two = Server::start(&machines, 1, 2, b"wrong");
    run_until(&machines, 5_000_000);
    assert!(one.names().is_empty() && two.names().is_empty());
    let trouble = two.links.trouble(ServerId(1));
    assert!(trouble.contains("ringkeeper.peerSecretFile"), "{trouble}");
}

#[test]
fn a_listener_takes_those_who_prove_one_of_several_secrets_and_seals_with_it() {
    let accepted = |accepted: &[&[u8]]| Secrets {
        own: b"own".as_slice().into(),
        accepted: accepted.iter().map(|&it| it.into()).collect(),
        kerberos: None,
    };
    for (taken, dialer, connects) in [
        (&[&b"a:1"[..], b"b:2"][..], &b"b:2"[..], true),
        (&[b"a:1", b"b:2"], b"a:2", false),
        (&[b"a:1", b"b:2"], b"own", false),
        (&[b"a:1", b"b:2"], b"", false),
        (&[b"a:1", b""], b"", true),
        (&[], b"", false),
    ] {
        let machines = machines(1);
        let one = Server::start(&machines, 0, 1, accepted(taken));
        let two = Server::start(&machines, 1, 2, dialer);
        run_until(&machines, 1_000_000);
        two.links.send(ServerId(1), &epoch(1));
        run_until(&machines, 1_100_000);
        let expected: &[&str] = if connects { &["2 connected", "epoch 1"] } else { &[] };
        assert_eq!(one.names(), expected, "{dialer:?}");
    }
}

#[test]
fn a_server_that_is_not_the_one_dialed_is_refused() {
    let machines = machines(1);
    let _other = Server::start(&machines, 0, 3, b"secret");
    let two = Server::start(&machines, 1, 2, b"secret");
    run_until(&machines, 5_000_000);
    assert!(two.names().is_empty(), "{:?}", two.names());
    assert!(!two.links.trouble(ServerId(1)).is_empty());
}

#[test]
fn a_certificate_has_to_bear_the_name_of_the_member_and_both_ends_are_told() {
    for (names, trouble) in [
        (["machine-0", "machine-1"], ""),
        (["machine-7", "machine-1"], "server 1 does not bear the name machine-0"),
        (["machine-0", "machine-7"], "server 1 refuses this server: its certificate"),
        (["machine-1", "machine-0"], "server 1 does not bear the name machine-0"),
    ] {
        let machines = machines(1);
        (0..).zip(names).for_each(|(number, name)| machines.network().certify(number, name));
        let [one, two] = both(&machines);
        run_until(&machines, 5_000_000);
        let said = two.links.trouble(ServerId(1));
        assert!(said.contains(trouble) && said.is_empty() == trouble.is_empty(), "{names:?}: {said}");
        assert_eq!(
            (one.names().is_empty(), two.names().is_empty()),
            (!trouble.is_empty(), !trouble.is_empty())
        );
    }
}

/// How many bytes the first server says to a stranger that sends these, and when it hangs up. It requires
/// this level.
fn answer_to(bytes: Vec<u8>, level: u8) -> (usize, Option<u64>) {
    let machines = machines(1);
    let server = Server::start(&machines, 0, 1, b"secret");
    server.links.require(Level(level));
    let (env, _) = machines.begin(1, PORT);
    let answer = Rc::new(Cell::new((0, None)));
    let (own, heard) = (env.clone(), Rc::clone(&answer));
    let stranger = async move {
        let stream = own.dial(socket(0), Duration::from_secs(1)).await.expect("it listens");
        let Connection { mut reader, mut writer, .. } = stream.open().await.expect("it always works");
        writer.write_all(&bytes).await.expect("sent");
        let mut buffer = [0; 1000];
        while let Ok(len @ 1..) = reader.read(&mut buffer).await {
            heard.set((heard.get().0 + len, None));
        }
        heard.set((heard.get().0, Some(own.now().monotonic_ms)));
    };
    env.spawn(Class::Requests, stranger).detach();
    run_until(&machines, 10_000_000);
    assert!(server.names().is_empty(), "{:?}", server.names());
    answer.get()
}

#[test]
fn strangers_are_told_apart_by_their_first_bytes_or_run_out_of_time() {
    let mut hello = MAGIC.to_vec();
    hello.extend([2_u64, 1].iter().flat_map(|id| id.to_le_bytes()));
    hello.extend([7; 32]);
    let mut wrong_version = hello.clone();
    wrong_version[7] = 6;
    for bytes in [wrong_version, vec![0x55; 500]] {
        assert!(matches!(answer_to(bytes, 0), (0, Some(0..100))));
    }
    assert!(matches!(answer_to(b"RK".to_vec(), 0), (0, Some(2000..2100))));
    assert!(matches!(answer_to(hello.clone(), 0), (56, Some(2000..2100))), "it waits for the proof");
    hello.extend([0; 32]);
    assert!(matches!(answer_to(hello, 0), (56, Some(0..100))), "nothing is proved to who proves nothing");
}

#[test]
fn a_server_that_cannot_do_the_level_is_refused() {
    for (level, oldest) in [(0, 7), (1, 9), (2, 10)] {
        for version in 7..=11 {
            let mut hello = MAGIC.to_vec();
            hello[7] = version;
            hello.extend([2_u64, 1].iter().flat_map(|id| id.to_le_bytes()));
            hello.extend([7; 32]);
            let answer = answer_to(hello, level);
            let waits_for_its_proof = matches!(answer, (56, Some(2000..2100)));
            assert!(waits_for_its_proof || matches!(answer, (0, Some(0..100))), "{answer:?}");
            assert_eq!(waits_for_its_proof, version >= oldest, "level {level}, {version}");
        }
    }
}

#[test]
fn a_peer_that_cannot_do_a_level_goes_when_the_level_is_reached_and_comes_back_when_it_is_lowered() {
    let machines = machines(1);
    let (one, two) = (Server::start(&machines, 0, 1, b"secret"), Server::start(&machines, 1, 2, b"secret"));
    two.links.speak_at_most(9);
    run_until(&machines, 1_000_000);
    one.links.require(Level(1));
    run_until(&machines, 2_000_000);
    assert_eq!(one.names(), ["2 connected"]);
    one.links.require(Level(2));
    run_until(&machines, 5_000_000);
    assert_eq!(one.names(), ["2 connected", "2 disconnected"]);
    one.links.require(Level(1));
    run_until(&machines, 10_000_000);
    assert_eq!(one.names(), ["2 connected", "2 disconnected", "2 connected"]);
}

#[test]
fn a_server_that_dials_one_that_cannot_do_the_level_says_both_levels() {
    let machines = machines(1);
    let (one, two) = (Server::start(&machines, 0, 1, b"secret"), Server::start(&machines, 1, 2, b"secret"));
    one.links.speak_at_most(9);
    two.links.require(Level(2));
    run_until(&machines, 5_000_000);
    assert!(two.names().is_empty(), "{:?}", two.names());
    let trouble = two.links.trouble(ServerId(1));
    assert!(trouble.contains("can do feature level 1, and this ensemble needs level 2"), "{trouble}");
}

/// What server 2 hears if machine 0, which it takes for server 1's, passes the handshakes on between them,
/// and says what `tamper` makes of the frames with epochs 1 and 2 that server 1 sends.
fn heard_through(secret: &[u8], tamper: impl Fn([Vec<u8>; 2]) -> Vec<u8> + 'static) -> Vec<String> {
    async fn pass(from: &mut (impl AsyncReadExt + Unpin), to: &mut (impl AsyncWriteExt + Unpin), len: usize) {
        to.write_all(&take(from, len).await).await.expect("it goes");
    }
    async fn take(from: &mut (impl AsyncReadExt + Unpin), len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        from.read_exact(&mut bytes).await.expect("it comes");
        bytes
    }
    async fn frame(from: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
        let length = take(from, 4).await;
        let len = u32::from_le_bytes(length[..].try_into().expect("four bytes"));
        [length, take(from, len as usize).await].concat()
    }
    let machines = Machines::new(&Executor::new(1, 50), quality(), &[hardware(); 3]);
    let one = Server::start(&machines, 2, 1, secret);
    let two = Server::start(&machines, 1, 2, secret);
    let (env, listener) = machines.begin(0, PORT);
    let own = env.clone();
    let relay = async move {
        let (dialed, _) = listener.accept().await.expect("it always works");
        let dialed = dialed.open().await.expect("it always works");
        let Connection { reader: mut from_two, writer: mut to_two, .. } = dialed;
        let stream = own.dial(socket(2), Duration::from_secs(1)).await.expect("it listens");
        let stream = stream.open().await.expect("it always works");
        let Connection { reader: mut from_one, writer: mut to_one, .. } = stream;
        for len in [56, 32] {
            pass(&mut from_two, &mut to_one, len).await;
            pass(&mut from_one, &mut to_two, len).await;
        }
        let frames = [frame(&mut from_one).await, frame(&mut from_one).await];
        to_two.write_all(&tamper(frames)).await.expect("sent");
        std::future::pending::<()>().await;
    };
    env.spawn(Class::Requests, relay).detach();
    run_until(&machines, 1_000_000);
    [1, 2].iter().for_each(|number| one.links.send(ServerId(2), &epoch(*number)));
    run_until(&machines, 1_500_000);
    two.names()
}

#[test]
fn bytes_that_are_no_message_end_the_connection() {
    for garbage in [&[1, 0, 0, 0, 255][..], &[1, 0, 0, 0, 0], &[255; 4]] {
        let heard = heard_through(b"", |_| garbage.to_vec());
        assert_eq!(heard, ["1 connected", "1 disconnected"], "{garbage:?}");
    }
}

type Tamper = fn([Vec<u8>; 2]) -> Vec<u8>;

fn changed([mut one, two]: [Vec<u8>; 2], at: usize) -> Vec<u8> {
    one[at] ^= 1;
    [one, two].concat()
}

#[test]
fn servers_that_share_a_secret_take_frames_as_they_were_sent_alone() {
    let tampered: [(&str, Tamper, &[&str]); 6] = [
        ("as it is", |frames| frames.concat(), &["1 connected", "epoch 1", "epoch 2"]),
        ("a message is changed", |frames| changed(frames, 5), &["1 connected", "1 disconnected"]),
        ("a seal is changed", |frames| changed(frames, 15), &["1 connected", "1 disconnected"]),
        ("left out", |[_, two]| two, &["1 connected", "1 disconnected"]),
        ("repeated", |[one, _]| one.repeat(2), &["1 connected", "epoch 1", "1 disconnected"]),
        ("swapped", |[one, two]| [two, one].concat(), &["1 connected", "1 disconnected"]),
    ];
    for (what, tamper, expected) in tampered {
        assert_eq!(heard_through(b"secret", tamper), expected, "{what}");
    }
}

/// The fuzz target `links` does the same for longer.
#[test]
fn whatever_strangers_say_they_are_told_nothing_and_a_connection_stands_only_between_two_servers() {
    for seed in 0..100 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut bytes: Vec<u8> = (0..random.index(300)).map(|_| random.next().to_le_bytes()[0]).collect();
        between(&bytes);
        between(&bytes[..bytes.len().min(3)]);
        bytes.splice(..0, if random.chance(500) { &MAGIC[..] } else { &[] }.iter().copied());
        accepting(&bytes);
        dialing(&bytes);
    }
}
