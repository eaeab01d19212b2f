// SPDX-License-Identifier: MIT OR Apache-2.0
// File content and metadata, and changes to them. Starts in an empty directory, and prints the results of system calls.
#define _GNU_SOURCE
#include "tree.h"

#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static void writing(int count, char **arguments)
{
	(void)count, (void)arguments;
	static char out[300000], in[300000];
	for (size_t at = 0; at < sizeof out; at++)
		out[at] = (char)(at * 7 + at / 251);
	int file = open("file", O_RDWR | O_CREAT, 0644);
	SHOW(write(file, out, sizeof out));
	SHOW(lseek(file, 0, SEEK_CUR));
	SHOW(pread(file, in, sizeof in, 0));
	HOLDS(!memcmp(in, out, sizeof out));
	SHOW(pwrite(file, "middle", 6, 4093));
	SHOW(pwrite(file, "beyond", 6, 400000));
	SHOW(lseek(file, 0, SEEK_END));
	SHOW(pread(file, in, 200, 299900));
	HOLDS(!memcmp(in, out + 299900, 100) && in[100] == 0 && in[199] == 0);
	struct iovec parts[] = {{"one ", 4}, {NULL, 0}, {"two", 3}};
	SHOW(pwritev(file, parts, 3, 10));
	SHOW(writev(file, parts, 3));
	SHOW(pwritev2(file, parts, 3, -1, 0));
	SHOW(pwritev2(file, parts, 3, 100, 0x4000));
	SHOW(lseek(file, 0, SEEK_CUR));
	see("file");
	SHOW(write(file, nowhere, 10));
	SHOW(write(file, "", 0));
	SHOW(pwrite(file, "x", 1, -1));
	SHOW(ftruncate(file, 5000));
	SHOW(lseek(file, 0, SEEK_CUR));
	SHOW(write(file, "end", 3));
	see("file");
	SHOW(ftruncate(file, 4100));
	SHOW(ftruncate(file, 9000));
	see("file");
	SHOW(ftruncate(file, -1));
	SHOW(truncate("none", 1));
	SHOW(truncate(".", 1));
	SHOW(truncate("file", -1));
	SHOW(truncate("file", 10));
	see("file");
	int reader = open("file", O_RDONLY), appender = open("file", O_WRONLY | O_APPEND);
	SHOW(ftruncate(reader, 1));
	SHOW(write(reader, "x", 1));
	SHOW(read(appender, in, 1));
	SHOW(write(appender, "appended", 8));
	SHOW(pwrite(appender, "there", 5, 0));
	SHOW(lseek(appender, 0, SEEK_CUR));
	see("file");
	SHOW(fcntl(appender, F_SETFL, 0));
	SHOW(pwrite(appender, "HERE", 4, 0));
	see("file");
	SHOW(open("file", O_RDONLY | O_TRUNC));
	see("file");
	SHOW(lseek(file, -1, SEEK_SET));
	SHOW(lseek(file, 5, 9));
	SHOW(lseek(file, -1, SEEK_CUR) >= -1);
	int name = open("file", O_PATH);
	SHOW(read(name, in, 1));
	SHOW(write(name, in, 1));
	SHOW(lseek(name, 0, SEEK_SET));
	SHOW(ftruncate(name, 0));
	SHOW(fchmod(name, 0600));
	SHOW(fstatat(name, "", &(struct stat){0}, AT_EMPTY_PATH));
	SHOW(fsync(file));
	SHOW(fdatasync(name));
	SHOW(flock(file, LOCK_EX | LOCK_NB));
	SHOW(flock(file, LOCK_UN));
	SHOW(flock(file, 77));
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
	SHOW(fcntl(file, F_SETLK, &lock));
	SHOW(fcntl(reader, F_SETLK, &lock));
	SHOW(fcntl(file, F_GETLK, &lock));
	printf("lock %d\n", lock.l_type);
}

