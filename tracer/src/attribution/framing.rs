//! Where the messages of a connection begin and end, from the first bytes of each call. Pure.
//!
//! A call moves bytes of which only a prefix was kept. Framing is exact as long as every head and every chunk's size
//! line lies in kept bytes, in one call or in many: bodies, chunks and their ends go by unseen. Where a head or a size
//! line would have to be among unseen bytes the stream is lost, with the cause, until [`Stream::restart`] says that
//! the next call begins a message.

use std::mem::MaybeUninit;

use super::head::{HeadReader, RequestHead, status};
use crate::http1::{BodyLength, FIELDS_MAX, Fields, chunk_size};

/// Bytes gathered of one head or size line that came in pieces.
const GATHERED_MAX: usize = 16 * 1_024;

/// The bytes of one call, taken from the front.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    kept: &'a [u8],
    moved_bytes: u64,
    at: u64,
}

impl<'a> Bytes<'a> {
    /// Of a call that moved so many bytes, the first of which are `kept`.
    pub fn new(moved_bytes: u64, kept: &'a [u8]) -> Self {
        let kept = &kept[..kept.len().min(usize::try_from(moved_bytes).unwrap_or(usize::MAX))];
        Self { kept, moved_bytes, at: 0 }
    }

    /// Bytes taken.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes not taken yet.
    pub fn left(&self) -> u64 {
        self.moved_bytes - self.at
    }

    /// Those of them that were kept.
    pub fn seen(&self) -> &'a [u8] {
        usize::try_from(self.at).ok().and_then(|at| self.kept.get(at..)).unwrap_or_default()
    }

    fn seen_whole(&self) -> bool {
        self.seen().len() as u64 == self.left()
    }

    /// Takes up to so many bytes, and returns how many.
    fn take(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.left());
        self.at += taken;
        taken
    }
}

/// Why a stream is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The message's head goes on where nothing was kept, or is longer than is gathered.
    HeadUnseen,
    /// A chunk's size line lies where nothing was kept.
    ChunkUnseen,
    /// A message begins where nothing was kept.
    BeginningUnseen,
    /// The message begins as it should, and breaks the rules later.
    Malformed,
    /// What should be a head is none.
    NotHttp,
    /// It is the preface of HTTP/2.
    Http2,
}

/// What [`Stream`]s come upon, in the order of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<Head> {
    /// A message begins here.
    Begins,
    /// Its head ends here. Interim heads (1xx) come before the final one.
    Head(Head),
    /// The message ends here.
    Ends,
    /// No more can be told: all bytes of the call are taken.
    Lost(Lost),
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    Head,
    Body { left_bytes: u64 },
    ChunkSize,
    Chunk { left_bytes: u64 },
    ChunkEnd { left_bytes: u64 },
    Trailer,
    UntilClose,
    Done,
    Lost,
}

impl From<BodyLength> for State {
    fn from(body: BodyLength) -> Self {
        match body {
            BodyLength::None | BodyLength::Exactly(0) => Self::Done,
            BodyLength::Exactly(left_bytes) => Self::Body { left_bytes },
            BodyLength::Chunked => Self::ChunkSize,
            BodyLength::UntilClose => Self::UntilClose,
        }
    }
}

/// What bytes that must be seen turn out to be: a head, a size line, trailers.
enum Parsed<What> {
    Partial,
    Whole { what: What, bytes: usize },
    Refused(Lost),
}

/// One direction of a connection.
#[derive(Debug)]
struct Stream {
    state: State,
    /// A head or size line that began in an earlier call.
    gathered: Vec<u8>,
}

impl Stream {
    fn new(state: State) -> Self {
        Self { state, gathered: Vec::new() }
    }

    fn restart(&mut self) {
        *self = Self::new(State::Between);
    }

    fn lose(&mut self) {
        *self = Self::new(State::Lost);
    }

