// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell sees: a list of read-only images and where each is mounted. `docs/what-a-cell-sees.md` says it for people.
//!
//! Without `--root` the first image is the host's software, of which the metadata is kept from one start to the next
//! ([`kept`]); where the program lies elsewhere, its installation prefix is the next ([`places`]); the last is the
//! current directory. Those two are looked at each time. Nothing of the files is read before the cell does.

mod account;
mod asked;
mod kept;
mod parts;
mod places;
#[cfg(test)]
mod tests;

use crate::options::User;
use crate::progress::Progress;
use crate::say;
use kept::Renewal;
use pando_abi::layout::SLOT_SIZE;
use pando_confine::{Authority, Owned, Paths};
use pando_image::{Attributes, Builder, Cache, Error, HostFile, Image, Kind, Readable, Replaced, Sign, Walk};
use places::Surroundings;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use account::Account;
pub(crate) use asked::Asked;
pub(crate) use parts::add as add_parts;

/// Directories that stand in every root, empty where the image has none: name and permissions.
const EMPTY: [(&str, u16); 8] = [
    ("/root", 0o700),
    ("/home", 0o755),
    ("/tmp", 0o1777),
    ("/var", 0o755),
    ("/run", 0o755),
    ("/proc", 0o555),
    ("/dev", 0o755),
    ("/sys", 0o555),
];
/// What a prefix or a directory may hold, so that one start does not walk through a whole file server.
const WALKED_MAX: u64 = 1_000_000;

/// An image, and the directory of the cell that its root stands for.
#[derive(Debug)]
pub(crate) struct Volume {
    /// An absolute path without links.
    pub(crate) mount: Vec<u8>,
    /// What is seen there.
    pub(crate) image: Image,
    /// What keeps the image from one start to the next.
    cache: Option<Cache>,
}

/// All that a cell sees, the root first, what is mounted in something else behind it.
#[derive(Debug)]
pub(crate) struct View {
    /// The images.
    pub(crate) volumes: Vec<Volume>,
    /// Files and directories of the host that it shows.
    reach: Vec<PathBuf>,
    /// What of root's authority is needed to read and to change these as they are.
    authority: Authority,
    renewal: Option<Renewal>,
}

/// Why a view cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    /// The host, or an image, says no.
    #[error(transparent)]
    Image(#[from] Error),
    /// The current directory cannot be shown.
    #[error("the current directory cannot be shown: {0}\n       start elsewhere, or with --bare")]
    Directory(Error),
}

impl View {
    /// The host's software, with what the program needs besides, and the current directory. O(1) in the size of the
    /// software, if that is known from an earlier start; the current directory is looked at each time.
    ///
    /// # Errors
    /// The host refuses something, or the current directory is enormous.
    pub(crate) fn of_host(program: Option<&Path>, surroundings: &Surroundings) -> Result<View, ViewError> {
        let (image, cache, renewal) = kept::open(surroundings.cache.as_deref())?;
        let mut view = View {
            volumes: vec![Volume { mount: b"/".to_vec(), image, cache }],
            reach: kept::tops(),
            authority: Authority::default(),
            renewal,
        };
        let directory = surroundings.shown_directory();
        let mut unseen = None;
        if let Some(program) = program
            && view.volumes[0].image.find(program.as_os_str().as_bytes())? != Some(Kind::File)
        {
            unseen = Some(program);
            for prefix in surroundings.prefixes(program) {
                if directory.is_none_or(|directory| !prefix.starts_with(directory)) {
                    view.add_prefix(&prefix)?;
                }
            }
        }
        if let Some(directory) = directory
            && !view.volumes[1..].iter().any(|volume| directory.starts_with(OsStr::from_bytes(&volume.mount)))
        {
            view.add_current(directory)?;
        }
        if let Some(directory) = &surroundings.directory {
            view.add_directory(directory)?;
        }
        if let Some(program) = unseen {
            view.add_program(program)?;
        }
        Ok(view)
    }

    /// Nothing of the host but the program, and the name of the current directory.
    ///
    /// # Errors
    /// The program cannot be looked at.
    pub(crate) fn bare(program: Option<&Path>, surroundings: &Surroundings) -> Result<View, ViewError> {
        let mut builder = Builder::new();
        add_empty(&mut builder)?;
        let mut view = View::of_image(builder.image()?);
        if let Some(directory) = &surroundings.directory {
            view.add_directory(directory)?;
        }
        if let Some(program) = program {
            view.add_program(program)?;
        }
        Ok(view)
    }

    /// What a directory, a tar archive or an image holds.
    ///
    /// # Errors
    /// It cannot be read, or is none of these.
    pub(crate) fn of_root(root: &Path) -> Result<View, ViewError> {
        let mut authority = Authority::default();
        let mut image = open_root(root, &mut authority)?;
        for (path, permissions) in EMPTY {
            image.add_directory(path.as_bytes(), Attributes::root(permissions))?;
        }
        let mut view = View { authority, ..View::of_image(image) };
        view.reach.push(root.into());
        Ok(view)
    }

