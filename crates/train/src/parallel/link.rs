//! One connection between two processes: frames both ways, and a sign of life while there are none.
//!
//! A frame is `[kind: u8][length: u32, little endian][payload]`. A thread of its own reads them, so that
//! a peer that is gone is noticed whatever this process does, and another sends heartbeats, so that a
//! peer that works for an hour is not taken for a dead one.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use turnwise_core::CollectiveError;

/// Largest payload of a frame.
pub(super) const FRAME: usize = 1 << 20;
/// Frames that are read ahead of what is asked for.
const AHEAD: usize = 4;
/// Between two looks at whether a peer is still there.
const TICK: Duration = Duration::from_millis(100);
/// How long a process that is done waits for its peers to have read everything.
const FAREWELL: Duration = Duration::from_secs(5);
/// The kind of a frame without meaning.
const HEARTBEAT: u8 = 0;

/// What the threads of a link know of the peer.
struct State {
    heard: Mutex<Instant>,
    lost: Mutex<Option<String>>,
    closing: AtomicBool,
}

impl State {
    fn lose(&self, reason: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
    }

    fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn silence(&self) -> Duration {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn over(&self) -> bool {
        self.closing.load(Ordering::Acquire) || self.lost().is_some()
    }
}

struct Frame {
    kind: u8,
    payload: Vec<u8>,
}

/// A connection to another process of the run.
pub(super) struct Link {
    rank: usize,
    peer: usize,
    timeout: Duration,
    stream: TcpStream,
    /// Held while a frame is written.
    writing: Arc<Mutex<TcpStream>>,
    frames: Mutex<Receiver<Frame>>,
    state: Arc<State>,
    reader: Option<JoinHandle<()>>,
    heart: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Link")
            .field("rank", &self.rank)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// A link over a connection whose greetings are done. A peer that is silent for longer than
    /// `timeout` counts as gone.
    pub(super) fn new(
        stream: TcpStream,
        rank: usize,
        peer: usize,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        let failed = |error: std::io::Error| CollectiveError::Setup {
            rank,
            reason: format!("the connection to rank {peer} cannot be used: {error}"),
        };
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_nonblocking(false).map_err(failed)?;
        stream.set_read_timeout(None).map_err(failed)?;
        stream.set_write_timeout(Some(TICK)).map_err(failed)?;
        let state = Arc::new(State {
            heard: Mutex::new(Instant::now()),
            lost: Mutex::new(None),
            closing: AtomicBool::new(false),
        });
        let (sender, frames) = sync_channel(AHEAD);
        let (read, from) = (stream.try_clone().map_err(failed)?, Arc::clone(&state));
        let reader = std::thread::spawn(move || read_frames(read, &from, &sender));
        let writing = Arc::new(Mutex::new(stream.try_clone().map_err(failed)?));
        let (write, to) = (Arc::clone(&writing), Arc::clone(&state));
        let pause = (timeout / 5).min(Duration::from_secs(5));
        let heart = std::thread::spawn(move || beat(&write, &to, pause, timeout));
        Ok(Self {
            rank,
            peer,
            timeout,
            stream,
            writing,
            frames: Mutex::new(frames),
            state,
            reader: Some(reader),
            heart: Some(heart),
        })
    }

    fn lost(&self, reason: String) -> CollectiveError {
        CollectiveError::Lost { rank: self.rank, peer: self.peer, reason }
    }

    /// Sends one frame of at most [`FRAME`] bytes.
    pub(super) fn send(&self, kind: u8, payload: &[u8]) -> Result<(), CollectiveError> {
        let mut stream = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        write_frame(&mut stream, kind, payload, &self.state, self.timeout).map_err(|reason| self.lost(reason))
    }