    /// Takes bytes up to the next step; `None` when the call's are used up.
    fn step<Head>(
        &mut self,
        bytes: &mut Bytes,
        parse: impl FnOnce(&[u8]) -> Parsed<(Head, State)>,
    ) -> Option<Step<Head>> {
        loop {
            if self.state == State::Done {
                self.state = State::Between;
                return Some(Step::Ends);
            }
            if bytes.left() == 0 {
                return None;
            }
            let lost = match self.state {
                State::Between if bytes.seen().is_empty() => Lost::BeginningUnseen,
                State::Between => {
                    self.state = State::Head;
                    return Some(Step::Begins);
                }
                State::Head => match self.gather(bytes, Lost::HeadUnseen, parse)? {
                    Ok((head, next)) => {
                        self.state = next;
                        return Some(Step::Head(head));
                    }
                    Err(lost) => lost,
                },
                State::ChunkSize => match self.gather(bytes, Lost::ChunkUnseen, parse_chunk_size)? {
                    Ok(next) => {
                        self.state = next;
                        continue;
                    }
                    Err(lost) => lost,
                },
                State::Trailer => match self.gather(bytes, Lost::ChunkUnseen, parse_trailers)? {
                    Ok(()) => {
                        self.state = State::Done;
                        continue;
                    }
                    Err(lost) => lost,
                },
                State::ChunkEnd { left_bytes } => {
                    let seen = &bytes.seen()[..bytes.seen().len().min(left_bytes as usize)];
                    if b"\r\n"[2 - left_bytes as usize..].starts_with(seen) {
                        let left_bytes = left_bytes - bytes.take(left_bytes);
                        self.state =
                            if left_bytes == 0 { State::ChunkSize } else { State::ChunkEnd { left_bytes } };
                        continue;
                    }
                    Lost::Malformed
                }
                State::Body { left_bytes } => {
                    let left_bytes = left_bytes - bytes.take(left_bytes);
                    self.state = if left_bytes == 0 { State::Done } else { State::Body { left_bytes } };
                    continue;
                }
                State::Chunk { left_bytes } => {
                    let left_bytes = left_bytes - bytes.take(left_bytes);
                    self.state = match left_bytes {
                        0 => State::ChunkEnd { left_bytes: 2 },
                        left_bytes => State::Chunk { left_bytes },
                    };
                    continue;
                }
                State::UntilClose | State::Lost | State::Done => {
                    bytes.take(u64::MAX);
                    return None;
                }
            };
            bytes.take(u64::MAX);
            self.lose();
            return Some(Step::Lost(lost));
        }
    }

    /// RFC 9112 section 2.2: empty lines before a request are none of it. The first half of one is kept for later.
    fn pass_over_empty_lines(&mut self, bytes: &mut Bytes) {
        loop {
            match (self.gathered.as_slice(), bytes.seen()) {
                (_, [b'\n', ..]) => {
                    self.gathered.clear();
                    bytes.take(1);
                }
                ([], [b'\r', b'\n', ..]) => {
                    bytes.take(2);
                }
                ([], [b'\r']) => {
                    self.gathered.push(b'\r');
                    bytes.take(1);
                }
                _ => return,
            }
        }
    }

    /// The rest of what must be seen whole; `None`: the call ends first.
    fn gather<What>(
        &mut self,
        bytes: &mut Bytes,
        unseen: Lost,
        parse: impl FnOnce(&[u8]) -> Parsed<What>,
    ) -> Option<Result<What, Lost>> {
        let earlier_bytes = self.gathered.len();
        let parsed = if earlier_bytes == 0 {
            parse(bytes.seen())
        } else {
            self.gathered.extend_from_slice(bytes.seen());
            parse(&self.gathered)
        };
        match parsed {
            Parsed::Whole { what, bytes: whole_bytes } => {
                bytes.take((whole_bytes - earlier_bytes) as u64);
                self.gathered.clear();
                Some(Ok(what))
            }
            Parsed::Refused(lost) => Some(Err(lost)),
            Parsed::Partial if !bytes.seen_whole() || self.gathered.len() > GATHERED_MAX => Some(Err(unseen)),
            Parsed::Partial => {
                if earlier_bytes == 0 {
                    self.gathered.extend_from_slice(bytes.seen());
                }
                bytes.take(u64::MAX);
                None
            }
        }
    }
}

