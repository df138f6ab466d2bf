//! The program at an interface's door: which frames go to our sockets, and which to the stack.
//!
//! In: a station and a classic program ([`contract::filter`]). Out: the same in eBPF, written by
//! hand, loaded and attached. It redirects what the station and the program take to the socket of
//! the receive queue, and passes everything else on: other protocols of the interface do not notice
//! it, nor do packet sockets that take what the program refuses. Attached by a link of the kernel's
//! (BPF_LINK_CREATE), whose descriptor we hold: it goes with the process, however that ends.
//!
//! ```text
//!   r6 context   r7 frame   r8 its end (of its first piece)   r9 index   r2 accumulator
//!
//!   destination ours or a group? ---no--> pass
//!   type ours, untagged ----------------> program on the frame as it is
//!   802.1Q, VLAN and type ours ---------> program with offsets from 12 on moved by the tag
//!   program returned 0 -> pass            else: redirect to the queue's socket; without one, pass
//! ```
//!
//! Errors: what cannot be translated, with the number of the instruction; what the kernel refuses,
//! with the rights that it wants.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use contract::Instruction;

use crate::link::filter::{Station, check, refused};

/// Bytes of an 802.1Q tag.
pub(super) const TAG: u32 = 4;
/// Where the type, or the tag, stands.
pub(super) const TYPE_AT: u32 = 12;

/// `XDP_PASS`: to the stack.
const PASS: i32 = 2;
/// Helpers of the kernel's.
const REDIRECT_MAP: i32 = 51;
const FRAME_LENGTH: i32 = 188;

/// An instruction of eBPF, as the kernel has it (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Op {
    code: u8,
    registers: u8,
    offset: i16,
    operand: i32,
}

/// A place in the program that is jumped to.
type Label = usize;

/// Writes a program.
#[derive(Default)]
struct Writer {
    ops: Vec<Op>,
    /// Jumps whose offsets are not known yet.
    jumps: Vec<(usize, Label)>,
    labels: Vec<Option<usize>>,
}

const R0: u8 = 0;
const R1: u8 = 1;
const A: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const CONTEXT: u8 = 6;
const FRAME: u8 = 7;
const END: u8 = 8;
const X: u8 = 9;

const BYTE: u8 = 0x71;
const HALF: u8 = 0x69;
const WORD: u8 = 0x61;
const MOVE: u8 = 0xbf;
const MOVE_NUMBER: u8 = 0xb7;
const ADD_NUMBER: u8 = 0x07;
const AND_32: u8 = 0x54;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const IF_ABOVE: u8 = 0x2d;
const IF_EQUAL_32: u8 = 0x16;
const IF_OTHER_32: u8 = 0x56;
const IF_ANY_BIT_32: u8 = 0x46;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD_64: u8 = 0x18;

impl Writer {
    fn op(&mut self, code: u8, to: u8, from: u8, offset: i16, operand: i32) {
        let little = cfg!(target_endian = "little");
        let registers = if little { to | from << 4 } else { to << 4 | from };
        self.ops.push(Op { code, registers, offset, operand });
    }

    fn label(&mut self) -> Label {
        self.labels.push(None);
        self.labels.len() - 1
    }

    fn here(&mut self, label: Label) {
        self.labels[label] = Some(self.ops.len());
    }

    fn jump(&mut self, code: u8, one: u8, other: u8, operand: i32, to: Label) {
        self.jumps.push((self.ops.len(), to));
        self.op(code, one, other, 0, operand);
    }

    /// Jumps to `to` unless the first `length` bytes of the frame are there.
    fn need(&mut self, length: u32, to: Label) {
        self.op(MOVE, R4, FRAME, 0, 0);
        self.op(ADD_NUMBER, R4, 0, 0, length as i32);
        self.jump(IF_ABOVE, R4, END, 0, to);
    }

