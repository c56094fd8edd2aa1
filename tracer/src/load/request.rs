//! A request as it goes over the wire: serialised once, sent many times, with its changing digits patched in place.

use std::ops::Range;

use anyhow::ensure;

use super::plan::{Expectation, Route};

/// Widest changing field: 64 bits need no more digits.
const WIDTH_MAX: usize = 20;
/// Any number but zero does; the same digits in every run.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// One kind of request, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Head and body.
    pub bytes: Vec<u8>,
    /// Its responses have no body.
    pub is_head: bool,
    /// What every response must be.
    pub expect: Expectation,
    slots: Vec<Slot>,
}

/// Digits that differ from request to request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    at: Range<usize>,
    kind: SlotKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotKind {
    Counter,
    Id,
}

impl Request {
    /// An error names the part that cannot be sent.
    pub fn of(route: &Route, host: &str) -> anyhow::Result<Self> {
        let Route { method, path, headers, body, .. } = route;
        ensure!(
            !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic()),
            "the method {method:?} cannot be sent: use one word such as GET or POST"
        );
        ensure!(
            method != "CONNECT",
            "the method CONNECT opens a tunnel, which the driver cannot follow: use another"
        );
        ensure!(
            path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()),
            "the path {path:?} cannot be sent: start it with '/' and percent-encode spaces and other special characters"
        );
        let mut out = Serialised::default();
        out.fixed(format!("{method} ").as_bytes());
        out.template(path.as_bytes())?;
        out.fixed(b" HTTP/1.1\r\n");
        let body = Serialised::of(body)?;
        let given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !given("host") {
            out.header("Host", host)?;
        }
        let may_have_body = ["POST", "PUT", "PATCH"].contains(&method.as_str());
        if !given("content-length") && (may_have_body || !body.bytes.is_empty()) {
            out.header("Content-Length", &body.bytes.len().to_string())?;
        }
        for (name, value) in headers {
            out.header(name, value)?;
        }
        out.fixed(b"\r\n");
        out.append(body);
        Ok(Self {
            bytes: out.bytes,
            slots: out.slots,
            is_head: method == "HEAD",
            expect: route.expect.clone(),
        })
    }

    /// It differs from time to time.
    pub fn changes(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Writes the next numbers into it.
    pub fn patch(&mut self, numbers: &mut Numbers) {
        for slot in &self.slots {
            let digits = &mut self.bytes[slot.at.clone()];
            match slot.kind {
                SlotKind::Counter => write_digits(digits, numbers.counter, 10),
                SlotKind::Id => write_digits(digits, numbers.random(), 16),
            }
        }
        numbers.counter += numbers.step;
    }
}

/// The numbers of one thread's requests: no other thread counts the same ones.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    counter: u64,
    step: u64,
    random: u64,
}

impl Numbers {
    pub fn new(thread: usize, threads: usize) -> Self {
        Self {
            counter: thread as u64,
            step: threads as u64,
            random: SEED.wrapping_mul(2 * thread as u64 + 1),
        }
    }

    /// Marsaglia's xorshift: never zero, and no number twice in 2^64.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// The last digits of a number, with leading zeros.
fn write_digits(into: &mut [u8], mut number: u64, base: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number % base) as usize];
        number /= base;
    }
}

/// Bytes with their slots.
#[derive(Default)]
struct Serialised {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl Serialised {
    fn of(template: &[u8]) -> anyhow::Result<Self> {
        let mut all = Self::default();
        all.template(template)?;
        Ok(all)
    }

    fn fixed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn header(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        ensure!(
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'),
            "the header name {name:?} cannot be sent: use visible ASCII without ':'"
        );
        ensure!(
            !value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
            "the value of header {name} cannot be sent: it has a line break in it, remove that"
        );
        self.fixed(format!("{name}: ").as_bytes());
        self.template(value.as_bytes())?;
        self.fixed(b"\r\n");
        Ok(())
    }

