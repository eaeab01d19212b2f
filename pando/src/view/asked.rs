// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command line asks to see: which view, which program in it, where that starts, and what is shown besides.

use super::account::Account;
use super::kept::{Renewal, STATE};
use super::{Surroundings, View};
use crate::cli::Seen;
use crate::exports::Exports;
use crate::failure::Failure;
use crate::host::{self, NoProgram};
use crate::options::Volume;
use pando_confine::{Authority, Paths};
use pando_launch::Program;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

/// The list of an image's users.
const USERS: &[u8] = b"/etc/passwd";

/// What a cell is to see.
pub(crate) struct Asked {
    /// Its volumes, the root first.
    pub(crate) volumes: Vec<pando_launch::Volume>,
    /// Where in it the program lies.
    pub(crate) program: PathBuf,
    /// Where the program starts.
    pub(crate) directory: PathBuf,
    /// What of it goes back to the host.
    pub(crate) exports: Exports,
    /// What of the host is needed for all that.
    pub(crate) reach: Paths,
    /// Something of it could not be read as it was.
    pub(crate) changed: Arc<AtomicBool>,
    account: Account,
    renewal: Option<Renewal>,
}

impl Asked {
    /// Finds the program and everything that it is to see. Nothing of the files is read yet.
    ///
    /// # Errors
    /// There is no such program, or something cannot be shown.
    pub(crate) fn for_run(options: &Seen, program: &OsStr) -> Result<Asked, Failure> {
        let (asked, view) = Asked::new(options, program, &Surroundings::here())?;
        Ok(Asked { volumes: view.into_volumes(&asked.changed), ..asked })
    }

    /// The same for a template, which others clone elsewhere: it does not see where its maker stands. Comes with a number that is another where it sees something else.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn for_template(options: &Seen, program: &OsStr) -> Result<(Asked, u64), Failure> {
        let (asked, view) = Asked::new(options, program, &Surroundings { directory: None, ..Surroundings::here() })?;
        let fingerprint = view.fingerprint();
        Ok((Asked { volumes: view.into_volumes(&asked.changed), ..asked }, fingerprint))
    }

    /// What a template of one of the host's programs sees.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn for_program(program: &str) -> Result<Asked, Failure> {
        Ok(Asked::for_template(&Seen::software(), OsStr::new(program))?.0)
    }

    fn new(options: &Seen, program: &OsStr, surroundings: &Surroundings) -> Result<(Asked, View), Failure> {
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
                let view = if options.bare { View::bare } else { View::of_host }(host.as_deref(), surroundings);
                (view?, program, surroundings.directory.as_deref().unwrap_or(root))
            }
        };
        let users = match &options.root {
            Some(_) => view.volumes[0].image.file_text(USERS)?.unwrap_or_default(),
            None if options.bare => String::new(),
            None => surroundings.users.clone(),
        };
        let account = Account::find(&users, options.user);
        view.add_home(&account)?;
        let (mut exports, mut change) = (Exports::default(), Vec::from_iter(surroundings.cache.clone()));
        let mut shown: Vec<(PathBuf, &Path)> = Vec::new();
        for (index, Volume { host, cell, writable }) in options.volumes.iter().enumerate() {
            // Said twice is said once.
            if options.volumes[..index].contains(&options.volumes[index]) {
                continue;
            }
            let failed = |why: String| Failure::Volume { file: host.clone(), why };
            // What a killed process left is gone before the cell's view is made.
            let export = if *writable { Some(Exports::open(host).map_err(|error| failed(host::plain(&error)))?) } else { None };
            let place: PathBuf = OsString::from_vec(view.show(host, cell).map_err(|error| failed(error.to_string()))?).into();
            // What is changed in one must not go to another.
            if let Some((_, before)) = shown.iter().find(|(earlier, _)| Path::new(earlier).starts_with(&place)) {
                return Err(failed(format!("it would hide {} at {}: give each a place of its own", before.display(), cell.display())));
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
        let renewal = view.renewal.take();
        Ok((Asked { volumes: Vec::new(), program, directory, exports, reach, changed: Arc::default(), account, renewal }, view))
    }

    /// The program with these arguments, the first of which is its name, without terminals.
    pub(crate) fn program(&self, options: &Seen, arguments: &[OsString]) -> Program {
        Program {
            path: self.program.as_os_str().as_bytes().to_vec(),
            directory: self.directory.as_os_str().as_bytes().to_vec(),
            arguments: arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
            environment: host::environment(&self.account, &options.variables),
            exports: self.exports.in_cell(),
            user: options.user.user,
            group: options.user.group,
            ..Program::default()
        }
    }

    /// Looks at the host once more, on a thread of its own, so that the next start sees what has changed.
    pub(crate) fn renew(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            let (nice, is_nice) = mpsc::channel();
            // A host without another thread for us will do it another time.
            let _ = std::thread::Builder::new().name("renewal".into()).spawn(move || renewal.run(nice));
            // A confined thread cannot make itself nice. One that was not started hangs up.
            let _ = is_nice.recv();
        }
    }
}

/// The program, if a `-v` shows it: it may have its name in the cell only.
fn shown_program<'a>(options: &Seen, program: &'a OsStr) -> Option<&'a Path> {
    let program = Path::new(program);
    options.volumes.iter().any(|volume| program.starts_with(&volume.cell)).then_some(program)
}

fn find(program: &OsStr) -> Result<PathBuf, Failure> {
    host::find_program(program).map_err(|problem| match problem {
        NoProgram::NotFound => Failure::NotFound(program.into()),
        NoProgram::NotExecutable(why) => Failure::NotExecutable { program: program.into(), why },
    })
}
