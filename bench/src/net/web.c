/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A minimal web server: `web BYTES` answers every request at port 80 with a document of that many bytes from memory, and
   closes the connection. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 1024, EVENTS = 64 };

/* How much of a connection's request was read and of its response written, by descriptor. */
static struct state {
    long matched;
    long written;
} states[MOST];

static char *answer;
static long length;

static void check(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

/* Reads until the empty line; returns 1 when it has arrived. */
static int has_asked(int client)
{
    static const char end[] = "\r\n\r\n";
    struct state *state = &states[client];
    char bytes[512];
    ssize_t had;

    while ((had = read(client, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < had && state->matched < 4; i++)
            state->matched = bytes[i] == end[state->matched] ? state->matched + 1 : bytes[i] == '\r';
    return state->matched == 4;
}

/* Writes as much as possible; returns 1 when all is written. */
static int has_answered(int client)
{
    struct state *state = &states[client];

    while (state->written < length) {
        ssize_t said = write(client, answer + state->written, length - state->written);

        if (said <= 0)
            return 0;
        state->written += said;
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(80)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0), one = 1;
    struct epoll_event events[EVENTS] = {{.events = EPOLLIN, .data.fd = listener}};
    long bytes = argc > 1 ? atol(argv[1]) : 0;

    check(asprintf(&answer, "HTTP/1.0 200 OK\r\nContent-Length: %ld\r\n\r\n%0*d", bytes, (int)bytes, 0) > 0, "memory");
    length = strlen(answer);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 512) == 0, "listen");
    check(epoll_ctl(poll, EPOLL_CTL_ADD, listener, &events[0]) == 0, "epoll");
    puts("0");
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(poll, events, EVENTS, -1);

        for (int i = 0; i < count; i++) {
            int client = events[i].data.fd;

            if (client != listener) {
                if (!has_asked(client) ? events[i].events & EPOLLHUP : has_answered(client))
                    close(client);
                continue;
            }
            while ((client = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = client};

                check(client < MOST, "too many connections");
                states[client] = (struct state){0};
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                check(epoll_ctl(poll, EPOLL_CTL_ADD, client, &wanted) == 0, "epoll");
            }
        }
    }
}
