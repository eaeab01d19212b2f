// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: `signal.h`, `siginfo.h`.

constants! { general as i32 {
    BUS_ADRALN, BUS_ADRERR, FPE_FLTDIV, FPE_FLTINV, FPE_FLTOVF, FPE_FLTRES, FPE_FLTUND, FPE_INTDIV, ILL_ILLOPN, SEGV_ACCERR, SEGV_MAPERR,
    SI_KERNEL, SI_MESGQ, SI_TIMER, SI_TKILL, SI_USER, TRAP_TRACE,
} }

constants! { general as u32 {
    SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD, SIGEV_THREAD_ID,
} }

constants! { general as u64 {
    MINSIGSTKSZ, SA_EXPOSE_TAGBITS, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER,
    SA_SIGINFO, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK,
} }

constants! { general as u8 {
    SIGABRT, SIGALRM, SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGPROF, SIGQUIT, SIGRTMIN, SIGSEGV,
    SIGSTOP, SIGSYS, SIGTERM, SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
} }

// Constants that the crate lacks or has as another type; each names its header.

/// `SIG_DFL` of `asm-generic/signal-defs.h`: the default action.
pub const SIG_DFL: u64 = 0;
/// `SIG_IGN` of `asm-generic/signal-defs.h`: the signal is ignored.
pub const SIG_IGN: u64 = 1;
