// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user that a program runs as: name, home and shell, as the cell's `/etc/passwd` has them.

use super::spec::User;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The directory of homes.
const HOMES: &str = "/home";
/// The shell of an unknown user.
const SHELL: &str = "/bin/sh";

/// A user of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub(super) user: User,
    /// `None` if it is unknown.
    name: Option<String>,
    pub(super) home: PathBuf,
    shell: String,
}

impl Account {
    /// Finds a user in the text of an `/etc/passwd`. The home of an unknown user is named by the user ID.
    pub fn find(users: &str, user: User) -> Account {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let line = fields.into_iter().find(|fields| fields.len() >= 6 && fields[2].parse() == Ok(user.user));
        let field = |index: usize| line.as_ref().and_then(|fields| fields.get(index)).filter(|field| !field.is_empty());
        let is_root = user.user == 0;
        let unknown = if is_root { PathBuf::from("/root") } else { Path::new(HOMES).join(user.user.to_string()) };
        Account {
            user,
            name: field(0).map(ToString::to_string).or_else(|| is_root.then(|| "root".into())),
            home: field(5).map(PathBuf::from).filter(|home| home.is_absolute()).unwrap_or(unknown),
            shell: field(6).map_or(SHELL, |shell| *shell).into(),
        }
    }

    /// Whether its home is in the directory of homes, and so is created: the homes of system users are those of the image.
    pub(super) fn has_usual_home(&self) -> bool {
        self.home.parent() == Some(Path::new(HOMES))
    }

    /// The variables that a login sets.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let named = ["USER", "LOGNAME"].into_iter().filter_map(|variable| Some((variable, OsString::from(self.name.as_ref()?))));
        let places = [("HOME", self.home.clone().into_os_string()), ("SHELL", self.shell.clone().into())];
        named.chain(places).map(|(name, value)| (name.into(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str =
        "root:x:0:0:root:/root:/bin/bash\n\nwrong:line\nwww-data:x:33:33:www:/var/www:/bin/sh\nann:x:1000:1000:Ann,,,:/home/ann:\n";

    fn account(user: u32) -> (Option<String>, String, String, bool) {
        let account = Account::find(USERS, User { user, group: user });
        (account.name.clone(), account.home.display().to_string(), account.shell.clone(), account.has_usual_home())
    }

    #[test]
    fn accounts_are_read_from_the_list_of_users() {
        let is = |name: &str, home: &str, shell: &str, usual| (Some(name.into()), home.into(), shell.into(), usual);
        assert_eq!(account(0), is("root", "/root", "/bin/bash", false));
        assert_eq!(account(33), is("www-data", "/var/www", "/bin/sh", false));
        assert_eq!(account(1000), is("ann", "/home/ann", "/bin/sh", true));
        assert_eq!(account(7), (None, "/home/7".into(), "/bin/sh".into(), true));
        assert_eq!(Account::find("", User::default()).name.as_deref(), Some("root"));
    }
}
