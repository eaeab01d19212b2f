// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the emulators: QEMU's TCG for SVM, Bochs for VMX. Both write their serial line to a file.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Kind;
use crate::workspace;

/// Kernel options: the console on the serial line, immediate panic, and no features that cost time under emulation, such as tests of
/// cryptography. The check whether the timer ticks is off, because on a busy host the emulated timer ticks too late for it.
const KERNEL_OPTIONS: &str = "console=ttyS0,115200 quiet panic=-1 nokaslr mitigations=off no_timer_check cryptomgr.notests";
/// Features hidden from Linux on Bochs: XSAVEC and XSAVES. Bochs 2.7 misstates the size of compacted vector state, and
/// Linux then disables XSAVE and all dependent features.
const BOCHS_OPTIONS: &str = "clearcpuid=321,323";
/// Instructions per emulated second on Bochs, and ticks of the TSC, which counts instructions.
///
/// Linux needs this as an option: Bochs's CPUID claims 3.5 GHz for the TSC and 24 MHz for the APIC's timer. With those
/// values every time would be 35 times too long, and each deadline would cause more than a hundred early wakeups.
const BOCHS_HERTZ: u32 = 100_000_000;
/// Debian's paths of the boot loader for CDs, and of the module that it loads.
const ISOLINUX: [&str; 2] = ["/usr/lib/ISOLINUX/isolinux.bin", "/usr/lib/syslinux/modules/bios/ldlinux.c32"];
/// The number of lines shown of an emulator's log.
const LAST_WORDS: usize = 8;

/// The configuration of an emulated machine.
#[derive(Debug)]
pub(crate) struct Emulator<'a> {
    /// The kind of virtualisation that it emulates.
    pub(crate) kind: Kind,
    /// The number of CPUs.
    pub(crate) cpus: u32,
    /// Memory in MiB.
    pub(crate) memory_mib: u32,
    /// The boot image of the kernel.
    pub(crate) image: &'a Path,
    /// Its packed root.
    pub(crate) initrd: &'a Path,
    /// A folder for its own files.
    pub(crate) work: &'a Path,
}

impl Emulator<'_> {
    /// The file with the machine's serial output.
    pub(crate) fn serial(&self) -> PathBuf {
        self.work.join("serial")
    }

    /// The last lines of the emulator's own log, which show why it ended. QEMU keeps none and prints to standard error.
    pub(crate) fn log_tail(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(LAST_WORDS)).map(ToString::to_string).collect()
    }

    fn log(&self) -> PathBuf {
        self.work.join("log")
    }

    /// Starts the machine.
    ///
    /// # Errors
    /// If a program is missing, or the boot CD cannot be created.
    pub(crate) fn start(&self) -> Result<Child> {
        fs::write(self.serial(), "")?;
        let mut command = match self.kind {
            Kind::Svm => self.qemu(),
            Kind::Vmx => self.bochs()?,
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().with_context(|| format!("starting {}", command.get_program().to_string_lossy()))
    }

    fn qemu(&self) -> Command {
        let mut command = Command::new(workspace::DIES_WITH_PARENT[0]);
        command.args(&workspace::DIES_WITH_PARENT[1..]).args(["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max"]);
        command.args(["-smp", &self.cpus.to_string(), "-m", &self.memory_mib.to_string()]);
        command.args(["-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot", "-append", KERNEL_OPTIONS]);
        command.arg("-serial").arg(format!("file:{}", self.serial().display()));
        command.arg("-kernel").arg(self.image).arg("-initrd").arg(self.initrd);
        command
    }

    /// Starts Bochs. Debian's Bochs starts in its debugger, which wants a terminal: `script` provides one, and the debugger
    /// is ordered to continue.
    ///
    /// It draws the screen on another terminal, which it creates and names on its own. After some kilobytes that nobody
    /// reads it blocks forever, so `cat` reads them.
    fn bochs(&self) -> Result<Command> {
        let disc = self.boot_disc()?;
        let configuration = self.work.join("bochsrc");
        fs::write(&configuration, self.bochs_configuration(&disc))?;
        let debugger = self.work.join("debugger");
        fs::write(&debugger, "c\n")?;
        let guarded = workspace::DIES_WITH_PARENT.join(" ");
        let terminal = self.work.join("terminal");
        let named = format!(r#"screen=$(sed -n "s/^Bochs connected to screen .\(.*\)\".*/\1/p" {})"#, terminal.display());
        let reader = format!(r#"while {named}; [ -z "$screen" ]; do sleep 0.1; done; exec cat "$screen""#);
        let bochs = format!(
            "stty rows 30 cols 100; {guarded} sh -c '{reader}' >/dev/null & exec {guarded} bochs -q -f {} -rc {}",
            configuration.display(),
            debugger.display()
        );
        let mut command = Command::new(workspace::DIES_WITH_PARENT[0]);
        command.args(&workspace::DIES_WITH_PARENT[1..]).env("TERM", "xterm").args(["script", "-qfec", &bochs]).arg(terminal);
        command.stderr(Stdio::null());
        Ok(command)
    }

    fn bochs_configuration(&self, disc: &Path) -> String {
        let (cpus, memory, serial, log) = (self.cpus, self.memory_mib, self.serial(), self.log());
        format!(
            "display_library: term
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
cpu: model=corei7_skylake_x, count={cpus}, ips={BOCHS_HERTZ}, reset_on_triple_fault=0, ignore_bad_msrs=1
megs: {memory}
clock: sync=none, time0=utc
ata0-master: type=cdrom, path={}, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={}
log: {}
panic: action=fatal
error: action=ignore
info: action=ignore
mouse: enabled=0
",
            disc.display(),
            serial.display(),
            log.display()
        )
    }

    /// Creates a CD with a boot loader, because Bochs cannot boot a kernel directly.
    fn boot_disc(&self) -> Result<PathBuf> {
        let tree = self.work.join("disc");
        fs::create_dir(&tree)?;
        for file in ISOLINUX {
            let name = Path::new(file).file_name().context("a file has a name")?;
            fs::copy(file, tree.join(name)).with_context(|| format!("copying {file} (Debian: isolinux, syslinux-common)"))?;
        }
        fs::rename(self.image, tree.join("vmlinuz"))?;
        fs::rename(self.initrd, tree.join("initrd"))?;
        let menu = format!(
            "DEFAULT pando\nPROMPT 0\nTIMEOUT 1\nLABEL pando\nKERNEL vmlinuz\nINITRD initrd\n\
             APPEND {KERNEL_OPTIONS} {BOCHS_OPTIONS} tsc_early_khz={}\n",
            BOCHS_HERTZ / 1000
        );
        fs::write(tree.join("isolinux.cfg"), menu)?;
        let disc = self.work.join("boot.iso");
        let mut xorriso = Command::new("xorriso");
        xorriso.args(["-as", "mkisofs", "-quiet", "-b", "isolinux.bin", "-c", "boot.cat", "-no-emul-boot", "-boot-load-size", "4"]);
        workspace::run(xorriso.arg("-boot-info-table").arg("-o").arg(&disc).arg(&tree))?;
        Ok(disc)
    }
}
