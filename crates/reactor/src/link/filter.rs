//! Programs for the kernel: what a socket takes, and which socket of a group takes it.
//!
//! In: programs that look at a frame from its destination address on, without a tag
//! ([`contract::filter`]). Out: programs as the kernel runs them at two places, which see the frame
//! differently:
//!
//! ```text
//!                     destination  source  type | payload            what offset 0 is
//!   socket filter     0            6       12     14                 the destination: as given
//!   fanout program    not before SKF_LL_OFF       0                  the payload: the header lies before the frame
//! ```
//!
//! A socket filter runs after `tpacket_rcv` has put the Ethernet header back in front; a fanout
//! program runs before (`fanout_demux_bpf`), on the frame as the stack has it. There the header is
//! reached by loads at SKF_LL_OFF, which read the linear part of a packet alone: enough for the
//! header, not for what follows it, which in a large frame may lie in pages. So loads behind the
//! header keep to the payload's own offsets ([`for_fanout`]).
//!
//! Errors: a program that cannot be said in the kernel's way is refused with the number of the
//! instruction.

use std::io;
use std::os::fd::RawFd;

use contract::filter::{LENGTH_MAX, is_sound};
use contract::{Instruction, Takes};

use super::LinkOptions;
use super::interface::Interface;
use super::packet::set_option;

/// Bytes of an Ethernet header.
const HEADER: u32 = 14;
/// Loads from here on count from the Ethernet header (`SKF_LL_OFF`, -0x200000).
const LINK_LAYER: u32 = 0xffe0_0000;
/// What the kernel knows beside the bytes (`SKF_AD_OFF`, -0x1000).
const ANCILLARY: u32 = 0xffff_f000;
/// Whom a frame is for (`SKF_AD_PKTTYPE`): the station, all, a group; then others; from there on it
/// leaves or turns back here, and never came.
const WHOM: u32 = ANCILLARY + 4;
const OTHER_STATION: u32 = libc::PACKET_OTHERHOST as u32;
const OUTGOING: u32 = libc::PACKET_OUTGOING as u32;
/// The tag that was taken off, 0 if there was none (`SKF_AD_VLAN_TAG`), and its kind
/// (`SKF_AD_VLAN_TPID`).
const VLAN_TAG: u32 = ANCILLARY + 44;
const VLAN_KIND: u32 = ANCILLARY + 60;
const VLAN_MASK: u32 = 0xfff;
const TYPE_AT: u32 = 12;
/// Accumulator = operand.
const LOAD_IMMEDIATE: u16 = 0x00;
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;

/// What a link takes of all that an interface sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Station {
    /// Its address.
    pub(super) mac: [u8; 6],
    /// Its VLAN; 0 for frames without one.
    pub(super) vlan: u16,
    pub(super) takes: Takes,
}

impl Station {
    pub(super) fn new(interface: &Interface, options: &LinkOptions) -> Station {
        let takes = options.intake.takes;
        Station { mac: interface.mac, vlan: options.vlan.unwrap_or(0), takes }
    }

    /// The protocol to bind its socket to.
    ///
    /// The stack takes the tag off a frame, shows it to sockets of all protocols, and then, if no
    /// interface of the system is for its VLAN, marks the frame as somebody else's
    /// (PACKET_OTHERHOST) and *forgets the tag*, before it shows it to sockets of one protocol
    /// (`__netif_receive_skb_core`). So frames without a VLAN come to a socket of their EtherType,
    /// which no other traffic of the interface concerns, and those of a VLAN, as all frames of a
    /// circuit, to one of all protocols.
    pub(super) fn protocol(&self) -> u16 {
        match self.takes {
            Takes::Type(ether_type) if self.vlan == 0 => ether_type.0,
            _ => libc::ETH_P_ALL as u16,
        }
    }

    /// Frames of which the kernel says that they are for these, or for those behind them in its list, are
    /// nobody's here: of other stations, which is said of those of another VLAN, too; or ones that leave.
    pub(super) fn others(&self) -> u32 {
        match self.takes {
            Takes::Type(_) => OTHER_STATION,
            Takes::Whole => OUTGOING,
        }
    }

