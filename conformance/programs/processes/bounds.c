// SPDX-License-Identifier: MIT OR Apache-2.0
// Limits and arguments: the resource limits of a process, and the errors for invalid arguments.
#define _GNU_SOURCE
#include "show.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

#ifndef FUTEX_REQUEUE
enum { FUTEX_REQUEUE = 3, FUTEX_CMP_REQUEUE = 4, FUTEX_WAKE_OP = 5 };
#endif
#ifndef CLONE_DETACHED
#define CLONE_DETACHED 0x400000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static volatile int signals;
static sigjmp_buf fault;

static void count(int signal)
{
	(void)signal;
	signals++;
}

static void faulted(int signal)
{
	siglongjmp(fault, signal);
}

static int look(volatile char *at)
{
	return sigsetjmp(fault, 1) ? -1 : *at;
}

static void limit(int resource, rlim_t most)
{
	struct rlimit now = {most, most};
	setrlimit(resource, &now);
}

// Files that cannot grow further.
static void files(void)
{
	char name[] = "/tmp/bounds-XXXXXX", bytes[100] = "";
	int file = mkstemp(name);
	unlink(name);
	SHOW(ftruncate(file, 300));
	limit(RLIMIT_FSIZE, 250);
	signal(SIGXFSZ, count);
	SHOW(pwrite(file, bytes, 100, 100));
	SHOW(pwrite(file, bytes, 100, 200));
	SHOW(pwrite(file, bytes, 100, 250));
	SHOW(signals);
	SHOW(ftruncate(file, 280));
	SHOW(ftruncate(file, 290));
	SHOW(signals);
	SHOW(posix_fallocate(file, 0, 400));
	SHOW(signals);
	SHOW(lseek(file, 0, SEEK_END));
	if (fork() == 0) {
		SHOW(pwrite(file, bytes, 10, 250));
		SHOW(signals);
		_exit(0);
	}
	wait(NULL);
}

