// SPDX-License-Identifier: MIT OR Apache-2.0
// Root without one capability: each part drops one and makes the calls that need it.
#define _GNU_SOURCE
#include "show.h"

#include <fcntl.h>
#include <mqueue.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { FSETID = 4, IPC_LOCK = 14, IPC_OWNER = 15, SYS_PTRACE = 19, SYS_ADMIN = 21, SYS_RESOURCE = 24, PERFMON = 38, OTHER = 77 };

// Gives up one capability for good, as far as it counts.
static void drop(int capability)
{
	unsigned header[2] = {0x20080522, 0}, sets[6];
	SHOW(syscall(SYS_capget, header, sets));
	for (int set = 0; set < 3; set++)
		sets[3 * (capability / 32) + set] &= ~(1U << capability % 32);
	SHOW(syscall(SYS_capset, header, sets));
}

static void mode(const char *path)
{
	struct stat status;
	stat(path, &status);
	printf("%s: %o\n", path, status.st_mode);
	fflush(stdout);
}

// A child that is another user and waits; or, of 0, one that is root with all that the program started with.
static pid_t other(int user)
{
	int ready[2];
	char byte;
	if (pipe(ready) != 0)
		exit(1);
	pid_t child = fork();
	if (child == 0) {
		if (user != 0 && (setgid((gid_t)user) != 0 || setuid((uid_t)user) != 0))
			exit(1);
		prctl(PR_SET_DUMPABLE, 1);
		prctl(PR_SET_PDEATHSIG, 9);
		if (write(ready[1], "", 1) != 1)
			exit(1);
		for (;;)
			pause();
	}
	if (read(ready[0], &byte, 1) != 1)
		exit(1);
	close(ready[0]);
	close(ready[1]);
	return child;
}

static void end(pid_t child)
{
	kill(child, 9);
	waitpid(child, NULL, 0);
}

static void set_group_id(void)
{
	int fd = open("program", O_RDWR | O_CREAT, 0755);
	SHOW(fchown(fd, 0, OTHER));
	SHOW(mkdir("directory", 0755));
	SHOW(chown("directory", 0, OTHER));
	SHOW(chmod("directory", 02777));
	for (int round = 0; round < 2; round++) {
		SHOW(fchmod(fd, 06755));
		mode("program");
		SHOW(write(fd, "x", 1));
		mode("program");
		SHOW(chmod("program", 06755));
		SHOW(ftruncate(fd, 0));
		mode("program");
		SHOW(chmod("program", 06745));
		SHOW(write(fd, "x", 1));
		mode("program");
		SHOW(chmod("program", 06755));
		SHOW(chown("program", 1, OTHER));
		mode("program");
		SHOW(chmod("program", 06745));
		SHOW(chown("program", 1, OTHER));
		mode("program");
		SHOW(chown("program", 0, OTHER));
		SHOW(close(open("directory/made", O_CREAT | O_RDWR, 02755)));
		mode("directory/made");
		SHOW(unlink("directory/made"));
		SHOW(mkdir("directory/below", 02755));
		mode("directory/below");
		SHOW(rmdir("directory/below"));
		SHOW(mknod("directory/made", S_IFREG | 02711, 0));
		mode("directory/made");
		SHOW(unlink("directory/made"));
		SHOW(chmod("directory", 02777));
		mode("directory");
		if (round == 0)
			drop(FSETID);
	}
	SHOW(close(fd));
	SHOW(unlink("program"));
	SHOW(rmdir("directory"));
}

static void objects(void)
{
	struct shmid_ds segment;
	struct msqid_ds queue;
	int child, status;
	int shared = shmget(IPC_PRIVATE, 4096, 0), semaphores = semget(IPC_PRIVATE, 1, 0), messages = msgget(IPC_PRIVATE, 0);
	char message[16] = {1};
	for (int round = 0; round < 2; round++) {
		// Another owner, who permits nobody anything.
		SHOW(shmat(shared, NULL, 0) == (void *)-1 ? -1 : 0);
		SHOW(shmctl(shared, IPC_STAT, &segment));
		SHOW(semctl(semaphores, 0, GETVAL));
		SHOW(semctl(semaphores, 0, SETVAL, 1));
		SHOW(semop(semaphores, &(struct sembuf){0, 1, IPC_NOWAIT}, 1));
		SHOW(msgsnd(messages, message, 1, IPC_NOWAIT));
		SHOW(msgrcv(messages, message, 1, 0, IPC_NOWAIT));
		SHOW(msgctl(messages, IPC_STAT, &queue));
		if (round == 0) {
			struct msqid_ds theirs = {.msg_perm = {.uid = OTHER, .gid = OTHER, .mode = 0}, .msg_qbytes = 1000};
			SHOW(msgctl(messages, IPC_SET, &theirs));
			SHOW(fflush(stdout));
			child = fork();
			if (child == 0) {
				// Another user creates the objects.
				setgid(OTHER);
				setuid(OTHER);
				printf("%d\n", shmget(4711, 4096, IPC_CREAT | IPC_EXCL) > -1);
				printf("%d\n", semget(4711, 1, IPC_CREAT | IPC_EXCL) > -1);
				printf("%d\n", msgget(4711, IPC_CREAT | IPC_EXCL) > -1);
				exit(0);
			}
			waitpid(child, &status, 0);
			drop(IPC_OWNER);
			printf("%d %d %d\n", shmget(4711, 0, 0) > -1, semget(4711, 0, 0) > -1, msgget(4711, 0) > -1);
			SHOW(shmget(4711, 0, 0600) > -1 ? 0 : -1);
			SHOW(semget(4711, 0, 0600) > -1 ? 0 : -1);
			SHOW(msgget(4711, 0600) > -1 ? 0 : -1);
			SHOW(shmctl(shared, IPC_RMID, NULL));
			SHOW(semctl(semaphores, 0, IPC_RMID));
			SHOW(msgctl(messages, IPC_RMID, NULL));
			shared = shmget(4711, 0, 0), semaphores = semget(4711, 0, 0), messages = msgget(4711, 0);
		}
	}
	// The owner does not matter: removal needs another capability.
	SHOW(shmctl(shared, IPC_RMID, NULL));
	SHOW(semctl(semaphores, 0, IPC_RMID));
	SHOW(msgctl(messages, IPC_RMID, NULL));
}

