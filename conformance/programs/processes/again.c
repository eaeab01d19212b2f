// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that executes itself repeatedly. Each time another mapping replaces the code of the run before, and must have
// its own content.
#define _GNU_SOURCE
#include "show.h"

#include <elf.h>
#include <fcntl.h>
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
	static const char *const runs[] = { "execute", "execute", "read", "execute", "read shared", "link", "link", "write", "execute", "zeros", "link", "change",
		"read further", "execute", "link", "change", "write", "read" };
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
