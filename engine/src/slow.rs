//! Slow requests: how long each stage took, and which one they waited for mostly.
//!
//! A request carries nothing but the time at which it was received. When it was slow, its shard tells of it
//! ([`SlowRequest`]). The leader core keeps the times of the last batches
//! ([`Batches`](crate::batches::Batches)), among them those of the request's transaction; [`explain`] puts
//! both together. Sampled requests are told of in the same way, for traces ([`crate::trace`]).

use std::fmt;
use std::net::SocketAddr;

use ringkeeper_wire::{OpCode, ServerId, SessionId, Xid, Zxid};

use crate::batches::BatchTimes;
use crate::trace::TraceId;

/// A request that took longer than `ringkeeper.slowRequestMs`, or that is sampled. Times are microseconds on
/// the server's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    /// Who asked.
    pub session: SessionId,
    /// The address of its client.
    pub client: SocketAddr,
    /// The client's number of it.
    pub xid: Xid,
    /// Its opcode, as received.
    pub op: i32,
    /// Its first path, cut; `None` if it has none, or if it is no longer known.
    pub path: Option<String>,
    /// Its length with the header, in bytes; 0 if it is no longer known.
    pub bytes: usize,
    /// Of its transaction, if it has one.
    pub zxid: Option<Zxid>,
    /// When it was received.
    pub received_us: u64,
    /// When it was decoded.
    pub decoded_us: u64,
    /// Until then its client had not read enough of the replies before it.
    pub unread: bool,
    /// When its turn came; of a write when it was answered.
    pub began_us: u64,
    /// When its reply was made.
    pub answered_us: u64,
    /// When the socket took the reply.
    pub written_us: u64,
    /// Slow requests of this shard before it of which nothing but their number is told.
    pub untold: u64,
    /// It was quick: it is told of since it is sampled.
    pub sampled: bool,
}

impl SlowRequest {
    /// The id of its trace.
    #[must_use]
    pub fn trace(&self) -> TraceId {
        TraceId::of(self.session, self.xid, self.zxid)
    }

    /// From its arrival until the socket took its reply, microseconds.
    #[must_use]
    pub const fn total_us(&self) -> u64 {
        self.written_us.saturating_sub(self.received_us)
    }
}

/// A part of the time that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Until it was decoded: as many requests of all clients waited as may, or one that it must not pass.
    Input,
    /// Until it was decoded: its client had not read enough of the replies before it.
    Unread,
    /// Until the leader core took the first request of its batch from a shard.
    Queue,
    /// The requests of its batch were executed on the leader.
    Prepare,
    /// Until its batch was complete, which waits for the append of the one before.
    Batch,
    /// On the way to the leader and back, and in the leader until its batch was proposed.
    Leader,
    /// Until its batch was durable in this server's log.
    Log,
    /// Until a quorum had acknowledged its batch, or had confirmed the leader of a sync.
    Quorum,
    /// Until it was committed; finer times are not known.
    Commit,
    /// Until its shard had sent the events and replies before it.
    Publish,
    /// A read waited for requests of its connection before it.
    Wait,
    /// A read was executed, in slices or beside the shard.
    Read,
    /// Until the socket took its reply: the client does not read, or the network is slow.
    Output,
    /// The server was off the CPU in one or more of the other stages: the host was paused or busy.
    Pause,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Input,
        Self::Unread,
        Self::Queue,
        Self::Prepare,
        Self::Batch,
        Self::Leader,
        Self::Log,
        Self::Quorum,
        Self::Commit,
        Self::Publish,
        Self::Wait,
        Self::Read,
        Self::Output,
        Self::Pause,
    ];

    /// Its name in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Unread => "unread",
            Self::Queue => "queue",
            Self::Prepare => "prepare",
            Self::Batch => "batch",
            Self::Leader => "leader",
            Self::Log => "log",
            Self::Quorum => "quorum",
            Self::Commit => "commit",
            Self::Publish => "publish",
            Self::Wait => "wait",
            Self::Read => "read",
            Self::Output => "output",
            Self::Pause => "pause",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// A time in which a server was off the CPU, microseconds on its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it began.
    pub from_us: u64,
    /// When it ended.
    pub until_us: u64,
}

