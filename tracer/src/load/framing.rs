//! Where one HTTP/1.1 response ends, and which of its bytes are body. Pure: no socket, no clock.
//!
//! The rules are those of RFC 9112, section 6.3. Where it lets a client be lenient, this one is strict: a benchmark
//! of a server that frames its responses wrongly is not worth having.

use std::mem::MaybeUninit;

use crate::http1::{BodyLength, FIELDS_MAX, Fields, NoChunkSize, chunk_size};

/// What a response's head says, once all of the response has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Its status.
    pub status: u16,
    /// The connection may carry another request.
    pub keeps_alive: bool,
}

/// Why bytes are not one response.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FramingError {
    #[error("the response head is not HTTP/1.x: {0}")]
    Head(#[from] httparse::Error),
    #[error("the response head or a chunk line is longer than {0} bytes")]
    TooLong(usize),
    #[error("the response's Content-Length is not one number: {0:?}")]
    ContentLength(String),
    #[error("the response has both Content-Length and Transfer-Encoding, so its end is ambiguous")]
    TwoLengths,
    #[error("the response has Transfer-Encoding, which HTTP/1.0 does not know, so its end is not sure")]
    CodingInHttp10,
    #[error("the response switches protocols (101), which was not asked for")]
    Upgrade,
    #[error("a chunk's size line is not a hexadecimal number")]
    ChunkSize,
    #[error("a chunk does not end with CR LF where its size says")]
    ChunkEnd,
    #[error("a trailer line does not end with CR LF")]
    Trailer,
    #[error("{0} bytes follow the end of the response, though no other request was sent")]
    Extra(usize),
    #[error("the server closed the connection in the middle of a response")]
    Truncated,
}

impl From<NoChunkSize> for FramingError {
    fn from(_: NoChunkSize) -> Self {
        Self::ChunkSize
    }
}

/// How far [`Framing::advance`] got.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The response goes on. The bytes after `consumed` must be given again, with more behind them.
    Partial {
        /// Bytes done with.
        consumed: usize,
    },
    /// The response is whole. What lies behind `consumed` is not of it.
    Whole {
        /// What its head said.
        answer: Answer,
        /// Bytes done with.
        consumed: usize,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    answer: Answer,
    body: BodyLength,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Body {
        left_bytes: u64,
    },
    ChunkSize,
    Chunk {
        left_bytes: u64,
    },
    ChunkEnd,
    Trailer,
    UntilClose,
    Done,
}

/// Follows the responses of one connection, one after the other.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    answer: Answer,
    /// The last final head, byte for byte: a server says the same for a whole second, so most heads need no parser.
    learnt_bytes: Vec<u8>,
    learnt: Head,
}

impl Framing {
    /// Forgets a response left half-way; what was learnt stays.
    pub fn restart(&mut self) {
        self.state = State::Head;
    }

    /// Follows the response through `input` and hands every piece of its body to `on_body`.
    ///
    /// `answers_head`: the request is HEAD, so there is no body, whatever the response's head says.
    pub fn advance(
        &mut self,
        input: &[u8],
        answers_head: bool,
        mut on_body: impl FnMut(&[u8]),
    ) -> Result<Progress, FramingError> {
        let mut consumed = 0;
        while let Some(step_bytes) = self.step(&input[consumed..], answers_head, &mut on_body)? {
            consumed += step_bytes;
            if self.state == State::Done {
                self.state = State::Head;
                return Ok(Progress::Whole { answer: self.answer, consumed });
            }
        }
        Ok(Progress::Partial { consumed })
    }

    /// Nothing of the next response has been followed yet but, at most, interim heads.
    pub fn is_at_head(&self) -> bool {
        self.state == State::Head
    }

    /// The server closed the connection: the end of the response, if that is how it ends.
    pub fn close(&mut self) -> Result<Answer, FramingError> {
        match self.state {
            State::UntilClose => Ok(self.answer),
            _ => Err(FramingError::Truncated),
        }
    }

