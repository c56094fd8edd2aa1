//! One request over a connection of its own, by a full HTTP client: it takes any framing, and keeps every header.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::Answer;
use crate::scenario::Request;

/// Asks a server once, as the workload says.
pub fn ask(address: SocketAddr, request: &Request, patience: Duration) -> Result<Answer> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start an event loop")?;
    runtime.block_on(async {
        match timeout(patience, exchange(address, request)).await {
            Ok(answer) => answer,
            Err(_) => bail!("no whole answer to {} {} within {patience:?}", request.method, request.path),
        }
    })
}

async fn exchange(address: SocketAddr, request: &Request) -> Result<Answer> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut builder = hyper::Request::builder()
        .method(request.method.as_str())
        .uri(&request.path)
        .header("host", address.to_string());
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let outgoing = builder.body(Full::new(Bytes::from(request.body.clone())))?;
    let what = || format!("no answer to {} {}", request.method, request.path);
    let response = sender.send_request(outgoing).await.with_context(what)?;
    let (head, body) = response.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let headers = headers.collect();
    let body = body.collect().await.with_context(what)?.to_bytes().to_vec();
    drop(sender);
    // Its end says nothing more: the answer is whole.
    connection.abort();
    Ok(Answer { status: head.status.as_u16(), headers, body })
}
