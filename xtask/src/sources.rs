// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party programs and test suites that the tests run: Debian sources, and crates.
//!
//! apt fetches Debian's sources from this machine's mirrors and checks their signatures. Unavailable ones are reported, and
//! the tests that need them are left out.

use anyhow::{Context, Result, anyhow, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace;

/// Debian's sources, and their purposes.
const SOURCES: [(&str, &str); 2] = [("busybox", "busybox's own tests"), ("sqlite3", "the shell of sqlite and its load")];
/// The format in which apt's index of this machine's packages is printed: `deb-src` lines of the same repositories.
const LINES: &str = "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)";

/// The folder of the fetched sources.
fn folder() -> PathBuf {
    workspace::target().join("sources")
}

/// Fetches one of Debian's sources unless it is there; returns its folder.
///
/// # Errors
/// If it is not available.
pub(crate) fn source(name: &str) -> Result<PathBuf> {
    let place = folder().join(name);
    if !place.is_dir() {
        println!("fetching Debian's source of {name}");
        unpack(&folder(), name, &index(&folder())?)?;
    }
    Ok(place)
}

/// Fetches all missing sources; returns descriptions of those that are not available.
pub(crate) fn fetch() -> Vec<String> {
    let folder = folder();
    let missing = |name: &str| !folder.join(name).is_dir();
    let wanted: Vec<_> = SOURCES.into_iter().filter(|(name, _)| missing(name)).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let index = index(&folder);
    let mut left_out = Vec::new();
    for (name, purpose) in wanted {
        println!("fetching Debian's source of {name}, for {purpose}");
        let fetched = index.as_ref().map_err(|error| format!("{error:#}"));
        let fetched = fetched.and_then(|options| unpack(&folder, name, options).map_err(|error| format!("{error:#}")));
        left_out.extend(fetched.err().map(|error| format!("{purpose}: {error}")));
    }
    left_out
}

/// Updates the index of sources; returns the apt options that use it.
fn index(folder: &Path) -> Result<Vec<String>> {
    ensure!(Path::new("/etc/debian_version").exists(), "its source comes from Debian's apt, and this is not Debian");
    let lists = folder.join("lists");
    fs::create_dir_all(lists.join("partial")).context("making a folder for apt")?;
    let mut known = Command::new("apt-get");
    known.args(["indextargets", "--format", LINES, "Created-By: Packages", "Origin: Debian"]);
    let lines = workspace::run(&mut known)?;
    ensure!(!lines.is_empty(), "apt knows no packages of Debian: run apt-get update");
    let sources = folder.join("sources.list");
    fs::write(&sources, lines).context("writing the list of sources")?;
    let option = |name: &str, value: &Path| format!("--option={name}={}", value.display());
    let options = vec![
        option("Dir::Etc::sourcelist", &sources),
        option("Dir::Etc::sourceparts", Path::new("-")),
        option("Dir::State::lists", &lists),
        option("Dir::Cache", folder),
        "--option=APT::Sandbox::User=".into(),
        "-qq".into(),
    ];
    workspace::run(Command::new("apt-get").args(&options).arg("update"))?;
    Ok(options)
}

/// Fetches a source and unpacks it into a folder of its name.
fn unpack(folder: &Path, name: &str, options: &[String]) -> Result<()> {
    let unfinished = folder.join(format!("{name}.part"));
    let _ = fs::remove_dir_all(&unfinished);
    let inside = unfinished.join("tree");
    fs::create_dir_all(&inside).context("making a folder for a source")?;
    download(&unfinished, name, options)?;
    for file in fs::read_dir(&unfinished)?.collect::<Result<Vec<_>, _>>()? {
        let path = file.path();
        let file = file.file_name().to_string_lossy().into_owned();
        // Debian's additions have a folder of their own already.
        let above = if file.contains(".orig.tar.") { "1" } else { "0" };
        if file.contains(".orig.tar.") || file.contains(".debian.tar.") {
            let packed = match path.extension().and_then(|end| end.to_str()) {
                Some("bz2") => "bunzip2",
                Some("gz") => "gunzip",
                _ => "unxz",
            };
            // Some have an old tar format that busybox's own tar does not know.
            let script = "busybox \"$1\" -c \"$2\" | tar -x --strip-components \"$3\" -C \"$4\"";
            workspace::run(Command::new("sh").args(["-c", script, "unpack", packed]).arg(&path).arg(above).arg(&inside))?;
        }
    }
    fs::rename(&inside, folder.join(name)).context("moving a source to its place")?;
    fs::remove_dir_all(&unfinished).context("removing the fetched archives")
}

/// Downloads the newest available version of a source. The newest version in the index may be gone from the mirror.
fn download(into: &Path, name: &str, options: &[String]) -> Result<()> {
    let mut known = Command::new("apt-cache");
    let known = workspace::run(known.args(options).args(["showsrc", "--only-source", name]))?;
    let mut versions: Vec<&str> = known.lines().filter_map(|line| line.strip_prefix("Version: ")).collect();
    versions.reverse();
    let mut result = Err(anyhow!("apt knows no source of {name}"));
    for version in versions {
        let mut get = Command::new("apt-get");
        get.args(options).args(["--download-only", "source", &format!("{name}={version}")]).current_dir(into);
        result = workspace::run(&mut get).map(drop);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// A crate whose program the tests run.
struct CrateProgram {
    name: &'static str,
    program: &'static str,
    purpose: &'static str,
}

const TOOLS: [CrateProgram; 2] = [
    CrateProgram { name: "ripgrep", program: "bin/rg", purpose: "a search tool in Rust" },
    CrateProgram { name: "fsx", program: "bin/fsx", purpose: "a file system exerciser" },
];

/// Builds the missing tools, linked statically; returns descriptions of those that are not available.
pub(crate) fn build() -> Vec<String> {
    let folder: PathBuf = workspace::target().join("tools");
    let missing = TOOLS.into_iter().filter(|tool| !folder.join(tool.program).exists());
    let build = |CrateProgram { name, purpose, .. }: CrateProgram| {
        println!("building {name}, {purpose}");
        let mut cargo = workspace::cargo();
        cargo.args(["install", name, "--locked", "--quiet", "--root"]).arg(&folder);
        // With a named target, build scripts and macros are not linked statically.
        cargo.args(["--target", "x86_64-unknown-linux-gnu", "--target-dir"]).arg(folder.join("build"));
        cargo.env("RUSTFLAGS", "-C target-feature=+crt-static").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
        let built = workspace::run(&mut cargo);
        let _ = fs::remove_dir_all(folder.join("build"));
        built.err().map(|error| format!("{name}: {error:#}"))
    };
    missing.filter_map(build).collect()
}