    fn finish(mut self) -> io::Result<Vec<Op>> {
        for (at, label) in self.jumps {
            let to = self.labels[label].expect("a label that is jumped to has a place");
            let offset = i16::try_from(to as i64 - at as i64 - 1);
            self.ops[at].offset = offset.map_err(|_| refused("it is too long".to_owned()))?;
        }
        Ok(self.ops)
    }
}

/// Translates; `sockets` is the descriptor of the map of sockets by queue.
fn translate(station: &Station, program: &[Instruction], sockets: i32) -> io::Result<Vec<Op>> {
    if !program.is_empty() {
        check(program, 0)?;
    }
    let mut writer = Writer::default();
    let (take, pass, untagged) = (writer.label(), writer.label(), writer.label());
    let w = &mut writer;
    w.op(MOVE, CONTEXT, R1, 0, 0);
    w.op(WORD, FRAME, CONTEXT, 0, 0);
    w.op(WORD, END, CONTEXT, 4, 0);
    w.need(TYPE_AT + 2, pass);
    // The destination: a group, or ours.
    let ours = w.label();
    let [a, b, c, d, e, f] = station.mac;
    w.op(BYTE, A, FRAME, 0, 0);
    w.jump(IF_ANY_BIT_32, A, 0, 1, ours);
    w.op(WORD, A, FRAME, 0, 0);
    w.jump(IF_OTHER_32, A, 0, i32::from_ne_bytes([a, b, c, d]), pass);
    w.op(HALF, A, FRAME, 4, 0);
    w.jump(IF_OTHER_32, A, 0, u16::from_ne_bytes([e, f]).into(), pass);
    w.here(ours);
    let of_one_type = station.takes.ether_type().expect("a circuit over AF_XDP is refused");
    let ether_type = i32::from(of_one_type.0.to_be());
    w.op(HALF, A, FRAME, TYPE_AT as i16, 0);
    if station.vlan == 0 {
        w.jump(IF_EQUAL_32, A, 0, ether_type, untagged);
    }
    w.jump(IF_OTHER_32, A, 0, (libc::ETH_P_8021Q as u16).to_be().into(), pass);
    w.need(TYPE_AT + TAG + 2, pass);
    w.op(HALF, A, FRAME, 14, 0);
    w.op(TO_BIG_ENDIAN, A, 0, 0, 16);
    w.op(AND_32, A, 0, 0, 0xfff);
    w.jump(IF_OTHER_32, A, 0, station.vlan.into(), pass);
    w.op(HALF, A, FRAME, 16, 0);
    w.jump(IF_OTHER_32, A, 0, ether_type, pass);
    judge(w, program, TAG, (take, pass))?;
    if station.vlan == 0 {
        w.here(untagged);
        judge(w, program, 0, (take, pass))?;
    }
    // The kernel refuses what no jump reaches.
    if w.jumps.iter().any(|(_, label)| *label == take) {
        w.here(take);
        // Both halves of a descriptor that stands for the map (BPF_PSEUDO_MAP_FD).
        w.op(LOAD_64, R1, 1, 0, sockets);
        w.op(0, 0, 0, 0, 0);
        w.op(WORD, A, CONTEXT, 16, 0);
        w.op(MOVE_NUMBER, R3, 0, 0, PASS);
        w.op(CALL, 0, 0, 0, REDIRECT_MAP);
        w.op(EXIT, 0, 0, 0, 0);
    }
    w.here(pass);
    w.op(MOVE_NUMBER, R0, 0, 0, PASS);
    w.op(EXIT, 0, 0, 0, 0);
    writer.finish()
}

