//! Does memory grow with requests? Told from the heap after a forced collection, phase by phase.

use serde::{Deserialize, Serialize};

/// Growth below this is none: caches and code fill for a while.
const BYTES_PER_REQUEST: f64 = 32.0;
/// A step smaller than this is none either, however few the requests.
const STEP_BYTES: f64 = 128.0 * 1024.0;
/// Handles that a request would have to leave behind.
const HANDLES_PER_REQUEST: f64 = 0.001;

/// One server's leak check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeakCheck {
    /// The server.
    pub server: String,
    /// Phases of load, each followed by a forced collection.
    pub phases: Vec<LeakPhase>,
    /// Requests that failed.
    pub failed: u64,
}

/// What was there after a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeakPhase {
    /// Requests answered in it.
    pub requests: u64,
    /// Resident memory after it.
    pub rss_bytes: u64,
    /// Heap after a forced collection; `None`: the server does not tell.
    pub heap_bytes: Option<u64>,
    /// Handles open after it.
    pub handles: Option<u64>,
}

/// What the phases say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Leak {
    /// Nothing grows by as much as could be seen: bytes a request.
    Plateau {
        /// Smallest growth that would have been called.
        resolution_bytes: f64,
    },
    /// The heap grows by so many bytes a request.
    Growth(f64),
    /// Handles grow by so many a request.
    Handles(f64),
    /// Neither can be said, for this reason.
    NotEnoughEvidence(&'static str),
}

impl LeakCheck {
    /// The verdict, over the steps after the second and third phase: in the first, caches fill.
    pub fn verdict(&self) -> Leak {
        let Some(heaps) = self.phases.iter().map(|phase| phase.heap_bytes).collect::<Option<Vec<_>>>() else {
            return Leak::NotEnoughEvidence("resident memory alone does not tell garbage from a leak");
        };
        let [_, from @ ..] = self.phases.as_slice() else {
            return Leak::NotEnoughEvidence("too few phases");
        };
        if from.len() < 3 || self.failed > 0 {
            return Leak::NotEnoughEvidence("too few phases without a failure");
        }
        let requests: Vec<f64> = self.phases.iter().map(|phase| phase.requests.max(1) as f64).collect();
        let steps = |values: &[u64]| -> Vec<f64> {
            values.windows(2).map(|pair| pair[1] as f64 - pair[0] as f64).skip(1).collect()
        };
        let handles: Option<Vec<u64>> = self.phases.iter().map(|phase| phase.handles).collect();
        if let Some(steps) = handles.map(|handles| steps(&handles))
            && steps.iter().zip(&requests[2..]).all(|(step, requests)| step / requests >= HANDLES_PER_REQUEST)
        {
            return Leak::Handles(steps.iter().sum::<f64>() / requests[2..].iter().sum::<f64>());
        }
        let steps = steps(&heaps);
        let resolution = |requests: f64| BYTES_PER_REQUEST.max(STEP_BYTES / requests);
        let grew =
            steps.iter().zip(&requests[2..]).map(|(step, requests)| step / requests >= resolution(*requests));
        let grew: Vec<bool> = grew.collect();
        if grew.iter().all(|grew| *grew) {
            Leak::Growth(steps.iter().sum::<f64>() / requests[2..].iter().sum::<f64>())
        } else if grew.iter().any(|grew| *grew) {
            Leak::NotEnoughEvidence("one phase grew and another did not")
        } else {
            let resolution_bytes =
                requests[2..].iter().map(|requests| resolution(*requests)).fold(0.0, f64::max);
            Leak::Plateau { resolution_bytes }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(heaps: &[u64], handles: &[u64], requests: u64) -> LeakCheck {
        let phase = |(heap, handles): (&u64, &u64)| LeakPhase {
            requests,
            rss_bytes: 100 << 20,
            heap_bytes: Some(*heap),
            handles: Some(*handles),
        };
        let phases = heaps.iter().zip(handles).map(phase).collect();
        LeakCheck { server: "a".into(), phases, failed: 0 }
    }

    const MIB: u64 = 1 << 20;
    const STILL: [u64; 4] = [33, 33, 33, 33];

    #[test]
    fn a_kilobyte_a_request_is_called_and_its_clean_twin_is_not() {
        let leaks = check(&[30 * MIB, 40 * MIB, 50 * MIB, 60 * MIB], &STILL, 10_240);
        assert_eq!(leaks.verdict(), Leak::Growth(1024.0));
        let clean = check(&[30 * MIB, 31 * MIB, 31 * MIB + 50_000, 31 * MIB], &STILL, 10_240);
        assert_eq!(clean.verdict(), Leak::Plateau { resolution_bytes: 32.0 });
    }

    #[test]
    fn few_requests_see_only_large_leaks() {
        let clean = check(&[30 * MIB, 31 * MIB, 31 * MIB + 100_000, 31 * MIB + 200_000], &STILL, 256);
        assert_eq!(clean.verdict(), Leak::Plateau { resolution_bytes: 512.0 });
    }

    #[test]
    fn handles_left_behind_are_called() {
        assert_eq!(check(&[MIB; 4], &[33, 43, 53, 63], 1000).verdict(), Leak::Handles(0.01));
        assert_eq!(
            check(&[MIB; 4], &[33, 43, 53, 53], 1000).verdict(),
            Leak::Plateau { resolution_bytes: 131.072 }
        );
    }

    #[test]
    fn without_a_heap_or_with_phases_that_disagree_nothing_is_said() {
        let mut unknown = check(&[MIB; 4], &STILL, 1000);
        unknown.phases[2].heap_bytes = None;
        assert!(matches!(unknown.verdict(), Leak::NotEnoughEvidence(why) if why.contains("resident")));
        let once = check(&[30 * MIB, 31 * MIB, 45 * MIB, 45 * MIB], &STILL, 10_000);
        assert!(matches!(once.verdict(), Leak::NotEnoughEvidence(why) if why.contains("one phase")));
        assert!(matches!(check(&[MIB; 3], &STILL, 9).verdict(), Leak::NotEnoughEvidence(_)));
        let failed = LeakCheck { failed: 1, ..check(&[MIB; 4], &STILL, 1000) };
        assert!(matches!(failed.verdict(), Leak::NotEnoughEvidence(_)));
    }
}
