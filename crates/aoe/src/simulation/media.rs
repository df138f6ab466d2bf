//! What carries requests out: the target's disk, and a plain target that takes each frame as it comes.

use super::*;

impl World {
    /// Carries out a request of the target's disk.
    pub(super) fn apply(&mut self, operation: &Operation) -> Option<Vec<u8>> {
        let sectors = |extent: &Extent| extent.offset.0 / 512..extent.end().0 / 512;
        match operation {
            Operation::Read { extent, .. } => Some(
                sectors(extent)
                    .flat_map(|sector| fill(self.held[sector as usize], sector))
                    .collect(),
            ),
            Operation::Write { extent, buffer, durable } => {
                let bytes = self.memory.bytes(buffer);
                for (index, sector) in sectors(extent).enumerate() {
                    let number = number_of(&bytes[index * 512..index * 512 + 512], sector);
                    self.held[sector as usize] = number;
                    if *durable || !self.scenario.volatile {
                        self.durable[sector as usize] = number;
                    }
                }
                None
            }
            Operation::Flush => {
                self.durable.clone_from(&self.held);
                None
            }
            other => panic!("the target asked for {}", other.name()),
        }
    }

    pub(super) fn disk(&mut self, index: usize) {
        let Some(mut request) = self.below[index].take() else { return };
        let data = self.apply(&request.operation);
        if let (Operation::Read { buffer, .. }, Some(data)) = (&mut request.operation, data) {
            self.memory.write(buffer, 0, &data);
        }
        let completion = request.complete(Outcome::Done);
        self.with_target(|target, ctx| target.handle_completion(completion, ctx));
        self.settle_target();
    }

    /// A target that knows neither order nor copies, as there are some.
    pub(super) fn plain(&mut self, link: LinkId, bytes: &[u8]) {
        let header = Header::parse(&bytes[14..]).expect("a whole header");
        let body = &bytes[24..];
        let own = Address::new(7, 0);
        let mut answer = [&bytes[6..12], &station(9, 0, link), &bytes[12..14]].concat();
        answer.extend(header.response(own).emit());
        if header.command == Command::CONFIG {
            let sectors = sectors_for_mtu(self.scenario.mtus[link.0 as usize]);
            answer.extend([0, 16, 0, 1, sectors, 0x10, 0, 0]);
        } else {
            let argument = AtaArgument::parse(body).expect("a whole argument");
            let done = AtaArgument { count: 0, command_status: 0x40, ..argument };
            answer.extend(done.emit());
            let sectors = argument.lba48()..argument.lba48() + u64::from(argument.count);
            match Opcode(argument.command_status) {
                Opcode::IDENTIFY_DEVICE => {
                    answer.extend(crate::export::identify(&[7; 16], SECTORS, false, 512).emit());
                }
                Opcode::READ_SECTORS_EXT => {
                    for sector in sectors {
                        answer.extend(fill(self.held[sector as usize], sector));
                    }
                }
                Opcode::WRITE_SECTORS_EXT => {
                    for (data, sector) in body[12..].chunks_exact(512).zip(sectors) {
                        self.held[sector as usize] = number_of(data, sector);
                    }
                }
                other => panic!("a plain target knows no {other}"),
            }
        }
        answer.resize(answer.len().max(60), 0);
        for host in 0..HOSTS {
            if answer[..6] == station(1, host, link) {
                self.carry(|bytes| Event::ToHost(host, link, bytes), &answer);
            }
        }
    }
}
