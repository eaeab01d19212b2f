// SPDX-License-Identifier: MIT OR Apache-2.0
// Maps a file for reading, makes other memory read-only, and writes to it: each such write must fault. The calls are those of the C
// library, or, with the argument "linker", go through the code of the dynamic linker.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

static sigjmp_buf behind_fault;
// Code of the linker that makes the call of its register `rax`, and returns.
static const unsigned char *calls_map, *calls_protect;

static void on_fault(int signal)
{
	siglongjmp(behind_fault, signal);
}

// Whether code loads the number of a call and makes it. In a cell a jump may have taken the place of the instruction.
static int makes_call(const unsigned char *code, unsigned char number)
{
	const unsigned char load[] = { 0xb8, number, 0, 0, 0 };
	return !memcmp(code, load, 5) && ((code[5] == 0x0f && code[6] == 0x05) || code[5] == 0xe9);
}

// The linker's code that makes a call.
static const unsigned char *find(unsigned char number)
{
	uintptr_t base = getauxval(AT_BASE);
	if (!base)
		return NULL;
	const Elf64_Ehdr *header = (const void *)base;
	const Elf64_Phdr *parts = (const void *)(base + header->e_phoff);
	for (int at = 0; at < header->e_phnum; at++) {
		if (parts[at].p_type != PT_LOAD || !(parts[at].p_flags & PF_X))
			continue;
		const unsigned char *code = (const void *)(base + parts[at].p_vaddr), *end = code + parts[at].p_filesz - 7;
		for (; code < end; code++)
			if (makes_call(code, number))
				return code;
	}
	return NULL;
}

static long call(const unsigned char *code, long a, long b, long c, long d, long e, long f)
{
	long result;
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	// The code may restore registers from the stack before it returns, but after a success it only returns.
	__asm__ volatile("sub $128, %%rsp\n call *%[code]\n add $128, %%rsp"
			 : "=a"(result), "+r"(r10), "+r"(r8), "+r"(r9)
			 : [code] "b"(code), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory", "cc");
	return result;
}

static void *map(int protection, int flags, int file)
{
	if (calls_map)
		return (void *)call(calls_map, 0, PAGE, protection, flags, file, 0);
	return mmap(NULL, PAGE, protection, flags, file, 0);
}

static int protect(void *page)
{
	if (calls_protect)
		return call(calls_protect, (long)page, PAGE, PROT_READ, 0, 0, 0);
	return mprotect(page, PAGE, PROT_READ);
}

static void write_to_read_only(const char *path)
{
	int file = open(path, O_RDONLY);
	volatile char *read = map(PROT_READ, MAP_PRIVATE, file);
	volatile char *page = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	page[0] = 1;
	if (sigsetjmp(behind_fault, 1)) {
		printf("%s: a fault, %d\n", path, page[0]);
	} else {
		// No other call comes between.
		int result = protect((void *)page);
		page[0] = 2;
		printf("%s: no fault, %d %d\n", path, result, read[0]);
	}
	close(file);
}

int main(int count, char **arguments)
{
	signal(SIGSEGV, on_fault);
	if (count > 1 && !strcmp(arguments[1], "linker")) {
		calls_map = find(SYS_mmap);
		calls_protect = find(SYS_mprotect);
		printf("%s\n", calls_map && calls_protect ? "by the linker" : "not by the linker");
	}
	for (int time = 0; time < 2; time++) {
		write_to_read_only("/bin/sh");
		write_to_read_only("/etc/ld.so.cache");
	}
	return 0;
}
