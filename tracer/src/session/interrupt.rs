//! Ctrl-C: the first ends the run with the result so far, the second ends the program.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes the signals that ask for an end set the flag; a second one ends the program at once.
pub fn install() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, INTERRUPTED.clone())
            .and_then(|_| signal_hook::flag::register(signal, INTERRUPTED.clone()))
            .context("cannot prepare for Ctrl-C")?;
    }
    Ok(())
}

/// Makes the same signals set another flag too.
pub fn also_set(flag: &Arc<AtomicBool>) -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, flag.clone()).context("cannot prepare for Ctrl-C")?;
    }
    if requested() {
        flag.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// An end was asked for.
pub fn requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
