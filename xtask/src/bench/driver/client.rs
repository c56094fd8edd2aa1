//! The clients: each a process of its own, pinned like the others, its CPU and memory as the kernel tells them.

use std::{
    io::Read,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::super::tracer_binary;
use crate::command::target_dir;

/// A load generator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Client {
    Tracer,
    Wrk,
    Oha,
}

/// What one run of it cost and found.
pub struct Found {
    pub requests: u64,
    pub elapsed_s: f64,
    pub cpu_ns: u64,
    pub max_rss_bytes: u64,
    pub p50_us: f64,
}

impl Found {
    pub fn cpu_us_per_request(&self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.requests.max(1) as f64
    }
}

/// Where `oha` is put.
pub fn oha_root() -> PathBuf {
    target_dir().join("bench-tools")
}

impl Client {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracer => "tracer load",
            Self::Wrk => "wrk -t1",
            Self::Oha => "oha",
        }
    }

    /// A closed loop for whole seconds.
    pub fn run(self, url: &str, connections: usize, seconds: u64, core: usize) -> Result<Found> {
        let (connections, length) = (connections.to_string(), format!("{seconds}s"));
        let mut command = match self {
            Self::Tracer => {
                let arguments = ["-c", &connections, "-d", &length];
                return Ok(tracer(url, core, &arguments)?.0);
            }
            Self::Wrk => Command::new("wrk"),
            Self::Oha => Command::new(oha_root().join("bin/oha")),
        };
        match self {
            Self::Wrk => command.args(["-t1", "--latency", "-c", &connections, "-d", &length, url]),
            _ => {
                command.args(["--no-tui", "--output-format", "json", "-c", &connections, "-z", &length, url])
            }
        };
        let (text, cost) = cost_of(&mut command)?;
        match self {
            Self::Wrk => of_wrk(&text, cost),
            _ => of_oha(&text, cost),
        }
    }
}

/// Runs our own driver; also gives its report.
pub fn tracer(url: &str, core: usize, arguments: &[&str]) -> Result<(Found, Value)> {
    let mut command = Command::new(tracer_binary());
    command.args(["load", url, "--format", "json", "--cores", &core.to_string()]).args(arguments);
    let (text, cost) = cost_of(&mut command)?;
    let report: Value = serde_json::from_str(&text).context("tracer load printed no JSON")?;
    ensure!(report["errors"] == 0, "requests failed; nothing measured counts: {}", report["error_classes"]);
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let found = Found {
        requests: report["requests"].as_u64().unwrap_or_default(),
        elapsed_s: number(&report["elapsed_ns"]) / 1e9,
        cpu_ns: cost.cpu_ns,
        max_rss_bytes: cost.max_rss_bytes,
        p50_us: number(&report["latency"]["p50_ns"]) / 1e3,
    };
    Ok((found, report))
}

struct Cost {
    cpu_ns: u64,
    max_rss_bytes: u64,
}

/// Runs a command to its end; gives what it printed and what it cost.
fn cost_of(command: &mut Command) -> Result<(String, Cost)> {
    let name = command.get_program().display().to_string();
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("cannot start {name}"))?;
    let mut text = String::new();
    child.stdout.take().context("it is piped")?.read_to_string(&mut text)?;
    let mut status = 0;
    // SAFETY: all zeroes is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointers are to live locals; the child is ours and has not been waited for.
    let waited = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) };
    ensure!(waited > 0, "cannot wait for {name}: {}", std::io::Error::last_os_error());
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        bail!("{name} ended with status {status}: {text}");
    }
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    let cost = Cost {
        cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        max_rss_bytes: usage.ru_maxrss as u64 * 1_024,
    };
    Ok((text, cost))
}

fn of_wrk(text: &str, cost: Cost) -> Result<Found> {
    ensure!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "wrk met errors: {text}");
    let line = text.lines().find(|line| line.contains(" requests in ")).context("wrk told no requests")?;
    let words: Vec<_> = line.split_whitespace().collect();
    let [requests, _, _, length, ..] = words[..] else { bail!("wrk said {line:?}") };
    let p50 = text.lines().find_map(|line| line.trim().strip_prefix("50%")).context("wrk told no median")?;
    Ok(Found {
        requests: requests.parse()?,
        elapsed_s: length.trim_end_matches(',').trim_end_matches('s').parse()?,
        cpu_ns: cost.cpu_ns,
        max_rss_bytes: cost.max_rss_bytes,
        p50_us: microseconds(p50.trim())?,
    })
}

/// `310.00us`, `1.20ms`, `2.00s`.
fn microseconds(text: &str) -> Result<f64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => bail!("{text:?} is no time of wrk's"),
    };
    Ok(number.parse::<f64>()? * scale)
}

fn of_oha(text: &str, cost: Cost) -> Result<Found> {
    let report: Value = serde_json::from_str(text).context("oha printed no JSON")?;
    let codes = report["statusCodeDistribution"].as_object().context("oha told no status codes")?;
    ensure!(codes.keys().all(|code| code == "200"), "oha met errors: {codes:?}");
    let elapsed_s = report["summary"]["total"].as_f64().context("oha told no time")?;
    Ok(Found {
        requests: codes.values().filter_map(Value::as_u64).sum(),
        elapsed_s,
        cpu_ns: cost.cpu_ns,
        max_rss_bytes: cost.max_rss_bytes,
        p50_us: report["latencyPercentiles"]["p50"].as_f64().context("oha told no median")? * 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_is_understood() {
        let text = "Running 2s test @ http://127.0.0.1:1/\n  1 threads and 16 connections\n  Latency Distribution\n     \
            50%  310.50us\n     75%    1.20ms\n  123456 requests in 2.00s, 15.30MB read\n";
        let found = of_wrk(text, Cost { cpu_ns: 123_456_000, max_rss_bytes: 1 }).unwrap();
        assert_eq!((found.requests, found.elapsed_s, found.p50_us), (123_456, 2.0, 310.5));
        assert_eq!(found.cpu_us_per_request(), 1.0);
        assert_eq!(microseconds("1.20ms").unwrap(), 1_200.0);
        assert!(of_wrk("  Socket errors: connect 1\n", Cost { cpu_ns: 0, max_rss_bytes: 0 }).is_err());
    }
}
