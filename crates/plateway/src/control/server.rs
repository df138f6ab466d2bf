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
use reservation::PathState;
use serde::Deserialize;
use tokio::sync::oneshot;
use utoipa::{IntoParams, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::socket::Owned;
use super::status::{Changes, Status};
use crate::config::edit::Edit;
use crate::protocols::{Bins, Routers};
use crate::run::Consent;
use crate::run::routers::MILLISECONDS_MAX;

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
    /// What is counted, for monitoring.
    Metrics,
    /// How routers are.
    Routers,
    /// That what leaves by a port of a router is counted by the millisecond, for so many of them.
    Record { port: String, milliseconds: u16 },
    /// What was counted.
    Recorded { port: String },
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
    /// That the sessions of a host are closed.
    CloseSessions {
        /// Its name.
        host: String,
    },
    /// That a volume is freed, whoever holds it.
    ClearReservation {
        /// Its name.
        volume: String,
    },
    /// That a group of listeners is in another state.
    SetGroup {
        /// Its number.
        group: u16,
        state: PathState,
    },
}

/// The control thread's answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// How things are.
    Status(Box<Status>),
    /// Something for people.
    Text(String),
    /// OpenMetrics.
    Metrics(String),
    /// Routers.
    Routers(Routers),
    /// What left by a port in each millisecond.
    Bins(Bins),
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

/// Takes a question to the control thread; false where it is not there any more.
pub(crate) type Asking = Arc<dyn Fn(Ask, Answering) -> bool + Send + Sync>;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Named {
    /// What messages call the configuration.
    name: Option<String>,
}

impl Named {
    fn or_default(self) -> String {
        self.name.unwrap_or_else(|| "plateway.toml".to_owned())
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Consenting {
    /// Names of volumes, separated by commas, whose disks are labelled whatever they hold.
    overwrite: Option<String>,
    /// Whether what is in use may be taken away.
    #[serde(default)]
    yes: bool,
    /// Whether the last export may be taken away.
    #[serde(default)]
    allow_empty: bool,
}

impl Consenting {
    fn consent(&self) -> Consent {
        let names = self.overwrite.iter().flat_map(|names| names.split(','));
        let overwrite = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Consent { overwrite, yes: self.yes, allow_empty: self.allow_empty }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Sized {
    /// Bytes; none is all that its disks have.
    bytes: Option<u64>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OfHost {
    /// Its NQN, IQN or MAC address.
    host: String,
    /// Whether it may lose what it uses.
    #[serde(default)]
    yes: bool,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Whose {
    /// The host's NQN or IQN.
    host: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Stretch {
    /// The name of a port or circuit.
    port: String,
    /// 1 to 10000.
    milliseconds: u16,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct InState {
    /// `optimized`, `non-optimized`, `standby`, `unavailable` or `transitioning`.
    state: String,
}

impl OfHost {
    fn edit(self, volume: String, may: bool) -> Ask {
        Ask::Edit { edit: Edit::Host { volume, host: self.host, may }, yes: self.yes }
    }
}

pub(super) fn serve(
    listener: UnixListener,
    owned: Owned,
    asking: Asking,
) -> std::io::Result<Serving> {
    listener.set_nonblocking(true)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let routes = routes(asking);
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
                let words = format!("the control socket is not answered any more: {error}");
                crate::log::Event::error(words).tell();
            }
        });
    })?;
    Ok(Serving { end: Some(end), ended, _owned: owned })
}

/// The routes, and what they are.
fn router() -> OpenApiRouter<Asking> {
    #[derive(OpenApi)]
    #[openapi(info(
        title = "Plateway",
        description = "The control socket of a server: HTTP over a Unix socket. Keys stay: later \
                       versions add keys and rename none. Errors are texts for people: 409 where it \
                       cannot be done, 404 and 405 where there is no such request, 400 where it lacks \
                       something, 503 while the server ends."
    ))]
    struct Api;
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(status))
        .routes(routes!(config))
        .routes(routes!(metrics_text))
        .routes(routes!(routers))
        .routes(routes!(port_bins))
        .routes(routes!(check))
        .routes(routes!(apply))
        .routes(routes!(reopen))
        .routes(routes!(resize))
        .routes(routes!(add_host, remove_host))
        .routes(routes!(close_sessions))
        .routes(routes!(clear_reservation))
        .routes(routes!(set_group))
        .routes(routes!(openapi_text))
}

