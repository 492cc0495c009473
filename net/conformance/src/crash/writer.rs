//! A session that writes in a pipeline, and afterwards says whether it found what it must.

use std::collections::HashSet;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ringkeeper_wire::{OpCode, Response};

use super::model::{self, KEYS, PAIR, State, Write, durable_prefix};
use ringkeeper_testkit::{
    Client, Received, create_body, delete_body, multi_body, parse_reply, request_frame, set_data_body,
};

/// The directory in which all writers make sequential znodes.
pub(super) const SEQUENTIAL: &str = "/sequential";

/// Ephemerals kept at a time.
const EPHEMERALS_MAX: usize = 16;
/// Znodes made by multis are kept below this number, since reading them all back takes time.
const NODES_MAX: usize = 2_000;

/// One session's part in the run.
pub(super) struct Writer {
    /// Which of the writers.
    pub(super) index: usize,
    client: Client,
    timeout_ms: i32,
    pipeline: usize,
    rng: ChaCha8Rng,
    next_number: u64,
    ephemerals: Vec<u64>,
    /// The state when the round began.
    before: State,
    /// The round's writes, in the order sent.
    writes: Vec<Write>,
    acknowledged: usize,
    /// What the acknowledged sequential creates were told.
    names: Vec<(u64, String)>,
    last_zxid: i64,
}

impl Writer {
    /// Opens a session and makes the writer's directory.
    pub(super) fn open(
        server: SocketAddr,
        index: usize,
        pipeline: usize,
        timeout_ms: i32,
        seed: u64,
    ) -> Result<Self> {
        let mut client = Client::connect(server, timeout_ms)?;
        let before = State::initial();
        client.create(&directory(index), b"", 0)?;
        for (name, data) in &before.nodes {
            client.create(&format!("{}/{name}", directory(index)), data, 0)?;
        }
        Ok(Self {
            index,
            client,
            timeout_ms,
            pipeline,
            rng: ChaCha8Rng::seed_from_u64(seed),
            next_number: 1,
            ephemerals: Vec::new(),
            before,
            writes: Vec::new(),
            acknowledged: 0,
            names: Vec::new(),
            last_zxid: 0,
        })
    }

    /// Writes until the server is gone.
    pub(super) fn write_until_closed(&mut self) -> Result<()> {
        loop {
            let mut bytes = Vec::new();
            while self.writes.len() - self.acknowledged < self.pipeline {
                let write = self.next_write();
                bytes.extend_from_slice(&self.encode(&write));
                self.writes.push(write);
            }
            self.client.connection.send(&bytes)?;
            // Half a window at a time keeps the pipeline full and the frames together.
            for _ in 0..self.pipeline.div_ceil(2) {
                let received = self.client.connection.receive()?;
                if received == Received::Closed {
                    return Ok(());
                }
                self.acknowledge(&received)?;
            }
        }
    }

    fn acknowledge(&mut self, received: &Received) -> Result<()> {
        let Some(reply) = parse_reply(received)? else { return Ok(()) };
        ensure!(
            usize::try_from(reply.xid.0) == Ok(self.acknowledged),
            "reply {} in place of {}",
            reply.xid.0,
            self.acknowledged
        );
        let write = &self.writes[self.acknowledged];
        ensure!(reply.err == 0, "error {} to {write:?}", reply.err);
        ensure!(reply.zxid >= self.last_zxid, "zxid {:#x} after {:#x}", reply.zxid, self.last_zxid);
        self.last_zxid = reply.zxid;
        if let Write::Sequential { number } = *write
            && let Response::Create(response) = Response::decode(OpCode::Create, &reply.body)?
        {
            self.names.push((number, response.path.into_owned()));
        }
        self.acknowledged += 1;
        Ok(())
    }

    fn next_write(&mut self) -> Write {
        let number = self.next_number;
        self.next_number += 1;
        match self.rng.random_range(0..10) {
            0..2 => Write::Sequential { number },
            2 if self.ephemerals.len() < EPHEMERALS_MAX => {
                self.ephemerals.push(number);
                Write::Ephemeral { number }
            }
            2 | 3 if !self.ephemerals.is_empty() => {
                let index = self.rng.random_range(0..self.ephemerals.len());
                Write::DeleteEphemeral { number: self.ephemerals.swap_remove(index) }
            }
            4..6 if self.before.nodes.len() + self.writes.len() < NODES_MAX => Write::Multi { number },
            _ => Write::Set { key: self.rng.random_range(0..KEYS), number },
        }
    }

