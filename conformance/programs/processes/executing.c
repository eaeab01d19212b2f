// SPDX-License-Identifier: MIT OR Apache-2.0
// All ways to execute programs and scripts, in an empty directory: their arguments, and the errors.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// A way to execute a file; returns only on failure.
typedef void way(const void *what);

// Executes in a child, and prints its error or its end.
static void run(const char *title, way *way, const void *what)
{
	printf("%s\n", title);
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		way(what);
		printf("%s\n", strerror(errno));
		fflush(stdout);
		_exit(99);
	}
	int status;
	waitpid(child, &status, 0);
	printf("-> %x\n", (unsigned)status);
}

static void words(const void *what)
{
	char *const *list = what;
	execv(list[0], list);
}
#define WORDS(...) run(#__VA_ARGS__, words, (const char *[]){__VA_ARGS__, NULL})

static char *const NAMED[] = {"name", "argument", NULL};

static void one_long(const void *bytes)
{
	size_t size = (size_t)bytes;
	char *word = calloc(size + 1, 1);
	execl("/bin/true", "true", memset(word, 'x', size), NULL);
}

static void many(const void *count)
{
	char **list = calloc((size_t)count + 1, sizeof *list);
	for (size_t at = 0; at < (size_t)count; at++)
		list[at] = "0123456789012345";
	execv("/bin/true", list);
}

static void with_small_stack(const void *count)
{
	setrlimit(RLIMIT_STACK, &(struct rlimit){1 << 20, RLIM_INFINITY});
	many(count);
}

static void by_descriptor(const void *path)
{
	syscall(SYS_execveat, open(path, O_RDONLY), "", NAMED, environ, AT_EMPTY_PATH);
}

static void by_closing_descriptor(const void *path)
{
	syscall(SYS_execveat, open(path, O_RDONLY | O_CLOEXEC), "", NAMED, environ, AT_EMPTY_PATH);
}

static void below_descriptor(const void *path)
{
	syscall(SYS_execveat, open(".", O_RDONLY | O_DIRECTORY), path, NAMED, environ, 0);
}

static void without_following(const void *path)
{
	syscall(SYS_execveat, AT_FDCWD, path, NAMED, environ, AT_SYMLINK_NOFOLLOW);
}

static void with_unknown_flag(const void *path)
{
	syscall(SYS_execveat, AT_FDCWD, path, NAMED, environ, 0x8000);
}

static void with_nothing(const void *path)
{
	syscall(SYS_execve, path, NULL, NULL);
}

static void without_arguments(const void *path)
{
	execve(path, (char *[]){NULL}, environ);
}

static void with_bad_arguments(const void *path)
{
	syscall(SYS_execve, path, (char **)8, NULL);
}

static void with_a_bad_argument(const void *path)
{
	syscall(SYS_execve, path, (char *[]){"name", (char *)16, NULL}, NULL);
}

static void put(const char *name, const char *text, mode_t mode)
{
	int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (write(file, text, strlen(text)) < 0 || fchmod(file, mode) || close(file))
		perror(name);
}

static void copy_of_self(const char *to)
{
	static char bytes[1 << 20];
	int from = open("/proc/self/exe", O_RDONLY), file = open(to, O_CREAT | O_WRONLY, 0755);
	for (ssize_t count; (count = read(from, bytes, sizeof bytes)) > 0;)
		if (write(file, bytes, (size_t)count) < 0)
			perror(to);
	close(from), close(file);
}

// Prints what a program sees of its start.
static int shown(int count, char **arguments)
{
	char text[4096];
	for (int at = 0; at < count; at++)
		printf("[%s] ", arguments[at]);
	ssize_t length = readlink("/proc/self/exe", text, sizeof text - 1);
	text[length < 0 ? 0 : length] = 0;
	printf("%s ", strrchr(text, '/') ? strrchr(text, '/') : "?");
	static const char *const FILES[] = {"/proc/self/comm", "/proc/self/cmdline"};
	for (int at = 0; at < 2; at++) {
		int file = open(FILES[at], O_RDONLY);
		length = read(file, text, sizeof text);
		for (ssize_t byte = 0; byte < length; byte++)
			putchar(text[byte] ? text[byte] : '|');
		close(file);
	}
	putchar('\n');
	return 0;
}

static void scripts(void)
{
	put("text", "just words\n", 0755), put("empty", "", 0755), put("plain", "#!/bin/sh\n", 0644);
	put("shell", "#!/bin/sh\necho \"$0\" \"$@\"\n", 0755), put("missing", "#!/no/such\n", 0755), put("forbidden", "#!/etc/passwd\n", 0755);
	put("of-text", "#!./text\n", 0755), put("blank", "#!  \n", 0755), put("directory", "#!/tmp\n", 0755), put("loop", "#!loop\n", 0755);
	put("mine", "#!./copy show \t\n", 0755), put("nested1", "#!/bin/echo nested1\n", 0755);
	for (char digit = '2'; digit < '9'; digit++) {
		char name[] = "nested0", line[] = "#!nested0 more\n";
		name[6] = digit, line[8] = digit - 1;
		put(name, line, 0755);
	}
	WORDS("./shell", "a b", ""), WORDS("mine", "x"), WORDS("text"), WORDS("empty"), WORDS("plain"), WORDS("missing"), WORDS("forbidden");
	WORDS("of-text"), WORDS("blank"), WORDS("directory"), WORDS("loop"), WORDS("/no/such"), WORDS("shell/x"), WORDS(""), WORDS("/tmp");
	WORDS("nested1"), WORDS("nested3"), WORDS("nested5"), WORDS("nested6"), WORDS("nested8");
}

int main(int count, char **arguments)
{
	if (count > 1 && !strcmp(arguments[1], "show"))
		return shown(count, arguments);
	if (count > 1)
		return puts("called") != 7;
	copy_of_self("copy");
	if (symlink("copy", "link"))
		perror("link");
	WORDS("./copy", "show", "a b"), WORDS("./link", "show");
	scripts();
	run("a long argument", one_long, (void *)131071), run("one too long", one_long, (void *)131072);
	run("many arguments", many, (void *)60000), run("too many", many, (void *)90000), run("too many for a small stack", with_small_stack, (void *)20000);
	run("by descriptor", by_descriptor, "/bin/echo"), run("a script", by_descriptor, "shell"), run("a directory", by_descriptor, ".");
	run("by descriptor that is closed", by_closing_descriptor, "/bin/echo"), run("a script", by_closing_descriptor, "shell");
	run("below a directory", below_descriptor, "shell"), run("a link", below_descriptor, "link");
	run("a link itself", without_following, "link"), run("no link", without_following, "shell"), run("an unknown flag", with_unknown_flag, "shell");
	run("nothing", with_nothing, "/bin/echo"), run("no arguments", without_arguments, "/bin/echo"), run("for a script", without_arguments, "shell");
	run("bad arguments", with_bad_arguments, "/bin/echo"), run("a bad argument", with_a_bad_argument, "/bin/echo");
	int file = open("copy", O_WRONLY);
	WORDS("./copy", "show");
	close(file);
	WORDS("./copy", "show");
	file = open("/proc/self/exe", O_WRONLY);
	printf("opening what runs: %s\n", file < 0 ? strerror(errno) : "done");
	return 0;
}