/// How long a stage took, and when it was; microseconds on the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// When it began.
    pub from_us: u64,
    /// When it ended.
    pub until_us: u64,
    /// The time between without that of pauses; of the pauses, without that between them.
    pub took_us: u64,
}

/// Where the time of a slow request went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The request.
    pub request: SlowRequest,
    /// The stages that took time, in order. They add up to [`SlowRequest::total_us`].
    pub stages: Vec<StageTime>,
    /// The longest one.
    pub mostly: Stage,
    /// The peer that the quorum waited for last.
    pub peer: Option<ServerId>,
}

/// Shorter stages are not worth a place in a line.
const SHOWN_US_MIN: u64 = 100;

/// Shows the stages: `log 1.2 ms, quorum 310.0 ms`.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.stages.iter().filter(|time| time.took_us >= SHOWN_US_MIN);
        for (at, &StageTime { stage, took_us: us, .. }) in shown.enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}.{} ms", stage.name(), us / 1000, us % 1000 / 100)?;
        }
        Ok(())
    }
}

/// Says where the time of a request went, by the times of the batch that has its transaction, and by when the
/// server was off the CPU.
#[must_use]
pub fn explain(request: SlowRequest, batch: Option<&BatchTimes>, pauses: &[Pause]) -> Explanation {
    let mut way = Way::from(request.received_us, pauses);
    let answered_us = request.answered_us;
    let input = if request.unread { Stage::Unread } else { Stage::Input };
    way.until(input, request.decoded_us);
    match batch.filter(|_| request.zxid.is_some()) {
        Some(batch) => way.of_batch(batch, answered_us),
        None if request.zxid.is_some() => way.until(Stage::Commit, answered_us),
        None if request.op == OpCode::Sync.to_wire() => way.until(Stage::Quorum, answered_us),
        None => {
            way.until(Stage::Wait, request.began_us.min(answered_us));
            way.until(Stage::Read, answered_us);
        }
    }
    way.until(Stage::Output, request.written_us);
    let stages = way.end();
    let mostly = stages.iter().max_by_key(|time| time.took_us).map_or(Stage::Output, |time| time.stage);
    let waited_for_quorum = stages.iter().any(|time| time.stage == Stage::Quorum);
    let peer = batch.and_then(|batch| batch.last_ack).filter(|_| waited_for_quorum);
    Explanation { request, stages, mostly, peer }
}

/// The leader's stages of another server's write: from its arrival, if that is known, until it was published.
pub(crate) fn stages_of_proposal(batch: &BatchTimes, published_us: u64) -> Vec<StageTime> {
    let mut way = Way::from(batch.forwarded_us.unwrap_or(batch.appended_us), &[]);
    way.of_batch(&BatchTimes { requests: None, ..*batch }, published_us);
    way.end()
}

/// The stages from a request's arrival on.
struct Way<'a> {
    at_us: u64,
    stages: Vec<StageTime>,
    pauses: &'a [Pause],
    paused: Option<StageTime>,
}

impl<'a> Way<'a> {
    const fn from(at_us: u64, pauses: &'a [Pause]) -> Self {
        Self { at_us, stages: Vec::new(), pauses, paused: None }
    }

    /// All stages, the pauses of this server last.
    fn end(self) -> Vec<StageTime> {
        let mut stages = self.stages;
        stages.extend(self.paused);
        stages
    }

