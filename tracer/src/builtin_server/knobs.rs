//! The ways in which a response can be told to misbehave: `/?sleep_us=5000&split=1`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Frame, SizeHint};
use hyper::header::HeaderValue;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::Body;
use crate::load::monotonic_ns;

/// What one request asks for. Other query parameters are left alone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Knobs {
    /// Sleeps in the event loop, which serves others meanwhile. Whole milliseconds at best.
    sleep_us: Option<u64>,
    /// Sleeps on the thread, which serves nobody meanwhile.
    block_us: Option<u64>,
    /// Keeps the CPU busy.
    spin_us: Option<u64>,
    /// Keeps the CPU busy, for nanoseconds.
    spin_ns: Option<u64>,
    /// Opens and closes a file so many times.
    open_files: u64,
    /// Makes and drops so many small strings.
    allocations: u64,
    /// Head and body leave in a write each.
    split: bool,
    /// The body is streamed, chunked, in so many pieces (but none empty).
    chunks: Option<u64>,
    /// Sleeps in the event loop between two chunks.
    chunk_gap_us: u64,
}

impl Knobs {
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut knobs = Self::default();
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let number = || {
                value.parse::<u64>().map_err(|_| format!("{name}={value} is not a whole number: give one"))
            };
            match name {
                "sleep_us" => knobs.sleep_us = Some(number()?),
                "block_us" => knobs.block_us = Some(number()?),
                "spin_us" => knobs.spin_us = Some(number()?),
                "spin_ns" => knobs.spin_ns = Some(number()?),
                "open_files" => knobs.open_files = number()?,
                "allocations" => knobs.allocations = number()?,
                "split" => knobs.split = number()? > 0,
                "chunks" => knobs.chunks = Some(number()?.max(1)),
                "chunk_gap_us" => knobs.chunk_gap_us = number()?,
                _ => {}
            }
        }
        Ok(knobs)
    }

    /// Does what comes before the response, and says what: `KNOB;START_NS;END_NS`, comma-separated.
    ///
    /// What the body is still to do (`split`, `chunks`) begins when this ends, and is listed with that instant.
    pub async fn act(&self) -> Option<HeaderValue> {
        let mut did = Vec::new();
        let mut note = |knob: &str, start_ns: u64| did.push(format!("{knob};{start_ns};{}", monotonic_ns()));
        if let Some(us) = self.sleep_us {
            let start_ns = monotonic_ns();
            sleep(Duration::from_micros(us)).await;
            note("sleep_us", start_ns);
        }
        if let Some(us) = self.block_us {
            let start_ns = monotonic_ns();
            thread::sleep(Duration::from_micros(us));
            note("block_us", start_ns);
        }
        for (knob, ns) in
            [("spin_us", self.spin_us.map(|us| us.saturating_mul(1000))), ("spin_ns", self.spin_ns)]
        {
            if let Some(ns) = ns {
                let start_ns = monotonic_ns();
                let end_ns = start_ns.saturating_add(ns);
                while monotonic_ns() < end_ns {}
                note(knob, start_ns);
            }
        }
        for _ in 0..self.open_files {
            // Only the calls count: whether it could be opened does not.
            drop(std::fs::File::open("/dev/null"));
        }
        for length in 0..self.allocations {
            std::hint::black_box("x".repeat(16 + length as usize % 64));
        }
        if self.split {
            note("split", monotonic_ns());
        }
        if self.chunks.is_some() {
            note("chunks", monotonic_ns());
        }
        let did = (!did.is_empty()).then(|| did.join(","))?;
        Some(HeaderValue::try_from(did).expect("digits and names of knobs are fit for a header"))
    }

    pub fn body(&self, body: Bytes) -> Body {
        if !self.split && self.chunks.is_none() {
            return Either::Left(Full::new(body));
        }
        let count = self.chunks.unwrap_or(1).min(body.len() as u64).max(1) as usize;
        let cut = |number: usize| body.len() * number / count;
        Either::Right(Pieces {
            pieces: (0..count).map(|number| body.slice(cut(number)..cut(number + 1))).collect(),
            known_bytes: self.chunks.is_none().then_some(body.len() as u64),
            // The head leaves alone when the body makes the connection wait for its first piece.
            pause: self.split.then(|| pause(Duration::ZERO)),
            gap: Duration::from_micros(self.chunk_gap_us),
        })
    }
}

/// A body that comes in pieces, with a pause between them in which the connection writes out what it has.
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    /// The length to declare; `None`: chunked.
    known_bytes: Option<u64>,
    /// What comes before the next piece.
    pause: Option<Pause>,
    gap: Duration,
}

type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// At least once not ready: that is when the connection writes.
fn pause(gap: Duration) -> Pause {
    if gap.is_zero() { Box::pin(yield_now()) } else { Box::pin(sleep(gap)) }
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        let piece = self.pieces.pop_front();
        if !self.pieces.is_empty() {
            self.pause = Some(pause(self.gap));
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.known_bytes {
            Some(bytes) => SizeHint::with_exact(bytes),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_read_from_the_query() {
        assert_eq!(Knobs::parse(""), Ok(Knobs::default()));
        assert_eq!(Knobs::parse("x=y&split=0&z"), Ok(Knobs::default()));
        let all = "sleep_us=1&block_us=2&spin_us=3&split=1&chunks=4&chunk_gap_us=5&spin_ns=6&open_files=7&allocations=8";
        let knobs = Knobs {
            sleep_us: Some(1),
            block_us: Some(2),
            spin_us: Some(3),
            spin_ns: Some(6),
            open_files: 7,
            allocations: 8,
            split: true,
            chunks: Some(4),
            chunk_gap_us: 5,
        };
        assert_eq!(Knobs::parse(all), Ok(knobs));
        assert_eq!(Knobs::parse("spin_us=1ms").unwrap_err(), "spin_us=1ms is not a whole number: give one");
    }

    #[test]
    fn pieces_are_the_body_and_none_is_empty() {
        for (length, chunks, expected) in [(19, 4, 4), (3, 7, 3), (0, 2, 1)] {
            let body = Bytes::from(vec![b'x'; length]);
            let knobs = Knobs { chunks: Some(chunks), ..Knobs::default() };
            let Either::Right(streamed) = knobs.body(body.clone()) else { panic!("streamed") };
            assert_eq!(streamed.pieces.len(), expected);
            assert_eq!(streamed.pieces.iter().flatten().copied().collect::<Bytes>(), body);
        }
    }
}
