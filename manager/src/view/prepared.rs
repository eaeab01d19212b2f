// SPDX-License-Identifier: MIT OR Apache-2.0
//! A prepared view: its images, the program in it, the working directory, and the volumes.

use super::cache::{Renewal, STATE};
use super::container::ImageView;
use super::spec::{User, UserName, ViewSpec, VolumeSpec};
use super::user_account::{UserAccount, resolve};
use super::{View, ViewError};
use crate::environment::{HostEnvironment, ProgramError, lines};
use crate::host;
use crate::mounts::LiveVolume;
use crate::view_images::ViewImages;
use crate::write_back::WritableVolumes;
use pando_confine::{Authority, Paths};
use pando_image::Error;
use pando_launch::Program;
use pando_oci::OpenImage;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

/// The lists of an image's users and groups.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// A view that was found on the host: its images, and the program in it.
pub struct PreparedView {
    /// Its volumes, the root first.
    pub volumes: Vec<pando_launch::Volume>,
    /// The fingerprints of the volumes, if the host has a cache and the view is for a run.
    pub fingerprints: Vec<u64>,
    /// The program's path in it.
    pub program: PathBuf,
    /// The program's arguments, its own name first.
    pub arguments: Vec<OsString>,
    /// The working directory.
    pub directory: PathBuf,
    /// The user that it runs as.
    pub user: User,
    /// The container image that is its root; held, so that it is not removed.
    pub image: Option<OpenImage>,
    /// The live mounts, whose servers are not started yet.
    pub live: Vec<LiveVolume>,
    /// The volumes that are written back.
    pub exports: WritableVolumes,
    /// The host paths that are needed for that.
    pub visible: Paths,
    /// A file in it has changed and could not be read.
    pub changed: Arc<AtomicBool>,
    account: UserAccount,
    /// Mount points and files that the cell's programs may not change.
    protected: Vec<Vec<u8>>,
    /// Variables by which programs find what is shown, or those of the container image.
    variables: Vec<(OsString, OsString)>,
    renewal: Option<Renewal>,
    /// The kept images of its template, which are not removed meanwhile.
    pub(crate) view_images: Option<ViewImages>,
}

impl PreparedView {
    /// Finds the program and the images of its view. Reads no file contents yet. The command is the program and its arguments; a container
    /// image may name its own.
    ///
    /// # Errors
    /// There is no such program, or a file cannot be shown.
    pub fn for_run(spec: &ViewSpec, command: &[OsString], environment: &HostEnvironment) -> Result<PreparedView, ViewError> {
        let (prepared, view) = PreparedView::new(spec, command, environment)?;
        let fingerprints = if environment.cache.is_some() { view.fingerprints() } else { Vec::new() };
        Ok(PreparedView { volumes: view.into_volumes(&prepared.changed), fingerprints, ..prepared })
    }

    /// The same for a template: it does not see its creator's current directory. Also returns a fingerprint of the view.
    ///
    /// # Errors
    /// The same.
    pub fn for_template(spec: &ViewSpec, command: &[OsString], environment: &HostEnvironment) -> Result<(PreparedView, u64), ViewError> {
        let (prepared, view) =
            PreparedView::new(spec, command, &HostEnvironment { directory: None, compares_files: true, ..environment.clone() })?;
        let fingerprint = view.fingerprint();
        Ok((PreparedView { volumes: view.into_volumes(&prepared.changed), ..prepared }, fingerprint))
    }

    /// The view of a template of one of the host's programs.
    ///
    /// # Errors
    /// There is no such program.
    pub fn for_program(program: &str, environment: &HostEnvironment) -> Result<PreparedView, ViewError> {
        Ok(PreparedView::for_template(&ViewSpec::default(), &[program.into()], environment)?.0)
    }

