//! Connections: a `struct sock` plus our own number, in slots of an array.
//!
//! `SOCKETS` finds a slot by sock address; `FDS` caches the slot of a (process, fd), checked against the connection's
//! number, so that a reused fd, sock or slot is never taken for the old one. Writers: data-ready owns the arrival
//! fields (it runs under the socket's lock), the thread in a read or write owns `sequence`.

use aya_ebpf::{
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
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CachedFd {
    connection_id: u64,
    slot: u32,
    epoch: u32,
}

/// Values of `CachedFd::slot` that name no connection. Slot 0 is never handed out.
const NOT_TCP: u32 = 0;
const OTHER_TCP: u32 = u32::MAX;

#[map]
static CONNECTIONS: Array<Connection> = Array::with_max_entries(DEFAULT_MAX_CONNECTIONS, 0);
#[map]
static FREE_CONNECTIONS: Queue<u32> = Queue::with_max_entries(DEFAULT_MAX_CONNECTIONS, 0);
#[map]
static SOCKETS: HashMap<u64, u32> = HashMap::with_max_entries(DEFAULT_MAX_CONNECTIONS, 0);
#[map]
static FDS: HashMap<u64, CachedFd> = HashMap::with_max_entries(4 * DEFAULT_MAX_CONNECTIONS, 0);
/// One byte per port: a target listens there.
#[map]
static SERVED_PORTS: Array<u8> = Array::with_max_entries(65_536, 0);
/// When cached fds were last forgotten all at once: entries with another stamp are stale.
#[map]
static FDS_EPOCH: Array<u32> = Array::with_max_entries(1, 0);

/// What a file descriptor is.
pub enum Found {
    /// A connection the target serves: its slot.
    Connection(u32, &'static mut Connection),
    /// A TCP socket that serves nobody, as far as is known.
    OtherTcp,
    /// Not TCP: a file, a pipe, a UNIX socket.
    NotTcp,
    /// A connection the target serves, but no slot was left for it.
    NoSlot,
}

#[inline(always)]
fn epoch() -> u32 {
    FDS_EPOCH.get(0).map_or(0, |&epoch| epoch)
}

#[inline(always)]
pub fn serves(port: u16) -> bool {
    SERVED_PORTS.get(u32::from(port)).is_some_and(|&served| served != 0)
}

#[inline(always)]
pub fn serve(port: u16) {
    if let Some(served) = SERVED_PORTS.get_ptr_mut(u32::from(port)) {
        // SAFETY: a byte that only ever becomes 1.
        unsafe { *served = 1 };
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

/// What an fd of the current task is. `head` looks at the bytes just read on a TCP socket nobody knew: when they
/// begin a request, the socket serves.
#[inline(always)]
pub fn of_fd(tgid: u32, fd: u32, head: impl Fn() -> u32) -> Found {
    let key = fd_key(tgid, fd);
    if let Some(cached) = FDS.get_ptr(key) {
        // SAFETY: a copy; a torn one fails the number's check and is looked up anew.
        let cached = unsafe { *cached };
        if cached.epoch == epoch() {
            if cached.slot == NOT_TCP {
                return Found::NotTcp;
            }
            if cached.slot == OTHER_TCP {
                if !heads::is_method_word(head()) {
                    return Found::OtherTcp;
                }
            } else if let Some(connection) = at(cached.slot)
                && connection.id == cached.connection_id
            {
                return Found::Connection(cached.slot, connection);
            }
        }
    }
    look_up(key, fd, head())
}

#[inline(always)]
fn look_up(key: u64, fd: u32, head: u32) -> Found {
    let sock = FoundSock(Task::current().sock_of_fd(fd));
    let is_tcp = !sock.0.is_null() && sock.is_tcp();
    if !is_tcp || sock.state() == kernel::TCP_LISTEN {
        if !is_tcp && !sock.0.is_null() {
            counters::count(Counter::OtherSockets);
        }
        remember(key, 0, NOT_TCP);
        return Found::NotTcp;
    }
    let address = sock.0 as u64;
    let known = match of_sock(address) {
        Some(known) => Some(known),
        None => {
            let ports = sock.ports();
            if heads::is_method_word(head) {
                serve(ports.local);
            }
            if serves(ports.local) {
                match create(address, ports, 0) {
                    Some(created) => Some(created),
                    None => return Found::NoSlot,
                }
            } else {
                None
            }
        }
    };
    match known {
        Some((slot, connection)) => {
            remember(key, connection.id, slot);
            Found::Connection(slot, connection)
        }
        None => {
            remember(key, 0, OTHER_TCP);
            Found::OtherTcp
        }
    }
}

#[inline(always)]
fn remember(key: u64, connection_id: u64, slot: u32) {
    let cached = CachedFd { connection_id, slot, epoch: epoch() };
    if FDS.insert(key, cached, 0).is_err() {
        counters::count(Counter::FdCacheFull);
    }
}

/// Forgets what an fd was: it is being closed or replaced.
#[inline(always)]
pub fn forget_fd(tgid: u32, fd: u32) {
    let _ = FDS.remove(fd_key(tgid, fd));
}

/// Forgets every cached fd: many were closed at once.
#[inline(always)]
pub fn forget_all_fds() {
    if let Some(epoch) = FDS_EPOCH.get_ptr_mut(0) {
        // SAFETY: any new value will do.
        unsafe { *epoch = kernel::now_ns() as u32 };
    }
}
