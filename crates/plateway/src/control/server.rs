//! The server's side of the control socket: one thread, asleep until somebody connects.
//!
//! A request becomes an [`Ask`] for the control thread, which answers with a [`Reply`] when it
//! comes to it. Configurations are bounded to 4 MiB.

use std::os::unix::net::UnixListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::socket::Owned;
use super::status::{Changes, Status};
use crate::config::edit::Edit;
use crate::run::Consent;

/// The largest configuration.
const CONFIG_MAX: usize = 4 << 20;
/// How long clients may take to read what they asked for when the server ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// What somebody wants of the control thread.
#[derive(Debug)]
pub(crate) enum Ask {
    /// How things are.
    Status,
    /// What is served.
    Config,
    /// What `apply` would do.
    Difference {
        /// What messages call the configuration.
        name: String,
        /// The configuration.
        text: String,
    },
    /// To be brought to a configuration.
    Apply {
        /// What messages call the configuration.
        name: String,
        /// The configuration.
        text: String,
        consent: Consent,
    },
    /// A change of one value.
    Edit { edit: Edit, yes: bool },
    /// That a disk takes writes again.
    Reopen {
        /// Its name.
        disk: String,
    },
    /// That a volume is freed, whoever holds it.
    ClearReservation {
        /// Its name.
        volume: String,
    },
}

/// The control thread's answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// How things are.
    Status(Box<Status>),
    /// Something for people.
    Text(String),
    /// Steps.
    Changes(Changes),
    /// It cannot be done, and why.
    Refused(String),
}

/// Where a reply goes.
#[derive(Debug)]
pub(crate) struct Answering(oneshot::Sender<Reply>);

impl Answering {
    /// Answers; whoever asked may have left.
    pub(crate) fn answer(self, reply: Reply) {
        let _ = self.0.send(reply);
    }
}

/// A control socket that is answered; it is removed with this value, once everybody has the answer
/// that was given.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Ends the thread where it is dropped.
    end: Option<oneshot::Sender<()>>,
    /// Closed by the thread's end.
    ended: mpsc::Receiver<()>,
    _owned: Owned,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end = None;
        let _ = self.ended.recv_timeout(LAST_ANSWERS);
    }
}

type Asking = Arc<dyn Fn(Ask, Answering) -> bool + Send + Sync>;

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
    /// Names of volumes, separated by commas.
    overwrite: Option<String>,
    #[serde(default)]
    yes: bool,
    #[serde(default)]
    allow_empty: bool,
}

impl Named {
    fn or_default(self) -> String {
        self.name.unwrap_or_else(|| "plateway.toml".to_owned())
    }

    fn consent(&self) -> Consent {
        let names = self.overwrite.iter().flat_map(|names| names.split(','));
        let overwrite = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Consent { overwrite, yes: self.yes, allow_empty: self.allow_empty }
    }
}

#[derive(Deserialize)]
struct Sized {
    /// Bytes; none is all that its disks have.
    bytes: Option<u64>,
}

#[derive(Deserialize)]
struct OfHost {
    host: String,
    #[serde(default)]
    yes: bool,
}

impl OfHost {
    fn edit(self, volume: String, may: bool) -> Ask {
        Ask::Edit { edit: Edit::Host { volume, host: self.host, may }, yes: self.yes }
    }
}

pub(super) fn serve(
    listener: UnixListener,
    owned: Owned,
    ask: impl Fn(Ask, Answering) -> bool + Send + Sync + 'static,
) -> std::io::Result<Serving> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let routes = routes(Arc::new(ask));
    let (end, told_to_end) = oneshot::channel();
    let (alive, ended) = mpsc::channel();
    std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        let _alive = alive;
        runtime.block_on(async move {
            let end = async { drop(told_to_end.await) };
            let served = match tokio::net::UnixListener::from_std(listener) {
                Ok(listener) => axum::serve(listener, routes).with_graceful_shutdown(end).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                crate::run::log(&format!("the control socket is not answered any more: {error}"));
            }
        });
    })?;
    Ok(Serving { end: Some(end), ended, _owned: owned })
}

fn routes(asking: Asking) -> Router {
    Router::new()
        .route("/v1/status", get(async |State(asking)| reply(&asking, Ask::Status).await))
        .route("/v1/config", get(async |State(asking)| reply(&asking, Ask::Config).await))
        .route(
            "/v1/check",
            post(async |State(asking), Query(named): Query<Named>, text: String| {
                reply(&asking, Ask::Difference { name: named.or_default(), text }).await
            }),
        )
        .route(
            "/v1/apply",
            post(async |State(asking), Query(named): Query<Named>, text: String| {
                let consent = named.consent();
                reply(&asking, Ask::Apply { name: named.or_default(), text, consent }).await
            }),
        )
        .route(
            "/v1/disks/{name}/reopen",
            post(async |State(asking), Path(disk): Path<String>| {
                reply(&asking, Ask::Reopen { disk }).await
            }),
        )
        .route(
            "/v1/volumes/{name}/resize",
            post(async |State(asking), Path(volume): Path<String>, Query(size): Query<Sized>| {
                let edit = Edit::Resize { volume, bytes: size.bytes };
                reply(&asking, Ask::Edit { edit, yes: false }).await
            }),
        )
        .route(
            "/v1/volumes/{name}/hosts",
            post(async |State(asking), Path(volume): Path<String>, Query(one): Query<OfHost>| {
                reply(&asking, one.edit(volume, true)).await
            })
            .delete(
                async |State(asking), Path(volume): Path<String>, Query(one): Query<OfHost>| {
                    reply(&asking, one.edit(volume, false)).await
                },
            ),
        )
        .route(
            "/v1/volumes/{name}/reservation/clear",
            post(async |State(asking), Path(volume): Path<String>| {
                reply(&asking, Ask::ClearReservation { volume }).await
            }),
        )
        .fallback(async || (StatusCode::BAD_REQUEST, "expected a request such as GET /v1/status\n"))
        .layer(DefaultBodyLimit::max(CONFIG_MAX))
        .with_state(asking)
}

async fn reply(asking: &Asking, ask: Ask) -> Response {
    let (answer, answered) = oneshot::channel();
    let ending = || (StatusCode::SERVICE_UNAVAILABLE, "the server is ending").into_response();
    if !asking(ask, Answering(answer)) {
        return ending();
    }
    match answered.await {
        Ok(Reply::Status(status)) => Json(status).into_response(),
        Ok(Reply::Changes(changes)) => Json(changes).into_response(),
        Ok(Reply::Text(text)) => {
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
        }
        Ok(Reply::Refused(why)) => (StatusCode::CONFLICT, why).into_response(),
        Err(_) => ending(),
    }
}
