//! What must hold whatever bytes come from clients, from peers and in snapshots. Shared by the fuzz targets
//! and by `tests/hostile_bytes.rs`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use ringkeeper_engine::acl::Acl;
use ringkeeper_engine::application::{Application, Effect};
use ringkeeper_engine::fourletter::Whitelist;
use ringkeeper_engine::message::{ConnId, Serving, ShardId, ToShard};
use ringkeeper_engine::replica::{Now, Output, Replica, ReplicaSettings};
use ringkeeper_engine::sasl::{self, ScramUsers, Users};
use ringkeeper_engine::shard::{self, AfterWrite, Settings as ShardSettings, Shard};
use ringkeeper_engine::snapshot::{Decoder, Encoder};
use ringkeeper_engine::state::State;
use ringkeeper_engine::steps;
use ringkeeper_engine::txn::{
    Create, FailedMulti, Session, SetAcl, SetData, Txn, TxnOp, Update, decode_batch, encode_batch,
};
use ringkeeper_engine::zab::{Checksum, Message};
use ringkeeper_wire::frame::{begin_frame, end_frame, next_frame};
use ringkeeper_wire::scram::{ServerFirst, Verifier};
use ringkeeper_wire::{
    ConnectRequest, Epoch, ErrorCode, OpCode, Record, ReplyHeader, RequestHeader, SaslRequest, ServerId,
    SessionId, SetSaslResponse, Xid, Zxid, digest_md5,
};
use rkyv::util::AlignedVec;

const CLIENT: ConnId = ConnId(1);

/// What decodes from a peer's frame says the same when it is encoded.
pub(crate) fn peers(frame: &[u8]) {
    let Ok(message) = Message::decode(frame) else { return };
    let mut encoded = Vec::new();
    message.encode(&mut encoded);
    let again = Message::decode(&encoded).expect("encoded a moment ago");
    let mut twice = Vec::new();
    again.encode(&mut twice);
    assert_eq!(encoded, twice);
}

/// A batch of a log or a peer is refused, or is one that a follower can take.
pub(crate) fn batches(bytes: &[u8]) {
    let Ok(txns) = decode_batch(bytes) else { return };
    let mut state = State::new(1);
    for txn in &txns {
        let _ = state.apply(txn);
    }
}

/// A batch of every kind of transaction, in which some bytes are others: each three bytes of `damage` name a
/// place and what stands there instead.
pub(crate) fn damaged_batches(damage: &[u8]) {
    let mut bytes = encoded(&sound_txns());
    for change in damage.as_chunks().0 {
        let &[low, high, value] = change;
        let place = usize::from(u16::from_le_bytes([low, high])) % bytes.len();
        bytes[place] = value;
    }
    batches(&bytes);
}

/// Transactions of all kinds.
pub(crate) fn sound_txns() -> Vec<Txn> {
    let path = || "/a".into();
    let acl = Acl::read_only();
    let create = |path: &str, raw_owner| {
        let data = Some([1, 2].as_slice().into());
        let (path, acl) = (path.into(), acl.clone());
        Update::Create(Create { path, data, acl, raw_owner, parent_cversion: 1, reply_with_stat: true })
    };
    let set_data = || Update::SetData(SetData { path: path(), data: None, version: 1 });
    let set_acl = Update::SetAcl(SetAcl { path: path(), acl: Acl::read_only(), aversion: 1 });
    let ops = vec![
        TxnOp::CreateSession(Session { timeout_ms: 4000, password: [7; 16] }),
        TxnOp::Update(create("/a", 0)),
        TxnOp::Update(create("/a/ephemeral", 5)),
        TxnOp::Multi(vec![create("/a/b", 0), set_data(), set_acl, Update::Check(path())]),
        TxnOp::FailedMulti(FailedMulti { ops: 3, failed: 1, code: ErrorCode::BadVersion }),
        TxnOp::Error(ErrorCode::NoNode),
        TxnOp::Update(Update::Delete("/a/b".into())),
        TxnOp::Reconfig(set_data()),
        TxnOp::CloseSessionListed(vec!["/a".into()]),
        TxnOp::CloseSession,
    ];
    let txn = |(zxid, op)| Txn { zxid: Zxid(zxid), session: SessionId(5), xid: Xid(1), time_ms: 1, op };
    (1..).zip(ops).map(txn).collect()
}

