// SPDX-License-Identifier: MIT OR Apache-2.0
// Restartable sequences: code that is aborted when it is interrupted. For a C library that does not use them itself.
#define _GNU_SOURCE
#include "holds.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef SYS_rseq
#define SYS_rseq 334
#endif
#define SIGNATURE 0x53053053

static struct {
	uint32_t first_processor, processor;
	uint64_t sequence;
	uint32_t flags, unused[3];
} __attribute__((aligned(32))) area, other;

struct sequence {
	uint32_t version, flags;
	uint64_t start, length, elsewhere;
} __attribute__((aligned(32)));

extern struct sequence described;
extern const char elsewhere[];
// Runs until it is interrupted, and then returns 1.
int endless(struct sequence *which);

__asm__(".data\n"
	".balign 32\n"
	"described: .long 0, 0\n"
	".quad 1f, 2f - 1f, elsewhere\n"
	".text\n"
	"endless: movq %rdi, area+8(%rip)\n"
	"1: pause\n"
	"jmp 1b\n"
	"2: xorl %eax, %eax\n"
	"ret\n"
	".byte 0x0f, 0xb9, 0x3d\n"
	".long 0x53053053\n"
	"elsewhere: movl $1, %eax\n"
	"ret\n");

static volatile int rings, at_elsewhere;

static void ring(int number, siginfo_t *information, void *context)
{
	(void)number, (void)information;
	rings++;
	at_elsewhere = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] == (greg_t)(uintptr_t)elsewhere;
}

static long register_(void *where, long size, long flags, long signature)
{
	return syscall(SYS_rseq, where, size, flags, signature);
}

static void registering(int count, char **words)
{
	(void)count, (void)words;
	area.processor = 77;
	FAILS(register_((char *)&area + 4, 32, 0, SIGNATURE), EINVAL);
	FAILS(register_(&area, 31, 0, SIGNATURE), EINVAL);
	FAILS(register_(&area, 32, 2, SIGNATURE), EINVAL);
	FAILS(register_(&area, 32, 1, SIGNATURE), EINVAL);
	FAILS(register_((void *)(1ul << 63), 32, 0, SIGNATURE), EFAULT);
	HOLDS(register_(&area, 32, 0, SIGNATURE) == 0 && area.processor < 77 && area.processor == area.first_processor);
	FAILS(register_(&area, 32, 0, SIGNATURE), EBUSY);
	FAILS(register_(&other, 32, 0, SIGNATURE), EINVAL);
	FAILS(register_(&area, 32, 0, 5), EPERM);
	FAILS(register_(&other, 32, 1, SIGNATURE), EINVAL);
	FAILS(register_(&area, 32, 1, 5), EPERM);
	fflush(stdout);
	// A child inherits the registration.
	pid_t child = fork();
	if (child == 0)
		_exit(register_(&area, 32, 1, SIGNATURE) == 0 ? 3 : 0);
	int status;
	HOLDS(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
	HOLDS(register_(&area, 32, 1, SIGNATURE) == 0 && area.processor == ~0u && area.first_processor == 0);
	FAILS(register_(&area, 32, 1, SIGNATURE), EINVAL);
	HOLDS(register_(&other, 32, 0, 5) == 0 && register_(&other, 32, 1, 5) == 0);
}

static void ring_soon(void)
{
	struct sigaction action = {.sa_sigaction = ring, .sa_flags = SA_SIGINFO};
	struct itimerval soon = {{0, 0}, {0, 5000}};
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
}

static void interrupting(int count, char **words)
{
	(void)count, (void)words;
	HOLDS(register_(&area, 32, 0, SIGNATURE) == 0);
	// Another process may be scheduled first, so that the handler starts outside the sequence.
	int led = 1;
	while (!at_elsewhere) {
		rings = 0;
		ring_soon();
		while (!rings)
			led &= endless(&described);
	}
	HOLDS(led == 1 && area.sequence == 0);
	// A thread that is interrupted outside the sequence continues at its address.
	rings = 0;
	ring_soon();
	area.sequence = (uintptr_t)&described;
	while (!rings)
		;
	HOLDS(!at_elsewhere);
	// Another process takes the CPU, where it has to be shared.
	cpu_set_t processors, one;
	HOLDS(sched_getaffinity(0, sizeof processors, &processors) == 0);
	int first = 0;
	while (!CPU_ISSET(first, &processors))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	HOLDS(sched_setaffinity(0, sizeof one, &one) == 0);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		for (;;)
			;
	HOLDS(endless(&described) == 1 && area.sequence == 0 && area.processor == (uint32_t)first);
	HOLDS(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

// An invalid sequence ends the program.
static void wrong(int count, char **words)
{
	(void)count, (void)words;
	for (int which = 0; which < 4; which++) {
		fflush(stdout);
		pid_t child = fork();
		if (child == 0) {
			struct sequence told = described;
			register_(&area, 32, 0, which == 0 ? 5 : SIGNATURE);
			if (which == 1)
				told.version = 1;
			if (which == 2)
				told.elsewhere = told.start;
			if (which == 3)
				told.elsewhere = 1ul << 63;
			ring_soon();
			_exit(endless(&told));
		}
		int status;
		HOLDS(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
}

static const struct part PARTS[] = {{"registering", registering}, {"interrupting", interrupting}, {"wrong", wrong}, {0}};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	return run_part(PARTS, count, arguments);
}
