// SPDX-License-Identifier: MIT OR Apache-2.0
// Signal frames: the content of the stack in a handler, the state after its return, and the effects of changes by a
// program: faults, registers, alternate stacks, forged frames.
#define _GNU_SOURCE
#include "holds.h"

#include <cpuid.h>
#include <fenv.h>
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf back;
static siginfo_t told;
static ucontext_t found;
static volatile int count;
// The counter of loops that a handler may jump back into.
static int round;
static char other_stack[65536] __attribute__((aligned(16)));

static void jump(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	told = *info;
	found = *(ucontext_t *)context;
	siglongjmp(back, 1);
}

static void handle(int signal, void *handler, int flags)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | flags};
	action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
	if (sigaction(signal, &action, NULL))
		printf("DOES NOT HOLD: signal %d can be handled\n", signal);
}

static void handle_faults(void *handler, int flags)
{
	static const int faults[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV};
	for (int at = 0; at < 5; at++)
		handle(faults[at], handler, flags);
}

// The error code is printed without its bit for the presence of a page, which may differ. Prints the reported address
// relative to known ones, and the frame's registers.
static void tell(const char *what, const void *touched, const void *instruction)
{
	greg_t *registers = found.uc_mcontext.gregs;
	printf("%s: signal %d code %d", what, told.si_signo, told.si_code);
	if (told.si_code > 0 && told.si_code < SI_KERNEL)
		printf(" %s", told.si_addr == touched ? "there" : told.si_addr == instruction ? "here" : told.si_addr ? "elsewhere" : "nowhere");
	printf(" trap %lld error %lld", registers[REG_TRAPNO], told.si_code == SEGV_ACCERR ? registers[REG_ERR] & ~1 : registers[REG_ERR]);
	printf(" at %lld", instruction ? (long long)(registers[REG_RIP] - (greg_t)instruction) : 0);
	printf(" flags %d selectors %llx\n", (int)found.uc_flags, (long long)registers[REG_CSGSFS]);
}

#define FAULT(what, touched, body)                                                                                                         \
	do {                                                                                                                               \
		if (!sigsetjmp(back, 1)) {                                                                                                 \
			body;                                                                                                              \
			printf("DOES NOT HOLD: %s faults\n", what);                                                                        \
		}                                                                                                                          \
		tell(what, touched, NULL);                                                                                                 \
	} while (0)

// A fault at an assembler label, so that the instruction's address is known too.
#define FAULT_AT(what, touched, ...)                                                                                                       \
	do {                                                                                                                               \
		void *instruction;                                                                                                         \
		__asm__ volatile("lea 1f(%%rip), %0" : "=r"(instruction));                                                                 \
		static void *volatile kept;                                                                                                \
		kept = instruction;                                                                                                        \
		if (!sigsetjmp(back, 1))                                                                                                   \
			__asm__ volatile(__VA_ARGS__);                                                                                     \
		tell(what, touched, kept);                                                                                                 \
	} while (0)

static char *volatile eight = (char *)8;

