//! The operations between processes over TCP, for learners on processors.
//!
//! Small messages go through rank 0. Sums go along the chain of ranks, a piece at a time: each rank adds
//! its parts to what its predecessor found and passes it on, the last has the sum, and it comes back the
//! same way. So the order of addition is that of ranks and parts, whatever the timing.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use turnwise_core::{Collective, CollectiveError};

use super::link::{FRAME, Link};

/// First bytes of a greeting.
const MAGIC: &[u8; 8] = b"turnwise";
/// Kinds of frames.
const GATHER: u8 = 1;
const ANSWER: u8 = 2;
const SUM: u8 = 3;
const TOTAL: u8 = 4;
/// Numbers of a piece of a sum.
const PIECE: usize = FRAME / size_of::<f32>();
/// Between two attempts to reach rank 0.
const RETRY: Duration = Duration::from_millis(50);

/// A [`Collective`] over TCP. There is no encryption and no password: use it inside one machine or a
/// network that is trusted.
#[derive(Debug)]
pub struct TcpCollective {
    rank: usize,
    world_size: usize,
    local_rank: usize,
    /// On rank 0 to every other rank in order, elsewhere to rank 0 alone.
    star: Vec<Link>,
    /// To the ranks before and after this one, where they are not the link with rank 0.
    before: Option<Link>,
    after: Option<Link>,
}

/// What a process says of itself when it connects.
struct Greeting {
    world_size: u32,
    rank: u32,
    /// Where it listens for its successor.
    port: u16,
}

impl Greeting {
    fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.world_size.to_le_bytes());
        bytes.extend(self.rank.to_le_bytes());
        bytes.extend(self.port.to_le_bytes());
        stream.write_all(&bytes)
    }

    fn receive(stream: &mut TcpStream) -> std::io::Result<Self> {
        let mut bytes = [0; 18];
        stream.read_exact(&mut bytes)?;
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if &bytes[..8] != MAGIC {
            return Err(std::io::Error::other("not a turnwise process"));
        }
        Ok(Self { world_size: number(8), rank: number(12), port: u16::from_le_bytes([bytes[16], bytes[17]]) })
    }
}

/// How long greetings may take.
struct Deadline {
    rank: usize,
    end: Instant,
}

impl Deadline {
    fn fail<T>(&self, reason: impl Into<String>) -> Result<T, CollectiveError> {
        Err(CollectiveError::Setup { rank: self.rank, reason: reason.into() })
    }

    fn io<T>(&self, what: &str, result: std::io::Result<T>) -> Result<T, CollectiveError> {
        result.or_else(|error| self.fail(format!("{what}: {error}")))
    }

    /// What is left, at least a moment.
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    fn over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// The next connection whose greeting makes sense; others are dropped.
    fn accept(
        &self,
        listener: &TcpListener,
        waiting: &str,
    ) -> Result<(TcpStream, Greeting), CollectiveError> {
        self.io("the listener cannot be used", listener.set_nonblocking(true))?;
        loop {
            if let Ok((mut stream, _)) = listener.accept() {
                let greeted = stream
                    .set_nonblocking(false)
                    .and_then(|()| stream.set_read_timeout(Some(self.left().min(Duration::from_secs(5)))))
                    .and_then(|()| Greeting::receive(&mut stream));
                if let Ok(greeting) = greeted {
                    return Ok((stream, greeting));
                }
            } else if self.over() {
                return self
                    .fail(format!("{waiting} did not come in time; TURNWISE_TIMEOUT sets the seconds"));
            } else {
                std::thread::sleep(RETRY);
            }
        }
    }

    /// Connects as soon as somebody listens.
    fn connect(&self, addresses: &[SocketAddr], to: &str) -> Result<TcpStream, CollectiveError> {
        loop {
            let mut last = String::new();
            for address in addresses {
                match TcpStream::connect_timeout(address, self.left()) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = format!("{address}: {error}"),
                }
            }
            if self.over() {
                return self.fail(format!("cannot reach {to} ({last}); does it run, and is the port free?"));
            }
            std::thread::sleep(RETRY);
        }
    }
}

