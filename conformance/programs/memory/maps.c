// SPDX-License-Identifier: MIT OR Apache-2.0
// Mapped files. Starts in an empty directory, and prints the results of system calls.
#define _GNU_SOURCE
#include "tree.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

#define PAGE 4096

static sigjmp_buf back;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)context;
	printf("signal %d code %d\n", number, info->si_code);
	siglongjmp(back, 1);
}

// Prints a byte in memory, or the signal if it is inaccessible.
static void touch(volatile char *address)
{
	if (!sigsetjmp(back, 1))
		printf("%d\n", *address);
}

static void poke(volatile char *address, char value)
{
	if (!sigsetjmp(back, 1))
		printf("%d\n", *address = value);
}

static void catch(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigaction(SIGBUS, &action, NULL), sigaction(SIGSEGV, &action, NULL);
}

static int filled(const char *name, size_t bytes)
{
	int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	for (size_t at = 0; at < bytes; at++)
		buffer[at] = (char)(1 + at % 100 + at / PAGE);
	HOLDS(write(file, buffer, bytes) == (ssize_t)bytes);
	return file;
}

// Private mappings: of a file created here, or of the named one.
static void private(int count, char **arguments)
{
	catch();
	int file = count ? open(arguments[0], O_RDWR) : filled("file", 3 * PAGE + 100);
	char *map = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	HOLDS(map != MAP_FAILED);
	touch(map), touch(map + PAGE + 5), touch(map + 3 * PAGE), touch(map + 3 * PAGE + 99), touch(map + 3 * PAGE + 100), touch(map + 4 * PAGE - 1);
	touch(map + 4 * PAGE), touch(map + 6 * PAGE - 1), poke(map + 5 * PAGE, 1);
	poke(map + PAGE, 77);
	SHOW(pread(file, buffer, 1, PAGE));
	printf("%d\n", buffer[0]);
	SHOW(madvise(map + PAGE, PAGE, MADV_DONTNEED));
	SHOW(mprotect(map, 6 * PAGE, PROT_READ));
	touch(map + 3 * PAGE), touch(map + 5 * PAGE), poke(map, 1), poke(map + 5 * PAGE, 1);
	SHOW(mprotect(map, 2 * PAGE, PROT_NONE));
	touch(map);
	SHOW(mprotect(map, PAGE, PROT_READ | PROT_EXEC));
	touch(map + 7), touch(map + PAGE);
	SHOW(read(file, map, 10));
	SHOW(write(1, map + 4 * PAGE, 10));
	SHOW(munmap(map + 2 * PAGE, PAGE));
	touch(map + 2 * PAGE), touch(map + 3 * PAGE);
	char *none = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE, file, PAGE);
	touch(none);
	SHOW(mprotect(none, PAGE, PROT_READ));
	touch(none);
	char *grown = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, PAGE);
	poke(grown + 1, 99);
	char *moved = mremap(grown, PAGE, 3 * PAGE, MREMAP_MAYMOVE);
	HOLDS(moved != MAP_FAILED);
	touch(moved + 1), touch(moved + PAGE), touch(moved + 2 * PAGE);
	char *at = mmap(map + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 2 * PAGE);
	SHOW(at == map + PAGE);
	touch(at);
	SHOW(close(file));
	touch(at), touch(moved);
	HOLDS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, open(".", O_RDONLY), 0) == MAP_FAILED);
	SHOW(errno);
	HOLDS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, open("/dev/null", O_RDONLY), 0) == MAP_FAILED || errno == 0);
	char *zero = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, open("/dev/zero", O_RDWR), 0);
	touch(zero), poke(zero, 3);
	HOLDS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 99, 0) == MAP_FAILED && errno == EBADF);
	int end = filled("end", 1);
	HOLDS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, end, (off_t)0x7ffffffffffff000) == MAP_FAILED && errno == EOVERFLOW);
}

