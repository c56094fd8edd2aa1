//! What a request had of the peers its server asked.

use std::sync::Arc;

/// Peers told apart in one request; the rest is counted as [`OTHER_PEERS`].
pub const PEERS_KEPT: usize = 4;
/// The name under which further peers are counted.
pub const OTHER_PEERS: &str = "others";

/// Round trips of one request to one peer, on connections that the server opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DownstreamPeer {
    /// Its address and port.
    pub peer: Arc<str>,
    /// Turns of writing and reading.
    pub round_trips: u32,
    /// Of them, those that another of the requests open then may have made.
    pub inferred: u32,
    /// From the end of each round trip's last write until its answer began to arrive, nanoseconds; those of round trips
    /// that overlap are added.
    pub wait_ns: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
}

impl DownstreamPeer {
    /// Adds this to the entry of its peer, made if need be.
    pub fn add_to(self, peers: &mut Vec<Self>) {
        let known = peers.iter().position(|known| known.peer == self.peer);
        let Some(entry) = peers.get_mut(known.unwrap_or(PEERS_KEPT)) else {
            let peer = if peers.len() < PEERS_KEPT { self.peer } else { OTHER_PEERS.into() };
            return peers.push(Self { peer, ..self });
        };
        entry.round_trips += self.round_trips;
        entry.inferred += self.inferred;
        entry.wait_ns += self.wait_ns;
        entry.bytes_out += self.bytes_out;
        entry.bytes_in += self.bytes_in;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_beyond_those_kept_share_an_entry() {
        let mut peers = Vec::new();
        let mut add = |peer: String| {
            DownstreamPeer { peer: peer.into(), round_trips: 1, ..DownstreamPeer::default() }
                .add_to(&mut peers);
        };
        (0..PEERS_KEPT + 3).for_each(|number| add(number.to_string()));
        add("0".to_owned());
        let told: Vec<(&str, u32)> = peers.iter().map(|peer| (&*peer.peer, peer.round_trips)).collect();
        assert_eq!(told, [("0", 2), ("1", 1), ("2", 1), ("3", 1), (OTHER_PEERS, 3)]);
    }
}
