//! Virtual links for tests: whole frames behind a label, as a pseudowire carries them, over each
//! real link.

use std::collections::VecDeque;

use block::{Instant, Memory};
use contract::{
    EtherType, FrameBatch, InFrame, Instruction, Intake, LinkFacts, LinkId, Links, MacAddress,
    Spread, Station, Takes, VirtualLinks,
};

/// Carries one virtual link over each real one.
#[derive(Debug, Default)]
pub struct Pseudowire {
    real: Links,
    news: VecDeque<(LinkId, Option<LinkFacts>)>,
    /// Frames that were put into others, and taken out.
    pub carried: u64,
}

impl Pseudowire {
    /// Of its frames; a type for experiments (IEEE 802).
    pub const ETHER_TYPE: EtherType = EtherType(0x88b5);
    /// Stands between the outer header and the frame inside. AoE would take its first byte for a
    /// response.
    pub const LABEL: [u8; 4] = [0x18, 0x6a, 0x11, 0xff];
    /// Bytes in front of a frame, without a tag, that a virtual link costs.
    pub const OVERHEAD: u32 = 14 + 4;
    const FIRST: u32 = 16;

    /// The virtual link over a real one.
    pub fn over(link: LinkId) -> LinkId {
        LinkId(Pseudowire::FIRST + link.0)
    }

    /// What the real link takes so that the virtual one has this intake: the programs look at what
    /// is inside.
    pub fn around(intake: Intake) -> Intake {
        let inside = |program: Vec<Instruction>| -> Vec<Instruction> {
            let further = |mut one: Instruction| {
                one.operand += if one.is_absolute_load() { Pseudowire::OVERHEAD } else { 0 };
                one
            };
            program.into_iter().map(further).collect()
        };
        let spread = match intake.spread {
            Spread::One(shard, takes) => Spread::One(shard, inside(takes)),
            Spread::Steered(takes, steers) => Spread::Steered(inside(takes), inside(steers)),
            Spread::Each(programs) => Spread::Each(programs.into_iter().map(inside).collect()),
        };
        Intake { takes: Takes::Type(Pseudowire::ETHER_TYPE), spread }
    }
}

impl VirtualLinks for Pseudowire {
    fn handle_link(&mut self, _: Instant, link: LinkId, facts: Option<LinkFacts>) {
        assert!(link.0 < Pseudowire::FIRST, "a virtual link is no news to who carries it");
        self.real.set(link, facts);
        let inside = |real: LinkFacts| LinkFacts {
            mtu: real.mtu - Pseudowire::OVERHEAD,
            vlan: None,
            ..real
        };
        self.news.push_back((Pseudowire::over(link), facts.map(inside)));
    }

    fn poll_link(&mut self) -> Option<(LinkId, Option<LinkFacts>)> {
        self.news.pop_front()
    }

    fn takes(&self, link: LinkId) -> bool {
        link.0 < Pseudowire::FIRST
    }

    fn receive<'a>(&mut self, _: Instant, frame: &InFrame<'a>) -> Option<InFrame<'a>> {
        let bytes = self.real.open(frame)?.payload.strip_prefix(&Pseudowire::LABEL)?;
        self.carried += 1;
        Some(InFrame::new(Pseudowire::over(frame.link), None, bytes))
    }

    fn encapsulate(&mut self, _: Instant, batch: &mut FrameBatch, _: &dyn Memory) {
        for index in 0..batch.frames.len() {
            let frame = batch.frames[index];
            let Some(link) = frame.link.0.checked_sub(Pseudowire::FIRST) else { continue };
            let Some(facts) = self.real.get(LinkId(link)) else { continue };
            let [_, head] = batch.heads(&frame);
            let mac = MacAddress(head[..6].try_into().expect("a frame has addresses"));
            let to = Station::new(LinkId(link), mac);
            let around = outer(facts, &to, Pseudowire::ETHER_TYPE, &Pseudowire::LABEL);
            batch.put_in_front(index, LinkId(link), &around);
            self.carried += 1;
        }
    }
}

/// What stands in front of a frame that goes inside another one, whose payload begins with `bytes`.
pub(crate) fn outer(
    facts: &LinkFacts,
    to: &Station,
    ether_type: EtherType,
    bytes: &[u8],
) -> Vec<u8> {
    let mut batch = FrameBatch::default();
    batch.push(facts, to, ether_type, bytes);
    let mut front = core::mem::take(&mut batch.head);
    // Without the padding of a short one.
    front.truncate(facts.header_length() + bytes.len());
    front
}