// Memory beyond the limit.
static void memory(void)
{
	enum { MUCH = 64 << 20 };
	if (fork() == 0) {
		limit(RLIMIT_AS, 256 << 20);
		char *first = mmap(NULL, MUCH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		SHOW(first != MAP_FAILED);
		SHOW(mmap(NULL, 4L * MUCH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
		SHOW(mmap(first, MUCH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == first);
		SHOW(mremap(first, MUCH, 5L * MUCH, MREMAP_MAYMOVE) != MAP_FAILED);
		char *before = sbrk(0);
		SHOW(sbrk(4L * MUCH) == (void *)-1);
		SHOW(sbrk(0) == before);
		_exit(0);
	}
	wait(NULL);
	if (fork() == 0) {
		limit(RLIMIT_DATA, MUCH);
		SHOW(mmap(NULL, 2L * MUCH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
		SHOW(mmap(NULL, 2L * MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
		SHOW(mmap(NULL, 2L * MUCH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
		_exit(0);
	}
	wait(NULL);
	char *pages = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	limit(RLIMIT_MEMLOCK, 4 * PAGE);
	SHOW(mlock(pages, 8 * PAGE));
	SHOW(munlock(pages, 8 * PAGE));
	if (setresuid(65534, 65534, 65534))
		return;
	SHOW(mlock(pages, 8 * PAGE));
	SHOW(mlock(pages, 4 * PAGE));
	SHOW(mlock(pages, 2 * PAGE));
	SHOW(mlock(pages + 4 * PAGE, PAGE));
	SHOW(munlock(pages, PAGE));
	SHOW(mlock(pages + 4 * PAGE, PAGE));
	limit(RLIMIT_MEMLOCK, 0);
	SHOW(mlock(pages + 4 * PAGE, PAGE));
}

// Attributes that children do not inherit, and the state after an unmap.
static void given(void)
{
	struct sigaction action = {.sa_handler = faulted};
	sigaction(SIGSEGV, &action, NULL);
	volatile char *pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int at = 0; at < 4; at++)
		pages[at * PAGE] = at + 1;
	SHOW(madvise((void *)(pages + PAGE), 2 * PAGE, MADV_DONTFORK));
	SHOW(madvise((void *)(pages + PAGE), PAGE, MADV_DOFORK));
	if (fork() == 0) {
		for (int at = 0; at < 4; at++)
			SHOW(look(pages + at * PAGE));
		_exit(0);
	}
	wait(NULL);
	SHOW(look(pages + 2 * PAGE));
	SHOW(madvise((void *)pages, 4 * PAGE, MADV_DOFORK));
	volatile char *moved = (char *)syscall(SYS_mremap, pages, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	SHOW(moved != pages);
	SHOW(look(moved + 2 * PAGE));
	SHOW(look(pages + 2 * PAGE));
	SHOW(syscall(SYS_mremap, pages, 4 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
	SHOW(syscall(SYS_mremap, pages, 4 * PAGE, 4 * PAGE, MREMAP_DONTUNMAP, NULL));
	SHOW(syscall(SYS_mremap, pages, 0, 4 * PAGE, MREMAP_MAYMOVE, NULL));
}

// MREMAP_DONTUNMAP of a file: the file's pages are left behind, and shared ones are in both mappings.
static void left_behind(void)
{
	int file = open("left", O_RDWR | O_CREAT | O_TRUNC, 0600);
	SHOW(pwrite(file, "f", 1, 0) + pwrite(file, "g", 1, PAGE) + ftruncate(file, 2 * PAGE));
	volatile char *own = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	own[0] = 'p';
	volatile char *moved = (char *)syscall(SYS_mremap, own, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	SHOW(moved != own);
	SHOW(look(moved));
	SHOW(look(own));
	SHOW(look(own + PAGE));
	own[PAGE] = 'q';
	SHOW(look(moved + PAGE));
	volatile char *shared = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	shared[0] = 's';
	volatile char *other = (char *)syscall(SYS_mremap, shared, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	SHOW(look(other));
	other[PAGE] = 't';
	SHOW(look(shared + PAGE));
	SHOW(munmap((void *)shared, 2 * PAGE));
	SHOW(look(other));
	SHOW(munmap((void *)other, 2 * PAGE));
	close(file);
}

struct arguments {
	uint64_t flags, descriptor, child, parent, signal, stack, stack_size, base, numbers, numbers_count, group, more;
};

// Calls clone3 with these arguments, as far as they are valid.
static long make(struct arguments arguments, size_t size)
{
	long child = syscall(SYS_clone3, &arguments, size);
	if (child == 0)
		_exit(0);
	int status;
	if (child > 0)
		waitpid(child, &status, __WALL);
	return child > 0 ? 0 : child;
}

static void cloning(void)
{
	enum { ALL = sizeof(struct arguments) };
	int number = 31000, two[2] = {31001, 31002};
	SHOW(make((struct arguments){.signal = SIGCHLD}, 88));
	SHOW(make((struct arguments){.signal = SIGCHLD}, ALL));
	SHOW(make((struct arguments){.signal = SIGCHLD, .more = 1}, ALL));
	SHOW(make((struct arguments){.signal = SIGCHLD}, 56));
	SHOW(make((struct arguments){.signal = SIGCHLD}, 5000));
	SHOW(make((struct arguments){.signal = 65}, 88));
	SHOW(make((struct arguments){.flags = SIGCHLD}, 88));
	SHOW(make((struct arguments){.flags = CLONE_DETACHED, .signal = SIGCHLD}, 88));
	SHOW(make((struct arguments){.flags = 1ull << 40, .signal = SIGCHLD}, 88));
	SHOW(make((struct arguments){.flags = CLONE_SIGHAND, .signal = SIGCHLD}, 88));
	SHOW(make((struct arguments){.flags = CLONE_VM | CLONE_SIGHAND | 1ull << 32, .signal = SIGCHLD}, 88));
	SHOW(make((struct arguments){.flags = CLONE_THREAD | CLONE_VM | CLONE_SIGHAND, .signal = SIGCHLD}, 88));
	SHOW(make((struct arguments){.flags = CLONE_NEWNS | CLONE_FS, .signal = SIGCHLD}, 88));
	SHOW(make((struct arguments){.signal = SIGCHLD, .stack = 4096}, 88));
	SHOW(make((struct arguments){.signal = SIGCHLD, .stack_size = 4096}, 88));
	SHOW(make((struct arguments){.signal = SIGCHLD, .numbers = (uintptr_t)&number}, 88));
	SHOW(make((struct arguments){.signal = SIGCHLD, .numbers_count = 1}, 88));
	SHOW(make((struct arguments){.signal = SIGCHLD, .numbers = (uintptr_t)two, .numbers_count = 33}, 88));
	SHOW(make((struct arguments){.flags = 1ull << 33, .signal = SIGCHLD, .group = 1ull << 32}, 88));
	SHOW(make((struct arguments){.flags = 1ull << 33, .signal = SIGCHLD}, 80));
	SHOW(make((struct arguments){.flags = 1ull << 33, .signal = SIGCHLD, .group = 1000}, 88));
}

static void words(void)
{
	static uint32_t one, other;
	SHOW(syscall(SYS_futex, &one, FUTEX_CMP_REQUEUE, 1, 1, &other, 0));
	SHOW(syscall(SYS_futex, &one, FUTEX_CMP_REQUEUE, 1, 1, &other, 7));
	SHOW(syscall(SYS_futex, &one, FUTEX_CMP_REQUEUE, -1, 1, &other, 0));
	SHOW(syscall(SYS_futex, &one, FUTEX_CMP_REQUEUE, 1, -1, &other, 0));
	SHOW(syscall(SYS_futex, &one, FUTEX_REQUEUE, 1, -1, &other, 0));
	SHOW(syscall(SYS_futex, &one, FUTEX_CMP_REQUEUE, 1, 1, (char *)&other + 1, 0));
	SHOW(syscall(SYS_futex, &one, FUTEX_WAKE_OP, 1, 1, (char *)&other + 1, 0));
}

// The order of errors for root: invalid arguments before missing permission.
static void refused(void)
{
	struct timespec odd = {0, 1000000000};
	SHOW(syscall(SYS_sethostname, "name", 65));
	SHOW(syscall(SYS_sethostname, NULL, 5));
	SHOW(syscall(SYS_setdomainname, "name", -1));
	SHOW(syscall(SYS_clock_settime, CLOCK_REALTIME, &odd));
	SHOW(syscall(SYS_clock_settime, CLOCK_MONOTONIC, &(struct timespec){1, 1}));
	SHOW(syscall(SYS_clock_settime, 99, &odd));
	SHOW(syscall(SYS_clock_settime, CLOCK_REALTIME, NULL));
	SHOW(syscall(SYS_settimeofday, &(struct timespec){1, 1000000}, NULL));
	SHOW(syscall(SYS_reboot, 1, 2, 3, 4));
	SHOW(syscall(SYS_mount, "none", "/nothing/here", "tmpfs", 0, NULL));
	SHOW(syscall(SYS_umount2, "/nothing/here", 0));
	SHOW(syscall(SYS_umount2, "/", 0x100));
	SHOW(syscall(SYS_swapon, "/nothing/here", 0));
	SHOW(syscall(SYS_swapoff, "/nothing/here"));
	SHOW(syscall(SYS_pivot_root, "/nothing/here", "/"));
	SHOW(syscall(SYS_acct, "/nothing/here"));
	SHOW(syscall(SYS_syslog, 11, NULL, 0));
	SHOW(syscall(SYS_syslog, 3, NULL, 5));
	SHOW(syscall(SYS_unshare, 0));
	SHOW(syscall(SYS_unshare, 1));
	SHOW(syscall(SYS_unshare, CLONE_FILES | CLONE_FS));
	SHOW(syscall(SYS_setns, -1, 0));
	SHOW(syscall(SYS_setns, open("/dev/null", O_RDONLY), 0));
	SHOW(syscall(SYS_userfaultfd, 1 << 20));
	int status = open("/proc/self/status", O_RDONLY);
	struct epoll_event event = {.events = EPOLLIN};
	SHOW(epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, status, &event));
}

// Whether a core dump is reported.
static void kept(void)
{
	limit(RLIMIT_CORE, 0);
	int status;
	if (fork() == 0)
		abort();
	wait(&status);
	SHOW(WCOREDUMP(status));
	SHOW(WTERMSIG(status));
}

int main(int number, char **arguments)
{
	static const struct { const char *name; void (*run)(void); } parts[] = {
		{"files", files}, {"memory", memory}, {"given", given}, {"left", left_behind}, {"cloning", cloning}, {"words", words},
		{"refused", refused}, {"kept", kept},
	};
	for (size_t at = 0; number > 1 && at < sizeof parts / sizeof *parts; at++)
		if (!strcmp(arguments[1], parts[at].name))
			parts[at].run();
	fflush(stdout);
	return 0;
}
