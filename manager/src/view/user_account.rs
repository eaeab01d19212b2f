// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user that a program runs as: name, home and shell, as the cell's `/etc/passwd` has them.

use super::spec::{User, UserName};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The directory of homes.
const HOMES: &str = "/home";
/// The most supplementary groups of a user.
const GROUPS_MAX: usize = 1024;
/// The shell of an unknown user.
const SHELL: &str = "/bin/sh";

/// A user of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserAccount {
    pub(super) user: User,
    /// `None` if it is unknown.
    name: Option<String>,
    pub(super) home: PathBuf,
    shell: String,
    /// The IDs of its supplementary groups.
    pub(super) groups: Vec<u32>,
}

impl UserAccount {
    /// Finds a user in the text of an `/etc/passwd`. The home of an unknown user is named by the user ID.
    pub fn find(users: &str, user: User) -> UserAccount {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let line = fields.into_iter().find(|fields| fields.len() >= 6 && fields[2].parse() == Ok(user.user));
        let field = |index: usize| line.as_ref().and_then(|fields| fields.get(index)).filter(|field| !field.is_empty());
        let is_root = user.user == 0;
        let unknown = if is_root { PathBuf::from("/root") } else { Path::new(HOMES).join(user.user.to_string()) };
        UserAccount {
            user,
            name: field(0).map(ToString::to_string).or_else(|| is_root.then(|| "root".into())),
            home: field(5).map(PathBuf::from).filter(|home| home.is_absolute()).unwrap_or(unknown),
            shell: field(6).map_or(SHELL, |shell| *shell).into(),
            groups: Vec::new(),
        }
    }

    /// Its user and group.
    #[must_use]
    pub fn user(&self) -> User {
        self.user
    }

    /// The account with the groups of which the text of an `/etc/group` names it as a member.
    #[must_use]
    pub(super) fn with_groups(self, groups: &str) -> UserAccount {
        let name = self.name.as_deref();
        let of_line = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let is_member = fields.len() >= 4 && name.is_some_and(|name| fields[3].split(',').any(|member| member == name));
            fields.get(2).filter(|_| is_member)?.parse().ok().filter(|group| *group != self.user.group)
        };
        let mut groups: Vec<u32> = groups.lines().filter_map(of_line).take(GROUPS_MAX).collect();
        groups.sort_unstable();
        groups.dedup();
        UserAccount { groups, ..self }
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

/// The numbers of a user and group in the texts of an `/etc/passwd` and an `/etc/group`. Without a group, a user that is not in the list
/// has the group of `unknown`.
///
/// # Errors
/// There is no such user or group: the sentence says which.
pub fn resolve(name: &UserName, users: &str, groups: &str, unknown: impl Fn(u32) -> u32) -> Result<User, String> {
    // Linux reserves the ID of all ones for "no change".
    let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX);
    let line = |text: &str, matches: &dyn Fn(&[&str]) -> bool| -> Option<Vec<String>> {
        let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        lines.find(|fields| fields.len() >= 4 && matches(fields)).map(|fields| fields.into_iter().map(Into::into).collect())
    };
    // Names come before numbers, as in docker: a name may consist of digits.
    let id = number(&name.user);
    let known = line(users, &|fields| fields[0] == name.user).or_else(|| line(users, &|fields| id.is_some() && number(fields[2]) == id));
    let user = match (&known, id) {
        (Some(fields), _) => number(&fields[2]),
        (None, id) => id,
    };
    let user = user.ok_or_else(|| format!("there is no user `{}` in its /etc/passwd", name.user))?;
    let group = match &name.group {
        None => known.and_then(|fields| number(&fields[3])).unwrap_or_else(|| unknown(user)),
        Some(group) => {
            let named = line(groups, &|fields| fields[0] == *group).and_then(|fields| number(&fields[2]));
            named.or_else(|| number(group)).ok_or_else(|| format!("there is no group `{group}` in its /etc/group"))?
        }
    };
    Ok(User { user, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str =
        "root:x:0:0:root:/root:/bin/bash\n\nwrong:line\nwww-data:x:33:33:www:/var/www:/bin/sh\nann:x:1000:1000:Ann,,,:/home/ann:\n";

    fn account(user: u32) -> (Option<String>, String, String, bool) {
        let account = UserAccount::find(USERS, User { user, group: user });
        (account.name.clone(), account.home.display().to_string(), account.shell.clone(), account.has_usual_home())
    }

    #[test]
    fn accounts_are_read_from_the_list_of_users() {
        let is = |name: &str, home: &str, shell: &str, usual| (Some(name.into()), home.into(), shell.into(), usual);
        assert_eq!(account(0), is("root", "/root", "/bin/bash", false));
        assert_eq!(account(33), is("www-data", "/var/www", "/bin/sh", false));
        assert_eq!(account(1000), is("ann", "/home/ann", "/bin/sh", true));
        assert_eq!(account(7), (None, "/home/7".into(), "/bin/sh".into(), true));
        assert_eq!(UserAccount::find("", User::default()).name.as_deref(), Some("root"));
    }

    #[test]
    fn supplementary_groups_are_those_that_name_the_user() {
        let groups = "root:x:0:\nwww-data:x:33:ann\naudio:x:29:bob,ann\nann:x:1000:ann\nvideo:x:44:bob,annie\nshort:x:5\nbad:x:y:ann\n";
        let of = |user: u32| UserAccount::find(USERS, User { user, group: user }).with_groups(groups).groups;
        assert_eq!((of(1000), of(33), of(7)), (vec![29, 33], vec![], vec![]));
    }

    #[test]
    fn users_and_groups_have_names_or_numbers() {
        let groups = "root:x:0:\nwww-data:x:33:\n7:x:70:\nshort\n";
        let find = |text: &str| {
            let name = UserName::parse(text).expect("it is one");
            resolve(&name, USERS, groups, |_| 9).map(|User { user, group }| (user, group))
        };
        assert_eq!((find("www-data"), find("33"), find("0")), (Ok((33, 33)), Ok((33, 33)), Ok((0, 0))));
        assert_eq!((find("ann:www-data"), find("ann:5"), find("77:33")), (Ok((1000, 33)), Ok((1000, 5)), Ok((77, 33))));
        assert_eq!((find("77"), find("77:7")), (Ok((77, 9)), Ok((77, 70))));
        for text in ["bob", "ann:bobs", "4294967295", "-1", "wrong", "1.5"] {
            assert!(find(text).is_err(), "{text}");
        }
        for text in ["", ":", "a:", ":a", "a:b:c", "a\nb"] {
            assert_eq!(UserName::parse(text), None, "{text}");
        }
    }
}
