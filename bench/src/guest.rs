// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine code for benchmarks: a few instructions, written by hand, position independent.

use pando_abi::Hypercall;
use pando_abi::hypercall::PORT;

/// `mov r64, imm64`, by the register that carries each argument of a hypercall: rdi, rsi, rdx, r10, r8.
const MOV_ARGUMENT: [[u8; 2]; 5] = [[0x48, 0xbf], [0x48, 0xbe], [0x48, 0xba], [0x49, 0xba], [0x49, 0xb8]];
/// `mov r64, [rax]`, by the same registers.
const LOAD_ARGUMENT: [[u8; 3]; 5] = [[0x48, 0x8b, 0x38], [0x48, 0x8b, 0x30], [0x48, 0x8b, 0x10], [0x4c, 0x8b, 0x10], [0x4c, 0x8b, 0x00]];

/// A position in the code to jump back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JumpTarget(usize);

/// Code under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code(Vec<u8>);

impl Code {
    /// Creates empty code.
    pub(crate) fn new() -> Code {
        Code::default()
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The current position.
    pub(crate) fn here(&self) -> JumpTarget {
        JumpTarget(self.0.len())
    }

    /// The offset of a position, in bytes.
    pub(crate) fn offset(place: JumpTarget) -> u64 {
        place.0 as u64
    }

    /// Appends instructions unchanged.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Code {
        self.0.extend_from_slice(bytes);
        self
    }

    fn relative(&mut self, to: JumpTarget) -> &mut Code {
        let from = self.0.len() + 4;
        let distance = i32::try_from(to.0 as i64 - from as i64).expect("a benchmark's code is small");
        self.raw(&distance.to_le_bytes())
    }

    /// Jumps back.
    pub(crate) fn jump(&mut self, to: JumpTarget) -> &mut Code {
        self.raw(&[0xe9]).relative(to)
    }

    /// Calls a function at an earlier position.
    pub(crate) fn call(&mut self, function: JumpTarget) -> &mut Code {
        self.raw(&[0xe8]).relative(function)
    }

    /// `rdi = value`: the first argument of a function.
    pub(crate) fn argument(&mut self, value: u64) -> &mut Code {
        self.raw(&MOV_ARGUMENT[0]).raw(&value.to_le_bytes())
    }

    /// `rbx = count`: the counter of [`Code::repeat`]. Hypercalls preserve it.
    pub(crate) fn count(&mut self, count: u64) -> &mut Code {
        self.raw(&[0x48, 0xbb]).raw(&count.to_le_bytes())
    }

    /// Decrements the counter and jumps back unless it is zero.
    pub(crate) fn repeat(&mut self, from: JumpTarget) -> &mut Code {
        self.raw(&[0x48, 0xff, 0xcb]).raw(&[0x0f, 0x85]).relative(from)
    }

    /// A hypercall with all its arguments.
    pub(crate) fn hypercall(&mut self, call: Hypercall) -> &mut Code {
        self.hypercall_with(call, &[])
    }

    /// A hypercall that takes some of its arguments, by their indexes, from addresses.
    pub(crate) fn hypercall_with(&mut self, call: Hypercall, loaded: &[(usize, u64)]) -> &mut Code {
        let (number, arguments) = call.encode();
        for (opcode, argument) in MOV_ARGUMENT.iter().zip(arguments) {
            self.raw(opcode).raw(&argument.to_le_bytes());
        }
        for (index, address) in loaded {
            self.raw(&[0x48, 0xb8]).raw(&address.to_le_bytes()).raw(&LOAD_ARGUMENT[*index]);
        }
        self.raw(&[0x48, 0xb8]).raw(&number.to_le_bytes()).out()
    }

    /// The hypercall instruction alone.
    pub(crate) fn out(&mut self) -> &mut Code {
        self.raw(&[0xe6, PORT])
    }