static void shared(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch();
	int file = filled("file", 4 * PAGE), reader = open("file", O_RDONLY), writer = open("file", O_WRONLY);
	HOLDS(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED && errno == EACCES);
	HOLDS(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, writer, 0) == MAP_FAILED && errno == EACCES);
	char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	HOLDS(map != MAP_FAILED);
	touch(map), touch(map + 3 * PAGE);
	map[10] = 'm', map[2 * PAGE] = 'n';
	SHOW(pread(reader, buffer, 100, 0));
	printf("%d %d\n", buffer[10], buffer[11]);
	SHOW(pwrite(writer, "file", 4, 2 * PAGE - 2));
	printf("%.2s %.2s\n", map + 2 * PAGE - 2, map + 2 * PAGE);
	see("file");
	memcpy(map + PAGE, "through the mapping", 19);
	int copy = open("copy", O_RDWR | O_CREAT, 0600);
	off_t from = 0;
	SHOW(sendfile(copy, reader, &from, 4 * PAGE));
	see("copy");
	char *own = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, reader, PAGE);
	printf("%.19s\n", own);
	SHOW(msync(map, 4 * PAGE, MS_SYNC));
	SHOW(msync(map, 4 * PAGE, MS_SYNC | MS_ASYNC));
	SHOW(msync(map + 1, 4 * PAGE, MS_SYNC));
	map[3 * PAGE + 5] = 'z';
	SHOW(munmap(map + 3 * PAGE, PAGE));
	SHOW(pread(reader, buffer, 1, 3 * PAGE + 5));
	printf("%d\n", buffer[0]);
	map[7] = 'q';
	SHOW(mprotect(map, PAGE, PROT_READ));
	SHOW(pwrite(writer, "s", 1, 8));
	printf("%c %c\n", map[7], map[8]);
	SHOW(munmap(map, 3 * PAGE));
	see("file");
	map = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, file, 2 * PAGE);
	SHOW(ftruncate(file, 8 * PAGE));
	SHOW(pwrite(file, "late", 4, 3 * PAGE));
	printf("%.4s\n", map + PAGE);
	int memory = memfd_create("memory", 0);
	SHOW(ftruncate(memory, 2 * PAGE));
	map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	strcpy(map + 100, "kept");
	map = mremap(map, 2 * PAGE, 6 * PAGE, MREMAP_MAYMOVE);
	SHOW(ftruncate(memory, 6 * PAGE));
	strcpy(map + 5 * PAGE, "grown");
	SHOW(close(memory) == 0 && !strcmp(map + 100, "kept"));
	SHOW(unlink("file"));
	int other = filled("other", 100);
	map = mmap(NULL, 100, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
	SHOW(close(other));
	map[0] = 'X', map[99] = 'Y';
	SHOW(mprotect(map, 100, PROT_NONE));
	SHOW(munmap(map, 100));
	see("other"), status("other");
	char *anonymous = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	poke(anonymous, 5), touch(anonymous);
}

