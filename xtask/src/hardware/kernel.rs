// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's kernel and its KVM modules, downloaded once and kept in the user's cache.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace;

/// The package that depends on the current kernel.
const META_PACKAGE: &str = "linux-image-amd64";
/// The modules that are kept, by their path under `kernel/`.
const MODULES: [&str; 5] =
    ["virt/lib/irqbypass", "drivers/crypto/ccp/ccp", "arch/x86/kvm/kvm", "arch/x86/kvm/kvm-amd", "arch/x86/kvm/kvm-intel"];

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    /// Finds the kernel in the cache, or downloads it with apt.
    ///
    /// # Errors
    /// If this is not Debian, or the download fails.
    pub(crate) fn find_or_download() -> Result<Kernel> {
        let cache = cache_folder()?;
        let kernel = Kernel { folder: cache.join("kernel") };
        if !kernel.image().is_file() {
            fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
            kernel.download(&cache).context("downloading Debian's kernel")?;
        }
        Ok(kernel)
    }

    /// The kernel's image.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The file of a module, by its name without folder and extension.
    pub(crate) fn module(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.ko"))
    }

    fn download(&self, cache: &Path) -> Result<()> {
        if pando_packages::find("apt-get").is_none() || pando_packages::find("dpkg-deb").is_none() {
            bail!("apt-get and dpkg-deb are missing: run this on Debian, or copy {} from there", self.folder.display());
        }
        let work = tempfile::Builder::new().prefix("download-").tempdir_in(cache)?;
        let fetched = package_name().and_then(|package| fetch(&package, work.path()));
        // The package lists may be missing or older than the archive: refresh them once, where that is permitted.
        let package = match fetched {
            Ok(file) => file,
            Err(_) => {
                workspace::run(Command::new("apt-get").args(["update", "-qq"]))?;
                package_name().and_then(|package| fetch(&package, work.path()))?
            }
        };
        let unpacked = work.path().join("unpacked");
        workspace::run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&unpacked))?;
        let ready = work.path().join("ready");
        fs::create_dir(&ready)?;
        let image = only_entry(&unpacked.join("boot"), "vmlinuz-")?;
        fs::copy(&image, ready.join("vmlinuz"))?;
        // /lib became a link to /usr/lib: newer packages contain the modules there.
        let modules = ["lib/modules", "usr/lib/modules"].map(|path| unpacked.join(path)).into_iter().find(|path| path.is_dir());
        let modules = only_entry(&modules.context("the package contains no modules")?, "")?;
        for module in MODULES {
            let file = modules.join(format!("kernel/{module}.ko"));
            let name = file.file_name().context("a module has a name")?;
            fs::copy(&file, ready.join(name)).with_context(|| format!("{} contains no {module}.ko", package.display()))?;
        }
        // Another process may have been faster; its copy is just as good.
        if let Err(error) = fs::rename(&ready, &self.folder) {
            ensure!(self.image().is_file(), "moving the kernel to {}: {error}", self.folder.display());
        }
        Ok(())
    }
}

/// `$XDG_CACHE_HOME/pando/hardware`, or the same under `~/.cache`.
fn cache_folder() -> Result<PathBuf> {
    let folder = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
    Ok(cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("pando/hardware"))
}

fn package_name() -> Result<String> {
    let depends = workspace::run(Command::new("apt-cache").args(["depends", META_PACKAGE]))?;
    let name = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ").filter(|name| name.starts_with("linux-image-")));
    Ok(name.with_context(|| format!("apt-cache reports no dependency of {META_PACKAGE}"))?.to_string())
}

fn fetch(package: &str, folder: &Path) -> Result<PathBuf> {
    println!("downloading {package}");
    workspace::run(Command::new("apt-get").args(["download", "-qq", package]).current_dir(folder))?;
    only_entry(folder, package)
}

/// The one entry of a folder whose name starts with `prefix`.
fn only_entry(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    let mut found = entries.filter_map(|entry| entry.ok()).filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(entry.path()),
        _ => bail!("{} does not contain exactly one {prefix}*", folder.display()),
    }
}
