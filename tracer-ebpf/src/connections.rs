//! Connections: a `struct sock` plus our own number, in slots of an array.
//!
//! `SOCKETS` finds a slot by sock address; `FDS` caches the slot of a (process, fd), checked against the connection's
//! number, so that a reused fd, sock or slot is never taken for the old one. Writers: data-ready owns the arrival
//! fields (it runs under the socket's lock), the thread in a read or write owns `sequence`.

use aya_ebpf::{
    Global,
    macros::map,
    maps::{Array, HashMap, Queue},
};
use tracer_common::{counters::Counter, heads, records::Arrival, settings::DEFAULT_MAX_CONNECTIONS};

use crate::{
    counters,
    kernel::{self, FoundSock, Ports, Task},
};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Connection {
    /// Generation of the slot, then the slot: unique while the programs are loaded. Zero: the slot is free.
    pub id: u64,
    pub sock: u64,
    pub established_ns: u64,
    pub arrival: Arrival,
    pub previous_arrival: Arrival,
    pub last_ready_ns: u64,
    /// `rcv_nxt` at the last data-ready event.
    pub received: u32,
    /// Records written or refused so far: the next one's number less one.
    pub sequence: u32,
    pub local_port: u16,
    pub remote_port: u16,
    pub peer_closed: u32,
    pub generation: u32,
    /// Unsent response bytes end here; `drains` is 1 while they are awaited.
    pub drain_sequence: u32,
    pub drains: u32,
    /// `write_seq` after the last write, when all of it was delivered inside the call; zero: not known.
    pub delivered_sequence: u32,
    /// `write_seq` after the last write, for the acknowledgements; `awaits_ack` is 1 until it is reached.
    pub written_sequence: u32,
    pub awaits_ack: u32,
    /// The newest acknowledgement, and when it came; zero: none was seen.
    pub acked_sequence: u32,
    /// 1: the target opened it, and serves nobody there.
    pub downstream: u32,
    pub acked_ns: u64,
    /// Writer and acknowledgement each write their own words, take a turn, and then read the other's: one of them
    /// sees both.
    pub ack_turns: u64,
    /// The peer's address, of downstream connections only.
    pub remote_address: [u32; 4],
}

/// What a file descriptor was found to be. `key` is written last and cleared first, and read before and after the
/// rest: an entry that changes meanwhile is not taken for either.
#[repr(C)]
struct CachedFd {
    /// Process and fd; zero: empty.
    key: u64,
    /// A connection's id, or one of the answers below.
    answer: u64,
    epoch: u64,
    reserved: u64,
}

/// Answers that name no connection. Slot 0 is never handed out, and no generation is as high.
const NOT_TCP: u64 = 0;
const OTHER_TCP: u64 = u64::MAX;
const NO_SLOT: u64 = u64::MAX - 1;

#[map]
static CONNECTIONS: Array<Connection> = Array::with_max_entries(DEFAULT_MAX_CONNECTIONS, 0);
#[map]
static FREE_CONNECTIONS: Queue<u32> = Queue::with_max_entries(DEFAULT_MAX_CONNECTIONS, 0);
#[map]
static SOCKETS: HashMap<u64, u32> = HashMap::with_max_entries(DEFAULT_MAX_CONNECTIONS, 0);
/// Indexed by fd, spread by process: one cache line for a look-up, where a hash takes three and a call.
#[map]
static FDS: Array<CachedFd> = Array::with_max_entries(2, 0);
/// Entries of `FDS`, a power of two; set before load.
#[unsafe(no_mangle)]
static FD_SLOTS: Global<u32> = Global::new(2);
/// One byte per port: [`SERVED`], [`DOWNSTREAM`] or neither.
#[map]
static SERVED_PORTS: Array<u8> = Array::with_max_entries(65_536, 0);
/// When cached fds were last forgotten all at once: entries with another stamp are stale.
#[map]
static FDS_EPOCH: Array<u64> = Array::with_max_entries(1, 0);

/// A target listens on the port.
pub const SERVED: u8 = 1;
/// The target's end of a downstream connection had the port.
const DOWNSTREAM: u8 = 2;