    fn new(spec: &ViewSpec, command: &[OsString], environment: &HostEnvironment) -> Result<(PreparedView, View), ViewError> {
        let (mut view, found) = ResolvedProgram::new(spec, command, environment)?;
        let ResolvedProgram { program, directory, arguments, user, account, variables, image } = found;
        spec.temporary.iter().try_for_each(|(path, permissions)| view.empty_directory(path, *permissions))?;
        let (mut exports, mut change) = (WritableVolumes::default(), Vec::from_iter(environment.cache.clone()));
        let mut live = Vec::new();
        let (mut shown, mut protected): (Vec<(PathBuf, &Path)>, Vec<Vec<u8>>) = Default::default();
        for (index, VolumeSpec { host, cell, writable, read_only, live: is_live, name: _ }) in spec.volumes.iter().enumerate() {
            // A repeated volume counts once.
            if spec.volumes[..index].contains(&spec.volumes[index]) {
                continue;
            }
            let failed = |reason: String| ViewError::Volume { volume: host.clone(), reason };
            let not_shown = |error: ViewError| match error {
                ViewError::Image(Error::Host { path, source }) if path == *host => format!("cannot read it: {}", host::plain(&source)),
                error => error.to_string(),
            };
            if *is_live {
                LiveVolume::check(host).map_err(|error| failed(host::plain(&error)))?;
                let mount_point = view.mount_point(host, cell).map_err(|error| failed(not_shown(error)))?;
                if *read_only {
                    protected.push(mount_point.clone());
                }
                live.push(LiveVolume { host: host.clone(), cell: mount_point, read_only: *read_only });
                continue;
            }
            spec.check_writable(*writable, host).map_err(failed)?;
            // Leftovers of a killed process are removed before the view is made.
            let export = if *writable { Some(WritableVolumes::open(host).map_err(|error| failed(host::plain(&error)))?) } else { None };
            let place: PathBuf = OsString::from_vec(view.show(host, cell).map_err(|error| failed(not_shown(error)))?).into();
            // A change in one volume must not reach another.
            if let Some((_, before)) = shown.iter().find(|(earlier, _)| Path::new(earlier).starts_with(&place)) {
                return Err(failed(format!("it would hide {} at {}: give each a path of its own", before.display(), cell.display())));
            }
            shown.push((place.clone(), host));
            if *read_only {
                protected.push(place.clone().into_os_string().into_vec());
            }
            if let Some((export, written)) = export {
                exports.add(host.clone(), place.into_os_string().into_vec(), export);
                change.push(written);
            }
        }
        check_live(&live, &shown)?;
        protected.extend(view.mounts_of_root(&shown).filter(|_| spec.read_only));
        view.read_replaced(&exports.replaced);
        let authority = Authority { change: view.authority.change && !exports.is_empty(), ..view.authority };
        let list = if view.renewal.is_some() { vec![PathBuf::from(STATE)] } else { Vec::new() };
        let visible = Paths { read: std::mem::take(&mut view.visible), list, change, authority, ..Paths::default() };
        let (renewal, changed) = (view.renewal.take(), Arc::default());
        let prepared = PreparedView {
            volumes: Vec::new(),
            fingerprints: Vec::new(),
            program,
            arguments,
            directory,
            user,
            image,
            live,
            exports,
            protected,
            visible,
            changed,
            account,
            variables,
            renewal,
            view_images: environment.view_images.clone(),
        };
        Ok((prepared, view))
    }

    /// The program, without terminals.
    pub fn program(&self, spec: &ViewSpec, environment: &HostEnvironment) -> Program {
        let given = self.variables.iter().chain(&spec.variables);
        let environment = match &self.image {
            // As docker does: nothing of the caller, and of the account only its home.
            Some(_) => lines(self.account.variables().filter(|(name, _)| name == "HOME").chain(given.cloned())),
            None => environment.program_environment(self.account.variables(), given),
        };
        Program {
            path: self.program.as_os_str().as_bytes().to_vec(),
            directory: self.directory.as_os_str().as_bytes().to_vec(),
            arguments: self.arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
            environment,
            exports: self.exports.in_cell(),
            read_only: self.protected.clone(),
            mounts: self.live.iter().map(|volume| volume.cell.clone()).collect(),
            temporary: spec.own_file_systems(),
            user: self.user.user,
            group: self.user.group,
            groups: self.account.groups.clone(),
            stop_signal: self.image.as_ref().and_then(|open| open.image.config.stop_signal).map_or(0, |signal| signal.0),
            ..Program::default()
        }
    }

    /// Scans the host again, on a thread of its own, so that the next start sees changes.
    pub fn renew(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            let (nice, is_nice) = mpsc::channel();
            // If no thread can be started, a later start will scan.
            let _ = std::thread::Builder::new().name("renewal".into()).spawn(move || renewal.run(nice));
            // A confined thread cannot lower its priority. If the thread did not start, the channel is closed.
            let _ = is_nice.recv();
        }
    }
}

/// The program in its view, and its user.
struct ResolvedProgram {
    program: PathBuf,
    arguments: Vec<OsString>,
    directory: PathBuf,
    user: User,
    account: UserAccount,
    variables: Vec<(OsString, OsString)>,
    image: Option<OpenImage>,
}

