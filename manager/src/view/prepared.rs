// SPDX-License-Identifier: MIT OR Apache-2.0
//! A prepared view: its images, the program in it, the working directory, and the volumes.

use super::account::Account;
use super::cache::{Renewal, STATE};
use super::spec::{ViewSpec, VolumeSpec};
use super::{View, ViewError};
use crate::environment::{HostEnvironment, ProgramError};
use crate::host;
use crate::write_back::Exports;
use pando_confine::{Authority, Paths};
use pando_image::Error;
use pando_launch::Program;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

/// The list of an image's users.
const USERS: &[u8] = b"/etc/passwd";

/// A view that was found on the host: its images, and the program in it.
pub struct PreparedView {
    /// Its volumes, the root first.
    pub volumes: Vec<pando_launch::Volume>,
    /// The program's path in it.
    pub program: PathBuf,
    /// The working directory.
    pub directory: PathBuf,
    /// The volumes that are written back.
    pub exports: Exports,
    /// The host paths that are needed for that.
    pub visible: Paths,
    /// A file in it has changed and could not be read.
    pub changed: Arc<AtomicBool>,
    account: Account,
    /// Variables by which programs find what is shown.
    variables: Vec<(OsString, OsString)>,
    renewal: Option<Renewal>,
}

impl PreparedView {
    /// Finds the program and the images of its view. Reads no file contents yet.
    ///
    /// # Errors
    /// There is no such program, or a file cannot be shown.
    pub fn for_run(spec: &ViewSpec, program: &OsStr, environment: &HostEnvironment) -> Result<PreparedView, ViewError> {
        let (prepared, view) = PreparedView::new(spec, program, environment)?;
        Ok(PreparedView { volumes: view.into_volumes(&prepared.changed), ..prepared })
    }

    /// The same for a template: it does not see its creator's current directory. Also returns a fingerprint of the view.
    ///
    /// # Errors
    /// The same.
    pub fn for_template(spec: &ViewSpec, program: &OsStr, environment: &HostEnvironment) -> Result<(PreparedView, u64), ViewError> {
        let (prepared, view) =
            PreparedView::new(spec, program, &HostEnvironment { directory: None, compares_files: true, ..environment.clone() })?;
        let fingerprint = view.fingerprint();
        Ok((PreparedView { volumes: view.into_volumes(&prepared.changed), ..prepared }, fingerprint))
    }

    /// The view of a template of one of the host's programs.
    ///
    /// # Errors
    /// There is no such program.
    pub fn for_program(program: &str, environment: &HostEnvironment) -> Result<PreparedView, ViewError> {
        Ok(PreparedView::for_template(&ViewSpec::default(), OsStr::new(program), environment)?.0)
    }

    fn new(spec: &ViewSpec, program: &OsStr, environment: &HostEnvironment) -> Result<(PreparedView, View), ViewError> {
        let root = Path::new("/");
        let (mut view, program, directory) = match &spec.root {
            Some(path) => {
                let view = View::of_root(path, &environment.reporter)?;
                let found = view.find_program(Path::new(program), &environment.path)?;
                (view, found.ok_or_else(|| ProgramError::NotFound(program.into()))?, root)
            }
            None => {
                let (host, program) = match (environment.find_program(program), shown_program(spec, program)) {
                    (Err(ProgramError::NotFound(_)), Some(program)) => (None, program.to_path_buf()),
                    (found, _) => found.map(|program| (Some(program.clone()), program))?,
                };
                let view = if spec.bare { View::bare } else { View::of_host }(host.as_deref(), environment);
                (view?, program, environment.directory.as_deref().unwrap_or(root))
            }
        };
        let users = match &spec.root {
            Some(_) => view.volumes[0].image.file_text(USERS)?.unwrap_or_default(),
            None if spec.bare => String::new(),
            None => environment.users.clone(),
        };
        let account = Account::find(&users, spec.user);
        view.add_home(&account)?;
        let (mut exports, mut change) = (Exports::default(), Vec::from_iter(environment.cache.clone()));
        let mut shown: Vec<(PathBuf, &Path)> = Vec::new();
        for (index, VolumeSpec { host, cell, writable }) in spec.volumes.iter().enumerate() {
            // A repeated volume counts once.
            if spec.volumes[..index].contains(&spec.volumes[index]) {
                continue;
            }
            let failed = |reason: String| ViewError::Volume { volume: host.clone(), reason };
            let not_shown = |error: ViewError| match error {
                ViewError::Image(Error::Host { path, source }) if path == *host => format!("cannot read it: {}", host::plain(&source)),
                error => error.to_string(),
            };
            // Leftovers of a killed process are removed before the view is made.
            let export = if *writable { Some(Exports::open(host).map_err(|error| failed(host::plain(&error)))?) } else { None };
            let place: PathBuf = OsString::from_vec(view.show(host, cell).map_err(|error| failed(not_shown(error)))?).into();
            // A change in one volume must not reach another.
            if let Some((_, before)) = shown.iter().find(|(earlier, _)| Path::new(earlier).starts_with(&place)) {
                return Err(failed(format!("it would hide {} at {}: give each a path of its own", before.display(), cell.display())));
            }
            shown.push((place.clone(), host));
            if let Some((export, written)) = export {
                exports.add(host.clone(), place.into_os_string().into_vec(), export);
                change.push(written);
            }
        }
        view.read_replaced(&exports.replaced);
        let authority = Authority { change: view.authority.change && !exports.is_empty(), ..view.authority };
        let list = if view.renewal.is_some() { vec![PathBuf::from(STATE)] } else { Vec::new() };
        let visible = Paths { read: std::mem::take(&mut view.visible), list, change, authority, ..Paths::default() };
        let directory = spec.directory.clone().unwrap_or_else(|| directory.into());
        let (renewal, variables) = (view.renewal.take(), std::mem::take(&mut view.variables));
        let changed = Arc::default();
        Ok((PreparedView { volumes: Vec::new(), program, directory, exports, visible, changed, account, variables, renewal }, view))
    }

    /// The program with these arguments, its own name first, without terminals.
    pub fn program(&self, spec: &ViewSpec, environment: &HostEnvironment, arguments: &[OsString]) -> Program {
        Program {
            path: self.program.as_os_str().as_bytes().to_vec(),
            directory: self.directory.as_os_str().as_bytes().to_vec(),
            arguments: arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
            environment: environment.of_program(self.account.variables(), self.variables.iter().chain(&spec.variables)),
            exports: self.exports.in_cell(),
            user: spec.user.user,
            group: spec.user.group,
            ..Program::default()
        }
    }

    /// The program's working directory in the cell.
    pub fn directory(&self) -> &Path {
        &self.directory
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

/// The program, if a `-v` shows it: it may have its name in the cell only.
fn shown_program<'a>(spec: &ViewSpec, program: &'a OsStr) -> Option<&'a Path> {
    let program = Path::new(program);
    spec.volumes.iter().any(|volume| program.starts_with(&volume.cell)).then_some(program)
}
