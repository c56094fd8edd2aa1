//! Messages are written down first, then cut into calls of which a prefix is kept: what framing finds is compared with
//! what was written, and, for bytes nobody wrote on purpose, with what hyper makes of them.

use std::{cell::RefCell, convert::Infallible, ops::Range, rc::Rc, time::Duration};

use bytes::Bytes as Body;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use proptest::{collection::vec, prelude::*, sample::select};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::hyper_client;

/// What a step was, without what heads say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Begins,
    Head,
    Ends,
    Lost(Lost),
}

impl<Head> From<&Step<Head>> for Kind {
    fn from(step: &Step<Head>) -> Self {
        match step {
            Step::Begins => Self::Begins,
            Step::Head(_) => Self::Head,
            Step::Ends => Self::Ends,
            Step::Lost(lost) => Self::Lost(*lost),
        }
    }
}

/// A stream of bytes, and where what lies in it.
#[derive(Clone, Default)]
struct Written {
    bytes: Vec<u8>,
    /// `(position, what)`; a head's and a message's position is its end.
    steps: Vec<(usize, Kind)>,
    /// Heads, size lines and trailers: what framing has to see.
    needed: Vec<Range<usize>>,
    /// Method of each request, in order.
    methods: Vec<&'static str>,
    /// Length of each body.
    bodies: Vec<usize>,
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:?} {:?}", String::from_utf8_lossy(&self.bytes), self.steps)
    }
}

impl Written {
    fn step(&mut self, kind: Kind) {
        self.steps.push((self.bytes.len(), kind));
    }

    fn needs(&mut self, text: &str) {
        let from = self.bytes.len();
        self.bytes.extend(text.bytes());
        self.needed.push(from..self.bytes.len());
    }

    /// A line end too many in a trailer: hyper takes it for part of the line and reads on into the next message.
    /// Also where the mutated `bytes` make a trailer of a chunk's data.
    fn has_trailer_at(&self, at: usize, bytes: &[u8]) -> bool {
        let begins_with_zero =
            |needed: &Range<usize>| bytes[needed.start] == b'0' || self.bytes[needed.start] == b'0';
        self.needed.iter().filter(|needed| needed.contains(&at)).any(begins_with_zero)
    }

    /// One of its interim heads ends early in the mutated `bytes`: hyper passes over an empty line that is left of it,
    /// which no server sends.
    fn has_interim_cut_short(&self, bytes: &[u8]) -> bool {
        let is_interim = |needed: &&Range<usize>| self.bytes[(*needed).clone()].starts_with(b"HTTP/1.1 103");
        let is_cut_short = |needed: &Range<usize>| {
            let head = &bytes[needed.start..needed.end - 1];
            head.windows(2).any(|end| end == b"\n\n") || head.windows(3).any(|end| end == b"\n\r\n")
        };
        self.needed.iter().filter(is_interim).any(is_cut_short)
    }

    fn body(&mut self, body: &BodyOf, head: &str, is_there: bool) {
        let chunks = match body {
            BodyOf::None => {
                self.needs(&format!("{head}\r\n"));
                self.step(Kind::Head);
                return;
            }
            BodyOf::Length(bytes) => {
                self.needs(&format!("{head}CONTENT-length: {}\r\n\r\n", bytes.len()));
                self.step(Kind::Head);
                if is_there {
                    self.bytes.extend(bytes);
                }
                return;
            }
            BodyOf::Chunks { sizes, extension, trailer } => (sizes, extension, trailer),
        };
        self.needs(&format!("{head}transfer-encoding: chunked\r\n\r\n"));
        self.step(Kind::Head);
        if !is_there {
            return;
        }
        let (sizes, extension, trailer) = chunks;
        for &size in sizes {
            self.needs(&format!("{size:X}{}\r\n", if *extension { ";a=b" } else { "" }));
            self.bytes.extend(std::iter::repeat_n(b'\n', size));
            self.bytes.extend(b"\r\n");
        }
        self.needs(if *trailer { "0\r\nsum: 1\r\nx: y\r\n\r\n" } else { "0\r\n\r\n" });
    }
}

