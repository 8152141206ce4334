/* Small messages over one TCP connection of the loopback: messages SECONDS BYTES DEPTH
 *
 * One process keeps DEPTH requests in flight, another one answers each. Each message is one call of send; what has come
 * is received at once. Prints one line of JSON; a request and its answer are two messages.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

enum { MAX_BYTES = 4096, BUFFER_BYTES = 1 << 20 };

static char message[MAX_BYTES], buffer[BUFFER_BYTES];

static void send_one(int sock, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t count = send(sock, message + done, bytes - done, MSG_NOSIGNAL);
        if (count < 0) fail("send");
        done += count;
    }
}

/* How many whole messages have come; `rest` keeps the bytes of the last one. 0 at the end of the stream. */
static long receive(int sock, size_t bytes, size_t *rest) {
    for (;;) {
        ssize_t count = recv(sock, buffer, sizeof buffer, 0);
        if (count < 0) fail("recv");
        if (!count) return 0;
        size_t have = *rest + count;
        *rest = have % bytes;
        if (have >= bytes) return have / bytes;
    }
}

static void answer(int listener, size_t bytes) {
    int sock = accept(listener, NULL, NULL), on = 1;
    size_t rest = 0;
    if (sock < 0) fail("accept");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (long count; (count = receive(sock, bytes, &rest));)
        while (count--) send_one(sock, bytes);
}

int main(int count, char **words) {
    if (count != 4 || atoi(words[2]) < 1 || atoi(words[2]) > MAX_BYTES || atoi(words[3]) < 1) {
        fprintf(stderr, "usage: messages SECONDS BYTES DEPTH, at most %d bytes\n", MAX_BYTES);
        return 2;
    }
    double seconds = atof(words[1]);
    size_t bytes = atoi(words[2]), rest = 0;
    int depth = atoi(words[3]), listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof where;
    if (bind(listener, (struct sockaddr *)&where, length) || listen(listener, 1)) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&where, &length)) fail("getsockname");
    pid_t other = fork();
    if (other < 0) fail("fork");
    if (!other) {
        answer(listener, bytes);
        return 0;
    }
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(sock, (struct sockaddr *)&where, length)) fail("connect");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    double begin = now(), end = begin + seconds, last = begin;
    long answers = 0;
    for (int n = 0; n < depth; n++) send_one(sock, bytes);
    while (last < end) {
        long came = receive(sock, bytes, &rest);
        if (!came) exit(3);
        answers += came;
        while (came--) send_one(sock, bytes);
        last = now();
    }
    shutdown(sock, SHUT_WR);
    while (receive(sock, bytes, &rest));
    close(sock);
    int status;
    waitpid(other, &status, 0);
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"cpu_s\": %.6f}\n", 2 * answers, last - begin,
           cpu(RUSAGE_SELF) + cpu(RUSAGE_CHILDREN));
    return status != 0;
}
