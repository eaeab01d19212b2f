// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing an image with all its content to a file.

use std::{fs::File, io, os::unix::fs::FileExt};

use crate::{BLOCK_SIZE, Error, Image};

impl Image {
    /// Writes the image to an empty file. Blocks of zeros become holes. `progress` receives the offset that is written next, and may stop
    /// the writing; `failed` makes an error of the host's.
    ///
    /// # Errors
    /// A block cannot be read or written, or `progress` stops it.
    pub fn save(&self, file: &File, progress: &dyn Fn(u64) -> io::Result<()>, failed: &dyn Fn(io::Error) -> Error) -> Result<(), Error> {
        file.set_len(self.size()).map_err(failed)?;
        self.write_to(&mut |offset, piece| {
            progress(offset).map_err(failed)?;
            write_blocks(file, offset, piece).map_err(failed)
        })
    }
}

/// Writes the blocks that are not zero.
fn write_blocks(file: &File, offset: u64, piece: &[u8]) -> io::Result<()> {
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let blocks: Vec<&[u8]> = piece.chunks(BLOCK_SIZE as usize).collect();
    let mut rest = piece;
    for run in blocks.chunk_by(|one, other| is_zero(one) == is_zero(other)) {
        let (bytes, behind) = rest.split_at(run.iter().map(|block| block.len()).sum());
        if !is_zero(run[0]) {
            file.write_all_at(bytes, offset + (piece.len() - rest.len()) as u64)?;
        }
        rest = behind;
    }
    Ok(())
}
