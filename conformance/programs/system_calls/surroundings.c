// SPDX-License-Identifier: MIT OR Apache-2.0
// System calls, and `cpuid`, between random instructions: each prints a line with a hash of the resulting state, each time that it ran.
#define _GNU_SOURCE
#include "code.h"

#include <stdbool.h>

enum { TIMES = 4, ROOM = 96 };

// Instructions that may come before and after; four times 0xee stands for the distance to some data.
static const struct {
	uint8_t size, bytes[15];
} pool[] = {
	{ 1, { 0x90 } }, { 1, { 0xf9 } }, { 1, { 0xf8 } }, { 1, { 0xf5 } }, { 1, { 0x98 } }, { 1, { 0x9e } }, { 1, { 0x9f } },
	{ 2, { 0x31, 0xd2 } }, { 2, { 0x85, 0xc0 } }, { 2, { 0x89, 0xc3 } }, { 2, { 0x01, 0xd8 } }, { 2, { 0x66, 0x90 } },
	{ 2, { 0xf7, 0xd8 } }, { 2, { 0xd1, 0xe8 } }, { 2, { 0x04, 0x33 } }, { 2, { 0xff, 0xc5 } }, { 2, { 0x87, 0xca } },
	{ 3, { 0x48, 0x85, 0xc0 } }, { 3, { 0x48, 0xf7, 0xd8 } }, { 3, { 0x49, 0x89, 0xcb } }, { 3, { 0x4d, 0x01, 0xd1 } },
	{ 3, { 0x0f, 0x94, 0xc3 } }, { 3, { 0x0f, 0xb6, 0xd0 } }, { 3, { 0x0f, 0x1f, 0x00 } }, { 3, { 0xc1, 0xc0, 0x07 } },
	{ 3, { 0x0f, 0xa2, 0x90 } }, { 2, { 0x41, 0x90 } }, { 3, { 0x0f, 0xc8, 0x90 } }, { 4, { 0x48, 0x0f, 0x44, 0xd9 } },
	{ 4, { 0x48, 0x83, 0xc0, 0x7f } }, { 4, { 0x0f, 0xba, 0xe0, 0x03 } }, { 4, { 0x66, 0x0f, 0xfe, 0xc7 } },
	{ 4, { 0x48, 0x6b, 0xd9, 0x0d } }, { 4, { 0xf3, 0x48, 0x0f, 0xb8 } }, { 5, { 0x48, 0x8d, 0x44, 0x08, 0x10 } },
	{ 5, { 0x05, 0x11, 0x22, 0x33, 0x44 } }, { 5, { 0x48, 0x89, 0x44, 0x24, 0xf0 } }, { 5, { 0x48, 0x8b, 0x5c, 0x24, 0xe8 } },
	{ 5, { 0xba, 0x78, 0x56, 0x34, 0x12 } }, { 5, { 0x66, 0xba, 0x34, 0x12, 0x90 } }, { 6, { 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff } },
	{ 6, { 0x8b, 0x15, 0xee, 0xee, 0xee, 0xee } }, { 6, { 0x03, 0x1d, 0xee, 0xee, 0xee, 0xee } }, { 6, { 0x31, 0x05, 0xee, 0xee, 0xee, 0xee } },
	{ 7, { 0x48, 0x8b, 0x1d, 0xee, 0xee, 0xee, 0xee } }, { 7, { 0x4c, 0x8d, 0x15, 0xee, 0xee, 0xee, 0xee } },
	{ 7, { 0x48, 0xc7, 0xc2, 0xfe, 0xff, 0xff, 0xff } }, { 7, { 0x48, 0x01, 0x0d, 0xee, 0xee, 0xee, 0xee } },
	{ 8, { 0x66, 0x0f, 0xef, 0x05, 0xee, 0xee, 0xee, 0xee } }, { 8, { 0x48, 0x0f, 0xaf, 0x1d, 0xee, 0xee, 0xee, 0xee } },
	{ 9, { 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0 } }, { 10, { 0x48, 0xbb, 8, 7, 6, 5, 4, 3, 2, 1 } },
	// Jumps over an instruction of one, two or three bytes.
	{ 3, { 0x72, 0x01, 0xf5 } }, { 4, { 0x74, 0x02, 0xff, 0xc5 } }, { 5, { 0x79, 0x03, 0x48, 0xf7, 0xd8 } }, { 3, { 0xeb, 0x01, 0xf9 } },
	{ 8, { 0x0f, 0x85, 0x02, 0, 0, 0, 0xff, 0xc5 } }, { 6, { 0xe9, 0x01, 0, 0, 0, 0xf9 } }, { 3, { 0x7c, 0x01, 0x98 } },
};

// Leaves out the instruction whose last byte is the next instruction, and the one whose result differs on every machine.
static bool is_wanted(size_t index)
{
	bool is_cut = pool[index].size == 4 && !memcmp(pool[index].bytes, (const uint8_t[]){ 0xf3, 0x48, 0x0f, 0xb8 }, 4);
	bool is_cpuid = pool[index].bytes[0] == 0x0f && pool[index].bytes[1] == 0xa2;
	return !is_cut && !is_cpuid;
}

static void put_random(int count)
{
	while (count) {
		size_t index = code_random() % (sizeof pool / sizeof *pool);
		if (!is_wanted(index))
			continue;
		uint8_t *start = code_place;
		put(pool[index].bytes, pool[index].size);
		for (uint8_t *at = start; at + 4 <= code_place; at++)
			if (!memcmp(at, "\xee\xee\xee\xee", 4))
				memcpy(at, &(int32_t){ (int32_t)(DATA + code_random() % 200 * 16 - (at + 4)) }, 4);
		count--;
	}
}

// Generates a program for each number, all in the same pages, and runs each a few times.
int main(int count, char **arguments)
{
	uint64_t seed = count > 1 ? strtoul(arguments[1], NULL, 10) : 1;
	bool is_cpuid = count > 2 && !strcmp(arguments[2], "cpuid");
	if (count > 3)
		code_base = (uint8_t *)strtoul(arguments[3], NULL, 16);
	enum { PROGRAMS = 100 };
	code_open();
	for (int program = 0; program < PROGRAMS; program++) {
		code_seed = seed * 1000 + (uint64_t)program;
		code_place = CODE + program * ROOM;
		put_random((int)(code_random() % 3));
		// mov eax, 3; or eax and ecx for a leaf that is the same on every core
		if (is_cpuid)
			PUT(0xb8, (uint8_t)(code_random() % 2 * 2), 0, 0, 0, 0x31, 0xc9, 0x0f, 0xa2);
		else
			PUT(0xb8, 3, 0, 0, 0, 0x48, 0xc7, 0xc7, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x05);
		put_random(1 + (int)(code_random() % 4));
		put_end();
		if (code_place > CODE + (program + 1) * ROOM)
			abort();
	}
	code_protect(PROT_READ | PROT_EXEC);
	memset(DATA, 0x5a, PAGE);
	for (int time = 0; time < TIMES; time++)
		for (int program = 0; program < PROGRAMS; program++) {
			code_seed = seed * 1000 + (uint64_t)program;
			code_fill(code_random() & 0x8d5);
			code_target = (uint64_t)(uintptr_t)(CODE + program * ROOM);
			code_run();
			printf("%d %d %016lx\n", time, program, (unsigned long)code_sum());
		}
	uint64_t sum = 0;
	for (int at = 0; at < PAGE; at++)
		sum = sum * 31 + DATA[at];
	printf("memory %016lx\n", (unsigned long)sum);
	return 0;
}
