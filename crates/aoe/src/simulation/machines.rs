//! The machines of a simulated world: how they start, die, are shown frames and settle, and what their frames meet on the way.

use super::*;

impl World {
    pub(super) fn start_target(&mut self) {
        let mut target = Target::new(MachineId(1), ShardId(0));
        let links: Vec<LinkId> = (0..LINKS).map(LinkId).collect();
        for link in &links {
            target.link_up(*link, self.facts(station(9, 0, *link), *link));
        }
        let size = ByteCount(SECTORS * 512);
        let mut export = Export::new(Address::new(7, 0), &links, VolumeId(0), size);
        export.uuid = [7; 16];
        export.cache_volatile = self.scenario.volatile;
        export.buffers = 16;
        let added = target.add_export(ExportId(0), export, Default::default(), &Default::default());
        assert_eq!(added, Ok(()));
        self.target = Some(target);
        self.life += 1;
        self.settle_target();
    }

    /// The process dies: what it asked of its disk happens or not; its memory is gone. With the power, what was not flushed may be gone, too.
    pub(super) fn kill_target(&mut self) {
        let Some(target) = self.target.take() else { return };
        self.count_target(&target);
        self.life += 1;
        for request in core::mem::take(&mut self.below).into_iter().flatten() {
            if self.random.chance(1, 2) {
                self.apply(&request.operation);
            }
        }
        self.requests.clear();
        self.memory = Pages::default();
        self.pool = Pool::new(4096);
        if self.scenario.power_cuts && self.scenario.volatile {
            for sector in 0..SECTORS as usize {
                if self.random.chance(1, 2) {
                    self.held[sector] = self.durable[sector];
                }
                self.durable[sector] = self.held[sector];
            }
        }
    }

    pub(super) fn start_host(&mut self, host: usize) {
        let window = self.scenario.window;
        let links: Vec<LinkId> = (0..LINKS).map(LinkId).collect();
        let mut settings = Settings::new(&links, Address::new(7, 0));
        settings.window = window;
        // The same tags in each life.
        let mut initiator = Initiator::new(settings, self.hosts[host].seed);
        for link in links {
            if !self.hosts[host].downs[link.0 as usize] {
                initiator.link_up(self.now, link, self.facts(station(1, host, link), link));
            }
        }
        let state = &mut self.hosts[host];
        state.initiator = Some(initiator);
        state.lives += 1;
        for _ in 0..6 {
            self.after_ms(0, 50, Event::Ask(host));
        }
        self.settle_host(host);
    }

    /// The host dies: its writes may have happened, and what of them is on the wire arrives or not before it comes again.
    pub(super) fn kill_host(&mut self, host: usize) {
        let state = &mut self.hosts[host];
        let Some(initiator) = state.initiator.take() else { return };
        self.retransmitted += initiator.counters().retransmitted;
        state.memory = Pages::default();
    }

    /// What the dead host asked is over: nothing of it is on the wire any more.
    pub(super) fn bury(&mut self, host: usize) {
        let now = self.now.0;
        for (_, asked) in core::mem::take(&mut self.hosts[host].asked) {
            self.end_write(&asked, now, false);
        }
    }

    pub(super) fn count_target(&mut self, target: &Target) {
        let (counters, drops) = (target.counters(), target.drops());
        self.repeated += counters.repeated_answered + drops.repeated_superseded;
        self.repeated += drops.repeated_in_flight;
    }

    /// Puts a frame on the wire: it may be lost, come twice, and come late.
    pub(super) fn carry(&mut self, make: impl Fn(Vec<u8>) -> Event, bytes: &[u8]) {
        let Scenario { lost, twice, late, .. } = self.scenario;
        if self.random.chance(lost, 1000) {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(twice, 1000));
        for _ in 0..copies {
            let micros = match self.random.chance(late, 1000) {
                true => self.random.below(DELAY_MAX_MS * 1000),
                false => 20 + self.random.below(200),
            };
            self.at(self.now + Duration::from_micros(micros), make(bytes.to_vec()));
        }
    }

    pub(super) fn with_target(&mut self, act: impl FnOnce(&mut Target, &mut Context<'_>)) {
        let mut ctx = Context {
            now: self.now,
            memory: &mut self.memory,
            pool: &mut self.pool,
            below: &mut self.requests,
        };
        if let Some(target) = &mut self.target {
            act(target, &mut ctx);
        }
    }

    pub(super) fn settle_target(&mut self) {
        loop {
            self.with_target(|target, ctx| {
                if target.poll_timeout().is_some_and(|at| at <= ctx.now) {
                    target.handle_timeout(ctx.now);
                }
                target.settle(ctx);
            });
            for (_, request) in core::mem::take(&mut self.requests) {
                self.below.push(Some(request));
                let event = Event::Disk(self.life, self.below.len() - 1);
                self.after_ms(0, self.scenario.disk_ms, event);
            }
            let effect = self.target.as_mut().and_then(Target::poll_effect);
            let Some(TargetEffect::Send(batch)) = effect else { return };
            for (link, bytes) in batch.to_frames(&self.memory) {
                let to: [u8; 6] = bytes[..6].try_into().expect("6 bytes");
                for host in 0..HOSTS {
                    if to == [0xff; 6] || to == station(1, host, link) {
                        self.carry(|bytes| Event::ToHost(host, link, bytes), &bytes);
                    }
                }
            }
            self.with_target(|target, ctx| target.handle_sent(batch, ctx));
        }
    }

    pub(super) fn settle_host(&mut self, host: usize) {
        loop {
            let now = self.now;
            let Host { initiator, downs, .. } = &mut self.hosts[host];
            let Some(initiator) = initiator else { return };
            if initiator.poll_timeout().is_some_and(|at| at <= now) {
                initiator.handle_timeout(now);
            }
            initiator.settle(now);
            let effect = initiator.poll_effect();
            let downs = *downs;
            while let Some(completion) = self.poll_completion(host) {
                self.completed(host, completion);
            }
            let Some(InitiatorEffect::Send(batch)) = effect else { return };
            for (link, bytes) in batch.to_frames(&self.hosts[host].memory) {
                assert!(bytes.len() <= self.scenario.mtus[link.0 as usize] as usize + 14);
                if !downs[link.0 as usize] {
                    self.carry(|bytes| Event::ToTarget(link, bytes), &bytes);
                }
            }
            if let Some(initiator) = &mut self.hosts[host].initiator {
                initiator.handle_sent(now, batch);
                while initiator.poll_news().is_some() {}
            }
        }
    }

    pub(super) fn poll_completion(&mut self, host: usize) -> Option<Completion> {
        self.hosts[host].initiator.as_mut()?.poll_completion()
    }
}