/// What can be asked, as OpenAPI.
pub(crate) fn openapi() -> utoipa::openapi::OpenApi {
    router().into_openapi()
}

fn routes(asking: Asking) -> Router {
    let (router, _) = router().split_for_parts();
    #[cfg(debug_assertions)]
    let router = router.layer(axum::middleware::from_fn(crate::recorded::answer));
    router
        .fallback(async || (StatusCode::NOT_FOUND, "expected a request such as GET /v1/status\n"))
        .layer(DefaultBodyLimit::max(CONFIG_MAX))
        .with_state(asking)
}

/// How the server is.
#[utoipa::path(get, path = "/v1/status", responses(
    (status = OK, body = Status), (status = 503, body = String)
))]
async fn status(State(asking): State<Asking>) -> Response {
    reply(&asking, Ask::Status).await
}

/// What is served, as a configuration.
#[utoipa::path(get, path = "/v1/config", responses(
    (status = OK, body = String, content_type = "text/plain"), (status = 503, body = String)
))]
async fn config(State(asking): State<Asking>) -> Response {
    reply(&asking, Ask::Config).await
}

/// What is counted, as OpenMetrics.
#[utoipa::path(get, path = "/v1/metrics", responses(
    (status = OK, body = String, content_type = "application/openmetrics-text"),
    (status = 503, body = String)
))]
async fn metrics_text(State(asking): State<Asking>) -> Response {
    reply(&asking, Ask::Metrics).await
}

/// How routers are: ports, labels, paths, pseudowires, tunnels and neighbours, with what was counted at each.
#[utoipa::path(get, path = "/v1/routers", responses(
    (status = OK, body = Routers), (status = 503, body = String)
))]
async fn routers(State(asking): State<Asking>) -> Response {
    reply(&asking, Ask::Routers).await
}

/// What applying a configuration would do.
#[utoipa::path(post, path = "/v1/check", params(Named),
    request_body(content = String, content_type = "text/plain", description = "A configuration"),
    responses((status = OK, body = Changes), (status = 409, body = String), (status = 503, body = String))
)]
async fn check(State(asking): State<Asking>, Query(named): Query<Named>, text: String) -> Response {
    reply(&asking, Ask::Difference { name: named.or_default(), text }).await
}

/// Brings the server to a configuration.
#[utoipa::path(post, path = "/v1/apply", params(Named, Consenting),
    request_body(content = String, content_type = "text/plain", description = "A configuration"),
    responses((status = OK, body = Changes), (status = 409, body = String), (status = 503, body = String))
)]
async fn apply(
    State(asking): State<Asking>,
    Query(named): Query<Named>,
    Query(consenting): Query<Consenting>,
    text: String,
) -> Response {
    let consent = consenting.consent();
    reply(&asking, Ask::Apply { name: named.or_default(), text, consent }).await
}

/// Lets a disk take writes again.
#[utoipa::path(post, path = "/v1/disks/{name}/reopen",
    params(("name" = String, Path, description = "The disk's name")),
    responses((status = OK, body = String), (status = 409, body = String), (status = 503, body = String))
)]
async fn reopen(State(asking): State<Asking>, Path(disk): Path<String>) -> Response {
    reply(&asking, Ask::Reopen { disk }).await
}

/// Brings a volume to another size.
#[utoipa::path(post, path = "/v1/volumes/{name}/resize",
    params(("name" = String, Path, description = "The volume's name"), Sized),
    responses((status = OK, body = Changes), (status = 409, body = String), (status = 503, body = String))
)]
async fn resize(
    State(asking): State<Asking>,
    Path(volume): Path<String>,
    Query(size): Query<Sized>,
) -> Response {
    let edit = Edit::Resize { volume, bytes: size.bytes };
    reply(&asking, Ask::Edit { edit, yes: false }).await
}

/// Lets a host use a volume.
#[utoipa::path(post, path = "/v1/volumes/{name}/hosts",
    params(("name" = String, Path, description = "The volume's name"), OfHost),
    responses((status = OK, body = Changes), (status = 409, body = String), (status = 503, body = String))
)]
async fn add_host(
    State(asking): State<Asking>,
    Path(volume): Path<String>,
    Query(one): Query<OfHost>,
) -> Response {
    reply(&asking, one.edit(volume, true)).await
}

