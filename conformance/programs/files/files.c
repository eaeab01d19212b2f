// SPDX-License-Identifier: MIT OR Apache-2.0
// Files and descriptors as programs use them. FILE has 100 KB of text or more; its directory contains only FILE and this program.
#define _GNU_SOURCE
#include "holds.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <termios.h>
#include <unistd.h>

// Invalid addresses, and a negative count; volatile, so that compilers do not warn about the intended error.
static void *volatile nowhere = (void *)8, *volatile beyond = (void *)-5000L;
static volatile int negative = -1;
static const char READ_ONLY[100] = "what the program itself may not write";

static void reading(int count, char **arguments)
{
	(void)count;
	static char whole[1 << 24], piece[10000];
	int file = open(arguments[0], O_RDONLY | O_CLOEXEC);
	HOLDS(file == 3);
	struct stat status;
	HOLDS(fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink >= 1);
	long size = 0, got;
	for (long step = 1; (got = read(file, whole + size, (size_t)step)) > 0; step = step * 7 % 9973)
		size += got;
	HOLDS(got == 0 && size == status.st_size);
	unsigned sum = 0;
	for (long at = 0; at < size; at++)
		sum = sum * 31 + (unsigned char)whole[at];
	printf("%ld bytes, sum %u\n", size, sum);
	HOLDS(lseek(file, 0, SEEK_CUR) == size && lseek(file, -5, SEEK_END) == size - 5);
	HOLDS(read(file, piece, 100) == 5 && !memcmp(piece, whole + size - 5, 5));
	HOLDS(lseek(file, 1000, SEEK_SET) == 1000 && lseek(file, -10, SEEK_CUR) == 990);
	HOLDS(pread(file, piece, 5000, 4095) == 5000 && !memcmp(piece, whole + 4095, 5000));
	HOLDS(lseek(file, 0, SEEK_CUR) == 990);
	HOLDS(pread(file, piece, 100, size) == 0 && pread(file, piece, 100, size + 99999) == 0);
	HOLDS(lseek(file, size + 100, SEEK_SET) == size + 100 && read(file, piece, 1) == 0);
	FAILS(lseek(file, -1, SEEK_SET), EINVAL);
	FAILS(lseek(file, 0, 77), EINVAL);
	FAILS(pread(file, piece, 1, -1), EINVAL);
	lseek(file, 0, SEEK_SET);
	struct iovec parts[] = {{piece, 10}, {piece + 100, 0}, {piece + 200, 4000}};
	HOLDS(readv(file, parts, 3) == 4010 && !memcmp(piece + 200, whole + 10, 4000));
	HOLDS(preadv(file, parts, 3, 20000) == 4010 && !memcmp(piece + 200, whole + 20010, 4000));
	FAILS(write(file, "x", 1), EBADF);
	char *mapped = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	HOLDS(mapped != MAP_FAILED && !memcmp(mapped, whole, (size_t)size));
	mapped[0] ^= 1;
	HOLDS(pread(file, piece, 1, 0) == 1 && piece[0] == whole[0]);
	char *middle = mmap(NULL, 5000, PROT_READ, MAP_PRIVATE, file, 8192);
	HOLDS(middle != MAP_FAILED && !memcmp(middle, whole + 8192, 5000));
	FAILS(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 1), EINVAL);
	HOLDS(close(file) == 0);
	FAILS(close(file), EBADF);
	FAILS(read(file, piece, 1), EBADF);
	HOLDS(middle[100] == whole[8292]);
}

