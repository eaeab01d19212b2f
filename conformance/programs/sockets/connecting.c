// SPDX-License-Identifier: MIT OR Apache-2.0
// Opens as many TCP connections as possible to a port of its router, up to a thousand. Prints their number once no more
// succeed, and keeps them.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static unsigned router(void) {
    char line[256], name[64];
    unsigned to, by;
    FILE *routes = fopen("/proc/net/route", "r");
    while (routes && fgets(line, sizeof line, routes))
        if (sscanf(line, "%63s %x %x", name, &to, &by) == 3 && to == 0) return by;
    return 0;
}

int main(int count, char **words) {
    struct rlimit all = {2000, 2000};
    setrlimit(RLIMIT_NOFILE, &all);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(count > 1 ? atoi(words[1]) : 0), .sin_addr.s_addr = router()};
    static struct pollfd waiting[1000];
    int made = 0, held = 0;
    for (; made < 1000; made++) {
        int one = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (one < 0 || (connect(one, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS)) break;
        waiting[made] = (struct pollfd){.fd = one, .events = POLLOUT};
    }
    while (held < made && poll(waiting, made, 1000) > 0)
        for (int each = 0; each < made; each++)
            if (waiting[each].fd >= 0 && waiting[each].revents) waiting[each].fd = -1, held++;
    printf("holds %d\n", held);
    fflush(stdout);
    pause();
}
