//! The address of `[server] metrics`: HTTP that gives metrics to whoever asks, and nothing else.
//!
//! Whoever reaches it may be anybody, so all of it is bounded: connections, each of which is for
//! one request, what a request may be, and how long either may take. The control thread is asked at
//! most a few times a second, however many ask here. One thread, asleep until somebody connects.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::CONTENT_TYPE;
use crate::config::metrics::MetricsConfig;
use crate::config::thing::Configured as _;
use crate::control::{self, Asking};
use crate::run::RunError;

/// Those who connect beyond these wait until one of them is through.
const CONNECTIONS_MAX: usize = 8;
/// Bytes of a request's head, the least that hyper takes.
const HEAD_MAX: usize = 8192;
const HEADERS_MAX: usize = 64;
/// How long a request may take to come.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection may last: the control thread may be busy with a change, and whoever asks
/// may read slowly.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// What was told is told again for so long.
const FRESH: Duration = Duration::from_millis(200);
/// Descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// An address that is taken, and answered from [`answer`](Self::answer) on until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) config: MetricsConfig,
    /// Where it really listens.
    pub(crate) address: SocketAddr,
    /// Until it is answered.
    socket: Option<std::net::TcpListener>,
    /// Ends the thread where it is dropped.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    pub(crate) fn new(
        config: MetricsConfig,
        socket: std::net::TcpListener,
        address: SocketAddr,
    ) -> Self {
        Self { config, address, socket: Some(socket), end: None, thread: None }
    }

    pub(crate) fn answer(&mut self, asking: &Asking) -> Result<(), RunError> {
        let Some(socket) = self.socket.take() else { return Ok(()) };
        let source = Arc::new(Source { asking: asking.clone(), last: Mutex::default() });
        let (end, told_to_end) = oneshot::channel();
        let title = self.config.title();
        let failed = |error| {
            // Unrecorded: it takes a machine that has no thread or no descriptor left.
            RunError::new(format!("{title}: cannot answer there: {error}"))
        };
        socket.set_nonblocking(true).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = told_to_end => {}
                    error = accept(socket, source) => {
                        crate::log::Event::error(format!("metrics are not read any more: {error}")).tell();
                    }
                }
            });
        });
        (self.end, self.thread) = (Some(end), Some(thread.map_err(failed)?));
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where the text comes from.
struct Source {
    asking: Asking,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Source {
    /// None while the server ends.
    async fn text(&self) -> Option<Bytes> {
        let mut last = self.last.lock().await;
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let text = Bytes::from(control::metrics(&self.asking).await?);
        *last = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

/// Serves everybody; returns why it cannot begin to.
async fn accept(socket: std::net::TcpListener, source: Arc<Source>) -> std::io::Error {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("nobody closes it");
        match listener.accept().await {
            Ok((stream, _)) => {
                let source = source.clone();
                tokio::spawn(async move {
                    let _place = place;
                    let _ = timeout(CONNECTION_LIMIT, serve(stream, source)).await;
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(stream: TcpStream, source: Arc<Source>) {
    let answer = service_fn(|request| {
        let source = source.clone();
        async move { Ok::<_, Infallible>(answer(&request, &source).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // Whoever asked so that there is no answer has closed, or is closed.
    let _ = connection.await;
}

async fn answer(request: &Request<Incoming>, source: &Source) -> Response<Full<Bytes>> {
    let (status, kind, text) = if *request.method() != Method::GET {
        (StatusCode::METHOD_NOT_ALLOWED, "text/plain", Bytes::from_static(b"only GET\n"))
    } else if request.uri().path() != "/metrics" {
        (StatusCode::NOT_FOUND, "text/plain", Bytes::from_static(b"expected GET /metrics\n"))
    } else if let Some(text) = source.text().await {
        (StatusCode::OK, CONTENT_TYPE, text)
    } else {
        let ending = Bytes::from_static(b"the server cannot tell\n");
        (StatusCode::SERVICE_UNAVAILABLE, "text/plain", ending)
    };
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
    response.body(Full::new(text)).expect("a response that was tried")
}