    /// Bytes in which `{counter:N}` and `{id:N}` stand for slots. Any other brace is a brace.
    fn template(&mut self, mut rest: &[u8]) -> anyhow::Result<()> {
        while let Some(brace) = rest.iter().position(|&byte| byte == b'{') {
            self.fixed(&rest[..brace]);
            rest = &rest[brace..];
            let Some((slot_bytes, kind, width)) = slot(rest)? else {
                self.fixed(b"{");
                rest = &rest[1..];
                continue;
            };
            let start = self.bytes.len();
            self.bytes.resize(start + width, b'0');
            self.slots.push(Slot { at: start..start + width, kind });
            rest = &rest[slot_bytes..];
        }
        self.fixed(rest);
        Ok(())
    }

    fn append(&mut self, other: Self) {
        let start = self.bytes.len();
        self.bytes.extend(other.bytes);
        let moved = |slot: Slot| Slot { at: slot.at.start + start..slot.at.end + start, ..slot };
        self.slots.extend(other.slots.into_iter().map(moved));
    }
}

/// A slot at the front of `bytes`: the length of its name, its kind and its width.
fn slot(bytes: &[u8]) -> anyhow::Result<Option<(usize, SlotKind, usize)>> {
    for (name, kind) in [(&b"{counter:"[..], SlotKind::Counter), (b"{id:", SlotKind::Id)] {
        let Some(rest) = bytes.strip_prefix(name) else { continue };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let width = str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse::<usize>().ok());
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(name.len() + digits + 1)]);
        ensure!(
            rest.get(digits) == Some(&b'}') && width.is_some_and(|width| (1..=WIDTH_MAX).contains(&width)),
            "{shown:?} is no field: write its width in digits, from 1 to {WIDTH_MAX}, as in {{id:8}}"
        );
        return Ok(width.map(|width| (name.len() + digits + 1, kind, width)));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Route {
        Route { headers: vec![(String::from("Accept"), String::from("*/*"))], ..Route::get("/a?b=c") }
    }

    fn bytes(route: &Route) -> Vec<u8> {
        Request::of(route, "here").unwrap().bytes
    }

    #[test]
    fn the_request_is_what_the_route_says() {
        assert_eq!(bytes(&route()), b"GET /a?b=c HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n");
        let post = Route { method: String::from("POST"), body: b"hi".to_vec(), headers: vec![], ..route() };
        assert_eq!(bytes(&post), b"POST /a?b=c HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi");
        let own = Route { headers: vec![(String::from("hOst"), String::from("there"))], ..route() };
        assert_eq!(bytes(&own), b"GET /a?b=c HTTP/1.1\r\nhOst: there\r\n\r\n");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_by_name() {
        let refused = |route: Route| Request::of(&route, "here").unwrap_err().to_string();
        assert!(refused(Route { method: String::from("GET /"), ..route() }).contains("method"));
        assert!(refused(Route { path: String::from("/a b"), ..route() }).contains("percent-encode"));
        let split = vec![(String::from("x"), String::from("1\r\ny: 2"))];
        assert!(refused(Route { headers: split, ..route() }).contains("header x"));
        for wrong in ["/{id:}", "/{id:21}", "/{counter:0}", "/{id:8"] {
            assert!(refused(Route { path: wrong.into(), ..route() }).contains("width"), "{wrong}");
        }
    }

    #[test]
    fn fields_change_in_place_and_never_their_width() {
        let route = Route {
            method: String::from("POST"),
            path: String::from("/users/{counter:3}?x={y}"),
            headers: vec![(String::from("Cookie"), String::from("session={id:6}"))],
            body: br#"{"n":{counter:2}}"#.to_vec(),
            ..Route::get("/")
        };
        let mut request = Request::of(&route, "h").unwrap();
        let mut numbers = Numbers::new(1, 2);
        let mut seen = std::collections::HashSet::new();
        for n in [1, 3, 5, 7, 9, 11] {
            request.patch(&mut numbers);
            let text = String::from_utf8(request.bytes.clone()).unwrap();
            assert!(text.starts_with(&format!("POST /users/{n:03}?x={{y}} HTTP/1.1\r\n")), "{text}");
            assert!(text.ends_with(&format!("\r\n\r\n{{\"n\":{n:02}}}")), "{text}");
            assert!(text.contains("Content-Length: 8\r\n"), "{text}");
            let id = text.split_once("session=").unwrap().1[..6].to_owned();
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()) && seen.insert(id), "{text}");
        }
    }
}