    /// The filter of its socket: this station, VLAN and EtherType, or all that came for whomever,
    /// then `program`, so that other frames are not even copied.
    pub(super) fn filter(&self, program: &[Instruction]) -> io::Result<Filter> {
        let is_of_a_vlan = self.vlan != 0 && self.takes != Takes::Whole;
        let is_needed = is_of_a_vlan || !program.is_empty();
        let take_all = [Instruction::ret(u32::MAX)];
        let program = if program.is_empty() { &take_all[..] } else { program };
        let load = |operand| Instruction { operand, ..Instruction::load_word(0) };
        let nothing = Instruction::ret(0);
        let mut filter = vec![load(WHOM), Instruction::if_at_least(self.others(), 0, 1), nothing];
        if let Takes::Type(ether_type) = self.takes
            && self.vlan != 0
        {
            filter.extend([
                load(VLAN_TAG),
                Instruction::and(VLAN_MASK),
                Instruction::if_equal(self.vlan.into(), 0, 4),
                load(VLAN_KIND),
                Instruction::if_equal(libc::ETH_P_8021Q as u32, 0, 2),
                Instruction::load_half(TYPE_AT),
                Instruction::if_equal(ether_type.0.into(), 1, 0),
                nothing,
            ]);
        }
        // The program may rely on an accumulator of 0.
        filter.push(Instruction { code: LOAD_IMMEDIATE, ..nothing });
        check(program, filter.len())?;
        filter.extend_from_slice(program);
        Ok(Filter { program: filter, is_needed })
    }
}

/// What the kernel looks at before it copies a frame.
pub(super) struct Filter {
    pub(super) program: Vec<Instruction>,
    /// Else what comes to a socket of its [`protocol`](Station::protocol) is to be looked at for no more than whom it is
    /// for, which the receive ring says, too ([`others`](Station::others)). Few are others' mostly, and a filter costs 16 ns
    /// a frame, also of each for which the ring has no room: under a flood of two frames for each that can be
    /// forwarded, 6% of those.
    pub(super) is_needed: bool,
}

/// Takes nothing.
pub(super) const NOTHING: [Instruction; 1] = [Instruction::ret(0)];

/// A steering program as the kernel runs it for a fanout group; see the top of this file.
pub(super) fn for_fanout(program: &[Instruction]) -> io::Result<Vec<Instruction>> {
    check(program, 0)?;
    let rewrite = |(at, one): (usize, &Instruction)| {
        if one.code == Instruction::load_length().code {
            return Err(refused(format!(
                "instruction {at} asks for the length, which differs there"
            )));
        }
        if !one.is_absolute_load() {
            return Ok(*one);
        }
        let size = match one.code {
            LOAD_WORD => 4,
            LOAD_HALF => 2,
            _ => 1,
        };
        let operand = match one.operand {
            before if before + size <= HEADER => LINK_LAYER + before,
            behind if behind >= HEADER => behind - HEADER,
            _ => {
                let text = "reads across the end of the Ethernet header (byte 14)";
                return Err(refused(format!("instruction {at} {text}")));
            }
        };
        Ok(Instruction { operand, ..*one })
    };
    program.iter().enumerate().map(rewrite).collect()
}

/// Replaces a socket's filter.
pub(super) fn attach(fd: RawFd, program: &[Instruction]) -> io::Result<()> {
    with_kernel_program(program, |program| {
        set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
    })
}

/// Takes a socket's filter away.
pub(super) fn detach(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
}

/// Sets the steering program of a fanout group.
pub(super) fn attach_fanout(fd: RawFd, program: &[Instruction]) -> io::Result<()> {
    with_kernel_program(program, |program| {
        set_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program)
    })
}

fn with_kernel_program<T>(program: &[Instruction], call: impl FnOnce(&libc::sock_fprog) -> T) -> T {
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|one| libc::sock_filter {
            code: one.code,
            jt: one.jump_true,
            jf: one.jump_false,
            k: one.operand,
        })
        .collect();
    let len = u16::try_from(instructions.len()).expect("a program is no longer than LENGTH_MAX");
    call(&libc::sock_fprog { len, filter: instructions.as_mut_ptr() })
}

/// A program that is sound, and not too long behind so many other instructions.
pub(super) fn check(program: &[Instruction], in_front: usize) -> io::Result<()> {
    let most = LENGTH_MAX - in_front;
    if program.len() > most {
        let count = program.len();
        return Err(refused(format!("{count} instructions; the kernel takes {most} at most here")));
    }
    if !is_sound(program) {
        return Err(refused("unknown instructions, a jump out of it, or no end".to_owned()));
    }
    Ok(())
}

