// SPDX-License-Identifier: MIT OR Apache-2.0
// System calls in every context that a patch must preserve. The output depends only on the semantics of the instructions.
#define _GNU_SOURCE
#include "code.h"
#include "holds.h"

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

// Often enough that the site is patched on the way.
enum { TIMES = 5 };

static void run_at(const uint8_t *target)
{
	code_target = (uint64_t)(uintptr_t)target;
	code_run();
}

#define SYSCALL 0x0f, 0x05

// Instructions that may follow a system call: name and bytes. Four times 0xee stands for the distance to the data, relative
// to `after` bytes further.
static const struct follower {
	const char *name;
	int after;
	size_t size;
	uint8_t bytes[24];
} followers[] = {
	{ "nops", 0, 3, { 0x90, 0x90, 0x90 } },
	{ "compare", 0, 6, { 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff } },
	{ "load", 0, 7, { 0x48, 0x8b, 0x1d, 0xee, 0xee, 0xee, 0xee } },
	{ "address", 0, 7, { 0x4c, 0x8d, 0x05, 0xee, 0xee, 0xee, 0xee } },
	{ "compare with memory", 1, 7, { 0x83, 0x3d, 0xee, 0xee, 0xee, 0xee, 0x07 } },
	{ "store", 4, 10, { 0xc7, 0x05, 0xee, 0xee, 0xee, 0xee, 0x78, 0x56, 0x34, 0x12 } },
	{ "jump indirect", 0, 6, { 0xff, 0x25, 0xee, 0xee, 0xee, 0xee } },
	{ "jump if sign", 0, 7, { 0x48, 0x85, 0xc0, 0x78, 0x02, 0xff, 0xc3 } },
	{ "jump if", 0, 5, { 0x74, 0x03, 0x48, 0xff, 0xc3 } },
	{ "jump unless", 0, 5, { 0x75, 0x03, 0x48, 0xff, 0xc3 } },
	{ "far jump if", 0, 9, { 0x0f, 0x84, 0x03, 0, 0, 0, 0x48, 0xff, 0xc3 } },
	{ "jump", 0, 6, { 0xeb, 0x03, 0x90, 0x90, 0x90, 0x90 } },
	{ "jump over code", 0, 5, { 0xeb, 0x03, 0x48, 0xff, 0xc3 } },
	{ "far jump", 0, 8, { 0xe9, 0x03, 0, 0, 0, 0x48, 0xff, 0xc3 } },
	{ "stack", 0, 3, { 0x50, 0x5b, 0x90 } },
	{ "call", 0, 9, { 0xe8, 0x02, 0, 0, 0, 0xeb, 0x02, 0x58, 0xc3 } },
	{ "another", 0, 2, { SYSCALL } },
	{ "two others", 0, 4, { SYSCALL, SYSCALL } },
	{ "another soon", 0, 3, { 0x90, SYSCALL } },
	{ "loop", 0, 7, { 0xb9, 0x05, 0, 0, 0, 0xe2, 0xfe } },
	{ "jump if zero", 0, 4, { 0x31, 0xc9, 0xe3, 0x00 } },
	{ "landing pad", 0, 4, { 0xf3, 0x0f, 0x1e, 0xfa } },
	{ "long nop", 0, 9, { 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0 } },
	{ "long constant", 0, 10, { 0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8 } },
	{ "vectors", 0, 4, { 0x66, 0x0f, 0xef, 0xc0 } },
	{ "flags", 0, 3, { 0xf9, 0xfd, 0xfc } },
	{ "string", 0, 13, { 0x48, 0x8d, 0x3d, 0xee, 0xee, 0xee, 0xee, 0xb9, 3, 0, 0, 0, 0xaa } },
	{ "return", 0, 1, { 0xc3 } },
	{ "return, then room", 0, 8, { 0xc3, 0x0f, 0x1f, 0x80, 0, 0, 0, 0 } },
};

// Appends a follower with its distances filled in.
static void put_follower(const struct follower *follower)
{
	uint8_t *start = code_place;
	put(follower->bytes, follower->size);
	for (uint8_t *at = start; at + 4 <= code_place; at++)
		if (!memcmp(at, "\xee\xee\xee\xee", 4))
			memcpy(at, &(int32_t){ (int32_t)(DATA - (at + 4 + follower->after)) }, 4);
}

