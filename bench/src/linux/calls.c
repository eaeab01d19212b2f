/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* System calls of one process. */

/* The size of the file that is read and written repeatedly from its start. */
#define FILE_BYTES (1L << 20)
/* A file that exists on every host that compiles this program. */
#define HEADER "/usr/include/stdio.h"

static int file;
static char buffer[PAGE];

static void make_file(void)
{
    char name[] = "/tmp/pando-bench-XXXXXX";

    file = mkstemp(name);
    check(file >= 0 && unlink(name) == 0, name);
    for (long bytes = 0; bytes < FILE_BYTES; bytes += PAGE)
        check(write(file, buffer, PAGE) == PAGE, "write");
}

static void open_header(void)
{
    file = open(HEADER, O_RDONLY);
    check(file >= 0, HEADER);
}

static void do_getppid(long count)
{
    while (count--)
        getppid();
}

static void do_read_1(long count)
{
    for (long done = 0; done < count; done++) {
        if (done % PAGE == 0)
            lseek(file, 0, SEEK_SET);
        check(read(file, buffer, 1) == 1, "read");
    }
}

static void do_read_4k(long count)
{
    for (long done = 0; done < count; done++) {
        if (done * PAGE % FILE_BYTES == 0)
            lseek(file, 0, SEEK_SET);
        check(read(file, buffer, PAGE) == PAGE, "read");
    }
}

static void do_read_header(long count)
{
    while (count--)
        check(pread(file, buffer, PAGE, 0) == PAGE, "pread");
}

static void do_write_4k(long count)
{
    for (long done = 0; done < count; done++) {
        if (done * PAGE % FILE_BYTES == 0)
            lseek(file, 0, SEEK_SET);
        check(write(file, buffer, PAGE) == PAGE, "write");
    }
}

static void do_fstat(long count)
{
    struct stat status;

    while (count--)
        check(fstat(file, &status) == 0, "fstat");
}

static void do_stat(long count)
{
    struct stat status;

    while (count--)
        check(stat(HEADER, &status) == 0, "stat");
}

static void do_open(long count)
{
    while (count--) {
        int opened = open(HEADER, O_RDONLY);

        check(opened >= 0 && close(opened) == 0, "open");
    }
}

static int select_end;
static fd_set select_set;

/* Empty pipes. */
static void make_select(int count)
{
    int ends[2];

    FD_ZERO(&select_set);
    while (count--) {
        check(pipe(ends) == 0, "pipe");
        FD_SET(ends[0], &select_set);
        select_end = ends[0] + 1;
    }
}

static void make_select_10(void)
{
    make_select(10);
}

static void make_select_100(void)
{
    make_select(100);
}

static void do_select(long count)
{
    while (count--) {
        fd_set set = select_set;
        struct timeval none = {0, 0};

        check(select(select_end, &set, NULL, NULL, &none) == 0, "select");
    }
}

static void handle(int signal)
{
    (void)signal;
}

static void do_sigaction(long count)
{
    struct sigaction action = {.sa_handler = handle};

    while (count--)
        check(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
}

static void install(void)
{
    do_sigaction(1);
}

static void do_signal(long count)
{
    pid_t self = getpid();

    while (count--)
        check(kill(self, SIGUSR1) == 0, "kill");
}

/* Never touched. */
static void do_mmap(long count)
{
    while (count--) {
        void *memory = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        check(memory != MAP_FAILED && munmap(memory, 16 * PAGE) == 0, "mmap");
    }
}

/* Pages of the file, mapped all at once and touched one after the other. */
static void do_fault(long count)
{
    for (long done = 0; done < count; done += FILE_BYTES / PAGE) {
        volatile char *memory = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file, 0);

        check(memory != MAP_FAILED, "mmap");
        for (long offset = 0; offset < FILE_BYTES; offset += PAGE)
            (void)memory[offset];
        check(munmap((void *)memory, FILE_BYTES) == 0, "munmap");
    }
}

/* A hundred thousand dependent multiplications. */
static void do_compute(long count)
{
    static volatile unsigned long result;

    while (count--) {
        unsigned long value = result;

        for (long step = 0; step < 100000; step++)
            value = value * 6364136223846793005UL + 1442695040888963407UL;
        result = value;
    }
}

static volatile char *walked;
static long walked_bytes;

/* Memory of as many MiB as the argument says. */
static void make_memory(void)
{
    walked_bytes = (words[0] ? atol(words[0]) : 1) << 20;
    walked = mmap(NULL, walked_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(walked != MAP_FAILED, "mmap");
}

/* Writes to each page of it in order, again and again. */
static void do_walk(long count)
{
    while (count--)
        for (long offset = 0; offset < walked_bytes; offset += PAGE)
            walked[offset]++;
}

/* Pages of fresh memory, 2 MiB at a time. */
static void do_touch(long count)
{
    const long bytes = 512 * PAGE;

    for (long done = 0; done < count; done += 512) {
        volatile char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        check(memory != MAP_FAILED, "mmap");
        for (long offset = 0; offset < bytes; offset += PAGE)
            memory[offset] = 1;
        check(munmap((void *)memory, bytes) == 0, "munmap");
    }
}
