// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of views, on directories made for the purpose; and the host's own software.

use super::trees::CachedTree;
use super::{PreparedView, View, ViewSpec, ViewVolume, VolumeSpec};
use crate::environment::HostEnvironment;
use crate::report::Reporter;
use crate::view_images::{ImageUse, ViewImages};
use pando_confine::Authority;
use pando_image::{Builder, Cache, Kind};
use pando_testing::host_program;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A directory with homes, programs and projects.
struct Stage(TempDir);

impl Stage {
    fn new() -> Self {
        Stage(tempfile::tempdir().expect("there is room"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().expect("it is there").join(name)
    }

    /// Creates an executable file.
    fn program(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("there is room");
        fs::write(&path, name).expect("there is room");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
        path
    }

    fn environment(&self, directory: Option<PathBuf>) -> HostEnvironment {
        let (homes, cache) = (vec![self.path("home")], Some(self.path("cache")));
        HostEnvironment {
            directory,
            homes,
            tree_cache: cache.clone(),
            cache,
            rustup_home: Some(self.path("home/.rustup")),
            ..HostEnvironment::default()
        }
    }
}

fn mounts(view: &View) -> Vec<&Path> {
    view.volumes.iter().map(|ViewVolume { mount, .. }| Path::new(std::ffi::OsStr::from_bytes(mount))).collect()
}

/// The kind of file at a path of the cell: in the volume that is mounted closest to it.
fn find(view: &mut View, path: &Path) -> Option<Kind> {
    let (volume, path) = view.covering(path);
    volume.image.find(&path).expect("the image is sound")
}

/// The mount points besides the root, for a program and a current directory.
fn beside(stage: &Stage, program: &Path, directory: Option<PathBuf>) -> Vec<PathBuf> {
    let view = View::of_host(Some(program), &stage.environment(directory)).expect("the host can be looked at");
    mounts(&view)[1..].iter().map(PathBuf::from).collect()
}

#[test]
fn a_program_comes_with_its_prefix() {
    let stage = Stage::new();
    for (program, prefix) in [
        ("tool/bin/run", Some("tool")),
        ("tool/sbin/run", Some("tool")),
        ("pyenv/shims/run", Some("pyenv")),
        ("tool/libexec/run", None),
        ("alone", None),
        // A home is no prefix, but a directory in one may be.
        ("home/bin/run", None),
        ("home/.local/bin/run", Some("home/.local")),
    ] {
        let path = stage.program(program);
        assert_eq!(beside(&stage, &path, None), prefix.map(|prefix| stage.path(prefix)).into_iter().collect::<Vec<_>>(), "{program}");
        let mut view = View::of_host(Some(&path), &stage.environment(None)).expect("the host can be looked at");
        assert_eq!(find(&mut view, &path), Some(Kind::File), "{program}");
        // The root alone shows the program, too.
        assert_eq!(view.volumes[0].image.find(path.as_os_str().as_bytes()).expect("the image is sound"), Some(Kind::File));
    }
}

#[test]
fn directories_that_hold_homes_are_no_prefix_and_not_shown() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("home/work")).expect("there is room");
    let here = stage.path("");
    let above = stage.program("bin/run");
    assert_eq!(beside(&stage, &above, None), Vec::<PathBuf>::new());
    for directory in [stage.path("home"), here, "/".into(), "/home".into(), "/root".into(), "/home/somebody".into()] {
        assert_eq!(beside(&stage, &above, Some(directory.clone())), Vec::<PathBuf>::new(), "{}", directory.display());
    }
    assert_eq!(beside(&stage, &above, Some(stage.path("home/work"))), [stage.path("home/work")]);
}

#[test]
fn links_to_programs_lead_to_both_prefixes() {
    let stage = Stage::new();
    let real = stage.program("tool/bin/run");
    fs::create_dir_all(stage.path("home/.local/bin")).expect("there is room");
    let link = stage.path("home/.local/bin/run");
    symlink(&real, &link).expect("there is room");
    assert_eq!(beside(&stage, &link, None), [stage.path("home/.local"), stage.path("tool")]);
}

