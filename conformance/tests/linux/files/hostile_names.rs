// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile names and images: no path escapes the root, and damage is an error of the file that it hits.

use crate::case::{Case, Input, PANDO, finish, long_runs, succeed};
use crate::chroot::ChrootDirectory;
use crate::data::Numbers;
use pando_testing::{host_program, needs_kvm};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const BUSYBOX: &str = "/bin/busybox";
/// A secret of the host that no cell may see.
const SECRET: &str = "the secret of the host";

/// A path of these tests, which has no special characters.
fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// Paths that try to escape a root, loop, or are too long. `secret` is a path of the host that the root does not have.
fn paths(secret: &str) -> Vec<String> {
    let mut paths: Vec<String> = [
        "",
        "..",
        "/..",
        "/../../../etc/passwd",
        "odd/../../../../../../etc/passwd",
        "//etc///passwd",
        "/etc/passwd/",
        "/etc/passwd/.",
        "/etc/passwd/../passwd",
        "/odd/out",
        "/odd/absolute",
        "/odd/up/",
        "/odd/here/..",
        "/odd/here/../../odd/hard",
        "/odd/itself",
        "/odd/itself/x",
        "/odd/first",
        "/odd/second/../x",
        "/odd/dangling",
        "/odd/dangling/",
        "/odd/long",
        "/odd/long/x",
        "/odd/fifo/x",
        "/odd/null/..",
        "/proc/self/root/etc/passwd",
        "/proc/self/root/../../../etc/passwd",
        "/proc/self/root/proc/self/root/..",
        "/proc/self/cwd/../../etc/hosts",
        "/proc/self/exe/..",
        "/proc/self/exe/../../etc/passwd",
        "/proc/self/fd/../root/etc/passwd",
        "/proc/self/fd/0/..",
        "/dev/fd/0/../../etc/passwd",
        "/dev/fd/../fd/../../etc/passwd",
        "/nowhere/../etc/passwd",
    ]
    .map(str::to_owned)
    .into();
    paths.extend([secret.to_owned(), format!("/..{secret}"), format!("/proc/self/root{secret}"), format!("/proc/self/cwd/../..{secret}")]);
    // Linux follows 40 links while it resolves a name. After a concurrent change it starts again without resetting the
    // count, so names near the limit are not reliable.
    paths.extend([13, 41].map(|links| format!("/odd/{}hard", "here/".repeat(links))));
    paths.extend([255, 256, 4000].map(|length| format!("/odd/{}", "n".repeat(length))));
    // A path has 4095 bytes at most.
    paths.extend([4094, 4095, 4096, 5000].map(|length| format!("{:/<1$}etc/hosts", "", length - "etc/hosts".len())));
    paths.extend([2042, 2043, 2044].map(|steps| format!("/{}etc/hosts", "./".repeat(steps))));
    paths
}

