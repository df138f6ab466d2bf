//! The XDP program that hands AoE to the socket and lets everything else pass.
//!
//! Loaded by bpf(2) itself: eleven instructions need no loader. It runs in the driver where that can,
//! else in the kernel's generic hook, and is detached when the link's descriptor is closed. Layouts:
//! `union bpf_attr`, `struct xdp_md` of linux/bpf.h.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context as _, Result, bail};

use crate::aoe::wire::ETHER_TYPE;

/// Commands of bpf(2).
const MAP_CREATE: i64 = 0;
const MAP_UPDATE: i64 = 2;
const PROGRAM_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
/// A map of AF_XDP sockets.
const MAP_SOCKETS: u32 = 17;
/// The type of the program, and where it is attached.
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program takes frames that lie in several pieces.
const HAS_FRAGMENTS: u32 = 1 << 5;
/// Attach in the driver, or in the generic hook.
const IN_DRIVER: u32 = 1 << 2;
const GENERIC: u32 = 1 << 1;

/// What an attached program holds.
pub(super) struct Program {
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
}

impl Program {
    /// Steers the AoE frames of an interface's first queue to `socket`; says by which hook.
    pub(super) fn attach(
        index: i32,
        socket: &OwnedFd,
        several: bool,
    ) -> Result<(Self, &'static str)> {
        let map = owned(MAP_CREATE, &words(&[MAP_SOCKETS, 4, 4, 1, 0])).context("no map")?;
        let (key, value) = (0_u32, socket.as_raw_fd());
        let mut update = [0_u8; 32];
        update[..4].copy_from_slice(&map.as_raw_fd().to_ne_bytes());
        update[8..16].copy_from_slice(&(&raw const key as u64).to_ne_bytes());
        update[16..24].copy_from_slice(&(&raw const value as u64).to_ne_bytes());
        call(MAP_UPDATE, &update).context("the map does not take the socket")?;
        let program = load(&map, several)?;
        let mut refused = None;
        for (flags, name) in [(IN_DRIVER, "xdp in the driver"), (GENERIC, "generic xdp")] {
            let attributes = words(&[program.as_raw_fd() as u32, index as u32, ATTACH_XDP, flags]);
            match owned(LINK_CREATE, &attributes) {
                Ok(link) => return Ok((Self { _link: link, _program: program, _map: map }, name)),
                Err(error) => refused = Some(error),
            }
        }
        bail!("the interface takes no XDP program: {refused:?}")
    }
}

/// One instruction: operation, destination and source registers, jump offset, immediate value.
fn instruction(operation: u8, to: u8, from: u8, jump: i16, value: i32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[0] = operation;
    bytes[1] = from << 4 | to;
    bytes[2..4].copy_from_slice(&jump.to_ne_bytes());
    bytes[4..].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// The program, for a map with this descriptor.
fn instructions(map: i32) -> Vec<u8> {
    // As a 16-bit load sees it.
    let ether_type = i32::from(u16::from_ne_bytes(ETHER_TYPE.to_be_bytes()));
    [
        instruction(0xbf, 6, 1, 0, 0),          // r6 = context
        instruction(0x61, 2, 1, 0, 0),          // r2 = data
        instruction(0x61, 3, 1, 4, 0),          // r3 = end of data
        instruction(0xbf, 4, 2, 0, 0),          // r4 = r2
        instruction(0x07, 4, 0, 0, 14),         // r4 += an Ethernet header
        instruction(0x2d, 4, 3, 8, 0),          // beyond the end: pass
        instruction(0x69, 5, 2, 12, 0),         // r5 = EtherType
        instruction(0x55, 5, 0, 6, ether_type), // another: pass
        instruction(0x61, 2, 6, 16, 0),         // r2 = queue
        instruction(0x18, 1, 1, 0, map),        // r1 = map, in two instructions
        instruction(0, 0, 0, 0, 0),
        instruction(0xb7, 3, 0, 0, 2), // r3 = XDP_PASS, when there is no socket
        instruction(0x85, 0, 0, 0, 51), // bpf_redirect_map
        instruction(0x95, 0, 0, 0, 0), // exit
        instruction(0xb7, 0, 0, 0, 2), // pass: r0 = XDP_PASS
        instruction(0x95, 0, 0, 0, 0), // exit
    ]
    .concat()
}

fn load(map: &OwnedFd, several: bool) -> Result<OwnedFd> {
    let code = instructions(map.as_raw_fd());
    let license = c"GPL";
    let mut log = vec![0_u8; 16384];
    let mut attributes = [0_u8; 72];
    attributes[..4].copy_from_slice(&PROGRAM_XDP.to_ne_bytes());
    attributes[4..8].copy_from_slice(&((code.len() / 8) as u32).to_ne_bytes());
    attributes[8..16].copy_from_slice(&(code.as_ptr() as u64).to_ne_bytes());
    attributes[16..24].copy_from_slice(&(license.as_ptr() as u64).to_ne_bytes());
    attributes[24..28].copy_from_slice(&1_u32.to_ne_bytes());
    attributes[28..32].copy_from_slice(&(log.len() as u32).to_ne_bytes());
    attributes[32..40].copy_from_slice(&(log.as_mut_ptr() as u64).to_ne_bytes());
    let flags = if several { HAS_FRAGMENTS } else { 0 };
    attributes[44..48].copy_from_slice(&flags.to_ne_bytes());
    attributes[68..72].copy_from_slice(&ATTACH_XDP.to_ne_bytes());
    owned(PROGRAM_LOAD, &attributes).with_context(|| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(0);
        format!("the kernel refuses the program: {}", String::from_utf8_lossy(&log[..end]))
    })
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn owned(command: i64, attributes: &[u8]) -> io::Result<OwnedFd> {
    let fd = call(command, attributes)?;
    // SAFETY: the commands that are called through here return a new descriptor, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn call(command: i64, attributes: &[u8]) -> io::Result<i32> {
    // SAFETY: the kernel reads the attributes, whose length is passed; what they point to lives in the
    // callers' frames, of the sizes that the command says.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), attributes.len()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_pass_jump_to_the_same_instruction() {
        let code = instructions(7);
        let at = |number: usize| &code[number * 8..number * 8 + 8];
        let target = |number: usize| {
            number as i64 + 1 + i64::from(i16::from_ne_bytes([at(number)[2], at(number)[3]]))
        };
        assert_eq!((target(5), target(7)), (14, 14));
        assert_eq!(at(14), [0xb7, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(at(9)[4..], 7_i32.to_ne_bytes());
    }
}