// Several mappings of one part of a file, not all of them writable: in one process, and in two.
// `mremap` with an old size of 0 maps shared memory a second time.
static void doubled(int file)
{
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	poke(memory, 'm'), poke(memory + PAGE, 'n');
	char *second = mremap(memory, 0, 2 * PAGE, MREMAP_MAYMOVE);
	HOLDS(second != MAP_FAILED);
	touch(second), touch(second + PAGE);
	poke(second, 'o'), touch(memory);
	if (!fork()) {
		poke(second + PAGE, 'p');
		HOLDS(munmap(memory, 2 * PAGE) == 0 && second[0] == 'o');
		_exit(0);
	}
	SHOW(wait(NULL) > 0), touch(memory + PAGE);
	SHOW(munmap(memory, 2 * PAGE)), touch(second), touch(second + PAGE);
	HOLDS(mremap(second, 0, PAGE, 0) == MAP_FAILED && errno == ENOMEM);
	HOLDS(mremap(second, 0, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP) == MAP_FAILED && errno == EINVAL);
	SHOW(munmap(second, 2 * PAGE)), touch(second);
	char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	HOLDS(mremap(own, 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	HOLDS(mremap((char *)PAGE, 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
	char *shown = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	poke(shown + PAGE, 'q');
	second = mremap(shown + PAGE, 0, PAGE, MREMAP_MAYMOVE);
	HOLDS(second != MAP_FAILED);
	touch(second), poke(second, 'r'), touch(shown + PAGE);
	SHOW(munmap(shown, 3 * PAGE)), touch(second);
	char *placed = mremap(second, 0, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)0x10000000);
	touch(placed), SHOW(placed == (char *)0x10000000), SHOW(munmap(second, PAGE)), poke(placed, 's'), SHOW(munmap(placed, PAGE));
	see("file");
}

static void again(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch();
	int file = filled("file", 2 * PAGE), reader = open("file", O_RDONLY);
	char *shown = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, reader, 0);
	char *written = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	HOLDS(shown != MAP_FAILED && written != MAP_FAILED);
	poke(written, 'b'), touch(shown);
	SHOW(pread(reader, buffer, 1, 0));
	printf("%c\n", buffer[0]);
	SHOW(munmap(shown, 2 * PAGE));
	poke(written, 'c'), poke(written + PAGE, 'd');
	SHOW(munmap(written, 2 * PAGE));
	see("file");
	shown = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, reader, 0);
	touch(shown);
	int there[2], back[2];
	SHOW(pipe(there) + pipe(back));
	if (!fork()) {
		written = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		written[PAGE] = 'e';
		HOLDS(write(there[1], "", 1) == 1 && read(back[0], buffer, 1) == 1);
		_exit(0);
	}
	SHOW(read(there[0], buffer, 1));
	touch(shown + PAGE);
	SHOW(pread(reader, buffer, 1, PAGE));
	printf("%c\n", buffer[0]);
	SHOW(write(back[1], "", 1));
	SHOW(wait(NULL) > 0);
	touch(shown + PAGE);
	see("file");
	SHOW(munmap(shown, 2 * PAGE));
	// Two mappings that share one page of three, while the file grows, and one of them at a fixed address.
	char *first = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, PAGE);
	SHOW(ftruncate(file, PAGE)), SHOW(ftruncate(file, 3 * PAGE));
	char *second = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	HOLDS(first != MAP_FAILED && second != MAP_FAILED);
	poke(second + PAGE, 'f'), poke(second + 2 * PAGE, 'g'), touch(first), touch(first + PAGE);
	SHOW(munmap(second, 3 * PAGE));
	SHOW(pread(reader, buffer, 2 * PAGE, PAGE));
	printf("%c %c\n", buffer[0], buffer[PAGE]);
	char *third = mmap((char *)0x10000000, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, PAGE);
	poke(third, 'h'), poke(first + PAGE, 'i');
	SHOW(msync(third, 2 * PAGE, MS_SYNC)), SHOW(munmap(third, 2 * PAGE));
	touch(first), touch(first + PAGE);
	SHOW(munmap(first, 2 * PAGE)), touch(first);
	see("file");
	doubled(file);
}

static unsigned long seed = 1;

static unsigned long draw(unsigned long below)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (seed >> 33) % below;
}

// The start and the end of a page's content.
static unsigned look(volatile unsigned char *page)
{
	if (sigsetjmp(back, 1))
		return 7;
	return page[0] + 256u * page[PAGE - 1];
}

static void quiet(int number, siginfo_t *info, void *context)
{
	(void)info, (void)context;
	siglongjmp(back, number);
}

