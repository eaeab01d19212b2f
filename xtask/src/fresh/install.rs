// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a release in a system without Rust: each is installed as a user would, and runs a program.

use super::enter_without_rust;
use crate::dist::Distribution;
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Checks the Debian package: the program runs, its pages and units are there, and it can be removed.
const PACKAGE: &str = r#"
dpkg --install "$FILE" >&2
pando run -- sh -c 'echo hello from $(hostname)'
test "$(pando version)" = "pando $(dpkg-query --show --showformat='${Version}' pando)"
for file in share/man/man1/pando-run.1.gz share/bash-completion/completions/pando; do test -s /usr/$file; done
for unit in system/pando@.socket system/pando@.service user/pando.socket user/pando.service; do test -s /usr/lib/systemd/$unit; done
grep --quiet '^ExecStart=/usr/bin/pando serve' /usr/lib/systemd/system/pando@.service
dpkg --purge pando >&2
test ! -e /usr/bin/pando
"#;
/// Checks the wheel: Python's only other requirement, httpx, comes from Debian here, so that no index of packages is asked.
const WHEEL: &str = r#"
apt-get install -qq --yes --no-install-recommends python3-venv python3-httpx >/tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
for program in pando cargo; do if command -v $program; then exit 1; fi; done
python3 -m venv --system-site-packages /opt/venv
/opt/venv/bin/pip install --quiet --no-index --disable-pip-version-check "$FILE"
cd /tmp
/opt/venv/bin/python -c 'import pando; print("hello from", pando.run("print(1)").stdout)'
/opt/venv/bin/pando run -- echo hello from the command of the wheel
"#;

/// Installs the package and the wheel, one after the other.
///
/// # Errors
/// One cannot be installed, or its program does not run.
pub(super) fn check(root: &Path, made: &Distribution) -> Result<()> {
    let package = made.package.as_ref().context("a Debian has dpkg-deb")?;
    for (file, script, hello) in [(package, PACKAGE, "hello from pando\n"), (&made.wheel, WHEEL, "hello from 1\n")] {
        let name = file.file_name().context("a file has a name")?.display();
        println!("== in a fresh system without Rust: {name}");
        let output = enter_without_rust(root, file, script)?;
        ensure!(output.contains(hello), "{name} does not print `{}` in a fresh system: {output}", hello.trim_end());
        print!("{output}");
    }
    Ok(())
}