#[derive(Clone, Debug)]
enum BodyOf {
    None,
    Length(Vec<u8>),
    Chunks { sizes: Vec<usize>, extension: bool, trailer: bool },
}

impl BodyOf {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Length(bytes) => bytes.len(),
            Self::Chunks { sizes, .. } => sizes.iter().sum(),
        }
    }
}

fn body() -> impl Strategy<Value = BodyOf> {
    prop_oneof![
        2 => Just(BodyOf::None),
        2 => vec(any::<u8>(), 0..120).prop_map(BodyOf::Length),
        1 => (vec(1..90_usize, 0..5), any::<bool>(), any::<bool>())
            .prop_map(|(sizes, extension, trailer)| BodyOf::Chunks { sizes, extension, trailer }),
    ]
}

fn fields() -> impl Strategy<Value = String> {
    vec("[a-w][a-z-]{0,8}: [ -~]{0,20}\r\n", 0..4).prop_map(|fields| fields.concat())
}

const METHODS: [&str; 9] =
    ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "M-SEARCH"];

/// Requests, one behind the other.
fn requests() -> impl Strategy<Value = Written> {
    let request = (select(&METHODS), "/[a-z/]{0,12}", fields(), body(), 0..2_usize);
    vec(request, 1..6).prop_map(|requests| {
        let mut written = Written::default();
        for (method, path, fields, body, empty_lines) in requests {
            written.needs(&"\r\n".repeat(empty_lines));
            written.step(Kind::Begins);
            written.methods.push(method);
            written.bodies.push(body.len());
            written.body(&body, &format!("{method} {path} HTTP/1.1\r\n{fields}"), true);
            written.step(Kind::Ends);
        }
        written
    })
}

/// Responses to requests of these methods, one behind the other.
fn responses() -> impl Strategy<Value = Written> {
    let response = (select(&METHODS), select(&[200_u16, 404, 500, 204, 304]), fields(), body(), 0..3_usize);
    vec(response, 1..6).prop_map(|responses| {
        let mut written = Written::default();
        for (method, status, fields, body, interim) in responses {
            written.step(Kind::Begins);
            for _ in 0..interim {
                written.needs("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n");
                written.step(Kind::Head);
            }
            let bodiless = method == "HEAD" || matches!(status, 204 | 304);
            // Without a length it would end with the connection.
            let body = match body {
                BodyOf::None if !bodiless => BodyOf::Length(Vec::new()),
                body => body,
            };
            written.methods.push(method);
            written.bodies.push(if bodiless { 0 } else { body.len() });
            written.body(&body, &format!("HTTP/1.1 {status} Words\r\n{fields}"), !bodiless);
            written.step(Kind::Ends);
        }
        written
    })
}

/// Where calls end, by their sizes, repeated.
fn calls(bytes: usize, sizes: &[usize]) -> Vec<Range<usize>> {
    let mut from = 0;
    let mut sizes = sizes.iter().cycle();
    let mut calls = Vec::new();
    while from < bytes {
        let to = bytes.min(from + sizes.next().unwrap());
        calls.push(from..to);
        from = to;
    }
    calls
}

fn follow_requests(bytes: &[u8], calls: &[Range<usize>], kept_bytes: usize) -> Vec<(usize, Kind)> {
    let mut requests = Requests::new();
    requests.restart();
    let mut heads = HeadReader::new(false);
    let mut steps = Vec::new();
    for range in calls {
        let kept = &bytes[range.start..range.end.min(range.start + kept_bytes)];
        let mut call = Bytes::new(range.len() as u64, kept);
        while let Some(step) = requests.step(&mut call, &mut heads) {
            steps.push((range.start + call.at() as usize, Kind::from(&step)));
        }
        assert_eq!(call.left(), 0, "every byte is taken");
    }
    steps
}

fn follow_responses(
    bytes: &[u8],
    calls: &[Range<usize>],
    kept_bytes: usize,
    methods: &[&str],
) -> Vec<(usize, Kind)> {
    let mut responses = Responses::new();
    responses.restart();
    follow_on(&mut responses, bytes, calls, kept_bytes, methods)
}

