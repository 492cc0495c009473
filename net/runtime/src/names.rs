//! Look-ups of host names. One takes seconds if no name server answers, so they have threads of their own:
//! nothing that the server waits for, such as the end of a write to its folder, is behind one.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;

use crate::helper::{Helper, Priority};

/// So many look-ups go on at once: of the other servers' names, of which some may be without an answer.
const THREADS: usize = 8;

static OF_PROCESS: OnceLock<Helper> = OnceLock::new();

/// Starts the threads, if they do not run. To be called before executors are pinned, since they inherit the
/// starting thread's cores.
///
/// # Errors
/// The system refuses a thread.
pub fn start() -> io::Result<&'static Helper> {
    match OF_PROCESS.get() {
        Some(helper) => Ok(helper),
        None => {
            let started = Helper::with_priority("names", THREADS, Priority::Normal)?;
            Ok(OF_PROCESS.get_or_init(|| started))
        }
    }
}

/// The addresses of a host, with a port.
///
/// # Errors
/// The name has none, nobody answers, or the system refuses a thread.
pub async fn addresses(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    look_up(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await?
}

/// What `call` finds out, which looks names up.
///
/// # Errors
/// The system refuses a thread.
pub async fn look_up<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    start()?.run(call).await.ok_or_else(|| io::Error::other("the look-up has ended without an answer"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_lite::future::{block_on, zip};

    use super::*;

    #[test]
    fn a_look_up_that_nobody_answers_delays_neither_others_nor_calls_on_files() {
        use crate::reactor::{Executor, unblock};

        let (answer, answers) = mpsc::channel();
        let executor = Executor::new("test").expect("io_uring is available");
        executor.run(async {
            let hangs = look_up(move || answers.recv());
            let others = async {
                unblock(|| ()).await;
                let found = addresses("127.0.0.1".to_owned(), 2888).await;
                answer.send(()).expect("it waits");
                found
            };
            let (hung, found) = zip(hangs, others).await;
            assert_eq!(hung.expect("threads"), Ok(()));
            assert_eq!(found.expect("an address"), [SocketAddr::from(([127, 0, 0, 1], 2888))]);
        });
    }

    #[test]
    fn a_name_that_does_not_exist_is_an_error() {
        assert!(block_on(addresses("no.such.host.invalid".to_owned(), 1)).is_err());
    }
}