/// Shuts a host out of a volume.
#[utoipa::path(delete, path = "/v1/volumes/{name}/hosts",
    params(("name" = String, Path, description = "The volume's name"), OfHost),
    responses((status = OK, body = Changes), (status = 409, body = String), (status = 503, body = String))
)]
async fn remove_host(
    State(asking): State<Asking>,
    Path(volume): Path<String>,
    Query(one): Query<OfHost>,
) -> Response {
    reply(&asking, one.edit(volume, false)).await
}

/// Closes the sessions of a host, which may connect again.
#[utoipa::path(delete, path = "/v1/sessions", params(Whose),
    responses((status = OK, body = String), (status = 409, body = String), (status = 503, body = String))
)]
async fn close_sessions(State(asking): State<Asking>, Query(whose): Query<Whose>) -> Response {
    reply(&asking, Ask::CloseSessions { host: whose.host }).await
}

/// Frees a volume, whoever holds it.
#[utoipa::path(post, path = "/v1/volumes/{name}/reservation/clear",
    params(("name" = String, Path, description = "The volume's name")),
    responses((status = OK, body = String), (status = 409, body = String), (status = 503, body = String))
)]
async fn clear_reservation(State(asking): State<Asking>, Path(volume): Path<String>) -> Response {
    reply(&asking, Ask::ClearReservation { volume }).await
}

/// Counts what leaves by a port of a router in each millisecond, and answers once the last is over.
#[utoipa::path(post, path = "/v1/routers/bins", params(Stretch), responses(
    (status = OK, body = Bins), (status = 400, body = String), (status = 409, body = String),
    (status = 503, body = String)
))]
async fn port_bins(State(asking): State<Asking>, Query(stretch): Query<Stretch>) -> Response {
    let Stretch { port, milliseconds } = stretch;
    if !(1..=MILLISECONDS_MAX).contains(&milliseconds) {
        let text = format!("milliseconds: expected 1 to {MILLISECONDS_MAX}, seen {milliseconds}\n");
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let begun = reply(&asking, Ask::Record { port: port.clone(), milliseconds }).await;
    if begun.status() != StatusCode::OK {
        return begun;
    }
    // The last one is over then, and what left in it was counted.
    tokio::time::sleep(Duration::from_millis(u64::from(milliseconds) + 1)).await;
    reply(&asking, Ask::Recorded { port }).await
}

/// Sets the state of a group of listeners.
#[utoipa::path(post, path = "/v1/groups/{group}",
    params(("group" = u16, Path, description = "The group's number"), InState),
    responses((status = OK, body = String), (status = 400, body = String), (status = 409, body = String),
        (status = 503, body = String))
)]
async fn set_group(
    State(asking): State<Asking>,
    Path(group): Path<u16>,
    Query(InState { state }): Query<InState>,
) -> Response {
    match state.parse() {
        Ok(state) => reply(&asking, Ask::SetGroup { group, state }).await,
        Err(error) => (StatusCode::BAD_REQUEST, format!("state: {error}\n")).into_response(),
    }
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", responses((status = OK, body = Object)))]
async fn openapi_text() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}

/// What is counted, of the control thread; none if it is ending or cannot tell.
pub(crate) async fn metrics(asking: &Asking) -> Option<String> {
    let (answer, answered) = oneshot::channel();
    match asking(Ask::Metrics, Answering(answer)).then_some(answered)?.await {
        Ok(Reply::Metrics(text)) => Some(text),
        _ => None,
    }
}

async fn reply(asking: &Asking, ask: Ask) -> Response {
    let (answer, answered) = oneshot::channel();
    let ending = || (StatusCode::SERVICE_UNAVAILABLE, "the server is ending").into_response();
    if !asking(ask, Answering(answer)) {
        return ending();
    }
    match answered.await {
        Ok(Reply::Status(status)) => Json(status).into_response(),
        Ok(Reply::Routers(routers)) => Json(routers).into_response(),
        Ok(Reply::Bins(bins)) => Json(bins).into_response(),
        Ok(Reply::Changes(changes)) => Json(changes).into_response(),
        Ok(Reply::Text(text)) => {
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
        }
        Ok(Reply::Metrics(text)) => {
            ([(header::CONTENT_TYPE, crate::metrics::CONTENT_TYPE)], text).into_response()
        }
        Ok(Reply::Refused(why)) => (StatusCode::CONFLICT, why).into_response(),
        Err(_) => ending(),
    }
}