    /// The payload of the next frame, which must be of this kind.
    pub(super) fn receive(&self, kind: u8) -> Result<Vec<u8>, CollectiveError> {
        let frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match frames.recv_timeout(TICK) {
                Ok(frame) if frame.kind == kind => return Ok(frame.payload),
                Ok(frame) => {
                    return Err(self.out_of_step(format!(
                        "operation {} came where {kind} was expected; do all processes run one program with one \
                         config?",
                        frame.kind
                    )));
                }
                Err(RecvTimeoutError::Timeout) if self.state.silence() <= self.timeout => {}
                Err(RecvTimeoutError::Timeout) => return Err(self.lost(silent(self.timeout))),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.lost(self.state.lost().unwrap_or_else(|| "its reader ended".into())));
                }
            }
        }
    }

    /// Sends any number of bytes.
    pub(super) fn send_all(&self, kind: u8, bytes: &[u8]) -> Result<(), CollectiveError> {
        self.send(kind, &(bytes.len() as u64).to_le_bytes())?;
        bytes.chunks(FRAME).try_for_each(|chunk| self.send(kind, chunk))
    }

    /// What [`Link::send_all`] sent.
    pub(super) fn receive_all(&self, kind: u8) -> Result<Vec<u8>, CollectiveError> {
        let head = self.receive(kind)?;
        let length = u64::from_le_bytes(head.as_slice().try_into().map_err(|_| self.garbled())?) as usize;
        let mut bytes = Vec::with_capacity(length.min(64 * FRAME));
        while bytes.len() < length {
            bytes.extend(self.receive(kind)?);
        }
        if bytes.len() == length { Ok(bytes) } else { Err(self.garbled()) }
    }

    fn garbled(&self) -> CollectiveError {
        self.out_of_step("a message has another length than it says".into())
    }

    /// An error about a peer that does something else.
    pub(super) fn out_of_step(&self, reason: String) -> CollectiveError {
        CollectiveError::OutOfStep { rank: self.rank, peer: self.peer, reason }
    }

    /// Says that nothing more will be sent.
    pub(super) fn close(&self) {
        self.state.closing.store(true, Ordering::Release);
        // Waits for a heartbeat that is being written.
        let stream = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(Shutdown::Write);
    }
}

impl Drop for Link {
    /// Closing a socket with unread bytes would take away from the peer what it has not read yet, so this
    /// waits for the peer to close its side too, for a while.
    fn drop(&mut self) {
        self.close();
        let begun = Instant::now();
        while self.state.lost().is_none() && begun.elapsed() < FAREWELL {
            // Makes room for the reader.
            let _ = self.frames.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TICK);
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        // The reader may wait for room.
        *self.frames.lock().unwrap_or_else(PoisonError::into_inner) = sync_channel(0).1;
        for thread in [self.reader.take(), self.heart.take()].into_iter().flatten() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn silent(timeout: Duration) -> String {
    format!(
        "nothing was heard of it for {:.0} s: it is stopped, or its machine cannot be reached; \
         TURNWISE_TIMEOUT sets the seconds",
        timeout.as_secs_f64()
    )
}

/// Hands frames on until the connection ends.
fn read_frames(mut stream: TcpStream, state: &State, frames: &SyncSender<Frame>) {
    let mut head = [0; 5];
    let reason = loop {
        if let Err(error) = stream.read_exact(&mut head) {
            break error;
        }
        state.hear();
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > FRAME {
            break std::io::Error::other("a frame is too long: something else speaks on this connection");
        }
        if head[0] == HEARTBEAT {
            continue;
        }
        let mut payload = vec![0; length];
        if let Err(error) = stream.read_exact(&mut payload) {
            break error;
        }
        if frames.send(Frame { kind: head[0], payload }).is_err() {
            break std::io::Error::other("this process is done");
        }
        state.hear();
    };
    state.lose(match reason.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            "it closed the connection: it ended, failed or was killed; what it printed says why".into()
        }
        _ => reason.to_string(),
    });
}

/// Sends a sign of life now and then.
fn beat(stream: &Mutex<TcpStream>, state: &State, pause: Duration, timeout: Duration) {
    while !state.over() {
        std::thread::park_timeout(pause);
        // While something else is being written the peer hears enough.
        let Ok(mut stream) = stream.try_lock() else { continue };
        if state.over() || write_frame(&mut stream, HEARTBEAT, &[], state, timeout).is_err() {
            return;
        }
    }
}

/// Writes a whole frame, or says why the peer counts as gone.
fn write_frame(
    stream: &mut TcpStream,
    kind: u8,
    payload: &[u8],
    state: &State,
    timeout: Duration,
) -> Result<(), String> {
    let mut head = [kind, 0, 0, 0, 0];
    head[1..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let mut moved = Instant::now();
    for mut bytes in [&head[..], payload] {
        while !bytes.is_empty() {
            if let Some(reason) = state.lost() {
                return Err(reason);
            }
            match stream.write(bytes) {
                Ok(0) => return Err("the connection takes no more".into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    moved = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    // A peer that reads nothing may be busy; one that is silent as well is gone.
                    if moved.elapsed().min(state.silence()) > timeout {
                        return Err(silent(timeout));
                    }
                }
                Err(error) => {
                    // The reader knows better why.
                    std::thread::sleep(TICK);
                    return Err(state.lost().unwrap_or_else(|| error.to_string()));
                }
            }
        }
    }
    Ok(())
}
