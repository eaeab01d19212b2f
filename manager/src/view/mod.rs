// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's view: a list of read-only images with their mount points. `docs/what-a-cell-sees.md` describes it for users.
//!
//! Without `--root` the first image is the host's software; its metadata is cached from one start to the next ([`cache`]). A program
//! elsewhere adds its installation prefix ([`rules`]). The last is the current directory. Those two are scanned at each start. File
//! contents are read only when the cell reads them.

mod cache;
mod container;
mod nested;
mod parts;
mod prepared;
mod rules;
mod spec;
#[cfg(test)]
mod tests;
mod trees;
mod user_account;

use crate::environment::{HostEnvironment, ProgramError};
use crate::report::{Reporter, Warning};
use crate::view_images::ViewImages;
use cache::Renewal;
use pando_abi::layout::SLOT_SIZE;
use pando_confine::{Authority, FileOwner, Paths};
use pando_image::{Attributes, Builder, Cache, Error, Fingerprint, HostFile, Image, Kind, Readable, Replaced, Scan, escaped};
use rules::Prefix;
use std::ffi::{OsStr, OsString};
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trees::CachedTree;

pub use container::{image_store, prepare_image};
pub use nested::program_in_same_view;
pub use parts::add as add_parts;
pub use prepared::PreparedView;
pub use spec::{ImageSpec, User, UserName, ViewSpec, VolumeName, VolumeSpec};
pub use user_account::{UserAccount, resolve};

/// Directories in every root, empty if the image has none: name and permissions.
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
/// Directories that the cell fills, whatever the image has there.
const GENERATED: [(&str, u16); 3] = [("/proc", 0o555), ("/dev", 0o755), ("/sys", 0o555)];
/// Maximal number of entries of a prefix or directory, so that a start does not scan a whole file server.
const WALKED_MAX: u64 = 1_000_000;

/// An image and its mount point in the cell.
#[derive(Debug)]
pub struct ViewVolume {
    /// An absolute path without links.
    pub mount: Vec<u8>,
    /// The image.
    pub image: Image,
    /// The image's cache.
    cache: Option<Cache>,
}

/// A cell's view: the root first, nested mounts after the outer ones.
#[derive(Debug)]
pub struct View {
    /// The images.
    pub volumes: Vec<ViewVolume>,
    /// Files and directories of the host that it shows.
    visible: Vec<PathBuf>,
    /// Those of them that it shows elsewhere than on the host.
    moved: Vec<PathBuf>,
    /// The root privileges that are needed to read and to change these as they are.
    authority: Authority,
    /// Variables by which programs find what it shows.
    variables: Vec<(OsString, OsString)>,
    /// The directory of cached trees; `None`: each start scans all files.
    tree_cache: Option<PathBuf>,
    /// Cached trees are compared file by file.
    compares_files: bool,
    /// The images that are kept with a template.
    kept: Option<ViewImages>,
    renewal: Option<Renewal>,
    reporter: Reporter,
}

