// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of ports: the record that describes what a call sends and where the answer goes.
//!
//! | word | content |
//! |---|---|
//! | 0, 1 | the address and the number of the bytes to send |
//! | 2, 3 | the names of the holdings to send, two in a word; 0: none |
//! | 4 | the address of the buffer for the message that comes back, or that is received |
//! | 5 | the size of the buffer in bits 0 to 31, and in bits 32 to 39 how many holdings are accepted |
//! | 6 | written by the kernel: the result of a posted call |
//! | 7 | written by the kernel: the label of the reference by which a message was sent |
//! | 8 | written by the kernel: the name of the right to reply to a received call |
//! | 9, 10 | written by the kernel: the names of the received holdings |

use crate::HoldingName;
use crate::limits::MAX_MESSAGE_HOLDINGS;

/// Words of a record.
pub const RECORD_WORDS: usize = 11;
/// Words that the caller sets, from the first on.
pub const CALLER_WORDS: usize = 6;
/// The offset of the words that the kernel writes.
pub const ANSWER_OFFSET: u64 = CALLER_WORDS as u64 * 8;

/// A value for the result of a posted call that is not over: no call returns it.
pub const PENDING: u64 = 1 << 63;

/// Names of the holdings in a message.
pub type MessageHoldings = [Option<HoldingName>; MAX_MESSAGE_HOLDINGS];

/// The caller's part of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageRecord {
    /// The address of the bytes to send.
    pub address: u64,
    /// Their number.
    pub bytes: u64,
    /// The holdings to send.
    pub holdings: MessageHoldings,
    /// The address of the buffer for a message.
    pub buffer: u64,
    /// Its size.
    pub size: u32,
    /// How many holdings are accepted with the message.
    pub accepted: u8,
}

/// The kernel's part of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageResult {
    /// The result of a posted call.
    pub result: u64,
    /// The label of the reference by which a message was sent.
    pub label: u64,
    /// The right to reply to a received call.
    pub reply: Option<HoldingName>,
    /// The received holdings.
    pub holdings: MessageHoldings,
}

impl MessageRecord {
    /// The words of the record.
    #[must_use]
    pub fn to_words(self) -> [u64; CALLER_WORDS] {
        let [first, second] = pack(self.holdings);
        [self.address, self.bytes, first, second, self.buffer, u64::from(self.size) | u64::from(self.accepted) << 32]
    }

    /// Decodes the words. `None`: a name is that of no holding, or an undefined bit is set.
    #[must_use]
    pub fn from_words(words: [u64; CALLER_WORDS]) -> Option<MessageRecord> {
        let [address, bytes, first, second, buffer, room] = words;
        let accepted = u8::try_from(room >> 32).ok()?;
        Some(MessageRecord { address, bytes, holdings: unpack([first, second])?, buffer, size: room as u32, accepted })
    }
}

impl MessageResult {
    /// The words of the answer.
    #[must_use]
    pub fn to_words(self) -> [u64; RECORD_WORDS - CALLER_WORDS] {
        let [first, second] = pack(self.holdings);
        [self.result, self.label, self.reply.map_or(0, HoldingName::bits), first, second]
    }

    /// Decodes the words. `None`: a name is that of no holding.
    #[must_use]
    pub fn from_words([result, label, reply, first, second]: [u64; RECORD_WORDS - CALLER_WORDS]) -> Option<MessageResult> {
        let reply = if reply == 0 { None } else { Some(HoldingName::from_bits(reply)?) };
        Some(MessageResult { result, label, reply, holdings: unpack([first, second])? })
    }
}

fn pack(holdings: MessageHoldings) -> [u64; 2] {
    let [first, second, third, fourth] = holdings.map(|name| name.map_or(0, HoldingName::bits));
    [first | second << 32, third | fourth << 32]
}

fn unpack(words: [u64; 2]) -> Option<MessageHoldings> {
    let mut holdings = MessageHoldings::default();
    for (index, place) in holdings.iter_mut().enumerate() {
        let bits = words[index / 2] >> (index % 2 * 32) & u64::from(u32::MAX);
        *place = if bits == 0 { None } else { Some(HoldingName::from_bits(bits)?) };
    }
    Some(holdings)
}

#[cfg(test)]
mod tests {
    use super::{MessageRecord, MessageResult};
    use crate::HoldingName;

    #[test]
    fn records_and_answers_survive_their_words() {
        let holdings = [Some(HoldingName::new(3, 1)), None, Some(HoldingName::new(4095, 7)), None];
        let record = MessageRecord { address: 1, bytes: 2, holdings, buffer: 3, size: 4, accepted: 2 };
        assert_eq!(MessageRecord::from_words(record.to_words()), Some(record));
        let answer = MessageResult { result: 5, label: u64::MAX, reply: Some(HoldingName::ROOT), holdings };
        assert_eq!(MessageResult::from_words(answer.to_words()), Some(answer));
        // A name of generation 0, and more holdings than a byte counts.
        assert_eq!(MessageRecord::from_words([0, 0, 1, 0, 0, 0]), None);
        assert_eq!(MessageRecord::from_words([0, 0, 0, 0, 0, 1 << 40]), None);
    }
}
