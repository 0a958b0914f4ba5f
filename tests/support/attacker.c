/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of everything a client gets; see attacker.h. */
#include "tests/support/attacker.h"

#include "base/clock.h"
#include "base/fingerprint.h"
#include "shm/access_log.h"
#include "shm/futex.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%.107s", path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	return fd < 0 ? -errno : fd;
}

static void fill_hello(struct cnre_wire_hello *hello, const char *model)
{
	memset(hello, 0, sizeof *hello);
	hello->by_path = 1;
	(void)snprintf(hello->name, sizeof hello->name, "attacker");
	(void)snprintf(hello->model, sizeof hello->model, "%s", model);
	cnre_wire_fill(&hello->header, CNRE_WIRE_HELLO, 1, sizeof *hello);
}

static int take_pool(struct attacker *attacker)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	struct cnre_wire_segments ask = {0};
	int fds[CNRE_WIRE_FDS_MAX];
	size_t count = 0;
	int r;

	cnre_wire_fill(&ask.header, CNRE_WIRE_SEGMENTS, 2, sizeof ask);
	r = cnre_wire_send(attacker->socket, &ask, sizeof ask, NULL, 0);
	if (r == 0)
		r = cnre_wire_receive(attacker->socket, buffer, fds, &count);
	if (r <= 0)
		return -EPIPE;
	for (size_t i = 0; i < count && i < ATTACKER_SEGMENTS_MAX; i++)
		attacker->pool_fd[attacker->pool_count++] = fds[i];
	return 0;
}

int attacker_attach(struct attacker *attacker, const char *socket, const char *model)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	struct cnre_wire_hello hello;
	struct cnre_fingerprint print;
	int fds[CNRE_WIRE_FDS_MAX];
	size_t count = 0;
	int r;

	memset(attacker, 0, sizeof *attacker);
	fill_hello(&hello, model);
	r = cnre_fingerprint_directory(model, &print, NULL, 0);
	if (r < 0)
		return r;
	memcpy(hello.identity, print.identity, sizeof hello.identity);
	attacker->socket = connect_to(socket);
	if (attacker->socket < 0)
		return attacker->socket;
	r = cnre_wire_send(attacker->socket, &hello, sizeof hello, NULL, 0);
	if (r == 0)
		r = cnre_wire_receive(attacker->socket, buffer, fds, &count);
	if (r <= 0 || ((struct cnre_wire_welcome *)buffer)->status < 0 || count != CNRE_FD_COUNT)
		return -EPIPE;
	memcpy(attacker->fd, fds, sizeof attacker->fd);
	return take_pool(attacker);
}

static int maps_writable(int fd)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
}

static int reopens_writable(int fd)
{
	char path[64];
	int again;

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	return again >= 0;
}

static int becomes_writable(int fd)
{
	void *base = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	return base != MAP_FAILED && mprotect(base, 4096, PROT_READ | PROT_WRITE) == 0;
}

int attacker_ways_to_write(int fd)
{
	int ways = 0;

	ways += maps_writable(fd);
	ways += reopens_writable(fd);
	ways += becomes_writable(fd);
	ways += pwrite(fd, "x", 1, 0) == 1;
	ways += ftruncate(fd, 0) == 0;
	ways += fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
	ways += fchmod(fd, 0777) == 0;
	ways += fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0;
	return ways;
}

/* Its own channel and ledger it may write, but their size is not its to change: the manager would die of SIGBUS. */
int attacker_ways_to_resize(int fd)
{
	struct stat before, after;
	int ways = 0;

	if (fstat(fd, &before) < 0)
		return 1;
	ways += ftruncate(fd, 0) == 0;
	ways += ftruncate(fd, before.st_size * 2) == 0;
	return ways + (fstat(fd, &after) < 0 || after.st_size != before.st_size);
}

