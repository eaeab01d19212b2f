// SPDX-License-Identifier: MIT OR Apache-2.0
// Creating, removing and renaming files. Starts in an empty directory, and prints the results of system calls.
#define _GNU_SOURCE
#include "tree.h"

#include <sys/syscall.h>

static void making(int count, char **arguments)
{
	(void)count, (void)arguments;
	umask(0);
	SHOW(open("file", O_RDWR | O_CREAT | O_EXCL, 0640));
	SHOW(open("file", O_RDWR | O_CREAT | O_EXCL, 0640));
	SHOW(open("file", O_RDWR | O_CREAT, 0600));
	SHOW(open("file/", O_RDWR | O_CREAT, 0600));
	SHOW(open("new/", O_RDWR | O_CREAT, 0600));
	SHOW(open("none/file", O_RDWR | O_CREAT, 0600));
	SHOW(open("file/x", O_RDWR | O_CREAT, 0600));
	SHOW(open(".", O_RDWR | O_CREAT, 0600));
	SHOW(open("..", O_RDONLY | O_CREAT | O_EXCL, 0600));
	SHOW(open("/", O_RDONLY | O_CREAT, 0600));
	SHOW(open("x", O_RDONLY | O_CREAT | O_DIRECTORY, 0600));
	SHOW(open("y", O_RDONLY | O_CREAT, 0));
	SHOW(mkdir("directory", 07777));
	SHOW(mkdir("directory", 0700));
	SHOW(mkdir("file", 0700));
	SHOW(mkdir("directory/.", 0700));
	SHOW(mkdir("directory/..", 0700));
	SHOW(mkdir("/", 0700));
	SHOW(mkdir("", 0700));
	SHOW(mkdir("slashes///", 0751));
	SHOW(mkdir("none/directory", 0700));
	SHOW(mkdir("file/directory", 0700));
	SHOW(symlink("file", "link"));
	SHOW(symlink("nothing", "dangling"));
	SHOW(symlink("", "empty"));
	SHOW(symlink("x", "link"));
	SHOW(symlink("x", "new/"));
	SHOW(symlink("self", "self"));
	SHOW(open("self", O_RDONLY));
	SHOW(open("link", O_RDONLY | O_NOFOLLOW));
	SHOW(open("link", O_PATH | O_NOFOLLOW));
	SHOW(open("dangling", O_RDONLY));
	SHOW(open("dangling", O_RDWR | O_CREAT | O_EXCL, 0600));
	SHOW(open("dangling", O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
	SHOW(open("dangling", O_RDWR | O_CREAT, 0604));
	SHOW(mkdir("link", 0700));
	SHOW(mkdir("self/", 0700));
	SHOW(mknod("fifo", S_IFIFO | 0622, 0));
	SHOW(mknod("regular", S_IFREG | 0604, 0));
	SHOW(mknod("plain", 0600, 0));
	SHOW(mknod("bad", S_IFDIR | 0600, 0));
	SHOW(mknod("bad", S_IFLNK | 0600, 0));
	SHOW(mknod("bad", 0170000 | 0600, 0));
	SHOW(mknod("socket", S_IFSOCK | 0600, 0));
	SHOW(open("socket", O_RDONLY));
	SHOW(mkfifo("fifo", 0600));
	umask(027);
	SHOW(umask(022));
	SHOW(mkdir("masked", 0777));
	SHOW(creat("masked/file", 0666));
	static const char *const NAMES[] = {"file", "directory", "slashes", "link", "dangling", "nothing", "fifo", "regular", "plain",
		"socket", "masked", "masked/file", "y", "self", "bad"};
	for (size_t at = 0; at < sizeof NAMES / sizeof *NAMES; at++)
		status(NAMES[at]);
	list(".");
	list("masked");
	list("file");
	list("none");
	memset(buffer, 'n', 256), buffer[255] = 0;
	SHOW(mkdir(buffer, 0700) == 0);
	buffer[255] = 'n', buffer[256] = 0;
	SHOW(mkdir(buffer, 0700) == 0 ? 0 : errno);
	memset(buffer, '/', 5000), buffer[5000] = 0;
	SHOW(mkdir(buffer, 0700) == 0 ? 0 : errno);
	SHOW(mkdir(nowhere, 0700));
	SHOW(open("tmp/../file", O_RDONLY));
	SHOW(open("masked/../file", O_RDONLY));
	SHOW(access("masked/./../masked//file", R_OK | W_OK));
	SHOW(access("file", X_OK));
	SHOW(access("file", 8));
}

static void removing(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("file", "text"), mkdir("directory", 0700), mkdir("full", 0700), put("full/inside", "x"), symlink("directory", "link");
	SHOW(unlink("none"));
	SHOW(unlink("file/"));
	SHOW(unlink("directory"));
	SHOW(unlink("directory/"));
	SHOW(unlink("link/"));
	SHOW(unlink("."));
	SHOW(unlink(".."));
	SHOW(unlink("/"));
	SHOW(unlink("none/x"));
	SHOW(unlink("file/x"));
	SHOW(rmdir("file"));
	SHOW(rmdir("file/"));
	SHOW(rmdir("none"));
	SHOW(rmdir("link"));
	SHOW(rmdir("link/"));
	SHOW(rmdir("full"));
	SHOW(rmdir("."));
	SHOW(rmdir("directory/."));
	SHOW(rmdir("directory/.."));
	SHOW(rmdir("full/.."));
	SHOW(rmdir("/"));
	SHOW(unlinkat(AT_FDCWD, "full", AT_REMOVEDIR));
	SHOW(unlinkat(AT_FDCWD, "full", 1));
	int file = open("file", O_RDWR), here = open("directory", O_RDONLY | O_DIRECTORY);
	SHOW(unlink("file"));
	struct stat found;
	SHOW(fstat(file, &found) == 0 && found.st_nlink == 0);
	SHOW(read(file, buffer, 10));
	SHOW(write(file, "more", 4));
	SHOW(pread(file, buffer, 10, 0));
	put("file", "another");
	SHOW(pread(file, buffer, 10, 0));
	SHOW(rmdir("directory/"));
	SHOW(fstat(here, &found) == 0 && found.st_nlink == 0);
	SHOW(openat(here, "x", O_WRONLY | O_CREAT, 0600));
	SHOW(mkdirat(here, "x", 0700));
	SHOW(openat(here, ".", O_RDONLY));
	SHOW(syscall(SYS_getdents64, here, buffer, sizeof buffer));
	SHOW(mkdir("directory", 0700));
	SHOW(openat(here, "x", O_WRONLY | O_CREAT, 0600));
	SHOW(chdir("directory"));
	SHOW(rmdir("../directory"));
	SHOW(getcwd(buffer, sizeof buffer) ? 0 : -1);
	SHOW(open("x", O_WRONLY | O_CREAT, 0600));
	SHOW(open(".", O_RDONLY) > 0);
	SHOW(chdir(".."));
	SHOW(unlink("full/inside"));
	SHOW(rmdir("full"));
	SHOW(unlink("link"));
	list(".");
}

static void renaming(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("one", "first"), put("other", "second"), mkdir("d", 0700), mkdir("d/e", 0700), mkdir("empty", 0700), put("d/e/f", "deep");
	symlink("one", "link");
	SHOW(rename("none", "x"));
	SHOW(rename("one", "none/x"));
	SHOW(rename("one", "other/x"));
	SHOW(rename("one", "d"));
	SHOW(rename("d", "one"));
	SHOW(rename("one", "x/"));
	SHOW(rename("one/", "x"));
	SHOW(rename("d", "d/e/x"));
	SHOW(rename("d", "d/e"));
	SHOW(rename("d/e", "d"));
	SHOW(rename("empty", "d"));
	SHOW(rename("d", "empty"));
	SHOW(rename("empty", "again/"));
	SHOW(rename(".", "x"));
	SHOW(rename("again/..", "x"));
	SHOW(rename("one", "."));
	SHOW(rename("one", ".."));
	SHOW(rename("/", "x"));
	SHOW(rename("one", "one"));
	SHOW(rename("one", "other"));
	see("other"), see("one");
	SHOW(rename("link", "moved"));
	SHOW(rename("other", "moved"));
	see("moved");
	SHOW(rename("moved", "again/e/g"));
	see("again/e/g"), see("again/e/f");
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "again/e/g", AT_FDCWD, "again/e/f", RENAME_NOREPLACE));
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "again/e/g", AT_FDCWD, "again/e/f", RENAME_EXCHANGE));
	see("again/e/g"), see("again/e/f");
	mkdir("swap", 0700), put("swap/in", "swapped");
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "swap", AT_FDCWD, "again/e/f", RENAME_EXCHANGE));
	list("again/e"), see("swap"), see("again/e/f/in");
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "again", AT_FDCWD, "again/e", RENAME_EXCHANGE));
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "again/e", AT_FDCWD, "again", RENAME_EXCHANGE));
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "swap", AT_FDCWD, "none", RENAME_EXCHANGE));
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "swap", AT_FDCWD, "new", RENAME_NOREPLACE));
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "new", AT_FDCWD, ".", RENAME_NOREPLACE));
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "new", AT_FDCWD, "x", 64));
	SHOW(syscall(SYS_renameat2, AT_FDCWD, "new", AT_FDCWD, "x", RENAME_NOREPLACE | RENAME_EXCHANGE));
	int directory = open("again", O_RDONLY);
	SHOW(renameat(AT_FDCWD, "new", directory, "inside"));
	SHOW(renameat(directory, "inside", directory, "e/inside"));
	SHOW(rename("again/e", "top"));
	SHOW(chdir("top"));
	SHOW(chdir(".."));
	list("."), list("again"), list("top");
	int file = open("top/g", O_RDWR);
	SHOW(rename("top/g", "top/h"));
	SHOW(write(file, "more", 4));
	see("top/h");
	SHOW(link("top/h", "hard"));
	SHOW(rename("top/h", "hard"));
	list("top");
	see("hard");
}

