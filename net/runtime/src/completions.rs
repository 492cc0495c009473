//! A bare ring of io_uring: each operation owns what the kernel reads and writes until it is done, and one
//! kernel entry submits everything that was begun and waits.
//!
//! The ring belongs to the thread that made it. Where the kernel can (Linux 6.1 or newer), it leaves
//! completions to that thread's own entries, so that nothing interrupts it.
#![expect(unsafe_code, reason = "the kernel reads and writes memory that an operation owns")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use slab::Slab;

/// Set in the flags of a completed receive if the socket has more, by the kernel (`IORING_CQE_F_SOCK_NONEMPTY`).
const SOCKET_HAS_MORE: u32 = 1 << 2;
/// Has the kernel wait for bytes before it looks for them (`IORING_RECVSEND_POLL_FIRST`).
const POLL_FIRST: u16 = 1;
/// Sends everything or fails, and raises no signal if nobody receives.
const SEND_ALL: i32 = 0x100 | 0x4000;

/// Memory and files of direct writes have to be aligned so, in bytes.
pub const ALIGNMENT: usize = 4096;

/// Operations under way, each with a token by which the caller knows it again.
pub struct Ring<T> {
    ring: IoUring,
    under_way: Slab<UnderWay<T>>,
}

struct UnderWay<T> {
    token: T,
    kind: Kind,
    buffer: Vec<u8>,
    /// Stays open while the kernel works on it.
    _file: Rc<OwnedFd>,
}

#[derive(Clone, Copy)]
enum Kind {
    Accept,
    Receive,
    /// A send or a write of so many bytes.
    Put(usize),
}

/// What has become of an operation.
#[derive(Debug)]
pub enum Outcome {
    /// A connection.
    Accepted(OwnedFd),
    /// The buffer of a receive with what has come at its end; without anything new, the stream has ended.
    Received {
        /// As it was given, and longer.
        buffer: Vec<u8>,
        /// Bytes that have come.
        bytes: usize,
        /// More bytes wait.
        more: bool,
    },
    /// The buffer of a send or a write, all of which is done.
    Put(Vec<u8>),
}

/// A completed operation's token, and what has become of it.
pub type Completion<T> = (T, io::Result<Outcome>);

impl<T> Ring<T> {
    /// A ring that takes so many operations in one entry.
    ///
    /// # Errors
    /// io_uring cannot be set up.
    pub fn new(entries: u32) -> io::Result<Self> {
        let own = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
        // An older kernel knows no such flags.
        let ring = own.or_else(|_| IoUring::new(entries))?;
        Ok(Self { ring, under_way: Slab::new() })
    }

    /// Takes the next connection of a listening socket.
    pub fn accept(&mut self, token: T, listener: &Rc<OwnedFd>) {
        self.begin(token, Kind::Accept, Vec::new(), listener, |_, fd| {
            opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut()).build()
        });
    }

    /// Receives into the room that is left at the end of `buffer`, which must have some. `wait`: the socket
    /// is likely to be empty.
    pub fn receive(&mut self, token: T, socket: &Rc<OwnedFd>, buffer: Vec<u8>, wait: bool) {
        assert!(buffer.len() < buffer.capacity(), "a full buffer receives nothing");
        self.begin(token, Kind::Receive, buffer, socket, |buffer, fd| {
            let room = buffer.spare_capacity_mut();
            let len = u32::try_from(room.len()).unwrap_or(u32::MAX);
            let receive = opcode::Recv::new(fd, room.as_mut_ptr().cast(), len);
            receive.ioprio(if wait { POLL_FIRST } else { 0 }).build()
        });
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, token: T, socket: &Rc<OwnedFd>, bytes: Vec<u8>) {
        self.begin(token, Kind::Put(bytes.len()), bytes, socket, |bytes, fd| {
            let len = u32::try_from(bytes.len()).expect("fewer than 4 GiB");
            opcode::Send::new(fd, bytes.as_ptr(), len).flags(SEND_ALL).build()
        });
    }

    /// Writes `bytes` from `start` on to `offset` of a file.
    pub fn write(&mut self, token: T, file: &Rc<OwnedFd>, bytes: Vec<u8>, start: usize, offset: u64) {
        self.begin(token, Kind::Put(bytes.len() - start), bytes, file, |bytes, fd| {
            let bytes = &bytes[start..];
            let len = u32::try_from(bytes.len()).expect("fewer than 4 GiB");
            opcode::Write::new(fd, bytes.as_ptr(), len).offset(offset).build()
        });
    }

    fn begin(
        &mut self,
        token: T,
        kind: Kind,
        buffer: Vec<u8>,
        file: &Rc<OwnedFd>,
        entry: impl FnOnce(&mut Vec<u8>, Fd) -> squeue::Entry,
    ) {
        let fd = Fd(file.as_raw_fd());
        let place = self.under_way.insert(UnderWay { token, kind, buffer, _file: Rc::clone(file) });
        let entry = entry(&mut self.under_way[place].buffer, fd).user_data(place as u64);
        // SAFETY: what the entry points to is the heap memory of a buffer that stays in `under_way`, unmoved
        // and unchanged, until the kernel has said that the operation is done; or for ever, if the ring goes
        // before. So does the descriptor.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // Full: what was begun goes to the kernel a little earlier.
            self.ring.submit().expect("io_uring takes entries");
        }
    }

    /// Submits what was begun and waits until something is done, or for `limit`; what is done goes to the end
    /// of `done`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&mut self, limit: Duration, done: &mut Vec<Completion<T>>) -> io::Result<()> {
        let limit = Timespec::from(limit);
        let entered = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit));
        match entered.map_err(|error| error.raw_os_error()) {
            Ok(_) => {}
            Err(Some(code)) if [ETIME, EINTR, EBUSY].contains(&code) => {}
            Err(code) => {
                return Err(code.map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error));
            }
        }
        let Self { ring, under_way } = self;
        done.extend(ring.completion().map(|completion| {
            let place = usize::try_from(completion.user_data()).expect("what was submitted");
            under_way.remove(place).complete(&completion)
        }));
        Ok(())
    }
}

