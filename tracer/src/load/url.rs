//! Where a URL leads.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, anyhow, bail};

/// A checked `http://` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Resolved address.
    pub address: SocketAddr,
    /// Host header.
    pub host: String,
    /// Path and query.
    pub path: String,
}

impl Url {
    /// Reads and resolves a URL; says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self> {
        let (authority, path) = parts(text)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let address = (host, authority.port_u16().unwrap_or(80))
            .to_socket_addrs()
            .with_context(|| format!("{text}: the host {host} cannot be resolved"))?
            .next()
            .ok_or_else(|| anyhow!("{text}: the host {host} has no address"))?;
        Ok(Self { address, host: authority.to_string(), path })
    }

    /// Host header and path of a URL whose host is not asked: there is another way to the server.
    pub fn unresolved(text: &str) -> Result<(String, String)> {
        let (authority, path) = parts(text)?;
        Ok((authority.to_string(), path))
    }
}

fn parts(text: &str) -> Result<(hyper::http::uri::Authority, String)> {
    let uri: hyper::Uri =
        text.parse().map_err(|error| anyhow!("{text}: {error}; write it like http://127.0.0.1:8080/"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => bail!("{text}: TLS is not supported; use the server's plain http port"),
        _ => bail!("{text}: it must begin with http://, like http://127.0.0.1:8080/"),
    }
    let no_host = || anyhow!("{text}: no host; write it like http://127.0.0.1:8080/");
    let authority = uri.authority().ok_or_else(no_host)?.clone();
    Ok((authority, uri.path_and_query().map_or("/", |path| path.as_str()).to_owned()))
}