/// The classic program, on a frame with so many bytes of tag before its type.
fn judge(
    w: &mut Writer,
    program: &[Instruction],
    tag: u32,
    (take, pass): (Label, Label),
) -> io::Result<()> {
    if program.is_empty() {
        w.jump(JUMP, 0, 0, 0, take);
        return Ok(());
    }
    w.op(MOVE_NUMBER, A, 0, 0, 0);
    w.op(MOVE_NUMBER, X, 0, 0, 0);
    let places: Vec<Label> = program.iter().map(|_| w.label()).collect();
    // Jumps only lead on, so one look from the front finds all that is reached.
    let mut reached = vec![false; program.len()];
    reached[0] = true;
    for (at, one) in program.iter().enumerate() {
        if !reached[at] {
            continue;
        }
        w.here(places[at]);
        let number = one.operand as i32;
        let mut goes_on = true;
        match one.code {
            0x20 | 0x28 | 0x30 => load(w, at, one, tag, pass)?,
            0x80 => {
                w.op(MOVE, R1, CONTEXT, 0, 0);
                w.op(CALL, 0, 0, 0, FRAME_LENGTH);
                w.op(MOVE, A, R0, 0, 0);
                w.op(ADD_NUMBER, A, 0, 0, -(tag as i32));
            }
            0x15 | 0x35 | 0x45 => {
                let yes = at + 1 + usize::from(one.jump_true);
                let no = at + 1 + usize::from(one.jump_false);
                (reached[yes], reached[no], goes_on) = (true, true, false);
                // The same operations, on 32 bits.
                w.jump(one.code as u8 & 0xf0 | 0x06, A, 0, number, places[yes]);
                w.jump(JUMP, 0, 0, 0, places[no]);
            }
            // Arithmetic with a number or the index has the same codes, on 32 bits.
            0x24 | 0x54 | 0x74 => w.op(one.code as u8, A, 0, 0, number),
            0xac => w.op(0xac, A, X, 0, 0),
            0x07 => w.op(0xbc, X, A, 0, 0),
            0x06 => {
                goes_on = false;
                w.jump(JUMP, 0, 0, 0, if number == 0 { pass } else { take });
            }
            0x16 => {
                goes_on = false;
                w.jump(IF_EQUAL_32, A, 0, 0, pass);
                w.jump(JUMP, 0, 0, 0, take);
            }
            code => {
                return Err(refused(format!("instruction {at} has the unknown code {code:#x}")));
            }
        }
        if goes_on {
            reached[at + 1] = true;
        }
    }
    Ok(())
}

/// A load from the frame; beyond its end the program returns 0.
fn load(w: &mut Writer, at: usize, one: &Instruction, tag: u32, pass: Label) -> io::Result<()> {
    let (code, size) = match one.code {
        0x20 => (WORD, 4),
        0x28 => (HALF, 2),
        _ => (BYTE, 1),
    };
    let begin = match one.operand {
        before if before.saturating_add(size) <= TYPE_AT => before,
        behind if (TYPE_AT..0x4000).contains(&behind) => behind + tag,
        // Only a tag stands between.
        across if tag == 0 && across < 0x4000 => across,
        other => {
            let text = format!("instruction {at} reads {size} bytes at {other}, which a tag cuts");
            return Err(refused(text));
        }
    };
    w.need(begin + size, pass);
    w.op(code, A, FRAME, begin as i16, 0);
    if size > 1 {
        w.op(TO_BIG_ENDIAN, A, 0, 0, size as i32 * 8);
    }
    Ok(())
}

/// The program, attached, and its map of sockets. Both go when it is dropped.
pub(super) struct Attached {
    sockets: OwnedFd,
    _link: OwnedFd,
}

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROGRAM_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;
const MAP_OF_XDP_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program may see frames of several pieces (BPF_F_XDP_HAS_FRAGS).
const HAS_PIECES: u32 = 1 << 5;
/// Run by the stack instead of the driver (XDP_FLAGS_SKB_MODE).
const GENERIC: u32 = 1 << 1;
/// How often a program is loaded that the kernel was interrupted in checking.
const ATTEMPTS: u32 = 5;

/// An error, and what was tried.
#[derive(Debug)]
pub(super) struct Failed {
    what: &'static str,
    pub(super) error: io::Error,
}