fn parse_chunk_size(bytes: &[u8]) -> Parsed<State> {
    match chunk_size(bytes) {
        Ok(None) => Parsed::Partial,
        Ok(Some((line_bytes, 0))) => Parsed::Whole { what: State::Trailer, bytes: line_bytes },
        Ok(Some((line_bytes, left_bytes))) => {
            Parsed::Whole { what: State::Chunk { left_bytes }, bytes: line_bytes }
        }
        Err(_) => Parsed::Refused(Lost::Malformed),
    }
}

fn parse_trailers(bytes: &[u8]) -> Parsed<()> {
    match httparse::parse_headers(bytes, &mut [httparse::EMPTY_HEADER; FIELDS_MAX]) {
        Ok(httparse::Status::Partial) => Parsed::Partial,
        Ok(httparse::Status::Complete((length, _))) if lines_end_in_crlf(&bytes[..length]) => {
            Parsed::Whole { what: (), bytes: length }
        }
        Ok(httparse::Status::Complete(_)) | Err(_) => Parsed::Refused(Lost::Malformed),
    }
}

/// httparse is lenient here, servers are not.
fn lines_end_in_crlf(bytes: &[u8]) -> bool {
    bytes.split_inclusive(|&byte| byte == b'\n').all(|line| line.ends_with(b"\r\n"))
}

/// Requests, from the bytes read.
#[derive(Debug)]
pub struct Requests {
    stream: Stream,
    /// Method and path of the newest request, as far as they were seen.
    head: RequestHead,
}

impl Requests {
    /// A stream in the middle of something.
    pub fn new() -> Self {
        Self { stream: Stream::new(State::Lost), head: RequestHead::unknown() }
    }

    /// The next byte begins a request.
    pub fn restart(&mut self) {
        self.stream.restart();
    }

    /// Bytes are missing.
    pub fn lose(&mut self) {
        self.stream.lose();
    }

    /// Where the next request begins is not known.
    pub fn is_lost(&self) -> bool {
        self.stream.state == State::Lost
    }

    /// Method and path of the request whose head was last looked at: all of it, or what was seen when it was lost.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// Takes bytes up to the next step; `None` when the call's are used up.
    pub fn step(&mut self, bytes: &mut Bytes, heads: &mut HeadReader) -> Option<Step<()>> {
        if self.stream.state == State::Between {
            self.stream.pass_over_empty_lines(bytes);
        }
        let head = &mut self.head;
        self.stream.step(bytes, |bytes| {
            let parsed = parse_request(bytes);
            if !matches!(parsed, Parsed::Refused(Lost::NotHttp | Lost::Http2)) {
                *head = heads.request(bytes);
            }
            parsed
        })
    }
}

fn parse_request(bytes: &[u8]) -> Parsed<((), State)> {
    let mut headers = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(httparse::Status::Partial) => Parsed::Partial,
        Ok(httparse::Status::Complete(head_bytes)) => {
            let body = match Fields::of(request.headers) {
                Ok(fields) if fields.is_chunked() => BodyLength::Chunked,
                Ok(Fields { last_coding: None, content_length, .. }) => {
                    content_length.map_or(BodyLength::None, BodyLength::Exactly)
                }
                _ => return Parsed::Refused(Lost::Malformed),
            };
            Parsed::Whole { what: ((), body.into()), bytes: head_bytes }
        }
        Err(_) if bytes.starts_with(b"PRI * HTTP/2") => Parsed::Refused(Lost::Http2),
        Err(httparse::Error::TooManyHeaders) => Parsed::Refused(Lost::HeadUnseen),
        Err(_) if has_request_line(bytes) => Parsed::Refused(Lost::Malformed),
        Err(_) => Parsed::Refused(Lost::NotHttp),
    }
}

