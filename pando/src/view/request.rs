// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requested view: its images, the program in it, the working directory, and the volumes.

use super::account::Account;
use super::cache::{Renewal, STATE};
use super::{HostEnvironment, View};
use crate::cli::ViewOptions;
use crate::exports::Exports;
use crate::failure::Failure;
use crate::host::{self, NoProgram, Variable};
use crate::options::VolumeArgument;
use pando_confine::{Authority, Paths};
use pando_launch::Program;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

/// The list of an image's users.
const USERS: &[u8] = b"/etc/passwd";

/// A requested view.
pub(crate) struct ViewRequest {
    /// Its volumes, the root first.
    pub(crate) volumes: Vec<pando_launch::Volume>,
    /// The program's path in it.
    pub(crate) program: PathBuf,
    /// The working directory.
    pub(crate) directory: PathBuf,
    /// The volumes that are written back.
    pub(crate) exports: Exports,
    /// The host paths that are needed for that.
    pub(crate) reach: Paths,
    /// A file in it has changed and could not be read.
    pub(crate) changed: Arc<AtomicBool>,
    account: Account,
    /// Variables by which programs find what is shown.
    variables: Vec<Variable>,
    renewal: Option<Renewal>,
}

impl ViewRequest {
    /// Finds the program and the images of its view. Reads no file contents yet.
    ///
    /// # Errors
    /// There is no such program, or a file cannot be shown.
    pub(crate) fn for_run(options: &ViewOptions, program: &OsStr) -> Result<ViewRequest, Failure> {
        let (asked, view) = ViewRequest::new(options, program, &HostEnvironment::here())?;
        Ok(ViewRequest { volumes: view.into_volumes(&asked.changed), ..asked })
    }

    /// The same for a template: it does not see its creator's current directory. Also returns a fingerprint of the view.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn for_template(options: &ViewOptions, program: &OsStr) -> Result<(ViewRequest, u64), Failure> {
        let (asked, view) =
            ViewRequest::new(options, program, &HostEnvironment { directory: None, trees: None, ..HostEnvironment::here() })?;
        let fingerprint = view.fingerprint();
        Ok((ViewRequest { volumes: view.into_volumes(&asked.changed), ..asked }, fingerprint))
    }

    /// The view of a template of one of the host's programs.
    ///
    /// # Errors
    /// There is no such program.
    pub(crate) fn for_program(program: &str) -> Result<ViewRequest, Failure> {
        Ok(ViewRequest::for_template(&ViewOptions::software(), OsStr::new(program))?.0)
    }

    fn new(options: &ViewOptions, program: &OsStr, environment: &HostEnvironment) -> Result<(ViewRequest, View), Failure> {
        let root = Path::new("/");
        let (mut view, program, directory) = match &options.root {
            Some(path) => {
                let view = View::of_root(path)?;
                let found = view.find_program(Path::new(program), &host::program_directories())?;
                (view, found.ok_or_else(|| Failure::NotFound(program.into()))?, root)
            }
            None => {
                let (host, program) = match (find(program), shown_program(options, program)) {
                    (Err(Failure::NotFound(_)), Some(program)) => (None, program.to_path_buf()),
                    (found, _) => found.map(|program| (Some(program.clone()), program))?,
                };
                let view = if options.bare { View::bare } else { View::of_host }(host.as_deref(), environment);
                (view?, program, environment.directory.as_deref().unwrap_or(root))
            }
        };
        let users = match &options.root {
            Some(_) => view.volumes[0].image.file_text(USERS)?.unwrap_or_default(),
            None if options.bare => String::new(),
            None => environment.users.clone(),
        };
        let account = Account::find(&users, options.user);
        view.add_home(&account)?;
        let (mut exports, mut change) = (Exports::default(), Vec::from_iter(environment.cache.clone()));
        let mut shown: Vec<(PathBuf, &Path)> = Vec::new();
        for (index, VolumeArgument { host, cell, writable }) in options.volumes.iter().enumerate() {
            // A repeated volume counts once.
            if options.volumes[..index].contains(&options.volumes[index]) {
                continue;
            }
            let failed = |why: String| Failure::Volume { file: host.clone(), why };
            // Leftovers of a killed process are removed before the view is made.
            let export = if *writable { Some(Exports::open(host).map_err(|error| failed(host::plain(&error)))?) } else { None };
            let place: PathBuf = OsString::from_vec(view.show(host, cell).map_err(|error| failed(error.to_string()))?).into();
            // A change in one volume must not reach another.
            if let Some((_, before)) = shown.iter().find(|(earlier, _)| Path::new(earlier).starts_with(&place)) {
                return Err(failed(format!("it would hide {} at {}: give each a path of its own", before.display(), cell.display())));
            }
            shown.push((place.clone(), host));
            if let Some((export, reach)) = export {
                exports.add(host.clone(), place.into_os_string().into_vec(), export);
                change.push(reach);
            }
        }
        view.read_replaced(&exports.replaced);
        let authority = Authority { change: view.authority.change && !exports.is_empty(), ..view.authority };
        let list = if view.renewal.is_some() { vec![PathBuf::from(STATE)] } else { Vec::new() };
        let reach = Paths { read: std::mem::take(&mut view.reach), list, change, authority, ..Paths::default() };
        let directory = options.directory.clone().unwrap_or_else(|| directory.into());
        let (renewal, variables) = (view.renewal.take(), std::mem::take(&mut view.variables));
        let changed = Arc::default();
        Ok((ViewRequest { volumes: Vec::new(), program, directory, exports, reach, changed, account, variables, renewal }, view))
    }

    /// The program with these arguments, its own name first, without terminals.
    pub(crate) fn program(&self, options: &ViewOptions, arguments: &[OsString]) -> Program {
        Program {
            path: self.program.as_os_str().as_bytes().to_vec(),
            directory: self.directory.as_os_str().as_bytes().to_vec(),
            arguments: arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
            environment: host::environment(&self.account, &[&self.variables[..], &options.variables].concat()),
            exports: self.exports.in_cell(),
            user: options.user.user,
            group: options.user.group,
            ..Program::default()
        }
    }

    /// Scans the host again, on a thread of its own, so that the next start sees changes.
    pub(crate) fn renew(&mut self) {
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
fn shown_program<'a>(options: &ViewOptions, program: &'a OsStr) -> Option<&'a Path> {
    let program = Path::new(program);
    options.volumes.iter().any(|volume| program.starts_with(&volume.cell)).then_some(program)
}

fn find(program: &OsStr) -> Result<PathBuf, Failure> {
    host::find_program(program).map_err(|problem| match problem {
        NoProgram::NotFound => Failure::NotFound(program.into()),
        NoProgram::NotExecutable(why) => Failure::NotExecutable { program: program.into(), why },
    })
}
