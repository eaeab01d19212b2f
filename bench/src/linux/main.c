/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The names of the parts, and their functions. */

static const struct part {
    const char *name;
    void (*prepare)(void);
    void (*run)(long count);
} parts[] = {
    {"compute", NULL, do_compute},
    {"getppid", NULL, do_getppid},
    {"read-1", make_file, do_read_1},
    {"read-4k", make_file, do_read_4k},
    {"read-4k-host", open_header, do_read_header},
    {"write-4k", make_file, do_write_4k},
    {"fstat", make_file, do_fstat},
    {"stat", NULL, do_stat},
    {"open-close", NULL, do_open},
    {"select-10", make_select_10, do_select},
    {"select-100", make_select_100, do_select},
    {"signal-install", NULL, do_sigaction},
    {"signal-deliver", install, do_signal},
    {"mmap", NULL, do_mmap},
    {"page-fault", make_file, do_fault},
    {"first-touch", NULL, do_touch},
    {"walk", make_memory, do_walk},
    {"pipe-threads", make_thread, do_send},
    {"pipe-processes", make_process, do_send},
    {"pipe-ring", make_ring_of_eight, do_send},
    {"unix-socket", make_socket, do_send},
    {"fork-exit", NULL, do_fork},
    {"fork-chain", NULL, do_fork_chain},
    {"fork-exec", NULL, do_exec},
    {"fork-shell", NULL, do_shell},
    {"execute", NULL, do_execute},
    {"fork-64m", make_small, do_fork},
    {"fork-64m-huge", make_huge, do_fork},
};

static long nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

int main(int argc, char **argv)
{
    const struct part *part = parts, *end = parts + sizeof parts / sizeof *parts;
    char line[64];

    /* Executed without arguments, it does nothing. */
    if (argc == 1)
        return 0;
    while (part < end && strcmp(part->name, argv[1]) != 0)
        part++;
    check(part < end, argv[1]);
    words = argv + 2;
    if (part->prepare)
        part->prepare();
    while (fgets(line, sizeof line, stdin)) {
        long count = atol(line);
        long start = nanoseconds();

        part->run(count);
        printf("%ld\n", nanoseconds() - start);
        fflush(stdout);
    }
    return 0;
}
