// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for children: `wait.h`.

constants! { general as u32 {
    P_ALL, P_PGID, P_PID, P_PIDFD,
} }

constants! { general as u64 {
    WCONTINUED, WEXITED, WNOHANG, WNOWAIT, WUNTRACED, __WALL, __WCLONE, __WNOTHREAD,
} }
