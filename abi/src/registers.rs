// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register files: those that a vCPU loads, and those that an upcall saves.

/// Declares a structure of 64-bit words whose layout in memory is the order of its fields.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name { $($(#[$field_meta])* pub $field: u64,)* }

        impl $name {
            /// Names of the words, in order.
            pub const NAMES: &[&str] = &[$(stringify!($field),)*];
            /// Number of words.
            pub const WORDS: usize = Self::NAMES.len();

            /// The words in order.
            #[must_use]
            pub const fn to_words(&self) -> [u64; Self::WORDS] {
                [$(self.$field,)*]
            }

            /// Decodes the words.
            #[must_use]
            pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
                let [$($field,)*] = words;
                Self { $($field,)* }
            }
        }
    };
}

words! {
    /// The general registers, the instruction pointer and the flags.
    #[allow(missing_docs)]
    Registers {
        rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags,
    }
}

impl Registers {
    /// The registers that carry a hypercall's arguments, in order.
    #[must_use]
    pub const fn arguments(&self) -> [u64; 5] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8]
    }
}

words! {
    /// The context that an upcall saves, in one of the two save levels: the interrupted registers and the cause.
    ///
    /// The last five words are the frame for `iretq`, so a libOS that changed nothing can point `rsp` at it.
    #[allow(missing_docs)]
    SavedContext {
        /// The vector of an exception (0 to 31), or one of [`cause`].
        cause,
        /// The error code of the exception, or the events that were delivered.
        error,
        /// The address that a page fault touched.
        address,
        rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15,
        rip,
        /// The code selector for `iretq`.
        cs,
        rflags,
        rsp,
        /// The stack selector for `iretq`.
        ss,
    }
}

/// Values of [`SavedContext::cause`] beyond the exception vectors.
pub mod cause {
    /// The instruction `syscall`: `rip` is past it, `rcx` and `r11` are as it leaves them.
    pub const SYSCALL: u64 = 0x100;
    /// Events were delivered.
    pub const EVENTS: u64 = 0x101;
}

/// A bit of a page fault's error code that no CPU sets: the page is a block of a disk that cannot be read now.
pub const UNREADABLE: u64 = 1 << 32;

/// Selector of 64-bit user code, the only code segment a cell can run in.
pub const USER_CODE: u64 = 0x2b;
/// Selector of user data.
pub const USER_DATA: u64 = 0x23;

/// Flags that a cell may set: CF PF AF ZF SF TF DF OF RF AC ID. (NT would make its own `iretq` fault.)
pub const USER_FLAGS: u64 = 0x0025_0dd5;
/// Flags that always read as set: IF and the reserved bit 1.
pub const FIXED_FLAGS: u64 = 0x202;

impl SavedContext {
    /// The registers.
    #[must_use]
    pub const fn registers(&self) -> Registers {
        let SavedContext { rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags, .. } = *self;
        Registers { rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags }
    }

    /// The context of `registers`, interrupted for `cause`.
    #[must_use]
    pub const fn new(registers: &Registers, cause: u64, error: u64, address: u64) -> SavedContext {
        let Registers { rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags } = *registers;
        SavedContext {
            cause,
            error,
            address,
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rip,
            cs: USER_CODE,
            rflags,
            rsp,
            ss: USER_DATA,
        }
    }
}
