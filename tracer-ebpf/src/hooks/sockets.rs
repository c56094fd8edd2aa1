//! Moments of a socket. They fire in anyone's context: never take a process from them.

use aya_ebpf::programs::BtfTracePointContext;
use tracer_common::records::Arrival;

use crate::{
    connections::{self, Connection},
    emit,
    kernel::{
        self, Ports, Sock, TCP_CLOSE_WAIT, TCP_ESTABLISHED, TCP_LISTEN, TCP_SYN_RECV, copy_words, now_ns,
    },
    threads::{self, Thread},
};

/// `inet_sock_set_state(sk, oldstate, newstate)`
#[inline(always)]
pub fn state_changed(ctx: &BtfTracePointContext) {
    let old_state: u32 = ctx.arg(1);
    let new_state: u32 = ctx.arg(2);
    let sock = Sock(ctx.arg(0));
    if new_state == u32::from(TCP_LISTEN) {
        // listen() runs in its caller's context: here, and only here, the running thread is the owner.
        if threads::running().is_some() {
            connections::serve(sock.ports().local);
        }
    } else if new_state == u32::from(TCP_ESTABLISHED) && old_state == u32::from(TCP_SYN_RECV) {
        let ports = sock.ports();
        if connections::serves(ports.local) {
            let now = now_ns();
            match connections::of_sock(sock.address()) {
                Some((_, connection)) => connection.established_ns = now,
                None => {
                    connections::create(sock.address(), ports, now);
                }
            }
        }
    }
}

/// `sk_data_ready(sk)`: inside a target's write it is the peer being told; otherwise it may be a connection of ours.
#[inline(always)]
pub fn data_ready(ctx: &BtfTracePointContext) {
    let sock = Sock(ctx.arg(0));
    if !sock.is_inet() {
        return;
    }
    let ports = sock.ports();
    if let Some(thread) = threads::running()
        && thread.call.write.is_write == 1
        && connections::serves(ports.remote)
    {
        delivered(thread, sock, ports);
        return;
    }
    let mark = connections::mark_of(ports.local);
    if mark == 0 || sock.state() == TCP_LISTEN {
        return;
    }
    let known = match connections::of_sock(sock.address()) {
        Some((_, connection)) => Some(connection),
        None if mark != connections::SERVED => None,
        None => connections::create(sock.address(), ports, 0).map(|(_, connection)| connection),
    };
    if let Some(connection) = known {
        arrived(connection, sock);
    }
}

#[inline(always)]
fn delivered(thread: &mut Thread, peer: Sock, ports: Ports) {
    if let Some((_, received)) = peer.receive_sequences() {
        let now = now_ns();
        thread.call.write.local_port = ports.remote;
        thread.call.write.remote_port = ports.local;
        thread.call.write.delivered_ns = now;
        thread.call.write.delivered_cpu_ns = thread.cpu_ns(now);
        thread.call.write.delivered_sequence = received;
    }
}

#[inline(always)]
fn arrived(connection: &mut Connection, sock: Sock) {
    let Some((copied, received)) = sock.receive_sequences() else { return };
    let unread_before = connection.received.wrapping_sub(copied);
    let was_empty = connection.received == 0 || unread_before == 0 || unread_before > i32::MAX as u32;
    let closing = sock.state() == TCP_CLOSE_WAIT && connection.peer_closed == 0;
    if closing {
        connection.peer_closed = 1;
    }
    // A FIN takes one sequence number and is no byte.
    let arrived_bytes = received.wrapping_sub(copied).wrapping_sub(u32::from(closing));
    connection.received = received;
    if arrived_bytes == 0 || connection.peer_closed == 1 && !closing {
        return;
    }
    let now = now_ns();
    connection.last_ready_ns = now;
    if was_empty {
        copy_words(&raw mut connection.previous_arrival, &raw const connection.arrival);
        connection.arrival = Arrival { ns: now, sequence: copied, reserved: 0 };
    }
}

/// `tcp_destroy_sock(sk)`
#[inline(always)]
pub fn destroyed(ctx: &BtfTracePointContext) {
    if let Some(connection) = connections::end(Sock(ctx.arg(0)).address()) {
        emit::destroyed(&connection);
    }
}

/// `tcp_probe(sk, skb)`: attached only when acknowledgements are asked for.
#[inline(always)]
pub fn segment_received(ctx: &BtfTracePointContext) {
    let sock = Sock(ctx.arg(0));
    let Some((_, connection)) = connections::of_sock(sock.address()) else { return };
    let Some(acked) = kernel::acknowledged(ctx.arg(1)) else { return };
    if connection.acked_ns != 0 && acked.wrapping_sub(connection.acked_sequence) as i32 <= 0 {
        return;
    }
    connection.acked_sequence = acked;
    connection.acked_ns = now_ns();
    emit::fetch_add_one(&raw mut connection.ack_turns);
    if connection.awaits_ack == 1 {
        connection.awaits_ack = u32::from(connection.written_sequence != acked);
        emit::acked(connection, connection.acked_ns, acked);
    }
}

/// `net_dev_queue(skb)`: attached only when drain detail is asked for.
#[inline(always)]
pub fn queued_to_device(ctx: &BtfTracePointContext) {
    let Some((sock, end)) = kernel::segment_end(ctx.arg(0)) else { return };
    if let Some((_, connection)) = connections::of_sock(sock)
        && connection.drains == 1
        && end.wrapping_sub(connection.drain_sequence) as i32 >= 0
    {
        connection.drains = 0;
        emit::drained(connection, end);
    }
}
