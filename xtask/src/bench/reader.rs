//! A reader like a window's: drains and attributes on a thread of its own, and keeps nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Result, anyhow};
use tracer::{attribution::Attribution, load::monotonic_ns, probe::reader::Reader};

/// Pause between two looks, as in a window.
const PAUSE: Duration = Duration::from_millis(5);

/// The thread; gives the number of requests attributed.
pub struct Discarding {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Discarding {
    pub fn start(mut reader: Reader) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut attribution = Attribution::new(false);
            let mut requests = 0;
            loop {
                let last = stopped.load(Ordering::Acquire);
                let now_ns = if last { u64::MAX } else { monotonic_ns() };
                reader.drain(now_ns, |record| attribution.take(record, &mut |_| requests += 1));
                if last {
                    return requests;
                }
                std::thread::sleep(PAUSE);
            }
        });
        Self { stop, thread }
    }

    pub fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| anyhow!("the reader's thread panicked"))
    }
}
