// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypercalls. One table defines numbers, decoding, guest stubs, the manual's reference page and the names in traces.
//!
//! A cell puts the number in `rax` and the arguments in `rdi`, `rsi`, `rdx`, `r10`, `r8`, then executes
//! `out 0x7e, al`. The result is in `rax`: a value, or a negated [`Refusal`](crate::Refusal). No other register changes.
//! A hypercall exists only where the kernel must protect or multiplex. The libOS does everything else.

use crate::holding::holding_of_space;
use crate::memory::NEWEST_SPACE;
use crate::{HoldingName, Registers, SpaceIndex};

/// The port of the hypercall instruction `out 0x7e, al`.
pub const PORT: u8 = 0x7e;

/// Words of a record of a `batch`: the number and the arguments.
pub const RECORD_WORDS: usize = 6;

/// One line of the table, for the manual and for traces.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The number in `rax`.
    pub number: u64,
    /// The name in lower case.
    pub name: &'static str,
    /// Names of the arguments, in order of registers.
    pub arguments: &'static [&'static str],
    /// Its description.
    pub text: &'static str,
}

/// The registers that carry arguments, in order.
pub const ARGUMENT_REGISTERS: [&str; 5] = ["rdi", "rsi", "rdx", "r10", "r8"];

/// Declares the hypercalls: number, variant, name, arguments, text.
macro_rules! hypercalls {
    ($($(#[doc = $doc:literal])+ $number:literal $variant:ident $name:ident($($argument:ident),*);)*) => {
        /// A hypercall with its arguments, still unchecked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Hypercall { $($(#[doc = $doc])+ $variant { $(#[allow(missing_docs)] $argument: u64),* },)* }

        /// The table.
        pub const TABLE: &[Description] = &[$(Description {
            number: $number, name: stringify!($name), arguments: &[$(stringify!($argument)),*], text: concat!($($doc),+),
        },)*];

        impl Hypercall {
            /// Decodes a call from the registers. `None`: no call has this number.
            #[must_use]
            pub fn decode(registers: &Registers) -> Option<Hypercall> {
                match registers.rax {
                    $($number => {
                        #[allow(unused_mut, unused_variables)]
                        let mut arguments = registers.arguments().into_iter();
                        Some(Hypercall::$variant { $($argument: arguments.next().unwrap_or_default()),* })
                    })*
                    _ => None,
                }
            }

            /// The record of the call in a `batch`.
            #[must_use]
            pub fn record(self) -> [u64; RECORD_WORDS] {
                let (number, [first, second, third, fourth, fifth]) = self.encode();
                [number, first, second, third, fourth, fifth]
            }

            /// Decodes a record of a `batch`. `None`: no call has this number.
            #[must_use]
            pub fn from_record([rax, rdi, rsi, rdx, r10, r8]: [u64; RECORD_WORDS]) -> Option<Hypercall> {
                Hypercall::decode(&Registers { rax, rdi, rsi, rdx, r10, r8, ..Registers::default() })
            }

            /// The number and the arguments as the registers carry them.
            #[must_use]
            pub fn encode(self) -> (u64, [u64; 5]) {
                match self {
                    $(Hypercall::$variant { $($argument),* } => {
                        #[allow(unused_mut)]
                        let mut arguments = [0; 5];
                        let given: &[u64] = &[$($argument),*];
                        arguments[..given.len()].copy_from_slice(given);
                        ($number, arguments)
                    })*
                }
            }

            /// The name as the manual and traces print it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Hypercall::$variant { .. } => stringify!($name),)* }
            }
        }
    };
}

/// Declares the calls that are about a space, which is an argument of them.
macro_rules! calls_about_a_space {
    ($($variant:ident),*) => {
        impl Hypercall {
            /// The space that the call is about, if it names one.
            #[must_use]
            pub const fn space(&self) -> Option<u64> {
                match self {
                    $(Hypercall::$variant { space, .. } => Some(*space),)*
                    _ => None,
                }
            }

            /// The same call about another space. Other calls stay as they are.
            #[must_use]
            pub fn with_space(mut self, other: u64) -> Hypercall {
                match &mut self {
                    $(Hypercall::$variant { space, .. } => *space = other,)*
                    _ => {}
                }
                self
            }
        }
    };
}

impl Hypercall {
    /// Whether the call is about a holding, whose name is its first argument.
    #[must_use]
    pub const fn is_about_holding(&self) -> bool {
        matches!(
            self,
            Hypercall::CellClone { .. }
                | Hypercall::CellRun { .. }
                | Hypercall::CellStop { .. }
                | Hypercall::CellEnd { .. }
                | Hypercall::Drop { .. }
                | Hypercall::CellState { .. }
                | Hypercall::CellLimit { .. }
                | Hypercall::CellName { .. }
                | Hypercall::CellRaise { .. }
                | Hypercall::Grant { .. }
                | Hypercall::ConsoleRead { .. }
                | Hypercall::ConsoleWrite { .. }
                | Hypercall::CellWatch { .. }
                | Hypercall::CellResume { .. }
                | Hypercall::StateRead { .. }
                | Hypercall::StateWrite { .. }
                | Hypercall::Donate { .. }
                | Hypercall::ImageList { .. }
                | Hypercall::CellChild { .. }
        )
    }

    /// The same call, about `space` if it names [`NEWEST_SPACE`].
    #[must_use]
    pub fn for_newest_space(self, space: SpaceIndex) -> Hypercall {
        if self.space() == Some(NEWEST_SPACE) { self.with_space(space.0.into()) } else { self }
    }

    /// The same call, about `child` if it names [`HoldingName::NEWEST`].
    #[must_use]
    pub fn for_newest(self, child: HoldingName) -> Hypercall {
        let newest = HoldingName::NEWEST.bits();
        let mut record = self.record();
        match self.space() {
            Some(space) if holding_of_space(space) == Some(newest) => return self.with_space(child.space(space as u32)),
            None if self.is_about_holding() && record[1] == newest => record[1] = child.bits(),
            _ => return self,
        }
        Hypercall::from_record(record).unwrap_or(self)
    }
}

calls_about_a_space!(
    Map,
    Unmap,
    Protect,
    SpaceClone,
    SpaceSwitch,
    SpaceDestroy,
    SegmentMount,
    Inspect,
    Write,
    Read,
    MapBlocks,
    Populate,
    Count,
    Take,
    Give,
    PagesRead,
    PagesWrite
);

hypercalls! {
    /// Ends the cell. `signal` is 0 if a program ended with `status`; otherwise it is the Linux signal that ended it, `address`
    /// the accessed address and `instruction` the instruction pointer. `status` and `signal` are below 256. Never returns.
    0 Exit exit(status, signal, address, instruction);
    /// Gives up the CPU until an unmasked event is pending or the clock reaches `deadline` (nanoseconds of the cell's
    /// clock; all ones: no deadline). Vector registers do not survive it. Returns the pending events.
    1 Idle idle(deadline);
    /// Declares the cell ready to be a template and stops it; it never runs again. Vector registers do not survive it.
    /// Returns, in each clone, the clone's generation.
    2 Freeze freeze();
    /// Maps `pages` pages of anonymous zero memory at `address` of `space` with `flags` (permissions, time of
    /// allocation, page size). Earlier mappings there are removed first. Returns 0.
    3 Map map(space, address, pages, flags);
    /// Unmaps `pages` pages at `address` of `space`. Returns 0.
    4 Unmap unmap(space, address, pages);
    /// Sets the permissions of all mappings in `pages` pages at `address` of `space`. Returns 0.
    5 Protect protect(space, address, pages, permissions);
    /// Makes a space that holds nothing but the system segment. Returns its index.
    6 SpaceCreate space_create();
    /// Clones `space`: private memory copy-on-write, segments shared. Returns the clone's index.
    7 SpaceClone space_clone(space);
    /// Continues in `space`. Returns 0.
    8 SpaceSwitch space_switch(space);
    /// Destroys `space`, which must not be the running one. Returns 0.
    9 SpaceDestroy space_destroy(space);
    /// Makes an empty segment. Returns its index.
    10 SegmentCreate segment_create();
    /// Mounts `segment` at `address` of `space`, a free multiple of 512 GiB. All spaces that mount a segment share it. Returns 0.
    11 SegmentMount segment_mount(segment, space, address);
    /// Destroys `segment`, which must not be mounted. Returns 0.
    12 SegmentDestroy segment_destroy(segment);
    /// Makes the kernel process the rings now. Returns 0.
    13 Doorbell doorbell();
    /// Returns the state of the page at `address` of `space`: permissions in bits 0 to 2, bit 3 resident, bit 4 lazy, bit 5 in a large
    /// page, bit 6 a block of a disk that is not resident, with its number in bits 12 to 43, bit 7 taken by the cell's parent. Returns 0
    /// where nothing is mapped.
    14 Inspect inspect(space, address);
    /// Gives up the rest of the quantum, staying runnable. Vector registers do not survive it. Returns 0.
    15 Relinquish relinquish();
    /// Copies `bytes` bytes (1 to 4096) from `source` in the running space to `address` of `space`, regardless of the
    /// permissions there, which do not change. Returns 0.
    16 Write write(space, address, source, bytes);
    /// Maps `pages` blocks of a disk at `address` of `space` with `flags` (permissions, time of allocation). `block`
    /// is the first, with the disk's index in its upper and the block's number in its lower half. A written page
    /// becomes the cell's private copy. Earlier mappings there are removed first. Returns 0.
    17 MapBlocks map_blocks(space, address, pages, block, flags);
    /// Makes `pages` mapped pages at `address` of `space` present, so that reading them does not fault: zero memory is
    /// allocated, blocks of disks are read. Blocks that cannot be read stay as they are. Returns 0.
    18 Populate populate(space, address, pages);
    /// Counts the resident pages of `pages` pages at `address` of `space`. Returns their number in bits 0 to 27, and
    /// in bits 28 to 55 the number of those without another holder: no other space or cell, nor the registry. A
    /// segment is one holder, however many spaces share it.
    19 Count count(space, address, pages);
    /// Freezes like `freeze`, if the operator's request, as announced by event `Freeze`, still stands. If not, it
    /// returns the cell's own generation at once. `unaware` is 1 if programs run that do not notice that they were
    /// cloned, so that clones' random numbers may not be distinct, and 0 otherwise. Vector registers do not survive it.
    20 FreezeIfAsked freeze_if_asked(unaware);
    /// Performs `calls` (1 to 64) calls about memory, spaces, segments and held cells, in order; other calls are refused. Their
    /// records lie at `address` of the running space: six words each, the number and five arguments. The name 1 means the child that the
    /// batch has made last, and a space of all ones but the lowest bit the space that it has made last. Returns how many were performed:
    /// fewer than `calls` if the next one was refused. If that is the first, returns its refusal. The upper half of the result is the
    /// name of the child, or the index of the space, that was made last; other results are lost.
    21 Batch batch(address, calls);
    /// Makes a child of the caller: a clone of the held cell `source`, which must be frozen, idle, not started, or halted by `cell_stop`;
    /// a clone of a halted cell continues as if that had been frozen at the present time. The child has `source`'s
    /// registers, memory and disks, and no holdings. Its memory counts against its `quota` (pages) and against those of all its ancestors.
    /// It may have `cells` descendants. It keeps `source`'s limit of CPU time; its CPU weight is 100. Returns the child's holding.
    22 CellClone cell_clone(source, quota, cells);
    /// Starts a child. Returns 0.
    23 CellRun cell_run(cell);
    /// Stops a child. With `how` 0 or 1 it becomes a template: its libOS is asked, or it is frozen as it stands. With 2 it is halted until
    /// `cell_resume`. The child has stopped once `cell_state` reports that. Returns 0. With 3 a request to freeze is withdrawn: returns 1
    /// if that was in time, and 0 if the child is frozen.
    24 CellStop cell_stop(cell, how);
    /// Ends a child and all its descendants: one that runs on another vCPU ends soon afterwards, as `cell_state` then reports, and only
    /// then are its memory and its place free. Its state and its unread output stay until the holding is dropped. Returns 0.
    25 CellEnd cell_end(cell);
    /// Gives up a holding. A child ends. Returns 0.
    26 Drop drop(holding);
    /// Returns a fact about a child. `fact` 0: its state, with the kind in bits 0 to 7, and in bits 8 to 15 the exit status, the signal
    /// that ended it, or whether it has asked for input. 1: its CPU time in nanoseconds. 2 and 3: the pages that it uses, its descendants
    /// included, and the most that it has used. 4: its exits.
    27 CellState cell_state(cell, fact);
    /// Limits a child, which stays limited by its ancestors' limits too: `kind` 0 its memory in pages, 1 its descendants, 2 its CPU time in
    /// thousandths of a CPU. A memory limit below the child's use is refused. `kind` 3 sets its CPU weight among the caller's children,
    /// from 0 to 10000; with 0 it runs only while the caller donates time. Returns 0.
    28 CellLimit cell_limit(cell, kind, value);
    /// Sets the host name of a child that has not started, from `bytes` bytes of UTF-8 (at most 64) at `address`. Returns 0.
    29 CellName cell_name(cell, address, bytes);
    /// Raises event `Terminate` (3), `Interrupt` (4), `WindowSize` (5) or `Debug` (11) for a child, which it notices at once. For
    /// `WindowSize`, `value` is the rows in bits 16 to 31 and the columns in bits 0 to 15. Returns 0.
    30 CellRaise cell_raise(cell, event, value);
    /// Gives a child a holding of the caller's: a template, a reference, or a new reference to a port with this `label`, which is 0 for
    /// other holdings. With `cell` 0 the caller itself gets it. Returns the name for it.
    31 Grant grant(cell, holding, label);
    /// Copies output of a child, at most `bytes` bytes (at most 65536) of one stream, to `address`. Returns the number of bytes in bits 0
    /// to 31 and the stream's tag in bits 32 to 39; 0: nothing yet; bit 40: the child has ended or is frozen, and all was read. `port` is 0
    /// for its console, and 1 for its control channel, which is opened by the first call. With `bytes` 0, the stream with the tag `address`
    /// is closed for reading: the child's writes to it fail as those to a pipe without a reader.
    32 ConsoleRead console_read(cell, address, bytes, port);
    /// Sends `bytes` bytes (at most 65536) at `address` to a child's input. Returns how many there was room for. With `bytes` 0, the
    /// input ends. `port` is that of `console_read`.
    33 ConsoleWrite console_write(cell, address, bytes, port);
    /// Copies `bytes` bytes (1 to 4096) at `address` of `space` of a child, regardless of the permissions there, to `target` in the running
    /// space of the caller. Returns 0.
    34 Read read(space, address, target, bytes);
    /// Halts a child from now on when an event of `mask` happens in it: bit 0, a debug or breakpoint exception of its program; bit 1, a
    /// `syscall` of its program; bit 2, its libOS calls `report`; bit 3, its memory quota, or an ancestor's, is used up. The child cannot
    /// notice it. Returns 0.
    35 CellWatch cell_watch(cell, mask);
    /// Lets a halted child continue. With `how` 0 it continues as its registers say, and the exception or `syscall` that halted it is taken
    /// as handled. With 1 it also executes a single instruction, and a debug exception follows; no event comes before. With 2 the exception
    /// or `syscall` goes to its libOS. Returns 0.
    36 CellResume cell_resume(cell, how);
    /// Copies state of a halted child to `address`, at most `bytes` bytes. `kind` 0: the reason for the halt, five words. 1: the context,
    /// 22 words: the registers, the bases of FS and GS, the address of the last page fault, and pending events of the CPU. 2: the vector
    /// state, as `XSAVE` stores it. 3: the registers of its program, 18 words: those of the context, or those on save level 0 while the
    /// libOS runs. 4: records of its living descendants, also if it is not halted: as many whole ones as fit, after as many as the upper
    /// half of `kind` says. 5: the mounts of its spaces, two words each: the space and the address of a slot; the upper half of `kind` is
    /// the number of mounts to leave out. 6: a bitmap of the swap numbers in its memory, from the upper half of `kind` on. Of a child that
    /// was not started: 7, all of its state but its memory; 8, its spaces and segments. Of a child that is halted or was not started: 10,
    /// records of its holdings, eight words each, from the upper half of `kind` on; 11, output and input on its console that were not read,
    /// after as many bytes as the upper half of `kind` says. Returns the number of bytes.
    37 StateRead state_read(cell, kind, address, bytes);
    /// Sets state of a halted child from `bytes` bytes at `address`: its whole context (`kind` 1), its vector state (2)
    /// or the registers of its program (3). Builds a child that was not started from an image: its spaces and segments (8), which removes
    /// all of its memory; extents of their content, as `image_list` lists them (9), taken pages included; all of its other state (7);
    /// its next holdings (10), with clones of the caller's root as children, at most 32 in a call; more for its console (11). With `kind` 0
    /// it halts with this reason when it is started. Returns 0.
    38 StateWrite state_write(cell, kind, address, bytes);
    /// Halts the calling cell if its parent or the operator watches for that, which finds the arguments in the reason. Returns 0. Refused
    /// with `WrongState` if neither does.
    39 Report report(kind, first, second, third);
    /// Runs a child and its descendants in place of the caller, for at most `time` nanoseconds of CPU time (not 0). The caller waits; the
    /// time counts as its own. Returns why it continues. 0: the time is over. 1: no cell of the child's family waits for a vCPU. 2: the
    /// child has ended. 3: the child was not started, or is halted or frozen. 4: an unmasked event is pending for the caller.
    40 Donate donate(cell, time);
    /// Takes pages out of a halted child: the first ones at or after `address` of `space`, in its slot, for which the child pays, as far as
    /// they are consecutive, at most `pages` (1 to 128). Other spaces that share them at the same address lose them, too. Copies them to
    /// `buffer`, a page boundary in the running space, and leaves swap entries with the numbers `swap`, `swap` + 1 and so on (32 bits). The
    /// libOS's pages stay. Returns in bits 0 to 31 how many pages lie between `address` and the first, and in bits 32 to 63 how many were
    /// taken; 0 if none was found as far as was searched.
    41 Take take(space, address, pages, buffer, swap);
    /// Gives pages back to a child that is halted or was not started: the content of those of `pages` pages (1 to 128) at `address` of
    /// `space` whose swap entries have the numbers `swap`, `swap` + 1 and so on, up to the first other entry, lies at `buffer`, a page
    /// boundary in the running space. The child pays for them. Returns their number.
    42 Give give(space, address, pages, buffer, swap);
    /// Makes a port, at which the caller receives calls. Returns its name.
    43 PortCreate port_create();
    /// Sends the message that the record at `message` describes to the port of a reference, and waits until it is answered, at
    /// most until `deadline` (nanoseconds of the cell's clock; all ones: none). Returns the number of bytes of the reply. With `deadline` 0
    /// the call is posted: the caller goes on, and gets the result later, in the record, with event `Port`. The record and its memory must
    /// stay until then. Returns the posted call's name, and `drop` withdraws it. Vector registers do not survive a call that waits.
    44 Call call(reference, message, deadline);
    /// Takes the call that is next at a port, or waits for one until `deadline`; with 0 it does not wait. The message, its label, and
    /// the name of the right to reply go where the record at `message` says. If `reply` is not 0, the message is sent as by `reply` first,
    /// and the register of `reply` becomes 0. Returns the number of bytes. Vector registers do not survive a call that waits.
    45 Receive receive(port, message, deadline, reply);
    /// Answers a call with the message that the record at `message` describes, which uses up the right to reply. Returns 0; 1: nobody waits
    /// for the answer any more.
    46 Reply reply(reply, message);
    /// Lists the memory of a child that was not started, as records of four words, at `address`, at most `bytes` bytes (40 to 65536). They
    /// begin with a word: the position of the next records, all ones if there are none. The first `position` is 0. `base` is another such
    /// child, whose memory the list is the difference to; tables that both share are skipped. 0: everything is listed. Returns the number
    /// of bytes.
    47 ImageList image_list(cell, base, position, address, bytes);
    /// Copies `pages` pages (1 to 128) at `address` of `space` of a child that was not started to `buffer`, a page boundary in the running
    /// space, regardless of the permissions in the child. Returns 0.
    48 PagesRead pages_read(space, address, pages, buffer);
    /// Copies `pages` pages (1 to 128) at `buffer`, a page boundary in the running space, to mapped pages at `address` of `space` of a
    /// child that was not started, regardless of the permissions there, which do not change. Returns 0.
    49 PagesWrite pages_write(space, address, pages, buffer);
    /// Makes a view of the cell that a child holds as its child `name`. The calls about children take it, except those about the console
    /// and `donate`. `cell` may be a view. Dropping it does not end the cell. Returns its name.
    50 CellChild cell_child(cell, name);
}

#[cfg(test)]
mod tests {
    use super::{Hypercall, TABLE};
    use crate::{HoldingName, Registers};

    #[test]
    fn every_call_decodes_to_the_encoded_one() {
        for description in TABLE {
            let registers = Registers { rax: description.number, rdi: 1, rsi: 2, rdx: 3, r10: 4, r8: 5, ..Registers::default() };
            let call = Hypercall::decode(&registers).expect("the table's numbers decode");
            let (number, arguments) = call.encode();
            assert_eq!((number, call.name()), (description.number, description.name));
            let given = description.arguments.len();
            assert_eq!(arguments[..given], registers.arguments()[..given]);
            assert_eq!(Hypercall::from_record(call.record()), Some(call));
        }
        let last = TABLE.iter().map(|description| description.number).max().expect("there are calls");
        assert_eq!(Hypercall::decode(&Registers { rax: last + 1, ..Registers::default() }), None);
    }

    #[test]
    fn the_newest_child_is_named_by_calls_about_holdings_and_spaces_only() {
        let (newest, child) = (HoldingName::NEWEST, HoldingName::new(7, 3));
        for description in TABLE {
            let of = |value| Hypercall::from_record([description.number, value, value, value, value, value]).expect("the table's numbers");
            // The arguments that are changed.
            let changed = |value| {
                let call = of(value);
                let (before, after) = (call.encode().1, call.for_newest(child).encode().1);
                core::array::from_fn::<bool, 5, _>(|index| before[index] != after[index])
            };
            let is_holding = matches!(description.arguments.first(), Some(&("cell" | "source" | "holding")));
            assert_eq!(changed(newest.bits()), core::array::from_fn(|index| index == 0 && is_holding), "{}", description.name);
            let space = description.arguments.iter().position(|argument| *argument == "space");
            assert_eq!(changed(newest.space(2)), core::array::from_fn(|index| Some(index) == space), "{}", description.name);
        }
    }
}
