//! `tracer load`

use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use super::{
    Format, Status, print,
    sending::{MessageArguments, PacingArguments, read},
};
use crate::{
    load::{
        self, Abort, Driver, Endpoint, Expectation, ExpectedBody, Files, LoadResult, Pacing, Plan, Route,
        Second, Seconds, ServerWatch, Stop, Tick, Url,
        report::{Circumstances, Latency, LoadReport, foresight},
    },
    report::{percent, thousands, us},
    scenario::parse_duration,
    session::{interrupt, progress::Progress},
    target::cores,
};

/// Options of `load`.
#[derive(Args)]
pub struct Arguments {
    /// Where to, such as http://127.0.0.1:8080/
    url: String,
    /// Connections
    #[arg(short, long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// How long requests are sent, such as 10s
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = parse_duration, conflicts_with = "requests")]
    duration: Duration,
    /// Send exactly so many requests, however long it takes
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Send load for so long before anything is measured
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    warm_up: Option<Duration>,
    #[command(flatten)]
    pacing: PacingArguments,
    /// A connection for each request, with `Connection: close`
    #[arg(long, conflicts_with_all = ["requests_per_connection", "pipeline"])]
    no_keep_alive: bool,
    /// Connect to this UNIX socket; the URL gives host and path
    #[arg(long, value_name = "SOCKET")]
    unix: Option<PathBuf>,
    #[command(flatten)]
    message: MessageArguments,
    /// A cookie, such as session=1; may be given several times
    #[arg(long = "cookie", value_name = "NAME=VALUE")]
    cookies: Vec<String>,
    /// Instead of the URL's path: '[WEIGHT ][METHOD ]PATH', such as '3 GET /users/{id:8}'; may be given several times.
    /// {counter:N} and {id:N} are N digits that differ from request to request, in paths, headers and bodies
    #[arg(long = "route", value_name = "ROUTE", value_parser = route)]
    routes: Vec<(u32, Option<String>, String)>,
    /// Status of every response; any other is an error
    #[arg(long, value_name = "CODE", default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..=599))]
    expect_status: u16,
    /// Body of every response; any other is an error
    #[arg(long, value_name = "TEXT")]
    expect_body: Option<String>,
    /// File with the body of every response
    #[arg(long, value_name = "FILE", conflicts_with = "expect_body")]
    expect_body_file: Option<PathBuf>,
    /// Hash of the body of every response, in hexadecimal; any other is an error
    #[arg(long, value_name = "SHA256", value_parser = ExpectedBody::sha256,
          conflicts_with_all = ["expect_body", "expect_body_file"])]
    expect_sha256: Option<ExpectedBody>,
    /// Length of the body of every response; any other is an error
    #[arg(long, value_name = "N", conflicts_with_all = ["expect_body", "expect_body_file", "expect_sha256"])]
    expect_bytes: Option<u64>,
    /// Longest wait for a connection, and for a whole response
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
    /// Read no more than so many bytes per second on each connection
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    read_rate: Option<u64>,
    /// Give up on every request: once the response's head is there (head), after N bytes of it (bytes=N), or a time
    /// after it was sent (after=TIME)
    #[arg(long, value_name = "WHEN", value_parser = abort)]
    abort: Option<Abort>,
    /// CPUs of the driver, a thread on each; without it one that is not the server's alone
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Write a histogram of every second to this file (HdrHistogram log, V2)
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Write a row of figures for every second to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn route(text: &str) -> Result<(u32, Option<String>, String), String> {
    let wrong = || "write it like '3 GET /path'; weight and method may be left out".to_owned();
    let words: Vec<_> = text.split_whitespace().collect();
    let weight = |word: &str| word.parse::<u32>().ok().filter(|&weight| weight > 0);
    match words[..] {
        [path] if path.starts_with('/') => Ok((1, None, path.to_owned())),
        [first, path] => match weight(first) {
            Some(weight) => Ok((weight, None, path.to_owned())),
            None if first.parse::<u32>().is_err() => Ok((1, Some(first.to_owned()), path.to_owned())),
            None => Err(wrong()),
        },
        [first, method, path] => {
            Ok((weight(first).ok_or_else(wrong)?, Some(method.to_owned()), path.to_owned()))
        }
        _ => Err(wrong()),
    }
}

