//! The real libpcap, and how it comes to its verdict.

use pcap::{BpfProgram, Capture, Linktype};

/// A filter compiled by libpcap.
pub struct Libpcap {
    program: BpfProgram,
    /// Its instructions: code, jt, jf, k, as <pcap/bpf.h> defines them.
    code: Vec<[u32; 4]>,
}

/// What libpcap says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accept,
    Reject,
    /// It read bytes that the packet does not have, or divided by zero, and rejected it for that.
    Cut,
    /// It goes in circles.
    Endless,
}

impl Libpcap {
    /// libpcap's program for a filter text; `None` when its optimiser finds that nothing can match.
    pub fn compile(text: &str, optimize: bool) -> Option<Self> {
        Self::try_compile(text, optimize)
            .unwrap_or_else(|e| panic!("libpcap refuses `{text}`: {e}"))
    }

    /// The same; the error is libpcap's when it refuses the text.
    pub fn try_compile(text: &str, optimize: bool) -> Result<Option<Self>, String> {
        let program = match Capture::dead(Linktype::ETHERNET).unwrap().compile(text, optimize) {
            Ok(program) => program,
            Err(e) if e.to_string().contains("expression rejects all packets") => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        // The crate shows an instruction only as text.
        let numbers = |i: &pcap::BpfInstruction| {
            let n: Vec<u32> = i.to_string().split(' ').map(|n| n.parse().unwrap()).collect();
            n.try_into().unwrap()
        };
        let code = program.get_instructions().iter().map(numbers).collect();
        Ok(Some(Self { program, code }))
    }

    /// The verdict is libpcap's own; the steps are only followed to tell why it rejects.
    pub fn run(&self, packet: &[u8]) -> Outcome {
        let followed = self.follow(packet);
        if followed == Outcome::Endless {
            return followed;
        }
        let accepted = self.program.filter(packet);
        assert_eq!(
            accepted,
            followed == Outcome::Accept,
            "the test's stepper differs from libpcap on {packet:02x?} in {:?}",
            self.code
        );
        followed
    }

    fn follow(&self, packet: &[u8]) -> Outcome {
        let load = |at: u32, len: usize| {
            let at = at as usize;
            Some(packet.get(at..at + len)?.iter().fold(0, |n, b| (n << 8) | u32::from(*b)))
        };
        let (mut a, mut x, mut pc, mut memory) = (0_u32, 0_u32, 0_usize, [0_u32; 16]);
        for _ in 0..20_000 {
            let [code, jt, jf, k] = self.code[pc];
            pc += 1;
            let size = match code & 0x18 {
                0x00 => 4,
                0x08 => 2,
                _ => 1,
            };
            let operand = if code & 0x08 == 0 { k } else { x };
            // Classes and modes of <pcap/bpf.h>.
            let loaded = match (code & 0x07, code & 0xf0 & !0x10) {
                (0, 0x20) => load(k, size),
                (0, 0x40) => x.checked_add(k).and_then(|at| load(at, size)),
                (0, 0x00) => Some(k),
                (0, 0x60) => Some(memory[k as usize]),
                (0, 0x80) => Some(packet.len() as u32),
                (1, mode) => {
                    let loaded = match mode {
                        0xa0 => load(k, 1).map(|b| 4 * (b & 0xf)),
                        0x60 => Some(memory[k as usize]),
                        _ => Some(k),
                    };
                    x = loaded.unwrap_or(x);
                    loaded.map(|_| a)
                }
                (2, _) => {
                    memory[k as usize] = a;
                    Some(a)
                }
                (3, _) => {
                    memory[k as usize] = x;
                    Some(a)
                }
                (4, _) => match code & 0xf0 {
                    0x00 => Some(a.wrapping_add(operand)),
                    0x10 => Some(a.wrapping_sub(operand)),
                    0x20 => Some(a.wrapping_mul(operand)),
                    0x30 => a.checked_div(operand),
                    0x40 => Some(a | operand),
                    0x50 => Some(a & operand),
                    0x60 => Some(a.checked_shl(operand).unwrap_or(0)),
                    0x70 => Some(a.checked_shr(operand).unwrap_or(0)),
                    0x80 => Some(a.wrapping_neg()),
                    0x90 => a.checked_rem(operand),
                    0xa0 => Some(a ^ operand),
                    _ => panic!("instruction {code:#x} is unknown"),
                },
                (5, _) => {
                    let holds = match code & 0xf0 {
                        // Backwards in `protochain`.
                        0x00 => {
                            pc = pc.wrapping_add_signed(k as i32 as isize);
                            continue;
                        }
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        _ => a & operand != 0,
                    };
                    pc += if holds { jt } else { jf } as usize;
                    Some(a)
                }
                (6, _) => return if k == 0 { Outcome::Reject } else { Outcome::Accept },
                (7, _) => {
                    if code & 0x80 == 0 {
                        x = a;
                        Some(a)
                    } else {
                        Some(x)
                    }
                }
                _ => panic!("instruction {code:#x} is unknown"),
            };
            match loaded {
                Some(value) => a = value,
                None => return Outcome::Cut,
            }
        }
        Outcome::Endless
    }
}