/// Nothing was done in time, a signal came, completions wait to be read.
const ETIME: i32 = 62;
const EINTR: i32 = 4;
const EBUSY: i32 = 16;

impl<T> UnderWay<T> {
    fn complete(mut self, completion: &cqueue::Entry) -> Completion<T> {
        let Ok(result) = usize::try_from(completion.result()) else {
            return (self.token, Err(io::Error::from_raw_os_error(-completion.result())));
        };
        let outcome = match self.kind {
            // SAFETY: the kernel has just made this descriptor for this operation.
            Kind::Accept => Outcome::Accepted(unsafe { OwnedFd::from_raw_fd(completion.result()) }),
            Kind::Receive => {
                // SAFETY: the kernel has filled so many bytes of the room behind the buffer's length.
                unsafe { self.buffer.set_len(self.buffer.len() + result) };
                let more = completion.flags() & SOCKET_HAS_MORE != 0;
                Outcome::Received { buffer: self.buffer, bytes: result, more }
            }
            Kind::Put(len) if result < len => return (self.token, Err(io::ErrorKind::WriteZero.into())),
            Kind::Put(_) => Outcome::Put(self.buffer),
        };
        (self.token, Ok(outcome))
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // The kernel may go on with these for a while after the ring is gone.
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
        let ('a', Ok(Outcome::Accepted(socket))) = next(&mut ring) else { panic!("no connection") };
        let socket = Rc::new(socket);
        client.write_all(b"hello").unwrap();
        let mut buffer = Vec::with_capacity(64);
        buffer.extend(b">");
        ring.receive('r', &socket, buffer, true);
        let ('r', Ok(Outcome::Received { buffer, bytes: 5, .. })) = next(&mut ring) else {
            panic!("nothing received")
        };
        assert_eq!(buffer, b">hello");
        ring.send('s', &socket, b"world".to_vec());
        let ('s', Ok(Outcome::Put(_))) = next(&mut ring) else { panic!("not sent") };
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"world");
        drop(client);
        ring.receive('e', &socket, Vec::with_capacity(1), false);
        assert!(matches!(next(&mut ring), ('e', Ok(Outcome::Received { bytes: 0, .. }))));
    }

    #[test]
    fn a_write_begins_where_it_is_told_to() {
        let mut ring = Ring::new(8).unwrap();
        let file = tempfile::tempfile().unwrap();
        let file = Rc::new(OwnedFd::from(file));
        ring.write(1, &file, b"..bytes".to_vec(), 2, 3);
        assert!(matches!(next(&mut ring), (1, Ok(Outcome::Put(_)))));
        let mut written = Vec::new();
        let mut read = File::from(file.try_clone().unwrap());
        std::io::Seek::rewind(&mut read).unwrap();
        read.read_to_end(&mut written).unwrap();
        assert_eq!(written, b"\0\0\0bytes");
    }

    #[test]
    fn more_operations_than_entries_are_all_carried_out() {
        let mut ring = Ring::new(2).unwrap();
        let file = Rc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        for number in 0..100_u8 {
            ring.write(number, &file, vec![number], 0, number.into());
        }
        let mut done = Vec::new();
        while done.len() < 100 {
            ring.wait(LIMIT, &mut done).unwrap();
        }
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
