// SPDX-License-Identifier: MIT OR Apache-2.0
//! A layer's way into the store: decompressed, checked, and written as an image of blocks.

use crate::compression::decompressed;
use crate::digest::{Digest, DigestReader};
use crate::error::{Error, plain};
use crate::scratch::Scratch;
use pando_image::Builder;
use std::fs::Permissions;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The archive of a layer, compressed or not.
pub(crate) struct LayerArchive<'a> {
    /// The archive or reference that it belongs to, for errors.
    pub(crate) source: &'a str,
    /// Its name, for errors.
    pub(crate) name: &'a str,
    /// The digest of the stream as it is, if it is known.
    pub(crate) digest: Option<Digest>,
    /// The length of that.
    pub(crate) size: Option<u64>,
    /// The digest of the decompressed archive, if it is known.
    pub(crate) diff_id: Option<Digest>,
}

impl LayerArchive<'_> {
    /// Writes the layer to the file that `path` names for its digest, which is there whole or not at all; returns the digest of the
    /// decompressed archive. `progress` receives the decompressed bytes so far.
    pub(crate) fn store(
        &self,
        stream: impl Read,
        path: &dyn Fn(Digest) -> PathBuf,
        scratch: &Scratch,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Digest, Error> {
        let label = format!("{}: layer {}", self.source, self.name);
        let mut compressed = DigestReader::new(stream);
        let mut plain_archive = DigestReader::new(decompressed(&mut compressed).map_err(|error| Error::damaged(&label, plain(&error)))?);
        let file = scratch.copy(&label, &mut plain_archive, progress)?;
        let (found, _) = plain_archive.finish();
        self.check_stream(compressed)?;
        if let Some(expected) = self.diff_id.filter(|expected| *expected != found) {
            return Err(self.mismatch(expected, found));
        }
        let to = path(found);
        let mut builder = Builder::new();
        builder.layer(Path::new(&label), file, scratch.directory()).map_err(Error::from)?;
        let image = builder.image()?;
        let failed = Error::write(&to);
        let directory = to.parent().unwrap_or(Path::new("."));
        let output = tempfile::Builder::new().prefix(".pando-").tempfile_in(directory).map_err(&failed)?;
        let image_error = |source: io::Error| pando_image::Error::Write { path: to.clone(), source };
        image.save(output.as_file(), &|_| scratch.room(output.as_file()), &image_error)?;
        output.as_file().set_permissions(Permissions::from_mode(0o400)).map_err(&failed)?;
        output.as_file().sync_all().map_err(&failed)?;
        // A stored layer is never replaced: cells may have it open.
        match output.persist_noclobber(&to) {
            Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error.error)),
            _ => {}
        }
        Ok(found)
    }

    /// Checks the digest of the stream, which may have more bytes than the decompressor needed.
    fn check_stream<R: Read>(&self, mut stream: DigestReader<R>) -> Result<(), Error> {
        let Some(expected) = self.digest else { return Ok(()) };
        let most = self.size.unwrap_or(u64::MAX);
        io::copy(&mut (&mut stream).take(most), &mut io::sink())
            .map_err(|error| Error::damaged(self.source, format!("{}: {}", self.name, plain(&error))))?;
        let (found, length) = stream.finish();
        if self.size.is_some_and(|size| size != length) {
            let size = self.size.unwrap_or_default();
            return Err(Error::damaged(self.source, format!("{} has {length} bytes instead of {size}", self.name)));
        }
        if found == expected { Ok(()) } else { Err(self.mismatch(expected, found)) }
    }

    fn mismatch(&self, expected: Digest, found: Digest) -> Error {
        Error::Mismatch { origin: self.source.into(), part: format!("layer {}", self.name), expected, found }
    }
}