static void holes(int count, char **arguments)
{
	(void)count, (void)arguments;
	int file = open("file", O_RDWR | O_CREAT, 0644);
	struct stat found;
	SHOW(ftruncate(file, 1 << 20));
	SHOW(fstat(file, &found) == 0 && found.st_blocks == 0);
	SHOW(lseek(file, 0, SEEK_DATA));
	SHOW(lseek(file, 0, SEEK_HOLE));
	SHOW(pwrite(file, "data", 4, 65536));
	SHOW(pwrite(file, "data", 4, 262143));
	SHOW(lseek(file, 0, SEEK_DATA));
	SHOW(lseek(file, 65537, SEEK_DATA));
	SHOW(lseek(file, 65536, SEEK_HOLE));
	SHOW(lseek(file, 69632, SEEK_DATA));
	SHOW(lseek(file, 262143, SEEK_HOLE));
	SHOW(lseek(file, 300000, SEEK_DATA));
	SHOW(lseek(file, 1 << 20, SEEK_DATA));
	SHOW(lseek(file, 1 << 20, SEEK_HOLE));
	SHOW(lseek(file, (1 << 20) - 1, SEEK_HOLE));
	SHOW(lseek(file, -1, SEEK_HOLE));
	SHOW(fstat(file, &found) == 0 && found.st_blocks == 24);
	memset(buffer, 'x', sizeof buffer);
	SHOW(pwrite(file, buffer, 40960, 0));
	SHOW(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 10000));
	SHOW(lseek(file, 0, SEEK_HOLE));
	SHOW(lseek(file, 8192, SEEK_DATA));
	see("file");
	SHOW(fallocate(file, FALLOC_FL_PUNCH_HOLE, 5000, 10000));
	SHOW(fallocate(file, FALLOC_FL_ZERO_RANGE, 100, 9000));
	see("file");
	SHOW(fallocate(file, 0, 2 << 20, 4096));
	SHOW(lseek(file, 0, SEEK_END));
	SHOW(fallocate(file, FALLOC_FL_KEEP_SIZE, 4 << 20, 4096));
	SHOW(lseek(file, 0, SEEK_END));
	SHOW(fallocate(file, 0, -1, 4096));
	SHOW(fallocate(file, 0, 0, 0));
	SHOW(fallocate(file, 0x80, 0, 10));
	SHOW(posix_fallocate(file, 0, 100));
	SHOW(fallocate(open("file", O_RDONLY), 0, 0, 10));
	int ends[2];
	SHOW(pipe(ends));
	SHOW(fallocate(ends[1], 0, 0, 10));
	SHOW(lseek(ends[0], 0, SEEK_SET));
	SHOW(ftruncate(ends[1], 0));
	SHOW(fsync(ends[1]));
	SHOW(ftruncate(file, 0));
	SHOW(fstat(file, &found) == 0 && found.st_blocks == 0);
}