// The files of a process in /proc that can be opened and read.
static void look(pid_t process)
{
	static const char *const names[] = {"environ", "maps", "auxv", "io", "fd", "fdinfo", "cmdline", "status", "stat", "statm", "smaps", "personality", "task", "limits", "comm", "wchan"};
	static const char *const links[] = {"cwd", "exe", "root", "fd/0"};
	char path[64], bytes[256];
	for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
		snprintf(path, sizeof path, "/proc/%d/%s", process, names[at]);
		errno = 0;
		int fd = open(path, O_RDONLY);
		// Some are refused when they are opened, some when they are read.
		ssize_t length = fd >= 0 ? read(fd, bytes, sizeof bytes) : -1;
		printf("%s: %d %s\n", names[at], length > 0, strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	for (size_t at = 0; at < sizeof links / sizeof *links; at++) {
		snprintf(path, sizeof path, "/proc/%d/%s", process, links[at]);
		puts(links[at]);
		SHOW(readlink(path, bytes, sizeof bytes) > 0 ? 0 : -1);
		if (strncmp(links[at], "fd", 2) != 0)
			SHOW(access(path, F_OK));
	}
	fflush(stdout);
}

static void others(void)
{
	pid_t user = other(OTHER), root = other(0);
	void *list;
	size_t length;
	for (int round = 0; round < 2; round++) {
		pid_t all[] = {user, root};
		for (int at = 0; at < 2; at++) {
			pid_t process = all[at];
			printf("%s\n", at == 0 ? "another user" : "root");
			look(process);
			SHOW(syscall(SYS_get_robust_list, process, &list, &length));
			int pidfd = (int)syscall(SYS_pidfd_open, process, 0);
			SHOW(syscall(SYS_pidfd_getfd, pidfd, 0, 0) < 0 ? -1 : 0);
			close(pidfd);
		}
		// Newer hosts let those see memory who may watch performance.
		if (round == 0)
			drop(PERFMON), drop(SYS_ADMIN), drop(SYS_PTRACE);
	}
	puts("itself");
	look(getpid());
	end(user);
	end(root);
}

static void administration(void)
{
	int fd = open("file", O_RDWR | O_CREAT, 0644);
	char value[16];
	for (int round = 0; round < 2; round++) {
		if (round == 1)
			drop(SYS_ADMIN);
		// Whether a file system has names of this kind is not the question once the capability is gone.
		long set = fsetxattr(fd, "trusted.name", "value", 5, 0), got = fgetxattr(fd, "trusted.name", value, sizeof value);
		printf("%ld %ld\n", round == 0 ? 0 : set, round == 0 ? 0 : got);
		int segment = shmget(4712, 4096, IPC_CREAT | 0600);
		struct shmid_ds status;
		SHOW(shmctl(segment, IPC_STAT, &status));
		status.shm_perm.uid = OTHER;
		SHOW(shmctl(segment, IPC_SET, &status));
		SHOW(shmctl(segment, IPC_RMID, NULL));
		fflush(stdout);
		pid_t child = fork();
		if (child == 0) {
			setgid(OTHER);
			setuid(OTHER);
			exit(shmget(4713, 4096, IPC_CREAT | 0666) < 0);
		}
		waitpid(child, NULL, 0);
		segment = shmget(4713, 0, 0);
		SHOW(shmctl(segment, IPC_RMID, NULL));
		pid_t wanted[1] = {31999};
		unsigned long long clone[11] = {0, 0, 0, 0, 17, 0, 0, 0, (unsigned long)wanted, 1, 0};
		child = (pid_t)syscall(SYS_clone3, clone, sizeof clone);
		if (child == 0)
			_exit(0);
		if (round == 1)
			SHOW(child > 0 ? 0 : -1);
		waitpid(-1, NULL, 0);
	}
	SHOW(sethostname("name", 4));
	SHOW(setdomainname("name", 4));
	SHOW(syscall(SYS_sethostname, "name", -1));
	SHOW(syscall(SYS_sethostname, "name", 65));
	SHOW(syscall(SYS_pivot_root, ".", "."));
	SHOW(syscall(SYS_unshare, 0x20000));
	SHOW(close(fd));
	SHOW(unlink("file"));
}

static void resources(void)
{
	int ends[2], fd;
	struct rlimit limit = {100, 100};
	SHOW(prlimit(0, RLIMIT_NICE, &(struct rlimit){0, 0}, NULL));
	SHOW(setrlimit(RLIMIT_CORE, &limit));
	// Some hosts start the program without this capability: what it permits is not asked for.
	drop(SYS_RESOURCE);
	limit.rlim_max = 101;
	SHOW(setrlimit(RLIMIT_CORE, &limit));
	limit.rlim_max = 99, limit.rlim_cur = 99;
	SHOW(setrlimit(RLIMIT_CORE, &limit));
	SHOW(setrlimit(RLIMIT_NICE, &(struct rlimit){0, 1}));
	pid_t user = other(OTHER);
	SHOW(prlimit(user, RLIMIT_CORE, NULL, &limit));
	SHOW(prlimit(user, RLIMIT_CORE, &(struct rlimit){1, 1}, NULL));
	end(user);
	SHOW(pipe(ends));
	SHOW(fcntl(ends[0], F_SETPIPE_SZ, 1 << 20));
	SHOW(fcntl(ends[0], F_SETPIPE_SZ, (1 << 20) + 1));
	SHOW(fcntl(ends[0], F_SETPIPE_SZ, 1 << 30));
	struct msqid_ds queue = {0};
	int messages = msgget(IPC_PRIVATE, 0600);
	SHOW(msgctl(messages, IPC_STAT, &queue));
	queue.msg_qbytes++;
	SHOW(msgctl(messages, IPC_SET, &queue));
	queue.msg_qbytes -= 2;
	SHOW(msgctl(messages, IPC_SET, &queue));
	SHOW(msgctl(messages, IPC_RMID, NULL));
	struct mq_attr attributes = {.mq_maxmsg = 11, .mq_msgsize = 10};
	SHOW(mq_open("/too-many", O_CREAT | O_RDWR, 0600, &attributes));
	attributes = (struct mq_attr){.mq_maxmsg = 1, .mq_msgsize = 8193};
	SHOW(mq_open("/too-large", O_CREAT | O_RDWR, 0600, &attributes));
	fd = open("/proc/self/oom_score_adj", O_RDWR);
	SHOW(pwrite(fd, "500", 3, 0));
	SHOW(pwrite(fd, "400", 3, 0));
	SHOW(pwrite(fd, "0", 1, 0));
	SHOW(pwrite(fd, "-1", 2, 0));
	SHOW(pwrite(fd, "1001", 4, 0));
	SHOW(pwrite(fd, "x", 1, 0));
	SHOW(close(fd));
	SHOW(setrlimit(RLIMIT_NPROC, &(struct rlimit){1, 1}));
	fflush(stdout);
	// CAP_SYS_ADMIN lifts RLIMIT_NPROC too.
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	SHOW(child > 0 ? 0 : -1);
	waitpid(child, NULL, 0);
}

static void locked(void)
{
	size_t size = 64 << 10;
	char *room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int segment = shmget(IPC_PRIVATE, size, 0600);
	for (int round = 0; round < 2; round++) {
		SHOW(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){8192, 8192}));
		SHOW(mlock(room, 4096));
		SHOW(mlock(room, size));
		SHOW(mlockall(MCL_CURRENT));
		SHOW(munlockall());
		SHOW(mlock2(room, size, 1));
		SHOW(munlock(room, size));
		SHOW(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0) == MAP_FAILED ? -1 : 0);
		SHOW(munlockall());
		SHOW(shmctl(segment, SHM_LOCK, NULL));
		SHOW(shmctl(segment, SHM_UNLOCK, NULL));
		if (round == 0)
			drop(IPC_LOCK);
	}
	SHOW(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){0, 0}));
	SHOW(mlock(room, 4096));
	SHOW(mlock2(room, 4096, 0));
	SHOW(mlockall(MCL_CURRENT));
	SHOW(mlockall(MCL_FUTURE));
	SHOW(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0) == MAP_FAILED ? -1 : 0);
	SHOW(shmctl(segment, SHM_LOCK, NULL));
	SHOW(shmctl(segment, IPC_RMID, NULL));
	SHOW(munlock(room, size));
	SHOW(munlockall());
}

int main(int count, char **words)
{
	static const struct {
		const char *name;
		void (*part)(void);
	} parts[] = {{"fsetid", set_group_id}, {"ipc-owner", objects}, {"ptrace", others}, {"admin", administration}, {"resource", resources}, {"ipc-lock", locked}};
	char directory[] = "/tmp/capable-XXXXXX";
	if (count != 2 || !mkdtemp(directory) || chdir(directory) != 0)
		return 1;
	umask(0);
	for (size_t at = 0; at < sizeof parts / sizeof *parts; at++)
		if (!strcmp(words[1], parts[at].name))
			parts[at].part();
	return rmdir(directory);
}
