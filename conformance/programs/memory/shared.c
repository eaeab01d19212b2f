// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory shared between a process and its child, with permissions of their own.
#define _GNU_SOURCE
#include "holds.h"
#include "show.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L

// Of linux/futex.h, which musl does not have.
enum { FUTEX_WAIT, FUTEX_WAKE };

static sigjmp_buf back;
static int pipes[2][2];

static void on_fault(int number, siginfo_t *information, void *context)
{
	(void)context;
	siglongjmp(back, number * 100 + information->si_code);
}

static void catch(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &action, NULL), sigaction(SIGBUS, &action, NULL);
}

// The result of reading or writing a byte: the byte, or a signal with its code.
static int look(volatile char *at)
{
	int fault = sigsetjmp(back, 1);
	return fault ? fault : *at;
}

static int put(volatile char *at, char value)
{
	int fault = sigsetjmp(back, 1);
	return fault ? fault : (*at = value);
}

// The permissions and the name in the line of a mapping.
static void tell(const char *at)
{
	char line[512], permissions[8], name[256];
	unsigned long start, end;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps)) {
		name[0] = 0;
		int fields = sscanf(line, "%lx-%lx %7s %*s %*s %*s %255[^\n]", &start, &end, permissions, name);
		if (fields >= 3 && start <= (unsigned long)at && (unsigned long)at < end)
			printf("%s %s\n", permissions, name);
	}
	fclose(maps);
	fflush(stdout);
}

// The processes take turns: one signals that it is done and waits until the other is.
static void turn(int own)
{
	char byte = 0;
	if (write(pipes[!own][1], &byte, 1) != 1 || read(pipes[own][0], &byte, 1) != 1)
		_exit(3);
}

static void child(char *area)
{
	SHOW(mprotect(area, PAGE, PROT_READ));
	SHOW(put(area, 1)), SHOW(look(area));
	SHOW(mprotect(area + PAGE, PAGE, PROT_NONE));
	SHOW(look(area + PAGE));
	turn(1);
	SHOW(look(area)), SHOW(put(area, 2)), SHOW(look(area + PAGE));
	SHOW(mprotect(area, 3 * PAGE, PROT_READ | PROT_WRITE));
	SHOW(look(area + PAGE)), SHOW(put(area + 2 * PAGE, 30));
	SHOW(madvise(area, 3 * PAGE, MADV_DONTNEED));
	SHOW(look(area)), SHOW(look(area + 2 * PAGE));
	turn(1);
	SHOW(look(area)), SHOW(put(area, 40)), SHOW(put(area + 2 * PAGE, 41));
	SHOW(munmap(area, PAGE));
	_exit(0);
}

static void protecting(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch();
	SHOW(pipe(pipes[0]) + pipe(pipes[1]));
	char *area = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tell(area);
	if (!fork())
		child(area);
	char byte;
	SHOW(read(pipes[0][0], &byte, 1));
	SHOW(look(area)), SHOW(put(area, 10)), SHOW(put(area + PAGE, 20));
	turn(0);
	SHOW(look(area + 2 * PAGE));
	SHOW(mprotect(area, PAGE, PROT_READ)), SHOW(mprotect(area + 2 * PAGE, PAGE, PROT_NONE));
	SHOW(put(area, 11)), SHOW(look(area + 2 * PAGE));
	if (write(pipes[1][1], &byte, 1) != 1)
		return;
	SHOW(wait(NULL) > 0);
	SHOW(put(area, 12)), SHOW(look(area)), SHOW(look(area + 2 * PAGE));
	tell(area), tell(area + 2 * PAGE);
	SHOW(mprotect(area, 3 * PAGE, PROT_READ));
	SHOW(look(area + 2 * PAGE)), SHOW(put(area + 2 * PAGE, 13));
}