static void copying(int count, char **arguments)
{
	(void)count, (void)arguments;
	for (size_t at = 0; at < sizeof buffer; at++)
		buffer[at] = (char)(at * 13 + at / 300);
	int from = open("from", O_RDWR | O_CREAT, 0644), to = open("to", O_RDWR | O_CREAT, 0644);
	SHOW(write(from, buffer, 100000));
	off_t start = 1000, end = 5000;
	SHOW(copy_file_range(from, &start, to, &end, 50000, 0));
	printf("%ld %ld %ld %ld\n", (long)start, (long)end, (long)lseek(from, 0, SEEK_CUR), (long)lseek(to, 0, SEEK_CUR));
	see("to");
	SHOW(lseek(from, 99000, SEEK_SET));
	SHOW(copy_file_range(from, NULL, to, NULL, 50000, 0));
	SHOW(copy_file_range(from, NULL, to, NULL, 50000, 0));
	see("to");
	start = 0, end = 10;
	SHOW(copy_file_range(from, &start, from, &end, 100, 0));
	start = 0, end = 200;
	SHOW(copy_file_range(from, &start, from, &end, 100, 0));
	see("from");
	start = -1;
	SHOW(copy_file_range(from, &start, to, NULL, 10, 0));
	SHOW(copy_file_range(from, NULL, to, NULL, 10, 1));
	SHOW(copy_file_range(open("from", O_WRONLY), NULL, to, NULL, 10, 0));
	SHOW(copy_file_range(from, NULL, open("to", O_RDONLY), NULL, 10, 0));
	SHOW(copy_file_range(from, NULL, open("to", O_WRONLY | O_APPEND), NULL, 10, 0));
	SHOW(copy_file_range(open(".", O_RDONLY), NULL, to, NULL, 10, 0));
	int ends[2];
	SHOW(pipe(ends));
	SHOW(copy_file_range(from, NULL, ends[1], NULL, 10, 0));
	start = 50;
	SHOW(sendfile(to, from, &start, 300));
	printf("%ld\n", (long)start);
	SHOW(sendfile(ends[1], from, &start, 300));
	SHOW(read(ends[0], buffer, sizeof buffer));
	SHOW(lseek(from, 99990, SEEK_SET));
	SHOW(sendfile(to, from, NULL, 300));
	SHOW(sendfile(to, from, NULL, 300));
	SHOW(sendfile(to, ends[0], NULL, 300));
	SHOW(sendfile(open("to", O_WRONLY | O_APPEND), from, NULL, 300));
	SHOW(sendfile(to, open(".", O_RDONLY), NULL, 300));
	see("to");
}

static void permissions(int count, char **arguments)
{
	(void)count, (void)arguments;
	umask(0);
	put("file", "text"), mkdir("closed", 0700), put("closed/inside", "x"), mkdir("sticky", 01777), put("sticky/roots", "x");
	mkdir("group", 02775), symlink("file", "link"), put("theirs", "x"), put("secret", "s");
	SHOW(chmod("file", 04755));
	SHOW(chown("file", 5, 6));
	status("file");
	SHOW(chmod("file", 07777));
	SHOW(chown("file", -1, -1));
	status("file");
	SHOW(chmod("none", 0600));
	SHOW(fchmodat(AT_FDCWD, "link", 0640, 0));
	SHOW(lchown("link", 7, 8));
	status("link"), status("file");
	SHOW(chown("group", 1000, 1000));
	SHOW(chmod("group", 02775));
	SHOW(open("group/inherits", O_CREAT | O_WRONLY, 0666));
	SHOW(mkdir("group/inherits2", 0700));
	status("group/inherits"), status("group/inherits2");
	SHOW(chown("theirs", 1000, 1000));
	SHOW(chmod("theirs", 0640));
	SHOW(chmod("secret", 0600));
	SHOW(chmod("closed", 0700));
	SHOW(chmod(".", 0777));
	int opened = open("secret", O_RDWR);
	gid_t groups[] = {2000, 1000};
	SHOW(syscall(SYS_setgroups, 1, groups));
	SHOW(syscall(SYS_setresgid, 1001, 1001, 1001));
	SHOW(syscall(SYS_setresuid, 1000, 1000, 0));
	SHOW(open("secret", O_RDONLY));
	SHOW(open("secret", O_WRONLY | O_TRUNC));
	SHOW(write(opened, "S", 1));
	SHOW(open("closed/inside", O_RDONLY));
	SHOW(open("closed", O_RDONLY));
	SHOW(access("closed", X_OK));
	SHOW(access("secret", F_OK));
	SHOW(access("theirs", R_OK | W_OK));
	SHOW(access("theirs", X_OK));
	SHOW(stat("closed/inside", &(struct stat){0}));
	SHOW(chdir("closed"));
	SHOW(open("theirs", O_RDWR));
	SHOW(open("new", O_RDWR | O_CREAT, 0600));
	status("new");
	SHOW(unlink("sticky/roots"));
	SHOW(rename("sticky/roots", "sticky/mine"));
	SHOW(open("sticky/mine", O_RDWR | O_CREAT, 0600));
	SHOW(unlink("sticky/mine"));
	SHOW(unlink("secret"));
	SHOW(chmod("file", 0600));
	SHOW(chown("theirs", 0, -1));
	SHOW(chown("theirs", -1, 2000));
	SHOW(chown("theirs", -1, 3000));
	SHOW(chown("theirs", 1000, 1001));
	SHOW(chmod("theirs", 06755));
	status("theirs");
	SHOW(chown("theirs", -1, 2000));
	SHOW(chmod("theirs", 06755));
	status("theirs");
	int theirs = open("theirs", O_WRONLY);
	SHOW(write(theirs, "y", 1));
	status("theirs");
	SHOW(utimensat(AT_FDCWD, "file", NULL, 0));
	struct timespec times[2] = {{5, 0}, {6, 0}};
	SHOW(utimensat(AT_FDCWD, "file", times, 0));
	SHOW(mknod("device", S_IFCHR | 0600, 0x103));
	SHOW(mknod("fifo", S_IFIFO | 0600, 0));
	SHOW(chroot("."));
	SHOW(mkdir("own", 0000));
	SHOW(open("own/x", O_CREAT | O_RDWR, 0600));
	SHOW(rmdir("own"));
	SHOW(mkdir("closed/x", 0700));
	SHOW(rename("new", "closed/new"));
	SHOW(open("new", O_RDONLY | O_NOATIME));
	SHOW(open("file", O_RDONLY | O_NOATIME));
	SHOW(syscall(SYS_setresuid, -1, 0, -1));
	SHOW(open("secret", O_RDONLY));
	SHOW(geteuid());
	SHOW(getuid());
	SHOW(access("theirs", W_OK));
	SHOW(access("sticky/roots", W_OK));
	SHOW(faccessat(AT_FDCWD, "sticky/roots", W_OK, AT_EACCESS));
	SHOW(unlink("sticky/roots"));
}

