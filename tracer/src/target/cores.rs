//! Which CPUs the server and the driver get.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs of the two sides. They are the same one when no other is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The server's.
    pub server: Vec<usize>,
    /// The driver's and the reader's.
    pub client: Vec<usize>,
}

impl Placement {
    /// The last allowed CPU for the server and the first for the client: CPU 0 takes most interrupts.
    fn among(allowed: &[usize]) -> Self {
        let pick = |core: Option<&usize>| core.copied().into_iter().collect();
        Self { server: pick(allowed.last()), client: pick(allowed.first()) }
    }

    /// Server and driver take the CPU from each other.
    pub fn shared(&self) -> bool {
        self.server == self.client
    }

    /// What the reader of the numbers must know about the placement.
    pub fn note(&self) -> Option<String> {
        self.shared().then(|| {
            "server and driver share the only CPU allowed, so each waits for the other; latency and rate describe both"
                .to_owned()
        })
    }
}

/// CPUs this thread may run on, ascending.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot read the CPUs allowed to tracer")?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Where server and client go on this machine. Ask before pinning: pinning narrows what is allowed.
pub fn placement() -> Result<Placement> {
    Ok(Placement::among(&allowed()?))
}

/// Pins the calling thread, and threads it starts later, to one CPU.
pub fn pin_current_thread(core: usize) -> Result<()> {
    sched_setaffinity(None, &only(core)).with_context(|| {
        format!("cannot pin a thread to CPU {core}; allow tracer that CPU (see `taskset -p $$`), or run it unpinned")
    })
}

/// The set of one CPU.
pub(super) fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_two_cores() {
        assert_eq!(Placement::among(&[1, 2, 5]), Placement { server: vec![5], client: vec![1] });
        assert_eq!(Placement::among(&[1, 2, 5]).note(), None);
        assert!(Placement::among(&[3]).note().is_some_and(|note| note.contains("share the only CPU")));
    }

    #[test]
    fn pinning_narrows_what_is_allowed() {
        let core = placement().unwrap().server[0];
        std::thread::spawn(move || {
            pin_current_thread(core).unwrap();
            assert_eq!(allowed().unwrap(), [core]);
        })
        .join()
        .unwrap();
    }
}
