// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/sysvipc`: the System V objects.

use alloc::format;
use alloc::string::String;

use crate::ipc::objects::Object;
use crate::system::System;
use crate::uapi::{SHM_DEST, SHM_LOCKED};

/// The columns that all kinds of objects have.
fn start<T>(object: &Object<T>, flags: u32) -> String {
    format!("{:10} {:10}  {:4o} ", object.key, object.number, object.permissions | flags)
}

fn owners<T>(object: &Object<T>) -> String {
    let ([user, group], [maker, makers_group]) = (object.owner, object.maker);
    format!("{user:5} {group:5} {maker:5} {makers_group:5}")
}

pub(super) fn segments(system: &System) -> String {
    let mut text = String::from(
        "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n",
    );
    for object in system.ipc.segments.all() {
        let segment = &object.data;
        let flags = if segment.is_removed { SHM_DEST } else { 0 } | if segment.is_locked { SHM_LOCKED } else { 0 };
        let ([maker, last], [attached, detached]) = (segment.processes, segment.times);
        text += &format!("{}{:21} {maker:5} {last:5}  {:5} ", start(object, flags), segment.bytes, system.attachments(object.number));
        text += &format!("{} {attached:10} {detached:10} {:10} {:21} {:21}\n", owners(object), object.changed, segment.pages.bytes(), 0);
    }
    text
}

pub(super) fn semaphores(system: &System) -> String {
    let mut text = String::from("       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n");
    for object in system.ipc.semaphores.all() {
        let set = &object.data;
        text += &format!("{}{:10} {} {:10} {:10}\n", start(object, 0), set.all.len(), owners(object), set.operated, object.changed);
    }
    text
}

pub(super) fn queues(system: &System) -> String {
    let mut text = String::from(
        "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n",
    );
    for object in system.ipc.queues.all() {
        let queue = &object.data;
        let ([sender, receiver], [sent, received]) = (queue.processes, queue.times);
        text += &format!("{} {:10} {:10} {sender:5} {receiver:5} ", start(object, 0), queue.used, queue.count());
        text += &format!("{} {sent:10} {received:10} {:10}\n", owners(object), object.changed);
    }
    text
}
