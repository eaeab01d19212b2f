// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared by test programs that create files: creating a file, and printing its state.
#ifndef TREE_H
#define TREE_H

#include "holds.h"
#include "show.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char buffer[1 << 20];
static void *volatile nowhere = (void *)8;

static inline void put(const char *name, const char *text)
{
	int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	HOLDS(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) && close(file) == 0);
}

// Prints the content of a file, or the error.
static inline void see(const char *name)
{
	int file = open(name, O_RDONLY);
	if (file < 0) {
		printf("%s: %s\n", name, strerror(errno));
		return;
	}
	ssize_t got = read(file, buffer, sizeof buffer);
	unsigned sum = 0;
	for (ssize_t at = 0; at < got; at++)
		sum = sum * 31 + (unsigned char)buffer[at];
	printf("%s: %zd bytes, sum %u, begins \"%.*s\"\n", name, got, sum, (int)(got < 20 ? got : 20), buffer);
	close(file);
}

static inline void status(const char *name)
{
	struct stat found;
	if (lstat(name, &found))
		printf("%s: %s\n", name, strerror(errno));
	else
		printf("%s: mode %o, %s, size %ld, %ld:%ld, device %lx\n", name, found.st_mode,
			S_ISDIR(found.st_mode) ? "directory" : found.st_nlink == 1 ? "one link" : "links",
			S_ISDIR(found.st_mode) ? 0L : (long)found.st_size, (long)found.st_uid, (long)found.st_gid, (long)found.st_rdev);
}

static inline int by_name(const struct dirent **one, const struct dirent **other)
{
	return strcmp((*one)->d_name, (*other)->d_name);
}

static inline void list(const char *name)
{
	struct dirent **entries;
	int count = scandir(name, &entries, NULL, by_name);
	printf("%s:", name);
	for (int at = 0; at < count; at++)
		printf(" %s(%d)", entries[at]->d_name, entries[at]->d_type);
	printf(count < 0 ? " %s\n" : "\n", strerror(errno));
}

#endif