fn follow_on(
    responses: &mut Responses,
    bytes: &[u8],
    calls: &[Range<usize>],
    kept_bytes: usize,
    methods: &[&str],
) -> Vec<(usize, Kind)> {
    let mut methods = methods.iter().copied();
    let mut method = methods.next().unwrap_or("GET");
    let mut steps = Vec::new();
    for range in calls {
        let kept = &bytes[range.start..range.end.min(range.start + kept_bytes)];
        let mut call = Bytes::new(range.len() as u64, kept);
        while let Some(step) = responses.step(&mut call, method) {
            if step == Step::Ends {
                method = methods.next().unwrap_or("GET");
            }
            steps.push((range.start + call.at() as usize, Kind::from(&step)));
        }
        assert_eq!(call.left(), 0, "every byte is taken");
    }
    steps
}

/// The steps up to the first call with needed bytes that were not kept, and whether there is one.
fn told(written: &Written, calls: &[Range<usize>], kept_bytes: usize) -> (Vec<(usize, Kind)>, bool) {
    let unseen = |call: &&Range<usize>| {
        let unseen = (call.start + kept_bytes).min(call.end)..call.end;
        written.needed.iter().any(|needed| needed.start.max(unseen.start) < needed.end.min(unseen.end))
    };
    let Some(lossy) = calls.iter().find(unseen) else { return (written.steps.clone(), false) };
    let first = written.needed.iter().find(|needed| needed.end > lossy.start + kept_bytes).unwrap();
    let before = |step: &&(usize, Kind)| match step.1 {
        // A message that begins where nothing was kept is not begun.
        Kind::Begins => step.0 < lossy.start + kept_bytes,
        _ => step.0 <= first.start,
    };
    (written.steps.iter().take_while(before).copied().collect(), true)
}

fn assert_told(
    written: &Written,
    calls: &[Range<usize>],
    kept_bytes: usize,
    mut found: Vec<(usize, Kind)>,
) -> Result<(), TestCaseError> {
    let (expected, loses) = told(written, calls, kept_bytes);
    if loses {
        let lost = found.pop();
        let why = |lost: &Lost| matches!(lost, Lost::HeadUnseen | Lost::ChunkUnseen | Lost::BeginningUnseen);
        prop_assert!(matches!(&lost, Some((_, Kind::Lost(lost))) if why(lost)), "{:?}", lost);
    }
    prop_assert_eq!(found, expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// However requests are cut, and whatever is kept: every step is where it was written, until a head or a size line
    /// was not kept, and then that is said.
    #[test]
    fn requests_are_found_where_they_were_written(
        written in requests(), sizes in vec(1..300_usize, 1..8), kept_bytes in 1..200_usize,
    ) {
        let calls = calls(written.bytes.len(), &sizes);
        assert_told(&written, &calls, kept_bytes, follow_requests(&written.bytes, &calls, kept_bytes))?;
    }

    #[test]
    fn responses_are_found_where_they_were_written(
        written in responses(), sizes in vec(1..300_usize, 1..8), kept_bytes in 1..200_usize,
    ) {
        let calls = calls(written.bytes.len(), &sizes);
        let found = follow_responses(&written.bytes, &calls, kept_bytes, &written.methods);
        assert_told(&written, &calls, kept_bytes, found)?;
    }

    #[test]
    fn any_bytes_are_taken_without_panic(
        bytes in vec(any::<u8>(), 0..400), sizes in vec(1..50_usize, 1..8), kept_bytes in 0..60_usize,
    ) {
        let calls = calls(bytes.len(), &sizes);
        follow_requests(&bytes, &calls, kept_bytes);
        follow_responses(&bytes, &calls, kept_bytes, &["GET"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// In two pieces at each byte, and in pieces of one.
    #[test]
    fn no_cut_makes_a_difference(requests in requests(), responses in responses()) {
        for cut in 1..requests.bytes.len() {
            let calls = [0..cut, cut..requests.bytes.len()];
            prop_assert_eq!(&follow_requests(&requests.bytes, &calls, usize::MAX / 2), &requests.steps);
        }
        for cut in 1..responses.bytes.len() {
            let calls = [0..cut, cut..responses.bytes.len()];
            let found = follow_responses(&responses.bytes, &calls, usize::MAX / 2, &responses.methods);
            prop_assert_eq!(&found, &responses.steps);
        }
        let single = calls(requests.bytes.len(), &[1]);
        prop_assert_eq!(&follow_requests(&requests.bytes, &single, 1), &requests.steps);
    }
}

/// Body lengths of the requests that hyper's server makes of these bytes, each whole.
fn requests_by_hyper(bytes: &[u8]) -> Vec<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let whole = seen.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let whole = whole.clone();
        async move {
            if let Ok(body) = request.into_body().collect().await {
                whole.borrow_mut().push(body.to_bytes().len());
            }
            Ok::<_, Infallible>(Response::new(Empty::<Body>::new()))
        }
    });
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let connection = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .serve_connection(TokioIo::new(server), service);
        let ended = tokio::time::timeout(Duration::from_secs(5), connection).await;
        assert!(ended.is_ok(), "hyper waits for more: {:?}", String::from_utf8_lossy(bytes));
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).await.unwrap();
    });
    seen.take()
}

