// SPDX-License-Identifier: MIT OR Apache-2.0
// Where one stands who moves to the end of a file of /proc or /sys: most have none to go by.
#include "show.h"

#include <fcntl.h>
#include <unistd.h>

int main(void)
{
	static const char *const paths[] = {
		"/proc/cmdline", "/proc/cpuinfo", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/version", "/proc/self/auxv", "/proc/self/cgroup",
		"/proc/self/cmdline", "/proc/self/comm", "/proc/self/environ", "/proc/self/io", "/proc/self/limits", "/proc/self/loginuid", "/proc/self/maps",
		"/proc/self/mountinfo", "/proc/self/oom_score", "/proc/self/oom_score_adj", "/proc/self/personality", "/proc/self/sessionid", "/proc/self/smaps",
		"/proc/self/stat", "/proc/self/statm", "/proc/self/status", "/proc/self/timerslack_ns", "/proc/self/uid_map", "/proc/self/wchan", "/proc/self/fdinfo/0",
		"/proc/net/tcp", "/proc/net/udp", "/proc/net/unix", "/proc/tty/drivers", "/proc/sys/kernel/hostname", "/proc/sys/kernel/osrelease",
		"/proc/sys/kernel/pid_max", "/proc/sys/kernel/random/boot_id", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/file-max", "/proc/sysvipc/msg",
		"/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible"};
	for (size_t at = 0; at < sizeof paths / sizeof *paths; at++) {
		int fd = open(paths[at], O_RDONLY);
		if (fd < 0)
			continue;
		puts(paths[at]);
		SHOW(lseek(fd, 0, SEEK_END));
		SHOW(lseek(fd, 5, SEEK_END));
		SHOW(lseek(fd, 3, SEEK_SET));
		SHOW(lseek(fd, 3, SEEK_CUR));
		SHOW(lseek(fd, -7, SEEK_CUR));
		SHOW(lseek(fd, -5000, SEEK_END));
		SHOW(lseek(fd, 0, 9));
		close(fd);
	}
	return 0;
}
