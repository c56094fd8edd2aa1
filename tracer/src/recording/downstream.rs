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
    /// The entry of `peer`, made if need be.
    pub fn of<'p>(peers: &'p mut Vec<Self>, peer: &Arc<str>) -> &'p mut Self {
        let known = peers.iter().position(|known| known.peer == *peer);
        let index = known.unwrap_or_else(|| {
            if peers.len() < PEERS_KEPT {
                peers.push(Self { peer: Arc::clone(peer), ..Self::default() });
            } else if peers.len() == PEERS_KEPT {
                peers.push(Self { peer: OTHER_PEERS.into(), ..Self::default() });
            }
            peers.len() - 1
        });
        &mut peers[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_beyond_those_kept_share_an_entry() {
        let mut peers = Vec::new();
        for number in 0..PEERS_KEPT + 3 {
            DownstreamPeer::of(&mut peers, &Arc::from(number.to_string())).round_trips += 1;
        }
        DownstreamPeer::of(&mut peers, &Arc::from("0")).round_trips += 1;
        let told: Vec<(&str, u32)> = peers.iter().map(|peer| (&*peer.peer, peer.round_trips)).collect();
        assert_eq!(told, [("0", 2), ("1", 1), ("2", 1), ("3", 1), (OTHER_PEERS, 3)]);
    }
}