/// Why a view cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The program cannot be started.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A volume cannot be shown.
    #[error("cannot show {} in the cell: {reason}", escaped(volume))]
    Volume {
        /// The path on the host.
        volume: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The host refuses, or an image is invalid.
    #[error(transparent)]
    Image(#[from] Error),
    /// A container image cannot be used.
    #[error(transparent)]
    ContainerImage(Box<pando_oci::Error>),
    /// A container image does not say which program to start.
    #[error("image `{}` has neither an entrypoint nor a command: give a program", escaped(.0))]
    NoCommand(String),
    /// The user or group is not known.
    #[error("{}: {}", escaped(view), escaped(reason))]
    User {
        /// The image or root.
        view: String,
        /// The reason.
        reason: String,
    },
    /// There is no place for container images.
    #[error("there is no directory for images: set HOME or XDG_DATA_HOME")]
    NoDirectory,
    /// The current directory cannot be shown.
    #[error("cannot show the current directory: {0}; start in another one, or with --bare")]
    Directory(Error),
}

impl From<pando_oci::Error> for ViewError {
    fn from(error: pando_oci::Error) -> ViewError {
        ViewError::ContainerImage(error.into())
    }
}

impl View {
    /// The host's software, the program's installation prefix, and the current directory. O(1) in the size of the software if it is
    /// cached; the current directory is scanned each time.
    ///
    /// # Errors
    /// The host refuses access, or the current directory is too large.
    pub fn of_host(program: Option<&Path>, environment: &HostEnvironment) -> Result<View, ViewError> {
        let (image, cache, renewal) = cache::open(environment.cache.as_deref(), environment.view_images.as_ref(), &environment.reporter)?;
        let mut view = View {
            volumes: vec![ViewVolume { mount: b"/".to_vec(), image, cache }],
            visible: cache::software_directories(),
            authority: Authority::default(),
            variables: Vec::new(),
            renewal,
            moved: Vec::new(),
            tree_cache: environment.tree_cache.clone(),
            compares_files: environment.compares_files,
            kept: environment.view_images.clone(),
            reporter: environment.reporter.clone(),
        };
        let directory = environment.shown_directory();
        let (mut unseen, mut shown) = (None, false);
        if let Some(program) = program
            && view.volumes[0].image.find(program.as_os_str().as_bytes())? != Some(Kind::File)
        {
            unseen = Some(program);
            for prefix in environment.prefixes(program) {
                if directory.is_none_or(|directory| !prefix.directory.starts_with(directory)) {
                    let is_added = view.add_prefix(&prefix)?;
                    shown |= is_added && directory.is_some_and(|directory| prefix.shows(directory));
                }
                let value = prefix.directory.into_os_string();
                view.variables.extend(prefix.variable.map(|name| (name.into(), value)));
            }
        }
        if let Some(directory) = directory
            && !shown
        {
            view.add_current(directory)?;
        }
        if let Some(directory) = &environment.directory {
            view.add_directory(directory)?;
        }
        if let Some(program) = unseen {
            view.add_program(program)?;
        }
        Ok(view)
    }

    /// Only the program and an empty current directory.
    ///
    /// # Errors
    /// The program cannot be read.
    pub fn bare(program: Option<&Path>, environment: &HostEnvironment) -> Result<View, ViewError> {
        let mut builder = Builder::new();
        add_empty(&mut builder)?;
        let mut view = View {
            tree_cache: environment.tree_cache.clone(),
            compares_files: environment.compares_files,
            kept: environment.view_images.clone(),
            ..View::of_image(builder.image()?, &environment.reporter)
        };
        if let Some(directory) = &environment.directory {
            view.add_directory(directory)?;
        }
        if let Some(program) = program {
            view.add_program(program)?;
        }
        Ok(view)
    }

    /// The content of a directory, a tar archive or an image.
    ///
    /// # Errors
    /// It cannot be read, or is none of these.
    pub fn of_root(root: &Path, environment: &HostEnvironment) -> Result<View, ViewError> {
        let reporter = &environment.reporter;
        let mut authority = Authority::default();
        if root.is_dir() {
            // Unreadable entries below it are left out, but it must be readable itself.
            std::fs::read_dir(root).map_err(|source| Error::Host { path: root.into(), source })?;
        }
        let mut image = open_root(root, reporter, &mut authority)?;
        for (path, permissions) in EMPTY {
            image.add_directory(path.as_bytes(), Attributes::root(permissions))?;
        }
        // The root itself is compared as a whole.
        let mut view = View { authority, kept: environment.view_images.clone(), ..View::of_image(image, reporter) };
        view.visible.push(root.into());
        view.moved.extend(root.canonicalize());
        Ok(view)
    }

    /// Shows a file or directory of the host at a path of the cell. Returns the path without links.
    ///
    /// # Errors
    /// It cannot be read, or another file is in its way.
    pub fn show(&mut self, host: &Path, cell: &Path) -> Result<Vec<u8>, ViewError> {
        let real = host.canonicalize().map_err(|source| Error::Host { path: host.into(), source })?;
        let place = if real.is_dir() {
            refuse_kernel(&real)?;
            // Unreadable entries below it are left out, but it must be readable itself.
            std::fs::read_dir(&real).map_err(|source| Error::Host { path: host.into(), source })?;
            let mount = self.add_directory(cell)?;
            let is_moved = mount != real.as_os_str().as_bytes();
            let (mut image, cache) = self.tree(&real, None, false)?;
            // A file that is seen twice is two files in the cell.
            let twins = if is_moved { &self.visible } else { &self.moved };
            if twins.iter().any(|other| other.starts_with(&real) || real.starts_with(other)) {
                image.hide_identities()?;
            }
            self.moved.extend(is_moved.then(|| real.clone()));
            self.volumes.push(ViewVolume { mount: mount.clone(), image, cache });
            mount
        } else {
            let metadata = real.metadata().map_err(|source| Error::Host { path: host.into(), source })?;
            self.authority = self.authority.and(Authority::over([FileOwner::from(&metadata)]));
            let file = HostFile::new(&real)?;
            let (volume, path) = self.covering(cell);
            volume.image.add_file(&path, &file, CONTENT_MAX)?;
            cell.as_os_str().as_bytes().to_vec()
        };
        self.visible.push(real);
        Ok(place)
    }

    /// The mount points of all that is neither of these volumes of the host nor below them.
    fn mounts_of_root(&self, shown: &[(PathBuf, &Path)]) -> impl Iterator<Item = Vec<u8>> {
        let is_volume = |mount: &[u8]| shown.iter().any(|(place, _)| place.as_os_str().as_bytes() == mount);
        self.volumes.iter().map(|volume| volume.mount.clone()).filter(move |mount| !is_volume(mount))
    }

    /// Makes a mount point for a directory of the host that is not part of the view's images. Returns the path without links.
    ///
    /// # Errors
    /// The directory is the host kernel's, or another file is in the way.
    fn mount_point(&mut self, host: &Path, cell: &Path) -> Result<Vec<u8>, ViewError> {
        refuse_kernel(&host.canonicalize().map_err(|source| Error::Host { path: host.into(), source })?)?;
        self.add_directory(cell)
    }

    /// Keeps files readable that were replaced or removed.
    fn read_replaced(&mut self, replaced: &Arc<Replaced>) {
        for volume in &mut self.volumes {
            volume.image.read_replaced(Arc::clone(replaced));
        }
    }

    /// Creates a directory at a path of the cell unless it exists. Returns the path without links.
    ///
    /// # Errors
    /// Another file is in its way.
    pub fn add_directory(&mut self, path: &Path) -> Result<Vec<u8>, ViewError> {
        let (volume, path) = self.covering(path);
        let real = volume.image.add_directory(&path, Attributes::root(0o755))?;
        Ok(match &volume.mount[..] {
            b"/" => real,
            mount if real == b"/" => mount.to_vec(),
            mount => [mount, &real].concat(),
        })
    }

    /// Makes a directory at a path of the cell empty, or creates it.
    fn empty_directory(&mut self, path: &Path, permissions: u16) -> Result<(), ViewError> {
        let (volume, path) = self.covering(path);
        Ok(volume.image.empty_directory(&path, Attributes::root(permissions))?)
    }

    /// Creates a user's home if it is a usual one.
    ///
    /// # Errors
    /// Another file is in its way.
    fn add_home(&mut self, account: &UserAccount) -> Result<(), ViewError> {
        if account.has_usual_home() {
            let (volume, path) = self.covering(&account.home);
            let User { user, group } = account.user;
            volume.image.add_directory(&path, Attributes { uid: user, gid: group, ..Attributes::root(0o700) })?;
        }
        Ok(())
    }

    /// Finds a program in the root as a shell would: by its path if the name contains a slash, otherwise in these directories.
    ///
    /// # Errors
    /// The root cannot be read.
    pub fn find_program(&self, name: &Path, path: &[PathBuf]) -> Result<Option<PathBuf>, ViewError> {
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

    /// A fingerprint of the images and their mount points.
    fn fingerprint(&self) -> u64 {
        let mut hasher = Fingerprint::default();
        for ViewVolume { mount, image, .. } in &self.volumes {
            (mount, image.fingerprint()).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// A fingerprint of each image with its mount point.
    fn fingerprints(&self) -> Vec<u64> {
        let fingerprint = |ViewVolume { mount, image, .. }: &ViewVolume| {
            let mut hasher = Fingerprint::default();
            (mount, image.fingerprint()).hash(&mut hasher);
            hasher.finish()
        };
        self.volumes.iter().map(fingerprint).collect()
    }

    /// The images as the cell's disks. Each file that cannot be read as it was is reported once, and sets `changed`.
    fn into_volumes(self, changed: &Arc<AtomicBool>) -> Vec<pando_launch::Volume> {
        let volume = |ViewVolume { mount, image, cache }| {
            let (changed, reporter) = (Arc::clone(changed), self.reporter.clone());
            pando_launch::Volume::watched(mount, image, move |error, is_stale| {
                // Otherwise the same view would be made again.
                if is_stale {
                    changed.store(true, Ordering::Relaxed);
                }
                reporter.warn(Warning::FileChanged(error.to_string()));
                if let Some(cache) = &cache {
                    cache.forget();
                }
            })
        };
        self.volumes.into_iter().map(volume).collect()
    }

    fn of_image(image: Image, reporter: &Reporter) -> View {
        View {
            volumes: vec![ViewVolume { mount: b"/".to_vec(), image, cache: None }],
            visible: Vec::new(),
            authority: Authority::default(),
            variables: Vec::new(),
            moved: Vec::new(),
            tree_cache: None,
            compares_files: false,
            kept: None,
            renewal: None,
            reporter: reporter.clone(),
        }
    }

    /// Adds the program as a single file unless it is visible already.
    fn add_program(&mut self, program: &Path) -> Result<(), ViewError> {
        let file = HostFile::new(program)?;
        self.visible.push(file.path().into());
        let path = program.as_os_str().as_bytes();
        self.volumes[0].image.add_file(path, &file, CONTENT_MAX)?;
        let (volume, path) = self.covering(program);
        Ok(volume.image.add_file(&path, &file, CONTENT_MAX)?)
    }

    /// Shows an installation prefix, unless it is enormous. Returns whether it is shown.
    fn add_prefix(&mut self, prefix: &Prefix) -> Result<bool, ViewError> {
        match self.tree(&prefix.directory, prefix.names, true) {
            Ok((image, cache)) => {
                let mount = self.add_directory(&prefix.directory)?;
                self.volumes.push(ViewVolume { mount, image, cache });
                self.visible.extend(prefix.shown());
                Ok(true)
            }
            Err(error @ Error::TooMany { .. }) => {
                self.reporter.warn(Warning::PrefixTooLarge(error.to_string()));
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn add_current(&mut self, directory: &Path) -> Result<(), ViewError> {
        let (image, cache) = self.tree(directory, None, false).map_err(ViewError::Directory)?;
        let mount = self.add_directory(directory)?;
        self.volumes.push(ViewVolume { mount, image, cache });
        self.visible.push(directory.into());
        Ok(())
    }

    /// The image of a directory of the host, and its cache.
    fn tree(&mut self, directory: &Path, names: Option<&[&str]>, is_prefix: bool) -> Result<(Image, Option<Cache>), Error> {
        let compares_files = self.compares_files;
        let caches = (self.tree_cache.as_deref(), self.kept.as_ref());
        CachedTree { directory, names, is_prefix, compares_files }.image(caches, &self.reporter, &mut self.authority)
    }

    /// The volume that contains a path, and the path in it.
    fn covering(&mut self, path: &Path) -> (&mut ViewVolume, Vec<u8>) {
        let mounted = |volume: &ViewVolume| path.strip_prefix(OsStr::from_bytes(&volume.mount)).map(Path::to_path_buf).ok();
        let depth = |volume: &ViewVolume| volume.mount.len();
        let candidates = self.volumes.iter().enumerate().filter_map(|(index, volume)| Some((depth(volume), index, mounted(volume)?)));
        let (_, index, rest) = candidates.max_by_key(|(depth, ..)| *depth).unwrap_or((0, 0, path.into()));
        (&mut self.volumes[index], Path::new("/").join(rest).into_os_string().into_vec())
    }
}

/// The host paths that are needed to see its software.
pub fn software(environment: &HostEnvironment) -> Paths {
    Paths {
        read: cache::software_directories(),
        list: vec![cache::STATE.into()],
        change: Vec::from_iter(environment.cache.clone()),
        ..Paths::default()
    }
}

/// Maximal bytes of files of one host tree that a cell is shown: slightly less than it can address of one volume. If there is more, the
/// largest files are shown without content.
const CONTENT_MAX: u64 = SLOT_SIZE - (32 << 30);

/// The options of scans of host trees.
pub fn walk(readable: Readable, limit: u64, progress: &dyn Fn(u64)) -> Scan<'_> {
    Scan { readable, limit, parallel: true, progress }
}

/// The present image of the host's software.
pub fn host_software(progress: &dyn Fn(u64)) -> Result<Image, Error> {
    cache::builder(true, false, progress)?.image()
}

/// Adds the directories that the cell fills to an image that lacks them.
fn add_generated(image: &mut Image) -> Result<(), Error> {
    GENERATED.iter().try_for_each(|(path, permissions)| image.add_directory(path.as_bytes(), Attributes::root(*permissions)).map(drop))
}

fn add_empty(builder: &mut Builder) -> Result<(), Error> {
    EMPTY.iter().try_for_each(|(path, permissions)| match builder.directory(path, Attributes::root(*permissions)) {
        Err(Error::Duplicate { .. }) => Ok(()),
        done => done,
    })
}

/// Refuses a directory of proc, sysfs and the like.
pub fn refuse_kernel(directory: &Path) -> Result<(), Error> {
    match pando_image::shows_kernel(directory) {
        Ok(true) => Err(Error::Kernel(directory.into())),
        Ok(false) => Ok(()),
        Err(source) => Err(Error::Host { path: directory.into(), source }),
    }
}

fn open_root(root: &Path, reporter: &Reporter, authority: &mut Authority) -> Result<Image, Error> {
    let real = root.canonicalize().map_err(|source| Error::Host { path: root.into(), source })?;
    if real.is_dir() {
        refuse_kernel(&real)?;
        let mut builder =
            CachedTree { directory: &real, names: None, is_prefix: false, compares_files: false }.walk(reporter, authority)?;
        parts::add(&mut builder)?;
        return builder.image();
    }
    match Image::open(&real) {
        // For any other file, the archive reader has the clearer error.
        Err(Error::NotAnImage { .. }) if !pando_image::is_image(&real) => {
            let mut builder = Builder::new();
            builder.archive(&real)?;
            parts::add(&mut builder)?;
            builder.image()
        }
        outcome => outcome,
    }
}