static void names(int count, char **arguments)
{
	(void)count;
	const char *name = arguments[0];
	char path[PATH_MAX], absolute[2 * PATH_MAX];
	struct stat status, same;
	HOLDS(stat(name, &status) == 0 && lstat(name, &same) == 0 && status.st_ino == same.st_ino && status.st_size == same.st_size);
	HOLDS(getcwd(path, sizeof path) && path[0] == '/');
	FAILS(syscall(SYS_getcwd, path, 1), ERANGE);
	HOLDS(getcwd(path, sizeof path));
	snprintf(absolute, sizeof absolute, "%s/./../%s/%s", path, strrchr(path, '/'), name);
	HOLDS(stat(absolute, &same) == 0 && same.st_ino == status.st_ino);
	HOLDS(access(name, R_OK) == 0 && access(name, F_OK) == 0);
	FAILS(open("no/such/file", O_RDONLY), ENOENT);
	FAILS(open("", O_RDONLY), ENOENT);
	FAILS(stat("nothing", &same), ENOENT);
	FAILS(access("nothing", F_OK), ENOENT);
	snprintf(absolute, sizeof absolute, "%s/below", name);
	FAILS(open(absolute, O_RDONLY), ENOTDIR);
	FAILS(open(name, O_RDONLY | O_DIRECTORY), ENOTDIR);
	memset(absolute, 'a', 300), absolute[300] = 0;
	FAILS(open(absolute, O_RDONLY), ENAMETOOLONG);
	FAILS(open((char *)8, O_RDONLY), EFAULT);
	FAILS(readlink(name, path, sizeof path), EINVAL);
	FAILS(open(".", O_WRONLY), EISDIR);
	int directory = open(".", O_RDONLY | O_DIRECTORY);
	FAILS(read(directory, path, 1), EISDIR);
	int file = openat(directory, name, O_RDONLY);
	HOLDS(file >= 0 && fstatat(directory, name, &same, 0) == 0 && same.st_size == status.st_size);
	HOLDS(faccessat(directory, name, R_OK, 0) == 0);
	FAILS(openat(file, "x", O_RDONLY), ENOTDIR);
	HOLDS(openat(AT_FDCWD, name, O_RDONLY) > file);
	DIR *listing = fdopendir(directory);
	int found = 0, others = 0, dots = 0;
	for (struct dirent *entry; (entry = readdir(listing));) {
		found += !strcmp(entry->d_name, name) && entry->d_ino == status.st_ino && entry->d_type == DT_REG;
		dots += !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
		others++;
	}
	HOLDS(found == 1 && dots == 2 && others == 4);
	closedir(listing);
	HOLDS(chdir("..") == 0 && stat(name, &same) == -1);
	FAILS(chdir(name), ENOENT);
}