// Every register, the red zone and the vector registers, after each of a few calls, in every context and with many flags.
static void registers(int count, char **arguments)
{
	(void)count, (void)arguments;
	static const uint64_t flags[] = { 0, 0x8d5, 0x41, 0x800, 0x84, 0x400, 0x200000, 0x40000 };
	for (const struct follower *follower = followers; follower < followers + sizeof followers / sizeof *followers; follower++) {
		code_open();
		// Reached by a call, so that a follower that returns does.
		PUT(0xe8, 2, 0, 0, 0, 0xeb, 0x33);
		PUT(SYSCALL);
		put_follower(follower);
		PUT(0xc3);
		// The data: a number, or the address to continue at.
		uint64_t value = (uint64_t)(uintptr_t)(code_place - 1);
		memcpy(DATA, &value, 8);
		// Aligned, because one of the flags requires it.
		code_place = CODE + 0x3a;
		put_end();
		code_protect(PROT_READ | PROT_EXEC);
		for (int time = 0; time < TIMES; time++)
			for (size_t index = 0; index < sizeof flags / sizeof *flags; index++) {
				code_fill(flags[index]);
				run_at(CODE);
				printf("%s, %lx:", follower->name, (unsigned long)flags[index]);
				code_show();
			}
	}
}

static sigjmp_buf back;
static volatile long fault_offset;
static volatile int fault_signal;

static void on_fault(int signal, siginfo_t *information, void *context)
{
	(void)information;
	ucontext_t *interrupted = context;
	fault_signal = signal;
	fault_offset = (long)(interrupted->uc_mcontext.gregs[REG_RIP] - (long)(intptr_t)CODE);
	siglongjmp(back, 1);
}

static void catch_faults(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	for (const int *signal = (const int[]){ SIGSEGV, SIGILL, SIGBUS, SIGTRAP, SIGFPE, 0 }; *signal; signal++)
		sigaction(*signal, &action, NULL);
}

// Runs code and prints how it ended.
static void run_or_fault(const uint8_t *target, const char *what)
{
	code_fill(0);
	if (sigsetjmp(back, 1)) {
		printf("%s: signal %d at %ld\n", what, fault_signal, fault_offset);
		return;
	}
	run_at(target);
	printf("%s:", what);
	code_show();
}

// Jumps to every byte of a patched site and its followers, to instructions and into the middle of them, a few times and many.
static void into(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch_faults();
	static const struct {
		size_t size;
		uint8_t bytes[12];
	} bodies[] = {
		{ 8, { SYSCALL, 0x90, 0x90, 0x90, 0x48, 0xff, 0xc3 } },
		{ 10, { SYSCALL, 0xb8, 0x90, 0x90, 0x90, 0x90, 0x48, 0xff, 0xc3 } },
		{ 8, { SYSCALL, 0x48, 0x3d, 0x90, 0x90, 0x90, 0x90 } },
		{ 8, { SYSCALL, 0xf0, 0x48, 0xff, 0x44, 0x24, 0xf8 } },
		{ 7, { SYSCALL, 0x53, 0x5b, 0xf9, 0x90, 0x90 } },
		{ 6, { SYSCALL, 0x06, 0x16, 0x1e, 0x90 } },
	};
	for (size_t body = 0; body < sizeof bodies / sizeof *bodies; body++)
		for (int offset = 0; offset < 8; offset++)
			for (int jumps = 3; jumps <= 40; jumps += 37) {
				code_open();
				memset(CODE, 0x90, 16);
				memcpy(CODE, bodies[body].bytes, bodies[body].size);
				code_place = CODE + 16;
				put_end();
				code_protect(PROT_READ | PROT_EXEC);
				for (int time = 0; time < TIMES; time++)
					run_or_fault(CODE, "from the start");
				for (int jump = 0; jump < jumps; jump++) {
					char what[40];
					snprintf(what, sizeof what, "body %zu, byte %d", body, offset);
					run_or_fault(CODE + offset, what);
				}
				run_or_fault(CODE, "from the start again");
			}
}

