//! What the driver is asked to do, and the request it repeats.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;

/// What to send, where, over how many connections, and what must come back.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// Value of the Host header, unless `headers` has one.
    pub host: String,
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
    /// Connections, each with one request in flight at most.
    pub connections: usize,
    /// Longest wait for a connection, and for a whole response.
    pub timeout: Duration,
    /// CPU for the driver's thread; `None`: wherever the scheduler puts it.
    pub core: Option<usize>,
}

/// What a response must be to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Status.
    pub status: u16,
    /// Body, byte for byte; `None`: any.
    pub body: Option<Vec<u8>>,
}

impl Plan {
    /// The request as it goes over the wire; an error names the part that cannot be sent.
    pub(super) fn request_bytes(&self) -> anyhow::Result<Vec<u8>> {
        ensure!(self.connections > 0, "the load needs at least one connection");
        ensure!(!self.timeout.is_zero(), "the load's timeout must be longer than zero");
        ensure!(
            !self.method.is_empty() && self.method.bytes().all(|byte| byte.is_ascii_alphabetic()),
            "the method {:?} cannot be sent: use one word such as GET or POST",
            self.method
        );
        ensure!(
            self.method != "CONNECT",
            "the method CONNECT opens a tunnel, which the driver cannot follow: use another"
        );
        ensure!(
            self.path.starts_with('/') && self.path.bytes().all(|byte| byte.is_ascii_graphic()),
            "the path {:?} cannot be sent: start it with '/' and percent-encode spaces and other special characters",
            self.path
        );
        let given = |name: &str| self.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let mut headers = Vec::new();
        if !given("host") {
            headers.push(("Host", self.host.clone()));
        }
        let may_have_body = ["POST", "PUT", "PATCH"].contains(&self.method.as_str());
        if !given("content-length") && (may_have_body || !self.body.is_empty()) {
            headers.push(("Content-Length", self.body.len().to_string()));
        }
        headers.extend(self.headers.iter().map(|(name, value)| (name.as_str(), value.clone())));

        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in headers {
            ensure!(
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'),
                "the header name {name:?} cannot be sent: use visible ASCII without ':'"
            );
            ensure!(
                !value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
                "the value of header {name} cannot be sent: it has a line break in it, remove that"
            );
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            address: ([127, 0, 0, 1], 80).into(),
            host: String::from("here"),
            method: String::from("GET"),
            path: String::from("/a?b=c"),
            headers: vec![(String::from("Accept"), String::from("*/*"))],
            body: Vec::new(),
            expect: Expectation { status: 200, body: None },
            connections: 1,
            timeout: Duration::from_secs(1),
            core: None,
        }
    }

    #[test]
    fn the_request_is_what_the_plan_says() {
        assert_eq!(plan().request_bytes().unwrap(), b"GET /a?b=c HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n");
        let post = Plan { method: String::from("POST"), body: b"hi".to_vec(), headers: vec![], ..plan() };
        assert_eq!(post.request_bytes().unwrap(), b"POST /a?b=c HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi");
        let own = Plan { headers: vec![(String::from("hOst"), String::from("there"))], ..plan() };
        assert_eq!(own.request_bytes().unwrap(), b"GET /a?b=c HTTP/1.1\r\nhOst: there\r\n\r\n");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_by_name() {
        let refused = |plan: Plan| plan.request_bytes().unwrap_err().to_string();
        assert!(refused(Plan { connections: 0, ..plan() }).contains("connection"));
        assert!(refused(Plan { timeout: Duration::ZERO, ..plan() }).contains("timeout"));
        assert!(refused(Plan { method: String::from("GET /"), ..plan() }).contains("method"));
        assert!(refused(Plan { path: String::from("/a b"), ..plan() }).contains("percent-encode"));
        let split = vec![(String::from("x"), String::from("1\r\ny: 2"))];
        assert!(refused(Plan { headers: split, ..plan() }).contains("header x"));
    }
}
