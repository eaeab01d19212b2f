// SPDX-License-Identifier: MIT OR Apache-2.0
// Files of a volume: their state on the host after fsync, and after the program's end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// A condition without which the rest makes no sense.
#define MUST(condition) ((condition) ? (void)0 : give_up(#condition))

static void give_up(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void write_all(int fd, const char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t written = write(fd, bytes, length);
		MUST(written > 0);
		bytes += written;
		length -= written;
	}
}

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

static void wait_for_a_line(void)
{
	char line[100];
	MUST(fgets(line, sizeof line, stdin) != NULL);
}

// One change that is synced, and one that is not, each announced before the next.
static int durable(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0640);
	MUST(fd >= 0);
	write_all(fd, "first", 5);
	say("written");
	wait_for_a_line();
	say(fsync(fd) == 0 ? "synced" : strerror(errno));
	wait_for_a_line();
	write_all(fd, " second", 7);
	return 0;
}

// The same through a mapping of a file.
static int mapped(const char *path)
{
	int fd = open(path, O_RDWR);
	char *map = mmap(NULL, 14, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED && close(fd) == 0);
	memcpy(map, "ONE", 3);
	say("written");
	wait_for_a_line();
	say(msync(map, 14, MS_SYNC) == 0 ? "synced" : strerror(errno));
	wait_for_a_line();
	memcpy(map + 4, "TWO", 3);
	return 0;
}

// One byte of a large file is changed and synced; the rest is read after that.
static int patched(const char *path)
{
	static char buffer[1 << 16];
	uint64_t sum = 0;
	ssize_t count;
	int fd = open(path, O_RDWR);
	MUST(fd >= 0 && pwrite(fd, "!", 1, 0) == 1 && fsync(fd) == 0);
	while ((count = read(fd, buffer, sizeof buffer)) > 0)
		for (ssize_t at = 0; at < count; at++)
			sum = sum * 31 + (unsigned char)buffer[at];
	MUST(count == 0);
	printf("%llu\n", (unsigned long long)sum);
	return 0;
}

// Files that are rewritten repeatedly, each filled with one letter.
static int rounds(const char *directory)
{
	static char content[50000];
	MUST(chdir(directory) == 0);
	for (int round = 0;; round++) {
		memset(content, 'a' + round % 26, sizeof content);
		for (int file = 0; file < 20; file++) {
			char name[20];
			snprintf(name, sizeof name, "%d", file);
			int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
			MUST(fd >= 0);
			write_all(fd, content, sizeof content);
			MUST(fsync(fd) == 0);
			close(fd);
			say(name);
		}
	}
}

// Half of a file is read early, and the other half later.
static int halves(const char *path)
{
	static char buffer[1 << 16];
	struct stat status;
	off_t at = 0;
	ssize_t count;
	int fd = open(path, O_RDONLY);
	MUST(fd >= 0 && fstat(fd, &status) == 0);
	while (at < status.st_size / 2 && (count = read(fd, buffer, sizeof buffer)) > 0)
		at += count;
	say("half");
	wait_for_a_line();
	while ((count = read(fd, buffer, sizeof buffer)) > 0)
		for (ssize_t byte = 0; byte < count; byte++)
			MUST(buffer[byte] == 'o');
	say(count == 0 ? "whole" : strerror(errno));
	return 0;
}

// Writes more than fits on the host.
static int fill(const char *path)
{
	static char content[1 << 20];
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	MUST(fd >= 0);
	write_all(fd, content, sizeof content);
	say(fsync(fd) == 0 ? "synced" : strerror(errno));
	return 0;
}

int main(int count, char **words)
{
	if (count != 3)
		return 2;
	if (strcmp(words[1], "durable") == 0)
		return durable(words[2]);
	if (strcmp(words[1], "mapped") == 0)
		return mapped(words[2]);
	if (strcmp(words[1], "patched") == 0)
		return patched(words[2]);
	if (strcmp(words[1], "rounds") == 0)
		return rounds(words[2]);
	if (strcmp(words[1], "halves") == 0)
		return halves(words[2]);
	if (strcmp(words[1], "fill") == 0)
		return fill(words[2]);
	return 2;
}
