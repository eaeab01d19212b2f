// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cloning and scheduling: `sched.h`, `resource.h` (priorities), `ioprio.h`.

constants! { general as u32 {
    PRIO_PGRP, PRIO_PROCESS, PRIO_USER, SCHED_BATCH, SCHED_DEADLINE, SCHED_FIFO, SCHED_IDLE, SCHED_NORMAL, SCHED_RESET_ON_FORK, SCHED_RR,
} }

constants! { general as u64 {
    CLONE_ARGS_SIZE_VER0, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_DETACHED, CLONE_FILES, CLONE_FS,
    CLONE_INTO_CGROUP, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER,
    CLONE_NEWUTS, CLONE_PARENT, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_SETTLS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_VFORK,
    CLONE_VM,
} }

// Constants that the crate lacks or has as another type; each names its header.

/// `IOPRIO_CLASS_SHIFT` of `ioprio.h`: the class is above this bit.
pub const IOPRIO_CLASS_SHIFT: u32 = 13;
/// `IOPRIO_NR_LEVELS` of `ioprio.h`: the number of levels of a class.
pub const IOPRIO_NR_LEVELS: u32 = 8;
/// `IOPRIO_CLASS_NONE` of `ioprio.h`.
pub const IOPRIO_CLASS_NONE: u32 = 0;
/// `IOPRIO_CLASS_RT` of `ioprio.h`.
pub const IOPRIO_CLASS_RT: u32 = 1;
/// `IOPRIO_CLASS_IDLE` of `ioprio.h`.
pub const IOPRIO_CLASS_IDLE: u32 = 3;
