/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a client waits when its cache's process dies. "cnre": SIGKILL of the manager, then one cold acquire and one
 * of an expert that was resident, by a client that stays attached. "memcached": its warm restart, SIGUSR1 and the same
 * command again, until a get of a key that was stored before succeeds. One line of JSON; restart.sh repeats it in turns.
 *
 * usage: bench_restart cnre SOCKET MODEL PID SEED
 *        bench_restart memcached SOCKET FILE MEGABYTES VALUE_BYTES COUNT
 */
#include "base/clock.h"

#include <cnre/cnre.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_NS (30 * CNRE_NS_PER_S)

static void fail(const char *what, int error)
{
	fprintf(stderr, "bench_restart: %s: %s\n", what, strerror(-error));
	exit(1);
}

static double us_since(int64_t start_ns)
{
	return (double)(cnre_clock_now_ns() - start_ns) / 1e3;
}

/* ---- cnre ---- */

static void acquire(struct cnre *client, uint32_t object, const struct cnre_model_info *info)
{
	struct cnre_expert expert;
	int r = cnre_acquire(client, object / info->expert_count, object % info->expert_count, LIMIT_NS, &expert);

	if (r < 0)
		fail("acquire", r);
	(void)cnre_release(client, &expert);
}

/* The lower half becomes resident; the upper half is cold, because the script has emptied the cache. */
static void bench_cnre(char **argv)
{
	struct cnre_options options = {.size = sizeof options, .socket = argv[2], .name = "bench_restart", .timeout_ns = LIMIT_NS};
	struct cnre_model_info info = {.size = sizeof info};
	uint32_t half, cold, warm;
	struct cnre *client;
	double hit_us, cold_us, before_us;
	int64_t start_ns;
	int r = cnre_attach(&client, argv[3], &options);

	if (r < 0 || cnre_model(client, &info) < 0)
		fail("attach", r);
	half = info.object_count / 2;
	srandom((unsigned)strtoul(argv[5], NULL, 10));
	warm = (uint32_t)random() % half;
	cold = half + (uint32_t)random() % (half - 1);
	for (uint32_t i = 0; i < half; i++)
		acquire(client, i, &info);
	start_ns = cnre_clock_now_ns();
	acquire(client, cold, &info);
	before_us = us_since(start_ns);
	if (kill((pid_t)strtol(argv[4], NULL, 10), SIGKILL) < 0)
		fail("kill", -errno);
	start_ns = cnre_clock_now_ns();
	acquire(client, warm, &info);
	hit_us = us_since(start_ns);
	acquire(client, cold + 1, &info);
	cold_us = us_since(start_ns);
	cnre_detach(client);
	printf("{\"cold_us\":%.1f,\"hit_us\":%.3f,\"cold_before_us\":%.1f}\n", cold_us, hit_us, before_us);
}

/* ---- memcached ---- */

static pid_t start_memcached(char **argv)
{
	pid_t child = fork();

	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("memcached", "memcached", "-u", "root", "-s", argv[2], "-e", argv[3], "-m", argv[4], "-I", "8m", "-t", "2",
		       (char *)NULL);
		_exit(127);
	}
	return child;
}

static int try_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		(void)close(fd);
		fd = -1;
	}
	return fd;
}

/* As a client would: again and again, without a pause. */
static int connect_until(const char *path)
{
	int64_t end_ns = cnre_clock_deadline_ns(LIMIT_NS);
	int fd;

	while ((fd = try_connect(path)) < 0 && cnre_clock_now_ns() < end_ns)
		(void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	if (fd < 0)
		fail("no memcached", -ETIMEDOUT);
	return fd;
}

static void send_all(int fd, const char *bytes, size_t count)
{
	while (count > 0) {
		ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);

		if (n <= 0)
			fail("send", -errno);
		bytes += n;
		count -= (size_t)n;
	}
}

/* Reads a whole answer, until it ends with `end`; whether it begins with `begin`. */
static int answers(int fd, char *buffer, size_t size, const char *begin, const char *end)
{
	size_t length = 0, tail = strlen(end);

	while (length < size) {
		ssize_t n = recv(fd, buffer + length, size - length, 0);

		if (n <= 0)
			return 0;
		length += (size_t)n;
		if (length >= tail && memcmp(buffer + length - tail, end, tail) == 0)
			return memcmp(buffer, begin, strlen(begin)) == 0;
	}
	return 0;
}

static void fill_memcached(int fd, size_t value_bytes, unsigned count, char *buffer, size_t size)
{
	char *value = calloc(1, value_bytes + 2), line[64];

	if (value == NULL)
		fail("memory", -ENOMEM);
	memset(value, 'v', value_bytes);
	memcpy(value + value_bytes, "\r\n", 2);
	for (unsigned i = 0; i < count; i++) {
		int length = snprintf(line, sizeof line, "set key%u 0 0 %zu\r\n", i, value_bytes);

		send_all(fd, line, (size_t)length);
		send_all(fd, value, value_bytes + 2);
		if (!answers(fd, buffer, size, "STORED", "\r\n"))
			fail("set", -EIO);
	}
	free(value);
}

static int get(int fd, unsigned key, char *buffer, size_t size)
{
	char line[64];
	int length = snprintf(line, sizeof line, "get key%u\r\n", key);

	send_all(fd, line, (size_t)length);
	return answers(fd, buffer, size, "VALUE", "END\r\n");
}

/* memcached 1.6.18 takes nothing over when it starts in the very second in which it stopped; this wait is not counted. */
static void wait_for_next_second(void)
{
	time_t stopped = time(NULL);

	while (time(NULL) <= stopped + 1)
		(void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void bench_memcached(char **argv)
{
	size_t value_bytes = strtoul(argv[5], NULL, 10), size = value_bytes + 256;
	unsigned count = (unsigned)strtoul(argv[6], NULL, 10);
	char *buffer = malloc(size);
	pid_t child = start_memcached(argv);
	int fd = connect_until(argv[2]), status = 0, found;
	double exit_us, get_us;
	int64_t start_ns;

	if (buffer == NULL)
		fail("memory", -ENOMEM);
	fill_memcached(fd, value_bytes, count, buffer, size);
	if (!get(fd, count / 2, buffer, size))
		fail("get before", -ENOENT);
	start_ns = cnre_clock_now_ns();
	(void)kill(child, SIGUSR1);
	if (waitpid(child, &status, 0) < 0)
		fail("wait", -errno);
	exit_us = us_since(start_ns);
	(void)close(fd);
	(void)unlink(argv[2]);
	wait_for_next_second();
	start_ns = cnre_clock_now_ns();
	child = start_memcached(argv);
	fd = connect_until(argv[2]);
	found = get(fd, count / 2, buffer, size);
	get_us = exit_us + us_since(start_ns);
	(void)kill(child, SIGTERM);
	(void)waitpid(child, &status, 0);
	if (!found)
		fail("get after the restart", -ENOENT);
	printf("{\"get_us\":%.1f,\"exit_us\":%.1f}\n", get_us, exit_us);
	free(buffer);
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "cnre") == 0)
		bench_cnre(argv);
	else if (argc == 7 && strcmp(argv[1], "memcached") == 0)
		bench_memcached(argv);
	else
		fail("usage", -EINVAL);
	return 0;
}