impl ResolvedProgram {
    fn new(spec: &ViewSpec, command: &[OsString], environment: &HostEnvironment) -> Result<(View, ResolvedProgram), ViewError> {
        if let Some(image) = &spec.image {
            let ImageView { view, program, command, directory, environment, user, image } =
                ImageView::open(image, spec, command, environment)?;
            let user = spec.user.as_ref().or(user.as_ref());
            let name = format!("image {}", image.image.label());
            // Of a number without a line, the group is root's, as in docker.
            let (user, account) = find_user(&view, &name, user, |_| 0)?;
            return Ok((
                view,
                ResolvedProgram { program, arguments: command, directory, user, account, variables: environment, image: Some(image) },
            ));
        }
        let root = Path::new("/");
        let name = command.first().map(OsString::as_os_str).unwrap_or_default();
        let (mut view, program, directory) = match &spec.root {
            Some(path) => {
                let view = View::of_root(path, environment)?;
                let found = view.find_program(Path::new(name), &environment.path)?;
                (view, found.ok_or_else(|| ProgramError::NotFound(name.into()))?, root)
            }
            None => {
                let (host, program) = match (environment.find_program(name), shown_program(spec, name)) {
                    (Err(ProgramError::NotFound(_)), Some(program)) => (None, program.to_path_buf()),
                    (found, _) => found.map(|program| (Some(program.clone()), program))?,
                };
                let view = if spec.bare { View::bare } else { View::of_host }(host.as_deref(), environment);
                (view?, program, environment.directory.as_deref().unwrap_or(root))
            }
        };
        let user = spec.user.as_ref();
        let (user, account) = match &spec.root {
            Some(path) => find_user(&view, &path.display().to_string(), user, |user| user)?,
            None if spec.bare => of_user("the cell", "", "", user, |user| user)?,
            None => host_user(environment, user)?,
        };
        view.add_home(&account)?;
        let directory = spec.directory.clone().unwrap_or_else(|| directory.into());
        let variables = std::mem::take(&mut view.variables);
        Ok((view, ResolvedProgram { program, arguments: command.to_vec(), directory, user, account, variables, image: None }))
    }
}

/// Finds a user in the lists of a root.
fn find_user(view: &View, name: &str, user: Option<&UserName>, unknown: impl Fn(u32) -> u32) -> Result<(User, UserAccount), ViewError> {
    let text = |path: &str| Ok::<_, ViewError>(view.volumes[0].image.file_text(path.as_bytes())?.unwrap_or_default());
    of_user(name, &text(USERS)?, &text(GROUPS)?, user, unknown)
}

/// Finds a user of the host.
pub(super) fn host_user(environment: &HostEnvironment, user: Option<&UserName>) -> Result<(User, UserAccount), ViewError> {
    // The list of groups is read only for a user that is given, and not for one whose group is a number.
    let needs_groups = user.is_some_and(|name| name.group.as_ref().is_none_or(|group| group.parse::<u32>().is_err()));
    let groups = if needs_groups { std::fs::read_to_string(GROUPS).unwrap_or_default() } else { String::new() };
    of_user("this host", &environment.users, &groups, user, |user| user)
}

/// Finds a user in these lists. As docker does it, a user that is given with a group has no supplementary groups.
fn of_user(
    view: &str,
    users: &str,
    groups: &str,
    user: Option<&UserName>,
    unknown: impl Fn(u32) -> u32,
) -> Result<(User, UserAccount), ViewError> {
    let failed = |reason| ViewError::User { view: view.into(), reason };
    let has_group = user.is_some_and(|name| name.group.is_some());
    let user = user.map_or(Ok(User::default()), |name| resolve(name, users, groups, unknown)).map_err(failed)?;
    let account = UserAccount::find(users, user);
    Ok((user, if has_group { account } else { account.with_groups(groups) }))
}

/// The program, if a `-v` shows it: it may have its name in the cell only.
fn shown_program<'a>(spec: &ViewSpec, program: &'a OsStr) -> Option<&'a Path> {
    let program = Path::new(program);
    spec.volumes.iter().any(|volume| program.starts_with(&volume.cell)).then_some(program)
}

/// Checks that no live mount is below or above another volume: the cell could not reach the files of both.
fn check_live(live: &[LiveVolume], shown: &[(PathBuf, &Path)]) -> Result<(), ViewError> {
    let place = |volume: &LiveVolume| PathBuf::from(OsString::from_vec(volume.cell.clone()));
    for (index, volume) in live.iter().enumerate() {
        let mounted = place(volume);
        let mounts = live[..index].iter().map(|other| (place(other), other.host.as_path()));
        let volumes = shown.iter().map(|(other, host)| (other.clone(), *host));
        if let Some((other, host)) = mounts.chain(volumes).find(|(other, _)| other.starts_with(&mounted) || mounted.starts_with(other)) {
            let (other, mounted) = (other.display(), mounted.display());
            let reason = format!("its live mount at {mounted} and {} at {other} overlap: give each a path of its own", host.display());
            return Err(ViewError::Volume { volume: volume.host.clone(), reason });
        }
    }
    Ok(())
}