    /// Shows a file or directory of the host at a path of the cell. Returns the path that it has there.
    ///
    /// # Errors
    /// It cannot be read, or something is in its way.
    pub(crate) fn show(&mut self, host: &Path, cell: &Path) -> Result<Vec<u8>, ViewError> {
        let real = host.canonicalize().map_err(|source| Error::Host { path: host.into(), source })?;
        let place = if real.is_dir() {
            refuse_kernel(&real)?;
            // What cannot be read below it is left out, but not all of it.
            std::fs::read_dir(&real).map_err(|source| Error::Host { path: host.into(), source })?;
            let mount = self.add_directory(cell)?;
            self.volumes.push(Volume { mount: mount.clone(), image: walked(&real, &mut self.authority)?.image()?, cache: None });
            mount
        } else {
            let metadata = real.metadata().map_err(|source| Error::Host { path: host.into(), source })?;
            self.authority = self.authority.and(Authority::over([Owned::from(&metadata)]));
            let file = HostFile::new(&real)?;
            let (volume, path) = self.covering(cell);
            volume.image.add_file(&path, &file)?;
            cell.as_os_str().as_bytes().to_vec()
        };
        self.reach.push(real);
        Ok(place)
    }

    /// Goes on showing files that were replaced or removed.
    fn read_replaced(&mut self, replaced: &Arc<Replaced>) {
        for volume in &mut self.volumes {
            volume.image.read_replaced(Arc::clone(replaced));
        }
    }

    /// Sees to it that there is a directory at a path of the cell; returns the path without links.
    ///
    /// # Errors
    /// Something is in its way.
    pub(crate) fn add_directory(&mut self, path: &Path) -> Result<Vec<u8>, ViewError> {
        let (volume, path) = self.covering(path);
        let real = volume.image.add_directory(&path, Attributes::root(0o755))?;
        Ok(match &volume.mount[..] {
            b"/" => real,
            mount if real == b"/" => mount.to_vec(),
            mount => [mount, &real].concat(),
        })
    }

    /// Sees to it that a user has his home, if that is a usual one.
    ///
    /// # Errors
    /// Something is in its way.
    fn add_home(&mut self, account: &Account) -> Result<(), ViewError> {
        if account.has_usual_home() {
            let (volume, path) = self.covering(&account.home);
            let User { user, group } = account.user;
            volume.image.add_directory(&path, Attributes { uid: user, gid: group, ..Attributes::root(0o700) })?;
        }
        Ok(())
    }