pub(super) fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("its BPF program: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::EtherType;

    const STATION: Station =
        Station { mac: [2, 0, 0, 0, 0, 7], vlan: 0, takes: Takes::Type(EtherType(0x88a2)) };

    #[test]
    fn the_program_follows_what_every_frame_must_pass() {
        let program = [Instruction::load_byte(18), Instruction::ret_accumulator()];
        for vlan in [0, 5] {
            let filter = Station { vlan, ..STATION }.filter(&program).unwrap();
            assert!(filter.is_needed);
            let filter = filter.program;
            let (before, own) = filter.split_at(filter.len() - program.len());
            assert_eq!(own, program);
            // Each jump leads to the end that takes nothing, or to the next load.
            for (at, one) in before.iter().enumerate().filter(|(_, one)| one.code & 7 == 5) {
                for skip in [one.jump_true, one.jump_false] {
                    let to = &before[at + 1 + usize::from(skip)];
                    let loads = matches!(to.code, LOAD_WORD | LOAD_HALF | LOAD_IMMEDIATE);
                    assert!(*to == Instruction::ret(0) || loads, "{at}: {to:?}");
                }
            }
        }
        for (vlan, is_needed) in [(0, false), (5, true)] {
            let all = Station { vlan, ..STATION }.filter(&[]).unwrap();
            assert_eq!(all.program.last(), Some(&Instruction::ret(u32::MAX)));
            assert_eq!(all.is_needed, is_needed);
        }
    }

    /// Whether a filter takes a frame of which the kernel knows this: whom it is for, and the kind
    /// and control information of its tag. Without it the ring says the same.
    fn passes(station: Station, whom: i32, (kind, tag): (u32, u32), ether_type: u16) -> bool {
        let moved = |mut one: Instruction| {
            // Of what is run here, loads beyond the frame are 0.
            let words = [(WHOM, 0), (VLAN_TAG, 4), (VLAN_KIND, 8)];
            if let Some((_, at)) = words.into_iter().find(|(what, _)| *what == one.operand) {
                one.operand = at;
            }
            if one.code == LOAD_IMMEDIATE { Instruction::and(0) } else { one }
        };
        let filter = station.filter(&[]).unwrap();
        let program: Vec<_> = filter.program.into_iter().map(moved).collect();
        let known = [whom as u32, tag, kind].map(u32::to_be_bytes).concat();
        let passes =
            contract::filter::run(&program, &[&known[..], &ether_type.to_be_bytes()].concat()) != 0;
        assert!(filter.is_needed || passes == ((whom as u32) < station.others()));
        passes
    }

    const WHOMS: [i32; 5] = [
        libc::PACKET_HOST as i32,
        libc::PACKET_BROADCAST as i32,
        libc::PACKET_MULTICAST as i32,
        libc::PACKET_OTHERHOST as i32,
        libc::PACKET_OUTGOING as i32,
    ];

    #[test]
    fn a_link_of_a_type_takes_what_is_for_its_station_and_vlan() {
        let whoms = WHOMS.map(|whom| passes(STATION, whom, (0, 0), 0x88a2));
        assert_eq!(whoms, [true, true, true, false, false]);
        assert_eq!(STATION.protocol(), 0x88a2, "the kernel looks at the type");
        let station = Station { vlan: 5, ..STATION };
        let whoms = WHOMS.map(|whom| passes(station, whom, (0x8100, 0xe005), 0x88a2));
        assert_eq!(whoms, [true, true, true, false, false]);
        assert_eq!(station.protocol(), 3, "all types");
        for (tag, ether_type) in [((0x8100, 6), 0x88a2), ((0x88a8, 5), 0x88a2), ((0x8100, 5), 1)] {
            assert!(!passes(station, WHOMS[0], tag, ether_type), "{tag:x?} {ether_type:#x}");
        }
    }

    #[test]
    fn a_circuit_takes_whatever_came_and_nothing_that_leaves() {
        let circuit = Station { takes: Takes::Whole, ..STATION };
        assert_eq!(circuit.protocol(), 3);
        for tag in [(0, 0), (0x8100, 5), (0x88a8, 0x2fff)] {
            let whoms = WHOMS.map(|whom| passes(circuit, whom, tag, 0x0800));
            assert_eq!(whoms, [true, true, true, true, false], "{tag:x?}");
        }
    }

    #[test]
    fn steering_loads_are_where_a_fanout_program_finds_them() {
        let program = [
            Instruction::load_word(8),
            Instruction::load_half(12),
            Instruction::load_byte(18),
            Instruction::and(0xff),
            Instruction::ret_accumulator(),
        ];
        let rewritten = for_fanout(&program).unwrap();
        let operands: Vec<u32> = rewritten.iter().map(|one| one.operand).collect();
        assert_eq!(operands, [0xffe0_0008, 0xffe0_000c, 4, 0xff, 0]);
    }

    #[test]
    fn what_a_fanout_program_cannot_say_is_refused() {
        let across = [Instruction::load_word(12), Instruction::ret_accumulator()];
        assert!(for_fanout(&across).unwrap_err().to_string().contains("instruction 0"));
        let length = [Instruction::load_length(), Instruction::ret_accumulator()];
        assert!(for_fanout(&length).is_err());
        let endless = [Instruction::load_byte(0)];
        assert!(for_fanout(&endless).is_err() && STATION.filter(&endless).is_err());
    }
}
