//! One connection of a host: it makes the bytes of what is asked, remembers what it asked, and so
//! knows what it may hear.
//!
//! The rules: one ICResp, with the digests that were asked for; one answer to each command; data of
//! a read in order, and no more than were asked for; R2Ts in order and within what the command
//! writes; success only once all data moved; SUCCESS in the last data only where flow control is
//! off; nothing behind a TermReq. A host that broke rules itself, or whose bytes were tampered
//! with, is *lenient*: then PDUs must parse, and nothing else.
//!
//! Not here: when to say what, and what data hold.

use core::fmt::{self, Debug};
use std::collections::BTreeMap;

use wire::nvme::command::SglDescriptor;
use wire::nvme::fabrics::{Connect, ConnectData};
use wire::nvme::{Command, Completion, Status};
use wire::nvme_tcp::{Digests, ICReq, ICResp, R2T, TermReq};

use super::{Said, capsule, host_data, parse};

/// Data that move with a command, in bytes; data in its capsule are none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    None,
    /// All of so many are read.
    In(u32),
    /// At most so many are read.
    InAtMost(u32),
    /// All of so many are asked for by R2T.
    Out(u32),
}

/// A command that is not answered.
#[derive(Clone, Debug)]
pub struct Asked<T> {
    pub what: T,
    pub data: Data,
    /// Bytes of data that came, or that were asked for.
    pub moved: u32,
}

/// What a host heard that it may hear.
#[derive(Debug)]
pub enum Heard<T> {
    Greeted(ICResp),
    Terminated(TermReq),
    /// A response, or SUCCESS in the last data, which follows them.
    Answered(Asked<T>, Completion),
    /// Data of a command that is not answered yet.
    Data {
        command: u16,
        offset: u32,
        bytes: Vec<u8>,
    },
    Granted(R2T),
}

/// What it may not hear, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Bytes that are no PDU of this connection: where bits may flip on the wire, that is how it
    /// shows.
    Garbled(String),
    /// A whole PDU that breaks a rule.
    Broken(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::Garbled(why) | Fault::Broken(why)) = self;
        f.write_str(why)
    }
}

impl From<String> for Fault {
    fn from(why: String) -> Fault {
        Fault::Broken(why)
    }
}

/// A connection; `T` is what its user notes of a command.
#[derive(Debug)]
pub struct Host<T> {
    /// As asked for, and once it is greeted as the target said.
    pub digests: Digests,
    /// What the target greeted with.
    pub greeting: Option<ICResp>,
    pub lenient: bool,
    /// Commands that are not answered, by identifier.
    pub asked: BTreeMap<u16, Asked<T>>,
    /// Identifiers are smaller than this.
    pub ids: u16,
    flow_control_off: bool,
    next_id: u16,
    heard: Vec<u8>,
    /// Bytes of `heard` that were taken.
    taken: usize,
    /// The command whose last data said SUCCESS.
    succeeded: Option<u16>,
    over: bool,
}

impl<T: Debug> Host<T> {
    /// One that will ask for these digests.
    pub fn new(digests: Digests) -> Host<T> {
        Host {
            digests,
            greeting: None,
            lenient: false,
            asked: BTreeMap::new(),
            ids: u16::MAX,
            flow_control_off: false,
            next_id: 1,
            heard: Vec::new(),
            taken: 0,
            succeeded: None,
            over: false,
        }
    }

    /// ICReq.
    pub fn greet(&self) -> Vec<u8> {
        ICReq::new(self.digests, 0).emit().to_vec()
    }

    /// Whether the target said that it ends the connection.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// An identifier that no command has; those of others come again only after all the rest.
    pub fn free_id(&mut self) -> u16 {
        loop {
            let id = self.next_id % self.ids;
            self.next_id = (id + 1) % self.ids;
            if !self.asked.contains_key(&id) {
                return id;
            }
        }
    }

    /// Connect as a command with this identifier.
    pub fn connect(&mut self, id: u16, connect: &Connect, data: &ConnectData, what: T) -> Vec<u8> {
        self.flow_control_off = connect.attributes.disable_sq_flow_control();
        self.ask(id, Command::connect(connect), what, Data::None, &data.emit())
    }

    /// The capsule of a command with this identifier; `inside` lies in it, and its descriptor says
    /// so.
    pub fn ask(
        &mut self,
        id: u16,
        command: Command,
        what: T,
        data: Data,
        inside: &[u8],
    ) -> Vec<u8> {
        let before = self.asked.insert(id, Asked { what, data, moved: 0 });
        assert!(before.is_none(), "identifier {id} is in use: {before:?}");
        let command = match inside {
            [] => command,
            _ => command.with_sgl(SglDescriptor::in_capsule(inside.len() as u32)),
        };
        capsule(command.with_command_id(id), inside, self.digests)
    }

