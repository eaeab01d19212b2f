/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Threads and processes. */

#define STRETCH (2L << 20)
#define RESIDENT (64L << 20)
#define RING 8

/* A pipe: the other end reads all bytes that one end writes. */
struct line {
    int read, write;
};

/* Pipes to a chain of threads or processes that returns each token to its sender. */
static struct line token;

static struct line make_pipe(void)
{
    int ends[2];

    check(pipe(ends) == 0, "pipe");
    return (struct line){ends[0], ends[1]};
}

/* Passes tokens on until the pipe is closed. */
static void *pass(void *line)
{
    struct line *between = line;
    char byte;

    while (read(between->read, &byte, 1) == 1 && write(between->write, &byte, 1) == 1)
        continue;
    return NULL;
}

static void make_thread(void)
{
    static struct line theirs;
    struct line there = make_pipe(), back = make_pipe();
    pthread_t thread;

    token = (struct line){back.read, there.write};
    theirs = (struct line){there.read, back.write};
    check(pthread_create(&thread, NULL, pass, &theirs) == 0, "pthread_create");
}

/* Adds a process that passes tokens on to the reader of the returned pipe. It ends with the one before it. */
static int add_process(int read, int before)
{
    struct line next = make_pipe();
    pid_t child = fork();

    check(child >= 0, "fork");
    if (child == 0) {
        close(before);
        close(next.read);
        pass(&(struct line){read, next.write});
        _exit(0);
    }
    close(read);
    close(next.write);
    return next.read;
}

static void make_ring(int others)
{
    struct line first = make_pipe();
    int last = first.read;

    while (others--)
        last = add_process(last, first.write);
    token = (struct line){last, first.write};
}

static void make_process(void)
{
    make_ring(1);
}

static void make_ring_of_eight(void)
{
    make_ring(RING - 1);
}

static void make_socket(void)
{
    int ends[2];
    pid_t child;

    check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        close(ends[0]);
        pass(&(struct line){ends[1], ends[1]});
        _exit(0);
    }
    close(ends[1]);
    token = (struct line){ends[0], ends[0]};
}

static void do_send(long count)
{
    char byte = 0;

    while (count--)
        check(write(token.write, &byte, 1) == 1 && read(token.read, &byte, 1) == 1, "token");
}

static void await(pid_t child)
{
    int status;

    check(child >= 0 && waitpid(child, &status, 0) == child && status == 0, "child");
}

static void do_fork(long count)
{
    while (count--) {
        pid_t child = fork();

        if (child == 0)
            _exit(0);
        await(child);
    }
}

/* Each process of the chain forks the next one and waits for it. */
static void fork_chain(int processes)
{
    pid_t child = fork();

    if (child == 0) {
        if (processes > 1)
            fork_chain(processes - 1);
        _exit(0);
    }
    await(child);
}

static void do_fork_chain(long count)
{
    while (count--)
        fork_chain(5);
}

/* Discards their output. */
static void execute(long count, char *const *words)
{
    int nowhere = open("/dev/null", O_WRONLY);

    check(nowhere >= 0, "/dev/null");
    while (count--) {
        pid_t child = fork();

        if (child == 0) {
            dup2(nowhere, STDOUT_FILENO);
            execv(words[0], words);
            _exit(1);
        }
        await(child);
    }
    close(nowhere);
}

static void do_exec(long count)
{
    execute(count, (char *[]){"/proc/self/exe", NULL});
}

static void do_shell(long count)
{
    execute(count, (char *[]){"/bin/sh", "-c", ":", NULL});
}

static void do_execute(long count)
{
    execute(count, words);
}

static void make_resident(int advice)
{
    char *memory = mmap(NULL, RESIDENT + STRETCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    check(memory != MAP_FAILED, "mmap");
    memory += -(unsigned long)memory % STRETCH;
    madvise(memory, RESIDENT, advice);
    for (long offset = 0; offset < RESIDENT; offset += PAGE)
        memory[offset] = 1;
    if (advice == MADV_HUGEPAGE)
        return;
    /* A kernel that ignores the advice has to split its large pages for this. */
    for (int protection = PROT_READ; protection <= (PROT_READ | PROT_WRITE); protection += PROT_WRITE)
        for (long offset = 0; offset < RESIDENT; offset += STRETCH)
            check(mprotect(memory + offset, PAGE, protection) == 0, "mprotect");
}

static void make_small(void)
{
    make_resident(MADV_NOHUGEPAGE);
}

static void make_huge(void)
{
    make_resident(MADV_HUGEPAGE);
}