#[test]
fn toolchains_in_a_home_are_shown_and_no_secrets_beside_them() {
    let stage = Stage::new();
    stage.program("home/.cargo/bin/rustup");
    stage.program("home/.rustup/toolchains/stable/bin/rustc");
    for name in
        ["home/.cargo/credentials.toml", "home/.ssh/id", "home/.rustup/settings.toml", "home/.rustup/tmp/x", "home/.cargo/registry/x"]
    {
        stage.program(name);
    }
    let proxy = stage.path("home/.cargo/bin/rustc");
    symlink("rustup", &proxy).expect("there is room");
    let mut view = View::of_host(Some(&proxy), &stage.environment(None)).expect("the host can be looked at");
    assert_eq!(mounts(&view)[1..], [stage.path("home/.cargo"), stage.path("home/.rustup")]);
    assert_eq!(view.variables, [("RUSTUP_HOME".into(), stage.path("home/.rustup").into_os_string())]);
    let mut at = |path: &str| find(&mut view, &stage.path(path));
    assert_eq!(at("home/.rustup/toolchains/stable/bin/rustc"), Some(Kind::File));
    assert_eq!(at("home/.rustup/settings.toml"), Some(Kind::File));
    assert_eq!(at("home/.cargo/bin/rustup"), Some(Kind::File));
    for secret in ["home/.cargo/credentials.toml", "home/.cargo/registry", "home/.ssh", "home/.rustup/tmp"] {
        assert_eq!(at(secret), None, "{secret}");
    }
    // The current directory is shown all the same, where it is one that the prefix does not show.
    let current = stage.path("home/.cargo/registry");
    assert_eq!(beside(&stage, &proxy, Some(current.clone())), [stage.path("home/.cargo"), stage.path("home/.rustup"), current]);
}

#[test]
fn shims_of_pyenv_come_with_its_versions() {
    let stage = Stage::new();
    let shim = stage.program("home/.pyenv/shims/python3");
    for name in ["libexec/pyenv", "versions/3.12.1/bin/python3", "version", "cache/download", "token"] {
        stage.program(&format!("home/.pyenv/{name}"));
    }
    let mut view = View::of_host(Some(&shim), &stage.environment(None)).expect("the host can be looked at");
    assert_eq!(mounts(&view)[1..], [stage.path("home/.pyenv")]);
    let mut at = |path: &str| find(&mut view, &stage.path("home/.pyenv").join(path));
    for shown in ["shims/python3", "libexec/pyenv", "versions/3.12.1/bin/python3", "version"] {
        assert_eq!(at(shown), Some(Kind::File), "{shown}");
    }
    assert_eq!((at("cache"), at("token")), (None, None));
}

#[test]
fn the_current_directory_is_shown_once() {
    let stage = Stage::new();
    let program = stage.program("tool/bin/run");
    fs::create_dir_all(stage.path("work/tool2/bin")).expect("there is room");
    let elsewhere = stage.path("work");
    assert_eq!(beside(&stage, &program, Some(elsewhere.clone())), [stage.path("tool"), elsewhere]);
    // If the current directory is the prefix or a parent, it covers the prefix; a prefix covers a current directory inside it.
    assert_eq!(beside(&stage, &program, Some(stage.path("tool"))), [stage.path("tool")]);
    let inner = stage.program("work/tool2/bin/run");
    assert_eq!(beside(&stage, &inner, Some(stage.path("work"))), [stage.path("work")]);
    assert_eq!(beside(&stage, &inner, Some(stage.path("work/tool2/bin"))), [stage.path("work/tool2")]);
}

#[test]
fn the_hosts_software_is_no_prefix_and_made_up_directories_are_not_shown() {
    let stage = Stage::new();
    let shell = Path::new("/bin/sh");
    for directory in ["/usr", "/etc", "/bin", "/proc/self", "/sys", "/dev"] {
        assert_eq!(beside(&stage, shell, Some(directory.into())), Vec::<PathBuf>::new(), "{directory}");
    }
    assert_eq!(beside(&stage, shell, Some("/usr/bin".into())), [PathBuf::from("/usr/bin")]);
}

#[test]
fn a_cell_sees_the_hosts_software_and_nothing_else_of_it() {
    let stage = Stage::new();
    let mut view = View::of_host(Some(Path::new("/bin/sh")), &stage.environment(None)).expect("the host can be looked at");
    let mut at = |path: &str| find(&mut view, Path::new(path));
    for path in ["/root", "/home", "/tmp", "/var", "/var/lib", "/var/log", "/run", "/proc", "/dev", "/sys", "/usr/bin", "/etc"] {
        assert_eq!(at(path), Some(Kind::Directory), "{path}");
    }
    assert_eq!(at("/bin/sh"), Some(Kind::File));
    assert_eq!(at("/etc/passwd"), Some(Kind::File));
    for path in ["/etc/shadow", "/var/lib/dpkg/status", "/proc/self", "/dev/null", "/boot", "/root/.profile", "/root/.bashrc"] {
        assert_eq!(at(path), None, "{path}");
    }
}