    /// H2CData in answer to an R2T; `offset` is the command's.
    pub fn give(&self, r2t: &R2T, offset: u32, data: &[u8]) -> Vec<u8> {
        let last = offset + data.len() as u32 == r2t.offset + r2t.length;
        host_data(r2t, offset, data, last, self.digests)
    }

    /// Takes bytes of the target; [`next`](Self::next) says what they are.
    pub fn hear(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.heard.drain(..core::mem::take(&mut self.taken));
        }
        self.heard.extend_from_slice(bytes);
    }

    /// The next thing that it heard, if all of it is there.
    #[allow(clippy::should_implement_trait)] // It may go on after `None`.
    pub fn next(&mut self) -> Result<Option<Heard<T>>, Fault> {
        loop {
            if let Some(id) = self.succeeded.take() {
                return self.answered(Completion::new(id, Status::SUCCESS));
            }
            let rest = &self.heard[self.taken..];
            let Some((said, length, padding)) =
                parse(rest, self.digests).map_err(Fault::Garbled)?
            else {
                return Ok(None);
            };
            if self.over {
                return Err(format!("{said:?} after a TermReq").into());
            }
            if padding > 0 && !self.lenient {
                // No digest covers ICReq: if a bit of it flips, the target was asked to pad.
                let why = format!("{padding} bytes of padding toward a host with HPDA 0");
                return Err(Fault::Garbled(why));
            }
            self.taken += length;
            if let Some(heard) = self.judge(said)? {
                return Ok(Some(heard));
            }
        }
    }

    /// What a PDU means; `None` if a lenient host ignores it.
    fn judge(&mut self, said: Said) -> Result<Option<Heard<T>>, Fault> {
        let heard = match said {
            Said::ICResp(response) => {
                if self.greeting.is_some() {
                    return Err(Fault::Garbled("a second ICResp".to_owned()));
                }
                if response.digests() != self.digests && !self.lenient {
                    let why = format!("{response}, and {:?} were asked for", self.digests);
                    return Err(Fault::Garbled(why));
                }
                self.digests = response.digests();
                self.greeting = Some(response);
                Heard::Greeted(response)
            }
            Said::Term(term) => {
                self.over = true;
                Heard::Terminated(term)
            }
            Said::Response(entry) => return self.answered(entry),
            Said::Data(..) | Said::R2T(_) if self.lenient => return Ok(None),
            Said::Data(header, bytes) => {
                let id = header.command_id;
                let asked =
                    self.asked.get_mut(&id).ok_or_else(|| format!("{header} for no command"))?;
                let (Data::In(length) | Data::InAtMost(length)) = asked.data else {
                    return Err(format!("{header} for {asked:?}").into());
                };
                let fits = header.length > 0 && header.length <= length - asked.moved;
                if header.offset != asked.moved || !fits {
                    return Err(format!("{header} out of order or range for {asked:?}").into());
                }
                asked.moved += header.length;
                if header.is_success() {
                    if !header.is_last() || !self.flow_control_off {
                        return Err(format!("SUCCESS in {header}").into());
                    }
                    self.succeeded = Some(id);
                }
                Heard::Data { command: id, offset: header.offset, bytes }
            }
            Said::R2T(r2t) => {
                let asked = self
                    .asked
                    .get_mut(&r2t.command_id)
                    .ok_or_else(|| format!("{r2t} for no command"))?;
                let Data::Out(length) = asked.data else {
                    return Err(format!("{r2t} for {asked:?}").into());
                };
                let fits = r2t.length > 0 && r2t.length <= length - asked.moved;
                if r2t.offset != asked.moved || !fits {
                    return Err(format!("{r2t} out of order or range for {asked:?}").into());
                }
                asked.moved += r2t.length;
                Heard::Granted(r2t)
            }
        };
        Ok(Some(heard))
    }

    fn answered(&mut self, entry: Completion) -> Result<Option<Heard<T>>, Fault> {
        let Some(asked) = self.asked.remove(&entry.command_id) else {
            return match self.lenient {
                true => Ok(None),
                false => Err(format!("an answer to no command: {entry}").into()),
            };
        };
        match asked.data {
            Data::In(length) | Data::Out(length)
                if entry.status.is_success() && asked.moved < length && !self.lenient =>
            {
                Err(format!("success without all data: {asked:?}").into())
            }
            _ => Ok(Some(Heard::Answered(asked, entry))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::nvme_tcp::{CapsuleResponse, DataHeader, PduFlags};

    const LAST_OF_ALL: PduFlags = PduFlags(0x0c);

    /// A host that is greeted and asked one command, number 7.
    fn host(data: Data, flow_control_off: bool) -> Host<()> {
        let mut host = Host::new(Digests::NONE);
        host.flow_control_off = flow_control_off;
        host.hear(&ICResp::new(Digests::NONE, 4096).emit());
        assert!(matches!(host.next(), Ok(Some(Heard::Greeted(_)))));
        host.ask(7, Command::flush(1), (), data, &[]);
        host
    }

    fn response(id: u16) -> Vec<u8> {
        let entry = Completion::new(id, Status::SUCCESS);
        CapsuleResponse::new(entry, Digests::NONE).emit().to_vec()
    }

    fn data(offset: u32, length: usize, flags: PduFlags) -> Vec<u8> {
        let header = DataHeader::c2h(7, offset, length as u32, flags, Digests::NONE).emit();
        super::super::seal(&header, &vec![0; length], Digests::NONE)
    }

    fn r2t(offset: u32, length: u32) -> Vec<u8> {
        R2T::new(7, 1, offset, length, Digests::NONE).emit().to_vec()
    }

    fn is_broken(mut host: Host<()>, pdus: &[Vec<u8>]) -> bool {
        host.hear(&pdus.concat());
        loop {
            match host.next() {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(Fault::Broken(_)) => return true,
                Err(why) => panic!("{why:?}"),
            }
        }
    }

    #[test]
    fn a_command_is_answered_once() {
        assert!(!is_broken(host(Data::None, false), &[response(7)]));
        assert!(is_broken(host(Data::None, false), &[response(7), response(7)]));
        assert!(is_broken(host(Data::None, false), &[response(8)]));
    }

    #[test]
    fn data_come_in_order_within_what_is_read_and_all_of_it() {
        let none = PduFlags::NONE;
        let read = || host(Data::In(1024), false);
        assert!(!is_broken(read(), &[data(0, 512, none), data(512, 512, none), response(7)]));
        assert!(is_broken(read(), &[data(512, 512, none)]));
        assert!(is_broken(read(), &[data(0, 1024, none), data(1024, 512, none)]));
        assert!(is_broken(read(), &[data(0, 512, none), response(7)]), "success is too early");
        let some = || host(Data::InAtMost(1024), false);
        assert!(!is_broken(some(), &[data(0, 512, none), response(7)]));
        assert!(is_broken(host(Data::None, false), &[data(0, 512, none)]));
    }

    #[test]
    fn success_in_the_last_data_is_the_answer_where_flow_control_is_off() {
        let read = |off| host(Data::In(512), off);
        assert!(is_broken(read(false), &[data(0, 512, LAST_OF_ALL)]));
        assert!(is_broken(read(true), &[data(0, 512, LAST_OF_ALL), response(7)]));
        let mut host = read(true);
        host.hear(&data(0, 512, LAST_OF_ALL));
        assert!(matches!(host.next(), Ok(Some(Heard::Data { command: 7, offset: 0, .. }))));
        assert_eq!(host.asked.len(), 1, "whoever gets the data knows the command");
        assert!(matches!(host.next(), Ok(Some(Heard::Answered(..)))));
        assert!(host.asked.is_empty());
    }

    #[test]
    fn r2ts_come_in_order_within_what_is_written() {
        let write = || host(Data::Out(1024), false);
        assert!(!is_broken(write(), &[r2t(0, 512), r2t(512, 512), response(7)]));
        assert!(is_broken(write(), &[r2t(512, 512)]));
        assert!(is_broken(write(), &[r2t(0, 2048)]));
        assert!(is_broken(write(), &[r2t(0, 512), response(7)]), "success is too early");
        assert!(is_broken(host(Data::In(1024), false), &[r2t(0, 512)]));
    }

    #[test]
    fn a_lenient_host_hears_whatever_parses() {
        let pdus = [response(9), r2t(512, 9), data(4096, 512, LAST_OF_ALL), response(7)];
        for lenient in [false, true] {
            let mut host = host(Data::In(1024), false);
            host.lenient = lenient;
            assert_eq!(is_broken(host, &pdus), !lenient);
        }
    }

    #[test]
    fn garbled_bytes_are_told_from_broken_rules() {
        let mut host = Host::<()>::new(Digests { header: true, data: false });
        host.hear(&ICResp::new(Digests::NONE, 4096).emit());
        assert!(matches!(host.next(), Err(Fault::Garbled(_))), "other digests");
        let mut host = Host::<()>::new(Digests::NONE);
        host.hear(&[0x5e; 64]);
        assert!(matches!(host.next(), Err(Fault::Garbled(_)) | Ok(None)));
    }
}
