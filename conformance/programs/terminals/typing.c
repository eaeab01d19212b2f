// SPDX-License-Identifier: MIT OR Apache-2.0
// Input and signals of a program at a terminal.
#define _GNU_SOURCE
#include "holds.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <termios.h>
#include <unistd.h>

static volatile sig_atomic_t came;

static void note(int signal)
{
	came = signal;
}

static void handle(int signal, int flags)
{
	struct sigaction action = {.sa_handler = note, .sa_flags = flags};
	sigaction(signal, &action, NULL);
}

// Reads once and prints the data, with newlines as in C.
static int show(void)
{
	char line[300];
	ssize_t length = read(0, line, sizeof line);
	if (length < 0)
		printf("%s\n", strerror(errno));
	else if (length == 0)
		printf("the end\n");
	else {
		printf("read ");
		for (ssize_t at = 0; at < length; at++)
			line[at] == '\n' ? printf("\\n") : printf(line[at] & ~0x1f && line[at] != 127 ? "%c" : "<%02x>", line[at]);
		printf("\n");
	}
	return (int)length;
}

static void lines(int count, char **words)
{
	(void)count, (void)words;
	printf("ready\n");
	while (show() > 0)
		;
	show();
	show();
}

static void show_keys(const char *what)
{
	char keys[100];
	if (what)
		printf("%s\r\n", what);
	ssize_t length = read(0, keys, sizeof keys);
	for (ssize_t at = 0; at < length; at++)
		printf("%02x", (unsigned char)keys[at]);
	printf("%s\r\n", length ? "" : "nothing");
}

static void keys(int count, char **words)
{
	(void)count, (void)words;
	struct termios before, raw;
	HOLDS(tcgetattr(0, &before) == 0);
	raw = before;
	cfmakeraw(&raw);
	HOLDS(tcsetattr(0, TCSANOW, &raw) == 0);
	printf("ready\r\n");
	for (int at = 0; at < 5; at++)
		show_keys(NULL);
	raw.c_cc[VMIN] = 3;
	tcsetattr(0, TCSANOW, &raw);
	show_keys("three at least");
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 5;
	tcsetattr(0, TCSANOW, &raw);
	show_keys("half a second");
	struct pollfd descriptor = {.fd = 0, .events = POLLIN};
	HOLDS(poll(&descriptor, 1, -1) == 1 && descriptor.revents == POLLIN);
	show_keys(NULL);
	HOLDS(poll(&descriptor, 1, 20) == 0);
	raw.c_cc[VTIME] = 0;
	tcsetattr(0, TCSANOW, &raw);
	show_keys("at once");
	tcsetattr(0, TCSANOW, &before);
}

static void await(int wanted)
{
	sigset_t none;
	sigemptyset(&none);
	while (came != wanted)
		sigsuspend(&none);
	printf("signal %d\n", wanted);
	came = 0;
}

static void signals(int count, char **words)
{
	(void)count, (void)words;
	static const int typed[] = {SIGINT, SIGQUIT, SIGTSTP};
	sigset_t set;
	sigemptyset(&set);
	for (int at = 0; at < 3; at++) {
		handle(typed[at], SA_RESTART);
		sigaddset(&set, typed[at]);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
	printf("ready\n");
	for (int at = 0; at < 3; at++)
		await(typed[at]);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	printf("computing\n");
	while (!came)
		;
	printf("signal %d\n", came);
	struct itimerval soon = {.it_value = {0, 50000}};
	for (int at = 0; at < 2; at++) {
		handle(SIGALRM, at ? SA_RESTART : 0);
		came = 0;
		setitimer(ITIMER_REAL, &soon, NULL);
		printf("waiting for a line\n");
		show();
		printf("signal %d\n", came);
	}
}

static void show_window(const char *why)
{
	struct winsize size;
	ioctl(1, TIOCGWINSZ, &size);
	printf("%s%d rows %d columns\n", why, size.ws_row, size.ws_col);
}

static void window(int count, char **words)
{
	(void)count, (void)words;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	handle(SIGWINCH, 0);
	show_window("");
	for (int at = 0; at < 2; at++) {
		int signal;
		sigwait(&set, &signal);
		show_window(signal == SIGWINCH ? "signal 28: " : "");
	}
	struct winsize size = {.ws_row = 3, .ws_col = 4};
	HOLDS(ioctl(0, TIOCSWINSZ, &size) == 0);
	show_window("own: ");
	HOLDS(ioctl(0, TIOCSWINSZ, &size) == 0 && sigpending(&set) == 0 && sigismember(&set, SIGWINCH));
}

static void settings(int count, char **words)
{
	(void)count, (void)words;
	struct termios given, set, found;
	HOLDS(isatty(0) && isatty(1) && isatty(2) && tcgetattr(0, &given) == 0);
	HOLDS((given.c_lflag & (ICANON | ECHO | ISIG | IEXTEN)) == (ICANON | ECHO | ISIG | IEXTEN));
	HOLDS((given.c_iflag & (ICRNL | IXON)) == (ICRNL | IXON) && (given.c_oflag & (OPOST | ONLCR)) == (OPOST | ONLCR));
	HOLDS(given.c_cc[VINTR] == 3 && given.c_cc[VERASE] == 127 && given.c_cc[VEOF] == 4 && given.c_cc[VMIN] == 1);
	set = given;
	set.c_lflag &= ~(ICANON | ECHO);
	set.c_cc[VMIN] = 5;
	HOLDS(tcsetattr(1, TCSADRAIN, &set) == 0 && tcgetattr(0, &found) == 0);
	HOLDS(found.c_lflag == set.c_lflag && found.c_cc[VMIN] == 5);
	HOLDS(tcsetattr(0, TCSAFLUSH, &given) == 0);
	HOLDS(tcgetpgrp(0) == getpgrp() && tcgetsid(0) == getsid(0));
	FAILS(ioctl(0, 0x1234, 0), ENOTTY);
	FAILS(tcflush(0, 77), EINVAL);
	FAILS(ioctl(0, TCGETS, 8), EFAULT);
	printf("ready\n");
	struct pollfd descriptor = {.fd = 0, .events = POLLIN | POLLOUT};
	while (poll(&descriptor, 1, -1) == 1 && !(descriptor.revents & POLLIN))
		;
	int waiting = 0;
	HOLDS(ioctl(0, FIONREAD, &waiting) == 0 && waiting == 12);
	HOLDS(tcflush(0, TCIFLUSH) == 0 && ioctl(0, FIONREAD, &waiting) == 0 && waiting == 0);
	HOLDS(tcdrain(1) == 0 && tcflow(1, TCOON) == 0 && tcsendbreak(1, 0) == 0);
	printf("done\n");
}

static const struct part parts[] = {{"lines", lines}, {"keys", keys}, {"signals", signals}, {"window", window}, {"settings", settings}, {0}};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	return run_part(parts, count, arguments);
}