// Memory that is inaccessible at first; memory that moves, and that grows past its initial end.
static void moving(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch();
	char *area = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	SHOW(look(area)), SHOW(mprotect(area, 4 * PAGE, PROT_READ | PROT_WRITE)), SHOW(put(area, 1)), SHOW(put(area + 3 * PAGE, 4));
	SHOW(madvise(area, PAGE, MADV_FREE)), SHOW(madvise(area, 4 * PAGE, MADV_DONTNEED)), SHOW(look(area));
	char *room = mmap(NULL, 16 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	SHOW(mremap(area, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area + PAGE) == MAP_FAILED), SHOW(look(area));
	SHOW(mremap(area, 4 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + PAGE) == room + PAGE);
	SHOW(look(area)), SHOW(look(room)), SHOW(look(room + PAGE)), SHOW(look(room + 4 * PAGE)), SHOW(put(room + 4 * PAGE, 5)), SHOW(look(room + 5 * PAGE));
	SHOW(look(room + 7 * PAGE));
	tell(room + PAGE);
	SHOW(madvise(room + PAGE, 4 * PAGE, MADV_DONTNEED)), SHOW(look(room + PAGE));
	char *small = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	SHOW(put(small, 7));
	char *grown = mremap(small, PAGE, 3 * PAGE, MREMAP_MAYMOVE);
	SHOW(grown != MAP_FAILED), SHOW(look(grown)), SHOW(look(grown + PAGE)), SHOW(put(grown + 2 * PAGE, 1));
	SHOW(munmap(grown, 3 * PAGE)), SHOW(look(grown));
	int memory = memfd_create("memory", 0);
	SHOW(ftruncate(memory, 3 * PAGE));
	char *shown = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	SHOW(put(shown + PAGE, 8));
	SHOW(mremap(shown + PAGE, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 10 * PAGE) == room + 10 * PAGE);
	SHOW(look(room + 10 * PAGE)), SHOW(put(room + 11 * PAGE, 9)), SHOW(look(room + 12 * PAGE)), SHOW(look(shown + PAGE)), SHOW(look(shown));
	char byte;
	SHOW(pread(memory, &byte, 1, 2 * PAGE)), SHOW(byte);
	SHOW(mmap(room + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == room + 2 * PAGE);
	SHOW(put(room + 2 * PAGE, 3)), SHOW(madvise(room + 2 * PAGE, PAGE, MADV_DONTNEED)), SHOW(look(room + 2 * PAGE));
}

// A place that processes have in common, for mappings that move.
static char *room;

// Waits until a word of shared memory has another value, or wakes a process that waits.
static void await(char *at, char before)
{
	while (*(volatile char *)at == before)
		syscall(SYS_futex, at, FUTEX_WAIT, before, NULL, NULL, 0);
}

static void change(char *at, char value)
{
	*(volatile char *)at = value;
	syscall(SYS_futex, at, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void grandchild(char *moved)
{
	if (!fork()) {
		SHOW(look(moved)), SHOW(put(moved, 60));
		_exit(0);
	}
	SHOW(wait(NULL) > 0), SHOW(look(moved));
}

static void mover(char *area)
{
	SHOW(mprotect(area + 2 * PAGE, PAGE, PROT_NONE));
	SHOW(mremap(area, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room);
	SHOW(look(room)), SHOW(look(room + PAGE)), SHOW(put(room, 10)), SHOW(look(area)), SHOW(look(area + 2 * PAGE));
	tell(room);
	turn(1);
	// The other process has written.
	SHOW(look(room)), SHOW(look(room + PAGE)), SHOW(look(area)), SHOW(put(room + PAGE, 30));
	// Pages that are not accessible keep their contents, and move with them.
	SHOW(mremap(area + 2 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 4 * PAGE) == room + 4 * PAGE);
	SHOW(look(room + 4 * PAGE)), SHOW(mprotect(room + 4 * PAGE, PAGE, PROT_READ)), SHOW(look(room + 4 * PAGE)), SHOW(put(room + 4 * PAGE, 1));
	turn(1);
	await(room, 10);
	SHOW(look(room)), SHOW(look(room + 4 * PAGE));
	change(room + PAGE, 31);
	turn(1);
	grandchild(room);
	// Growing shows more of the object, and nothing behind its end.
	SHOW(munmap(area + 3 * PAGE, PAGE)), SHOW(munmap(room + PAGE, PAGE));
	char *grown = mremap(room, PAGE, 6 * PAGE, MREMAP_MAYMOVE);
	SHOW(grown != MAP_FAILED);
	SHOW(look(grown)), SHOW(look(grown + PAGE)), SHOW(look(grown + 2 * PAGE)), SHOW(look(grown + 3 * PAGE)), SHOW(look(grown + 4 * PAGE)), SHOW(put(grown + 5 * PAGE, 1));
	SHOW(put(grown + 3 * PAGE, 70));
	turn(1);
	SHOW(munmap(grown, 6 * PAGE)), SHOW(look(grown));
	_exit(0);
}

// Memory that one process moves while another one has it.
static void moved(void)
{
	char *area = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int page = 0; page < 4; page++)
		put(area + page * PAGE, (char)(page + 1));
	if (!fork())
		mover(area);
	char byte;
	SHOW(read(pipes[0][0], &byte, 1));
	SHOW(look(area)), SHOW(look(area + PAGE)), SHOW(put(area + PAGE, 20)), SHOW(put(area + 2 * PAGE, 3));
	tell(area);
	turn(0);
	SHOW(look(area + PAGE)), SHOW(put(area + 2 * PAGE, 40));
	if (write(pipes[1][1], &byte, 1) != 1)
		return;
	change(area, 50);
	await(area + PAGE, 30);
	SHOW(look(area + PAGE));
	SHOW(read(pipes[0][0], &byte, 1));
	turn(0);
	SHOW(look(area)), SHOW(look(area + 3 * PAGE));
	if (write(pipes[1][1], &byte, 1) != 1)
		return;
	SHOW(wait(NULL) > 0);
	SHOW(look(area)), SHOW(put(area, 80)), SHOW(look(area)), SHOW(munmap(area, 4 * PAGE)), SHOW(look(area));
}

// Memory at a chosen address, from the beginning or after it moved, is shared with children, too.
static void inherited(char *area)
{
	SHOW(put(area, 1));
	if (!fork()) {
		SHOW(look(area)), SHOW(put(area + PAGE, 2));
		turn(1);
		SHOW(look(area)), SHOW(look(area + 2 * PAGE));
		_exit(0);
	}
	char byte;
	SHOW(read(pipes[0][0], &byte, 1));
	SHOW(look(area + PAGE)), SHOW(put(area, 3));
	if (write(pipes[1][1], &byte, 1) != 1)
		return;
	SHOW(wait(NULL) > 0);
	tell(area);
}

static void remapping(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch();
	SHOW(pipe(pipes[0]) + pipe(pipes[1]));
	room = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moved();
	SHOW(mmap(room + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == room + PAGE);
	inherited(room + PAGE);
	char *area = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	SHOW(mremap(area, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 8 * PAGE) == room + 8 * PAGE);
	inherited(room + 8 * PAGE);
}

static const struct part PARTS[] = {{"protecting", protecting}, {"moving", moving}, {"remapping", remapping}, {0}};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