fn abort(text: &str) -> Result<Abort, String> {
    let wrong = || "one of head, bytes=N, after=TIME".to_owned();
    match text.split_once('=') {
        None if text == "head" => Ok(Abort::Head),
        Some(("bytes", count)) => {
            count.parse().ok().filter(|&bytes| bytes > 0).map(Abort::Bytes).ok_or_else(wrong)
        }
        Some(("after", time)) => parse_duration(time).map(Abort::After),
        _ => Err(wrong()),
    }
}

/// Runs `load`.
pub fn run(arguments: &Arguments) -> Result<Status> {
    let (endpoint, host, path) = arguments.server()?;
    let server = ServerWatch::find(&endpoint);
    let mut plan = arguments.plan(endpoint, host, path)?;
    if plan.cores.is_empty() {
        plan.cores = default_core(server.as_ref())?;
    }
    let files = Files { hdr: arguments.hdr.clone(), csv: arguments.csv.clone() };
    files.check()?;
    let progress = Progress::new();
    let notes = foresight(&plan, server.as_ref().map(ServerWatch::cores));
    notes.iter().for_each(|note| progress.note(note));
    let noted = notes.len();
    let (result, server) = match Driver::start(plan.clone()) {
        Ok(driver) => arguments.load(driver, server, &files, &progress)?,
        Err(error) => match LoadResult::unconnected(&plan, &error) {
            Some(result) => {
                progress.note(&format!("{error:#}"));
                (result, None)
            }
            None => return Err(error),
        },
    };
    drop(progress);
    let interrupted = interrupt::requested();
    let url = arguments.url.split('?').next().unwrap_or_default().to_owned();
    let report = LoadReport::new(&plan, &result, Circumstances { url, server, interrupted, notes });
    for note in &report.notes[noted..] {
        eprintln!("tracer: {note}");
    }
    print(&match arguments.format {
        Format::Text => load::text(&report),
        Format::Json => serde_json::to_string_pretty(&report).context("cannot print the result as JSON")?,
    })?;
    Ok(status(&report))
}

fn status(report: &LoadReport) -> Status {
    if report.errors > 0 {
        Status::Broken
    } else if !report.ended_early.is_empty() || report.requests_per_s.is_none() {
        Status::NoVerdict
    } else {
        Status::Held
    }
}

/// The first CPU allowed that the server does not have for itself.
fn default_core(server: Option<&ServerWatch>) -> Result<Vec<usize>> {
    let allowed = cores::allowed()?;
    let taken =
        server.map(ServerWatch::cores).filter(|cores| cores.len() < allowed.len()).unwrap_or_default();
    let core = allowed.iter().find(|core| !taken.contains(core)).or(allowed.first());
    Ok(core.copied().into_iter().collect())
}

impl Arguments {
    /// Where the server is, the Host header, and the path.
    fn server(&self) -> Result<(Endpoint, String, String)> {
        match &self.unix {
            Some(socket) => {
                let (host, path) = Url::unresolved(&self.url)?;
                Ok((Endpoint::Unix(socket.clone()), host, path))
            }
            None => {
                let Url { address, host, path } = Url::parse(&self.url)?;
                Ok((address.into(), host, path))
            }
        }
    }

    fn plan(&self, endpoint: Endpoint, host: String, path: String) -> Result<Plan> {
        let body = self.message.body()?;
        let mut headers = self.message.headers.clone();
        if !self.cookies.is_empty() {
            headers.push(("Cookie".into(), self.cookies.join("; ")));
        }
        if self.no_keep_alive {
            headers.push(("Connection".into(), "close".into()));
        }
        let expected = match (&self.expect_body, &self.expect_body_file) {
            (Some(text), _) => Some(text.as_str().into()),
            (None, Some(file)) => Some(read(file)?.into()),
            (None, None) => self.expect_sha256.clone().or(self.expect_bytes.map(ExpectedBody::Length)),
        };
        let route = |weight: u32, method: &str, path: &str| Route {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: headers.clone(),
            body: if ["GET", "HEAD"].contains(&method) && !self.routes.is_empty() {
                Vec::new()
            } else {
                body.clone()
            },
            expect: Expectation {
                status: self.expect_status,
                body: expected.clone().filter(|_| method != "HEAD"),
            },
            weight,
        };
        let of_routes = self.routes.iter().map(|(weight, method, path)| {
            route(*weight, method.as_deref().unwrap_or(self.message.method()), path)
        });
        let mut routes: Vec<_> = of_routes.collect();
        if routes.is_empty() {
            routes.push(route(1, self.message.method(), &path));
        }
        if self.expect_status == 101 {
            bail!("--expect-status 101: the driver does not switch protocols; expect another status");
        }
        Ok(Plan {
            host,
            connections: self.connections as usize,
            read_bytes_per_s: self.read_rate,
            abort: self.abort,
            timeout: self.timeout,
            cores: self.cores.clone(),
            ..Plan::new(endpoint, routes)
        }
        .paced(Pacing {
            requests_per_connection: self.pacing.requests_per_connection.or(self.no_keep_alive.then_some(1)),
            ..self.pacing.pacing()
        }))
    }

