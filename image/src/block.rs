// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of an image: their size and their numbers.

use pando_erofs::{BLOCK_SIZE, NULL_ADDR};

use crate::Error;

/// The bytes of a block, as a length in memory.
pub(crate) const BLOCK: usize = BLOCK_SIZE as usize;

/// A block of the image, by number. Never [`NULL_ADDR`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockNumber(u32);

impl BlockNumber {
    /// The block with this number.
    pub(crate) fn new(number: u64) -> Result<Self, Error> {
        match u32::try_from(number) {
            Ok(number) if number != NULL_ADDR => Ok(BlockNumber(number)),
            _ => Err(Error::TooLarge { blocks: number }),
        }
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }
}