static void faults(int arguments, char **words)
{
	(void)arguments, (void)words;
	stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
	sigaltstack(&stack, NULL);
	handle_faults(jump, SA_ONSTACK);
	long page = sysconf(_SC_PAGESIZE);
	char *readable = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *closed = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *writable = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	writable[0] = 1;
	char *gone = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(gone, page);
	FAULT("a load from nothing", gone, (void)*(volatile char *)gone);
	FAULT("a store to nothing", gone + 7, *(volatile char *)(gone + 7) = 1);
	FAULT("a store to what can be read", readable, *(volatile char *)readable = 1);
	FAULT("a load from what is closed", closed, (void)*(volatile char *)closed);
	FAULT("a null pointer", eight, (void)*(volatile char *)eight);
	FAULT("a call of nothing", (void *)16, ((void (*)(void))16)());
	FAULT("a call of data", writable, ((void (*)(void))writable)());
	FAULT("a pointer that is none", NULL, (void)*(volatile char *)0x8000000000000000);
	HOLDS(sigprocmask(SIG_BLOCK, NULL, &found.uc_sigmask) == 0 && !sigismember(&found.uc_sigmask, SIGSEGV));
	FAULT_AT("a division by zero", NULL, "xor %%ecx, %%ecx; mov $1, %%eax; cdq; 1: div %%ecx" ::: "eax", "ecx", "edx");
	FAULT_AT("ud2", NULL, "1: ud2" ::);
	FAULT_AT("int3", NULL, "1: int3" ::);
	FAULT_AT("hlt", NULL, "1: hlt" ::);
	FAULT_AT("in", NULL, "1: in $0x60, %%al" ::: "eax");
	FAULT_AT("a single step", NULL, "pushfq; orq $0x100, (%%rsp); popfq; nop; 1: nop; pushfq; andq $~0x100, (%%rsp); popfq" ::: "cc", "memory");
	FAULT_AT("a stack that is none", NULL,
		 "mov %%rsp, %%rcx; movabs $0x8000000000000000, %%rsp; 1: mov (%%rsp), %%rax; mov %%rcx, %%rsp" ::: "rax", "rcx");
	FAULT_AT("a load that is not aligned", NULL, "lea -64(%%rsp), %%rcx; and $-64, %%rcx; 1: movaps 1(%%rcx), %%xmm0" ::: "rcx", "xmm0");
	unsigned mxcsr = _mm_getcsr();
	unsigned only[] = {0x80, 0x200, 0x400, 0x800, 0x1000};
	static const float numbers[][2] = {{0, 0}, {1, 0}, {1e38f, 1e-38f}, {1e-38f, 1e38f}, {1, 3}};
	for (round = 0; round < 5; round++) {
		static volatile float above, below;
		above = numbers[round][0], below = numbers[round][1];
		FAULT("SSE arithmetic", NULL, _mm_setcsr(0x1f80 & ~only[round]); above = above / below);
		_mm_setcsr(mxcsr);
	}
	unsigned short control;
	__asm__ volatile("fnstcw %0" : "=m"(control));
	for (round = 0; round < 2; round++) {
		static volatile unsigned short unmasked;
		unmasked = control & ~(round ? 4 : 1);
		FAULT("x87 arithmetic", NULL,
		      __asm__ volatile("fnclex; fldcw %0; fldz; fld1; fmuls %1; fdivp; fwait" ::"m"(unmasked), "m"(numbers[round ? 1 : 0][0])));
		__asm__ volatile("fninit; fldcw %0" ::"m"(control));
	}
}

static void skip(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	count++;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_R12] += 1000;
}