/// What a file descriptor is.
pub enum Found {
    /// A connection the target serves.
    Connection(&'static mut Connection),
    /// A TCP connection the target opened.
    Downstream(&'static mut Connection),
    /// The same, but no slot was left for it.
    OtherTcp,
    /// Not TCP: a file, a pipe, a UNIX socket.
    NotTcp,
    /// A connection the target serves, but no slot was left for it.
    NoSlot,
}

#[inline(always)]
fn epoch() -> u64 {
    FDS_EPOCH.get(0).map_or(0, |&epoch| epoch)
}

#[inline(always)]
pub fn mark_of(port: u16) -> u8 {
    SERVED_PORTS.get(u32::from(port)).map_or(0, |&mark| mark)
}

#[inline(always)]
pub fn serves(port: u16) -> bool {
    mark_of(port) == SERVED
}

#[inline(always)]
pub fn serve(port: u16) {
    mark(port, SERVED);
}

#[inline(always)]
fn mark(port: u16, as_what: u8) {
    if let Some(mark) = SERVED_PORTS.get_ptr_mut(u32::from(port)) {
        // SAFETY: a byte of its own; any order of writers will do, for a served port is marked again when it is seen to serve.
        unsafe { *mark = as_what };
    }
}

impl Connection {
    /// It turned out that the target serves it.
    #[inline(always)]
    pub fn serves_after_all(&mut self) {
        self.downstream = 0;
        serve(self.local_port);
    }
}

#[inline(always)]
pub fn at(slot: u32) -> Option<&'static mut Connection> {
    // SAFETY: map memory lives as long as the program; writers as said in the module's head.
    CONNECTIONS.get_ptr_mut(slot).map(|connection| unsafe { &mut *connection })
}

/// The connection of a sock, if it is known.
#[inline(always)]
pub fn of_sock(sock: u64) -> Option<(u32, &'static mut Connection)> {
    // SAFETY: the value is written once, at insertion.
    let slot = unsafe { *SOCKETS.get_ptr(sock)? };
    at(slot).map(|connection| (slot, connection))
}

/// Gives a sock a slot and a number.
#[inline(always)]
pub fn create(sock: u64, ports: Ports, established_ns: u64) -> Option<(u32, &'static mut Connection)> {
    let Ok(Some(slot)) = FREE_CONNECTIONS.pop() else {
        counters::count(Counter::ConnectionsFull);
        return None;
    };
    let connection = at(slot)?;
    let generation = connection.generation + 1;
    *connection = Connection {
        id: u64::from(generation) << 32 | u64::from(slot),
        generation,
        sock,
        established_ns,
        arrival: Arrival { ns: 0, sequence: 0, reserved: 0 },
        previous_arrival: Arrival { ns: 0, sequence: 0, reserved: 0 },
        last_ready_ns: 0,
        received: 0,
        sequence: 0,
        local_port: ports.local,
        remote_port: ports.remote,
        peer_closed: 0,
        drain_sequence: 0,
        drains: 0,
        delivered_sequence: 0,
        written_sequence: 0,
        awaits_ack: 0,
        acked_sequence: 0,
        downstream: 0,
        acked_ns: 0,
        ack_turns: 0,
        remote_address: [0; 4],
    };
    // BPF_NOEXIST: another CPU may have been first.
    if SOCKETS.insert(sock, slot, 1).is_err() {
        let _ = FREE_CONNECTIONS.push(slot, 0);
        return of_sock(sock);
    }
    Some((slot, connection))
}

/// Ends a connection; returns what it was.
#[inline(always)]
pub fn end(sock: u64) -> Option<Connection> {
    let (slot, connection) = of_sock(sock)?;
    let ended = *connection;
    connection.id = 0;
    if SOCKETS.remove(sock).is_err() {
        return None;
    }
    let _ = FREE_CONNECTIONS.push(slot, 0);
    Some(ended)
}

#[inline(always)]
fn fd_key(tgid: u32, fd: u32) -> u64 {
    u64::from(tgid) << 32 | u64::from(fd)
}

#[inline(always)]
fn cached(key: u64) -> Option<&'static mut CachedFd> {
    // Fibonacci hashing (Knuth, TAOCP 6.4) keeps the fds of one process side by side and processes apart.
    let spread = ((key >> 32) as u32).wrapping_mul(0x9E37_79B1);
    let entry = FDS.get_ptr_mut((key as u32).wrapping_add(spread) & (FD_SLOTS.load() - 1))?;
    // SAFETY: map memory; concurrent changes are noticed by the rule of `CachedFd`.
    Some(unsafe { &mut *entry })
}

