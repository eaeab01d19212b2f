/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The two ends of a TCP connection. `talk serve ADDRESS` prints its port and answers clients one after the other. `talk
   stream ADDRESS PORT` and `talk echo ADDRESS PORT` send as many pieces as each line says, and print the nanoseconds until
   the other end had received them all. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 64 << 10 };

/* A client's announcement: the number of pieces, the bytes of each, and whether each is answered or only the last. */
struct order {
    long count;
    long bytes;
    long each;
};

static char piece[PIECE];

static void check(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static int whole(int from, void *into, long bytes)
{
    char *at = into;

    while (bytes > 0) {
        ssize_t had = read(from, at, bytes);

        if (had <= 0)
            return 0;
        at += had;
        bytes -= had;
    }
    return 1;
}

static void say(int to, const void *what, long bytes)
{
    const char *at = what;

    while (bytes > 0) {
        ssize_t said = write(to, at, bytes);

        check(said > 0, "write");
        at += said;
        bytes -= said;
    }
}

static int made(const char *address, int port, struct sockaddr_in *name)
{
    int it = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    check(it >= 0, "socket");
    setsockopt(it, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(it, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    memset(name, 0, sizeof *name);
    name->sin_family = AF_INET;
    name->sin_port = htons(port);
    check(inet_pton(AF_INET, address, &name->sin_addr) == 1, address);
    return it;
}

static int serve(const char *address)
{
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    int listener = made(address, 0, &name);

    check(bind(listener, (void *)&name, sizeof name) == 0, "bind");
    check(listen(listener, 16) == 0, "listen");
    check(getsockname(listener, (void *)&name, &length) == 0, "getsockname");
    printf("%d\n", ntohs(name.sin_port));
    fflush(stdout);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        struct order order;

        check(client >= 0, "accept");
        while (whole(client, &order, sizeof order)) {
            for (long i = 0; i < order.count; i++) {
                check(whole(client, piece, order.bytes), "read");
                if (order.each || i + 1 == order.count)
                    say(client, piece, 1);
            }
        }
        close(client);
    }
}

static long nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static int ask(const char *address, int port, int stream)
{
    struct sockaddr_in name;
    int server = made(address, port, &name);
    char line[64], answer;

    check(connect(server, (void *)&name, sizeof name) == 0, "connect");
    while (fgets(line, sizeof line, stdin)) {
        struct order order = {atol(line), stream ? PIECE : 1, !stream};
        long start = nanoseconds();

        say(server, &order, sizeof order);
        for (long i = 0; i < order.count; i++) {
            say(server, piece, order.bytes);
            if (order.each || i + 1 == order.count)
                check(whole(server, &answer, 1), "answer");
        }
        printf("%ld\n", nanoseconds() - start);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return serve(argv[2]);
    return argc == 4 ? ask(argv[2], atoi(argv[3]), strcmp(argv[1], "stream") == 0) : 2;
}
