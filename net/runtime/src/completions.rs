//! A bare ring of io_uring: each operation owns what the kernel reads and writes until it is done, and one
//! kernel entry submits everything that was begun and waits.
//!
//! The ring belongs to the thread that made it. Where the kernel can (Linux 6.1 or newer), it leaves
//! completions to that thread's own entries, so that nothing interrupts it.
#![expect(unsafe_code, reason = "the kernel reads and writes memory that an operation owns")]

mod pool;

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use io_uring::types::{Fd, FsyncFlags, Napi, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use slab::Slab;
use socket2::{SockAddr, SockAddrStorage};

pub use pool::Loan;
use pool::Pool;

/// Has the kernel wait for bytes before it looks for them (`IORING_RECVSEND_POLL_FIRST`).
const POLL_FIRST: u16 = 1;
/// Sends everything or fails (`MSG_WAITALL`).
const SEND_ALL: i32 = 0x100;
/// More follows, so that a part of a packet may wait for the rest (`MSG_MORE`).
const MORE: i32 = 0x8000;
/// Raises no signal if nobody receives (`MSG_NOSIGNAL`).
const NO_SIGNAL: i32 = 0x4000;
/// A socket that no child process inherits (`SOCK_CLOEXEC`).
const CLOSE_ON_EXEC: i32 = 0o2_000_000;
/// What a socket is polled for: bytes, the stream's end or an error (`POLLIN`).
const READABLE: u32 = 1;

/// The number of operations of whose end nothing is heard: cancellations, and limits of a wait.
const UNHEARD: u64 = u64::MAX;

/// Memory and files of direct writes have to be aligned so, in bytes.
pub const ALIGNMENT: usize = 4096;

/// Operations under way, each with a token by which the caller knows it again.
pub struct Ring<T> {
    ring: IoUring,
    under_way: Slab<UnderWay<T>>,
    /// Completions that made room for others, and were not told yet.
    early: Vec<Completion<T>>,
    begun: u32,
    /// Of those, how many read or change files, and are never taken back.
    on_files: usize,
    pool: Option<mem::ManuallyDrop<Pool>>,
    /// Uses nothing that Linux 5.8 lacks.
    is_plain: bool,
    /// The limit of the last wait. The kernel reads it when it takes the entry that points to it.
    limit: Box<Timespec>,
}

/// The number of an operation that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(u64);

impl Operation {
    /// The `begun`-th operation, modulo 2^32, at this place among those under way.
    fn new(begun: u32, place: usize) -> Self {
        Self(u64::from(begun) << 32 | place as u64)
    }

    fn place(number: u64) -> usize {
        usize::try_from(number & u64::from(u32::MAX)).expect("what was submitted")
    }
}

struct UnderWay<T> {
    token: T,
    kind: Kind,
    memory: Memory,
    /// Stays open while the kernel works on it.
    _file: Rc<OwnedFd>,
}

/// What the kernel reads or writes.
enum Memory {
    Nothing,
    Bytes(Vec<u8>),
    Sent(Outgoing),
    Address(Box<(SockAddrStorage, u32)>),
    Destination(Box<SockAddr>),
}

/// What is sent.
#[derive(Debug)]
pub enum Outgoing {
    /// A buffer that can be used again.
    Own(Vec<u8>),
    /// Bytes that others have, too. Boxed, since every operation under way has room for what it sends.
    Shared(Box<Bytes>),
}

impl Deref for Outgoing {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Accept,
    /// Into the operation's own memory.
    Receive,
    /// Into a buffer of the pool.
    Borrow,
    /// A send, from this byte of its memory on.
    Send(u32),
    /// Something whose end alone counts.
    Plain,
    Read,
    Write,
    /// A change of a file whose end alone counts.
    FileChange,
}

impl Kind {
    const fn is_on_file(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::FileChange)
    }
}