impl TcpCollective {
    /// Finds the other processes: rank 0 listens on `host:port`, the others come there. A peer that is
    /// silent for longer than `timeout` counts as gone, now and later.
    ///
    /// # Errors
    /// A port that is taken, a rank that does not come in time or comes twice, another world size.
    pub fn connect(
        (rank, world_size, local_rank): (usize, usize, usize),
        (host, port): (&str, u16),
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        let deadline = Deadline { rank, end: Instant::now() + timeout };
        let place = format!("{host}:{port}");
        let addresses: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(error) => return deadline.fail(format!("MASTER_ADDR: `{host}` is no address: {error}")),
        };
        let found = Self { rank, world_size, local_rank, star: Vec::new(), before: None, after: None };
        if rank == 0 {
            let listener = match TcpListener::bind(addresses.as_slice()) {
                Ok(listener) => listener,
                Err(error) => {
                    return deadline
                        .fail(format!("cannot listen on {place}: {error}; choose another MASTER_PORT"));
                }
            };
            return found.lead(&listener, &deadline, timeout);
        }
        found.follow(&addresses, &place, &deadline, timeout)
    }

    /// Rank 0: takes all others in and tells each where its predecessor listens.
    fn lead(
        mut self,
        listener: &TcpListener,
        deadline: &Deadline,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        let mut streams: Vec<Option<(TcpStream, u16)>> = (1..self.world_size).map(|_| None).collect();
        while let Some(missing) = streams.iter().position(Option::is_none) {
            let waiting = format!("rank {}", missing + 1);
            let (stream, greeting) = deadline.accept(listener, &waiting)?;
            let (world_size, rank) = (greeting.world_size as usize, greeting.rank as usize);
            if world_size != self.world_size {
                return deadline.fail(format!(
                    "rank {rank} says WORLD_SIZE = {world_size}, here it is {}",
                    self.world_size
                ));
            }
            match streams.get_mut(rank.wrapping_sub(1)) {
                Some(place @ None) => *place = Some((stream, greeting.port)),
                Some(_) => {
                    return deadline
                        .fail(format!("rank {rank} came twice: every process needs its own RANK"));
                }
                None => return deadline.fail(format!("rank {rank} came, but WORLD_SIZE is {world_size}")),
            }
        }
        let streams: Vec<(TcpStream, u16)> = streams.into_iter().flatten().collect();
        let mut before: Option<SocketAddr> = None;
        for (index, (mut stream, port)) in streams.into_iter().enumerate() {
            let address = deadline.io("a connection is gone", stream.peer_addr())?;
            let text = before.map_or_else(String::new, |address| address.to_string());
            let mut bytes = vec![text.len() as u8];
            bytes.extend(text.as_bytes());
            deadline.io("a connection is gone", stream.write_all(&bytes))?;
            before = Some(SocketAddr::new(address.ip(), port));
            self.star.push(Link::new(stream, 0, index + 1, timeout)?);
        }
        Ok(self)
    }

    /// Any other rank: comes to rank 0, then to its predecessor, and waits for its successor.
    fn follow(
        mut self,
        addresses: &[SocketAddr],
        place: &str,
        deadline: &Deadline,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        let (rank, world_size) = (self.rank, self.world_size);
        let mut stream = deadline.connect(addresses, &format!("rank 0 at {place}"))?;
        let here: IpAddr = deadline.io("the connection to rank 0 is gone", stream.local_addr())?.ip();
        let listener = deadline.io("cannot listen for the next rank", TcpListener::bind((here, 0)))?;
        let port = deadline.io("cannot listen for the next rank", listener.local_addr())?.port();
        let greeting = Greeting { world_size: world_size as u32, rank: rank as u32, port };
        deadline.io("cannot greet rank 0", greeting.send(&mut stream))?;
        deadline.io("the connection to rank 0 is gone", stream.set_read_timeout(Some(deadline.left())))?;
        let mut length = [0];
        let mut text = Vec::new();
        let told = stream.read_exact(&mut length).and_then(|()| {
            text.resize(usize::from(length[0]), 0);
            stream.read_exact(&mut text)
        });
        let what =
            "rank 0 did not take this process in; what it printed, or a rank that did not come, says why";
        deadline.io(what, told)?;
        self.star.push(Link::new(stream, rank, 0, timeout)?);
        if let Ok(before) = String::from_utf8_lossy(&text).parse::<SocketAddr>() {
            let mut stream = deadline.connect(&[before], &format!("rank {}", rank - 1))?;
            deadline.io("cannot greet the rank before", greeting.send(&mut stream))?;
            self.before = Some(Link::new(stream, rank, rank - 1, timeout)?);
        }
        if rank + 1 < world_size {
            let waiting = format!("rank {}", rank + 1);
            loop {
                let (stream, greeting) = deadline.accept(&listener, &waiting)?;
                if greeting.rank as usize == rank + 1 {
                    self.after = Some(Link::new(stream, rank, rank + 1, timeout)?);
                    break;
                }
            }
        }
        Ok(self)
    }

    /// The link with the rank before this one in the chain.
    fn before(&self) -> Option<&Link> {
        if self.rank == 1 { self.star.first() } else { self.before.as_ref() }
    }

    /// The link with the rank after it.
    fn after(&self) -> Option<&Link> {
        if self.rank == 0 { self.star.first() } else { self.after.as_ref() }
    }
}