// Random operations on a range of a few pages: of the named file, and of one that changes.
static void at_random(int count, char **arguments)
{
	enum { PAGES = 24, STEPS = 400 };
	struct sigaction action = {.sa_sigaction = quiet, .sa_flags = SA_SIGINFO};
	sigaction(SIGBUS, &action, NULL), sigaction(SIGSEGV, &action, NULL);
	int file = open(arguments[0], O_RDONLY), own = filled("own", 5 * PAGE + 7);
	seed = count > 1 ? strtoul(arguments[1], NULL, 10) : 1;
	char *area = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int step = 0; step < STEPS; step++) {
		unsigned long first = draw(PAGES), pages = 1 + draw(6), action = draw(9), offset = draw(6) * PAGE;
		int protection = (int)draw(4), result = 0;
		pages = first + pages > PAGES ? PAGES - first : pages;
		char *at = area + first * PAGE;
		errno = 0;
		switch (action) {
		case 0:
		case 1:
			result = mmap(at, pages * PAGE, protection, MAP_PRIVATE | MAP_FIXED, file, (off_t)offset) != at;
			break;
		case 2:
			// One mapping of each part of a changing file: each page is at its offset in the file.
			result = mmap(area, 8 * PAGE, protection, MAP_SHARED | MAP_FIXED, own, 0) != area;
			break;
		case 3:
			result = mmap(at, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at;
			break;
		case 4:
			result = munmap(at, pages * PAGE);
			break;
		case 5:
			result = mprotect(at, pages * PAGE, protection);
			break;
		case 6:
			result = madvise(at, pages * PAGE, MADV_DONTNEED);
			break;
		case 7:
			if (draw(4) == 0)
				result = ftruncate(own, (off_t)draw(9 * PAGE));
			else
				result = (int)pwrite(own, &seed, sizeof seed, (off_t)draw(9 * PAGE));
			break;
		default:
			// The content of the last page behind the end of a file is unspecified.
			if (!sigsetjmp(back, 1))
				at[0] = (char)step;
			else
				result = 9;
		}
		int error = errno;
		unsigned sum = 0;
		for (int page = 0; page < PAGES; page++)
			sum = sum * 31 + look((unsigned char *)area + page * PAGE);
		ssize_t got = pread(own, buffer, 10 * PAGE, 0);
		for (ssize_t byte = 0; byte < got; byte++)
			sum = sum * 31 + (unsigned char)buffer[byte];
		printf("%d: %lu at %lu+%lu = %d (%s), %u\n", step, action, first, pages, result, strerror(error), sum);
	}
}

// Independent mappings: writes to one remain, whatever is done with another.
static void apart(int count, char **arguments)
{
	(void)count, (void)arguments;
	catch();
	int file = filled("file", 10 * PAGE);
	char *low = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *high = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 4 * PAGE);
	poke(high, 'k');
	char *far = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 8 * PAGE);
	HOLDS(low != MAP_FAILED && high != MAP_FAILED && far != MAP_FAILED);
	touch(high);
	poke(low + 20, 'l');
	SHOW(pread(file, buffer, 10, 0));
	touch(low + 20);
	SHOW(msync(low, PAGE, MS_SYNC) + msync(high, PAGE, MS_SYNC) + msync(far, PAGE, MS_SYNC));
	struct stat before, after;
	SHOW(fstat(file, &before)), SHOW(pread(file, buffer, 10, 6 * PAGE)), SHOW(fstat(file, &after));
	HOLDS(before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
	SHOW(munmap(low, PAGE) + munmap(high, PAGE) + munmap(far, PAGE));
	// Two mappings of the same three pages: one is written at both ends, the other in the middle.
	char *ends = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, PAGE);
	char *middle = mmap((char *)0x10000000, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, PAGE);
	poke(ends, 'x'), poke(ends + 2 * PAGE, 'z'), poke(middle + PAGE, 'y');
	SHOW(munmap(middle, 3 * PAGE)), SHOW(munmap(ends, 3 * PAGE));
	see("file");
}

static const struct part PARTS[] = {{"private", private}, {"shared", shared}, {"again", again}, {"apart", apart}, {"random", at_random}, {0}};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