    /// Takes one element off the front of `rest` and returns its length; `None` when more bytes are needed for it.
    fn step(
        &mut self,
        rest: &[u8],
        answers_head: bool,
        on_body: &mut impl FnMut(&[u8]),
    ) -> Result<Option<usize>, FramingError> {
        if rest.is_empty() {
            return Ok(None);
        }
        let mut body = |left_bytes: u64| {
            let taken = rest.len().min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
            on_body(&rest[..taken]);
            (taken, left_bytes - taken as u64)
        };
        let (taken, next) = match self.state {
            State::Head => return self.head(rest, answers_head),
            State::Body { left_bytes } => match body(left_bytes) {
                (taken, 0) => (taken, State::Done),
                (taken, left_bytes) => (taken, State::Body { left_bytes }),
            },
            State::ChunkSize => match chunk_size(rest)? {
                None => return Ok(None),
                Some((taken, 0)) => (taken, State::Trailer),
                Some((taken, left_bytes)) => (taken, State::Chunk { left_bytes }),
            },
            State::Chunk { left_bytes } => match body(left_bytes) {
                (taken, 0) => (taken, State::ChunkEnd),
                (taken, left_bytes) => (taken, State::Chunk { left_bytes }),
            },
            State::ChunkEnd => match rest {
                [b'\r', b'\n', ..] => (2, State::ChunkSize),
                [b'\r'] => return Ok(None),
                _ => return Err(FramingError::ChunkEnd),
            },
            State::Trailer => match rest.iter().position(|&byte| byte == b'\n') {
                None => return Ok(None),
                Some(1) if rest[0] == b'\r' => (2, State::Done),
                Some(end) if end > 1 && rest[end - 1] == b'\r' => (end + 1, State::Trailer),
                Some(_) => return Err(FramingError::Trailer),
            },
            State::UntilClose => (body(u64::MAX).0, State::UntilClose),
            State::Done => return Ok(None),
        };
        self.state = next;
        Ok(Some(taken))
    }

    fn head(&mut self, rest: &[u8], answers_head: bool) -> Result<Option<usize>, FramingError> {
        if self.learnt_bytes.is_empty() || !rest.starts_with(&self.learnt_bytes) {
            let Some((head_bytes, head)) = parse_head(rest)? else { return Ok(None) };
            if (100..200).contains(&head.answer.status) {
                return Ok(Some(head_bytes)); // interim: the final head follows
            }
            self.learnt_bytes.clear();
            self.learnt_bytes.extend_from_slice(&rest[..head_bytes]);
            self.learnt = head;
        }
        let body = if answers_head { BodyLength::None } else { self.learnt.body };
        self.answer = self.learnt.answer;
        self.answer.keeps_alive &= body != BodyLength::UntilClose;
        self.state = match body {
            BodyLength::None | BodyLength::Exactly(0) => State::Done,
            BodyLength::Exactly(left_bytes) => State::Body { left_bytes },
            BodyLength::Chunked => State::ChunkSize,
            BodyLength::UntilClose => State::UntilClose,
        };
        Ok(Some(self.learnt_bytes.len()))
    }
}

/// Length of the head at the front of `bytes` and what it says; `None` when it is not all there.
fn parse_head(bytes: &[u8]) -> Result<Option<(usize, Head)>, FramingError> {
    // httparse skips empty lines before a head. After a response they are bytes that do not belong there.
    if let [b'\r' | b'\n', ..] = bytes {
        return Err(FramingError::Head(httparse::Error::NewLine));
    }
    let mut headers = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let httparse::Status::Complete(head_bytes) =
        parser.parse_response_with_uninit_headers(&mut response, bytes, &mut headers)?
    else {
        return Ok(None);
    };

    let status = response.code.unwrap_or_default();
    let fields = Fields::of(response.headers).map_err(FramingError::ContentLength)?;
    let keeps_alive = fields.keeps_alive.unwrap_or(response.version == Some(1));
    if status == 101 {
        return Err(FramingError::Upgrade);
    }
    let body = match (fields.last_coding, fields.content_length) {
        _ if matches!(status, 100..200 | 204 | 304) => BodyLength::None,
        // RFC 9112, section 6.1: the framing is faulty, even with a Content-Length.
        (Some(_), _) if response.version == Some(0) => return Err(FramingError::CodingInHttp10),
        (Some(_), Some(_)) => return Err(FramingError::TwoLengths),
        (Some(_), None) if fields.is_chunked() => BodyLength::Chunked,
        (None, Some(length_bytes)) => BodyLength::Exactly(length_bytes),
        (Some(_), None) | (None, None) => BodyLength::UntilClose,
    };
    Ok(Some((head_bytes, Head { answer: Answer { status, keeps_alive }, body })))
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
