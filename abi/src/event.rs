// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events: virtual interrupts, one bit each, delivered in batches (Denali section 3.1.3).

/// Declares the events with bit numbers and texts in one table.
macro_rules! events {
    ($($(#[doc = $doc:literal])+ $name:ident = $bit:literal,)*) => {
        /// A virtual interrupt.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Event { $($(#[doc = $doc])+ $name = $bit,)* }

        impl Event {
            /// Every event, in order of bit.
            pub const ALL: &[Event] = &[$(Event::$name,)*];

            /// The event's name as the manual prints it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Event::$name => stringify!($name),)* }
            }

            /// The meaning of the event, in one sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Event::$name => concat!($($doc),+),)* }
            }
        }
    };
}

events! {
    /// The deadline in the timer register has passed; some amount of physical time has gone by.
    Timer = 0,
    /// The kernel took descriptors from the rings of the console or of the channel, or filled some.
    Console = 1,
    /// This cell is a new generation: identity and entropy have changed.
    Generation = 2,
    /// The operator asks the cell to end; the libOS decides how.
    Terminate = 3,
    /// The operator interrupts the program, as with Ctrl-C.
    Interrupt = 4,
    /// The operator's terminal has another size, which the virtual registers hold.
    WindowSize = 5,
    /// Frames have arrived at the network card, or its full transmit ring has room again.
    Network = 6,
    /// The operator asks the cell to become a template: the libOS freezes it once nothing in it is half done.
    Freeze = 7,
    /// The operator has opened the control channel, or descriptors of its rings were taken.
    Control = 8,
    /// A child has written output, asked for input or taken some, frozen, halted or ended.
    Child = 9,
    /// A call has begun to wait at a port of the cell, or a call that it has posted is over.
    Port = 10,
    /// The operator begins to debug the cell, or no longer does: the libOS reports its threads.
    Debug = 11,
}

/// A set of events: a bitmask as the virtual registers hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSet(pub u64);

impl EventSet {
    /// No event.
    pub const NONE: EventSet = EventSet(0);

    /// Events from the operator to one cell, which its clones do not inherit.
    pub const REQUESTS: EventSet =
        EventSet::NONE.with(Event::Terminate).with(Event::Interrupt).with(Event::Freeze).with(Event::Control).with(Event::Debug);

    /// The set with `event` added.
    #[must_use]
    pub const fn with(self, event: Event) -> EventSet {
        EventSet(self.0 | 1 << event as u8)
    }

    /// Whether `event` is in the set.
    #[must_use]
    pub const fn contains(self, event: Event) -> bool {
        self.0 & 1 << event as u8 != 0
    }

    /// The set without the events of another.
    #[must_use]
    pub const fn without(self, others: EventSet) -> EventSet {
        EventSet(self.0 & !others.0)
    }

    /// Whether the set has no event.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
