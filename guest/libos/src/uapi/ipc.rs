// SPDX-License-Identifier: MIT OR Apache-2.0
//! System V IPC: `ipc.h`, `msg.h`, `sem.h`, `shm.h`.

// The crate has none of these constants; each names its header.

/// `IPC_PRIVATE` of `ipc.h`: the key of an object that is found by its number alone.
pub const IPC_PRIVATE: i32 = 0;
/// `IPC_CREAT` of `ipc.h`: create the object if there is none.
pub const IPC_CREAT: u64 = 0o1000;
/// `IPC_EXCL` of `ipc.h`: fail if the object exists.
pub const IPC_EXCL: u64 = 0o2000;
/// `SEM_UNDO` of `sem.h`: undo the operation when the process ends.
pub const SEM_UNDO: i16 = 0o10_000;
/// `IPC_NOWAIT` of `ipc.h`: do not wait.
pub const IPC_NOWAIT: u64 = 0o4000;
/// `MSG_NOERROR` of `msg.h`: truncate a message that is too long.
pub const MSG_NOERROR: u64 = 0o10_000;
/// `MSG_EXCEPT` of `msg.h`: any message but those of the type.
pub const MSG_EXCEPT: u64 = 0o20_000;
/// `MSG_COPY` of `msg.h`: copy the message and leave it in the queue.
pub const MSG_COPY: u64 = 0o40_000;
/// `MSG_STAT` of `msg.h`: `IPC_STAT` by index.
pub const MSG_STAT: u64 = 11;
/// `MSG_INFO` of `msg.h`: read the usage.
pub const MSG_INFO: u64 = 12;
/// `MSG_STAT_ANY` of `msg.h`: `MSG_STAT` without permission.
pub const MSG_STAT_ANY: u64 = 13;
/// `IPC_RMID` of `ipc.h`: remove the object.
pub const IPC_RMID: u64 = 0;
/// `IPC_SET` of `ipc.h`: set the owner and permissions.
pub const IPC_SET: u64 = 1;
/// `IPC_STAT` of `ipc.h`: read the status.
pub const IPC_STAT: u64 = 2;
/// `IPC_INFO` of `ipc.h`: read the limits.
pub const IPC_INFO: u64 = 3;
/// `SHM_HUGETLB` of `shm.h`: use huge pages, of which none are reserved.
pub const SHM_HUGETLB: u64 = 0o4000;
/// `SHM_RDONLY` of `shm.h`: attach for reading only.
pub const SHM_RDONLY: u64 = 0o10_000;
/// `SHM_RND` of `shm.h`: round the address down.
pub const SHM_RND: u64 = 0o20_000;
/// `SHM_REMAP` of `shm.h`: replace mappings at the address.
pub const SHM_REMAP: u64 = 0o40_000;
/// `SHM_EXEC` of `shm.h`: attach with permission to execute.
pub const SHM_EXEC: u64 = 0o100_000;
/// `SHM_DEST` of `include/linux/shm.h`: the segment is removed with its last detach.
pub const SHM_DEST: u32 = 0o1000;
/// `SHM_LOCKED` of `include/linux/shm.h`: the segment stays in memory.
pub const SHM_LOCKED: u32 = 0o2000;
/// `SHM_LOCK` of `shm.h`.
pub const SHM_LOCK: u64 = 11;
/// `SHM_UNLOCK` of `shm.h`.
pub const SHM_UNLOCK: u64 = 12;
/// `SHM_STAT` of `shm.h`: `IPC_STAT` by index.
pub const SHM_STAT: u64 = 13;
/// `SHM_INFO` of `shm.h`: read the usage.
pub const SHM_INFO: u64 = 14;
/// `SHM_STAT_ANY` of `shm.h`: `SHM_STAT` without permission.
pub const SHM_STAT_ANY: u64 = 15;
/// `GETPID` of `sem.h`.
pub const GETPID: u64 = 11;
/// `GETVAL` of `sem.h`.
pub const GETVAL: u64 = 12;
/// `GETALL` of `sem.h`.
pub const GETALL: u64 = 13;
/// `GETNCNT` of `sem.h`.
pub const GETNCNT: u64 = 14;
/// `GETZCNT` of `sem.h`.
pub const GETZCNT: u64 = 15;
/// `SETVAL` of `sem.h`.
pub const SETVAL: u64 = 16;
/// `SETALL` of `sem.h`.
pub const SETALL: u64 = 17;
/// `SEM_STAT` of `sem.h`: `IPC_STAT` by index.
pub const SEM_STAT: u64 = 18;
/// `SEM_INFO` of `sem.h`: read the usage.
pub const SEM_INFO: u64 = 19;
/// `SEM_STAT_ANY` of `sem.h`: `SEM_STAT` without permission.
pub const SEM_STAT_ANY: u64 = 20;