    /// `rcx = address`: where [`Code::write_pages`] starts. Hypercalls preserve it.
    pub(crate) fn point(&mut self, address: u64) -> &mut Code {
        self.raw(&[0x48, 0xb9]).raw(&address.to_le_bytes())
    }

    /// Writes a byte into each of `count` pages, `stride` pages apart; afterwards `rcx` points behind them. Uses the counter.
    pub(crate) fn write_pages(&mut self, count: u64, stride: u32) -> &mut Code {
        self.count(count);
        let next = self.here();
        // mov byte [rcx], 1; add rcx, stride
        self.raw(&[0xc6, 0x01, 0x01]).raw(&[0x48, 0x81, 0xc1]).raw(&(stride * 4096).to_le_bytes()).repeat(next)
    }

    /// `*address = rax`.
    pub(crate) fn store_result(&mut self, address: u64) -> &mut Code {
        self.point(address).raw(&[0x48, 0x89, 0x01])
    }

    /// `*address = value`.
    pub(crate) fn store(&mut self, address: u64, value: u64) -> &mut Code {
        self.raw(&[0x48, 0xb8]).raw(&value.to_le_bytes()).store_result(address)
    }

    /// Gives up the CPU forever, each time the cell is scheduled again.
    pub(crate) fn relinquish_for_ever(&mut self) -> &mut Code {
        let again = self.here();
        self.hypercall(Hypercall::Relinquish {}).jump(again)
    }
}

/// A function of the System V ABI that takes the address of a buffer of [`SPIN_BUFFER`] bytes and returns the TSC cycles
/// that it took. It runs `rounds` times through a loop that works on registers and the buffer (arithmetic, multiplications,
/// unpredictable loads and stores).
pub(crate) fn spin(rounds: u64) -> Vec<u8> {
    // rdtsc; shl rdx, 32; or rax, rdx
    const TSC: &[u8] = &[0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0];
    let mut code = Code::new();
    // mov r8, rax; mov rcx, rounds; mov rax, 0x9e3779b97f4a7c15
    code.raw(TSC).raw(&[0x49, 0x89, 0xc0]);
    code.raw(&[0x48, 0xb9]).raw(&rounds.to_le_bytes()).raw(&[0x48, 0xb8]).raw(&0x9e37_79b9_7f4a_7c15u64.to_le_bytes());
    let next = code.here();
    code
        // mov rdx, rax; shr rdx, 12; xor rax, rdx; mov rdx, rax; shl rdx, 25; xor rax, rdx
        .raw(&[0x48, 0x89, 0xc2, 0x48, 0xc1, 0xea, 0x0c, 0x48, 0x31, 0xd0])
        .raw(&[0x48, 0x89, 0xc2, 0x48, 0xc1, 0xe2, 0x19, 0x48, 0x31, 0xd0])
        // mov rdx, rax; shr rdx, 27; xor rax, rdx; imul rsi, rax, 0x4f6cdd1d
        .raw(&[0x48, 0x89, 0xc2, 0x48, 0xc1, 0xea, 0x1b, 0x48, 0x31, 0xd0])
        .raw(&[0x48, 0x69, 0xf0, 0x1d, 0xdd, 0x6c, 0x4f])
        // mov rdx, rax; and edx, SPIN_BUFFER - 8; add [rdi + rdx], rsi
        .raw(&[0x48, 0x89, 0xc2, 0x81, 0xe2])
        .raw(&(SPIN_BUFFER as u32 - 8).to_le_bytes())
        .raw(&[0x48, 0x01, 0x34, 0x17])
        // dec rcx; jnz next
        .raw(&[0x48, 0xff, 0xc9, 0x0f, 0x85])
        .relative(next)
        // sub rax, r8; ret
        .raw(TSC)
        .raw(&[0x4c, 0x29, 0xc0, 0xc3]);
    code.0
}

/// Bytes of the buffer that [`spin`] works on: larger than first-level caches, smaller than second-level ones.
pub(crate) const SPIN_BUFFER: usize = 256 << 10;