#[test]
fn no_path_leads_out_of_the_root() {
    let Some(root) = ChrootDirectory::get() else { return };
    let host = tempfile::tempdir().expect("a temporary directory");
    let secret = host.path().join("secret");
    fs::write(&secret, SECRET).expect("the directory is ours");
    let paths = paths(text(&secret));
    let all: Vec<&str> = paths.iter().map(String::as_str).collect();
    // A cell generates the listings of /proc and of the root itself.
    let plain: Vec<&str> =
        all.iter().copied().filter(|path| !path.contains("/proc") && !path.contains("/dev") && !path.ends_with("..")).collect();
    let first = |words: &[&str], paths: &[&str]| Case::new(BUSYBOX, &[words, paths].concat()).input(Input::Pipe(b""));
    let mut cases = vec![first(&["cat"], &all), first(&["ls", "-ld"], &plain), first(&["stat", "-L", "-c", "%n %F %s"], &plain)];
    cases.extend(all.iter().flat_map(|path| [first(&["readlink", "-f"], &[path]), first(&["realpath"], &[path])]));
    for path in [
        "/odd/out",
        "/odd/itself",
        "/odd/dangling",
        "/odd/long",
        "/proc/self/root/etc/new",
        "/../../etc/new",
        "/etc/passwd/",
        text(&secret),
    ] {
        // A program reads back its own writes.
        let script = "echo written > \"$0\" && read line < \"$0\" && echo \"$line\"; cd \"$0/..\" && pwd -P";
        cases.push(first(&["sh", "-c", script], &[path]));
        cases.push(first(&["mkdir", "-p"], &[&format!("{path}/deeper")]));
        cases.push(first(&["mv", "/etc/hosts"], &[path]));
        cases.push(first(&["ln", "/etc/hosts"], &[path]));
        cases.push(first(&["rm"], &[path]));
    }
    let differences = |case: Case<'_>| {
        let cell = root.cell(&case, "/", None);
        assert!(!String::from_utf8_lossy(&cell.output).contains(SECRET), "{case:?} shows a secret");
        case.hold(&root.native(&case, "/", None), &cell).err()
    };
    let problems: Vec<String> = cases.into_iter().filter_map(differences).collect();
    assert!(problems.is_empty(), "{} differ:\n{}", problems.len(), problems.join("\n"));
    let links = |count: usize| {
        let path = format!("/odd/{}hard", "here/".repeat(count));
        root.cell(&first(&["stat", "-L", "-c", "%s"], &[&path]), "/", None).status
    };
    assert_eq!((links(40), links(41)), (0, 1));
    assert_eq!(fs::read_to_string(&secret).expect("it is still there"), SECRET);
}

/// A directory of the host with a secret beside it and links that point there.
fn tempting() -> (TempDir, [String; 5]) {
    let host = tempfile::tempdir().expect("a temporary directory");
    let shown = host.path().join("shown");
    fs::create_dir_all(shown.join("deep")).expect("the directory is ours");
    fs::write(host.path().join("secret"), SECRET).expect("the directory is ours");
    let up = "../".repeat(30);
    let secret = host.path().join("secret");
    for (name, target) in
        [("beside", "../secret".into()), ("absolute", text(&secret).to_owned()), ("far", format!("{up}{}", secret.display()))]
    {
        symlink(target, shown.join(name)).expect("it was not there");
    }
    symlink("..", shown.join("deep/above")).expect("it was not there");
    (host, ["beside", "absolute", "far", "deep/above/../secret", "../secret"].map(str::to_owned))
}

#[test]
fn links_in_shown_directories_do_not_lead_outside() {
    needs_kvm!();
    let (host, names) = tempting();
    let shown = host.path().join("shown");
    let check = |case: Case<'_>| {
        let outcome = case.cell();
        let complaints = outcome.errors.matches("No such file or directory").count();
        assert!(outcome.status == 1 && outcome.output.is_empty() && complaints == names.len(), "{case:?}: {outcome:?}");
    };
    let at =
        |directory: &str| ["cat".to_owned()].into_iter().chain(names.iter().map(|name| format!("{directory}/{name}"))).collect::<Vec<_>>();
    check(Case::new("busybox", &at("/data")).options(&["-v", &format!("{}:/data:ro", shown.display())]));
    check(Case::new("busybox", &at(".")).directory(&shown));
    fs::copy("/bin/busybox", shown.join("busybox")).expect("busybox is there");
    check(Case::new("/busybox", &at("/")).options(&["--root", text(&shown)]));
    // An archive of the same files.
    let archive = host.path().join("archive.tar");
    let mut tar = Command::new(host_program("tar"));
    tar.arg("-cf").arg(&archive).arg("-C").arg(&shown).arg(".");
    succeed(tar);
    check(Case::new("/busybox", &at("/")).options(&["--root", text(&archive)]));
}