/// What has become of an operation.
#[derive(Debug)]
pub enum Outcome {
    /// A connection, and where it comes from, if that is an address of the internet.
    Accepted(OwnedFd, Option<SocketAddr>),
    /// The buffer of a receive with what has come at its end; without anything new, the stream has ended.
    Received {
        /// As it was given, and longer.
        buffer: Vec<u8>,
        /// Bytes that have come.
        bytes: usize,
        /// More bytes wait.
        more: bool,
    },
    /// What has come in a buffer of the ring's; none at the end of the stream.
    Lent {
        /// To be given back.
        loan: Option<Loan>,
        /// More bytes wait.
        more: bool,
    },
    /// The buffer of a send.
    Sent {
        /// As it was given.
        buffer: Outgoing,
        /// How many bytes of it are sent by now. All, unless the ring is plain: then those for which the
        /// socket had room, and the caller sends the rest.
        upto: usize,
    },
    /// The buffer of a read with what was read at its end.
    Read {
        /// As it was given, and longer.
        buffer: Vec<u8>,
        /// Bytes that were read. Fewer than there was room for at the file's end; on old kernels also
        /// elsewhere, through the page cache.
        bytes: usize,
    },
    /// The buffer of a write.
    Written {
        /// As it was given.
        buffer: Vec<u8>,
        /// Bytes that were written.
        bytes: usize,
    },
    /// It is done.
    Done,
}

/// A completed operation's token, and what has become of it.
pub type Completion<T> = (T, io::Result<Outcome>);

impl<T> Ring<T> {
    /// A ring that takes so many operations in one entry.
    ///
    /// # Errors
    /// io_uring cannot be set up.
    pub fn new(entries: u32) -> io::Result<Self> {
        let own = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(entries);
        // Linux 6.1 knows those flags, 5.19 these, and 5.8 none.
        let ring =
            own.or_else(|_| IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(entries));
        ring.map_or_else(|_| Self::plain(entries), |ring| Ok(Self::of(ring, false)))
    }

    /// A ring as the oldest kernel has it.
    ///
    /// # Errors
    /// io_uring cannot be set up.
    pub fn plain(entries: u32) -> io::Result<Self> {
        IoUring::new(entries).map(|ring| Self::of(ring, true))
    }

    fn of(ring: IoUring, is_plain: bool) -> Self {
        let (under_way, early, limit) = (Slab::new(), Vec::new(), Box::default());
        Self { ring, under_way, early, begun: 0, on_files: 0, pool: None, is_plain, limit }
    }

    /// Lets receives borrow buffers of the ring's. Whether the kernel can.
    pub fn lend_buffers(&mut self) -> bool {
        self.pool = Pool::register(&self.ring).map(mem::ManuallyDrop::new);
        self.pool.is_some()
    }

    /// Has the kernel poll network devices for as long in a wait before it sleeps, where devices and kernel
    /// can (Linux 6.9).
    pub fn poll_devices(&mut self, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let mut napi = Napi::new().set_busy_poll_timeout(micros).set_prefer_busy_poll(true);
        // Elsewhere interrupts tell what has come, as ever.
        let _ = self.ring.submitter().register_napi(&mut napi);
    }

    /// Takes the next connection of a listening socket.
    pub fn accept(&mut self, token: T, listener: &Rc<OwnedFd>) -> Operation {
        let storage = SockAddrStorage::zeroed();
        let len = storage.size_of();
        let address = Memory::Address(Box::new((storage, len)));
        self.begin(token, Kind::Accept, address, listener, |memory, fd| {
            let Memory::Address(address) = memory else { unreachable!("it was given") };
            let (storage, len) = &mut **address;
            let storage = (&raw mut *storage).cast();
            opcode::Accept::new(fd, storage, &raw mut *len).flags(CLOSE_ON_EXEC).build()
        })
    }

    /// Connects a socket.
    pub fn connect(&mut self, token: T, socket: &Rc<OwnedFd>, address: SocketAddr) -> Operation {
        let destination = Memory::Destination(Box::new(address.into()));
        self.begin(token, Kind::Plain, destination, socket, |memory, fd| {
            let Memory::Destination(address) = memory else { unreachable!("it was given") };
            opcode::Connect::new(fd, address.as_ptr().cast(), address.len()).build()
        })
    }

    /// Receives into the room that is left at the end of `buffer`, which must have some. `wait`: the socket
    /// is likely to be empty.
    pub fn receive(&mut self, token: T, socket: &Rc<OwnedFd>, buffer: Vec<u8>, wait: bool) -> Operation {
        assert!(buffer.len() < buffer.capacity(), "a full buffer receives nothing");
        self.begin(token, Kind::Receive, Memory::Bytes(buffer), socket, |memory, fd| {
            let (room, len) = room(memory);
            opcode::Recv::new(fd, room, len).ioprio(if wait { POLL_FIRST } else { 0 }).build()
        })
    }

