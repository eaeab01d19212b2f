// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that executes itself repeatedly. Each time another mapping replaces the code of the run before, and must have
// its own content.
#define _GNU_SOURCE
#include "show.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 2 * PAGE, TIMES = 8 };

// The address where all runs map the program's own code a second time, far from everything else.
static unsigned char *const place = (void *)0x200000000;

// Calls getpid, in a page of its own.
__asm__(".balign 4096\n"
	"asking: mov $39, %eax\n syscall\n nop\n nop\n nop\n nop\n ret\n"
	".balign 4096\n .skip 4096, 0x90\n");
extern unsigned char asking[];

// The offset of `asking` in the file.
static off_t offset;
static unsigned char bytes[SIZE];
static int file;

static void open_own(void)
{
	file = open("/proc/self/exe", O_RDONLY);
	Elf64_Ehdr header;
	if (pread(file, &header, sizeof header, 0) != sizeof header)
		exit(1);
	for (int at = 0; at < header.e_phnum; at++) {
		Elf64_Phdr part;
		if (pread(file, &part, sizeof part, header.e_phoff + at * sizeof part) != sizeof part)
			exit(1);
		uint64_t address = (uint64_t)(uintptr_t)asking;
		if (part.p_type == PT_LOAD && address >= part.p_vaddr && address < part.p_vaddr + part.p_filesz)
			offset = address - part.p_vaddr + part.p_offset;
	}
	if (pread(file, bytes, SIZE, offset) != SIZE)
		exit(1);
}

static unsigned char *map(int protection, int flags, off_t shift)
{
	int from = flags & MAP_ANONYMOUS ? -1 : file;
	return mmap(place, SIZE - shift, protection, MAP_FIXED | flags, from, from < 0 ? 0 : offset + shift);
}

// Calls often enough for the site to be patched.
static void ask(unsigned char *code)
{
	int right = 0;
	for (int time = 0; time < TIMES; time++)
		right += ((int (*)(void))(void *)code)() == getpid();
	printf("%d times\n", right);
}

// Data that each run must find as the file has it, and leaves changed. The linker makes the table of pointers read-only.
static unsigned char with_values[3 * PAGE] = { 1, 2, 3, [2 * PAGE] = 4 };
static unsigned char zeros[20 * PAGE];
static __thread int own = 7;
static const char *const pointers[] = { "one", "two" };

static sigjmp_buf behind_fault;

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(behind_fault, 1);
}

extern Elf64_Dyn _DYNAMIC[] __attribute__((weak));

// The linker has made the program's dynamic section read-only before the first instruction of `main`.
static void write_relocated(void)
{
	signal(SIGSEGV, on_fault);
	volatile Elf64_Dyn *section = _DYNAMIC;
	if (!section) {
		printf("none\n");
	} else if (sigsetjmp(behind_fault, 1)) {
		printf("a fault\n");
	} else {
		section->d_tag = section->d_tag;
		printf("no fault\n");
	}
}

static int count_set(const unsigned char *bytes, size_t size)
{
	int set = 0;
	for (size_t at = 0; at < size; at++)
		set += bytes[at] != 0;
	return set;
}

static void change_data(void)
{
	unsigned char *more = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *heap = malloc(50 * PAGE);
	printf("%d %d %d %d %s %d\n", count_set(with_values, sizeof with_values), with_values[2 * PAGE], count_set(zeros, sizeof zeros), own,
		pointers[1], count_set(more, 3 * PAGE));
	memset(with_values, 9, sizeof with_values);
	memset(zeros, 9, sizeof zeros);
	memset(more, 9, 3 * PAGE);
	memset(heap, 9, 50 * PAGE);
	own = 9;
}