// The most common jump target: right behind the call, in a loop.
static void loops(int count, char **arguments)
{
	(void)count, (void)arguments;
	code_open();
	// mov ebx, 200; 1: mov eax, 3; syscall; 2: dec ebx; test bl, 7; jnz 2; test ebx, ebx; jnz 1
	PUT(0xbb, 200, 0, 0, 0, 0xb8, 3, 0, 0, 0, SYSCALL, 0xff, 0xcb, 0xf6, 0xc3, 0x07, 0x75, 0xf9, 0x85, 0xdb, 0x75, 0xee);
	put_end();
	code_protect(PROT_READ | PROT_EXEC);
	for (int time = 0; time < TIMES; time++) {
		code_fill(0);
		run_at(CODE);
		code_show();
	}
}

// Sites at the end of executable memory, and across a page boundary.
static void ends(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch_faults();
	for (int left = 2; left <= 9; left++)
		for (int beyond = 0; beyond < 4; beyond++) {
			code_open();
			// The number of bytes of the page from the site on is `left`.
			uint8_t *site = CODE + PAGE - left;
			code_place = site;
			PUT(SYSCALL, 0x48, 0xff, 0xc3, 0x48, 0xff, 0xc5, 0x90);
			put_end();
			code_protect(PROT_READ | PROT_EXEC);
			if (beyond == 1)
				munmap(CODE + PAGE, PAGE);
			else if (beyond == 2)
				mprotect(CODE + PAGE, PAGE, PROT_READ);
			else if (beyond == 3)
				mprotect(CODE + PAGE, PAGE, PROT_NONE);
			for (int time = 0; time < TIMES; time++) {
				char what[40];
				snprintf(what, sizeof what, "%d left, beyond %d", left, beyond);
				run_or_fault(site, what);
			}
			// The next page is removed afterwards.
			mprotect(CODE + PAGE, PAGE, PROT_NONE);
			run_or_fault(site, "and without");
		}
	// With protection keys Linux makes it unreadable, which a cell does not.
	if (has_protection_keys())
		return;
	code_open();
	PUT(SYSCALL);
	memset(code_place, 0x90, 8);
	code_place += 8;
	put_end();
	mprotect(CODE, PAGE, PROT_EXEC);
	for (int time = 0; time < TIMES; time++)
		run_or_fault(CODE, "what can only be executed");
}

// Appends a function that makes a call and returns, with padding before and after the call.
static void put_function(int before, int after)
{
	memset(code_place, 0x90, (size_t)before);
	code_place += before;
	PUT(SYSCALL);
	for (int index = 0; index < after; index++)
		PUT(0x48, 0xff, 0xc3);
	put_end();
}

static bool is_function(const uint8_t *code, int before, int after)
{
	static uint8_t wanted[64];
	uint8_t *place = code_place;
	code_place = wanted;
	put_function(before, after);
	bool same = !memcmp(code, wanted, (size_t)(code_place - wanted));
	code_place = place;
	return same;
}

// Code that is written, run, read and written again, with all ways to change memory protection.
static void written(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch_faults();
	for (int round = 0; round < 6; round++) {
		int before = round % 3, after = 1 + round % 2;
		if (round == 0)
			code_open();
		code_protect(PROT_READ | PROT_WRITE);
		HOLDS(round == 0 || is_function(CODE, (round - 1) % 3, 1 + (round - 1) % 2));
		code_place = CODE;
		put_function(before, after);
		code_protect(PROT_READ | PROT_EXEC);
		for (int time = 0; time < TIMES; time++)
			run_or_fault(CODE, "written anew");
	}
	code_protect(PROT_READ);
	HOLDS(is_function(CODE, 2, 2));
	run_or_fault(CODE, "not to be executed");
	code_protect(PROT_READ | PROT_WRITE | PROT_EXEC);
	for (int round = 0; round < 4; round++) {
		code_place = CODE;
		put_function(round, round);
		for (int time = 0; time < TIMES; time++)
			run_or_fault(CODE, "writable");
		HOLDS(is_function(CODE, round, round));
	}
	code_protect(PROT_READ | PROT_EXEC);
	for (int time = 0; time < TIMES; time++)
		run_or_fault(CODE, "as it was left");
	HOLDS(mremap(CODE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, CODE + 8 * PAGE) == CODE + 8 * PAGE);
	for (int time = 0; time < TIMES; time++)
		run_or_fault(CODE + 8 * PAGE, "moved");
	mprotect(CODE + 8 * PAGE, PAGE, PROT_READ);
	HOLDS(is_function(CODE + 8 * PAGE, 3, 3));
	run_or_fault(CODE, "where it was");
	code_open();
	put_function(0, 0);
	code_protect(PROT_READ | PROT_EXEC);
	for (int time = 0; time < TIMES; time++)
		run_or_fault(CODE, "mapped over");
	madvise(CODE, PAGE, MADV_DONTNEED);
	HOLDS(CODE[0] == 0 && CODE[4] == 0);
}