static void linking(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct stat one, other;
	put("file", "text"), mkdir("d", 0700), symlink("file", "soft"), symlink("nothing", "dangling");
	SHOW(link("file", "hard"));
	SHOW(link("file", "hard"));
	SHOW(link("none", "x"));
	SHOW(link("d", "x"));
	SHOW(link("file", "none/x"));
	SHOW(link("file", "x/"));
	SHOW(link("file/", "x"));
	SHOW(link("file", "d/x"));
	SHOW(link("soft", "soft2"));
	SHOW(lstat("soft2", &one) == 0 && S_ISLNK(one.st_mode) && one.st_nlink == 2);
	SHOW(linkat(AT_FDCWD, "soft", AT_FDCWD, "followed", AT_SYMLINK_FOLLOW));
	SHOW(linkat(AT_FDCWD, "dangling", AT_FDCWD, "followed2", AT_SYMLINK_FOLLOW));
	SHOW(linkat(AT_FDCWD, "dangling", AT_FDCWD, "followed2", 0));
	SHOW(linkat(AT_FDCWD, "file", AT_FDCWD, "x", 0x4000));
	SHOW(stat("file", &one) == 0 && stat("followed", &other) == 0 && one.st_ino == other.st_ino && one.st_nlink == 4);
	int file = open("hard", O_WRONLY | O_APPEND);
	SHOW(write(file, " and more", 9));
	see("file"), see("d/x");
	SHOW(truncate("d/x", 2));
	see("hard");
	SHOW(unlink("file"));
	SHOW(stat("hard", &one) == 0 && one.st_nlink == 3);
	int temporary = open(".", O_TMPFILE | O_RDWR, 0640);
	SHOW(write(temporary, "kept", 4));
	char path[100];
	snprintf(path, sizeof path, "/proc/self/fd/%d", temporary);
	SHOW(linkat(AT_FDCWD, path, AT_FDCWD, "kept", AT_SYMLINK_FOLLOW));
	see("kept"), status("kept");
	SHOW(fstat(temporary, &one) == 0 && one.st_nlink == 1);
	temporary = open(".", O_TMPFILE | O_RDWR, 0600);
	SHOW(linkat(temporary, "", AT_FDCWD, "kept2", AT_EMPTY_PATH));
	temporary = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
	SHOW(linkat(temporary, "", AT_FDCWD, "kept3", AT_EMPTY_PATH));
	SHOW(open(".", O_TMPFILE | O_RDONLY, 0600));
	SHOW(open("hard", O_TMPFILE | O_RDWR, 0600));
	SHOW(open("none", O_TMPFILE | O_RDWR, 0600));
	int gone = open("kept2", O_RDONLY);
	SHOW(unlink("kept2"));
	SHOW(linkat(gone, "", AT_FDCWD, "x", AT_EMPTY_PATH));
	SHOW(readlink("soft", buffer, 3));
	SHOW(readlink("soft", buffer, sizeof buffer));
	SHOW(readlink("soft", buffer, 0));
	SHOW(readlink("d", buffer, 10));
	SHOW(readlink("none", buffer, 10));
	SHOW(readlink("soft", nowhere, 10));
	int name = open("soft", O_PATH | O_NOFOLLOW);
	SHOW(readlinkat(name, "", buffer, 10));
	SHOW(readlinkat(gone, "", buffer, 10));
	list("."), list("d");
}

static const struct part PARTS[] = {
	{"making", making}, {"removing", removing}, {"renaming", renaming}, {"linking", linking}, {0},
};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
