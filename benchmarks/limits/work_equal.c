/* The work of a read and nothing else, on plain blocking sockets: pread, CRC32C, send; receive, CRC32C.
 *
 *   work_equal serve LIBCRC32C FILE unix NAME    serve one connection on an abstract UNIX socket
 *   work_equal serve LIBCRC32C FILE tcp 0        ... or on a free port of the loopback, which it prints
 *   work_equal read LIBCRC32C SECONDS PIECES LENGTH DEPTH SPAN STRIDE unix|tcp ADDRESS...
 *
 * A request: number of pieces, length of a piece, offsets. An answer: the CRC32C of each piece, then the pieces. A
 * request of no pieces ends the connection; its answer is the CPU time of the server in microseconds. The reader keeps
 * DEPTH requests in flight on each connection, and prints one line of JSON. The CRC32C comes from the library that the
 * Python package brings, so both measure the same code.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "measure.h"

enum { MAX_PIECES = 1024, MAX_BYTES = 8 << 20, MAX_SERVERS = 64, SOCKET_BYTES = 4 << 20 };

static uint32_t (*crc32c)(const uint8_t *, size_t);
static uint8_t *buffer;

static void load(const char *library) {
    void *handle = dlopen(library, RTLD_NOW);
    if (handle) *(void **)&crc32c = dlsym(handle, "crc32c_value");
    if (!crc32c) {
        fprintf(stderr, "%s: %s\n", library, dlerror());
        exit(1);
    }
    if (posix_memalign((void **)&buffer, 4096, MAX_BYTES)) fail("memory");
    memset(buffer, 0, MAX_BYTES);
}

/* 0 at the end of the stream. */
static int receive(int sock, void *into, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t count = recv(sock, (char *)into + done, length - done, 0);
        if (count < 0) fail("recv");
        if (!count) return 0;
        done += count;
    }
    return 1;
}

static void send_all(int sock, struct iovec *parts, int count) {
    while (count) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t sent = sendmsg(sock, &message, MSG_NOSIGNAL);
        if (sent < 0) fail("send");
        while (count && (size_t)sent >= parts->iov_len) {
            sent -= parts->iov_len;
            parts++, count--;
        }
        if (count) {
            parts->iov_base = (char *)parts->iov_base + sent;
            parts->iov_len -= sent;
        }
    }
}

static int open_socket(const char *family) {
    int local = !strcmp(family, "unix"), on = 1, size = SOCKET_BYTES;
    int sock = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    if (sock < 0) fail("socket");
    setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (!local) setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return sock;
}

static socklen_t address(const char *family, const char *name, struct sockaddr_storage *where) {
    memset(where, 0, sizeof *where);
    if (!strcmp(family, "unix")) { /* abstract: the name begins with a zero byte and has no end */
        struct sockaddr_un *local = (struct sockaddr_un *)where;
        local->sun_family = AF_UNIX;
        strncpy(local->sun_path + 1, name, sizeof local->sun_path - 2);
        return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    }
    struct sockaddr_in *loopback = (struct sockaddr_in *)where;
    loopback->sin_family = AF_INET;
    loopback->sin_port = htons(atoi(name));
    loopback->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof *loopback;
}

static int serve(const char *path, const char *family, const char *name) {
    int file = open(path, O_RDONLY), listener = open_socket(family);
    if (file < 0) fail(path);
    struct sockaddr_storage where;
    socklen_t length = address(family, name, &where);
    if (bind(listener, (struct sockaddr *)&where, length) || listen(listener, 1)) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&where, &length)) fail("getsockname");
    if (where.ss_family == AF_INET) printf("%d\n", ntohs(((struct sockaddr_in *)&where)->sin_port));
    else printf("%s\n", name);
    fflush(stdout);
    int sock = accept(listener, NULL, NULL), on = 1;
    if (sock < 0) fail("accept");
    if (where.ss_family == AF_INET) setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    double before = cpu(RUSAGE_SELF);
    uint32_t head[2], crcs[MAX_PIECES];
    uint64_t offsets[MAX_PIECES];
    while (receive(sock, head, sizeof head) && head[0]) {
        if (head[0] > MAX_PIECES || (uint64_t)head[0] * head[1] > MAX_BYTES) exit(2);
        if (!receive(sock, offsets, 8 * head[0])) break;
        for (uint32_t i = 0; i < head[0]; i++) {
            uint8_t *piece = buffer + (size_t)i * head[1];
            ssize_t got = pread(file, piece, head[1], offsets[i]);
            if (got < 0) fail("pread");
            if (got < head[1]) {
                fprintf(stderr, "%s ends before offset %llu\n", path, (unsigned long long)offsets[i] + head[1]);
                exit(1);
            }
            crcs[i] = crc32c(piece, head[1]);
        }
        struct iovec parts[2] = {{crcs, 4 * head[0]}, {buffer, (size_t)head[0] * head[1]}};
        send_all(sock, parts, 2);
    }
    uint64_t used = (cpu(RUSAGE_SELF) - before) * 1e6;
    struct iovec answer = {&used, sizeof used};
    send_all(sock, &answer, 1);
    return 0;
}

