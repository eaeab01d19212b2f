// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory as programs use it: the heap, mappings, the break, the stack.
#define _GNU_SOURCE
#include "holds.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096L
#define MEGABYTE (1L << 20)

static bool all_are(const unsigned char *bytes, size_t size, unsigned char value)
{
	for (size_t at = 0; at < size; at++)
		if (bytes[at] != value)
			return false;
	return true;
}

static void *pages(long count, int protection)
{
	return mmap(NULL, (size_t)(count * PAGE), protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void heap_small(int count, char **arguments)
{
	(void)count, (void)arguments;
	enum { BLOCKS = 100000 };
	static uint32_t *blocks[BLOCKS];
	uint64_t seed = 1, sum = 0;
	for (int round = 0; round < 3; round++) {
		for (int at = 0; at < BLOCKS; at++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			size_t words = 1 + (seed >> 40) % 40;
			blocks[at] = realloc(blocks[at], words * sizeof *blocks[at]);
			blocks[at][0] = (uint32_t)at;
			blocks[at][words - 1] ^= (uint32_t)at;
		}
		for (int at = round; at < BLOCKS; at += 3) {
			free(blocks[at]);
			blocks[at] = calloc(2, sizeof **blocks);
			sum += blocks[at][0] + blocks[at][1];
		}
	}
	HOLDS(sum == 0);
	for (int at = 0; at < BLOCKS; at++)
		free(blocks[at]);
	HOLDS(malloc_usable_size(NULL) == 0);
	void *aligned = aligned_alloc(65536, 65536);
	HOLDS(aligned && (uintptr_t)aligned % 65536 == 0);
	free(aligned);
}

static void heap_large(int count, char **arguments)
{
	(void)count, (void)arguments;
	unsigned char *block = malloc(64 * MEGABYTE);
	HOLDS(block);
	memset(block, 0x5a, 64 * MEGABYTE);
	HOLDS(all_are(block, 64 * MEGABYTE, 0x5a));
	block = realloc(block, 96 * MEGABYTE);
	HOLDS(block && all_are(block, 64 * MEGABYTE, 0x5a));
	block = realloc(block, 100);
	HOLDS(block && all_are(block, 100, 0x5a));
	free(block);
	unsigned char *zero = calloc(48, MEGABYTE);
	HOLDS(zero && all_are(zero, 48 * MEGABYTE, 0));
	free(zero);
	volatile size_t too_much = (size_t)1 << 62;
	HOLDS(!malloc(too_much) && errno == ENOMEM);
}

static void mapping(int count, char **arguments)
{
	(void)count, (void)arguments;
	unsigned char *area = pages(16, PROT_READ | PROT_WRITE);
	HOLDS(area != MAP_FAILED && (uintptr_t)area % PAGE == 0);
	HOLDS(all_are(area, 16 * PAGE, 0));
	memset(area, 1, 16 * PAGE);
	HOLDS(munmap(area + 4 * PAGE, 4 * PAGE) == 0);
	HOLDS(all_are(area, 4 * PAGE, 1) && all_are(area + 8 * PAGE, 8 * PAGE, 1));
	unsigned char *again = mmap(area + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	HOLDS(again == area + 4 * PAGE && all_are(again, 4 * PAGE, 0));
	FAILS(mmap(area, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	HOLDS(madvise(area, 2 * PAGE, MADV_DONTNEED) == 0);
	HOLDS(all_are(area, 2 * PAGE, 0) && all_are(area + 2 * PAGE, 2 * PAGE, 1));
	HOLDS(munmap(area, 16 * PAGE) == 0);
	HOLDS(munmap(area, 16 * PAGE) == 0);
	FAILS(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL);
	FAILS(mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0), EINVAL);
	FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 99, 0), EBADF);
	FAILS(mmap(NULL, (size_t)1 << 47, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
	FAILS(mmap((void *)(area + 1), PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EINVAL);
	FAILS(munmap(area + 1, PAGE), EINVAL);
	FAILS(munmap(area, 0), EINVAL);
	unsigned char *sparse = mmap(NULL, 1L << 34, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	HOLDS(sparse != MAP_FAILED);
	for (long at = 0; at < 1L << 34; at += 1L << 30)
		sparse[at] = 7;
	HOLDS(sparse[0] == 7 && sparse[5L << 30] == 7 && sparse[(5L << 30) + 1] == 0);
	HOLDS(munmap(sparse, 1L << 34) == 0);
}

static void protection(int count, char **arguments)
{
	(void)count, (void)arguments;
	unsigned char *area = pages(8, PROT_READ | PROT_WRITE);
	memset(area, 9, 8 * PAGE);
	HOLDS(mprotect(area, 4 * PAGE, PROT_NONE) == 0);
	HOLDS(mprotect(area, 4 * PAGE, PROT_READ) == 0);
	HOLDS(all_are(area, 8 * PAGE, 9));
	// The system itself must not write to memory that the program may not write.
	FAILS(syscall(SYS_clock_gettime, 0, area), EFAULT);
	HOLDS(mprotect(area, 8 * PAGE, PROT_READ | PROT_WRITE) == 0);
	area[0] = 8;
	HOLDS(area[0] == 8);
	static const unsigned char return_42[] = {0xb8, 42, 0, 0, 0, 0xc3};
	memcpy(area, return_42, sizeof return_42);
	HOLDS(mprotect(area, PAGE, PROT_READ | PROT_EXEC) == 0);
	int (*function)(void) = (int (*)(void))(uintptr_t)area;
	HOLDS(function() == 42);
	HOLDS(munmap(area + 4 * PAGE, PAGE) == 0);
	FAILS(mprotect(area, 8 * PAGE, PROT_READ), ENOMEM);
	FAILS(syscall(SYS_mprotect, area + 1, PAGE, PROT_READ), EINVAL);
	HOLDS(mprotect(area, 0, PROT_READ) == 0);
}

static void moving(int count, char **arguments)
{
	(void)count, (void)arguments;
	unsigned char *area = pages(64, PROT_READ | PROT_WRITE);
	memset(area, 3, 64 * PAGE);
	HOLDS(mremap(area, 64 * PAGE, 16 * PAGE, 0) == area);
	unsigned char *wall = mmap(area + 16 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	HOLDS(wall == area + 16 * PAGE);
	FAILS(mremap(area, 16 * PAGE, 1024 * PAGE, 0), ENOMEM);
	unsigned char *moved = mremap(area, 16 * PAGE, 1024 * PAGE, MREMAP_MAYMOVE);
	HOLDS(moved != MAP_FAILED && moved != area);
	HOLDS(all_are(moved, 16 * PAGE, 3) && all_are(moved + 16 * PAGE, 1008 * PAGE, 0));
	unsigned char *place = pages(32, PROT_NONE);
	HOLDS(mremap(moved, 32 * PAGE, 32 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
	HOLDS(all_are(place, 16 * PAGE, 3) && all_are(place + 16 * PAGE, 16 * PAGE, 0));
	FAILS(mremap(moved, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
	FAILS(mremap(place + 1, PAGE, PAGE, MREMAP_MAYMOVE), EINVAL);
	FAILS(mremap(place, PAGE, 0, MREMAP_MAYMOVE), EINVAL);
}

// Between here and the end nothing else may move the break, so the heap is not used.
static void breaking(int count, char **arguments)
{
	(void)count, (void)arguments;
	unsigned char *start = (unsigned char *)syscall(SYS_brk, 0);
	unsigned char *end = start + 2 * MEGABYTE;
	int grown = (unsigned char *)syscall(SYS_brk, end) == end;
	int zero = all_are(start, 2 * MEGABYTE, 0);
	memset(start, 4, 2 * MEGABYTE);
	int shrunk = (unsigned char *)syscall(SYS_brk, start + PAGE) == start + PAGE;
	int kept = all_are(start, 1, 4);
	int regrown = (unsigned char *)syscall(SYS_brk, end) == end;
	int fresh = all_are(start + 2 * PAGE, 2 * MEGABYTE - 2 * PAGE, 0);
	int refused = (unsigned char *)syscall(SYS_brk, 1) == end && (unsigned char *)syscall(SYS_brk, -1L) == end;
	int back = (unsigned char *)syscall(SYS_brk, start) == start;
	HOLDS(grown && zero && shrunk && kept);
	HOLDS(regrown && fresh);
	HOLDS(refused && back);
}

static __attribute__((noinline)) unsigned deep(unsigned depth)
{
	volatile unsigned char frame[1000];
	frame[depth % sizeof frame] = (unsigned char)depth;
	return depth == 0 ? frame[0] : deep(depth - 1) + frame[depth % sizeof frame];
}

static void stack(int count, char **arguments)
{
	(void)count, (void)arguments;
	unsigned sum = 0;
	for (unsigned depth = 1; depth <= 3000; depth++)
		sum += depth & 0xff;
	HOLDS(deep(3000) == sum);
	// Touches the far end of a large frame first.
	volatile unsigned char large[4 * MEGABYTE];
	large[0] = 1;
	large[sizeof large - 1] = 2;
	HOLDS(large[0] + large[sizeof large - 1] == 3);
	unsigned char *alongside = __builtin_alloca(100000);
	memset(alongside, 5, 100000);
	HOLDS(all_are(alongside, 100000, 5));
}

// Copies up to the end of readable memory are complete to the last byte, for all alignments of the target within its page.
static void edges(int count, char **arguments)
{
	(void)count, (void)arguments;
	enum { BYTES = 500 };
	unsigned char *area = pages(2, PROT_READ | PROT_WRITE), back[BYTES + 8];
	for (long at = 0; at < PAGE; at++)
		area[at] = (unsigned char)(at * 7);
	HOLDS(munmap(area + PAGE, (size_t)PAGE) == 0);
	int file = memfd_create("edges", 0), right = 0;
	for (int behind = 0; behind < 40; behind++) {
		long bytes = BYTES + behind % 8, place = PAGE - bytes + behind;
		HOLDS(pwrite(file, area + PAGE - bytes, (size_t)bytes + 100, place) == bytes);
		right += pread(file, back, (size_t)bytes, place) == bytes && !memcmp(back, area + PAGE - bytes, (size_t)bytes);
	}
	HOLDS(right == 40);
}

// Allocates all memory: malloc must fail before the process is killed.
static void exhaust(int count, char **arguments)
{
	(void)count, (void)arguments;
	size_t blocks = 0;
	void **last = NULL;
	for (void **block; (block = malloc(MEGABYTE)); last = block, blocks++) {
		memset(block, 1, MEGABYTE);
		*block = last;
	}
	HOLDS(errno == ENOMEM);
	printf("%zu\n", blocks);
	for (void **next; last; last = next) {
		next = *last;
		free(last);
	}
	HOLDS((last = malloc(MEGABYTE)));
	free(last);
}

static const struct part PARTS[] = {
	{"heap-small", heap_small}, {"heap-large", heap_large}, {"mapping", mapping}, {"protection", protection}, {"moving", moving},
	{"break", breaking}, {"stack", stack}, {"edges", edges}, {"exhaust", exhaust}, {0},
};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
