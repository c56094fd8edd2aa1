//! What the driver is asked to do.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::request::Request;
use crate::scenario;

/// What to send, where, over how many connections, and what must come back.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub endpoint: Endpoint,
    /// Value of the Host header, unless a route has one.
    pub host: String,
    /// What to ask for; with several, in the proportion of their weights.
    pub routes: Vec<Route>,
    /// Connections, over all cores.
    pub connections: usize,
    /// Requests in flight on a connection at most; more than one is HTTP pipelining.
    pub pipeline: usize,
    /// Requests per second over all connections, sent when they are due whether or not earlier ones were answered
    /// (open loop); `None`: as soon as there is room (closed loop).
    pub rate: Option<f64>,
    /// Requests after which a connection is closed and another opened; `None`: as many as the server lets it carry.
    pub requests_per_connection: Option<u64>,
    /// Bytes of responses read per second on a connection at most; `None`: as they come.
    pub read_bytes_per_s: Option<u64>,
    /// Give up on every request, on purpose.
    pub abort: Option<Abort>,
    /// Longest wait for a connection, and for a whole response.
    pub timeout: Duration,
    /// CPUs for the driver's threads, one each; none: one thread, wherever the scheduler puts it.
    pub cores: Vec<usize>,
}

/// When requests are sent, and over which connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// [`Plan::pipeline`].
    pub pipeline: usize,
    /// [`Plan::rate`].
    pub rate: Option<f64>,
    /// [`Plan::requests_per_connection`].
    pub requests_per_connection: Option<u64>,
}

impl Default for Pacing {
    /// A closed loop over connections that stay, one request at a time.
    fn default() -> Self {
        Self { pipeline: 1, rate: None, requests_per_connection: None }
    }
}

impl Pacing {
    /// Requests of a warm-up that would send so many: at a constant rate no more than are due in a second.
    pub fn warm_up(&self, requests: u64) -> u64 {
        self.rate.map_or(requests, |rate| requests.min(rate.ceil() as u64))
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A UNIX socket.
    Unix(PathBuf),
}

/// When a client gives up on a request: it closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// Once the response's head is there.
    Head,
    /// Once so many bytes of the response are there.
    Bytes(u64),
    /// So long after the request was sent.
    After(Duration),
}

/// One kind of request.
///
/// `{counter:N}` and `{id:N}` in path, header values and body stand for N digits that differ from request to request:
/// decimal ones that count up, hexadecimal ones in no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// More headers. Host and Content-Length are added where they are not among them.
    pub headers: Vec<(String, String)>,
    /// Body; may be empty.
    pub body: Vec<u8>,
    /// What every response must be.
    pub expect: Expectation,
    /// How often it is sent, relative to the others.
    pub weight: u32,
}

/// What a response must be to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Status.
    pub status: u16,
    /// Body; `None`: any.
    pub body: Option<ExpectedBody>,
}

/// What a body must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedBody {
    /// Byte for byte.
    Bytes(Vec<u8>),
    /// As many bytes.
    Length(u64),
    /// This hash.
    Sha256([u8; 32]),
}