impl Drop for TcpCollective {
    fn drop(&mut self) {
        // All at once, so that one wait is enough for all.
        for link in self.star.iter().chain(&self.before).chain(&self.after) {
            link.close();
        }
    }
}

fn add(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, &value)| *to += value);
}

fn to_bytes(values: &[f32], bytes: &mut Vec<u8>) {
    bytes.resize(size_of_val(values), 0);
    for (bytes, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *bytes = value.to_le_bytes();
    }
}

fn from_bytes(link: &Link, kind: u8, values: &mut [f32]) -> Result<(), CollectiveError> {
    let bytes = link.receive(kind)?;
    if bytes.len() != size_of_val(values) {
        return Err(link.out_of_step(format!(
            "it has {} numbers to sum where there are {} here",
            bytes.len() / size_of::<f32>(),
            values.len()
        )));
    }
    for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
    Ok(())
}

impl Collective for TcpCollective {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn local_rank(&self) -> usize {
        self.local_rank
    }

    fn all_reduce(&self, parts: &mut [&mut [f32]]) -> Result<(), CollectiveError> {
        let Some((first, others)) = parts.split_first_mut() else { return Ok(()) };
        let (mut sum, mut bytes) = (vec![0.0; PIECE.min(first.len())], Vec::new());
        for start in (0..first.len()).step_by(PIECE) {
            let piece = start..first.len().min(start + PIECE);
            let sum = &mut sum[..piece.len()];
            match self.before() {
                Some(before) => {
                    from_bytes(before, SUM, sum)?;
                    add(sum, &first[piece.clone()]);
                }
                None => sum.copy_from_slice(&first[piece.clone()]),
            }
            for other in others.iter() {
                add(sum, &other[piece.clone()]);
            }
            match self.after() {
                Some(after) => {
                    to_bytes(sum, &mut bytes);
                    after.send(SUM, &bytes)?;
                }
                None => first[piece].copy_from_slice(sum),
            }
        }
        for start in (0..first.len()).step_by(PIECE) {
            let piece = start..first.len().min(start + PIECE);
            if let Some(after) = self.after() {
                from_bytes(after, TOTAL, &mut first[piece.clone()])?;
            }
            if let Some(before) = self.before() {
                to_bytes(&first[piece], &mut bytes);
                before.send(TOTAL, &bytes)?;
            }
        }
        Ok(())
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let mut all = vec![bytes.to_vec()];
        if self.rank == 0 {
            for link in &self.star {
                all.push(link.receive_all(GATHER)?);
            }
            for link in &self.star {
                for bytes in &all {
                    link.send_all(ANSWER, bytes)?;
                }
            }
            return Ok(all);
        }
        let Some(root) = self.star.first() else { return Ok(all) };
        root.send_all(GATHER, bytes)?;
        (0..self.world_size).map(|_| root.receive_all(ANSWER)).collect()
    }

    fn broadcast(&self, bytes: &[u8]) -> Result<Vec<u8>, CollectiveError> {
        if self.rank == 0 {
            self.star.iter().try_for_each(|link| link.send_all(ANSWER, bytes))?;
            return Ok(bytes.to_vec());
        }
        self.star.first().map_or_else(|| Ok(bytes.to_vec()), |root| root.receive_all(ANSWER))
    }
}