#[test]
fn the_software_is_kept_and_made_again_when_it_cannot_be_used() {
    let stage = Stage::new();
    let environment = stage.environment(None);
    let blocks = |environment: &HostEnvironment| {
        View::of_host(Some(Path::new("/bin/sh")), environment).expect("the host can be looked at").volumes[0].image.blocks()
    };
    let first = blocks(&environment);
    let file = stage.path("cache/software.image");
    let length = fs::metadata(&file).expect("it was kept").len();
    assert_eq!(blocks(&environment), first);
    fs::File::options().write(true).open(&file).expect("it is ours").set_len(length - 4096).expect("it is ours");
    assert_eq!(blocks(&environment), first);
    assert_eq!(fs::metadata(&file).expect("it was kept again").len(), length);
    // An image of another state of the host.
    let cache = Cache::new(&file);
    cache.store(&Builder::new().image().expect("it is small"), 0).expect("there is room");
    assert_eq!(blocks(&environment), first);
    // No directory for the cache.
    fs::remove_dir_all(stage.path("cache")).expect("it is ours");
    fs::write(stage.path("cache"), "in the way").expect("there is room");
    assert_eq!(blocks(&environment), first);
    assert_eq!(blocks(&HostEnvironment { cache: None, ..environment }), first);
}

#[test]
fn one_start_per_period_checks_the_cached_software() {
    let stage = Stage::new();
    let environment = stage.environment(None);
    let checks = || View::of_host(Some(Path::new("/bin/sh")), &environment).expect("the host can be looked at").renewal.is_some();
    assert!(!checks(), "it was just scanned");
    let file = fs::File::options().write(true).open(stage.path("cache/software.image")).expect("it was cached");
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("it is ours");
    assert_eq!([checks(), checks(), checks()], [true, false, false]);
}

#[test]
fn roots_are_directories_archives_and_images() {
    let stage = Stage::new();
    stage.program("root/bin/run");
    stage.program("root/usr/local/bin/tool");
    let directory = stage.path("root");
    let [archive, image] = ["root.tar", "root.image"].map(|name| stage.path(name));
    let tar = std::process::Command::new(host_program("tar")).arg("-C").arg(&directory).arg("-cf").arg(&archive).arg(".").status();
    assert!(tar.expect("tar is there").success());
    let mut builder = Builder::new();
    builder.archive(&archive).expect("it was just made");
    let mut bytes = Vec::new();
    let made = builder.image().expect("it is small");
    made.write_to(&mut |_, piece| {
        bytes.extend(piece);
        Ok::<_, pando_image::Error>(())
    })
    .expect("memory can be written");
    fs::write(&image, bytes).expect("there is room");
    for root in [&directory, &archive, &image] {
        let mut view = View::of_root(root, &stage.environment(None)).expect("it is a root");
        assert_eq!(mounts(&view), [Path::new("/")]);
        for path in ["/bin", "/proc", "/dev", "/tmp"] {
            assert_eq!(find(&mut view, Path::new(path)), Some(Kind::Directory), "{path}");
        }
        let path = ["/nowhere".into(), "/usr/local/bin".into()];
        let found = |name: &str| view.find_program(Path::new(name), &path).expect("the image is sound");
        assert_eq!(found("tool"), Some("/usr/local/bin/tool".into()));
        assert_eq!(found("bin/run"), Some("/bin/run".into()));
        assert_eq!(found("run"), None);
        assert_eq!(found("/bin"), None);
    }
    let refused = |path: &Path| View::of_root(path, &stage.environment(None)).expect_err("it is no root").to_string();
    assert!(refused(&stage.path("root/bin/run")).contains("cannot read the archive"));
    assert!(refused(&stage.path("nothing")).contains("No such file or directory"));
    let cut = fs::read(&image).expect("it is there");
    fs::write(&image, &cut[..cut.len() - 4096]).expect("there is room");
    assert!(refused(&image).ends_with("it is truncated: blocks are missing at its end"));
}

