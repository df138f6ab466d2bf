//! The client's side of the control socket: one request, one answer, one connection.
//!
//! Errors say whether nobody answers there (a server may not be running, or under another path) or
//! the server refused, with its words.

use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use reservation::PathState;

use super::status::{Changes, Status};
use crate::config::edit::Edit;
use crate::protocols::{Bins, Routers};
use crate::run::Consent;

/// A server's control socket.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    path: PathBuf,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(crate) enum ClientError {
    /// No server is there.
    #[error("no server answers on the control socket {path}: {seen}")]
    #[diagnostic(help("{help}"))]
    Absent {
        /// The socket.
        path: String,
        /// What the system said.
        seen: String,
        /// What to do.
        help: &'static str,
    },
    /// The server said no.
    #[error("{0}")]
    Refused(String),
    /// The answer is not one.
    #[error("control socket {path}: expected an answer of plateway, seen {seen}")]
    Strange {
        /// The socket.
        path: String,
        /// What came.
        seen: String,
    },
}

impl Client {
    /// The server behind `path`.
    pub(crate) fn new(path: &Path) -> Client {
        Client { path: path.to_owned() }
    }

    /// How things are.
    pub(crate) fn status(&self) -> Result<Status, ClientError> {
        self.json(Method::GET, "/v1/status", String::new())
    }

    /// How routers are.
    pub(crate) fn routers(&self) -> Result<Routers, ClientError> {
        self.json(Method::GET, "/v1/routers", String::new())
    }

    /// What leaves by a port of a router in each of so many milliseconds, once they are over.
    pub(crate) fn bins(&self, port: &str, milliseconds: u64) -> Result<Bins, ClientError> {
        let port = escaped(Path::new(port));
        let path = format!("/v1/routers/bins?port={port}&milliseconds={milliseconds}");
        self.json(Method::POST, &path, String::new())
    }

    /// What `apply` of this configuration would do.
    pub(crate) fn check(&self, name: &Path, text: String) -> Result<Changes, ClientError> {
        self.json(Method::POST, &format!("/v1/check?name={}", escaped(name)), text)
    }

    /// Brings the server to this configuration.
    pub(crate) fn apply(
        &self,
        name: &Path,
        text: String,
        consent: &Consent,
    ) -> Result<Changes, ClientError> {
        let mut path = format!("/v1/apply?name={}", escaped(name));
        if !consent.overwrite.is_empty() {
            let names: Vec<String> =
                consent.overwrite.iter().map(|name| escaped(Path::new(name))).collect();
            // Names hold no commas.
            path += &format!("&overwrite={}", names.join(","));
        }
        for (said, key) in [(consent.yes, "yes"), (consent.allow_empty, "allow_empty")] {
            if said {
                path += &format!("&{key}=true");
            }
        }
        self.json(Method::POST, &path, text)
    }

    /// What is served, as a configuration.
    pub(crate) fn config(&self) -> Result<String, ClientError> {
        self.ask(Method::GET, "/v1/config", String::new())
    }

    /// Changes one value of what is served.
    pub(crate) fn edit(&self, edit: &Edit, yes: bool) -> Result<Changes, ClientError> {
        let at = |volume: &str| format!("/v1/volumes/{}", escaped(Path::new(volume)));
        let (method, path) = match edit {
            Edit::Resize { volume, bytes: Some(bytes) } => {
                (Method::POST, format!("{}/resize?bytes={bytes}", at(volume)))
            }
            Edit::Resize { volume, bytes: None } => (Method::POST, at(volume) + "/resize"),
            Edit::Host { volume, host, may } => {
                let (host, yes) = (escaped(Path::new(host)), if yes { "&yes=true" } else { "" });
                let method = if *may { Method::POST } else { Method::DELETE };
                (method, format!("{}/hosts?host={host}{yes}", at(volume)))
            }
        };
        self.json(method, &path, String::new())
    }

    /// Lets a disk take writes again.
    pub(crate) fn reopen(&self, disk: &str) -> Result<String, ClientError> {
        let disk = escaped(Path::new(disk));
        self.ask(Method::POST, &format!("/v1/disks/{disk}/reopen"), String::new())
    }

    /// Closes the sessions of a host.
    pub(crate) fn close_sessions(&self, host: &str) -> Result<String, ClientError> {
        let host = escaped(Path::new(host));
        self.ask(Method::DELETE, &format!("/v1/sessions?host={host}"), String::new())
    }

    /// Frees a volume, whoever holds it.
    pub(crate) fn clear_reservation(&self, volume: &str) -> Result<String, ClientError> {
        let volume = escaped(Path::new(volume));
        let path = format!("/v1/volumes/{volume}/reservation/clear");
        self.ask(Method::POST, &path, String::new())
    }

    /// Sets the state of a group of listeners.
    pub(crate) fn set_group(&self, group: u16, state: PathState) -> Result<String, ClientError> {
        self.ask(Method::POST, &format!("/v1/groups/{group}?state={state}"), String::new())
    }

    fn json<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<T, ClientError> {
        let text = self.ask(method, path, body)?;
        serde_json::from_str(&text).map_err(|error| self.strange(&error))
    }

    fn absent(&self, seen: &(dyn std::error::Error + 'static)) -> ClientError {
        let kind = seen.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let help = match kind {
            Some(std::io::ErrorKind::PermissionDenied) => {
                "the socket is for the user that the server runs as, and for its control_group: try it with sudo"
            }
            _ => {
                "is `plateway serve` running? Its socket is the key `control` of [server] in its configuration: name it with --control, or the configuration with --config"
            }
        };
        ClientError::Absent { path: self.path.display().to_string(), seen: seen.to_string(), help }
    }

    fn strange(&self, seen: &dyn std::fmt::Display) -> ClientError {
        ClientError::Strange { path: self.path.display().to_string(), seen: seen.to_string() }
    }

    fn ask(&self, method: Method, path: &str, body: String) -> Result<String, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(|error| self.strange(&error))?;
        runtime.block_on(async {
            let stream = tokio::net::UnixStream::connect(&self.path).await;
            let stream = TokioIo::new(stream.map_err(|error| self.absent(&error))?);
            let connected = hyper::client::conn::http1::handshake(stream).await;
            let (mut sender, connection) = connected.map_err(|error| self.absent(&error))?;
            let driving = tokio::spawn(connection);
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(hyper::header::HOST, "plateway")
                .body(Full::new(Bytes::from(body)))
                .map_err(|error| self.strange(&error))?;
            // A server that ends meanwhile answers no more.
            let response = sender.send_request(request).await;
            let response = response.map_err(|error| self.absent(&error))?;
            let status = response.status();
            let bytes = response.into_body().collect().await;
            let bytes = bytes.map_err(|error| self.absent(&error))?.to_bytes();
            driving.abort();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            match status {
                StatusCode::OK => Ok(text),
                _ => Err(ClientError::Refused(text)),
            }
        })
    }
}

/// A name as a part of a URI: everything but letters, digits and `-._` as `%XX`.
fn escaped(name: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let byte = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => (*byte as char).to_string(),
        other => format!("%{other:02X}"),
    };
    name.as_os_str().as_bytes().iter().map(byte).collect()
}