    /// Receives into a buffer of the ring's, which [`Self::lend_buffers`] has made. If none is left, the
    /// error is [`is_out_of_buffers`].
    pub fn borrow(&mut self, token: T, socket: &Rc<OwnedFd>, wait: bool) -> Operation {
        self.begin(token, Kind::Borrow, Memory::Nothing, socket, |_, fd| {
            // Linux 5.19 receives no more than is asked for, whatever the buffer's length.
            let receive = opcode::Recv::new(fd, std::ptr::null_mut(), pool::LEN).buf_group(pool::GROUP);
            let receive = receive.ioprio(if wait { POLL_FIRST } else { 0 });
            receive.build().flags(squeue::Flags::BUFFER_SELECT)
        })
    }

    /// Whether so many buffers are lent that receives may soon find none.
    #[must_use]
    pub fn runs_short(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.runs_short())
    }

    /// What a loan holds.
    #[must_use]
    pub fn lent<'a>(&'a self, loan: &'a Loan) -> &'a [u8] {
        self.pool.as_ref().map_or(&[], |pool| pool.bytes(loan))
    }

    /// Gives a buffer back.
    pub fn give_back(&mut self, loan: Loan) {
        if let Some(pool) = &mut self.pool {
            pool.give_back(loan);
        }
    }

    /// Waits until a socket has something to receive.
    pub fn poll_readable(&mut self, token: T, socket: &Rc<OwnedFd>) -> Operation {
        let entry = |_: &mut Memory, fd| opcode::PollAdd::new(fd, READABLE).build();
        self.begin(token, Kind::Plain, Memory::Nothing, socket, entry)
    }

    /// Sends `bytes` from byte `from` on. `more`: what follows is sent right behind.
    pub fn send(
        &mut self,
        token: T,
        socket: &Rc<OwnedFd>,
        bytes: Outgoing,
        from: usize,
        more: bool,
    ) -> Operation {
        let all = if self.is_plain { 0 } else { SEND_ALL };
        let flags = NO_SIGNAL | all | if more { MORE } else { 0 };
        let sent = len(&bytes[..from]);
        self.begin(token, Kind::Send(sent), Memory::Sent(bytes), socket, |memory, fd| {
            let Memory::Sent(bytes) = memory else { unreachable!("it was given") };
            let bytes = &bytes[from..];
            opcode::Send::new(fd, bytes.as_ptr(), len(bytes)).flags(flags).build()
        })
    }

    /// Writes this range of `bytes` to `offset` of a file.
    pub fn write(
        &mut self,
        token: T,
        file: &Rc<OwnedFd>,
        bytes: Vec<u8>,
        range: Range<usize>,
        offset: u64,
    ) -> Operation {
        self.begin(token, Kind::Write, Memory::Bytes(bytes), file, |memory, fd| {
            let bytes = &bytes_of(memory)[range];
            opcode::Write::new(fd, bytes.as_ptr(), len(bytes)).offset(offset).build()
        })
    }

    /// Reads `len` bytes from `offset` of a file into the room that is left at the end of `buffer`.
    pub fn read(
        &mut self,
        token: T,
        file: &Rc<OwnedFd>,
        buffer: Vec<u8>,
        len: usize,
        offset: u64,
    ) -> Operation {
        assert!(len <= buffer.capacity() - buffer.len(), "there is room");
        self.begin(token, Kind::Read, Memory::Bytes(buffer), file, |memory, fd| {
            let (room, _) = room(memory);
            let len = u32::try_from(len).expect("fewer than 4 GiB");
            opcode::Read::new(fd, room, len).offset(offset).build()
        })
    }

    /// Reads what comes from a pipe or a counter of events, as [`Self::receive`] from a socket.
    pub fn listen(&mut self, token: T, pipe: &Rc<OwnedFd>, buffer: Vec<u8>) -> Operation {
        self.begin(token, Kind::Receive, Memory::Bytes(buffer), pipe, |memory, fd| {
            let (room, len) = room(memory);
            opcode::Read::new(fd, room, len).build()
        })
    }

    /// Makes what was written to a file durable, and the length that is needed to read it (fdatasync).
    pub fn sync(&mut self, token: T, file: &Rc<OwnedFd>) -> Operation {
        let entry = |_: &mut Memory, fd| opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build();
        self.begin(token, Kind::FileChange, Memory::Nothing, file, entry)
    }

    /// Reserves room for a file up to a length of `len` bytes.
    pub fn allocate(&mut self, token: T, file: &Rc<OwnedFd>, len: u64) -> Operation {
        let entry = |_: &mut Memory, fd| opcode::Fallocate::new(fd, len).build();
        self.begin(token, Kind::FileChange, Memory::Nothing, file, entry)
    }

    /// Ends an operation on a socket that is under way: it completes soon, most likely with an error.
    pub fn cancel(&mut self, operation: Operation) {
        let cancellation = opcode::AsyncCancel::new(operation.0).build();
        // SAFETY: it points to nothing.
        unsafe { self.push(&cancellation.user_data(UNHEARD)) };
    }

    fn begin(
        &mut self,
        token: T,
        kind: Kind,
        memory: Memory,
        file: &Rc<OwnedFd>,
        entry: impl FnOnce(&mut Memory, Fd) -> squeue::Entry,
    ) -> Operation {
        let fd = Fd(file.as_raw_fd());
        let place = self.under_way.insert(UnderWay { token, kind, memory, _file: Rc::clone(file) });
        self.on_files += usize::from(kind.is_on_file());
        self.begun = self.begun.wrapping_add(1);
        let operation = Operation::new(self.begun, place);
        let entry = entry(&mut self.under_way[place].memory, fd).user_data(operation.0);
        // SAFETY: what the entry points to is heap memory that stays in `under_way`, unmoved and unchanged,
        // until the kernel has said that the operation is done; or for ever, if the ring goes before. So does
        // the descriptor.
        unsafe { self.push(&entry) };
        operation
    }

    /// # Safety
    /// What the entry points to stays as it is until the operation is done.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller's promise.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // Full: what was begun goes to the kernel a little earlier, which may first have to get rid of
            // completions.
            took_turns(self.ring.submit()).expect("io_uring takes entries");
            let mut early = mem::take(&mut self.early);
            self.complete(&mut early);
            self.early = early;
        }
    }

    /// How many operations on files are under way.
    #[must_use]
    pub const fn on_files(&self) -> usize {
        self.on_files
    }

    /// Submits what was begun; what is done goes to the end of `done`. Enters the kernel only if there is
    /// something for it to do.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn poll(&mut self, done: &mut Vec<Completion<T>>) -> io::Result<()> {
        let submission = self.ring.submission();
        let (begun, deferred) = (!submission.is_empty(), submission.taskrun() || submission.cq_overflow());
        drop(submission);
        if begun || deferred {
            took_turns(self.ring.submit())?;
        }
        done.append(&mut self.early);
        self.complete(done);
        Ok(())
    }

    /// Submits what was begun and waits until something is done, or for `limit`; what is done goes to the end
    /// of `done`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&mut self, limit: Duration, done: &mut Vec<Completion<T>>) -> io::Result<()> {
        if !self.early.is_empty() {
            return self.poll(done);
        }
        *self.limit = Timespec::from(limit);
        if self.is_plain {
            // Ends with the first completion, too.
            let end = opcode::Timeout::new(&raw const *self.limit).count(1).build();
            // SAFETY: the limit stays where it is as long as the ring, whose drop takes the entry back.
            unsafe { self.push(&end.user_data(UNHEARD)) };
            if !self.early.is_empty() {
                // Others had to make room for the entry.
                return self.poll(done);
            }
            took_turns(self.ring.submit_and_wait(1))?;
        } else {
            let limit = SubmitArgs::new().timespec(&self.limit);
            took_turns(self.ring.submitter().submit_with_args(1, &limit))?;
        }
        self.complete(done);
        Ok(())
    }

    fn complete(&mut self, done: &mut Vec<Completion<T>>) {
        let Self { ring, under_way, on_files, pool, .. } = self;
        let completions = ring.completion().filter(|completion| completion.user_data() != UNHEARD);
        done.extend(completions.map(|completion| {
            let ended = under_way.remove(Operation::place(completion.user_data()));
            *on_files -= usize::from(ended.kind.is_on_file());
            ended.complete(&completion, pool.as_deref_mut())
        }));
    }
}

