// SPDX-License-Identifier: MIT OR Apache-2.0
// Many files, and as many as fit.
#define _GNU_SOURCE
#include "tree.h"

#define BYTES 65536

// A directory with many files: created, listed, examined, renamed, linked, and removed during a listing.
static void many(int count, char **arguments)
{
	int files = count ? atoi(arguments[0]) : 1000;
	char one[64], other[64];
	struct stat found;
	HOLDS(mkdir("many", 0755) == 0 && chdir("many") == 0);
	for (int i = 0; i < files; i++) {
		sprintf(one, "file-%d", (int)(i * 7919L % files));
		put(one, one);
	}
	list(".");
	long bytes = 0;
	for (int i = 0; i < files; i++) {
		sprintf(one, "file-%d", i);
		HOLDS(stat(one, &found) == 0);
		bytes += found.st_size;
	}
	printf("%ld bytes\n", bytes);
	for (int i = 0; i < files; i++) {
		sprintf(one, "file-%d", i), sprintf(other, "name-%d", (int)(i * 31L % files));
		HOLDS(rename(one, other) == 0 && link(other, "second") == 0 && unlink("second") == 0);
	}
	list(".");
	DIR *directory = opendir(".");
	int seen = 0, left = 0;
	for (struct dirent *entry; (entry = readdir(directory));)
		if (entry->d_name[0] == 'n' && seen++ % 2)
			HOLDS(unlink(entry->d_name) == 0);
	rewinddir(directory);
	for (struct dirent *entry; (entry = readdir(directory));)
		left += entry->d_name[0] == 'n' && unlink(entry->d_name) == 0;
	printf("%d seen, %d left\n", seen, left);
	HOLDS(closedir(directory) == 0 && chdir("..") == 0 && rmdir("many") == 0);
}

static char bytes[BYTES], back[BYTES];

static void fill(int file)
{
	for (size_t at = 0; at < BYTES; at += sizeof(long))
		*(long *)(bytes + at) = file * 1000003L + (long)at;
}

// Writes a file as far as possible. Returns its size, or 0 if it could not even be created.
static size_t written(int number, size_t length)
{
	char name[32];
	sprintf(name, "full-%d", number);
	int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	size_t done = 0;
	fill(number);
	for (ssize_t now = 1; file >= 0 && done < length && now > 0; done += now > 0 ? (size_t)now : 0)
		now = write(file, bytes + done, length - done > 5000 ? 5000 : length - done);
	if (done < length && errno != ENOSPC)
		printf("%s: %s\n", name, strerror(errno));
	close(file);
	return done;
}

static int holds_what_was_written(int number, size_t length)
{
	char name[32];
	sprintf(name, "full-%d", number);
	int file = open(name, O_RDONLY);
	ssize_t got = read(file, back, BYTES);
	fill(number);
	close(file);
	return got == (ssize_t)length && !memcmp(bytes, back, length);
}

static void removed(int number)
{
	char name[32];
	sprintf(name, "full-%d", number);
	if (unlink(name))
		printf("%s: %s\n", name, strerror(errno));
}

// Creates files until there is no room for more. Returns the number of complete ones.
static int filled(size_t length)
{
	int files = 0;
	size_t last;
	while ((last = written(files, length)) == length)
		files++;
	HOLDS(last == 0 || holds_what_was_written(files, last));
	errno = 0;
	int rest = open("full-0", O_RDWR);
	HOLDS(pwrite(rest, bytes, BYTES, 1 << 24) < BYTES && ftruncate(rest, (off_t)length) == 0);
	HOLDS(posix_fallocate(rest, 0, 1 << 28) == ENOSPC);
	close(rest);
	return files;
}

// Fills all room with large files, with small ones and with empty ones, twice.
static void full(int count, char **arguments)
{
	(void)count, (void)arguments;
	size_t lengths[] = {BYTES, 5, BYTES, 5};
	int before[2];
	for (int round = 0; round < 4; round++) {
		size_t length = lengths[round];
		int files = filled(length), damaged = 0, again = 0;
		for (int file = 0; file < files; file++)
			damaged += !holds_what_was_written(file, length);
		HOLDS(damaged == 0);
		// Removing half of them makes room for as many again.
		for (int file = 0; file < files; file += 2)
			removed(file);
		for (int file = 0; file < files; file += 2)
			again += written(file, length) == length;
		HOLDS(again >= files / 2 - 1);
		for (int file = 1; file < files; file += 2)
			damaged += !holds_what_was_written(file, length);
		HOLDS(damaged == 0);
		for (int file = 0; file <= files; file++) {
			char name[32];
			sprintf(name, "full-%d", file);
			unlink(name);
		}
		HOLDS(files > 100 && (round < 2 || files >= before[round - 2] * 9 / 10));
		if (round < 2)
			before[round] = files;
	}
	printf("there was room again\n");
}

static const struct part PARTS[] = {{"many", many}, {"full", full}, {0}};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
