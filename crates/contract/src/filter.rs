//! Classic BPF programs: the instructions that filters of links are made of, and what they mean.
//!
//! The kernel runs such programs for packet sockets; where it does not (AF_XDP, the simulator),
//! [`run`] does. In: a program and a frame from its destination address on. Out: what the program
//! returns: bytes to take (0: none), or the number of a shard. As in the kernel, a load beyond the
//! frame's end returns 0. Numbers are big-endian, as on the wire. Errors: an instruction that is
//! not known here returns 0; [`is_sound`] tells before. Reference: `linux/filter.h`, McCanne and
//! Jacobson, "The BSD Packet Filter".

use crate::link::Instruction;

/// Accumulator = the 32 bits at the operand.
const LOAD_WORD: u16 = 0x20;
/// Accumulator = the 16 bits at the operand.
const LOAD_HALF: u16 = 0x28;
/// Accumulator = the byte at the operand.
const LOAD_BYTE: u16 = 0x30;
/// Accumulator = the frame's length.
const LOAD_LENGTH: u16 = 0x80;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const MULTIPLY: u16 = 0x24;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const XOR_INDEX: u16 = 0xac;
const TO_INDEX: u16 = 0x07;
const RETURN: u16 = 0x06;
const RETURN_ACCUMULATOR: u16 = 0x16;

const KNOWN: [u16; 14] = [
    LOAD_WORD,
    LOAD_HALF,
    LOAD_BYTE,
    LOAD_LENGTH,
    JUMP_EQUAL,
    JUMP_AT_LEAST,
    JUMP_ANY_BIT,
    MULTIPLY,
    AND,
    SHIFT_RIGHT,
    XOR_INDEX,
    TO_INDEX,
    RETURN,
    RETURN_ACCUMULATOR,
];

/// The longest program that the kernel takes.
pub const LENGTH_MAX: usize = 4096;

impl Instruction {
    const fn plain(code: u16, operand: u32) -> Instruction {
        Instruction { code, jump_true: 0, jump_false: 0, operand }
    }

    const fn jump(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
        Instruction { code, jump_true, jump_false, operand }
    }

    /// Accumulator = the 32 bits at `at`.
    pub const fn load_word(at: u32) -> Instruction {
        Instruction::plain(LOAD_WORD, at)
    }

    /// Accumulator = the 16 bits at `at`.
    pub const fn load_half(at: u32) -> Instruction {
        Instruction::plain(LOAD_HALF, at)
    }

    /// Accumulator = the byte at `at`.
    pub const fn load_byte(at: u32) -> Instruction {
        Instruction::plain(LOAD_BYTE, at)
    }

    /// Accumulator = the frame's length.
    pub const fn load_length() -> Instruction {
        Instruction::plain(LOAD_LENGTH, 0)
    }

    /// Skips `yes` instructions if the accumulator is `value`, else `no`.
    pub const fn if_equal(value: u32, yes: u8, no: u8) -> Instruction {
        Instruction::jump(JUMP_EQUAL, value, yes, no)
    }

    /// Skips `yes` instructions if the accumulator is `value` or more, else `no`.
    pub const fn if_at_least(value: u32, yes: u8, no: u8) -> Instruction {
        Instruction::jump(JUMP_AT_LEAST, value, yes, no)
    }

    /// Skips `yes` instructions if the accumulator has one of the bits, else `no`.
    pub const fn if_any_bit(bits: u32, yes: u8, no: u8) -> Instruction {
        Instruction::jump(JUMP_ANY_BIT, bits, yes, no)
    }

    /// Accumulator times `factor`, modulo 2^32.
    pub const fn multiply(factor: u32) -> Instruction {
        Instruction::plain(MULTIPLY, factor)
    }

    /// Accumulator and `bits`.
    pub const fn and(bits: u32) -> Instruction {
        Instruction::plain(AND, bits)
    }

    /// Accumulator shifted right.
    pub const fn shift_right(by: u32) -> Instruction {
        Instruction::plain(SHIFT_RIGHT, by)
    }

    /// Accumulator exclusive or index.
    pub const fn xor_index() -> Instruction {
        Instruction::plain(XOR_INDEX, 0)
    }

    /// Index = accumulator.
    pub const fn to_index() -> Instruction {
        Instruction::plain(TO_INDEX, 0)
    }

    /// Ends with `value`.
    pub const fn ret(value: u32) -> Instruction {
        Instruction::plain(RETURN, value)
    }

    /// Ends with the accumulator.
    pub const fn ret_accumulator() -> Instruction {
        Instruction::plain(RETURN_ACCUMULATOR, 0)
    }

    /// Whether it loads from the frame at its operand.
    pub const fn is_absolute_load(&self) -> bool {
        matches!(self.code, LOAD_WORD | LOAD_HALF | LOAD_BYTE)
    }
}