fn has_request_line(bytes: &[u8]) -> bool {
    let Some(line_end) = bytes.iter().position(|&byte| byte == b'\n') else { return false };
    let mut headers = [];
    // The line and an empty one after it: a request without fields.
    let alone = [&bytes[..line_end], b"\n\r\n"].concat();
    matches!(httparse::Request::new(&mut headers).parse(&alone), Ok(httparse::Status::Complete(_)))
}

/// Responses, from the bytes written.
#[derive(Debug)]
pub struct Responses {
    stream: Stream,
}

/// What a response head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Its status.
    pub status: u16,
    /// Another head follows for the same request.
    pub is_interim: bool,
    /// From here on the connection speaks something else.
    pub switches: bool,
}

impl Responses {
    /// A stream in the middle of something.
    pub fn new() -> Self {
        Self { stream: Stream::new(State::Lost) }
    }

    /// The next byte begins a response.
    pub fn restart(&mut self) {
        self.stream.restart();
    }

    /// Bytes are missing.
    pub fn lose(&mut self) {
        self.stream.lose();
    }

    /// Where the next response begins is not known.
    pub fn is_lost(&self) -> bool {
        self.stream.state == State::Lost
    }

    /// The response under way ends with the connection.
    pub fn ends_with_connection(&self) -> bool {
        self.stream.state == State::UntilClose
    }

    /// Takes bytes up to the next step of the response to a request of `method`; `None` when the call's are used up.
    pub fn step(&mut self, bytes: &mut Bytes, method: &str) -> Option<Step<ResponseHead>> {
        self.stream.step(bytes, |bytes| parse_response(bytes, method))
    }
}

fn parse_response(bytes: &[u8], method: &str) -> Parsed<(ResponseHead, State)> {
    // httparse passes over empty lines; no server sends any.
    if !bytes.starts_with(&b"HTTP/1."[..bytes.len().min(7)]) {
        return Parsed::Refused(Lost::NotHttp);
    }
    let mut headers = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    match parser.parse_response_with_uninit_headers(&mut response, bytes, &mut headers) {
        Ok(httparse::Status::Partial) => Parsed::Partial,
        Ok(httparse::Status::Complete(head_bytes)) => {
            let status = response.code.unwrap_or_default();
            // RFC 9110 section 15: the first digit is a class; httparse takes zero too.
            if status < 100 {
                return Parsed::Refused(Lost::Malformed);
            }
            let is_tunnel = method == "CONNECT" && (200..300).contains(&status);
            let switches = status == 101 || is_tunnel;
            let is_interim = (100..200).contains(&status) && !switches;
            let has_no_body = switches || method == "HEAD" || matches!(status, 204 | 304);
            let next = if is_interim {
                State::Head
            } else if has_no_body {
                State::Done
            } else {
                match Fields::of(response.headers) {
                    // RFC 9112 section 6.1: with Transfer-Encoding the framing of HTTP/1.0 is faulty.
                    Ok(fields) if response.version == Some(1) || fields.last_coding.is_none() => {
                        response_body(&fields).into()
                    }
                    _ => return Parsed::Refused(Lost::Malformed),
                }
            };
            let head = ResponseHead { status, is_interim, switches };
            Parsed::Whole { what: (head, next), bytes: head_bytes }
        }
        Err(httparse::Error::TooManyHeaders) => Parsed::Refused(Lost::HeadUnseen),
        Err(_) if status(bytes) != 0 => Parsed::Refused(Lost::Malformed),
        Err(_) => Parsed::Refused(Lost::NotHttp),
    }
}

/// RFC 9112 section 6.3, where there is a body.
fn response_body(fields: &Fields) -> BodyLength {
    if fields.is_chunked() {
        BodyLength::Chunked
    } else if fields.last_coding.is_some() {
        BodyLength::UntilClose
    } else {
        fields.content_length.map_or(BodyLength::UntilClose, BodyLength::Exactly)
    }
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
