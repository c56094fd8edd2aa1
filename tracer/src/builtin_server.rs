//! The server that comes with `tracer`: small, honest, and able to misbehave on request.
//!
//! Routes: `GET /`, `GET /users/:id`, `POST /echo`, and `GET /answered`: how many of the others were answered. [`knobs`] are query parameters that make a response slow or split;
//! such a response says in its `x-did` header what was done and when, on the clock of the kernel's marks.

mod knobs;

use std::convert::Infallible;
use std::io::{Write, stdout};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use self::knobs::{Knobs, Pieces};

/// Pause after a failed accept: the usual cause, too many open files, passes only when others close theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Requests answered with their content, for a client whose own count is to be checked.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// Most bodies are whole, so that head and body leave in one write; the knobs stream theirs.
type Body = Either<Full<Bytes>, Pieces>;

/// Serves on 127.0.0.1 until the process is ended, and prints one line, `listening on 127.0.0.1:PORT`, once it does.
///
/// Port 0 lets the kernel choose one. `knobs` are those of every request without a query of its own; they are silent.
pub fn run(port: u16, workers: usize, knobs: &str) -> anyhow::Result<()> {
    let knobs = Knobs::parse(knobs).map_err(|error| anyhow::anyhow!("--knobs: {error}"))?;
    // As long as the process.
    let knobs: &'static Knobs = Box::leak(Box::new(knobs));
    ensure!(workers > 0, "the server needs at least one worker");
    let mut builder = if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if workers > 1 {
        builder.worker_threads(workers);
    }
    let runtime = builder.enable_all().build().context("cannot start the server's event loop")?;
    runtime.block_on(async {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(wanted).await.with_context(|| {
            format!("cannot listen on {wanted}: choose another port, or 0 to have a free one chosen")
        })?;
        let address = listener.local_addr().context("cannot read the port that was chosen")?;
        let mut stdout = stdout();
        writeln!(stdout, "listening on {address}")
            .and_then(|()| stdout.flush())
            .context("cannot print the address: whoever started the server closed its output")?;
        // One task more, so that with several workers the accept loop runs on one of them.
        tokio::spawn(serve(listener, knobs)).await.context("the accept loop ended")
    })
}

async fn serve(listener: TcpListener, knobs: &'static Knobs) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                eprintln!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // It fails only on a connection that is gone, and serving notices that.
        let _ = stream.set_nodelay(true);
        let service = service_fn(move |request| answer(request, knobs));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // An error is a client that went away or sent no HTTP: nothing to do about either.
            let _ = connection.await;
        });
    }
}

async fn answer(request: Request<Incoming>, usual: &'static Knobs) -> Result<Response<Body>, Infallible> {
    let has_query = request.uri().query().is_some();
    let asked = match Knobs::parse(request.uri().query().unwrap_or_default()) {
        Ok(asked) => asked,
        Err(error) => return Ok(text(StatusCode::BAD_REQUEST, error)),
    };
    let (content_type, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/") => (json(), Bytes::from_static(br#"{"message":"hello"}"#)),
        (&Method::GET | &Method::HEAD, path) if path.starts_with("/users/") => {
            let id = serde_json::Value::from(&path["/users/".len()..]);
            (json(), Bytes::from(format!(r#"{{"id":{id},"name":"ada"}}"#)))
        }
        (&Method::GET, "/answered") => {
            return Ok(text(StatusCode::OK, ANSWERED.load(Ordering::Relaxed).to_string()));
        }
        (&Method::POST, "/echo") => {
            let content_type = request.headers().get(CONTENT_TYPE).cloned();
            match request.into_body().collect().await {
                Ok(body) => {
                    let octets = || HeaderValue::from_static("application/octet-stream");
                    (content_type.unwrap_or_else(octets), body.to_bytes())
                }
                Err(error) => {
                    return Ok(text(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")));
                }
            }
        }
        _ => {
            let routes = "there are /, /users/:id, /answered and POST /echo";
            return Ok(text(StatusCode::NOT_FOUND, routes.to_owned()));
        }
    };
    ANSWERED.fetch_add(1, Ordering::Relaxed);
    let knobs = if has_query { &asked } else { usual };
    let did = knobs.act().await.filter(|_| has_query);
    let mut response = Response::new(knobs.body(body));
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    if let Some(did) = did {
        response.headers_mut().insert("x-did", did);
    }
    Ok(response)
}

fn json() -> HeaderValue {
    HeaderValue::from_static("application/json")
}

fn text(status: StatusCode, words: String) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::from(words + "\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests;