    /// Finds a program in the root as a shell would: by its path if the name holds a slash, in these directories
    /// otherwise.
    ///
    /// # Errors
    /// The root cannot be read.
    pub(crate) fn find_program(&self, name: &Path, path: &[PathBuf]) -> Result<Option<PathBuf>, ViewError> {
        let candidates = match name.as_os_str().as_bytes().contains(&b'/') {
            true => vec![Path::new("/").join(name)],
            false => path.iter().map(|directory| Path::new("/").join(directory).join(name)).collect(),
        };
        for candidate in candidates {
            if self.volumes[0].image.find(candidate.as_os_str().as_bytes())? == Some(Kind::File) {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// A number that is another where something else is shown, or elsewhere.
    fn fingerprint(&self) -> u64 {
        let mut hasher = Sign::default();
        for Volume { mount, image, .. } in &self.volumes {
            (mount, image.fingerprint()).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The images as the cell's disks. Each file that cannot be read as it was is named once, and noted.
    fn into_volumes(self, changed: &Arc<AtomicBool>) -> Vec<pando_launch::Volume> {
        let volume = |Volume { mount, image, cache }| {
            let changed = Arc::clone(changed);
            pando_launch::Volume::watched(mount, image, move |error| {
                changed.store(true, Ordering::Relaxed);
                say::problem(&format_args!("{error}; the next start sees the host as it is then"));
                if let Some(cache) = &cache {
                    cache.forget();
                }
            })
        };
        self.volumes.into_iter().map(volume).collect()
    }

    fn of_image(image: Image) -> View {
        View {
            volumes: vec![Volume { mount: b"/".to_vec(), image, cache: None }],
            reach: Vec::new(),
            authority: Authority::default(),
            renewal: None,
        }
    }

    /// Adds the program as a file alone, where it is not seen already.
    fn add_program(&mut self, program: &Path) -> Result<(), ViewError> {
        let file = HostFile::new(program)?;
        self.reach.push(file.path().into());
        let path = program.as_os_str().as_bytes();
        self.volumes[0].image.add_file(path, &file)?;
        let (volume, path) = self.covering(program);
        Ok(volume.image.add_file(&path, &file)?)
    }

    fn add_prefix(&mut self, prefix: &Path) -> Result<(), ViewError> {
        match walked_prefix(prefix, &mut self.authority) {
            Ok(image) => {
                let mount = self.add_directory(prefix)?;
                self.volumes.push(Volume { mount, image, cache: None });
                self.reach.push(prefix.into());
                Ok(())
            }
            Err(error @ Error::TooMany { .. }) => {
                say::problem(&format_args!("{error}: only the program itself is shown"));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn add_current(&mut self, directory: &Path) -> Result<(), ViewError> {
        let image = walked(directory, &mut self.authority).and_then(Builder::image).map_err(ViewError::Directory)?;
        let mount = self.add_directory(directory)?;
        self.volumes.push(Volume { mount, image, cache: None });
        self.reach.push(directory.into());
        Ok(())
    }

    /// The volume in which a path lies, and the path in it.
    fn covering(&mut self, path: &Path) -> (&mut Volume, Vec<u8>) {
        let mounted = |volume: &Volume| path.strip_prefix(OsStr::from_bytes(&volume.mount)).map(Path::to_path_buf).ok();
        let depth = |volume: &Volume| volume.mount.len();
        let candidates = self.volumes.iter().enumerate().filter_map(|(index, volume)| Some((depth(volume), index, mounted(volume)?)));
        let (_, index, rest) = candidates.max_by_key(|(depth, ..)| *depth).unwrap_or((0, 0, path.into()));
        (&mut self.volumes[index], Path::new("/").join(rest).into_os_string().into_vec())
    }
}

/// What of the host is needed to see its software.
pub(crate) fn software() -> Paths {
    Paths { read: kept::tops(), list: vec![kept::STATE.into()], change: Vec::from_iter(Surroundings::here().cache), ..Paths::default() }
}

/// Bytes of files of one tree of the host that a cell is shown: somewhat less than it can see of one volume. The largest files are shown without content where there is more.
const CONTENT_MAX: u64 = SLOT_SIZE - (32 << 30);

/// How trees of the host are looked at.
pub(crate) fn walk(readable: Readable, limit: u64, progress: &dyn Fn(u64)) -> Walk<'_> {
    Walk { readable, limit, parallel: true, progress }
}

/// The host's software as it is now.
pub(crate) fn host_software(progress: &Progress) -> Result<Image, Error> {
    kept::builder(true, progress)?.image()
}

fn add_empty(builder: &mut Builder) -> Result<(), Error> {
    EMPTY.iter().try_for_each(|(path, permissions)| match builder.directory(path, Attributes::root(*permissions)) {
        Err(Error::Duplicate { .. }) => Ok(()),
        done => done,
    })
}

/// A directory of the host as it is now, as far as the caller may read it; adds the authority that he needs for that.
fn walked(directory: &Path, authority: &mut Authority) -> Result<Builder, Error> {
    let progress = Progress::files("looking");
    let mut builder = Builder::new();
    builder.limit_content(CONTENT_MAX);
    builder.host("/", directory, &walk(Readable::ByCaller, WALKED_MAX, &|count| progress.set(count)))?;
    let owned = |(found, is_directory): (&Attributes, bool)| Owned {
        user: found.uid,
        group: found.gid,
        mode: found.permissions.into(),
        is_directory,
    };
    *authority = authority.and(Authority::over(builder.attributes().map(owned)));
    Ok(builder)
}

/// An installation prefix, with what programs of it are to find.
fn walked_prefix(prefix: &Path, authority: &mut Authority) -> Result<Image, Error> {
    let mut builder = walked(prefix, authority)?;
    parts::add_modules(&mut builder)?;
    builder.image()
}

/// Refuses a directory of proc, sysfs and the like.
pub(crate) fn refuse_kernel(directory: &Path) -> Result<(), Error> {
    match pando_image::shows_kernel(directory) {
        Ok(true) => Err(Error::Kernel(directory.into())),
        Ok(false) => Ok(()),
        Err(source) => Err(Error::Host { path: directory.into(), source }),
    }
}

fn open_root(root: &Path, authority: &mut Authority) -> Result<Image, Error> {
    let real = root.canonicalize().map_err(|source| Error::Host { path: root.into(), source })?;
    if real.is_dir() {
        refuse_kernel(&real)?;
        let mut builder = walked(&real, authority)?;
        parts::add(&mut builder)?;
        return builder.image();
    }
    match Image::open(&real) {
        // Whatever else it is, an archive's reader says best why it is none.
        Err(Error::NotAnImage { .. }) if !pando_image::is_image(&real) => {
            let mut builder = Builder::new();
            builder.archive(&real)?;
            parts::add(&mut builder)?;
            builder.image()
        }
        outcome => outcome,
    }
}
