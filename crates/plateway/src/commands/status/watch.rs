//! `plateway status --watch`: a status again and again, with what happened meanwhile per second.
//!
//! On a terminal it is drawn in place, until `q` or Ctrl-C; elsewhere one follows the other, until
//! nobody reads them. However it ends, the terminal is left as it was found.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use miette::IntoDiagnostic;
use signal_hook::consts::{SIGINT, SIGTERM};
use volume::gate::RequestCounters;

use crate::control::{Client, Status, table};

/// So long may a key or a signal wait.
const SLICE: Duration = Duration::from_millis(100);

/// Shows until somebody has seen enough.
pub(super) fn run(client: &Client, interval: Duration) -> miette::Result<()> {
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, over.clone()).into_diagnostic()?;
    }
    let mut screen = match io::stdout().is_terminal() && io::stdin().is_terminal() {
        true => Some(Screen::take().into_diagnostic()?),
        false => None,
    };
    let mut before: Option<Status> = None;
    loop {
        let begun = Instant::now();
        let status = client.status()?;
        let text = format!("{}\n{}", rates(before.as_ref(), &status), super::text(&status));
        let shown = match &mut screen {
            Some(screen) => screen.draw(&text),
            None => writeln!(io::stdout(), "{text}").and_then(|()| io::stdout().flush()),
        };
        match shown {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            shown => shown.into_diagnostic()?,
        }
        before = Some(status);
        loop {
            let left = interval.saturating_sub(begun.elapsed());
            let slice = left.min(SLICE);
            let ended = match screen {
                Some(_) => is_ended(slice).into_diagnostic()?,
                None => {
                    std::thread::sleep(slice);
                    false
                }
            };
            if ended || over.load(Relaxed) {
                return Ok(());
            }
            if left.is_zero() {
                break;
            }
        }
    }
}

/// Whether somebody types, within so long, that he has seen enough.
fn is_ended(within: Duration) -> io::Result<bool> {
    if !event::poll(within)? {
        return Ok(false);
    }
    Ok(matches!(event::read()?, Event::Key(key)
        if key.code == KeyCode::Char('q')
            || key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)))
}

/// The terminal, which is given back when this is dropped.
struct Screen;

impl Screen {
    fn take() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        // From here on it is given back, whatever fails.
        let screen = Screen;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// As much of a text as there is room for.
    fn draw(&mut self, text: &str) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0))?;
        for (row, line) in (0..rows).zip(text.lines()) {
            let line: String = line.chars().take(columns.into()).collect();
            queue!(out, cursor::MoveTo(0, row))?;
            write!(out, "{line}")?;
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// What each volume and each disk did since `before`, per second.
fn rates(before: Option<&Status>, now: &Status) -> String {
    // A server that was started again counts from its start.
    let before = before.filter(|before| before.uptime_ns < now.uptime_ns);
    let since = now.uptime_ns - before.map_or(0, |before| before.uptime_ns);
    let what = if before.is_some() { "per second" } else { "per second since the start" };
    let mut table =
        table(&[what, "reads/s", "writes/s", "flushes/s", "read MB/s", "written MB/s", "errors/s"]);
    let mut row = |name: String, earlier: Option<RequestCounters>, now: RequestCounters| {
        let earlier = earlier.unwrap_or_default();
        let each = |count: fn(&RequestCounters) -> u64| {
            // Less than before, it was removed and came again.
            let count = count(&now).saturating_sub(count(&earlier));
            (u128::from(count) * 1_000_000_000 / u128::from(since.max(1))) as u64
        };
        table.add_row([
            name,
            each(|one| one.reads).to_string(),
            each(|one| one.writes).to_string(),
            each(|one| one.flushes).to_string(),
            format!("{:.1}", each(|one| one.read_bytes) as f64 / 1e6),
            format!("{:.1}", each(|one| one.write_bytes) as f64 / 1e6),
            each(|one| one.errors).to_string(),
        ]);
    };
    for volume in &now.volumes {
        let all = before.iter().flat_map(|before| &before.volumes);
        let earlier = all.filter(|one| one.name == volume.name).map(|one| *one.counters).next();
        row(format!("volume {}", volume.name), earlier, *volume.counters);
    }
    for disk in &now.disks {
        let all = before.iter().flat_map(|before| &before.disks);
        let earlier = all.filter(|one| one.name == disk.name).map(|one| *one.counters).next();
        row(format!("disk {}", disk.name), earlier, *disk.counters);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Keyed;
    use crate::control::status::Volume;

    #[test]
    fn what_happened_between_two_looks_is_told_per_second() {
        let at = |uptime_ns, reads, read_bytes| {
            let counters = RequestCounters { reads, read_bytes, ..RequestCounters::default() };
            let volume =
                Volume { name: "v0".to_owned(), counters: Keyed(counters), ..Volume::default() };
            Status { uptime_ns, volumes: vec![volume], ..Status::default() }
        };
        let (first, second) = (at(1_000_000_000, 10, 0), at(3_000_000_000, 50, 200_000));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let last = |text: String| words(text.lines().last().expect("a row"));
        assert_eq!(last(rates(None, &first))[..3], ["volume", "v0", "10"]);
        let shown = last(rates(Some(&first), &second));
        assert_eq!(shown, ["volume", "v0", "20", "0", "0", "0.1", "0.0", "0"], "{shown:?}");
        assert_eq!(last(rates(Some(&second), &first))[2], "10", "it was started again");
    }
}
