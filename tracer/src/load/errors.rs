//! What can go wrong with a request, and the counts of it.

use std::fmt;
use std::io;
use std::time::Duration;

use super::body::BodyError;
use super::framing::FramingError;
use super::plan::Endpoint;

/// The kinds of failure the driver tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// A connection could not be opened. No request was sent.
    Connect,
    /// The connection was closed or reset instead of an answer.
    Reset,
    /// No whole answer within the plan's timeout.
    Timeout,
    /// The answer is not one HTTP/1.x response.
    Framing,
    /// The answer has another status than expected.
    Status,
    /// The answer has another body than expected.
    Body,
}

impl ErrorClass {
    /// Every class.
    pub const ALL: [Self; 6] =
        [Self::Connect, Self::Reset, Self::Timeout, Self::Framing, Self::Status, Self::Body];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Framing => "framing",
            Self::Status => "status",
            Self::Body => "body",
        }
    }
}

/// The first failure of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstError {
    /// When it was noticed.
    pub time_ns: u64,
    /// In words: what was expected and what came.
    pub words: String,
}

/// Failures by class: how many, and the first of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    counts: [u64; ErrorClass::ALL.len()],
    firsts: [Option<FirstError>; ErrorClass::ALL.len()],
}

impl ErrorCounts {
    /// Failures of one class.
    pub fn count(&self, class: ErrorClass) -> u64 {
        self.counts[class as usize]
    }

    /// The first failure of one class.
    pub fn first(&self, class: ErrorClass) -> Option<&FirstError> {
        self.firsts[class as usize].as_ref()
    }

    /// Failures of all classes.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The first failure of all.
    pub fn first_of_all(&self) -> Option<&FirstError> {
        self.firsts.iter().flatten().min_by_key(|first| first.time_ns)
    }

    pub(super) fn add(&mut self, failure: &Failure, time_ns: u64) {
        let class = failure.class() as usize;
        self.counts[class] += 1;
        // Only the first is put into words: a run of nothing but errors must not grow.
        self.firsts[class].get_or_insert_with(|| FirstError { time_ns, words: failure.to_string() });
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (class, (count, first)) in other.counts.into_iter().zip(other.firsts).enumerate() {
            self.counts[class] += count;
            let firsts = [self.firsts[class].take(), first];
            self.firsts[class] = firsts.into_iter().flatten().min_by_key(|first| first.time_ns);
        }
    }
}

impl fmt::Display for ErrorCounts {
    /// "3 timeout, 1 status".
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for class in ErrorClass::ALL.into_iter().filter(|&class| self.count(class) > 0) {
            write!(formatter, "{separator}{} {}", self.count(class), class.name())?;
            separator = ", ";
        }
        Ok(())
    }
}

/// One failed request, or a connection that could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    // No `#[source]`: the cause is in the words, and an error's chain would say it twice.
    #[error("cannot connect to {endpoint}: {error}")]
    Connect { endpoint: Endpoint, error: io::Error },
    #[error("expected a response, but the server closed the connection without one")]
    Closed,
    #[error("expected a response, but the connection broke: {0}")]
    Broken(io::Error),
    #[error("expected a whole response within {timeout:?}, got {received_bytes} bytes")]
    Timeout { timeout: Duration, received_bytes: u64 },
    #[error("{0}")]
    Framing(#[from] FramingError),
    #[error("expected status {expected}, got {got}")]
    Status { expected: u16, got: u16 },
    #[error("{0}")]
    Body(#[from] BodyError),
}

impl Failure {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Connect { .. } => ErrorClass::Connect,
            Self::Closed | Self::Broken(_) => ErrorClass::Reset,
            Self::Timeout { .. } => ErrorClass::Timeout,
            Self::Framing(_) => ErrorClass::Framing,
            Self::Status { .. } => ErrorClass::Status,
            Self::Body(_) => ErrorClass::Body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_count_and_the_first_example() {
        let mut errors = ErrorCounts::default();
        errors.add(&Failure::Status { expected: 200, got: 404 }, 7);
        errors.add(&Failure::Status { expected: 200, got: 500 }, 8);
        errors.add(&Failure::Closed, 5);
        assert_eq!(errors.count(ErrorClass::Status), 2);
        assert_eq!(errors.first(ErrorClass::Status).unwrap().words, "expected status 200, got 404");
        assert_eq!(errors.first_of_all().unwrap().time_ns, 5);
        assert_eq!(errors.to_string(), "1 reset, 2 status");
    }
}