/// Says what was tried.
pub(super) fn tried(what: &'static str) -> impl Fn(io::Error) -> Failed {
    move |error| Failed { what, error }
}

impl From<Failed> for io::Error {
    fn from(Failed { what, error }: Failed) -> io::Error {
        // Words of ours say it themselves.
        match error.raw_os_error() {
            Some(_) => io::Error::new(error.kind(), format!("{what}: {error}")),
            None => error,
        }
    }
}

impl Attached {
    /// Loads and attaches. Frames go to a queue's socket once it is told by [`serve`](Self::serve).
    pub(super) fn new(
        interface: i32,
        queues: u32,
        station: &Station,
        program: &[Instruction],
        pieces: bool,
    ) -> Result<Attached, Failed> {
        // Its kind, bytes of a key and of a value, entries.
        let sockets = bpf_descriptor(MAP_CREATE, &[MAP_OF_XDP_SOCKETS, 4, 4, queues])
            .map_err(tried("making the map of sockets"))?;
        let translated = translate(station, program, sockets.as_raw_fd());
        let ops = translated.map_err(tried("translating the program"))?;
        let program = load_program(&ops, if pieces { HAS_PIECES } else { 0 })
            .map_err(tried("loading the program"))?;
        let (program, interface) = (program.as_raw_fd() as u32, interface as u32);
        let attach = |flags| bpf_descriptor(LINK_CREATE, &[program, interface, ATTACH_XDP, flags]);
        let link = match attach(0) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(taken()),
            // A driver that runs no programs, or none on frames of this size.
            Err(_) => attach(GENERIC),
            Ok(link) => Ok(link),
        };
        let link = link.map_err(tried("attaching the program"))?;
        Ok(Attached { sockets, _link: link })
    }

    /// Gives the frames of a queue to a socket.
    pub(super) fn serve(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        #[repr(C)]
        struct Update {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let value = socket.as_raw_fd();
        let update = Update {
            map: self.sockets.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE, &update).map(drop)
    }
}

fn load_program(ops: &[Op], flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        ops: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach: u32,
    }
    let license = c"Apache-2.0";
    let mut name = [0; 16];
    name[..8].copy_from_slice(b"plateway");
    let mut load = Load {
        kind: PROGRAM_XDP,
        count: ops.len() as u32,
        ops: ops.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        version: 0,
        flags,
        name,
        interface: 0,
        attach: ATTACH_XDP,
    };
    let error = match persist(|| bpf_descriptor(PROGRAM_LOAD, &load)) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => error,
        other => return other,
    };
    // Again, with the verifier's own words.
    let mut log = vec![0u8; 64 << 10];
    (load.log_level, load.log_size, load.log) = (1, log.len() as u32, log.as_mut_ptr() as u64);
    match persist(|| bpf_descriptor(PROGRAM_LOAD, &load)) {
        Ok(program) => Ok(program),
        Err(_) => {
            let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
            let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
            let last = &lines[lines.len().saturating_sub(4)..];
            let words = String::from_utf8_lossy(&last.join(&b' ')).trim().to_owned();
            let text = format!("the kernel refuses the program: {error} ({words})");
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// Tries again what was only interrupted, as often as libbpf does. The verifier gives up with
/// EAGAIN where something waits for the thread: a signal, or the end of an io_uring that it had,
/// which the kernel's workers bring about some time after its close.
fn persist<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            other => return other,
        }
    }
    attempt()
}

fn bpf_descriptor<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf<T>(command: i32, attributes: &T) -> io::Result<i32> {
    let size = size_of::<T>() as libc::c_uint;
    // SAFETY: the kernel reads `size` bytes of the attributes, and what they name, which the
    // callers keep for the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size) };
    if result < 0 { Err(explain(io::Error::last_os_error())) } else { Ok(result as i32) }
}

