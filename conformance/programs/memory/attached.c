// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory that is discarded, or that grows automatically: its content afterwards, in each process.
#define _GNU_SOURCE
#include "show.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static sigjmp_buf fault;

static void faulted(int signal)
{
	siglongjmp(fault, signal);
}

// Reads a byte; returns its value, or a fault.
static int look(volatile char *at)
{
	return sigsetjmp(fault, 1) ? -1 : *at;
}

static int put(volatile char *at, char byte)
{
	if (sigsetjmp(fault, 1))
		return -1;
	*at = byte;
	return 0;
}

// A detached segment is inaccessible, although other processes have it attached.
static void detached(void)
{
	int id = shmget(IPC_PRIVATE, PAGE, 0600 | IPC_CREAT), other[2];
	volatile char *memory = shmat(id, NULL, 0);
	*memory = 7;
	char byte;
	if (pipe(other))
		return;
	pid_t child = fork();
	if (child == 0) {
		// It keeps the inherited attachment.
		close(other[1]);
		if (read(other[0], &byte, 1) != 1)
			_exit(1);
		SHOW(look(memory));
		SHOW(put(memory, 8));
		SHOW(shmdt((void *)memory));
		SHOW(look(memory));
		_exit(0);
	}
	SHOW(shmdt((void *)memory));
	SHOW(look(memory));
	SHOW(put(memory, 9));
	if (write(other[1], "x", 1) != 1)
		return;
	waitpid(child, NULL, 0);
	SHOW(look(memory));
	memory = shmat(id, NULL, SHM_RDONLY);
	SHOW(look(memory));
	SHOW(put(memory, 9));
	SHOW(shmdt((void *)memory));
	memory = shmat(id, NULL, 0);
	SHOW(put(memory, 9));
	volatile char *again = shmat(id, NULL, 0);
	SHOW(look(again));
	SHOW(shmdt((void *)again));
	SHOW(shmdt((void *)memory));
	SHOW(look(again));
	SHOW(shmctl(id, IPC_RMID, NULL));
}

// The same with anonymous shared memory.
static void unmapped(void)
{
	volatile char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int go[2];
	char byte;
	memory[0] = 1;
	memory[PAGE] = 2;
	if (pipe(go))
		return;
	pid_t child = fork();
	if (child == 0) {
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		SHOW(look(memory));
		SHOW(look(memory + PAGE));
		SHOW(put(memory, 3));
		_exit(0);
	}
	SHOW(munmap((void *)memory, PAGE));
	SHOW(look(memory));
	SHOW(look(memory + PAGE));
	if (write(go[1], "x", 1) != 1)
		return;
	waitpid(child, NULL, 0);
	SHOW(look(memory));
	SHOW(look(memory + PAGE));
}

// Many segments and semaphore sets, each found by its key.
static void many(void)
{
	enum { COUNT = 500, BASE = 0x7a000000 };
	static int ids[COUNT];
	int found = 0;
	for (int at = 0; at < COUNT; at++)
		ids[at] = shmget(BASE + at, PAGE, 0600 | IPC_CREAT | IPC_EXCL);
	for (int at = 0; at < COUNT; at += 2)
		shmctl(ids[at], IPC_RMID, NULL);
	for (int at = 0; at < COUNT; at++)
		found += shmget(BASE + at, PAGE, 0) == ids[at];
	printf("%d\n", found);
	SHOW(shmget(BASE + 1, PAGE, IPC_CREAT | IPC_EXCL));
	SHOW(shmget(BASE + 2, PAGE, 0));
	for (int at = 1; at < COUNT; at += 2)
		shmctl(ids[at], IPC_RMID, NULL);
}

// Mappings that grow down to touched addresses, unless another mapping is near.
static void growing(void)
{
	enum { ROOM = 16 << 20 };
	char *room = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *end = room + ROOM;
	munmap(room, ROOM);
	char *stack = mmap(end - PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
	SHOW(put(stack - 1, 1));
	SHOW(look(stack - 1));
	SHOW(put(stack - 64 * PAGE, 2));
	SHOW(look(stack - 32 * PAGE));
	SHOW(look(stack - 65 * PAGE + 5));
	// No further than the stack limit.
	SHOW(look(end - (9 << 20)));
	char *near = mmap(stack - 400 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	SHOW(near == stack - 400 * PAGE);
	SHOW(put(stack - 140 * PAGE, 3));
	SHOW(put(stack - 200 * PAGE, 4));
	SHOW(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0) == MAP_FAILED);
	if (fork() == 0) {
		SHOW(put(stack - 142 * PAGE, 5));
		_exit(0);
	}
	wait(NULL);
	SHOW(look(stack - 140 * PAGE));
}

static long attachments(int id)
{
	struct shmid_ds state;
	return shmctl(id, IPC_STAT, &state) ? -1 : (long)state.shm_nattch;
}

// MREMAP_DONTUNMAP of a segment, which is then attached twice, and of a mapping that grows down, as both do afterwards.
static void left_behind(void)
{
	int id = shmget(IPC_PRIVATE, 2 * PAGE, 0600 | IPC_CREAT);
	volatile char *memory = shmat(id, NULL, 0);
	SHOW(put(memory + PAGE, 1));
	volatile char *again = (char *)syscall(SYS_mremap, memory, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	SHOW(again != MAP_FAILED);
	SHOW(attachments(id));
	SHOW(look(again + PAGE));
	SHOW(put(again, 2));
	SHOW(look(memory));
	SHOW(shmdt((void *)again));
	SHOW(attachments(id));
	SHOW(look(memory));
	SHOW(shmdt((void *)memory));
	SHOW(attachments(id));
	SHOW(shmctl(id, IPC_RMID, NULL));

	enum { ROOM = 16 << 20 };
	char *room = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *other = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(room, ROOM);
	munmap(other, ROOM);
	char *stack = mmap(room + ROOM - PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
	SHOW(put(stack, 3));
	enum { FLAGS = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP };
	char *moved = (char *)syscall(SYS_mremap, stack, PAGE, PAGE, FLAGS, other + ROOM - PAGE);
	SHOW(moved == other + ROOM - PAGE);
	SHOW(look(moved));
	SHOW(look(stack));
	SHOW(put(moved - PAGE, 4));
	SHOW(put(stack - PAGE, 5));
	SHOW(look(moved - PAGE));
	SHOW(look(stack - PAGE));
}

int main(int number, char **arguments)
{
	static const struct { const char *name; void (*run)(void); } parts[] = {
		{"detached", detached}, {"unmapped", unmapped}, {"many", many}, {"growing", growing},
		{"left", left_behind},
	};
	struct sigaction action = {.sa_handler = faulted, .sa_flags = SA_ONSTACK};
	stack_t stack = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ};
	sigaltstack(&stack, NULL);
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	for (size_t at = 0; number > 1 && at < sizeof parts / sizeof *parts; at++)
		if (!strcmp(arguments[1], parts[at].name))
			parts[at].run();
	fflush(stdout);
	return 0;
}
