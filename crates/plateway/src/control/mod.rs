//! The control socket: HTTP over a Unix socket that only its owner may use, on which `status`,
//! `apply`, `check`, `disks`, `reservation` and `group` talk to a server.
//!
//! What can be asked is told by `GET /openapi.json`, and by `plateway api`:
//!
//! ```text
//!   GET  /v1/status                    Status as JSON
//!   GET  /v1/metrics                   what is counted, as OpenMetrics (docs/metrics.md)
//!   GET  /v1/routers                   how routers are, as JSON
//!   POST /v1/routers/bins?port=P&milliseconds=N
//!                                      what left by a port in each, as JSON, when the last is over
//!   GET  /v1/config                    what is served, as a configuration
//!   POST /v1/check?name=FILE           a configuration; Changes as JSON: what apply would do
//!   POST /v1/apply?name=FILE           a configuration; Changes as JSON: what was done;
//!                                      &overwrite=V,W gives up what the disks of these volumes hold,
//!                                      &yes=true takes away what is in use, &allow_empty=true the
//!                                      last export
//!   POST /v1/disks/{name}/reopen       what was done, as a line
//!   DELETE /v1/sessions?host=NAME      what was done, as a line
//!   POST /v1/volumes/{name}/reservation/clear
//!                                      what was done, as a line
//!   POST /v1/groups/{group}?state=S    what was done, as a line
//! ```
//!
//! Errors are texts for people, with code 409 (it cannot be done), 404 and 405 (no such request),
//! 400 (it lacks something) or 503 (the server is ending). Requests are carried out by the control
//! thread one after the other. `socket` is where they come, `server` the requests, `client` the
//! other side, `status` what is said.

mod client;
mod server;
mod socket;
pub(crate) mod status;
mod table;

pub(crate) use client::{Client, ClientError};
pub(crate) use server::{Answering, Ask, Asking, Reply, metrics, openapi};
pub(crate) use socket::{ControlSocket, group};
pub(crate) use status::{Changes, Keyed, Listener, SchemaVersion, Status, StepLine, counted};
pub(crate) use table::{Column, table, table_of};