/// Whether a receive has found no buffer of the ring's.
#[must_use]
pub fn is_out_of_buffers(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ENOBUFS)
}

/// Nothing was done in time, a signal came, memory is short, completions wait to be read, no buffer is left.
const ETIME: i32 = 62;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;
const ENOBUFS: i32 = 105;

/// An entry of the kernel that ended early is no failure.
fn took_turns(entered: io::Result<usize>) -> io::Result<()> {
    match entered {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(ETIME | EINTR | EAGAIN | EBUSY) => Ok(()),
            _ => Err(error),
        },
    }
}

fn room(memory: &mut Memory) -> (*mut u8, u32) {
    let Memory::Bytes(buffer) = memory else { unreachable!("it was given") };
    let room = buffer.spare_capacity_mut();
    (room.as_mut_ptr().cast(), u32::try_from(room.len()).unwrap_or(u32::MAX))
}

fn bytes_of(memory: &mut Memory) -> &[u8] {
    let Memory::Bytes(bytes) = memory else { unreachable!("it was given") };
    bytes
}

fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("fewer than 4 GiB")
}

impl<T> UnderWay<T> {
    fn complete(self, completion: &cqueue::Entry, pool: Option<&mut Pool>) -> Completion<T> {
        let Ok(bytes) = usize::try_from(completion.result()) else {
            // The kernel may have taken a buffer before it failed.
            if let Some((id, pool)) = cqueue::buffer_select(completion.flags()).zip(pool) {
                pool.put(id);
            }
            return (self.token, Err(io::Error::from_raw_os_error(-completion.result())));
        };
        let more = cqueue::sock_nonempty(completion.flags());
        let outcome = match (self.kind, self.memory) {
            (Kind::Accept, memory) => {
                // SAFETY: the kernel has just made this descriptor for this operation.
                let socket = unsafe { OwnedFd::from_raw_fd(completion.result()) };
                let address = match memory {
                    // SAFETY: the kernel has written an address of this length.
                    Memory::Address(address) => unsafe { SockAddr::new(address.0, address.1) }.as_socket(),
                    _ => None,
                };
                Outcome::Accepted(socket, address)
            }
            (Kind::Receive, Memory::Bytes(buffer)) => {
                Outcome::Received { buffer: filled(buffer, bytes), bytes, more }
            }
            (Kind::Borrow, _) => {
                let lent = cqueue::buffer_select(completion.flags()).zip(pool);
                let loan = lent.and_then(|(id, pool)| {
                    if bytes == 0 {
                        pool.put(id);
                        return None;
                    }
                    Some(pool.lend(id, bytes))
                });
                Outcome::Lent { loan, more }
            }
            (Kind::Send(_), _) if bytes == 0 => return (self.token, Err(io::ErrorKind::WriteZero.into())),
            (Kind::Send(from), Memory::Sent(buffer)) => Outcome::Sent { buffer, upto: from as usize + bytes },
            (Kind::Read, Memory::Bytes(buffer)) => Outcome::Read { buffer: filled(buffer, bytes), bytes },
            (Kind::Write, Memory::Bytes(buffer)) => Outcome::Written { buffer, bytes },
            _ => Outcome::Done,
        };
        (self.token, Ok(outcome))
    }
}

