// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resource limits and usage: `resource.h`.

constants! { general as i32 {
    RUSAGE_CHILDREN, RUSAGE_SELF, RUSAGE_THREAD,
} }

constants! { general as u64 {
    RLIMIT_AS, RLIMIT_CORE, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_NOFILE,
    RLIMIT_NPROC, RLIMIT_RTPRIO, RLIMIT_STACK,
} }

constants! { general as usize {
    RLIM_NLIMITS,
} }
