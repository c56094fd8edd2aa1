//! hyper's client as a second opinion on what bytes say; tests only.

use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Status and body that it makes of these bytes and the end of the connection; `None`: that is no whole response.
pub fn response(method: &str, bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (client, mut server) = tokio::io::duplex(1 << 20);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
        let request = Request::builder().method(method).uri("/").body(Empty::<Bytes>::new()).unwrap();
        let exchange = async {
            let response = sender.send_request(request).await.ok()?;
            let status = response.status().as_u16();
            Some((status, response.into_body().collect().await.ok()?.to_bytes().to_vec()))
        };
        let answer = async {
            // hyper takes bytes for an answer only after it has asked.
            let mut asked = [0; 16];
            let _ = server.read(&mut asked).await;
            server.write_all(bytes).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let all = async { tokio::join!(exchange, answer, connection).0 };
        tokio::time::timeout(Duration::from_secs(5), all).await.expect("hyper waits for more")
    })
}
