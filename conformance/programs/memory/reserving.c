// SPDX-License-Identifier: MIT OR Apache-2.0
// The address space as runtimes use it: reserved in large pieces, with madvise, and with a stack whose limit changes.
#define _GNU_SOURCE
#include "holds.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define MEGABYTE (1L << 20)
#define GIGABYTE (1L << 30)
#ifndef MADV_POPULATE_READ // missing in musl
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static sigjmp_buf back;

static void on_fault(int signal, siginfo_t *information, void *context)
{
	(void)context;
	siglongjmp(back, signal * 100 + information->si_code);
}

// The result of an access: nothing, or a signal with its code.
static int touch(volatile char *at)
{
	int fault = sigsetjmp(back, 1);
	if (!fault)
		*at = 1;
	return fault;
}

enum { UNMAPPED = SIGSEGV * 100 + SEGV_MAPERR, FORBIDDEN = SIGSEGV * 100 + SEGV_ACCERR };

static void reserving(int count, char **arguments)
{
	(void)count, (void)arguments;
	signal(SIGSEGV, SIG_DFL);
	sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, NULL);
	char *all = mmap(NULL, 1024 * GIGABYTE, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0);
	HOLDS(all != MAP_FAILED);
	HOLDS(touch(all + GIGABYTE) == FORBIDDEN);
	HOLDS(!mprotect(all + GIGABYTE, MEGABYTE, PROT_READ | PROT_WRITE));
	HOLDS(!touch(all + GIGABYTE) && touch(all + GIGABYTE - 1) == FORBIDDEN && touch(all + GIGABYTE + MEGABYTE) == FORBIDDEN);
	HOLDS(!madvise(all + GIGABYTE, MEGABYTE, MADV_DONTNEED) && all[GIGABYTE] == 0);
	HOLDS(!munmap(all + 2 * GIGABYTE, GIGABYTE) && touch(all + 2 * GIGABYTE) == UNMAPPED && touch(all + 3 * GIGABYTE) == FORBIDDEN);
	FAILS(mmap(all + 4 * GIGABYTE, PAGE, PROT_READ, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	HOLDS(mmap(all + 2 * GIGABYTE, PAGE, PROT_READ, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) == all + 2 * GIGABYTE);
	HOLDS(!munmap(all, 1024 * GIGABYTE));
	char *large = mmap(NULL, 16 * GIGABYTE, PROT_READ | PROT_WRITE, PRIVATE | MAP_NORESERVE, -1, 0);
	HOLDS(large != MAP_FAILED && !touch(large + 9 * GIGABYTE) && !munmap(large, 16 * GIGABYTE));
	FAILS(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0), EINVAL);
	int file = open("/proc/self/exe", O_RDONLY);
	FAILS(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | 0x80000, file, 0), EOPNOTSUPP);
}

static void advising(int count, char **arguments)
{
	(void)count, (void)arguments;
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, PRIVATE, -1, 0);
	static const int ADVICE[] = {
		MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
		MADV_DONTDUMP, MADV_DODUMP, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_MERGEABLE, MADV_UNMERGEABLE,
	};
	for (size_t at = 0; at < sizeof ADVICE / sizeof *ADVICE; at++) {
		int advice = ADVICE[at];
		printf("%d:\n", advice);
		HOLDS(!madvise(memory, 2 * PAGE, advice));
	}
	FAILS(madvise(memory, PAGE, 999), EINVAL);
	FAILS(madvise(memory + 1, PAGE, MADV_FREE), EINVAL);
	HOLDS(!mprotect(memory, PAGE, PROT_READ));
	FAILS(madvise(memory, 2 * PAGE, MADV_POPULATE_WRITE), EINVAL);
	HOLDS(!munmap(memory + PAGE, PAGE));
	FAILS(madvise(memory, 2 * PAGE, MADV_POPULATE_READ), ENOMEM);
	FAILS(mprotect(memory, PAGE, PROT_READ | PROT_GROWSDOWN), EINVAL);
	FAILS(mprotect(memory, PAGE, PROT_READ | PROT_GROWSUP), EINVAL);

	// Wiped memory reads zero in a child, and in the child's child; newly mapped memory is not wiped.
	char *secret = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, PRIVATE, -1, 0);
	memset(secret, 's', 4 * PAGE);
	HOLDS(!madvise(secret, 4 * PAGE, MADV_WIPEONFORK) && !madvise(secret + PAGE, PAGE, MADV_KEEPONFORK));
	HOLDS(mmap(secret + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE, PRIVATE | MAP_FIXED, -1, 0) == secret + 3 * PAGE);
	secret[3 * PAGE] = 'n';
	fflush(stdout);
	int status;
	if (!fork()) {
		HOLDS(secret[0] == 0 && secret[PAGE] == 's' && secret[2 * PAGE] == 0 && secret[3 * PAGE] == 'n');
		secret[0] = 't';
		fflush(stdout);
		if (!fork())
			_exit(secret[0]);
		wait(&status);
		_exit(WEXITSTATUS(status));
	}
	HOLDS(wait(&status) > 0 && status == 0 && secret[0] == 's' && secret[2 * PAGE] == 's');
	char *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	FAILS(madvise(shared, PAGE, MADV_WIPEONFORK), EINVAL);

	int file = open("/proc/self/exe", O_RDONLY);
	char *mapped = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0), first;
	HOLDS(pread(file, &first, 1, 0) == 1 && *mapped == first);
	*mapped = 'x';
	HOLDS(!madvise(mapped, PAGE, MADV_DONTNEED) && *mapped == first);
	FAILS(madvise(mapped, PAGE, MADV_FREE), EINVAL);
	char here;
	char *page = (char *)((uintptr_t)&here & ~(uintptr_t)(PAGE - 1));
	HOLDS(!mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN));
}

static int deep(int levels)
{
	volatile char room[4096];
	memset((char *)room, levels, sizeof room);
	return levels ? deep(levels - 1) + room[levels % 4096] % 2 : room[5];
}

static void deepening(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct rlimit limit = {64 * MEGABYTE, RLIM_INFINITY};
	HOLDS(!setrlimit(RLIMIT_STACK, &limit) && deep(14000) != -1);
	HOLDS(!getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur == 64 * MEGABYTE);
}

static void started(int count, char **arguments)
{
	HOLDS(count == 1 && !strcmp(arguments[0], "word"));
	const Elf64_Phdr *headers = (const Elf64_Phdr *)getauxval(AT_PHDR);
	HOLDS(getauxval(AT_PHENT) == sizeof *headers && getauxval(AT_PHNUM) > 3);
	long lowest = -1;
	for (unsigned long at = 0; at < getauxval(AT_PHNUM); at++)
		if (headers[at].p_type == PT_LOAD && lowest < 0)
			lowest = (long)headers[at].p_vaddr;
	const Elf64_Ehdr *file = (const Elf64_Ehdr *)((uintptr_t)headers & ~(uintptr_t)(PAGE - 1));
	HOLDS(!memcmp(file->e_ident, ELFMAG, SELFMAG));
	HOLDS(getauxval(AT_ENTRY) - (uintptr_t)file == file->e_entry - (unsigned long)lowest);
	HOLDS(!strcmp((char *)getauxval(AT_PLATFORM), "x86_64") && strstr((char *)getauxval(AT_EXECFN), "reserving"));
	HOLDS(getauxval(AT_RANDOM) && getauxval(AT_PAGESZ) == PAGE && !getauxval(AT_SECURE));
}

static const struct part PARTS[] = {
	{"reserving", reserving}, {"advising", advising}, {"deepening", deepening}, {"started", started}, {0},
};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
