// SPDX-License-Identifier: MIT OR Apache-2.0
// Errors of calls with invalid arguments, before or after the check for a capability that a cell's root lacks.
#define _GNU_SOURCE
#include "show.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *volatile nowhere = (void *)8;

static void ask(void)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	SHOW(syscall(SYS_vhangup));
	SHOW(syscall(SYS_bpf, 1000, page, 16));
	SHOW(syscall(SYS_bpf, -1, page, 16));
	SHOW(syscall(SYS_bpf, 0, page, 4097));
	SHOW(syscall(SYS_bpf, 0, nowhere, 16));
	page[4095] = 1;
	SHOW(syscall(SYS_bpf, 0, page, 4096));
	page[4095] = 0;
	SHOW(syscall(SYS_bpf, 1000, page, 4096));
	SHOW(syscall(SYS_swapoff, nowhere));
	SHOW(syscall(SYS_swapoff, "/not-there"));
	SHOW(syscall(SYS_swapon, "/not-there", 0));
	SHOW(syscall(SYS_swapon, "/not-there", 1 << 30));
	SHOW(syscall(SYS_acct, "/not-there"));
	SHOW(syscall(SYS_reboot, 1, 2, 3, NULL));
	SHOW(syscall(SYS_sethostname, "name", -1));
	SHOW(syscall(SYS_sethostname, nowhere, 4));
	SHOW(syscall(SYS_setdomainname, "name", 65));
	SHOW(syscall(SYS_syslog, 99, NULL, 0));
	SHOW(syscall(SYS_syslog, 3, NULL, 5));
	SHOW(syscall(SYS_pivot_root, "/not-there", "/"));
	SHOW(syscall(SYS_mount, "none", "/not-there", "proc", 0, NULL));
	SHOW(syscall(SYS_umount2, "/not-there", 0));
	SHOW(syscall(SYS_umount2, "/not-there", 1 << 20));
	SHOW(syscall(SYS_settimeofday, nowhere, NULL));
}

int main(void)
{
	ask();
	// And of who is nobody.
	if (setgid(77) != 0 || setuid(77) != 0)
		return 1;
	ask();
	return 0;
}