#[test]
fn files_and_directories_are_shown_where_they_are_wanted() {
    let stage = Stage::new();
    let program = stage.program("tool/bin/run");
    let data = stage.program("data/file");
    let mut view = View::bare(Some(&program), &stage.environment(None)).expect("it is there");
    assert_eq!(mounts(&view), [Path::new("/")]);
    view.show(&data, Path::new("/some/where")).expect("it is there");
    view.show(&stage.path("data"), Path::new("/mnt/data")).expect("it is there");
    view.show(&program, Path::new("/mnt/data/deeper/run")).expect("it is there");
    assert_eq!(mounts(&view), [Path::new("/"), Path::new("/mnt/data")]);
    let mut at = |path: &str| find(&mut view, Path::new(path));
    assert_eq!(at("/some/where"), Some(Kind::File));
    assert_eq!(at("/mnt"), Some(Kind::Directory));
    assert_eq!(at("/mnt/data/file"), Some(Kind::File));
    assert_eq!(at("/mnt/data/deeper/run"), Some(Kind::File));
    assert_eq!(at("/usr"), None);
    assert_eq!(find(&mut view, &program), Some(Kind::File));
    assert!(view.show(&data, Path::new("/some/where/else")).is_err());
    assert_eq!(view.add_directory(Path::new("/mnt/data/new")).expect("nothing is in the way"), b"/mnt/data/new");
    assert_eq!(view.add_directory(Path::new("/mnt/data")).expect("nothing is in the way"), b"/mnt/data");
}

#[test]
fn a_large_tree_is_kept_and_known_again() {
    let stage = Stage::new();
    let environment = stage.environment(Some("/usr/share/doc".into()));
    let shown = || {
        let view = View::of_host(Some(Path::new("/bin/sh")), &environment).expect("the host can be looked at");
        let volume = view.volumes.last().expect("the current directory is shown");
        (volume.image.fingerprint(), volume.cache.is_some())
    };
    let first = shown();
    assert_eq!(shown(), first);
    let kept = fs::read_dir(stage.path("cache/trees")).map_or(0, Iterator::count);
    assert_eq!(kept, usize::from(first.1));
}

#[test]
fn a_template_compares_a_cached_tree_file_by_file() {
    let stage = Stage::new();
    let environment = stage.environment(None);
    let directory = stage.path("data");
    fs::create_dir(&directory).expect("there is room");
    (0..600).for_each(|number| fs::write(directory.join(format!("f{number}")), "text").expect("there is room"));
    let fingerprint = |host: &Path| {
        let volume = VolumeSpec { host: host.into(), cell: "/data".into(), writable: false, read_only: false, live: false, name: None };
        let spec = ViewSpec { bare: true, volumes: vec![volume], ..ViewSpec::default() };
        PreparedView::for_template(&spec, &["/bin/sh".into()], &environment).expect("the host can be looked at").1
    };
    // The first is a scan, the second the cached image.
    let doc = Path::new("/usr/share/doc");
    assert_eq!(fingerprint(doc), fingerprint(doc));
    let before = fingerprint(&directory);
    assert_eq!(fingerprint(&directory), before);
    fs::write(directory.join("f7"), "other text").expect("there is room");
    assert_ne!(fingerprint(&directory), before);
}

#[test]
fn a_kept_image_is_found_after_a_link_of_its_tree_was_made_again() {
    let stage = Stage::new();
    stage.program("tool/real/run");
    let (tool, templates) = (stage.path("tool"), stage.path("templates"));
    let link = || {
        symlink("real", tool.join("new")).expect("there is room");
        fs::rename(tool.join("new"), tool.join("bin")).expect("it is ours");
    };
    link();
    let tree = CachedTree { directory: &tool, names: Some(&["bin", "real"]), is_prefix: false, compares_files: true };
    let new = ViewImages::for_new(&templates);
    let make = |tree: CachedTree, kept: &ViewImages| {
        tree.image((None, Some(kept)), &Reporter::default(), &mut Authority::default()).expect("the host can be looked at");
    };
    make(tree, &new);
    let images = new.images();
    assert_eq!(images.len(), 1);
    link();
    let takes = |tree: CachedTree| {
        let kept = ViewImages::open(&templates, &images, ImageUse::Clone).expect("no file has changed").expect("it is there");
        make(tree, &kept);
        kept.are_all_taken()
    };
    assert!(takes(tree));
    // Another part of the directory is another image.
    assert!(!takes(CachedTree { names: None, ..tree }));
}