// Occupies all free address space around the program, and frees it again.
static void taken(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch_faults();
	code_open();
	put_function(1, 2);
	code_protect(PROT_READ | PROT_EXEC);
	struct {
		uintptr_t start, end;
	} rooms[] = { { 0x21000000, 0x3f000000 }, { 0x40000000, 0xf0000000 } };
	// Linux puts the heap at a random address in the first GiB or so behind the program.
	uintptr_t heap = ((uintptr_t)sbrk(0) + (4 << 20)) & ~(uintptr_t)(PAGE - 1);
	uintptr_t below = heap - (8 << 20);
	for (int room = 0; room < 2; room++)
		if (heap > rooms[room].start && below < rooms[room].end) {
			if (heap < rooms[room].end)
				rooms[room].start = heap;
			else
				rooms[room].end = below;
		}
	// A cell puts the stack at a random address at the end of the first GiB, with small mappings on both sides.
	uintptr_t stack = ((uintptr_t)&heap - (32 << 20)) & ~(uintptr_t)(PAGE - 1);
	if (stack > rooms[0].start && stack < rooms[0].end)
		rooms[0].end = stack;
	for (int round = 0; round < 6; round++) {
		for (int time = 0; time < TIMES; time++)
			run_or_fault(CODE, "with room");
		for (int room = 0; room < 2; room++) {
			void *start = (void *)rooms[room].start;
			size_t bytes = rooms[room].end - rooms[room].start;
			int protection = round % 2 ? PROT_READ | PROT_WRITE : PROT_NONE;
			HOLDS(mmap(start, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == start);
		}
		for (int time = 0; time < TIMES; time++)
			run_or_fault(CODE, "without");
		for (int room = 0; room < 2; room++)
			HOLDS(!munmap((void *)rooms[room].start, rooms[room].end - rooms[room].start));
	}
	code_protect(PROT_READ | PROT_WRITE);
	HOLDS(is_function(CODE, 1, 2));
}

static volatile int steps;
static long step_at[400];
static uint64_t step_rax[400];

static void on_step(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information;
	ucontext_t *interrupted = context;
	long at = (long)(interrupted->uc_mcontext.gregs[REG_RIP] - (long)(intptr_t)CODE);
	if (at < 0 || at > 64) {
		// Before the site, or behind it: stops stepping.
		if (steps)
			interrupted->uc_mcontext.gregs[REG_EFL] &= ~0x100;
		return;
	}
	step_rax[steps] = (uint64_t)interrupted->uc_mcontext.gregs[REG_RAX];
	step_at[steps++] = at;
}

// A program that steps through a patched site with the CPU's single-step flag.
static void steps_through(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct sigaction action = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };
	sigaction(SIGTRAP, &action, NULL);
	code_open();
	PUT(0x90, SYSCALL, 0x90, 0x48, 0xff, 0xc3, 0x31, 0xc0, 0x90);
	put_end();
	code_protect(PROT_READ | PROT_EXEC);
	for (int time = 0; time < TIMES; time++) {
		code_fill(time < 3 ? 0 : 0x100);
		code_before.registers[FLAGS] |= 2;
		steps = 0;
		run_at(CODE);
		printf("%d steps:", steps);
		for (int step = 0; step < steps; step++)
			printf(" %ld(%lx)", step_at[step], (unsigned long)step_rax[step]);
		code_after.registers[FLAGS] &= ~0x100ul;
		code_before.registers[FLAGS] &= ~0x100ul;
		code_show();
	}
}