static void run(const char *what)
{
	open_own();
	if (!strcmp(what, "execute")) {
		ask(map(PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_DENYWRITE, 0));
	} else if (!strcmp(what, "link")) {
		// The flags of dynamic linkers.
		map(PROT_READ, MAP_PRIVATE | MAP_DENYWRITE, 0);
		ask(map(PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_DENYWRITE, 0));
	} else if (!strcmp(what, "read")) {
		printf("%d\n", memcmp(map(PROT_READ, MAP_PRIVATE, 0), bytes, SIZE));
	} else if (!strcmp(what, "read shared")) {
		printf("%d\n", memcmp(map(PROT_READ, MAP_SHARED, 0), bytes, SIZE));
	} else if (!strcmp(what, "read further")) {
		printf("%d\n", memcmp(map(PROT_READ, MAP_PRIVATE, PAGE), bytes + PAGE, SIZE - PAGE));
	} else if (!strcmp(what, "write")) {
		unsigned char *code = map(PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
		printf("%d\n", memcmp(code, bytes, SIZE));
		// Later runs must not find this.
		memset(code, 0xc3, SIZE);
		mprotect(code, SIZE, PROT_READ | PROT_EXEC);
	} else if (!strcmp(what, "store")) {
		unsigned char *data = map(PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
		printf("%d\n", memcmp(data, bytes, SIZE));
		memset(data, 9, SIZE);
	} else if (!strcmp(what, "store and close")) {
		unsigned char *data = map(PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
		printf("%d\n", memcmp(data, bytes, SIZE));
		memset(data, 9, SIZE);
		mprotect(data, PAGE, PROT_READ);
	} else if (!strcmp(what, "reserve")) {
		// A linker reserves the addresses of code and data, and maps the data again.
		unsigned char *code = map(PROT_READ, MAP_PRIVATE | MAP_DENYWRITE, 0);
		printf("%d ", memcmp(code + PAGE, bytes + PAGE, PAGE));
		unsigned char *data = mmap(place + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE, file, offset + PAGE);
		printf("%d\n", memcmp(data, bytes + PAGE, PAGE));
		memset(data, 9, PAGE);
	} else if (!strcmp(what, "reserve only")) {
		unsigned char *code = map(PROT_READ, MAP_PRIVATE | MAP_DENYWRITE, 0);
		printf("%d ", memcmp(code + PAGE, bytes + PAGE, PAGE));
		// The call writes to memory only if its permissions allow it.
		mprotect(code + PAGE, PAGE, PROT_READ);
		printf("%zd\n", pread(file, code + PAGE, 1, 0));
	} else if (!strcmp(what, "data")) {
		change_data();
	} else if (!strcmp(what, "protected")) {
		write_relocated();
	} else if (!strcmp(what, "zeros")) {
		unsigned char *code = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
		int set = 0;
		for (int at = 0; at < SIZE; at++)
			set += code[at] != 0;
		printf("%d\n", set);
	} else if (!strcmp(what, "change")) {
		unsigned char *code = map(PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_DENYWRITE, 0);
		ask(code);
		mprotect(code, SIZE, PROT_READ | PROT_WRITE);
		printf("%d\n", memcmp(code, bytes, SIZE));
	}
}

int main(int count, char **arguments)
{
	if (count > 1) {
		run(arguments[1]);
		return 0;
	}
	static const char *const runs[] = { "protected", "protected", "execute", "execute", "read", "execute", "read shared", "link", "link", "write", "execute", "zeros", "link", "change",
		"read further", "execute", "link", "change", "write", "read", "data", "data", "data", "store", "store", "store and close", "store",
		"store", "reserve", "reserve", "reserve only", "reserve", "zeros", "zeros", "reserve only", "data", "data", "store", "execute",
		"protected" };
	for (size_t at = 0; at < sizeof runs / sizeof *runs; at++) {
		printf("%s: ", runs[at]);
		fflush(stdout);
		pid_t child = fork();
		if (child == 0) {
			execl("/proc/self/exe", "again", runs[at], NULL);
			_exit(127);
		}
		int status;
		waitpid(child, &status, 0);
		printf("status %d\n", status);
	}
	return 0;
}