// All registers and the red zone, around an instruction that a handler skips.
static void registers(int arguments, char **words)
{
	(void)arguments, (void)words;
	handle(SIGILL, skip, 0);
	static uint64_t after[18];
	__asm__ volatile("mov %%rsp, 128(%0)\n"
			 "movq $0x1234567, -8(%%rsp); movq $0x7654321, -128(%%rsp)\n"
			 "push %%rbp; push %%rbx\n" // The red zone moves with the pointer; the relevant one is below it again.
			 "movq $0x51, -8(%%rsp); movq $0x52, -128(%%rsp)\n"
			 "mov %0, %%r15\n"
			 "mov $1, %%eax; mov $2, %%ebx; mov $3, %%ecx; mov $4, %%edx; mov $5, %%esi; mov $6, %%edi; mov $7, %%ebp\n"
			 "mov $8, %%r8d; mov $9, %%r9d; mov $10, %%r10d; mov $11, %%r11d; mov $12, %%r12d; mov $13, %%r13d; mov $14, %%r14d\n"
			 "stc\n"
			 "ud2\n"
			 "mov %%rax, (%%r15); mov %%rbx, 8(%%r15); mov %%rcx, 16(%%r15); mov %%rdx, 24(%%r15); mov %%rsi, 32(%%r15)\n"
			 "mov %%rdi, 40(%%r15); mov %%rbp, 48(%%r15); mov %%r8, 56(%%r15); mov %%r9, 64(%%r15); mov %%r10, 72(%%r15)\n"
			 "mov %%r11, 80(%%r15); mov %%r12, 88(%%r15); mov %%r13, 96(%%r15); mov %%r14, 104(%%r15)\n"
			 "setc 112(%%r15)\n"
			 "mov -8(%%rsp), %%rax; mov %%rax, 120(%%r15); mov -128(%%rsp), %%rax; mov %%rax, 136(%%r15)\n"
			 "pop %%rbx; pop %%rbp\n"
			 "mov %%rsp, %%rax; sub %%rax, 128(%%r15)\n"
			 :
			 : "r"(after)
			 : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
	for (int at = 0; at < 18; at++)
		printf("%llx ", (unsigned long long)after[at]);
	printf("after %d\n", count);
}

static bool dirty_vectors;

// Overwrites every vector register, and checks the saved state.
__attribute__((target("avx"))) static void disturb(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	char *state = (char *)((ucontext_t *)context)->uc_mcontext.fpregs;
	uint32_t *software = (uint32_t *)(state + 464);
	unsigned a, b, c, d;
	bool extended = __get_cpuid(1, &a, &b, &c, &d) && c & 1 << 27;
	if (count++ == 0) {
		HOLDS((uintptr_t)state % 64 == 0 && *(uint32_t *)(state + 24) == 0x1f80 && *(uint16_t *)state == 0x37f);
		HOLDS(!extended || software[0] == 0x46505853);
		HOLDS(!extended || *(uint32_t *)(state + software[4]) == 0x46505845);
		HOLDS(!extended || software[1] == software[4] + 4);
		HOLDS(!extended || (__get_cpuid_count(0xd, 0, &a, &b, &c, &d) && software[4] == b && software[2] == a));
		HOLDS(!extended || (((uint64_t *)state)[64] & 3) == 3);
		HOLDS(((uintptr_t)__builtin_frame_address(0) & 15) == 0);
		HOLDS(_mm_getcsr() == 0x1f80);
	}
	if (dirty_vectors)
		_mm256_zeroall();
	__asm__ volatile("fninit; fld1; fld1" ::);
	_mm_setcsr(0x9f80);
}

__attribute__((target("avx"))) static void vectors(int arguments, char **words)
{
	(void)arguments, (void)words;
	handle(SIGUSR1, disturb, 0);
	handle(SIGALRM, disturb, SA_RESTART);
	dirty_vectors = __builtin_cpu_supports("avx");
	static double before[32], after[32];
	for (int at = 0; at < 32; at++)
		before[at] = at * 1.5;
	pid_t process = getpid();
	if (dirty_vectors)
		__asm__ volatile("vmovupd (%1), %%ymm3; vmovupd 32(%1), %%ymm15; fldpi\n"
				 "mov %3, %%eax; mov %4, %%edi; mov %5, %%esi; syscall\n"
				 "vmovupd %%ymm3, (%2); vmovupd %%ymm15, 32(%2); fstpl 64(%2)\n"
				 "mov %%eax, 72(%2)\n"
				 :
				 : "m"(before), "r"(before), "r"(after), "i"(SYS_kill), "r"(process), "i"(SIGUSR1)
				 : "rax", "rdi", "rsi", "rcx", "r11", "xmm3", "xmm15", "memory");
	HOLDS(!dirty_vectors || (!memcmp(before, after, 64) && after[8] > 3.14 && after[8] < 3.15));
	HOLDS(_mm_getcsr() == 0x1f80);
	// During computation, at any instruction.
	struct itimerval often = {{0, 3000}, {0, 3000}}, never = {0};
	count = 1;
	setitimer(ITIMER_REAL, &often, NULL);
	volatile double sum = 0;
	long rounds = 0;
	for (; count < 20; rounds++) {
		double square = 0;
		for (int at = 0; at < 1000; at++)
			square += (double)at * at;
		if (square != 332833500.0) {
			printf("DOES NOT HOLD: computing goes on\n");
			break;
		}
		sum += square;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	HOLDS(sum == 332833500.0 * (double)rounds);
	HOLDS(_mm_getcsr() == 0x1f80);
}

static void on_other(int signal, siginfo_t *info, void *context)
{
	stack_t stack;
	char *here = __builtin_frame_address(0);
	bool inside = here > other_stack && here < other_stack + sizeof other_stack;
	stack_t *kept = &((ucontext_t *)context)->uc_stack;
	printf("signal %d %s the other stack, which is", signal, inside ? "on" : "not on");
	sigaltstack(NULL, &stack);
	printf(" %s %zu; kept %d %zu\n", stack.ss_flags == SS_ONSTACK ? "in use" : stack.ss_flags ? "off" : "free", stack.ss_size, kept->ss_flags, kept->ss_size);
	if (signal == SIGUSR1) {
		stack_t replacement = {.ss_sp = other_stack, .ss_size = 32768};
		printf("replaced: %d\n", sigaltstack(&replacement, NULL) ? errno : 0);
		raise(SIGUSR2);
	}
	if (signal == SIGSEGV) {
		told = *info;
		siglongjmp(back, 1);
	}
}

static int (*volatile again)(volatile char *);

static int deeper(volatile char *above)
{
	volatile char room[4096];
	room[0] = *above;
	return again(room) + room[0];
}

static void stacks(int arguments, char **words)
{
	(void)arguments, (void)words;
	stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack}, old;
	HOLDS(sigaltstack(NULL, &old) == 0 && old.ss_flags == SS_DISABLE);
	handle(SIGUSR1, on_other, SA_ONSTACK);
	handle(SIGUSR2, on_other, SA_ONSTACK);
	handle(SIGSEGV, on_other, SA_ONSTACK);
	handle(SIGTERM, on_other, 0);
	raise(SIGUSR2);
	HOLDS(sigaltstack(&stack, &old) == 0 && sigaltstack(NULL, &old) == 0 && old.ss_flags == 0 && old.ss_sp == other_stack);
	raise(SIGUSR1);
	raise(SIGTERM);
	stack.ss_flags = (int)(1u << 31); // SS_AUTODISARM, which musl does not know.
	HOLDS(syscall(SYS_sigaltstack, &stack, NULL) == 0);
	raise(SIGUSR2);
	HOLDS(sigaltstack(NULL, &old) == 0 && old.ss_flags == stack.ss_flags && old.ss_size == sizeof other_stack);
	stack.ss_flags = SS_ONSTACK;
	HOLDS(syscall(SYS_sigaltstack, &stack, NULL) == 0);
	char start = 0;
	again = deeper;
	for (round = 0; round < 3; round++) {
		if (!sigsetjmp(back, 1))
			deeper(&start);
		uintptr_t below = (uintptr_t)&start - (uintptr_t)told.si_addr;
		HOLDS(told.si_signo == SIGSEGV && below > 4096 && below < 64 << 20);
	}
	stack_t bad[] = {{.ss_sp = other_stack, .ss_size = 2047}, {.ss_sp = other_stack, .ss_size = 65536, .ss_flags = 4}, {0}};
	FAILS(syscall(SYS_sigaltstack, &bad[0], NULL), ENOMEM);
	FAILS(syscall(SYS_sigaltstack, &bad[1], NULL), EINVAL);
	FAILS(syscall(SYS_sigaltstack, &bad[2], NULL), ENOMEM);
	FAILS(syscall(SYS_sigaltstack, 8, NULL), EFAULT);
	FAILS(syscall(SYS_sigaltstack, NULL, 8), EFAULT);
	stack.ss_flags = SS_DISABLE;
	HOLDS(sigaltstack(&stack, NULL) == 0 && sigaltstack(NULL, &old) == 0 && old.ss_flags == SS_DISABLE && old.ss_size == 0);
}

static uint64_t seed = 88172645463325252;

static uint64_t any(void)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return seed;
}