int attacker_find_writable(const struct attacker *attacker)
{
	int ways = 0;

	for (int i = CNRE_FD_PAGE; i <= CNRE_FD_DIRECTORY; i++)
		ways += attacker_ways_to_write(attacker->fd[i]);
	for (uint32_t i = 0; i < attacker->pool_count; i++)
		ways += attacker_ways_to_write(attacker->pool_fd[i]);
	ways += attacker->pool_count == 0; /* nothing tried is not nothing found */
	ways += attacker_ways_to_resize(attacker->fd[CNRE_FD_CHANNEL]) + attacker_ways_to_resize(attacker->fd[CNRE_FD_LEDGER]);
	return ways;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static _Atomic uint64_t *map_words(int fd, size_t *ret_count)
{
	struct stat status;
	void *base;

	if (fstat(fd, &status) < 0)
		return NULL;
	base = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	*ret_count = (size_t)status.st_size / 8;
	return base == MAP_FAILED ? NULL : base;
}

/* Half of the words are wild, half look like something: small numbers reach deeper than random ones. */
static uint64_t garbage(uint64_t *state)
{
	uint64_t word = next_random(state);

	return (word & 1) != 0 ? next_random(state) : next_random(state) & 0x0000000300000007ull;
}

void attacker_write_garbage(const struct attacker *attacker, int seconds, unsigned seed, int ledger_too)
{
	uint64_t state = 0x9e3779b97f4a7c15ull ^ (seed + 1);
	size_t channel_count, ledger_count = 0;
	_Atomic uint64_t *channel = map_words(attacker->fd[CNRE_FD_CHANNEL], &channel_count);
	_Atomic uint64_t *ledger = map_words(attacker->fd[CNRE_FD_LEDGER], &ledger_count);
	time_t end = time(NULL) + seconds;

	if (channel == NULL || ledger == NULL)
		return;
	while (time(NULL) < end) {
		for (int i = 0; i < 4096; i++)
			atomic_store_explicit(&channel[next_random(&state) % channel_count], garbage(&state),
					      memory_order_relaxed);
		for (int i = 0; ledger_too && i < 64; i++)
			atomic_store_explicit(&ledger[8 + next_random(&state) % (ledger_count - 8)], garbage(&state),
					      memory_order_relaxed);
		(void)cnre_futex_wake_all((_Atomic uint32_t *)((char *)channel + offsetof(struct cnre_channel, bell)));
	}
	/* Leaves its leases as they are: the end of the process is what frees them. */
}

void attacker_spin_visits(const struct attacker *attacker, int milliseconds, int accesses)
{
	size_t count;
	_Atomic uint64_t *words = map_words(attacker->fd[CNRE_FD_CHANNEL], &count);
	_Atomic uint64_t *log = words + CNRE_CHANNEL_LOG_OFF / sizeof *words;
	int64_t end_ns = cnre_clock_now_ns() + milliseconds * CNRE_NS_PER_MS;
	uint64_t position = 0;

	while (words != NULL && cnre_clock_now_ns() < end_ns) {
		for (int i = 0; i < 256; i++) {
			cnre_access_log_put(log, position++, CNRE_LOG_VISIT, 1, 0);
			for (int k = 0; k < accesses; k++)
				cnre_access_log_put(log, position++, CNRE_LOG_ACCESS, 1, 0);
		}
		(void)cnre_futex_wake_all((_Atomic uint32_t *)((char *)words + offsetof(struct cnre_channel, bell)));
	}
}

void attacker_send_random_message(const char *socket, unsigned seed)
{
	_Alignas(8) char message[8192];
	uint64_t state = 0x9e3779b97f4a7c15ull * (seed + 1);
	struct cnre_wire_header header;
	size_t bytes = next_random(&state) % sizeof message;
	int fd = connect_to(socket);
	struct timeval patience = {.tv_usec = 20000};

	if (fd < 0)
		return;
	for (size_t i = 0; i < sizeof message; i++)
		message[i] = (char)next_random(&state);
	/* Most carry a good header, to get past it. */
	cnre_wire_fill(&header, (enum cnre_wire_type)(next_random(&state) % 8), 7, bytes);
	if (seed % 8 != 0 && bytes >= sizeof header)
		memcpy(message, &header, sizeof header);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	(void)send(fd, message, bytes, MSG_NOSIGNAL);
	if (seed % 3 == 0)
		(void)recv(fd, message, sizeof message, 0);
	(void)close(fd);
}

int attacker_ask_on(int connected, const char *json)
{
	_Alignas(8) char buffer[sizeof(struct cnre_wire_control) + 256];
	struct cnre_wire_control *request = (struct cnre_wire_control *)buffer;
	size_t bytes = sizeof *request + strlen(json);

	if (bytes > sizeof buffer)
		return -E2BIG;
	memcpy(request->text, json, strlen(json));
	cnre_wire_fill(&request->header, CNRE_WIRE_CONTROL, 1, (uint32_t)bytes);
	return send(connected, request, bytes, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int attacker_ask(const char *socket, const char *json, int times)
{
	int fd = connect_to(socket);

	for (int i = 0; fd >= 0 && i < times; i++)
		(void)attacker_ask_on(fd, json);
	return fd;
}

int attacker_hello_of_version(const char *socket, const char *model, uint16_t version)
{
	struct cnre_wire_hello hello;
	struct cnre_wire_welcome welcome = {.status = -EIO};
	int fd = connect_to(socket);

	if (fd < 0)
		return fd;
	fill_hello(&hello, model);
	hello.header.version = version;
	(void)send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
	(void)recv(fd, &welcome, sizeof welcome, 0);
	(void)close(fd);
	return welcome.status;
}
