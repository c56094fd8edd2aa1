//! Why an edge of a request is inferred and not measured.

use serde::{Deserialize, Serialize};

/// The rule that stands in for an edge nobody saw. A request has the first that was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inference {
    /// Its first byte was readable before anyone looked: it begins with its read.
    FirstByteUnseen,
    /// Its first byte joined bytes that were already waiting: it begins when the last of them came.
    ArrivalShared,
    /// Its head is longer than what is kept of a call: it ends by turn-taking.
    HeadUnseen,
    /// It breaks the rules after its request line: it ends by turn-taking.
    RequestMalformed,
    /// The sizes of its body's chunks are not among what is kept of a call: it ends by turn-taking.
    BodyUnseen,
    /// Pipelined behind more bytes than are kept of a call: known by its response alone.
    RequestUnseen,
    /// Its response's head is longer than what is kept of a call: the response ends by turn-taking.
    ResponseHeadUnseen,
    /// The sizes of its response's chunks are not among what is kept of a call: the response ends by turn-taking.
    ResponseChunksUnseen,
    /// Its response begins behind more bytes than are kept of a call.
    ResponseUnseen,
    /// What was written to it is no HTTP/1 response: it ends by turn-taking.
    ResponseMalformed,
    /// The connection, or the window, ended before its response.
    ResponseCut,
    /// Its bytes are not HTTP/1 (TLS, say): requests are told apart by turn-taking.
    NotHttp,
    /// Another thread answered before the read returned.
    AnsweredEarly,
    /// Its response's last bytes left after the last write, and nobody saw when.
    DrainUnseen,
}

impl Inference {
    /// Every one.
    pub const ALL: [Self; 14] = [
        Self::FirstByteUnseen,
        Self::ArrivalShared,
        Self::HeadUnseen,
        Self::RequestMalformed,
        Self::BodyUnseen,
        Self::RequestUnseen,
        Self::ResponseHeadUnseen,
        Self::ResponseChunksUnseen,
        Self::ResponseUnseen,
        Self::ResponseMalformed,
        Self::ResponseCut,
        Self::NotHttp,
        Self::AnsweredEarly,
        Self::DrainUnseen,
    ];

    /// The name in columns and JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::FirstByteUnseen => "first_byte_unseen",
            Self::ArrivalShared => "arrival_shared",
            Self::HeadUnseen => "head_unseen",
            Self::RequestMalformed => "request_malformed",
            Self::BodyUnseen => "body_unseen",
            Self::RequestUnseen => "request_unseen",
            Self::ResponseHeadUnseen => "response_head_unseen",
            Self::ResponseChunksUnseen => "response_chunks_unseen",
            Self::ResponseUnseen => "response_unseen",
            Self::ResponseMalformed => "response_malformed",
            Self::ResponseCut => "response_cut",
            Self::NotHttp => "not_http",
            Self::AnsweredEarly => "answered_early",
            Self::DrainUnseen => "drain_unseen",
        }
    }

    /// The name in tables.
    pub fn label(self) -> String {
        self.key().replace('_', " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_json_call_it_the_same() {
        for inference in Inference::ALL {
            assert_eq!(serde_json::to_value(inference).unwrap(), inference.key());
        }
    }
}