/// A batch as a leader encodes it.
pub(crate) fn encoded(txns: &[Txn]) -> AlignedVec {
    let mut bytes = AlignedVec::new();
    encode_batch(txns, &mut bytes);
    bytes
}

/// What a learner's replica says to the leader's, and what is said to a learner's.
pub(crate) fn replicas(bytes: &[u8]) {
    let mut leader = replica();
    // Refused or not: the leader goes on.
    let _ = leader.forwarded(Now::default(), ServerId(2), &Bytes::copy_from_slice(bytes));
    while leader.next_batch(Zxid::ZERO, Checksum::NONE).is_some() {}
    leader.commit(Now::default(), leader.last_executed());
    let mut learner = Replica::new(ReplicaSettings::new(ServerId(2), [7; 32]), State::new(1));
    learner.follow();
    let _ = learner.directed(bytes);
}

/// Blocks behind a sound first one: each is as long as its first byte says, times 64.
pub(crate) fn snapshots(mut bytes: &[u8]) {
    let mut encoder = Encoder::new(Arc::new(State::new(1)));
    let mut first = AlignedVec::new();
    encoder.next(&mut first);
    let mut decoder = Decoder::new();
    decoder.block(&first).expect("a sound block");
    while let Some((&len, rest)) = bytes.split_first() {
        let (block, rest) = rest.split_at(rest.len().min(usize::from(len) * 64));
        let mut aligned: AlignedVec = AlignedVec::new();
        aligned.extend_from_slice(block);
        if decoder.block(&aligned).is_err() {
            return;
        }
        bytes = rest;
    }
    let _ = decoder.finish();
}

/// A server alone is sent `bytes`: by a connection that has shown nothing, where they may be a four-letter
/// word, and by one with a session. Whatever they ask is carried out to its end.
pub(crate) fn clients(bytes: &[u8]) {
    let mut server = Server::new(ShardSettings {
        four_letter_words: Whitelist::parse("*"),
        slice_visits_max: 1,
        notification_copies_max: 0,
        notifications_max: 1,
        ..ShardSettings::default()
    });
    let stranger = ConnId(2);
    server.shard.connected(0, stranger, peer());
    server.turn(|server| server.shard.received(0, stranger, bytes));
    server.run();
    for part in bytes.chunks(1 + bytes.len() / 2) {
        server.turn(|server| server.shard.received(0, CLIENT, part));
        server.run();
    }
    let (steps, steps_max) = (server.steps_max, 1_000 + 4 * bytes.len() as u64);
    assert!(steps <= steps_max, "{steps} steps at once for {} bytes", bytes.len());
    server.shard.disconnected(0, CLIENT);
    server.shard.disconnected(0, stranger);
    server.run();
    let report = server.shard.report();
    let left = (report.outstanding, report.output_bytes, report.watches.watches, report.connection_count);
    assert_eq!(left, (0, 0, 0, 0), "nothing is left of connections that are gone");
}

/// The hash of bob's password.
const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
                        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                        wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

/// Separates the tokens of [`logins`].
const NEXT_TOKEN: u8 = 0xff;

/// Stands in a token for the nonce that the server has sent last.
const NONCE: u8 = 0xfe;

