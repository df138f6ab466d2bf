//! Connections between a machine that asks (an initiator, a discovery) and serving ones
//! ([`target`](crate::target), [`iscsi_target`](crate::iscsi_target)): bytes are carried, or tampered
//! with, cut and lost, as an input chooses.

use contract::{ConnectionId, Loss};
use testkit::Pipe;
use wire::nvme::{Completion as Entry, Status};
use wire::nvme_tcp::{
    CapsuleResponse, DataHeader, Digests, FatalErrorStatus, PduFlags, PduType, R2T, TermReq,
};

use crate::choices::Choices;
use crate::host::seal;

/// More connections than this are refused.
pub const CONNECTIONS_MAX: usize = 24;

/// Serving connections, of whatever protocol.
pub trait Serves {
    /// Accepts a connection.
    fn accept(&mut self) -> usize;
    /// What one of them said and nobody has taken yet.
    fn take_said(&mut self, link: usize) -> Vec<u8>;
    /// One carries nothing more.
    fn lose(&mut self, link: usize, loss: Loss);
}

/// The asking end of a connection; the serving one is the target's link of the same number.
#[derive(Debug, Default)]
pub struct Peer {
    /// The driver's side of the asking end.
    pub pipe: Pipe,
    /// Whether the serving end was told of the asking end's close.
    told: bool,
}

/// The asker's name of connection `index`.
pub fn id(index: usize) -> ConnectionId {
    ConnectionId { slot: index as u32, generation: 7 }
}

/// Makes a connection; its number.
pub fn connect(peers: &mut Vec<Peer>, target: &mut impl Serves) -> usize {
    peers.push(Peer::default());
    target.accept();
    peers.len() - 1
}

/// Carries what the serving end said, and tells it when the asking end is gone. Returns whether
/// there was something.
pub fn carry(peer: &mut Peer, target: &mut impl Serves, link: usize) -> bool {
    let said = target.take_said(link);
    let moved = !said.is_empty();
    peer.pipe.coming.extend(said);
    if peer.pipe.closed && !core::mem::replace(&mut peer.told, true) {
        target.lose(link, Loss::EndOfStream);
        return true;
    }
    moved
}

/// A PDU that a target might say, with fields that an input chooses.
pub fn invent(choices: &mut Choices<'_>) -> Vec<u8> {
    let what = choices.byte();
    let digests = Digests::from_bits(what >> 4 & 3);
    let command = choices.word();
    match what % 4 {
        0 => {
            let statuses = [0, 0, 0x80, 0x82, 0x85, 0x281, 0x08, 0x4082];
            let mut entry = Entry::new(command, Status(choices.of(&statuses)));
            entry.result = u64::from(choices.word());
            seal(&CapsuleResponse::new(entry, digests).emit(), &[], digests)
        }
        1 => {
            let (offset, length) = (choices.word(), choices.word());
            let (offset, length) = (u32::from(offset) * 4, u32::from(length) * 4);
            let r2t = R2T::new(command, u16::from(choices.byte()), offset, length, digests);
            seal(&r2t.emit(), &[], digests)
        }
        2 => {
            let data = vec![choices.byte(); usize::from(choices.word() % 5000)];
            let flags = PduFlags(choices.byte() & 0x0c);
            let offset = u32::from(choices.word()) * 4;
            let header = DataHeader::c2h(command, offset, data.len() as u32, flags, digests);
            seal(&header.emit(), &data, digests)
        }
        _ => {
            let mut bytes = [0; TermReq::SIZE_MAX];
            let fes = FatalErrorStatus(command);
            let length = TermReq::new(PduType::C2H_TERM_REQ, fes, 0, &[0; 24]).emit(&mut bytes);
            bytes[..length].to_vec()
        }
    }
}
