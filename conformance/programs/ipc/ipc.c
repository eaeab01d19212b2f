// SPDX-License-Identifier: MIT OR Apache-2.0
// System V shared memory, semaphores and message queues, among several processes.
#define _GNU_SOURCE
#include "holds.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif

// A key that is unlikely to be in use on this machine.
static key_t key(int which)
{
	return (key_t)(0x50000000u + (unsigned)getpid() * 16 + (unsigned)which);
}

static int status_of(pid_t child)
{
	int status = -1;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define IN_CHILD(...) ({ pid_t made = fork(); if (made == 0) { __VA_ARGS__; _exit(0); } made; })

static void ring(int number)
{
	(void)number;
}

static long attached(int id)
{
	struct shmid_ds status;
	return shmctl(id, IPC_STAT, &status) == 0 ? (long)status.shm_nattch : -1;
}

static void segments(int count, char **words)
{
	(void)count, (void)words;
	key_t named = key(0);
	int id = shmget(named, 10000, IPC_CREAT | IPC_EXCL | 0640);
	HOLDS(id >= 0 && shmget(named, 10000, 0) == id && shmget(named, 0, 0600) == id && shmget(named, 9999, IPC_CREAT) == id);
	FAILS(shmget(named, 10001, 0), EINVAL);
	FAILS(shmget(named, 10, IPC_CREAT | IPC_EXCL), EEXIST);
	FAILS(shmget(key(1), 10, 0600), ENOENT);
	FAILS(shmget(IPC_PRIVATE, 0, IPC_CREAT | 0600), EINVAL);
	struct shmid_ds status;
	HOLDS(shmctl(id, IPC_STAT, &status) == 0 && status.shm_segsz == 10000 && status.shm_nattch == 0 && status.shm_perm.mode == 0640);
	HOLDS(status.shm_perm.__key == named && status.shm_perm.uid == geteuid() && status.shm_perm.cgid == getegid());
	HOLDS(status.shm_cpid == getpid() && status.shm_lpid == 0 && status.shm_atime == 0 && status.shm_dtime == 0 && status.shm_ctime > 0);
	char *memory = shmat(id, NULL, 0);
	HOLDS(memory != (void *)-1 && ((uintptr_t)memory & 4095) == 0 && memory[0] == 0 && memory[9999] == 0 && attached(id) == 1);
	strcpy(memory, "from the parent");
	int twice = id;
	pid_t child = IN_CHILD({
		if (strcmp(memory, "from the parent") || attached(id) != 2)
			_exit(1);
		strcpy(memory + 5000, "from the child");
		char *again = shmat(twice, NULL, SHM_RDONLY);
		if (again == (void *)-1 || strcmp(again, "from the parent") || attached(id) != 3)
			_exit(2);
		_exit(shmdt(memory) == 0 && attached(id) == 2 ? 0 : 3);
	});
	HOLDS(status_of(child) == 0 && !strcmp(memory + 5000, "from the child") && attached(id) == 1);
	HOLDS(shmctl(id, IPC_STAT, &status) == 0 && status.shm_lpid == child && status.shm_atime > 0 && status.shm_dtime > 0);
	// An executed program has no segments attached.
	child = IN_CHILD(execl("/proc/self/exe", "ipc", "count", ({ static char room[20]; sprintf(room, "%d", id); room; }), NULL));
	HOLDS(status_of(child) == 1 && attached(id) == 1);
	FAILS(shmat(id, memory + 1, 0), EINVAL);
	FAILS(shmat(id, NULL, SHM_REMAP), EINVAL);
	FAILS(shmat(-1, NULL, 0), EINVAL);
	FAILS(shmat(0x7fffffff, NULL, 0), EINVAL);
	FAILS(shmdt(memory + 4096), EINVAL);
	FAILS(shmdt(memory + 1), EINVAL);
	FAILS(shmdt(NULL), EINVAL);
	FAILS(shmctl(id, 99, &status), EINVAL);
	FAILS(shmctl(-1, IPC_STAT, &status), EINVAL);
	FAILS(shmctl(id, IPC_STAT, (void *)8), EFAULT);
	FAILS(shmctl(id, IPC_SET, (void *)8), EFAULT);
	HOLDS(shmctl(id, IPC_STAT, &status) == 0);
	status.shm_perm.mode = 01777;
	HOLDS(shmctl(id, IPC_SET, &status) == 0 && shmctl(id, IPC_STAT, &status) == 0 && status.shm_perm.mode == 0777);
	HOLDS(shmctl(id, SHM_LOCK, NULL) == 0 && shmctl(id, IPC_STAT, &status) == 0 && status.shm_perm.mode == (0777 | SHM_LOCKED));
	HOLDS(shmctl(id, SHM_UNLOCK, NULL) == 0 && shmctl(id, IPC_STAT, &status) == 0 && status.shm_perm.mode == 0777);
	// It remains while unattached, and is destroyed after its removal with the last detach.
	HOLDS(shmdt(memory) == 0 && attached(id) == 0);
	FAILS(shmdt(memory), EINVAL);
	memory = shmat(id, NULL, 0);
	HOLDS(memory != (void *)-1 && !strcmp(memory, "from the parent") && !strcmp(memory + 5000, "from the child"));
	HOLDS(shmctl(id, IPC_RMID, NULL) == 0 && shmctl(id, IPC_STAT, &status) == 0 && status.shm_perm.mode == (0777 | SHM_DEST));
	FAILS(shmget(named, 10, 0), ENOENT);
	HOLDS(status.shm_perm.__key == IPC_PRIVATE && !strcmp(memory, "from the parent"));
	child = IN_CHILD(_exit(attached(id)));
	HOLDS(status_of(child) == 2 && attached(id) == 1 && munmap(memory, 12288) == 0);
	errno = 0;
	HOLDS(attached(id) == -1 && (errno == EINVAL || errno == EIDRM));
	// A segment's attachments end with the process.
	int mine = shmget(IPC_PRIVATE, 4 << 20, 0600);
	child = IN_CHILD({
		char *large = shmat(mine, NULL, 0);
		memset(large, 7, 4 << 20);
		_exit(shmctl(mine, IPC_RMID, NULL) == 0 && attached(mine) == 1 ? 9 : 0);
	});
	HOLDS(status_of(child) == 9 && attached(mine) == -1);
}

static void semaphores(int count, char **words)
{
	(void)count, (void)words;
	key_t named = key(2);
	int id = semget(named, 3, IPC_CREAT | IPC_EXCL | 0600);
	HOLDS(id >= 0 && semget(named, 3, 0) == id && semget(named, 0, 0) == id);
	FAILS(semget(named, 4, 0), EINVAL);
	FAILS(semget(named, 3, IPC_CREAT | IPC_EXCL), EEXIST);
	FAILS(semget(key(3), 3, 0), ENOENT);
	FAILS(semget(IPC_PRIVATE, 0, 0600), EINVAL);
	FAILS(semget(IPC_PRIVATE, -1, 0600), EINVAL);
	FAILS(semget(IPC_PRIVATE, 100000, 0600), EINVAL);
	unsigned short values[3] = {9, 9, 9};
	struct semid_ds status;
	HOLDS(semctl(id, 0, GETALL, values) == 0 && values[0] == 0 && values[1] == 0 && values[2] == 0);
	HOLDS(semctl(id, 0, IPC_STAT, &status) == 0 && status.sem_nsems == 3 && status.sem_otime == 0 && status.sem_perm.mode == 0600);
	HOLDS(semctl(id, 1, SETVAL, 5) == 0 && semctl(id, 1, GETVAL) == 5 && semctl(id, 1, GETPID) == getpid() && semctl(id, 0, GETPID) == 0);
	FAILS(semctl(id, 1, SETVAL, -1), ERANGE);
	FAILS(semctl(id, 1, SETVAL, 32768), ERANGE);
	FAILS(semctl(id, 3, SETVAL, 1), EINVAL);
	FAILS(semctl(id, 3, GETVAL), EINVAL);
	FAILS(semctl(id, -1, GETVAL), EINVAL);
	FAILS(semctl(-1, 0, GETVAL), EINVAL);
	FAILS(semctl(id, 0, 99), EINVAL);
	FAILS(semctl(id, 0, GETALL, 8L), EFAULT);
	values[0] = 40000;
	FAILS(semctl(id, 0, SETALL, values), ERANGE);
	struct sembuf down = {0, -1, 0}, now = {0, -1, IPC_NOWAIT}, up = {0, 1, 0}, far = {3, 1, 0}, much = {1, 32767, 0};
	FAILS(semop(id, &now, 1), EAGAIN);
	FAILS(semop(id, &far, 1), EFBIG);
	FAILS(semop(id, &much, 1), ERANGE);
	FAILS(semop(id, &up, 0), EINVAL);
	FAILS(semop(-1, &up, 1), EINVAL);
	FAILS(semop(id, &up, 501), E2BIG);
	FAILS(semop(id, (void *)8, 1), EFAULT);
	struct timespec little = {0, 1000000}, wrong = {0, 1000000000};
	FAILS(semtimedop(id, &down, 1, &little), EAGAIN);
	FAILS(semtimedop(id, &up, 1, &wrong), EINVAL);
	struct sembuf all[] = {{0, 2, 0}, {1, -6, IPC_NOWAIT}}, fine[] = {{0, 2, 0}, {0, -1, 0}, {1, -5, 0}, {1, 0, IPC_NOWAIT}, {2, 7, 0}};
	FAILS(semop(id, all, 2), EAGAIN);
	HOLDS(semctl(id, 0, GETVAL) == 0 && semop(id, fine, 5) == 0 && semctl(id, 0, GETALL, values) == 0);
	HOLDS(values[0] == 1 && values[1] == 0 && values[2] == 7 && semctl(id, 0, IPC_STAT, &status) == 0 && status.sem_otime > 0);
	// Waiters proceed in order of arrival, as soon as possible.
	HOLDS(semctl(id, 0, SETVAL, 0) == 0);
	int ends[2];
	HOLDS(pipe(ends) == 0);
	pid_t children[3];
	for (int at = 0; at < 3; at++) {
		struct sembuf take = {0, (short)-(3 - at), 0};
		children[at] = IN_CHILD(_exit(semop(id, &take, 1) == 0 && write(ends[1], &"abc"[at], 1) == 1 ? 0 : 1));
		while (semctl(id, 0, GETNCNT) != at + 1)
			sched_yield();
	}
	pid_t zero = IN_CHILD({ struct sembuf none = {2, 0, 0}; _exit(semop(id, &none, 1) == 0 ? 0 : 1); });
	while (semctl(id, 2, GETZCNT) != 1)
		sched_yield();
	HOLDS(semctl(id, 2, GETNCNT) == 0 && semctl(id, 1, GETNCNT) == 0 && semctl(id, 0, GETZCNT) == 0);
	char room[4] = "";
	HOLDS(semop(id, &up, 1) == 0 && read(ends[0], room, 1) == 1 && room[0] == 'c');
	up.sem_op = 4;
	HOLDS(semop(id, &up, 1) == 0 && read(ends[0], room, 1) == 1 && room[0] == 'a' && semctl(id, 0, GETVAL) == 1);
	HOLDS(semop(id, &(struct sembuf){0, 1, 0}, 1) == 0 && read(ends[0], room, 1) == 1 && room[0] == 'b' && semctl(id, 0, GETVAL) == 0);
	HOLDS(semctl(id, 0, GETPID) == children[1] && semctl(id, 2, SETVAL, 0) == 0);
	HOLDS(status_of(children[0]) == 0 && status_of(children[1]) == 0 && status_of(children[2]) == 0 && status_of(zero) == 0);
	// A process's operations with SEM_UNDO are undone when it ends, in any way.
	HOLDS(semctl(id, 0, SETVAL, 3) == 0);
	struct sembuf kept = {0, -2, SEM_UNDO}, plain = {0, -1, 0};
	pid_t child = IN_CHILD({ semop(id, &kept, 1); semop(id, &plain, 1); write(ends[1], "x", 1); pause(); });
	HOLDS(read(ends[0], room, 1) == 1 && semctl(id, 0, GETVAL) == 0 && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	HOLDS(semctl(id, 0, GETVAL) == 2 && semctl(id, 0, GETPID) == child);
	child = IN_CHILD({ semop(id, &kept, 1); _exit(semctl(id, 0, SETVAL, 7)); });
	HOLDS(status_of(child) == 0 && semctl(id, 0, GETVAL) == 7);
	child = IN_CHILD({ semop(id, &kept, 1); if (fork() == 0) _exit(0); wait(NULL); _exit(semctl(id, 0, GETVAL)); });
	HOLDS(status_of(child) == 5 && semctl(id, 0, GETVAL) == 7);
	// A signal ends the waiting, and so does the removal of the set.
	struct sigaction action = {.sa_handler = ring, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	HOLDS(semctl(id, 0, SETVAL, 0) == 0);
	child = IN_CHILD({ ualarm(5000, 5000); _exit(semop(id, &down, 1) == -1 ? errno : 0); });
	HOLDS(status_of(child) == EINTR && semctl(id, 0, GETNCNT) == 0);
	child = IN_CHILD(_exit(semop(id, &down, 1) == -1 ? errno : 0));
	while (semctl(id, 0, GETNCNT) != 1)
		sched_yield();
	HOLDS(semctl(id, 0, IPC_RMID) == 0 && status_of(child) == EIDRM);
	errno = 0;
	HOLDS(semop(id, &up, 1) == -1 && (errno == EINVAL || errno == EIDRM));
}

struct text {
	long type;
	char text[100];
};

static long messages_in(int id)
{
	struct msqid_ds status;
	return msgctl(id, IPC_STAT, &status) == 0 ? (long)status.msg_qnum : -1;
}

static void messages(int count, char **words)
{
	(void)count, (void)words;
	key_t named = key(4);
	int id = msgget(named, IPC_CREAT | IPC_EXCL | 0600);
	HOLDS(id >= 0 && msgget(named, 0) == id);
	FAILS(msgget(named, IPC_CREAT | IPC_EXCL), EEXIST);
	FAILS(msgget(key(5), 0), ENOENT);
	struct msqid_ds status;
	HOLDS(msgctl(id, IPC_STAT, &status) == 0 && status.msg_qnum == 0 && status.msg_qbytes == 16384 && status.msg_stime == 0 && status.msg_lspid == 0);
	struct text out = {5, "five"}, in = {0, ""};
	HOLDS(msgsnd(id, &out, 4, 0) == 0 && messages_in(id) == 1);
	out = (struct text){2, "two and more"};
	HOLDS(msgsnd(id, &out, 12, 0) == 0);
	out = (struct text){9, "nine"};
	HOLDS(msgsnd(id, &out, 0, 0) == 0 && msgctl(id, IPC_STAT, &status) == 0 && status.__msg_cbytes == 16 && status.msg_lspid == getpid());
	FAILS(msgrcv(id, &in, 5, 2, 0), E2BIG);
	FAILS(msgrcv(id, &in, 100, 3, IPC_NOWAIT), ENOMSG);
	FAILS(msgrcv(id, &in, 100, -1, IPC_NOWAIT), ENOMSG);
	HOLDS(msgrcv(id, &in, 100, 1, MSG_COPY | IPC_NOWAIT) == 12 && in.type == 2 && messages_in(id) == 3);
	FAILS(msgrcv(id, &in, 100, 3, MSG_COPY | IPC_NOWAIT), ENOMSG);
	FAILS(msgrcv(id, &in, 100, 1, MSG_COPY), EINVAL);
	HOLDS(msgrcv(id, &in, 100, 5, MSG_EXCEPT) == 12 && in.type == 2 && !memcmp(in.text, "two and more", 12));
	HOLDS(msgrcv(id, &in, 100, -8, 0) == 4 && in.type == 5 && msgrcv(id, &in, 0, 0, 0) == 0 && in.type == 9 && messages_in(id) == 0);
	out = (struct text){1, "0123456789"};
	HOLDS(msgsnd(id, &out, 10, 0) == 0 && msgrcv(id, &in, 4, 0, MSG_NOERROR) == 4 && !memcmp(in.text, "0123", 4) && messages_in(id) == 0);
	HOLDS(msgctl(id, IPC_STAT, &status) == 0 && status.msg_lrpid == getpid() && status.msg_rtime > 0 && status.msg_stime > 0);
	out.type = 0;
	FAILS(msgsnd(id, &out, 4, 0), EINVAL);
	out.type = 1;
	FAILS(msgsnd(id, &out, 8193, 0), EINVAL);
	FAILS(msgsnd(id, &out, -1, 0), EINVAL);
	FAILS(msgsnd(-1, &out, 4, 0), EINVAL);
	FAILS(msgsnd(id, (void *)8, 4, 0), EFAULT);
	FAILS(msgrcv(id, &in, -1, 0, 0), EINVAL);
	FAILS(msgctl(id, 99, &status), EINVAL);
	FAILS(msgctl(id, IPC_STAT, (void *)8), EFAULT);
	// A full queue blocks senders until a message is received.
	HOLDS(msgctl(id, IPC_STAT, &status) == 0);
	status.msg_qbytes = 12;
	HOLDS(msgctl(id, IPC_SET, &status) == 0 && msgsnd(id, &out, 10, 0) == 0);
	FAILS(msgsnd(id, &out, 3, IPC_NOWAIT), EAGAIN);
	pid_t child = IN_CHILD(_exit(msgsnd(id, &out, 7, 0) == 0 ? 0 : 1));
	HOLDS(msgrcv(id, &in, 100, 0, 0) == 10 && msgrcv(id, &in, 100, 0, 0) == 7 && status_of(child) == 0);
	// Several receivers wait for different types; each gets its own.
	pid_t children[3];
	for (int at = 0; at < 3; at++)
		children[at] = IN_CHILD({ ssize_t got = msgrcv(id, &in, 100, 10 + at, 0); _exit(got == 1 && in.type == 10 + at ? in.text[0] : 0); });
	for (int at = 2; at >= 0; at--) {
		out = (struct text){10 + at, {(char)('a' + at)}};
		HOLDS(msgsnd(id, &out, 1, 0) == 0);
	}
	for (int at = 0; at < 3; at++)
		HOLDS(status_of(children[at]) == 'a' + at);
	struct sigaction action = {.sa_handler = ring, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	child = IN_CHILD({ ualarm(5000, 5000); _exit(msgrcv(id, &in, 100, 0, 0) == -1 ? errno : 0); });
	HOLDS(status_of(child) == EINTR);
	int ends[2];
	HOLDS(pipe(ends) == 0);
	child = IN_CHILD({ write(ends[1], "x", 1); _exit(msgrcv(id, &in, 100, 0, 0) == -1 && (errno == EIDRM || errno == EINVAL) ? 7 : 0); });
	char room;
	HOLDS(read(ends[0], &room, 1) == 1 && msgctl(id, IPC_RMID, NULL) == 0 && status_of(child) == 7 && messages_in(id) == -1);
}

// Other users have the access that the permissions allow.
static void permissions(int count, char **words)
{
	(void)count, (void)words;
	int memory = shmget(IPC_PRIVATE, 100, 0604), set = semget(IPC_PRIVATE, 1, 0604), queue = msgget(IPC_PRIVATE, 0602);
	pid_t child = IN_CHILD({
		HOLDS(setgid(1) == 0 && setuid(1) == 0);
		FAILS(shmat(memory, NULL, 0), EACCES);
		HOLDS(shmat(memory, NULL, SHM_RDONLY) != (void *)-1);
		FAILS(shmctl(memory, IPC_RMID, NULL), EPERM);
		FAILS(semctl(set, 0, SETVAL, 1), EACCES);
		FAILS(semop(set, &(struct sembuf){0, 1, 0}, 1), EACCES);
		HOLDS(semctl(set, 0, GETVAL) == 0 && semop(set, &(struct sembuf){0, 0, 0}, 1) == 0);
		FAILS(semctl(set, 0, IPC_RMID), EPERM);
		struct text text = {1, "x"};
		HOLDS(msgsnd(queue, &text, 1, 0) == 0);
		FAILS(msgrcv(queue, &text, 1, 0, 0), EACCES);
		FAILS(msgctl(queue, IPC_STAT, NULL), EACCES);
		FAILS(msgctl(queue, IPC_RMID, NULL), EPERM);
		fflush(stdout);
	});
	HOLDS(status_of(child) == 0);
	HOLDS(shmctl(memory, IPC_RMID, NULL) == 0 && semctl(set, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
}

// Usage and limits: from the calls, and in `/proc`.
static void limits(int count, char **words)
{
	(void)count, (void)words;
	union { struct shminfo limits; struct shm_info used; struct shmid_ds status; } memory;
	HOLDS(shmctl(0, IPC_INFO, &memory.status) >= 0 && memory.limits.shmmax == ~0ul - (1 << 24) && memory.limits.shmmni == 4096);
	struct seminfo sets;
	HOLDS(semctl(0, 0, IPC_INFO, &sets) >= 0 && sets.semmni == 32000 && sets.semvmx == 32767 && sets.semopm == 500);
	union { struct msginfo limits; struct msqid_ds status; } queues;
	HOLDS(msgctl(0, IPC_INFO, &queues.status) >= 0 && queues.limits.msgmax == 8192 && queues.limits.msgmnb == 16384);
	int id = shmget(IPC_PRIVATE, 5000, 0600), set = semget(IPC_PRIVATE, 4, 0600), queue = msgget(IPC_PRIVATE, 0600);
	HOLDS(shmctl(0, SHM_INFO, &memory.status) >= 0 && memory.used.used_ids >= 1 && memory.used.shm_tot >= 2);
	HOLDS(semctl(0, 0, SEM_INFO, &sets) >= 0 && sets.semusz >= 1 && sets.semaem >= 4);
	HOLDS(msgctl(0, MSG_INFO, &queues.status) >= 0 && queues.limits.msgpool >= 1);
	HOLDS(shmctl(id & 32767, SHM_STAT, &memory.status) == id && memory.status.shm_segsz == 5000);
	struct semid_ds status;
	HOLDS(semctl(set & 32767, 0, SEM_STAT, &status) == set && status.sem_nsems == 4 && msgctl(queue & 32767, MSG_STAT, &queues.status) == queue);
	const char *names[] = {"/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"};
	int ids[] = {id, set, queue};
	for (int at = 0; at < 3; at++) {
		char line[400], wanted[40];
		FILE *file = fopen(names[at], "r");
		sprintf(wanted, "%10d %10d   600 ", 0, ids[at]);
		HOLDS(file != NULL && fgets(line, sizeof line, file) != NULL);
		printf("%s", line);
		int found = 0;
		while (fgets(line, sizeof line, file))
			found += !strncmp(line, wanted, strlen(wanted));
		HOLDS(found == 1 && fclose(file) == 0);
	}
	HOLDS(shmctl(id, IPC_RMID, NULL) == 0 && semctl(set, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
}

// Exits with the number of attachments of a segment.
static void number(int count, char **words)
{
	(void)count;
	exit((int)attached(atoi(words[0])));
}

static const struct part PARTS[] = {
	{"segments", segments}, {"semaphores", semaphores}, {"messages", messages}, {"permissions", permissions}, {"limits", limits}, {"count", number}, {0},
};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	return run_part(PARTS, count, arguments);
}