static volatile sig_atomic_t strays, ticks;
extern char __executable_start, etext;

static void on_tick(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information;
	ucontext_t *interrupted = context;
	const char *at = (const char *)(intptr_t)interrupted->uc_mcontext.gregs[REG_RIP];
	strays += !(at >= &__executable_start && at < &etext) && !((uint8_t *)at >= CODE && (uint8_t *)at < CODE + PAGE);
	ticks++;
}

// Signals at random moments: a handler sees the program in its own code, and the program continues undisturbed.
static void interrupted(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct sigaction action = { .sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(SIGALRM, &action, NULL);
	code_open();
	// 1: mov eax, 3; syscall; cmp rax, -9; jne 2; dec ebx; jnz 1; 2:
	PUT(0xb8, 3, 0, 0, 0, SYSCALL, 0x48, 0x83, 0xf8, 0xf7, 0x75, 0x04, 0xff, 0xcb, 0x75, 0xef);
	put_end();
	code_protect(PROT_READ | PROT_EXEC);
	struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
	setitimer(ITIMER_REAL, &often, NULL);
	uint64_t rounds = 0;
	while (ticks < 200 && rounds < 100000) {
		code_fill(0);
		code_before.registers[RBX] = 2000;
		run_at(CODE);
		rounds++;
		if (code_after.registers[RBX] || code_after.registers[RAX] != (uint64_t)-9 || code_after.registers[R15] != code_before.registers[R15])
			code_show();
	}
	setitimer(ITIMER_REAL, &never, NULL);
	HOLDS(ticks >= 200);
	HOLDS(strays == 0);
}

// Instructions behind a call that raise exceptions: the handler sees their addresses.
static void faulting(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch_faults();
	static const uint8_t bodies[][6] = {
		{ SYSCALL, 0x48, 0x8b, 0x1b, 0x90 }, { SYSCALL, 0x90, 0x8b, 0x1b, 0x90 }, { SYSCALL, 0x0f, 0x0b, 0x90, 0x90 },
		{ SYSCALL, 0xcc, 0x90, 0x90, 0x90 }, { SYSCALL, 0x90, 0x90, 0xcc, 0x90 }, { SYSCALL, 0xf4, 0x90, 0x90, 0x90 },
		{ SYSCALL, 0xcd, 0x03, 0x90, 0x90 }, { SYSCALL, 0xfa, 0x90, 0x90, 0x90 },
	};
	for (size_t body = 0; body < sizeof bodies / sizeof *bodies; body++) {
		code_open();
		put(bodies[body], sizeof bodies[body]);
		put_end();
		code_protect(PROT_READ | PROT_EXEC);
		for (int time = 0; time < TIMES; time++)
			run_or_fault(CODE, "faulting");
	}
}

// Code that reads itself.
static void reading(int count, char **arguments)
{
	(void)count, (void)arguments;
	code_open();
	put_function(1, 3);
	code_protect(PROT_READ | PROT_EXEC);
	for (int time = 0; time < TIMES; time++) {
		code_fill(0);
		run_at(CODE);
	}
	printf("as it was written: %s\n", is_function(CODE, 1, 3) ? "yes" : "no");
}

// Makes the given number of calls.
static void counted(int count, char **arguments)
{
	long calls = count > 0 ? atol(arguments[0]) : 0;
	for (long call = 0; call < calls; call++)
		getppid();
}

static const struct part parts[] = {
	{ "registers", registers }, { "into", into }, { "loops", loops }, { "ends", ends }, { "written", written }, { "taken", taken },
	{ "steps", steps_through }, { "interrupted", interrupted }, { "faulting", faulting }, { "reading", reading }, { "counted", counted }, { 0 },
};

int main(int count, char **arguments)
{
	return run_part(parts, count, arguments);
}