static void times(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("file", "text"), symlink("file", "link"), mkdir("d", 0700);
	struct stat found, before;
	struct timespec set[2] = {{100, 123456789}, {200, 987654321}};
	SHOW(utimensat(AT_FDCWD, "file", set, 0));
	SHOW(stat("file", &found));
	printf("%ld.%09ld %ld.%09ld\n", (long)found.st_atime, found.st_atim.tv_nsec, (long)found.st_mtime, found.st_mtim.tv_nsec);
	set[0].tv_nsec = UTIME_OMIT, set[1].tv_nsec = 5, set[1].tv_sec = -7;
	SHOW(utimensat(AT_FDCWD, "link", set, AT_SYMLINK_NOFOLLOW));
	SHOW(lstat("link", &found) == 0 && found.st_mtime == -7 && found.st_mtim.tv_nsec == 5);
	set[1].tv_nsec = 1000000000;
	SHOW(utimensat(AT_FDCWD, "file", set, 0));
	set[0].tv_nsec = set[1].tv_nsec = UTIME_OMIT;
	SHOW(utimensat(AT_FDCWD, "none", set, 0));
	set[0].tv_nsec = set[1].tv_nsec = UTIME_NOW;
	SHOW(utimensat(AT_FDCWD, "file", set, 0));
	SHOW(stat("file", &found) == 0 && found.st_atime > 1600000000 && found.st_mtime == found.st_atime);
	int file = open("file", O_RDWR);
	set[0] = (struct timespec){10, 0}, set[1] = (struct timespec){20, 0};
	SHOW(futimens(file, set));
	SHOW(fstat(file, &found) == 0 && found.st_atime == 10 && found.st_mtime == 20 && found.st_ctime > 1600000000);
	SHOW(read(file, buffer, 1));
	SHOW(fstat(file, &found) == 0 && found.st_atime > 1600000000 && found.st_mtime == 20);
	before = found;
	SHOW(write(file, "x", 1));
	SHOW(fstat(file, &found) == 0 && found.st_mtime > 1600000000 && found.st_ctime >= before.st_ctime);
	struct timeval old[2] = {{30, 500000}, {40, 0}};
	SHOW(utimes("file", old));
	SHOW(stat("file", &found) == 0 && found.st_atim.tv_nsec == 500000000 && found.st_mtime == 40);
	old[0].tv_usec = 1000000;
	SHOW(utimes("file", old));
	set[0] = set[1] = (struct timespec){50, 0};
	SHOW(utimensat(AT_FDCWD, "d", set, 0));
	put("d/new", "x");
	SHOW(stat("d", &found) == 0 && found.st_mtime > 1600000000);
	SHOW(utimensat(AT_FDCWD, "d", set, 0));
	SHOW(chmod("d/new", 0600));
	SHOW(stat("d", &found) == 0 && found.st_mtime == 50);
	SHOW(unlink("d/new"));
	SHOW(stat("d", &found) == 0 && found.st_mtime > 1600000000);
	struct statx more;
	SHOW(statx(AT_FDCWD, "file", 0, STATX_BASIC_STATS, &more));
	printf("%d %d\n", (more.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS, more.stx_mtime.tv_sec == 40);
	SHOW(statx(file, "", AT_EMPTY_PATH, STATX_SIZE, &more) == 0 && more.stx_size == 4);
	SHOW(statx(AT_FDCWD, "file", 0, 1u << 31, &more));
	SHOW(statx(AT_FDCWD, "file", 1, STATX_ALL, &more));
}

static void attributes(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("file", "text"), mkdir("d", 0700), symlink("file", "link");
	int file = open("file", O_RDWR);
	SHOW(setxattr("file", "user.one", "first", 5, 0));
	SHOW(fsetxattr(file, "user.two", "", 0, XATTR_CREATE));
	SHOW(setxattr("file", "user.one", "again", 5, XATTR_CREATE));
	SHOW(setxattr("file", "user.three", "x", 1, XATTR_REPLACE));
	SHOW(setxattr("link", "user.one", "changed", 7, XATTR_REPLACE));
	SHOW(getxattr("file", "user.one", buffer, 100));
	SHOW(getxattr("file", "user.one", buffer, 0));
	SHOW(getxattr("file", "user.one", buffer, 3));
	SHOW(fgetxattr(file, "user.two", buffer, 3));
	SHOW(getxattr("file", "user.none", buffer, 3));
	SHOW(getxattr("file", "nonsense", buffer, 3));
	SHOW(getxattr("file", "", buffer, 3));
	SHOW(getxattr("none", "user.one", buffer, 3));
	SHOW(lsetxattr("link", "user.one", "x", 1, 0));
	SHOW(lgetxattr("link", "user.one", buffer, 10));
	SHOW(setxattr("d", "user.name", "directory", 9, 0));
	SHOW(listxattr("d", buffer, sizeof buffer));
	SHOW(listxattr("d", buffer, 0));
	SHOW(listxattr("d", buffer, 2));
	SHOW(flistxattr(file, buffer, sizeof buffer));
	SHOW(removexattr("file", "user.two"));
	SHOW(removexattr("file", "user.two"));
	SHOW(listxattr("file", buffer, sizeof buffer));
	SHOW(setxattr("file", "user.one", "x", 1, 7));
	SHOW(setxattr("file", "user.", "x", 1, 0));
	SHOW(setxattr("file", "trusted.root", "x", 1, 0));
	SHOW(getxattr("file", "trusted.root", buffer, 10));
	memset(buffer, 'a', 300), buffer[300] = 0;
	SHOW(setxattr("file", buffer, "x", 1, 0) == 0 ? 0 : errno);
	SHOW(setxattr("file", "user.long", buffer, 70000, 0));
	SHOW(fgetxattr(open("file", O_PATH), "user.one", buffer, 10));
}

static const struct part PARTS[] = {
	{"writing", writing}, {"holes", holes}, {"copying", copying}, {"permissions", permissions}, {"times", times}, {"attributes", attributes}, {0},
};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
