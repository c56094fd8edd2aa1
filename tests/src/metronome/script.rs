//! The language of commands: the query of a request is a list of steps, done in order.
//!
//! `GET /17?sleep=5000&out=writev:300:3&spin=200&out=write:100` answers request 17 after 5 ms of sleep with two writes
//! that carry 400 bytes of body, 200 microseconds apart. Steps after the last `out` are done after the response:
//! `out=write:10&sleep=5000` delays the next read of the connection by 5 ms. Times are in microseconds.

use std::{str::FromStr, time::Duration};

use anyhow::{Context, Result, bail, ensure};

/// A command with whatever else the server must know of the whole response beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What the request is called; it is its path.
    pub id: u64,
    /// What is to be done, in order.
    pub steps: Vec<Step>,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `spin=US`: keep the CPU busy.
    Spin(Duration),
    /// `sleep=US`: block in clock_nanosleep.
    Sleep(Duration),
    /// `futex=US`: block in futex until another thread wakes it.
    Futex(Duration),
    /// `fault=US`: touch fresh pages, one page fault after the other.
    Fault(Duration),
    /// `pipe=US`: block in read on a pipe until another thread writes to it.
    Pipe(Duration),
    /// `peer=PORT:US`: one round trip to a TCP peer that answers after so long.
    Peer {
        /// Where it listens on 127.0.0.1.
        port: u16,
        /// What it waits before it answers.
        delay: Duration,
    },
    /// `await=US`: let others be served meanwhile (event loop only; a thread of its own sleeps).
    Await(Duration),
    /// `hand`: another thread does the rest.
    Hand,
    /// `body`: read the rest of the request's body now. Without this step it is read before the first step.
    Body,
    /// `status=CODE`: of the response (200).
    Status(u16),
    /// `chunked`: the response has no Content-Length.
    Chunked,
    /// `info=CODE`: send a 1xx head.
    Info(u16),
    /// `out=CALL:BYTES[:BUFFERS]`: send so much of the body, the head before it when it is not sent yet.
    Out {
        /// By which call.
        call: Call,
        /// Bytes of body.
        bytes: usize,
        /// Buffers given to the call, where it takes several.
        buffers: usize,
    },
    /// `one`: the next request's first byte is read by another thread, alone.
    One,
    /// `raw`: send back what comes, until the client closes.
    Raw,
    /// `fin`: close the sending half.
    Fin,
    /// `close`: close the connection.
    Close,
    /// `reset`: close it with a reset.
    Reset,
}

/// How bytes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// write
    Write,
    /// writev
    Writev,
    /// sendto
    Send,
    /// sendmsg
    Sendmsg,
    /// sendfile, from memory
    Sendfile,
    /// splice, from a pipe
    Splice,
    /// Not yet: they leave with the next call on this connection, be it another response's.
    Hold,
}

impl Call {
    /// The system call's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Writev => "writev",
            Self::Send => "sendto",
            Self::Sendmsg => "sendmsg",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::Hold => "hold",
        }
    }
}

/// What a request without any `out` is answered with.
const PLAIN: Step = Step::Out { call: Call::Write, bytes: 5, buffers: 1 };

impl Script {
    /// Reads the target of a request line.
    pub fn parse(target: &str) -> Result<Self> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let id = path.trim_start_matches('/');
        let id = if id.is_empty() { 0 } else { id.parse().with_context(|| format!("no number: {path}"))? };
        let mut steps = query
            .split('&')
            .filter(|step| !step.is_empty())
            .map(|step| step.parse().with_context(|| format!("in step `{step}`")))
            .collect::<Result<Vec<Step>>>()?;
        let answers = |step: &Step| matches!(step, Step::Out { .. } | Step::Reset | Step::Close | Step::Fin);
        if !steps.iter().any(answers) {
            steps.push(PLAIN);
        }
        Ok(Self { id, steps })
    }

    /// Bytes of body the whole response has.
    pub fn body_bytes(&self) -> usize {
        self.steps.iter().map(|step| if let Step::Out { bytes, .. } = step { *bytes } else { 0 }).sum()
    }

    /// The script says itself when the request's body is read.
    pub fn reads_body_itself(&self) -> bool {
        self.steps.contains(&Step::Body)
    }
}

impl FromStr for Step {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let time = || value.parse().map(Duration::from_micros).context("a time is a number of microseconds");
        let code = || value.parse().context("a status is a number");
        Ok(match name {
            "spin" => Self::Spin(time()?),
            "sleep" => Self::Sleep(time()?),
            "futex" => Self::Futex(time()?),
            "fault" => Self::Fault(time()?),
            "pipe" => Self::Pipe(time()?),
            "await" => Self::Await(time()?),
            "peer" => {
                let (port, us) = value.split_once(':').context("a peer is PORT:US")?;
                Self::Peer { port: port.parse()?, delay: Duration::from_micros(us.parse()?) }
            }
            "status" => Self::Status(code()?),
            "info" => Self::Info(code()?),
            "out" => out(value)?,
            "hand" => Self::Hand,
            "body" => Self::Body,
            "chunked" => Self::Chunked,
            "one" => Self::One,
            "raw" => Self::Raw,
            "fin" => Self::Fin,
            "close" => Self::Close,
            "reset" => Self::Reset,
            _ => bail!("there is no such step"),
        })
    }
}

fn out(value: &str) -> Result<Step> {
    let mut parts = value.split(':');
    let call = match parts.next().unwrap_or_default() {
        "write" => Call::Write,
        "writev" => Call::Writev,
        "send" => Call::Send,
        "sendmsg" => Call::Sendmsg,
        "sendfile" => Call::Sendfile,
        "splice" => Call::Splice,
        "hold" => Call::Hold,
        _ => bail!("there is no such call"),
    };
    let bytes = parts.next().context("how many bytes?")?.parse().context("bytes are a number")?;
    let buffers = parts.next().map_or(Ok(1), str::parse).context("buffers are a number")?;
    ensure!((1..=1_024).contains(&buffers), "a call takes 1 to 1,024 buffers");
    Ok(Step::Out { call, bytes, buffers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_in_order() {
        let script = Script::parse("/17?sleep=5000&out=writev:300:3&out=write:100").unwrap();
        assert_eq!((script.id, script.body_bytes()), (17, 400));
        assert_eq!(script.steps[0], Step::Sleep(Duration::from_millis(5)));
        assert_eq!(script.steps[1], Step::Out { call: Call::Writev, bytes: 300, buffers: 3 });
    }

    #[test]
    fn a_request_that_commands_no_answer_gets_a_plain_one() {
        assert_eq!(Script::parse("/").unwrap(), Script { id: 0, steps: vec![PLAIN] });
        assert_eq!(Script::parse("/1?reset").unwrap().steps, [Step::Reset]);
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for target in ["/x", "/1?spin", "/1?nap=3", "/1?out=write", "/1?out=print:3", "/1?out=writev:9:1025"]
        {
            assert!(Script::parse(target).is_err(), "{target}");
        }
    }
}
