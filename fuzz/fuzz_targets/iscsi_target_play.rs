//! Initiators, honest ones and others, on sessions of the iSCSI target, while volumes answer later and
//! as they like.
//!
//! Checked: the rules of `testkit::iscsi` (numbers, data, one answer to each request), the right bytes,
//! what volumes are asked, nothing stuck and nothing lost at the end.
#![no_main]

use core::time::Duration;

use block::limits::POOL_PAGES_MIN;
use contract::Loss;
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::Choices;
use plateway_fuzz::content::{WISHES, fill};
use plateway_fuzz::host::tamper;
use plateway_fuzz::iscsi_host::{Host, TARGET, name};
use plateway_fuzz::iscsi_target::{Link, Serving, target, unit};
use reservation::{PathChange, PathGroup, PathState, SetBy};

const LINKS: usize = 5;
const PAUSES: [u64; 6] = [1, 100, 1_000, 2_500, 11_000, 31_000];
const PARTS: [u32; 4] = [1 << 20, 4096, 512, 8192];

struct Play {
    serving: Serving,
    hosts: Vec<Host>,
    /// Whether another volume was under a LUN: what hosts read is then not that of their LUN's.
    is_swapped: bool,
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    // Half of the least that a shard is given: what comes with a command still fits in the part that
    // is left to that.
    let pages = if choices.byte() & 1 == 0 { POOL_PAGES_MIN } else { POOL_PAGES_MIN / 2 };
    let mut play = Play { serving: Serving::new(pages), hosts: Vec::new(), is_swapped: false };
    while !choices.is_empty() {
        play.act(&mut choices);
        play.hear();
    }
    play.end();
});

impl Play {
    fn act(&mut self, choices: &mut Choices<'_>) {
        let what = choices.byte();
        let link = usize::from(what >> 5) % self.hosts.len().max(1);
        match what & 0x1f {
            0 => self.accept(choices),
            _ if self.hosts.is_empty() => self.accept(choices),
            1..=8 => {
                let bytes = self.hosts[link].speak(choices, &fill);
                self.serving.strict &= !self.hosts[link].is_loose;
                self.serving.links[link].pipe.coming.extend(bytes);
                if what & 1 == 0 {
                    self.serving.arrive(link, usize::MAX);
                }
            }
            9..=11 => {
                let most = PARTS[usize::from(what & 3)];
                let is_late = choices.flag();
                let bytes = self.hosts[link].grant(most, is_late, &fill);
                self.serving.links[link].pipe.coming.extend(bytes);
            }
            12 | 13 => drop(self.serving.arrive(link, usize::from(choices.byte()))),
            14 => drop(self.serving.arrive(link, usize::from(choices.word()))),
            15..=17 => {
                let which = choices.below(self.serving.shard.below.held.len().max(1));
                let wish = choices.of(&WISHES);
                self.serving.answer(which, wish, what & 1 == 0);
            }
            18 | 19 => drop(self.serving.leave(link)),
            20 => self.serving.progress(link),
            21 => self.serving.pass(Duration::from_millis(choices.of(&PAUSES))),
            22 => {
                let loss = if choices.flag() { Loss::Error(104) } else { Loss::EndOfStream };
                self.serving.lose(link, loss);
            }
            23 => drop(self.serving.shut(link)),
            24 => self.serving.wake(),
            25 | 26 => {
                if tamper(&mut self.serving.links[link].pipe.coming, choices) {
                    self.hosts[link].hostile = true;
                    self.serving.strict = false;
                }
            }
            27 => self.configure(choices),
            28 => self.set_path(choices),
            _ => drop(self.serving.go_on()),
        }
    }

    /// The listener by which all hosts come is in this state from now on.
    fn set_path(&mut self, choices: &mut Choices<'_>) {
        let state = PathState::ALL[choices.below(PathState::ALL.len())].0;
        let states = vec![(PathGroup::DEFAULT, state)];
        let change = PathChange { states, by: SetBy::Administrator };
        let shard = &mut self.serving.shard;
        let (_, changed) = shard.decide_paths(&change);
        shard.shared.paths_changed(&changed);
        // What hosts are told depends on it.
        self.hosts.iter_mut().for_each(|host| host.hostile = true);
        self.serving.strict = false;
        self.serving.settle();
    }

    fn accept(&mut self, choices: &mut Choices<'_>) {
        if self.hosts.len() == LINKS {
            return;
        }
        let choice = choices.byte();
        let cmd_sn = if choice & 4 == 0 { 1 } else { u32::MAX };
        self.serving.accept();
        let mut host = Host::new(choice & 3, cmd_sn);
        host.hostile = self.is_swapped;
        self.hosts.push(host);
    }

    fn configure(&mut self, choices: &mut Choices<'_>) {
        let targets = &mut self.serving.shard.shared;
        let mut changed = target();
        match choices.byte() % 7 {
            0 => targets.set_target(changed),
            1 => targets.remove_target(&name(TARGET)),
            2 => {
                changed.units.truncate(1);
                targets.set_target(changed);
            }
            3 => targets.set_target(changed.with_unit(unit(1, 1 << 20))),
            4 => targets.volume_stuck(block::VolumeId(1)),
            5 => {
                // Another volume under the same number.
                changed.units[0].unit = unit(2, 1 << 20).unit;
                self.is_swapped = true;
                self.hosts.iter_mut().for_each(|host| host.hostile = true);
                self.serving.strict = false;
                targets.set_target(changed);
            }
            _ => {
                let mut third = unit(2, 1 << 20);
                third.unit.read_only = true;
                targets.set_target(changed.with_unit(third));
            }
        }
        self.serving.shard.shared.announce();
        self.serving.settle();
    }

    /// Hosts hear what was said to them.
    fn hear(&mut self) {
        // One that was tampered with may have become a reset.
        if self.hosts.iter().any(|host| host.has_reset || host.hostile) {
            self.hosts.iter_mut().for_each(Host::expect_resets);
        }
        for (link, host) in self.serving.links.iter_mut().zip(&mut self.hosts) {
            host.hear(&core::mem::take(&mut link.said), &fill);
        }
    }

    fn end(mut self) {
        let mut waits = 0;
        loop {
            let mut moved = self.serving.go_on();
            self.hear();
            for (link, host) in self.serving.links.iter_mut().zip(&mut self.hosts) {
                while host.has_grant() {
                    moved = true;
                    link.pipe.coming.extend(host.grant(1 << 20, false, &fill));
                }
            }
            if moved {
                continue;
            }
            // A login may be answered only after a hold of some seconds.
            let logging_in =
                |(link, host): (&Link, &Host)| link.pipe.is_open() && host.is_logging_in();
            let waiting = self.serving.links.iter().zip(&self.hosts).any(logging_in);
            match self.serving.shard.shared.poll_timeout() {
                Some(at) if waiting && waits < 32 => {
                    waits += 1;
                    self.serving.pass(at.since(self.serving.shard.now));
                }
                _ => break,
            }
        }
        self.serving.check_quiet();
        // Who resets a unit ends the tasks of others, who are not answered.
        let excused = self.hosts.iter().any(|host| host.hostile || host.has_reset);
        for (link, host) in self.serving.links.iter().zip(&self.hosts) {
            if link.pipe.is_open() && !link.pipe.lost && !excused {
                let unanswered: Vec<String> = host.unanswered().collect();
                assert!(unanswered.is_empty(), "unanswered: {unanswered:#?}");
            }
        }
        self.serving.end();
    }
}
