//! Pages in a browser: they are opened by a headless Chromium, which tells what it saw.
//!
//! It is to show every figure, to have nothing to complain of, and to ask nobody for anything. That
//! it would tell is shown with a page into which both were planted. Skipped where there is none.

// The room is pure; what opens its pages is not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// What Debian and others call it.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// A page into which what is not to be was put: a complaint, and something to be loaded.
const PLANTED: &str = "<!DOCTYPE html><title>planted</title>\
    <script>console.error('planted complaint')</script><img src=\"http://127.0.0.1:9/planted\">";

/// What a browser saw of a page.
struct Seen {
    /// The page as it became.
    page: String,
    /// What it complained of.
    complaints: Vec<String>,
    /// What it asked somebody for.
    asked_for: Vec<String>,
}

fn browser() -> Option<&'static str> {
    let answers = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    NAMES.into_iter().find(answers)
}

fn open(browser: &str, html: &str) -> Seen {
    let folder = TempDir::new().unwrap();
    let (page, log) = (folder.path().join("page.html"), folder.path().join("net.json"));
    fs::write(&page, html).unwrap();
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        // What it would ask its maker for is not the page's.
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-extensions", "--enable-logging=stderr", "--dump-dom"])
        .arg(option("user-data-dir", &folder.path().join("profile")))
        .arg(option("log-net-log", &log))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let complaints = told.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned);
    Seen {
        page: String::from_utf8(output.stdout).unwrap(),
        complaints: complaints.collect(),
        asked_for: asked_for(&fs::read_to_string(&log).unwrap()),
    }
}

/// The addresses in a log of the browser's network that a page from a file asked for: those that the
/// browser asks its maker for by itself are of no such site. An event is a line.
fn asked_for(log: &str) -> Vec<String> {
    let of_page = log.lines().filter(|line| line.contains("site=file://"));
    let addresses = of_page.flat_map(|line| line.split("\"url\":\"").skip(1));
    let addresses = addresses.filter_map(|rest| rest.split('"').next());
    let is_elsewhere =
        |address: &&str| !address.starts_with("file:") && !address.starts_with("data:");
    addresses.filter(is_elsewhere).map(str::to_owned).collect()
}

/// A page of pictures that complains of each that is none.
fn gallery<'a>(addresses: impl Iterator<Item = &'a str>) -> String {
    let image = |(place, address): (usize, &str)| {
        format!("<img src=\"{address}\" onerror=\"console.error('no picture {place}')\">")
    };
    let images: String = addresses.enumerate().map(image).collect();
    format!("<!DOCTYPE html><title>gallery</title>{images}")
}

#[test]
fn a_browser_shows_every_figure_and_loads_nothing() {
    let Some(browser) = browser() else {
        return testkit::skipped(format!("none of {} is to be had", NAMES.join(", ")));
    };
    let planted = open(browser, PLANTED);
    assert!(planted.complaints.iter().any(|line| line.contains("planted complaint")));
    assert!(
        planted.asked_for.iter().any(|url| url.ends_with("/planted")),
        "{:?}",
        planted.asked_for
    );
    for kept in [include_str!("three-roads.json"), include_str!("made-up.json")] {
        let page = page::page(&serde_json::from_str(kept).unwrap()).unwrap();
        let seen = open(browser, &page.html);
        assert_eq!(seen.complaints, Vec::<String>::new());
        assert_eq!(seen.asked_for, Vec::<String>::new());
        for figure in &page.figures {
            let start = format!("<figure id=\"{}\"", figure.name);
            let (_, rest) = seen.page.split_once(&start).expect(&figure.name);
            let (drawn, _) = rest.split_once("</figure>").unwrap();
            assert!(drawn.contains("<svg") && drawn.contains("</svg>"), "{}", figure.name);
            assert!(drawn.contains("<table>"), "{}: its data", figure.name);
        }
        let links = page.html.split("href=\"").filter_map(|rest| rest.split('"').next());
        let pictures: Vec<&str> =
            links.filter(|link| link.starts_with("data:image/svg+xml")).collect();
        assert_eq!(pictures.len(), page.figures.len());
        assert_eq!(open(browser, &gallery(pictures.into_iter())).complaints, Vec::<String>::new());
    }
    let broken = open(browser, &gallery(["data:image/svg+xml,%3Csvg"].into_iter()));
    assert!(broken.complaints.iter().any(|line| line.contains("no picture 0")));
}