// Returns from a handler that never ran, with this frame.
static void forge(const ucontext_t *context, const void *vectors)
{
	static char room[16384] __attribute__((aligned(64)));
	ucontext_t *frame = (ucontext_t *)(room + 4096);
	memcpy(frame, context, 304);
	if (vectors) {
		memcpy(room + 8192, vectors, 4096);
		frame->uc_mcontext.fpregs = (void *)(room + 8192);
	}
	__asm__ volatile("mov %0, %%rsp; mov %1, %%eax; syscall" ::"r"(frame), "i"(SYS_rt_sigreturn) : "rax", "rcx", "r11", "memory");
}

static ucontext_t good;
static char good_vectors[4096];

static void keep(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	memcpy(&good, context, 304);
	uint32_t size = ((uint32_t *)good.uc_mcontext.fpregs)[117];
	memcpy(good_vectors, good.uc_mcontext.fpregs, size >= 512 && size <= sizeof good_vectors ? size : 512);
}

// A thousand frames with one error in each, which determines how the process ends.
static void forged(int arguments, char **words)
{
	(void)arguments, (void)words;
	stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
	sigaltstack(&stack, NULL);
	handle_faults(jump, SA_ONSTACK);
	handle(SIGUSR1, keep, 0);
	raise(SIGUSR1);
	static int ends[8][3];
	for (round = 0; round < 1000; round++) {
		ucontext_t context = good;
		static char vectors[4096];
		memcpy(vectors, good_vectors, sizeof vectors);
		context.uc_mcontext.gregs[REG_RIP] = 0;
		context.uc_mcontext.gregs[REG_EFL] = (greg_t)any() & ~0x40100;
		memset(&context.uc_sigmask, 0, 8);
		const void *with = NULL;
		switch (round % 8) {
		case 0: context.uc_mcontext.gregs[REG_RIP] = (greg_t)any(); break;
		case 1: context.uc_mcontext.gregs[REG_CSGSFS] = (greg_t)any(); break;
		case 2: context.uc_mcontext.fpregs = (void *)any(); break;
		case 3: context.uc_mcontext.fpregs = NULL; break;
		case 4: with = vectors; ((uint64_t *)vectors)[any() % 512] = any(); break;
		case 5: with = vectors; ((uint64_t *)vectors)[64 + any() % 8] = any(); break;
		case 6: with = vectors; ((uint32_t *)vectors)[116 + any() % 5] = (uint32_t)any(); break;
		case 7:
			for (int at = 0; at < 38; at++)
				((uint64_t *)&context)[at] = any();
			memset(&context.uc_sigmask, 0, 8);
			context.uc_mcontext.gregs[REG_EFL] &= ~0x40100;
			break;
		}
		told.si_signo = 0;
		if (!sigsetjmp(back, 1))
			forge(&context, with);
		if (told.si_signo == SIGSEGV)
			ends[round % 8][told.si_code == SI_KERNEL ? 0 : told.si_addr ? 1 : 2]++;
	}
	for (int kind = 0; kind < 8; kind++)
		printf("frames of kind %d: %d refused, %d led elsewhere, %d were good\n", kind, ends[kind][0], ends[kind][1], ends[kind][2]);
	// A stack pointer without a frame.
	for (round = 0; round < 100; round++) {
		told.si_signo = 0;
		static uint64_t nowhere;
		nowhere = round % 2 ? any() : any() >> 20;
		if (!sigsetjmp(back, 1))
			__asm__ volatile("mov %0, %%rsp; mov %1, %%eax; syscall" ::"r"(nowhere), "i"(SYS_rt_sigreturn) : "rax", "rcx", "r11", "memory");
		if (told.si_signo != SIGSEGV)
			printf("DOES NOT HOLD: %d\n", told.si_signo);
	}
	HOLDS(told.si_signo == SIGSEGV);
}