    /// The stage lasted until this time, if that is after the ones before. What was a pause of it is none of
    /// it.
    fn until(&mut self, stage: Stage, until_us: u64) {
        let from_us = self.at_us;
        if until_us <= from_us {
            return;
        }
        let mut took_us = until_us - from_us;
        for pause in self.pauses {
            let (from_us, until_us) = (pause.from_us.max(from_us), pause.until_us.min(until_us));
            let Some(paused_us) = until_us.checked_sub(from_us).filter(|us| *us > 0) else { continue };
            took_us = took_us.saturating_sub(paused_us);
            let paused = StageTime { stage: Stage::Pause, from_us, until_us, took_us: 0 };
            let paused = self.paused.get_or_insert(paused);
            paused.until_us = until_us;
            paused.took_us += paused_us;
        }
        if took_us > 0 {
            self.stages.push(StageTime { stage, from_us, until_us, took_us });
        }
        self.at_us = until_us;
    }

    fn of_batch(&mut self, batch: &BatchTimes, answered_us: u64) {
        let appended_us = batch.appended_us.min(answered_us);
        let committed_us = batch.committed_us.unwrap_or(answered_us).min(answered_us);
        if batch.leads {
            if let Some(requests) = batch.requests {
                self.until(Stage::Queue, requests.taken_us.min(appended_us));
                self.until(Stage::Prepare, (self.at_us + requests.preparing_us).min(appended_us));
            }
            self.until(Stage::Batch, appended_us);
        } else {
            self.until(Stage::Leader, appended_us);
        }
        // A learner's own log is not waited for, unless it is needed for the quorum.
        if let Some(durable_us) = batch.durable_us.filter(|&us| us <= committed_us) {
            self.until(Stage::Log, durable_us);
        }
        self.until(Stage::Quorum, committed_us);
        self.until(Stage::Publish, answered_us);
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_wire::Epoch;

    use super::*;
    use crate::batches::Requests;

    const ZXID: Zxid = Zxid::new(Epoch(1), 7);

    fn write() -> SlowRequest {
        SlowRequest {
            session: SessionId(1),
            client: SocketAddr::from(([127, 0, 0, 1], 4711)),
            xid: Xid(1),
            op: OpCode::SetData.to_wire(),
            path: Some("/a".to_owned()),
            bytes: 10,
            zxid: Some(ZXID),
            received_us: 1_000,
            decoded_us: 1_000,
            unread: false,
            began_us: 1_900,
            answered_us: 1_900,
            written_us: 2_000,
            untold: 0,
            sampled: false,
        }
    }

    fn read() -> SlowRequest {
        SlowRequest { op: OpCode::GetData.to_wire(), zxid: None, began_us: 1_200, ..write() }
    }

    /// Each stage with its time.
    fn took(told: &Explanation) -> Vec<(Stage, u64)> {
        told.stages.iter().map(|time| (time.stage, time.took_us)).collect()
    }

    fn batch() -> BatchTimes {
        BatchTimes {
            first: ZXID,
            last: ZXID,
            leads: true,
            requests: Some(Requests { sent_us: 1_005, taken_us: 1_010, preparing_us: 20 }),
            forwarded_us: None,
            appended_us: 1_100,
            durable_us: Some(1_250),
            committed_us: Some(1_800),
            last_ack: Some(ServerId(3)),
        }
    }

    #[test]
    fn a_write_on_the_leader_is_told_by_all_its_stages() {
        let told = explain(write(), Some(&batch()), &[]);
        let stages = [
            (Stage::Queue, 10),
            (Stage::Prepare, 20),
            (Stage::Batch, 70),
            (Stage::Log, 150),
            (Stage::Quorum, 550),
            (Stage::Publish, 100),
            (Stage::Output, 100),
        ];
        assert_eq!(took(&told), stages);
        assert_eq!((told.mostly, told.peer), (Stage::Quorum, Some(ServerId(3))));
        assert_eq!(told.stages.iter().map(|time| time.took_us).sum::<u64>(), told.request.total_us());
    }

    #[test]
    fn a_slow_disk_of_the_leader_is_its_log_and_no_peers_matter() {
        let told = explain(write(), Some(&BatchTimes { durable_us: Some(1_800), ..batch() }), &[]);
        assert_eq!((told.mostly, told.peer), (Stage::Log, None));
    }

    #[test]
    fn a_request_that_its_connection_had_no_room_for_waited_in_the_input() {
        let late = SlowRequest { decoded_us: 1_150, ..read() };
        let stages = [(Stage::Input, 150), (Stage::Wait, 50), (Stage::Read, 700), (Stage::Output, 100)];
        assert_eq!(took(&explain(late.clone(), None, &[])), stages);
        let unread = explain(SlowRequest { unread: true, ..late }, None, &[]);
        assert_eq!(took(&unread)[0], (Stage::Unread, 150));
    }

    #[test]
    fn on_a_learner_the_way_to_the_leader_and_back_is_one_stage() {
        // Its own log was durable after the commit: nobody waited for it.
        let arrived = BatchTimes {
            leads: false,
            requests: None,
            appended_us: 1_700,
            durable_us: Some(1_850),
            ..batch()
        };
        let told = explain(write(), Some(&arrived), &[]);
        let stages =
            [(Stage::Leader, 700), (Stage::Quorum, 100), (Stage::Publish, 100), (Stage::Output, 100)];
        assert_eq!((took(&told).as_slice(), told.mostly), (&stages[..], Stage::Leader));
    }

    #[test]
    fn a_write_whose_batch_is_forgotten_is_told_roughly() {
        let told = explain(write(), None, &[]);
        assert_eq!(took(&told), [(Stage::Commit, 900), (Stage::Output, 100)]);
    }

    #[test]
    fn a_read_waits_for_its_turn_is_executed_and_written() {
        let told = explain(read(), None, &[]);
        assert_eq!(took(&told), [(Stage::Wait, 200), (Stage::Read, 700), (Stage::Output, 100)]);
        assert_eq!(told.mostly, Stage::Read);
        assert_eq!(told.to_string(), "wait 0.2 ms, read 0.7 ms, output 0.1 ms");
        let unread = SlowRequest { answered_us: 1_200, ..read() };
        assert_eq!(explain(unread, None, &[]).mostly, Stage::Output);
        let sync = SlowRequest { op: OpCode::Sync.to_wire(), ..read() };
        assert_eq!(explain(sync, None, &[]).mostly, Stage::Quorum);
    }

    #[test]
    fn a_pause_of_the_host_is_told_apart_from_the_stages_that_it_was_in() {
        let pause = |from_us, until_us| Pause { from_us, until_us };
        let told = explain(read(), None, &[pause(0, 900), pause(1_150, 1_300), pause(1_500, 1_890)]);
        assert_eq!(
            took(&told),
            [(Stage::Wait, 150), (Stage::Read, 210), (Stage::Output, 100), (Stage::Pause, 540)]
        );
        assert_eq!(told.mostly, Stage::Pause);
        let all = explain(read(), None, &[pause(500, 3_000)]);
        assert_eq!(took(&all), [(Stage::Pause, 1_000)]);
        let stages = &told.stages;
        assert!(stages.iter().all(|time| time.from_us < time.until_us), "{stages:?}");
        let pause = stages.last().expect("the pause");
        assert_eq!((pause.from_us, pause.until_us), (1_150, 1_890));
    }

    #[test]
    fn of_another_servers_write_the_leader_tells_its_own_part() {
        let batch = BatchTimes { forwarded_us: Some(1_060), ..batch() };
        let stages: Vec<_> = stages_of_proposal(&batch, 1_820)
            .iter()
            .map(|time| (time.stage, time.from_us, time.until_us))
            .collect();
        let expected = [
            (Stage::Batch, 1_060, 1_100),
            (Stage::Log, 1_100, 1_250),
            (Stage::Quorum, 1_250, 1_800),
            (Stage::Publish, 1_800, 1_820),
        ];
        assert_eq!(stages, expected);
    }

    #[test]
    fn names_of_stages_are_read_as_they_are_written() {
        assert!(Stage::ALL.into_iter().all(|stage| Stage::named(stage.name()) == Some(stage)));
    }
}
