//! Eight comparisons of which the right answer is known.

use std::{process::Command, time::Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::super::tracer_binary;
use crate::command::workspace;

/// What the answer must be.
enum Right {
    /// Neither regression nor improved.
    NotCalled,
    /// A regression, with these words in its answer or among what is ruled out.
    Regression(&'static [&'static str]),
    /// Neither, and these words.
    Waits(&'static [&'static str]),
}

/// One comparison.
struct Case {
    what: &'static str,
    a: String,
    b: String,
    /// Connections, and the rate where both get the same.
    load: &'static [&'static str],
    right: Right,
}

/// As many requests as the server answers.
const CLOSED: &[&str] = &["--connections", "32"];

fn cases() -> Vec<Case> {
    let builtin =
        |knobs: &str| format!("'{}' serve --port {{port}} --knobs '{knobs}'", tracer_binary().display());
    let node = |file: &str| {
        format!("node '{}'", workspace().join("xtask/src/bench/verdict/streams").join(file).display())
    };
    let case = |what, b: &str, right| Case { what, a: builtin(""), b: builtin(b), load: CLOSED, right };
    vec![
        case("identical", "", Right::NotCalled),
        case("identical again", "", Right::NotCalled),
        Case {
            what: "a spin of a tenth",
            a: builtin("spin_ns=15000"),
            b: builtin("spin_ns=18000"),
            load: CLOSED,
            right: Right::Regression(&["us in app: user", "writes 1.00 -> 1.00"]),
        },
        case("a second write", "split=1", Right::Regression(&["us in write (2 writes instead of 1"])),
        // At the same rate: in a closed loop the side that waits longer gets less load, and a server that is idle more
        // often pays more per request. Both wait, for sleeping costs CPU too.
        Case {
            what: "a wait of 2 ms more downstream",
            a: builtin("sleep_us=2000"),
            b: builtin("sleep_us=4000"),
            load: &["--connections", "64", "--rate", "8000"],
            right: Right::Waits(&["us in app: blocked"]),
        },
        case(
            "one more file opened",
            "open_files=1",
            Right::Regression(&["a syscall that A does not make: openat"]),
        ),
        case(
            "allocations",
            "allocations=200",
            Right::Regression(&["us in app: user", "writes 1.00 -> 1.00"]),
        ),
        Case {
            what: "stream pipeline against a loop",
            a: node("loop.mjs"),
            b: node("pipeline.mjs"),
            load: CLOSED,
            right: Right::Regression(&["us in app: user"]),
        },
    ]
}

/// Runs those whose name contains `only`, one after the other.
pub fn run(only: &str) -> Result<bool> {
    let mut all_right = true;
    for case in cases().into_iter().filter(|case| case.what.contains(only)) {
        let started = Instant::now();
        let judgement = case.judgement()?;
        let right = case.is_right(&judgement);
        all_right &= right;
        println!(
            "{}: {} ({:.0} s, {} launches)\n    {}",
            case.what,
            if right { "right" } else { "WRONG" },
            started.elapsed().as_secs_f64(),
            judgement["launches"],
            judgement["answer"].as_str().unwrap_or_default()
        );
    }
    Ok(all_right)
}

impl Case {
    fn judgement(&self) -> Result<Value> {
        let output = Command::new(tracer_binary())
            .args(["diff", &self.a, &self.b, "--url", "http://127.0.0.1:{port}/", "--format", "json"])
            .args(self.load)
            .output()
            .context("cannot start tracer")?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{}: {}", self.what, String::from_utf8_lossy(&output.stderr)))
    }

    fn is_right(&self, judgement: &Value) -> bool {
        let verdict = judgement["verdict"]["kind"].as_str().unwrap_or_default();
        let called = ["regression", "improved"].contains(&verdict);
        let route = &judgement["routes"][0];
        let told = format!("{} {} {}", judgement["answer"], route["ruled_out"], route["kinds"]);
        let says = |words: &[&str]| words.iter().all(|part| told.contains(part));
        match self.right {
            Right::NotCalled => !called,
            Right::Regression(words) => verdict == "regression" && says(words),
            Right::Waits(words) => !called && says(words),
        }
    }
}
