// SPDX-License-Identifier: MIT OR Apache-2.0
// IN_EXCL_UNLINK: a watch that is not told of files whose name is gone, beside one that is.
#define _GNU_SOURCE
#include "show.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

static int watch(const char *path, unsigned mask)
{
	int fd = inotify_init1(IN_NONBLOCK);
	SHOW(inotify_add_watch(fd, path, mask));
	return fd;
}

static void told(const char *what, int fd)
{
	_Alignas(struct inotify_event) char bytes[4096];
	ssize_t length = read(fd, bytes, sizeof bytes);
	printf("%s:", what);
	for (char *at = bytes; length > 0 && at < bytes + length;) {
		struct inotify_event *event = (struct inotify_event *)at;
		printf(" %x %s", event->mask, event->len > 0 ? event->name : "-");
		at += sizeof *event + event->len;
	}
	puts("");
}

int main(void)
{
	char directory[] = "/tmp/unlinked-XXXXXX", byte;
	if (!mkdtemp(directory) || chdir(directory) != 0)
		return 1;
	int file = open("file", O_RDWR | O_CREAT, 0600), kept = open("kept", O_RDWR | O_CREAT, 0600);
	int without = watch(".", IN_ALL_EVENTS | IN_EXCL_UNLINK), with = watch(".", IN_ALL_EVENTS), own = watch("file", IN_ALL_EVENTS | IN_EXCL_UNLINK);
	SHOW(write(file, "x", 1));
	SHOW(link("kept", "second"));
	told("without", without);
	told("with", with);
	told("its own", own);
	SHOW(unlink("file"));
	SHOW(unlink("kept"));
	SHOW(write(file, "x", 1));
	SHOW(pread(file, &byte, 1, 0));
	// It has another name, but not the one by which it is open.
	SHOW(write(kept, "x", 1));
	SHOW(ftruncate(file, 0));
	told("without", without);
	told("with", with);
	told("its own", own);
	// Another file of that name is another file.
	int again = open("file", O_RDWR | O_CREAT, 0600);
	SHOW(write(file, "x", 1));
	SHOW(write(again, "x", 1));
	SHOW(close(file));
	SHOW(close(again));
	SHOW(close(kept));
	told("without", without);
	told("with", with);
	told("its own", own);
	SHOW(unlink("file"));
	SHOW(unlink("second"));
	told("without", without);
	told("with", with);
	return rmdir(directory);
}