#[test]
fn archives_that_lead_out_are_no_roots() {
    let (host, _) = tempting();
    let archive = host.path().join("archive.tar");
    for (options, name, problem) in
        [(&["-P"][..], "../secret", "is outside of it"), (&["-P"], text(&host.path().join("secret")), "is absolute")]
    {
        let mut tar = Command::new(host_program("tar"));
        tar.arg("-cf").arg(&archive).arg("-C").arg(host.path().join("shown")).args(options).arg(name);
        succeed(tar);
        let outcome = Case::new("/busybox", &["true"]).options(&["--root", text(&archive)]).cell();
        assert!(outcome.status == 125 && outcome.errors.starts_with("pando: ") && outcome.errors.contains(problem), "{name}: {outcome:?}");
    }
}

/// A small image with all kinds of files, and busybox.
fn small_image(directory: &Path) -> Vec<u8> {
    let tree = directory.join("tree");
    fs::create_dir_all(tree.join("bin")).expect("the directory is ours");
    fs::copy("/bin/busybox", tree.join("bin/busybox")).expect("busybox is there");
    for number in 0..200 {
        let below = tree.join(format!("many/{}", number % 7));
        fs::create_dir_all(&below).expect("the directory is ours");
        fs::write(below.join(format!("file-{number}")), "content\n".repeat(number * 5)).expect("the directory is ours");
        symlink(format!("file-{number}"), below.join(format!("link-{number}"))).expect("it was not there");
    }
    let image = directory.join("image");
    let mut build = Command::new(PANDO);
    build.args(["image", "build"]).arg(&tree).arg("-o").arg(&image);
    succeed(build);
    fs::read(image).expect("it was just written")
}

/// The number of seeded cases.
fn tries() -> usize {
    if long_runs() { 2000 } else { 60 }
}

#[test]
fn damaged_images_cause_errors_only_where_damaged() {
    needs_kvm!();
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let whole = small_image(scratch.path());
    let image = scratch.path().join("damaged");
    let mut numbers = Numbers::new(6);
    let mut ran = 0;
    for seed in 0..tries() {
        let mut bytes = whole.clone();
        for _ in 0..1 + numbers.below(8) {
            // The names and inodes are at the front.
            let near = if numbers.below(8) == 0 { bytes.len() } else { 64 << 10 };
            let at = 1024 + numbers.below(near - 1024);
            match numbers.below(4) {
                0 => bytes[at] ^= 1 << numbers.below(8),
                1 => bytes[at] = numbers.next() as u8,
                2 => bytes[at..at + 8].fill(if numbers.below(2) == 0 { 0 } else { 0xff }),
                _ => bytes.copy_within(at & !31..(at & !31) + 32, numbers.below(64 << 10) & !31),
            }
        }
        if numbers.below(10) == 0 {
            bytes.truncate(numbers.below(bytes.len()));
        }
        fs::write(&image, &bytes).expect("the directory is ours");
        let mut command = Command::new(PANDO);
        command.args(["run", "--timeout", "20s", "--memory", "128M", "--root"]).arg(&image);
        // All names, all attributes, all content.
        command.args([BUSYBOX, "tar", "-cf", "-", "/"]);
        let outcome = finish(command, Input::Nothing);
        // Damage may make a tree endless, or replace a program by another one.
        let known = [0, 1, 2, 124, 125, 126, 127, 132, 134, 135, 136, 137, 139].contains(&outcome.status);
        // The C library of a damaged program exits with 127.
        let own = outcome.status <= 2 || outcome.status == 127;
        let explained = own || outcome.errors.lines().any(|line| line.starts_with("pando: "));
        let sound = !["panicked", "the library OS", "libOS"].iter().any(|word| outcome.errors.contains(word));
        assert!(known && explained && sound, "damage {seed}: status {}: {}", outcome.status, outcome.errors);
        ran += usize::from(outcome.status <= 2);
    }
    assert!(ran * 4 > tries(), "most damage reaches the program: {ran}");
}
