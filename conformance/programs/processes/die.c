// SPDX-License-Identifier: MIT OR Apache-2.0
// Ends in the way that its first argument names, after a word on standard output.
#define _GNU_SOURCE
#include "holds.h"

#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile long zero, seven = 7;

static void touch(int count, char **arguments)
{
	(void)count;
	*(volatile char *)strtoul(arguments[0], NULL, 16) = 1;
}

static void look(int count, char **arguments)
{
	(void)count;
	(void)*(volatile char *)strtoul(arguments[0], NULL, 16);
}

static void jump(int count, char **arguments)
{
	(void)count;
	((void (*)(void))strtoul(arguments[0], NULL, 16))();
}

static void run_data(int count, char **arguments)
{
	(void)count, (void)arguments;
	static unsigned char code[] = {0xc3};
	((void (*)(void))(uintptr_t)code)();
}

static void beyond(int count, char **arguments)
{
	(void)count, (void)arguments;
	volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	page[0] = 1;
	munmap((void *)page, 4096);
	page[0] = 2;
}

static void divide(int count, char **arguments)
{
	(void)count, (void)arguments;
	seven = seven / zero;
}

static void write_code(int count, char **arguments)
{
	(void)count, (void)arguments;
	*(volatile char *)(uintptr_t)&divide = 1;
}

static void float_divide(int count, char **arguments)
{
	(void)count, (void)arguments;
	_mm_setcsr(_mm_getcsr() & ~0x200u);
	volatile double quotient = 1.0 / (double)zero;
	(void)quotient;
}

static void illegal(int count, char **arguments)
{
	(void)count, (void)arguments;
	__asm__ volatile("ud2");
}

static void breakpoint(int count, char **arguments)
{
	(void)count, (void)arguments;
	__asm__ volatile("int3");
}

static void privileged(int count, char **arguments)
{
	(void)count, (void)arguments;
	__asm__ volatile("hlt");
}

static void port(int count, char **arguments)
{
	(void)count, (void)arguments;
	__asm__ volatile("out %%al, $0x80" ::: "memory");
}

static void unaligned(int count, char **arguments)
{
	(void)count, (void)arguments;
	static _Alignas(32) char bytes[64];
	__asm__ volatile("movaps %%xmm0, (%0)" ::"r"(bytes + 1) : "memory");
}

static int overflow_from(int depth)
{
	volatile char frame[4000];
	frame[0] = (char)depth;
	return (depth >= 0 ? overflow_from(depth + 1) : 0) + frame[0];
}

static void overflow(int count, char **arguments)
{
	(void)arguments;
	printf("%d\n", overflow_from(count));
}

static void abort_it(int count, char **arguments)
{
	(void)count, (void)arguments;
	abort();
}

static void raise_it(int count, char **arguments)
{
	(void)count;
	raise(atoi(arguments[0]));
}

static void leave(int count, char **arguments)
{
	(void)count;
	syscall(SYS_exit_group, strtol(arguments[0], NULL, 10));
}

static void spin(int count, char **arguments)
{
	(void)count, (void)arguments;
	__asm__ volatile("1: jmp 1b");
}

static void pause_it(int count, char **arguments)
{
	(void)count, (void)arguments;
	pause();
}

// Writes to ever more memory, beyond the commit limit.
static void hoard(int count, char **arguments)
{
	(void)count, (void)arguments;
	const size_t size = (size_t)1 << 30;
	char *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		_exit(77);
	for (size_t at = 0; at < size; at += 4096)
		area[at] = 1;
}

static const struct part PARTS[] = {
	{"touch", touch}, {"look", look}, {"jump", jump}, {"write-code", write_code}, {"run-data", run_data}, {"beyond", beyond},
	{"divide", divide}, {"float-divide", float_divide}, {"illegal", illegal}, {"breakpoint", breakpoint}, {"privileged", privileged},
	{"port", port}, {"unaligned", unaligned}, {"overflow", overflow}, {"abort", abort_it}, {"raise", raise_it}, {"leave", leave},
	{"spin", spin}, {"pause", pause_it}, {"hoard", hoard}, {0},
};

int main(int count, char **arguments)
{
	puts("before the end");
	fflush(stdout);
	return run_part(PARTS, count, arguments);
}