    fn stop(&self) -> Stop {
        self.requests.map_or(Stop::After(self.duration), Stop::Count)
    }

    /// Warms up, then loads, while the seconds are shown and written down.
    fn load(
        &self,
        mut driver: Driver,
        mut server: Option<ServerWatch>,
        files: &Files,
        progress: &Progress,
    ) -> Result<(LoadResult, Option<load::ServerUse>)> {
        interrupt::also_set(&driver.stop_flag())?;
        if let Some(length) = self.warm_up {
            progress.say("warming up");
            let warm_up = driver.run(Stop::After(length))?;
            if warm_up.totals.errors > 0 {
                return Ok((warm_up, None));
            }
        }
        if let Some(server) = &mut server {
            server.begin();
        }
        let threads = driver.threads();
        let (ticks, incoming) = channel();
        let (seconds, written) = channel();
        let result = std::thread::scope(|scope| {
            let writer = files.is_wanted().then(|| scope.spawn(|| files.write(written)));
            let watcher = scope.spawn(move || self.watch(Seconds::new(threads), incoming, seconds, progress));
            let result = driver.run_ticking(self.stop(), ticks)?;
            let ended = watcher.join().map_err(|_| anyhow!("the thread of the live line panicked"))?;
            let (mut all, seconds) = ended;
            // Nobody may be writing.
            let _ = seconds.send(all.rest(&result));
            drop(seconds);
            if let Some(writer) = writer {
                writer.join().map_err(|_| anyhow!("the thread that writes files panicked"))??;
            }
            anyhow::Ok(result)
        })?;
        Ok((result, server.map(ServerWatch::end)))
    }

    /// Shows the seconds as they come, and hands them on.
    fn watch(
        &self,
        mut all: Seconds,
        ticks: Receiver<Tick>,
        seconds: Sender<Second>,
        progress: &Progress,
    ) -> (Seconds, Sender<Second>) {
        for tick in ticks {
            if let Some(second) = all.take(tick) {
                progress.say(self.live(&second));
                // Nobody may be writing.
                let _ = seconds.send(second);
            }
        }
        (all, seconds)
    }

    /// The live line.
    fn live(&self, second: &Second) -> String {
        let latency = Latency::of(&second.latency);
        let told = |ns: Option<u64>| ns.map_or_else(|| "?".to_owned(), |ns| us(ns as f64));
        let left = match self.requests {
            None => format!("{} s left", self.duration.as_secs().saturating_sub(second.second)),
            Some(count) => format!("{} done", percent(second.total.requests as f64 / count as f64)),
        };
        format!(
            "{} requests · {}/s · p50 {} us · p99 {} us · {} errors · {left}",
            thousands(second.total.requests),
            thousands(second.counts.requests),
            told(latency.p50_ns),
            told(latency.p99_ns),
            thousands(second.total.errors)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_and_aborts_are_read() {
        let get = |method: Option<&str>| method.map(str::to_owned);
        assert_eq!(route("/a"), Ok((1, None, "/a".into())));
        assert_eq!(route("3 /a"), Ok((3, None, "/a".into())));
        assert_eq!(route("POST /a"), Ok((1, get(Some("POST")), "/a".into())));
        assert_eq!(route("3 POST /a"), Ok((3, get(Some("POST")), "/a".into())));
        for wrong in ["", "a", "0 /a", "x GET /a", "1 GET /a b"] {
            assert!(route(wrong).is_err(), "{wrong}");
        }
        assert_eq!(abort("head"), Ok(Abort::Head));
        assert_eq!(abort("bytes=5"), Ok(Abort::Bytes(5)));
        assert_eq!(abort("after=20ms"), Ok(Abort::After(Duration::from_millis(20))));
        for wrong in ["", "bytes", "bytes=0", "after=x", "tail"] {
            assert!(abort(wrong).is_err(), "{wrong}");
        }
    }
}