struct load {
    uint32_t pieces, length;
    uint64_t span, stride, next;
};

static void ask(int sock, struct load *load) {
    uint32_t head[2] = {load->pieces, load->length};
    uint64_t offsets[MAX_PIECES];
    for (uint32_t i = 0; i < load->pieces; i++, load->next++) offsets[i] = load->next * load->stride % load->span;
    struct iovec parts[2] = {{head, sizeof head}, {offsets, 8 * load->pieces}};
    send_all(sock, parts, 2);
}

/* The number of wrong pieces. */
static int take(int sock, const struct load *load) {
    uint32_t crcs[MAX_PIECES];
    int wrong = 0;
    if (!receive(sock, crcs, 4 * load->pieces)) exit(3);
    if (!receive(sock, buffer, (size_t)load->pieces * load->length)) exit(3);
    for (uint32_t i = 0; i < load->pieces; i++) wrong += crc32c(buffer + (size_t)i * load->length, load->length) != crcs[i];
    return wrong;
}

static int reader(double seconds, struct load load, int depth, const char *family, char **names, int servers) {
    int socks[MAX_SERVERS], wrong = 0;
    if (servers > MAX_SERVERS || load.pieces > MAX_PIECES || (uint64_t)load.pieces * load.length > MAX_BYTES) exit(2);
    for (int i = 0; i < servers; i++) {
        struct sockaddr_storage where;
        socklen_t length = address(family, names[i], &where);
        socks[i] = open_socket(family);
        if (connect(socks[i], (struct sockaddr *)&where, length)) fail("connect");
    }
    double before = cpu(RUSAGE_SELF), begin = now(), end = begin + seconds, last = begin;
    uint64_t answers = 0, served = 0;
    for (int n = 0; n < depth; n++)
        for (int i = 0; i < servers; i++) ask(socks[i], &load);
    while (last < end) {
        for (int i = 0; i < servers; i++) {
            wrong += take(socks[i], &load);
            ask(socks[i], &load);
        }
        answers += servers;
        last = now();
    }
    double elapsed = last - begin, used = cpu(RUSAGE_SELF) - before;
    for (int i = 0; i < servers; i++) {
        uint32_t none[2] = {0, 0};
        uint64_t microseconds;
        struct iovec part = {none, sizeof none};
        for (int n = 0; n < depth; n++) wrong += take(socks[i], &load);
        send_all(socks[i], &part, 1);
        if (!receive(socks[i], &microseconds, sizeof microseconds)) exit(3);
        served += microseconds;
    }
    printf("{\"pieces\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"cpu_s\": %.6f, \"wrong\": %d}\n",
           (unsigned long long)(answers * load.pieces), (unsigned long long)(answers * load.pieces * load.length), elapsed,
           used + served / 1e6, wrong);
    return wrong != 0;
}

int main(int count, char **words) {
    if (count == 6 && !strcmp(words[1], "serve")) {
        load(words[2]);
        return serve(words[3], words[4], words[5]);
    }
    if (count > 10 && !strcmp(words[1], "read")) {
        load(words[2]);
        struct load work = {atoi(words[4]), atoi(words[5]), strtoull(words[7], 0, 10), strtoull(words[8], 0, 10), 0};
        return reader(atof(words[3]), work, atoi(words[6]), words[9], words + 10, count - 10);
    }
    fprintf(stderr, "the head of the source says how it is called\n");
    return 2;
}