/// Whether a program is one that [`run`] and the kernel carry out: known instructions, jumps within
/// it, and an end.
pub fn is_sound(program: &[Instruction]) -> bool {
    let jumps_within = |(at, one): (usize, &Instruction)| {
        let furthest = match one.code {
            JUMP_EQUAL | JUMP_AT_LEAST | JUMP_ANY_BIT => one.jump_true.max(one.jump_false),
            _ => 0,
        };
        at + 1 + usize::from(furthest) <= program.len() && KNOWN.contains(&one.code)
    };
    program.len() <= LENGTH_MAX
        && program.iter().enumerate().all(jumps_within)
        && matches!(program.last(), Some(last) if matches!(last.code, RETURN | RETURN_ACCUMULATOR))
}

/// Runs a program on a frame.
pub fn run(program: &[Instruction], frame: &[u8]) -> u32 {
    let (mut accumulator, mut index, mut at) = (0_u32, 0_u32, 0);
    while let Some(Instruction { code, jump_true, jump_false, operand }) = program.get(at).copied()
    {
        at += 1;
        let load = |bytes: usize| {
            let begin = operand as usize;
            let bytes = frame.get(begin..begin.checked_add(bytes)?)?;
            Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
        };
        let mut jump = |holds| at += usize::from(if holds { jump_true } else { jump_false });
        accumulator = match code {
            LOAD_WORD | LOAD_HALF | LOAD_BYTE => {
                let bytes = match code {
                    LOAD_WORD => 4,
                    LOAD_HALF => 2,
                    _ => 1,
                };
                let Some(value) = load(bytes) else { return 0 };
                value
            }
            LOAD_LENGTH => frame.len() as u32,
            JUMP_EQUAL | JUMP_AT_LEAST | JUMP_ANY_BIT => {
                jump(match code {
                    JUMP_EQUAL => accumulator == operand,
                    JUMP_AT_LEAST => accumulator >= operand,
                    _ => accumulator & operand != 0,
                });
                accumulator
            }
            MULTIPLY => accumulator.wrapping_mul(operand),
            AND => accumulator & operand,
            SHIFT_RIGHT => accumulator.checked_shr(operand).unwrap_or(0),
            XOR_INDEX => accumulator ^ index,
            TO_INDEX => {
                index = accumulator;
                accumulator
            }
            RETURN => return operand,
            RETURN_ACCUMULATOR => return accumulator,
            _ => return 0,
        };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_compute_what_they_say() {
        let frame = [0x12, 0x34, 0x56, 0x78, 0x9a];
        let ends = |first: &[Instruction]| {
            let program = [first, &[Instruction::ret_accumulator()]].concat();
            assert!(is_sound(&program));
            run(&program, &frame)
        };
        assert_eq!(ends(&[Instruction::load_word(1)]), 0x3456_789a);
        assert_eq!(ends(&[Instruction::load_half(2)]), 0x5678);
        assert_eq!(ends(&[Instruction::load_length()]), 5);
        assert_eq!(ends(&[Instruction::load_word(2)]), 0, "beyond the end");
        assert_eq!(ends(&[Instruction::load_byte(u32::MAX)]), 0);
        let mixed = [
            Instruction::load_half(0),
            Instruction::to_index(),
            Instruction::load_byte(4),
            Instruction::xor_index(),
            Instruction::multiply(0x0001_0001),
            Instruction::shift_right(4),
            Instruction::and(0xffff),
        ];
        let expected = (((0x1234 ^ 0x9a_u32) * 0x0001_0001) >> 4) & 0xffff;
        assert_eq!(ends(&mixed), expected);
    }

    #[test]
    fn jumps_skip_what_they_say() {
        let program =
            |test| [Instruction::load_byte(0), test, Instruction::ret(1), Instruction::ret(2)];
        assert_eq!(run(&program(Instruction::if_equal(7, 1, 0)), &[7]), 2);
        assert_eq!(run(&program(Instruction::if_equal(7, 1, 0)), &[8]), 1);
        assert_eq!(run(&program(Instruction::if_at_least(7, 0, 1)), &[6]), 2);
        assert_eq!(run(&program(Instruction::if_any_bit(6, 1, 0)), &[2]), 2);
        assert_eq!(run(&program(Instruction::if_any_bit(6, 1, 0)), &[9]), 1);
    }

    #[test]
    fn unsound_programs_are_known() {
        assert!(!is_sound(&[]));
        assert!(!is_sound(&[Instruction::load_byte(0)]), "without an end");
        assert!(!is_sound(&[Instruction::if_equal(0, 3, 0), Instruction::ret(0)]), "out of it");
        let unknown = Instruction { code: 0x1234, jump_true: 0, jump_false: 0, operand: 0 };
        assert!(!is_sound(&[unknown, Instruction::ret(0)]));
    }
}
