// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes, queues, semaphores, events, and waiting for them: each part of a static program gives the same results as on the host.

use crate::case::Input;
use crate::parts::{C, GLIBC, MUSL, check, check_in_directory};

parts! {
    memory_by_keys: "ipc" C ["segments"];
    semaphores_by_keys: "ipc" C ["semaphores"];
    messages_by_keys: "ipc" C ["messages"];
    permissions_of_ipc_objects: "ipc" GLIBC ["permissions"];
    ipc_objects_are_listed: "ipc" GLIBC ["limits"];
    sequences_are_registered: "sequences" MUSL ["registering"];
    sequences_are_interrupted: "sequences" MUSL ["interrupting"];
    sequences_that_make_no_sense: "sequences" MUSL ["wrong"];
    locks_that_waiters_are_given: "requeued" C ["requeued"];
    waiting_that_gives_others_a_turn: "requeued" C ["slack"];
    queues_with_names: "queues" C ["opening"];
    queues_that_are_waited_for: "queues" C ["waiting"];
    broken_pipes_report_it: "exchanges" C ["broken"];
    impossible_splices_are_refused: "exchanges" C ["spliced"];
    messages_are_notified_by_signals_and_threads: "exchanges" C ["notified"];
    an_exclusive_waiter_is_woken_alone: "exchanges" C ["exclusive"];
    credentials_of_senders: "exchanges" C ["senders"];
    datagrams_are_put_together: "exchanges" C ["corked"];
    datagrams_without_a_receiver: "exchanges" C ["nobody"];
    lines_that_nobody_reads_wait: "exchanges" C ["lines"];
    writers_go_on_when_input_is_dropped: "exchanges" C ["flushed"];
}

parts_in_directory! {
    bytes_go_through_pipes: "pipes" "pipes";
    packets_go_through_pipes: "pipes" "packets";
    bytes_go_through_fifos: "pipes" "fifos";
    events_are_counted: "pipes" "events";
    files_are_waited_for: "pipes" "waiting";
    descriptors_stand_for_files: "pipes" "descriptors";
    files_are_watched_for_what_is: "watched" "level";
    files_are_watched_for_what_happens: "watched" "edge";
    watches_are_watched: "watched" "nested";
    watches_refuse_what_cannot_be_watched: "watched" "mistakes";
    watches_wait: "watched" "waits";
    timers_are_files: "watched" "timers";
    processes_wake_each_other_by_files: "woken" "files";
    processes_wake_each_other_by_locks: "woken" "locks";
    processes_wake_each_other_by_signals: "woken" "signals";
    threads_wake_each_other_by_files: "woken" "threads";
}