/// A client of a server with users of both mechanisms sends these tokens, and nobody logs in who does not
/// know the password. What is said to a client, or stands in a file, is read, too.
pub(crate) fn logins(bytes: &[u8]) {
    let _ = digest_md5::respond(bytes, "bob", "pw", "x");
    if let Ok(challenge) = ServerFirst::parse(bytes) {
        assert_eq!(ServerFirst::parse(challenge.to_string().as_bytes()), Ok(challenge));
    }
    if let Ok(verifier) = String::from_utf8_lossy(bytes).parse::<Verifier>() {
        assert_eq!(verifier.to_string().parse(), Ok(verifier));
    }
    let mut users = Users::default();
    users.insert("bob", "pw");
    let verifiers = vec![("bob".to_owned(), VERIFIER.parse().expect("a verifier"))];
    let scram = Some(Arc::new(ScramUsers::new(verifiers, b"decoys".to_vec()).expect("a user")));
    let sasl = sasl::Settings { users: Some(users), scram, failed_clients_stay: true, ..Default::default() };
    let mut server = Server::new(ShardSettings { sasl, ..ShardSettings::default() });
    let mut nonce = Vec::new();
    for token in bytes.split(|&byte| byte == NEXT_TOKEN) {
        let token = token.iter().flat_map(|byte| match *byte {
            NONCE => nonce.clone(),
            byte => vec![byte],
        });
        let Some(answer) = server.answer_token(&token.collect::<Vec<_>>()) else { continue };
        assert!(!answer.starts_with(b"rspauth=") && !answer.starts_with(b"v="), "{answer:?}");
        let separator = |byte: &u8| matches!(byte, b'"' | b',');
        let mut texts = answer.split(separator).map(|text| text.strip_prefix(b"r=").unwrap_or(text));
        nonce = texts.rfind(|text| text.len() >= 40).unwrap_or_default().to_vec();
    }
}

/// Logins that lack the proof.
pub(crate) fn unproved_logins() -> Vec<Vec<u8>> {
    let (next, nonce) = ([NEXT_TOKEN], [NONCE]);
    let proof = "A".repeat(43);
    let scram = |first: &str, header: &str| {
        let last = format!(",p={proof}=");
        [first.as_bytes(), &next, b"c=", header.as_bytes(), b",r=", &nonce, last.as_bytes()].concat()
    };
    let digest = |user: &str, more: &str| {
        let user = format!("charset=utf-8,username=\"{user}\",realm=\"zk-sasl-md5\",nonce=\"");
        let proof = "0".repeat(32);
        let rest = format!(
            "\",nc=00000001,cnonce=\"c\",digest-uri=\"zookeeper/zk-sasl-md5\",response={proof},qop=auth{more}"
        );
        [&next[..], user.as_bytes(), &nonce, rest.as_bytes()].concat()
    };
    vec![
        scram("n,,n=bob,r=c", "biws"),
        scram("y,,n=eve=2C=3D,r=c", "eSws"),
        scram("n,a=eve,n=bob,r=c", "bixhPWV2ZSw="),
        digest("bob", ""),
        digest("m\u{fc}ller", ",authzid=\"bob\""),
        VERIFIER.into(),
        b"r=abc,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".into(),
        b"realm=\"zk-sasl-md5\",nonce=\"x\",charset=utf-8,algorithm=md5-sess".into(),
    ]
}

/// A leader and its shard, with a client that has a session.
pub(crate) struct Server {
    shard: Shard,
    leader: Replica,
    /// The most steps that one call has taken since the last [`Self::steps_of`].
    steps_max: u64,
    /// What the client was sent last.
    sent: Vec<u8>,
}