fn filled(mut buffer: Vec<u8>, bytes: usize) -> Vec<u8> {
    // SAFETY: the kernel has filled so many bytes of the room behind the buffer's length.
    unsafe { buffer.set_len(buffer.len() + bytes) };
    buffer
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // The kernel may go on with these for a while after the ring is gone.
        if self.under_way.is_empty() {
            self.pool.take().map(mem::ManuallyDrop::into_inner);
        }
        self.under_way.drain().for_each(mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn next<T>(ring: &mut Ring<T>) -> Completion<T> {
        let mut done = Vec::new();
        while done.is_empty() {
            ring.wait(LIMIT, &mut done).unwrap();
        }
        assert_eq!(done.len(), 1);
        done.remove(0)
    }

    #[test]
    fn connections_are_taken_and_bytes_go_both_ways() {
        let mut ring = Ring::new(8).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ring.accept('a', &Rc::new(listener.into()));
        let ('a', Ok(Outcome::Accepted(socket, Some(from)))) = next(&mut ring) else {
            panic!("no connection")
        };
        assert_eq!(from, client.local_addr().unwrap());
        let socket = Rc::new(socket);
        client.write_all(b"hello").unwrap();
        let mut buffer = Vec::with_capacity(64);
        buffer.extend(b">");
        ring.receive('r', &socket, buffer, true);
        let ('r', Ok(Outcome::Received { buffer, bytes: 5, .. })) = next(&mut ring) else {
            panic!("nothing received")
        };
        assert_eq!(buffer, b">hello");
        ring.send('s', &socket, Outgoing::Own(b"a world".to_vec()), 2, false);
        let ('s', Ok(Outcome::Sent { upto: 7, .. })) = next(&mut ring) else { panic!("not sent") };
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"world");
        drop(client);
        ring.receive('e', &socket, Vec::with_capacity(1), false);
        assert!(matches!(next(&mut ring), ('e', Ok(Outcome::Received { bytes: 0, .. }))));
    }

    #[test]
    fn a_write_begins_and_ends_where_it_is_told_to() {
        let mut ring = Ring::new(8).unwrap();
        let file = tempfile::tempfile().unwrap();
        let file = Rc::new(OwnedFd::from(file));
        ring.write(1, &file, b"..bytes..".to_vec(), 2..7, 3);
        assert!(matches!(next(&mut ring), (1, Ok(Outcome::Written { bytes: 5, .. }))));
        let mut written = Vec::new();
        let mut read = File::from(file.try_clone().unwrap());
        std::io::Seek::rewind(&mut read).unwrap();
        read.read_to_end(&mut written).unwrap();
        assert_eq!(written, b"\0\0\0bytes");
    }

    #[test]
    fn a_cancellation_that_comes_late_ends_no_other_operation() {
        let mut ring = Ring::new(2).unwrap();
        let (one, two) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut one, two) = (one, Rc::new(OwnedFd::from(two)));
        one.write_all(b"a").unwrap();
        let first = ring.receive(1, &two, Vec::with_capacity(1), false);
        assert!(matches!(next(&mut ring), (1, Ok(Outcome::Received { bytes: 1, .. }))));
        let second = ring.receive(2, &two, Vec::with_capacity(1), false);
        ring.cancel(first);
        ring.wait(Duration::from_millis(10), &mut Vec::new()).unwrap();
        one.write_all(b"b").unwrap();
        assert!(matches!(next(&mut ring), (2, Ok(Outcome::Received { bytes: 1, .. }))));
        assert_ne!(first, second);
        let third = ring.receive(3, &two, Vec::with_capacity(1), false);
        ring.cancel(third);
        assert!(matches!(next(&mut ring), (3, Err(_))));
    }

    #[test]
    fn a_wait_ends_at_its_limit_and_at_the_first_completion() {
        for mut ring in [Ring::new(8).unwrap(), Ring::plain(8).unwrap()] {
            let mut done = Vec::new();
            for _ in 0..3 {
                ring.wait(Duration::from_millis(1), &mut done).unwrap();
                assert!(done.is_empty());
            }
            let file = Rc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
            ring.write('w', &file, vec![1], 0..1, 0);
            assert!(matches!(next(&mut ring), ('w', Ok(Outcome::Written { bytes: 1, .. }))));
        }
    }

    #[test]
    fn more_operations_than_entries_are_all_carried_out() {
        let mut ring = Ring::new(2).unwrap();
        let file = Rc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        for number in 0..100_u8 {
            ring.write(number, &file, vec![number], 0..1, number.into());
        }
        let mut done = Vec::new();
        while done.len() < 100 {
            ring.wait(LIMIT, &mut done).unwrap();
        }
        assert!(ring.under_way.is_empty());
        let mut numbers: Vec<_> = done.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100));
    }

    #[test]
    fn a_ring_that_goes_with_a_receive_under_way_leaves_its_memory_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let mut ring = Ring::new(2).unwrap();
        ring.receive(0, &Rc::new(socket.into()), Vec::with_capacity(16), true);
        ring.wait(Duration::from_millis(1), &mut Vec::new()).unwrap();
        drop(ring);
        client.write_all(b"late").unwrap();
    }
}
