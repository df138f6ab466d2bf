//! Hosts, honest ones and others, on connections of the target, while volumes answer later and as
//! they like.
//!
//! Checked: `plateway_fuzz::host` (one answer to each command, the right bytes), what volumes are
//! asked, nothing stuck and nothing lost at the end.
#![no_main]

use core::time::Duration;

use block::limits::POOL_PAGES_MIN;
use contract::Loss;
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::Choices;
use plateway_fuzz::content::{WISHES, fill};
use plateway_fuzz::host::{Host, SUBSYSTEM, nqn, tamper};
use plateway_fuzz::target::{Target, namespace, subsystem};
use reservation::{PathChange, PathGroup, PathState, SetBy};
use testkit::ShardStub;

const LINKS: usize = 5;
const PAUSES: [u64; 6] = [1, 100, 1_000, 2_500, 11_000, 31_000];

struct Play {
    target: Target,
    hosts: Vec<Host>,
    controller: Option<u16>,
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let way = choices.byte();
    // Half of the least that a shard is given: what a capsule needs still fits in the part that is
    // left to capsules.
    let pages = if way & 1 == 0 { POOL_PAGES_MIN } else { POOL_PAGES_MIN / 2 };
    let max_h2c_data = if way & 2 == 0 { 1 << 20 } else { 4096 };
    let mut play =
        Play { target: Target::new(pages, max_h2c_data), hosts: Vec::new(), controller: None };
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
                self.target.links[link].pipe.coming.extend(bytes);
                if what & 1 == 0 {
                    self.target.arrive(link, usize::MAX);
                }
            }
            9..=11 => {
                let most = [1 << 20, 4096, 512, 8192][usize::from(what & 3)];
                let bytes = self.hosts[link].grant(most.min(1 << 20), &fill);
                self.target.links[link].pipe.coming.extend(bytes);
            }
            12 | 13 => drop(self.target.arrive(link, usize::from(choices.byte()))),
            14 => drop(self.target.arrive(link, usize::from(choices.word()))),
            15..=17 => {
                let which = choices.below(self.target.shard.below.held.len().max(1));
                let wish = choices.of(&WISHES);
                self.target.answer(which, wish, what & 1 == 0);
            }
            18 | 19 => drop(self.target.leave(link)),
            20 => self.target.progress(link),
            21 => self.target.pass(Duration::from_millis(choices.of(&PAUSES))),
            22 => self.lose(link, choices),
            23 => drop(self.target.shut(link)),
            24 => self.target.wake(),
            25 | 26 => {
                if tamper(&mut self.target.links[link].pipe.coming, choices) {
                    self.hosts[link].hostile = true;
                    self.target.strict = false;
                }
            }
            27 => self.configure(choices),
            28 => self.set_path(choices),
            _ => drop(self.target.go_on()),
        }
    }

    /// The listener by which all hosts come is in this state from now on.
    fn set_path(&mut self, choices: &mut Choices<'_>) {
        let state = PathState::ALL[choices.below(PathState::ALL.len())].0;
        let states = vec![(PathGroup::DEFAULT, state)];
        let change = PathChange { states, by: SetBy::Administrator };
        let shard = &mut self.target.shard;
        let (_, changed) = shard.decide_paths(&change);
        shard.shared.paths_changed(&changed);
        // What hosts are told depends on it.
        self.hosts.iter_mut().for_each(|host| host.hostile = true);
        self.target.strict = false;
        self.target.settle();
    }

    fn accept(&mut self, choices: &mut Choices<'_>) {
        if self.hosts.len() == LINKS {
            return;
        }
        let queue = if self.controller.is_none() { 0 } else { u16::from(choices.byte() & 3) };
        let controller = match queue {
            0 => 0xffff,
            _ => self.controller.unwrap_or(0xffff),
        };
        self.target.accept();
        self.hosts.push(Host::new(queue, controller));
    }

    fn lose(&mut self, link: usize, choices: &mut Choices<'_>) {
        let loss = if choices.flag() { Loss::Error(104) } else { Loss::EndOfStream };
        self.target.lose(link, loss);
    }

    fn configure(&mut self, choices: &mut Choices<'_>) {
        let ShardStub { now, shared: controllers, .. } = &mut self.target.shard;
        let now = *now;
        match choices.byte() % 6 {
            0 => controllers.set_subsystem(now, subsystem()),
            1 => controllers.remove_subsystem(now, &nqn(SUBSYSTEM)),
            2 => {
                let mut first_alone = subsystem();
                first_alone.namespaces.truncate(1);
                controllers.set_subsystem(now, first_alone);
            }
            3 => controllers.set_subsystem(now, subsystem().with_namespace(namespace(1, 1 << 20))),
            4 => controllers.volume_stuck(now, block::VolumeId(1)),
            _ => {
                let mut third = namespace(2, 1 << 20);
                third.read_only = true;
                controllers.set_subsystem(now, subsystem().with_namespace(third));
            }
        }
        self.target.shard.shared.announce_exports();
        self.target.settle();
    }

    /// Hosts hear what was said to them.
    fn hear(&mut self) {
        for (link, host) in self.target.links.iter_mut().zip(&mut self.hosts) {
            host.hear(&core::mem::take(&mut link.said), &fill);
            if host.queue == 0 && host.told.is_some() {
                self.controller = host.told;
            }
        }
    }

    fn end(mut self) {
        let mut waits = 0;
        loop {
            let mut moved = self.target.go_on();
            self.hear();
            for (link, host) in self.target.links.iter_mut().zip(&mut self.hosts) {
                while host.has_grant() {
                    moved = true;
                    link.pipe.coming.extend(host.grant(1 << 20, &fill));
                }
            }
            if moved {
                continue;
            }
            // Connect may be answered only after a hold of a few seconds.
            let connecting = |(link, host): (&_, &Host)| {
                let link: &plateway_fuzz::target::Link = link;
                link.pipe.is_open() && host.is_connecting() && !host.is_answered()
            };
            let waiting = self.target.links.iter().zip(&self.hosts).any(connecting);
            match self.target.shard.shared.poll_timeout() {
                Some(at) if waiting && waits < 32 => {
                    waits += 1;
                    self.target.pass(at.since(self.target.shard.now));
                }
                _ => break,
            }
        }
        self.target.check_quiet();
        let tampered = self.hosts.iter().any(|host| host.hostile);
        for (link, host) in self.target.links.iter().zip(&self.hosts) {
            if link.pipe.is_open() && !link.pipe.lost && !tampered {
                let unanswered: Vec<String> = host.unanswered().collect();
                assert!(unanswered.is_empty(), "unanswered: {unanswered:#?}");
            }
        }
        self.target.end();
    }
}