static void descriptors(int count, char **arguments)
{
	(void)count;
	char one, other;
	int file = open(arguments[0], O_RDONLY);
	int copy = dup(file);
	HOLDS(copy == file + 1 && read(file, &one, 1) == 1 && lseek(copy, 0, SEEK_CUR) == 1);
	HOLDS(dup2(file, 77) == 77 && read(77, &other, 1) == 1 && lseek(file, 0, SEEK_CUR) == 2);
	HOLDS(dup2(file, file) == file);
	FAILS(dup2(55, 56), EBADF);
	FAILS(dup3(file, file, 0), EINVAL);
	HOLDS(fcntl(file, F_GETFD) == 0 && fcntl(file, F_SETFD, FD_CLOEXEC) == 0 && fcntl(file, F_GETFD) == FD_CLOEXEC);
	HOLDS(fcntl(copy, F_GETFD) == 0);
	HOLDS((fcntl(file, F_GETFL) & O_ACCMODE) == O_RDONLY);
	HOLDS(fcntl(file, F_DUPFD, 100) == 100 && fcntl(file, F_DUPFD_CLOEXEC, 100) == 101 && fcntl(101, F_GETFD) == FD_CLOEXEC);
	FAILS(fcntl(99, F_GETFD), EBADF);
	HOLDS(close(file) == 0 && read(copy, &one, 1) == 1);
	HOLDS(open(arguments[0], O_RDONLY) == file);
	HOLDS(close(0) == 0 && open(arguments[0], O_RDONLY) == 0);
	FAILS(write(-1, "x", 1), EBADF);
	FAILS(ioctl(file, TCGETS, &one), ENOTTY);
	int waiting = -1;
	HOLDS(ioctl(file, FIONREAD, &waiting) == 0 && waiting > 0);
	struct pollfd polled[] = {{file, POLLIN, 0}, {-1, POLLIN, 7}, {1, POLLOUT, 0}, {66, POLLIN, 0}};
	HOLDS(poll(polled, 4, 0) == 3 && polled[0].revents == POLLIN && polled[1].revents == 0 && polled[2].revents == POLLOUT && polled[3].revents == POLLNVAL);
	fd_set set;
	FD_ZERO(&set);
	FD_SET(file, &set);
	HOLDS(select(file + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(file, &set));
}

static void sending(int count, char **arguments)
{
	(void)count;
	int file = open(arguments[0], O_RDONLY);
	off_t from = 10;
	setvbuf(stdout, NULL, _IONBF, 0);
	ssize_t sent = 0, piece;
	while (sent < 70000 && (piece = sendfile(1, file, &from, 70000 - (size_t)sent)) > 0)
		sent += piece;
	printf("\n");
	HOLDS(sent == 70000 && from == 70010 && lseek(file, 0, SEEK_CUR) == 0);
	struct iovec parts[] = {{"gathered ", 9}, {"", 0}, {"from parts\n", 11}};
	HOLDS(writev(1, parts, 3) == 20);
	struct iovec bad[] = {{"x", 1}, {nowhere, 5}};
	FAILS(writev(1, bad + 1, 1), EFAULT);
	FAILS(write(1, nowhere, 5), EFAULT);
	FAILS(write(1, beyond, 100), EFAULT);
	FAILS(read(file, (void *)READ_ONLY, 5), EFAULT);
	FAILS(writev(1, parts, negative), EINVAL);
	HOLDS(write(1, nowhere, 0) == 0);
}

// Reads standard input, by lines and by bytes, up to its end and beyond.
static void input(int count, char **arguments)
{
	(void)count, (void)arguments;
	char *line = NULL;
	size_t room = 0, lines = 0, bytes = 0;
	ssize_t length;
	unsigned sum = 0;
	while (lines < 100 && (length = getline(&line, &room, stdin)) > 0)
		for (lines++, bytes += (size_t)length; length > 0; length--)
			sum = sum * 31 + (unsigned char)line[length - 1];
	for (int c; (c = getchar()) != EOF; bytes++)
		sum = sum * 31 + (unsigned)c;
	printf("%zu lines, %zu bytes in all, sum %u\n", lines, bytes, sum);
	HOLDS(feof(stdin) && !ferror(stdin));
	char more;
	HOLDS(read(0, &more, 1) == 0 && read(0, &more, 1) == 0);
	struct pollfd polled = {0, POLLIN, 0};
	HOLDS(poll(&polled, 1, -1) == 1);
	free(line);
}

// Everything may be changed; in a cell the changes are not exported.
static void changing(int count, char **arguments)
{
	(void)count;
	const char *name = arguments[0];
	char text[100] = "";
	struct stat status, other;
	HOLDS(link(name, "hard") == 0 && stat(name, &status) == 0);
	int file = open(name, O_RDWR), reader = open("hard", O_RDONLY);
	HOLDS(file >= 0 && pwrite(file, "changed", 7, 5000) == 7);
	HOLDS(pread(reader, text, 9, 4999) == 9 && !memcmp(text + 1, "changed", 7));
	HOLDS(fstat(reader, &other) == 0 && other.st_ino == status.st_ino && other.st_dev == status.st_dev && other.st_nlink == 2);
	HOLDS(truncate(name, 5003) == 0 && lseek(reader, 0, SEEK_END) == 5003);
	HOLDS(unlink(name) == 0 && pread(reader, text, 9, 4999) == 4 && !memcmp(text + 1, "cha", 3));
	HOLDS(unlink("hard") == 0 && pread(reader, text, 9, 4999) == 4);
	FAILS(open(name, O_RDONLY), ENOENT);
	HOLDS(mkdir(name, 0700) == 0 && chdir(name) == 0 && open("new", O_WRONLY | O_CREAT, 0666) > reader);
	HOLDS(symlink("new", "link") == 0 && rename("link", "../moved") == 0 && access("../moved", F_OK) == -1);
}

static const struct part PARTS[] = {
	{"reading", reading}, {"names", names}, {"descriptors", descriptors}, {"sending", sending}, {"input", input}, {"changing", changing}, {0},
};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