/// Says which rights are missing.
pub(super) fn explain(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            let program = std::env::current_exe().unwrap_or_else(|_| "PROGRAM".into());
            let program = program.display();
            let text = format!(
                "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, which this process does not all have; grant them with \
                 `setcap cap_net_raw,cap_net_admin,cap_bpf+ep {program}`, or in a systemd unit with \
                 AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN CAP_BPF, or use packet sockets, which need CAP_NET_RAW alone"
            );
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        }
        Some(libc::ENOSYS | libc::EAFNOSUPPORT) => {
            let text = "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS, CONFIG_BPF_SYSCALL); use packet sockets";
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        _ => error,
    }
}

fn taken() -> io::Error {
    let text = "the interface has an XDP program already; two links over AF_XDP cannot share it: use packet sockets for one";
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{EtherType, Takes};

    const STATION: Station =
        Station { mac: [2, 0, 0, 0, 0, 7], vlan: 0, takes: Takes::Type(EtherType(0x88a2)) };

    fn ends(ops: &[Op]) -> usize {
        ops.iter().filter(|op| op.code == EXIT).count()
    }

    #[test]
    fn every_jump_leads_on_within_the_program() {
        let program = [
            Instruction::load_length(),
            Instruction::if_at_least(24, 0, 2),
            Instruction::load_byte(14),
            Instruction::if_any_bit(8, 0, 1),
            Instruction::ret(0),
            Instruction::ret(u32::MAX),
        ];
        for vlan in [0, 5] {
            let ops = translate(&Station { vlan, ..STATION }, &program, 3).unwrap();
            for (at, op) in ops.iter().enumerate() {
                let jumps = matches!(op.code & 7, 5 | 6) && !matches!(op.code, CALL | EXIT);
                let to = at as i64 + 1 + i64::from(op.offset);
                assert!(!jumps || (to > at as i64 && to < ops.len() as i64), "{at}: {op:?}");
            }
            assert_eq!(ends(&ops), 2);
        }
    }

    #[test]
    fn what_no_jump_reaches_is_left_out() {
        let nothing = [Instruction::ret(0), Instruction::ret(u32::MAX)];
        let ops = translate(&STATION, &nothing, 3).unwrap();
        assert_eq!(ends(&ops), 1, "nothing is redirected");
        assert_eq!(ends(&translate(&STATION, &[], 3).unwrap()), 2);
    }

    #[test]
    fn what_was_interrupted_is_tried_again_and_what_failed_is_not() {
        let run = |errors: &[i32]| {
            let (mut left, mut attempts) = (errors.iter(), 0);
            let outcome = persist(|| {
                attempts += 1;
                left.next().map_or(Ok(7), |errno| Err(io::Error::from_raw_os_error(*errno)))
            });
            (outcome.map_err(|error| error.raw_os_error().unwrap()), attempts)
        };
        assert_eq!(run(&[]), (Ok(7), 1));
        assert_eq!(run(&[libc::EAGAIN; 4]), (Ok(7), 5));
        assert_eq!(run(&[libc::EAGAIN; 5]), (Err(libc::EAGAIN), 5));
        assert_eq!(run(&[libc::EAGAIN, libc::EINVAL]), (Err(libc::EINVAL), 2));
    }

    #[test]
    fn an_error_of_the_system_says_what_was_tried_and_one_of_ours_speaks_for_itself() {
        let said = |error| io::Error::from(tried("loading the program")(error)).to_string();
        let errno = io::Error::from_raw_os_error(libc::EAGAIN);
        assert!(said(errno).starts_with("loading the program: Resource"));
        assert_eq!(said(taken()), taken().to_string());
    }

    #[test]
    fn what_cannot_be_translated_is_refused() {
        let across = [Instruction::load_word(10), Instruction::ret_accumulator()];
        let error = translate(&STATION, &across, 3).unwrap_err().to_string();
        assert!(error.contains("instruction 0") && error.contains("tag"), "{error}");
        assert!(translate(&STATION, &[Instruction::load_byte(0)], 3).is_err());
    }
}