/// What an fd of the current task is. `head` looks at the bytes just read on a TCP socket nobody knew: when they
/// begin a request, the socket serves.
#[inline(always)]
pub fn of_fd(tgid: u32, fd: u32, head: impl Fn() -> u32) -> Found {
    let key = fd_key(tgid, fd);
    if let Some(answer) = remembered(key) {
        if answer == NOT_TCP {
            return Found::NotTcp;
        }
        if answer == OTHER_TCP {
            if !heads::is_method_word(head()) {
                return Found::OtherTcp;
            }
        } else if let Some(connection) = at(answer as u32)
            && connection.id == answer
        {
            return found(connection, head);
        }
    }
    match look_up(key, head()) {
        NOT_TCP => Found::NotTcp,
        OTHER_TCP => Found::OtherTcp,
        NO_SLOT => Found::NoSlot,
        id => match at(id as u32) {
            Some(connection) => found(connection, head),
            None => Found::NotTcp,
        },
    }
}

#[inline(always)]
fn found(connection: &'static mut Connection, head: impl Fn() -> u32) -> Found {
    if connection.downstream == 0 {
        return Found::Connection(connection);
    }
    if heads::is_method_word(head()) {
        connection.serves_after_all();
        return Found::Connection(connection);
    }
    Found::Downstream(connection)
}

#[inline(always)]
fn remembered(key: u64) -> Option<u64> {
    let entry: *const CachedFd = cached(key)?;
    // SAFETY: as in `cached`; volatile, for another CPU may write it now.
    unsafe {
        let answer = (&raw const (*entry).key).read_volatile() == key;
        let (id, stamp) =
            ((&raw const (*entry).answer).read_volatile(), (&raw const (*entry).epoch).read_volatile());
        let still = (&raw const (*entry).key).read_volatile() == key;
        (answer && still && stamp == epoch()).then_some(id)
    }
}

/// Looks an fd up in the current task's table and remembers the answer. A function of its own: seldom run, and long.
#[inline(never)]
fn look_up(key: u64, head: u32) -> u64 {
    let answer = ask(key as u32, head);
    if answer != NO_SLOT {
        remember(key, answer);
    }
    answer
}

#[inline(always)]
fn ask(fd: u32, head: u32) -> u64 {
    let sock = FoundSock(Task::current().sock_of_fd(fd));
    let is_tcp = !sock.0.is_null() && sock.is_tcp();
    if !is_tcp || sock.state() == kernel::TCP_LISTEN {
        if !is_tcp && !sock.0.is_null() {
            counters::count(Counter::OtherSockets);
        }
        return NOT_TCP;
    }
    let address = sock.0 as u64;
    if let Some((_, connection)) = of_sock(address) {
        return connection.id;
    }
    let ports = sock.ports();
    if heads::is_method_word(head) {
        serve(ports.local);
    }
    if serves(ports.local) {
        return create(address, ports, 0).map_or(NO_SLOT, |(_, connection)| connection.id);
    }
    let Some((_, connection)) = create(address, ports, 0) else { return OTHER_TCP };
    connection.remote_address = sock.remote_address();
    connection.downstream = 1;
    mark(ports.local, DOWNSTREAM);
    connection.id
}

#[inline(always)]
fn remember(key: u64, answer: u64) {
    let Some(entry) = cached(key) else { return };
    let entry: *mut CachedFd = entry;
    // SAFETY: as in `cached`.
    unsafe {
        let before = (&raw const (*entry).key).read_volatile();
        if before != 0 && before != key {
            counters::count(Counter::FdCacheReplaced);
        }
        (&raw mut (*entry).key).write_volatile(0);
        (&raw mut (*entry).answer).write_volatile(answer);
        (&raw mut (*entry).epoch).write_volatile(epoch());
        (&raw mut (*entry).key).write_volatile(key);
    }
}

/// Forgets what an fd was: it is being closed or replaced.
#[inline(always)]
pub fn forget_fd(tgid: u32, fd: u32) {
    let key = fd_key(tgid, fd);
    if let Some(entry) = cached(key)
        && entry.key == key
    {
        entry.key = 0;
    }
}

/// Forgets every cached fd: many were closed at once.
#[inline(always)]
pub fn forget_all_fds() {
    if let Some(epoch) = FDS_EPOCH.get_ptr_mut(0) {
        // SAFETY: any new value will do.
        unsafe { *epoch = kernel::now_ns() };
    }
}