    /// The request for the next write; its xid is its place in the round.
    fn encode(&self, write: &Write) -> Vec<u8> {
        let path = |name: &str| format!("{}/{name}", directory(self.index));
        let (op, body) = match *write {
            Write::Set { key, number } => {
                (OpCode::SetData, set_data_body(&path(&model::key_name(key)), number.to_string().as_bytes()))
            }
            Write::Sequential { number } => {
                let data = format!("{}:{number}", self.index);
                (OpCode::Create, create_body(&format!("{SEQUENTIAL}/n-"), data.as_bytes(), 2))
            }
            Write::Ephemeral { number } => (
                OpCode::Create,
                create_body(&path(&model::ephemeral_name(number)), number.to_string().as_bytes(), 1),
            ),
            Write::DeleteEphemeral { number } => {
                (OpCode::Delete, delete_body(&path(&model::ephemeral_name(number))))
            }
            Write::Multi { number } => (OpCode::Multi, self.encode_multi(number)),
        };
        let xid = i32::try_from(self.writes.len()).expect("a round has fewer writes");
        request_frame(xid, op.to_wire(), &body)
    }

    fn encode_multi(&self, number: u64) -> Vec<u8> {
        let path = |name: &str| format!("{}/{name}", directory(self.index));
        let data = number.to_string().into_bytes();
        multi_body([
            (OpCode::SetData, set_data_body(&path(PAIR[0]), &data)),
            (OpCode::Create, create_body(&path(&model::multi_name(number)), &data, 0)),
            (OpCode::SetData, set_data_body(&path(PAIR[1]), &data)),
        ])
    }

    /// Resumes the session and checks what the crash has left. Returns how many writes were acknowledged.
    pub(super) fn verify(&mut self, server: SocketAddr, used_names: &mut HashSet<String>) -> Result<usize> {
        let session = self.client.session;
        self.client = Client::resume(server, self.timeout_ms, &session, self.last_zxid)
            .context("resuming")?
            .context("the session is gone")?;
        let found = self.read_back()?;
        let durable = durable_prefix(&self.before, &self.writes, self.acknowledged, &found)?;
        self.check_names(used_names)?;
        let acknowledged = self.acknowledged;
        // A write that never reached the log never happened.
        self.forget_undone(durable);
        self.before = State { sequential: Vec::new(), ..found };
        self.acknowledged = 0;
        self.names.clear();
        Ok(acknowledged)
    }

    fn read_back(&mut self) -> Result<State> {
        let directory = directory(self.index);
        let mut state = State::default();
        let names = self.client.children(&directory, false)?;
        let paths: Vec<String> = names.iter().map(|name| format!("{directory}/{name}")).collect();
        for (name, node) in names.into_iter().zip(self.client.get_all(&paths)?) {
            let (data, stat) = node.context("a child is gone")?;
            let owner = if name.starts_with("ephemeral-") { self.client.session.id.0 } else { 0 };
            ensure!(stat.ephemeral_owner == owner, "{name} belongs to {:#x}", stat.ephemeral_owner);
            state.nodes.insert(name, data);
        }
        let names = self.client.children(SEQUENTIAL, false)?;
        let paths: Vec<String> = names.iter().map(|name| format!("{SEQUENTIAL}/{name}")).collect();
        let prefix = format!("{}:", self.index);
        for node in self.client.get_all(&paths)? {
            let (data, _) = node.context("a child is gone")?;
            if let Some(number) = String::from_utf8_lossy(&data).strip_prefix(&prefix) {
                state.sequential.push(number.parse()?);
            }
        }
        Ok(state)
    }

    /// What a create was told is where its data is, and nobody was told the same before.
    fn check_names(&mut self, used_names: &mut HashSet<String>) -> Result<()> {
        let (numbers, paths): (Vec<u64>, Vec<String>) = std::mem::take(&mut self.names).into_iter().unzip();
        let nodes = self.client.get_all(&paths)?;
        for ((number, path), node) in numbers.into_iter().zip(paths).zip(nodes) {
            let (data, _) = node.with_context(|| format!("{path} is lost"))?;
            let wanted = format!("{}:{number}", self.index);
            ensure!(data == wanted.as_bytes(), "{path} is not the one of write {number}");
            ensure!(used_names.insert(path.clone()), "{path} was given twice");
        }
        Ok(())
    }

    fn forget_undone(&mut self, durable: usize) {
        let mut writes = std::mem::take(&mut self.writes);
        for write in writes.split_off(durable) {
            match write {
                Write::Ephemeral { number } => self.ephemerals.retain(|known| *known != number),
                Write::DeleteEphemeral { number } => self.ephemerals.push(number),
                _ => {}
            }
        }
        // An ephemeral both made and deleted by writes that never happened is not there.
        let nodes = &self.before.nodes;
        let made: HashSet<u64> = writes
            .iter()
            .filter_map(|write| if let Write::Ephemeral { number } = write { Some(*number) } else { None })
            .collect();
        self.ephemerals
            .retain(|number| made.contains(number) || nodes.contains_key(&model::ephemeral_name(*number)));
    }
}

fn directory(index: usize) -> String {
    format!("/writer-{index}")
}
