// SPDX-License-Identifier: MIT OR Apache-2.0
// The most memory that a process had at once stays told after it was given up, and of children after their end.
#define _GNU_SOURCE
#include "holds.h"
#include <stdlib.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MUCH = 64 << 20 };

static long kilobytes(int whose)
{
	struct rusage usage;
	return getrusage(whose, &usage) == 0 ? usage.ru_maxrss : -1;
}

static char *fill(void)
{
	char *room = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(room, 1, MUCH);
	return room;
}

// Gives up what it has had in one of several ways.
static int had_much(int way)
{
	char *room = way == 2 ? sbrk(MUCH) : fill();
	if (way == 0)
		munmap(room, MUCH);
	else if (way == 1)
		madvise(room, MUCH, MADV_DONTNEED);
	else if (way == 2)
		memset(room, 1, MUCH), sbrk(-MUCH);
	else if (mremap(room, MUCH, 4096, 0) != room)
		return 0;
	return kilobytes(RUSAGE_SELF) >= MUCH / 1024;
}

/* Its own process: across `execve` Linux keeps the peak of the process that started this program. */
static int checks(void)
{
	int status;
	HOLDS(kilobytes(RUSAGE_SELF) > 0 && kilobytes(RUSAGE_SELF) < MUCH / 1024 && kilobytes(RUSAGE_CHILDREN) == 0);
	for (int way = 0; way < 4; way++) {
		pid_t child = fork();
		if (child == 0)
			_exit(had_much(way));
		HOLDS(waitpid(child, &status, 0) == child);
		printf("%d: %d\n", way, WEXITSTATUS(status));
	}
	HOLDS(kilobytes(RUSAGE_CHILDREN) >= MUCH / 1024 && kilobytes(RUSAGE_SELF) < MUCH / 1024);
	munmap(fill(), MUCH);
	char line[200];
	long high = 0, now = 0;
	FILE *file = fopen("/proc/self/status", "r");
	while (file && fgets(line, sizeof line, file)) {
		sscanf(line, "VmHWM: %ld", &high);
		sscanf(line, "VmRSS: %ld", &now);
	}
	HOLDS(high >= MUCH / 1024 && now < MUCH / 1024);
	return 0;
}

int main(void)
{
	int status;
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		exit(checks());
	return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 1;
}
