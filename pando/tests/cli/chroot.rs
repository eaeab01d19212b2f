// SPDX-License-Identifier: MIT OR Apache-2.0
//! A portable image as the root of programs: in a cell, and in a chroot of the same image, mounted by the host.
//!
//! The image is mounted once, in the mount namespace of a process that ends with this one. Each native run gets a namespace
//! of its own with a tmpfs layer over the image, so that it may write anywhere and leaves nothing.

use crate::case::{Case, CaseOutcome, Input, PANDO, finish, long_runs};
use crate::data;
use pando_testing::host_program;
use pando_testing::lab::is_kvm_available;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Mounts the image, prints `mounted`, and stays until its standard input is closed.
const MOUNT: &str = "mount -t erofs -o loop,ro \"$0\" \"$1\" && echo mounted && exec cat";

/// Mounts a tmpfs layer over the image and runs the rest of its arguments there. $0 is the image, $1 a directory to mount
/// it on, $2 one for /work or empty, $3 the working directory.
const ENTER: &str = r#"
set -e
image=$0 memory=$1 work=$2 start=$3
shift 3
mount -t tmpfs none "$memory"
mkdir "$memory/above" "$memory/scratch" "$memory/root"
mount -t overlay -o "lowerdir=$image,upperdir=$memory/above,workdir=$memory/scratch" none "$memory/root"
cd "$memory/root"
mount -t proc none proc
mount -t tmpfs none dev
for device in full null random tty urandom zero; do cp -a "/dev/$device" dev/; done
ln -s /proc/self/fd dev/fd
[ -z "$work" ] || mount --bind "$work" work
unset PWD OLDPWD
exec unshare --root . --wd "$start" "$@"
"#;

/// A root for programs, with everything needed to enter it.
pub(crate) struct ChrootDirectory {
    /// The source directory of the image.
    pub(crate) tree: PathBuf,
    pub(crate) image: PathBuf,
    mounted: PathBuf,
    memory: PathBuf,
    /// The process whose mount namespace has the image.
    holder: Child,
}

impl ChrootDirectory {
    /// Creates the root by `programs/root.sh`. Where images cannot be mounted, prints the reason and returns `None`.
    pub(crate) fn get() -> Option<&'static ChrootDirectory> {
        static ROOT: OnceLock<Option<ChrootDirectory>> = OnceLock::new();
        if !is_kvm_available() {
            return None;
        }
        let root = ROOT.get_or_init(|| can_mount().then(ChrootDirectory::new)).as_ref();
        if root.is_none() {
            println!("left out: mounting images needs root and a loop device");
        }
        root
    }

    fn new() -> ChrootDirectory {
        let directory = data::directory().join("chroot");
        let [tree, image, mounted, memory] = ["tree", "image", "mounted", "memory"].map(|name| directory.join(name));
        let _ = fs::remove_dir_all(&directory);
        [&tree, &mounted, &memory].into_iter().for_each(|path| fs::create_dir_all(path).expect("the target directory can be written"));
        let [text, binary] = [("text", data::text(200_000)), ("binary", data::binary(100_000))].map(|(name, bytes)| {
            let path = directory.join(name);
            fs::write(&path, bytes).expect("the target directory can be written");
            path
        });
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/root.sh");
        let mut fill = Command::new(host_program("sh"));
        fill.arg(script).args([&tree, &text, &binary]).arg(if long_runs() { "all" } else { "" });
        succeed(fill);
        let mut build = Command::new(PANDO);
        build.args(["image", "build"]).arg(&tree).arg("-o").arg(&image);
        succeed(build);
        let mut holder = Command::new(host_program("unshare"));
        holder.args(["--mount", "sh", "-c", MOUNT]).args([&image, &mounted]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().expect("unshare starts");
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a pipe can be read");
        assert_eq!(line, "mounted\n", "the image cannot be mounted");
        ChrootDirectory { tree, image, mounted, memory, holder }
    }

    /// Runs a program of the root natively, starting in `start`, with a directory of the host at /work.
    pub(crate) fn native(&self, case: &Case<'_>, start: &str, work: Option<&Path>) -> CaseOutcome {
        let mut enter = Command::new(host_program("nsenter"));
        enter.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id())).args(["unshare", "--mount", "sh", "-c", ENTER]);
        enter.args([&self.mounted, &self.memory]).arg(work.unwrap_or(Path::new(""))).arg(start);
        case.through(enter)
    }

    /// Runs the same program in a cell.
    pub(crate) fn cell(&self, case: &Case<'_>, start: &str, work: Option<&Path>) -> CaseOutcome {
        let mut case = case.clone().options(&["--root", path(&self.image), "-w", start]);
        if let Some(work) = work {
            case = case.options(&["-v", &format!("{}:/work", path(work))]);
        }
        case.cell()
    }
}

/// A path of these tests, which has no special characters.
fn path(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// Whether this process may mount images.
fn can_mount() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    root && Command::new(host_program("losetup")).arg("--find").output().is_ok_and(|output| output.status.success())
}

/// Runs a command that must succeed.
pub(crate) fn succeed(command: Command) {
    let shown = format!("{command:?}");
    let outcome = finish(command, Input::Nothing);
    assert!(outcome.status == 0, "{shown}: {outcome:?}");
}

/// The entries of a listing without those that a cell generates itself: /dev, /proc and /sys, and the root with them and /work.
fn without_own(listing: &[u8]) -> Vec<String> {
    let listing = String::from_utf8_lossy(listing);
    let own = |section: &str| {
        let name = section.lines().next().unwrap_or_default().trim_end_matches(':');
        name == "/" || ["/dev", "/proc", "/sys"].iter().any(|top| name == *top || name.starts_with(&format!("{top}/")))
    };
    listing.split("\n\n").filter(|section| !own(section)).map(str::to_owned).collect()
}

#[test]
fn the_whole_root_is_listed() {
    let Some(root) = ChrootDirectory::get() else { return };
    let case = Case::new("/bin/busybox", &["ls", "-lnR", "--full-time", "/"]);
    let [native, cell] = [root.native(&case, "/", None), root.cell(&case, "/", None)].map(|outcome| without_own(&outcome.output));
    assert!(native.len() > 20 && native.iter().any(|section| section.starts_with("/odd/many:")), "{native:?}");
    for (native, cell) in native.iter().zip(&cell) {
        assert_eq!(native, cell);
    }
    assert_eq!(native.len(), cell.len());
    let top = Case::new("/bin/busybox", &["ls", "-a", "/"]);
    assert_eq!(root.native(&top, "/", None), root.cell(&top, "/", None));
}