static void nest(int signal)
{
	count++;
	raise(signal);
}

// Programs that corrupt their state: each must end by a signal, and in no other way.
static void mess(int arguments, char **words)
{
	const char *what = arguments ? words[0] : "";
	struct sigaction action = {.sa_handler = nest, .sa_flags = SA_NODEFER | SA_ONSTACK};
	stack_t tiny = {.ss_sp = other_stack, .ss_size = 2048}, wild = {.ss_sp = (void *)0x10, .ss_size = (size_t)-1};
	if (!strcmp(what, "nesting"))
		sigaction(SIGUSR1, &action, NULL);
	else if (!strcmp(what, "tiny"))
		sigaltstack(&tiny, NULL), sigaction(SIGUSR1, &action, NULL);
	else if (!strcmp(what, "wild"))
		sigaltstack(&wild, NULL), sigaction(SIGUSR1, &action, NULL);
	else if (!strcmp(what, "nowhere"))
		action.sa_handler = (void (*)(int))0x1234, sigaction(SIGUSR1, &action, NULL), sigaction(SIGSEGV, &action, NULL);
	else if (!strcmp(what, "outside"))
		action.sa_handler = (void (*)(int))0x8000000000000000, sigaction(SIGUSR1, &action, NULL), sigaction(SIGSEGV, &action, NULL);
	else if (!strcmp(what, "restorer")) {
		uint64_t raw[4] = {(uint64_t)nest, SA_NODEFER, 0, 0};
		syscall(SYS_rt_sigaction, SIGUSR1, raw, NULL, 8);
	} else if (!strcmp(what, "blocked")) {
		sigset_t set;
		sigfillset(&set);
		sigprocmask(SIG_SETMASK, &set, NULL);
		sigaction(SIGSEGV, &action, NULL);
		*(volatile char *)eight = 1;
	} else if (!strcmp(what, "ignored")) {
		signal(SIGSEGV, SIG_IGN);
		*(volatile char *)eight = 1;
	} else if (!strcmp(what, "pointer")) {
		sigaction(SIGILL, &action, NULL);
		__asm__ volatile("mov $0x1000, %%rsp; ud2" ::);
	} else if (!strcmp(what, "return"))
		syscall(SYS_rt_sigreturn);
	raise(SIGUSR1);
	printf("survived\n");
}

static const struct part parts[] = {
	{"faults", faults}, {"registers", registers}, {"vectors", vectors}, {"stacks", stacks}, {"forged", forged}, {"mess", mess}, {0},
};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	return run_part(parts, count, arguments);
}
