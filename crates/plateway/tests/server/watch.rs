//! `status --watch`, on a terminal and elsewhere.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::common::{Server, plateway};

fn watch(directory: &std::path::Path) -> Command {
    let mut command = plateway();
    command.args(["status", "--watch", "0.1", "--control"]).arg(directory.join("a.sock"));
    command
}

#[test]
fn a_terminal_is_drawn_until_q_or_ctrl_c_and_left_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let _server = Server::of(home.path(), "a", "ram:8MiB");
    for key in [b"q", b"\x03"] {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let (side, mut terminal) = (open(), File::from(terminal));
        let before = tcgetattr(&side).unwrap().local_modes;
        assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
        let mut command = watch(home.path());
        command.stdin(open()).stdout(open()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("it starts");
        let (mut seen, mut more) = (String::new(), [0; 4096]);
        let mut draw_until = |terminal: &mut File, wanted: &str, times| {
            while seen.matches(wanted).count() < times {
                let count = terminal.read(&mut more).expect("it draws");
                seen.push_str(&String::from_utf8_lossy(&more[..count]));
            }
        };
        draw_until(&mut terminal, "reads/s", 2);
        terminal.write_all(key).unwrap();
        draw_until(&mut terminal, "\x1b[?1049l", 1);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{seen}");
        assert_eq!(tcgetattr(&side).unwrap().local_modes, before);
        assert!(seen.starts_with("\x1b[?1049h") && seen.contains("volume v0"), "{seen:?}");
    }
}

#[test]
fn elsewhere_one_status_follows_the_other_until_it_is_told_to_end_or_nobody_reads() {
    let home = tempfile::tempdir().unwrap();
    let _server = Server::of(home.path(), "a", "ram:8MiB");
    for is_told in [true, false] {
        let mut child = watch(home.path()).stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = lines.map(Result::unwrap).take(1000);
        let mut heads = lines.filter(|line| line.trim_start().starts_with("per second"));
        assert!(heads.next().is_some_and(|first| first.contains("since the start")));
        assert!(heads.next().is_some_and(|next| !next.contains("since the start")));
        if is_told {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            heads.for_each(drop);
        } else {
            drop(heads);
        }
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
