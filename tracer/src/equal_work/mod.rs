//! Do the servers of a workload do equal work? Their answers, one of each, side by side. Only then may they be ranked.

mod ask;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use ask::ask;

use crate::scenario::Request;

/// Headers that cost work or change what a client does, compared without being named. Of the last two only whether
/// they are there: their values are a server's own.
const MATTER: [&str; 10] = [
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "cache-control",
    "location",
    "vary",
    "www-authenticate",
    "x-powered-by",
    "etag",
    "last-modified",
];
/// Longest part of a value that is shown.
const SHOWN: usize = 60;

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers as they came, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value; several of a name are joined by commas.
    pub fn header(&self, name: &str) -> Option<String> {
        let values: Vec<_> =
            self.headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// A header's value as it is compared.
    fn compared(&self, name: &str) -> String {
        match (name, self.header(name)) {
            (_, None) => "absent".to_owned(),
            ("etag" | "last-modified", Some(_)) => "present".to_owned(),
            // Whether the character set is spelt out is no difference: JSON has one.
            ("content-type", Some(value)) => {
                value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
            }
            (_, Some(value)) => value,
        }
    }
}

/// One server does other work than it should, or than most do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The server.
    pub server: String,
    /// The workload.
    pub workload: String,
    /// `status`, `body`, or a header's name.
    pub what: String,
    /// What is wanted, or what most servers have.
    pub wanted: String,
    /// What came.
    pub got: String,
}

/// Where the answers of these servers to a workload differ from what it wants, or in a header from most of them.
pub fn differences(request: &Request, answers: &[(String, Answer)]) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differs = |server: &str, what: &str, wanted: String, got: String| {
        if wanted != got {
            let (server, workload) = (server.to_owned(), request.name.clone());
            found.push(Difference { server, workload, what: what.to_owned(), wanted, got });
        }
    };
    for (server, answer) in answers {
        differs(server, "status", request.expect.status.to_string(), answer.status.to_string());
    }
    let bodies: Vec<_> = answers.iter().map(|(_, answer)| shown(&answer.body)).collect();
    let body = request.expect.body.as_deref().map_or_else(|| most_common(&bodies), shown);
    for ((server, _), got) in answers.iter().zip(bodies) {
        differs(server, "body", body.clone(), got);
    }
    let named = request.same_headers.iter().map(|name| name.to_ascii_lowercase());
    let headers: BTreeSet<_> = named.chain(MATTER.map(str::to_owned)).collect();
    for header in headers {
        let values: Vec<_> = answers.iter().map(|(_, answer)| answer.compared(&header)).collect();
        let most = most_common(&values);
        for ((server, _), got) in answers.iter().zip(values) {
            differs(server, &header, most.clone(), got);
        }
    }
    found
}

/// The value most answers have; of several, the first.
fn most_common(values: &[String]) -> String {
    let count = |value: &String| values.iter().filter(|other| *other == value).count();
    let mut best: Option<(&String, usize)> = None;
    for value in values {
        if best.is_none_or(|(_, most)| count(value) > most) {
            best = Some((value, count(value)));
        }
    }
    best.map(|(value, _)| value.clone()).unwrap_or_default()
}

/// A body as it is compared and shown: short ones whole, long ones by their beginning and a digest.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    match text.char_indices().nth(SHOWN) {
        None => format!("`{text}`"),
        Some((cut, _)) => {
            format!("`{}...` ({} bytes, digest {:08x})", &text[..cut], body.len(), digest(body))
        }
    }
}

/// FNV-1a, 32 bits: tells bodies apart that begin alike.
fn digest(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Expect;

    fn request() -> Request {
        Request {
            name: "hello".into(),
            method: "GET".into(),
            path: "/".into(),
            headers: Vec::new(),
            body: Vec::new(),
            expect: Expect { status: 200, body: Some(b"hi".to_vec()) },
            same_headers: vec!["X-Mine".into()],
        }
    }

    fn answer(status: u16, body: &str, headers: &[(&str, &str)]) -> Answer {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Answer { status, headers, body: body.into() }
    }

    fn found(answers: &[Answer]) -> Vec<String> {
        let named: Vec<_> =
            answers.iter().enumerate().map(|(n, answer)| (format!("s{n}"), answer.clone())).collect();
        let differences = differences(&request(), &named);
        differences.iter().map(|d| format!("{} {}: {} not {}", d.server, d.what, d.got, d.wanted)).collect()
    }

    #[test]
    fn equal_work_has_no_difference() {
        let one = answer(200, "hi", &[("content-type", "application/json"), ("date", "today")]);
        let other =
            answer(200, "hi", &[("content-type", "application/JSON; charset=utf-8"), ("server", "x")]);
        assert_eq!(found(&[one, other]), [""; 0]);
    }

    #[test]
    fn status_and_body_are_held_against_the_workload() {
        let wrong = answer(404, "ho", &[]);
        assert_eq!(
            found(&[wrong.clone(), wrong]),
            [
                "s0 status: 404 not 200",
                "s1 status: 404 not 200",
                "s0 body: `ho` not `hi`",
                "s1 body: `ho` not `hi`"
            ]
        );
    }

    #[test]
    fn the_odd_one_is_named_by_its_headers() {
        let plain = answer(200, "hi", &[("x-mine", "1")]);
        let tagged = answer(200, "hi", &[("x-mine", "2"), ("etag", "W/1")]);
        assert_eq!(
            found(&[tagged, plain.clone(), plain]),
            ["s0 etag: present not absent", "s0 x-mine: 2 not 1"]
        );
    }

    #[test]
    fn long_bodies_that_begin_alike_differ() {
        let (one, other) = ("x".repeat(100) + "1", "x".repeat(100) + "2");
        assert_ne!(shown(one.as_bytes()), shown(other.as_bytes()));
    }
}