impl Server {
    pub(crate) fn new(settings: ShardSettings) -> Self {
        let leader = replica();
        let shard = Shard::new(ShardId(0), settings, Arc::clone(leader.committed()));
        let mut server = Self { shard, leader, steps_max: 0, sent: Vec::new() };
        server.shard.deliver(0, ToShard::Serving(Serving::Yes));
        server.shard.connected(0, CLIENT, peer());
        let mut hello = Vec::new();
        let start = begin_frame(&mut hello);
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 10_000,
            session_id: SessionId(0),
            password: None,
            read_only: Some(false),
        };
        request.encode(&mut hello);
        end_frame(&mut hello, start).expect("short");
        server.shard.received(0, CLIENT, &hello);
        server.run();
        server
    }

    /// The client sends these bytes, which are read and answered as the shell does: the most steps that are
    /// taken between two turns of others.
    pub(crate) fn steps_of(&mut self, bytes: &[u8]) -> u64 {
        self.steps_max = 0;
        for read in bytes.chunks(64 << 10) {
            self.turn(|server| server.shard.received(0, CLIENT, read));
            self.run();
        }
        self.steps_max
    }

    /// The token with which the server answers this one, if it does.
    fn answer_token(&mut self, token: &[u8]) -> Option<Vec<u8>> {
        let mut request = Vec::new();
        let start = begin_frame(&mut request);
        RequestHeader { xid: Xid(1), op: OpCode::Sasl.to_wire() }.encode(&mut request);
        SaslRequest { token: Some(token) }.encode(&mut request);
        end_frame(&mut request, start).ok()?;
        self.sent.clear();
        self.steps_of(&request);
        let (reply, _) = next_frame(&self.sent, 1 << 20).ok().flatten()?;
        let body = reply.get(ReplyHeader::LEN..)?;
        Some(SetSaslResponse::from_bytes(body).ok()?.token?.to_vec())
    }

    /// Does what is done before others have their turn.
    fn turn<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let (returned, steps) = steps::of(|| act(self));
        self.steps_max = self.steps_max.max(steps);
        returned
    }

    /// What the shell does, until nothing is left to do.
    fn run(&mut self) {
        loop {
            let more = self.turn(|server| server.shard.next_slice(0));
            while let Some(read) = self.shard.next_long_read() {
                // Beside the shard.
                let reply = read.carry_out();
                self.turn(|server| server.shard.long_read_done(0, reply));
            }
            while let Some(effect) = self.shard.next_effect() {
                if let shard::Effect::FourLetter { conn, .. } = effect {
                    self.shard.answer(conn, "an answer");
                }
            }
            while let Some(conn) = self.shard.next_dirty().or_else(|| self.shard.next_notified()) {
                self.turn(|Self { shard, sent, .. }| {
                    let mut output = Vec::new();
                    let after = shard.take_output(conn, &mut output);
                    if output.is_empty() && after != AfterWrite::Continue {
                        shard.disconnected(0, conn);
                    } else {
                        shard.written(0, conn, output.len());
                        if conn == CLIENT {
                            *sent = output;
                        }
                    }
                });
            }
            while self.shard.next_readable().is_some() {}
            let batch = self.shard.take_requests();
            if batch.is_empty() && !more && !self.shard.has_work() {
                return;
            }
            self.turn(|server| server.leader.requests(Now::default(), ShardId(0), batch));
            self.lead();
            while self.leader.has_due() {
                self.turn(|server| server.leader.lead_waiting(Now::default()));
                self.lead();
            }
        }
    }

    fn lead(&mut self) {
        while self.leader.next_batch(Zxid::ZERO, Checksum::NONE).is_some() {}
        self.leader.commit(Now::default(), self.leader.last_executed());
        loop {
            let effects: Vec<_> = self.leader.take_effects().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Output(Output::Shard(_, message) | Output::AllShards(message)) => {
                        self.turn(|server| server.shard.deliver(0, message));
                    }
                    Effect::ConfirmLeadership(round) => self.leader.leadership_confirmed(round, Zxid::ZERO),
                    _ => {}
                }
            }
        }
    }
}

fn peer() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 1))
}

fn replica() -> Replica {
    let mut leader = Replica::new(ReplicaSettings::new(ServerId(1), [7; 32]), State::new(1));
    leader.lead(Now::default(), Epoch(1));
    leader
}
