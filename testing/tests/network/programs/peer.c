// SPDX-License-Identifier: MIT OR Apache-2.0
// One side of an exchange over TCP or UDP, for traffic that busybox cannot generate, or not often enough.

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int sure(int result, const char *what) {
    if (result < 0) die(what);
    return result;
}

static struct sockaddr_in at(const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die(host);
    return address;
}

static int listener(const char *port) {
    struct sockaddr_in address = at("0.0.0.0", port);
    int one = 1, fd = sure(socket(AF_INET, SOCK_STREAM, 0), "socket");
    sure(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "SO_REUSEADDR");
    sure(bind(fd, (struct sockaddr *)&address, sizeof address), "bind");
    sure(listen(fd, 1024), "listen");
    return fd;
}

static int connected(const char *host, const char *port) {
    struct sockaddr_in address = at(host, port);
    int fd = sure(socket(AF_INET, SOCK_STREAM, 0), "socket");
    sure(connect(fd, (struct sockaddr *)&address, sizeof address), "connect");
    return fd;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

// Bytes without a pattern, the same on both sides: a generator for each direction (xorshift64*, one byte of each number).
struct noise {
    unsigned long long state;
};

static void fill(struct noise *noise, unsigned char *room, size_t length) {
    for (size_t i = 0; i < length; i++) {
        noise->state ^= noise->state >> 12, noise->state ^= noise->state << 25, noise->state ^= noise->state >> 27;
        room[i] = noise->state * 0x2545F4914F6CDD1DULL >> 56;
    }
}

static unsigned char sent[1 << 16], expected[1 << 16], got[1 << 16];

// Sends and receives this many bytes at the same time, and compares each received byte with the expected one.
static void exchange(int fd, long long to_say, long long to_hear, unsigned long long own, unsigned long long others) {
    struct noise says = {own}, hears = {others};
    long long said = 0, heard = 0;
    size_t have = 0, gone = 0;
    double start = now();
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (to_say == 0) sure(shutdown(fd, SHUT_WR), "shutdown");
    for (int ended = 0; !ended || said < to_say;) {
        struct pollfd poll_fd = {fd, (ended ? 0 : POLLIN) | (said < to_say ? POLLOUT : 0), 0};
        sure(poll(&poll_fd, 1, -1), "poll");
        if (poll_fd.revents & (POLLIN | POLLHUP | POLLERR)) {
            ssize_t count = read(fd, got, sizeof got);
            if (count < 0 && errno != EAGAIN) die("read");
            ended = count == 0;
            if (count > 0) {
                fill(&hears, expected, count);
                if (memcmp(got, expected, count)) {
                    printf("other bytes than were sent, between %lld and %lld\n", heard, heard + count);
                    exit(1);
                }
                heard += count;
            }
        }
        if (poll_fd.revents & POLLOUT) {
            if (gone == have) {
                have = to_say - said < (long long)sizeof sent ? (size_t)(to_say - said) : sizeof sent, gone = 0;
                fill(&says, sent, have);
            }
            ssize_t count = write(fd, sent + gone, have - gone);
            if (count < 0 && errno != EAGAIN) die("write");
            if (count > 0) gone += count, said += count;
            if (said == to_say) sure(shutdown(fd, SHUT_WR), "shutdown");
        }
    }
    double took = now() - start;
    printf("%s: said %lld, heard %lld in %.3f s\n", heard == to_hear ? "whole" : "NOT WHOLE", said, heard, took);
    exit(heard != to_hear);
}

static int descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

// Answers the byte of each of `count` connections with the next value. Prints the number of descriptors before and after.
static void serve(int listens, long count) {
    int before = descriptors();
    for (long i = 0; i < count; i++) {
        unsigned char byte;
        int fd = sure(accept(listens, 0, 0), "accept");
        if (sure(read(fd, &byte, 1), "read") == 1) byte++, sure(write(fd, &byte, 1), "write");
        if (i % 2) sure(read(fd, &byte, 1), "read");
        close(fd);
    }
    printf("%ld served, descriptors %d and %d\n", count, before, descriptors());
}

// Connects `count` times, sends a byte and receives the next value. Both sides close first, in turns.
static void churn(const char *host, const char *port, long count) {
    int before = descriptors();
    for (long i = 0; i < count; i++) {
        unsigned char byte = i, answer;
        int fd = connected(host, port);
        sure(write(fd, &byte, 1), "write");
        if (sure(read(fd, &answer, 1), "read") != 1 || answer != (unsigned char)(byte + 1)) die("another answer");
        if (i % 2 == 0) sure(read(fd, &answer, 1), "read");
        close(fd);
    }
    printf("%ld connections, descriptors %d and %d\n", count, before, descriptors());
}

// Sends datagrams as fast as it can, without end.
static void flood(const char *host) {
    unsigned long long number = 0;
    int fd = sure(socket(AF_INET, SOCK_DGRAM, 0), "socket");
    for (;; number++) {
        struct sockaddr_in to = at(host, "9");
        to.sin_port = htons(number % 65535 + 1);
        sendto(fd, sent, number % 7 ? 60 : 1400, 0, (struct sockaddr *)&to, sizeof to);
    }
}

int main(int count, char **words) {
    if (count == 5 && !strcmp(words[1], "hear")) {
        exchange(sure(accept(listener(words[2]), 0, 0), "accept"), atoll(words[3]), atoll(words[4]), 2, 1);
    } else if (count == 6 && !strcmp(words[1], "tell")) {
        exchange(connected(words[2], words[3]), atoll(words[4]), atoll(words[5]), 1, 2);
    } else if (count == 4 && !strcmp(words[1], "serve")) {
        serve(listener(words[2]), atol(words[3]));
    } else if (count == 5 && !strcmp(words[1], "churn")) {
        churn(words[2], words[3], atol(words[4]));
    } else if (count == 3 && !strcmp(words[1], "deaf")) {
        sure(accept(listener(words[2]), 0, 0), "accept");
        for (;;) pause();
    } else if (count == 3 && !strcmp(words[1], "flood")) {
        flood(words[2]);
    } else {
        return 2;
    }
    return 0;
}