/// `(status, body length)` of the response that hyper's client makes of these bytes, when it is whole.
fn response_by_hyper(method: &str, bytes: &[u8]) -> Option<(u16, usize)> {
    hyper_client::response(method, bytes).map(|(status, body)| (status, body.len()))
}

/// Changes one byte, or none when it is past the end.
fn mutated(bytes: &[u8], (at, byte): (usize, u8)) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(there) = bytes.get_mut(at) {
        *there = byte;
    }
    bytes
}

/// A byte out of place: mostly one that means something.
fn fault() -> impl Strategy<Value = (usize, u8)> {
    (0..400_usize, prop_oneof![select(b"\r\n :;,0159af/HTPGECc\0\xff"), any::<u8>()])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Requests with a byte out of place: hyper and framing agree on which are whole.
    #[test]
    fn a_fault_in_requests_leaves_what_hyper_leaves(
        written in requests(), fault in fault(), sizes in vec(1..300_usize, 1..8),
    ) {
        let bytes = mutated(&written.bytes, fault);
        prop_assume!(!written.has_trailer_at(fault.0, &bytes));
        let found = follow_requests(&bytes, &calls(bytes.len(), &sizes), usize::MAX / 2);
        let whole = found.iter().filter(|(_, kind)| *kind == Kind::Ends).count();
        let by_hyper = requests_by_hyper(&bytes).len();
        let begun = |&&(at, _): &&(usize, Kind)| at <= fault.0;
        let line = written.steps.iter().rfind(begun).is_some_and(|&(at, kind)| {
            kind == Kind::Begins && !written.bytes[at..fault.0.min(written.bytes.len())].contains(&b'\n')
        });
        if line {
            // What a server takes for a target is its own affair; hyper takes less than httparse.
            prop_assert!((by_hyper..=written.methods.len()).contains(&whole), "{whole} {by_hyper} {:?}", bytes);
        } else {
            prop_assert_eq!(whole, by_hyper, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }

    /// A response with a byte out of place: where hyper finds it whole, so does framing, and as long.
    #[test]
    fn a_fault_in_a_response_leaves_what_hyper_leaves(
        written in responses(), fault in fault(), sizes in vec(1..300_usize, 1..8),
    ) {
        let bytes = mutated(&written.bytes, fault);
        prop_assume!(!written.has_trailer_at(fault.0, &bytes) && !written.has_interim_cut_short(&bytes));
        let method = written.methods[0];
        let mut ours = Responses::new();
        ours.restart();
        let found = follow_on(&mut ours, &bytes, &calls(bytes.len(), &sizes), usize::MAX / 2, &[method]);
        let by_hyper = response_by_hyper(method, &bytes);
        let ends = found.iter().any(|(_, kind)| *kind == Kind::Ends);
        let is_whole = ends || ours.ends_with_connection();
        prop_assert_eq!(is_whole, by_hyper.is_some(), "{:?}", String::from_utf8_lossy(&bytes));
    }
}