impl ExpectedBody {
    /// Of a hash in 64 hexadecimal digits.
    pub fn sha256(hex: &str) -> Result<Self, String> {
        let digits: Option<Vec<u8>> = hex.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        let digits = digits.filter(|digits| digits.len() == 64);
        let digits =
            digits.ok_or_else(|| format!("`{hex}` is no SHA-256: write its 64 hexadecimal digits"))?;
        let mut hash = [0; 32];
        hash.iter_mut().zip(digits.chunks_exact(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
        Ok(Self::Sha256(hash))
    }
}

impl<T: Into<Vec<u8>>> From<T> for ExpectedBody {
    fn from(bytes: T) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl Plan {
    /// A closed loop over one connection, with a timeout of five seconds, pinned nowhere.
    pub fn new(endpoint: impl Into<Endpoint>, routes: Vec<Route>) -> Self {
        let endpoint = endpoint.into();
        Self {
            host: match &endpoint {
                Endpoint::Tcp(address) => address.to_string(),
                Endpoint::Unix(_) => String::from("localhost"),
            },
            endpoint,
            routes,
            connections: 1,
            pipeline: 1,
            rate: None,
            requests_per_connection: None,
            read_bytes_per_s: None,
            abort: None,
            timeout: Duration::from_secs(5),
            cores: Vec::new(),
        }
    }

    /// How requests are sent.
    pub(super) fn pacing(&self) -> Pacing {
        let Self { pipeline, rate, requests_per_connection, .. } = *self;
        Pacing { pipeline, rate, requests_per_connection }
    }

    /// The same with another pacing.
    pub fn paced(self, pacing: Pacing) -> Self {
        let Pacing { pipeline, rate, requests_per_connection } = pacing;
        Self { pipeline, rate, requests_per_connection, ..self }
    }

    /// Threads: one for each core, but none without a connection.
    pub(super) fn threads(&self) -> usize {
        self.cores.len().clamp(1, self.connections)
    }

    /// Connections of one of the threads: as equal as can be, and together exactly those of the plan.
    pub(super) fn connections_of(&self, thread: usize) -> usize {
        let threads = self.threads();
        self.connections / threads + usize::from(thread < self.connections % threads)
    }

    /// The routes' requests as they go over the wire; an error names the part that cannot be sent.
    pub(super) fn requests(&self) -> anyhow::Result<Vec<Request>> {
        ensure!(self.connections > 0, "the load needs at least one connection");
        ensure!(self.pipeline > 0, "the load needs at least one request in flight on a connection");
        ensure!(!self.timeout.is_zero(), "the load's timeout must be longer than zero");
        ensure!(self.requests_per_connection != Some(0), "a connection must carry at least one request");
        ensure!(self.read_bytes_per_s != Some(0), "a slow reader must read at least one byte per second");
        ensure!(
            self.rate.is_none_or(|rate| rate.is_finite() && rate > 0.0),
            "the rate must be above zero requests per second"
        );
        ensure!(!self.routes.is_empty(), "the load needs at least one route");
        let request = |route: &Route| {
            Request::of(route, &self.host).with_context(|| format!("{} {}", route.method, route.path))
        };
        self.routes.iter().map(request).collect()
    }
}

impl Route {
    /// GET of a path, expecting status 200.
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: String::from("GET"),
            path: path.into(),
            headers: Vec::new(),
            body: Vec::new(),
            expect: Expectation { status: 200, body: None },
            weight: 1,
        }
    }
}

impl From<&scenario::Request> for Route {
    fn from(request: &scenario::Request) -> Self {
        Self {
            method: request.method.clone(),
            path: request.path.clone(),
            headers: request.headers.clone(),
            body: request.body.clone(),
            expect: Expectation {
                status: request.expect.status,
                body: request.expect.body.clone().map(Into::into),
            },
            weight: 1,
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new(SocketAddr::from(([127, 0, 0, 1], 80)), vec![Route::get("/")])
    }

    #[test]
    fn connections_are_shared_out_and_none_is_added_or_lost() {
        for (connections, cores, expected) in
            [(3, 2, vec![2, 1]), (1, 2, vec![1]), (10, 0, vec![10]), (7, 3, vec![3, 2, 2])]
        {
            let plan = Plan { connections, cores: (0..cores).collect(), ..plan() };
            let shares: Vec<_> = (0..plan.threads()).map(|thread| plan.connections_of(thread)).collect();
            assert_eq!(shares, expected);
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        let refused = |plan: Plan| format!("{:#}", plan.requests().unwrap_err());
        assert!(refused(Plan { connections: 0, ..plan() }).contains("connection"));
        assert!(refused(Plan { timeout: Duration::ZERO, ..plan() }).contains("timeout"));
        assert!(refused(Plan { rate: Some(0.0), ..plan() }).contains("rate"));
        assert!(refused(Plan { pipeline: 0, ..plan() }).contains("in flight"));
        assert!(refused(Plan { routes: vec![], ..plan() }).contains("route"));
        let wrong = Route { path: String::from("x"), ..Route::get("/") };
        assert!(refused(Plan { routes: vec![wrong], ..plan() }).starts_with("GET x: the path"));
    }
}
