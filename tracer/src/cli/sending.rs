//! What our load sends, and when: the flags that `load`, `record`, `check` and `bench` have in common.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::load::Pacing;

/// When requests are sent, and over which connections.
#[derive(Args, Clone, Default)]
pub struct PacingArguments {
    /// Requests per second, sent when due whether or not earlier ones were answered; without it, each connection
    /// sends when it has its answer
    #[arg(short, long, value_name = "PER_SECOND", value_parser = rate)]
    pub rate: Option<f64>,
    /// Requests in flight on each connection (one)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub pipeline: Option<u32>,
    /// Close each connection after so many requests, and open another
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests_per_connection: Option<u64>,
}

impl PacingArguments {
    /// None of them was given.
    pub fn is_usual(&self) -> bool {
        self.pacing() == Pacing::default()
    }

    /// As the driver takes it.
    pub fn pacing(&self) -> Pacing {
        Pacing {
            pipeline: self.pipeline.map_or(1, |depth| depth as usize),
            rate: self.rate,
            requests_per_connection: self.requests_per_connection,
        }
    }
}

/// What each request is. A scenario says that itself.
#[derive(Args, Clone, Default)]
pub struct MessageArguments {
    /// Method (GET)
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<String>,
    /// A header, such as 'Accept: */*'; may be given several times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Body of each request
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// File with the body of each request
    #[arg(long, value_name = "FILE", conflicts_with = "body")]
    body_file: Option<PathBuf>,
}

impl MessageArguments {
    /// None of them was given.
    pub fn is_usual(&self) -> bool {
        self.method.is_none() && self.headers.is_empty() && self.body.is_none() && self.body_file.is_none()
    }

    /// The method.
    pub fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("GET")
    }

    /// The body; an error names the file that cannot be read.
    pub fn body(&self) -> Result<Vec<u8>> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Ok(text.clone().into_bytes()),
            (None, Some(file)) => read(file),
            (None, None) => Ok(Vec::new()),
        }
    }
}

/// A file's bytes.
pub fn read(file: &PathBuf) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Of requests per second, above zero.
pub fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("a number of requests per second above zero".into()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it like 'Name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_headers_are_read() {
        assert_eq!(header("A: b:c"), Ok(("A".into(), "b:c".into())));
        assert!(header("A").is_err() && rate("0").is_err() && rate("nan").is_err());
    }
}
