//! What tests passed through of this program's command line, configuration and control socket.
//!
//! Here is how things are named in the record (see [`block::record`]), and in the test all that there
//! is, from what the program itself knows: clap's commands, the readers of the configuration's tables,
//! OpenAPI. `cargo xtask test` compares. It is not there without debug assertions.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use block::record::passed;
use clap::builder::PossibleValue;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory};

use crate::config::schema::words;

/// The options of the line that was typed, where it can be parsed.
pub(crate) fn options() {
    let command = crate::cli::Cli::command();
    if let Ok(matches) = command.clone().try_get_matches() {
        of_command(&command, &matches, "plateway");
    }
}

fn of_command(command: &Command, matches: &ArgMatches, path: &str) {
    passed("option", path);
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        if !matches.try_contains_id(id).unwrap_or(false)
            || matches.value_source(id) != Some(ValueSource::CommandLine)
        {
            continue;
        }
        passed("option", option(path, arg));
        if !words_of(arg).is_empty() {
            for value in matches.get_raw(id).into_iter().flatten() {
                passed("option", format_args!("{}={}", option(path, arg), value.display()));
            }
        }
    }
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        of_command(command, matches, &format!("{path} {name}"));
    }
}

fn option(path: &str, arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => format!("{path} --{long}"),
        None => format!("{path} <{}>", arg.get_id()),
    }
}

/// The few words that an option takes; one that takes no value is merely there.
fn words_of(arg: &Arg) -> Vec<PossibleValue> {
    if arg.get_action().takes_values() { arg.get_possible_values() } else { Vec::new() }
}

/// A key of a table that has a value of its type, and the value where it is one of few words.
pub(crate) fn key(title: &str, key: &str, word: Option<&str>) {
    passed("key", format_args!("{title} {key}"));
    let Some(word) = word else { return };
    if words(title).iter().any(|(of, all)| *of == key && all.contains(&word)) {
        passed("key", format_args!("{title} {key}={word}"));
    }
}

/// A request of the control socket and its status; the requests of one route are told apart by both.
pub(crate) async fn answer(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let response = next.run(request).await;
    if let Some(route) = route {
        let status = response.status().as_u16();
        passed("route", route_status(method.as_str(), route.as_str(), status));
    }
    response
}

/// A server that is ending answers every request in the same place.
fn route_status(method: &str, route: &str, status: u16) -> String {
    match status {
        503 => "503".to_owned(),
        _ => format!("{method} {route} {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn know_command(command: &Command, path: &str) {
        passed("known option", path);
        let shown = |arg: &&Arg| !["help", "version"].contains(&arg.get_id().as_str());
        for arg in command.get_arguments().filter(shown) {
            passed("known option", option(path, arg));
            for value in words_of(arg) {
                passed("known option", format_args!("{}={}", option(path, arg), value.get_name()));
            }
        }
        for command in command.get_subcommands() {
            know_command(command, &format!("{path} {}", command.get_name()));
        }
    }

    #[test]
    fn what_there_is_is_told_to_the_record() {
        know_command(&crate::cli::Cli::command(), "plateway");

        for (title, keys) in crate::config::file::keys() {
            keys.iter().for_each(|key| passed("known key", format_args!("{title} {key}")));
            for (key, words) in words(title) {
                for word in words {
                    passed("known key", format_args!("{title} {key}={word}"));
                }
            }
        }

        let document = serde_json::to_value(crate::control::openapi()).unwrap();
        let mut routes = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, what) in methods.as_object().unwrap() {
                for status in what["responses"].as_object().unwrap().keys() {
                    let method = method.to_uppercase();
                    passed("known route", route_status(&method, path, status.parse().unwrap()));
                    routes += 1;
                }
            }
        }
        assert!(routes > 0, "{document}");
    }
}
