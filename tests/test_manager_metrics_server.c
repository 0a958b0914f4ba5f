/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP for scrapers: what is answered, and that whoever is slow loses its place. */
#include "manager/metrics_server.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct metrics_server *server;
static struct sockaddr_in address;
static _Atomic int is_silent, asked;

static char *give(void *context, int is_openmetrics, int stop_fd, size_t *ret_bytes)
{
	char *text = strdup(is_openmetrics ? "open\n" : "older\n");

	cr_assert(context == &address && stop_fd >= 0);
	/* [T1] relaxed: counted by one thread, read when it has answered. */
	(void)atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
	/* [T2] relaxed: set before the request was sent. */
	if (text == NULL || atomic_load_explicit(&is_silent, memory_order_relaxed)) {
		free(text);
		return NULL;
	}
	*ret_bytes = strlen(text);
	return text;
}

static void begin(void)
{
	struct metrics_server_setup setup = {.context = &address, .text = give};
	socklen_t length = sizeof address;

	address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	setup.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	cr_assert_geq(setup.listen_fd, 0);
	cr_assert_eq(bind(setup.listen_fd, (struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(listen(setup.listen_fd, 16), 0);
	cr_assert_eq(getsockname(setup.listen_fd, (struct sockaddr *)&address, &length), 0);
	cr_assert_eq(metrics_server_open(&server, &setup), 0);
}

static void finish(void)
{
	server = metrics_server_close(server);
}

TestSuite(manager_metrics_server, .timeout = 60, .init = begin, .fini = finish);

static int connect_to(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_geq(fd, 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	return fd;
}

/* All until the server hangs up. */
static const char *read_all(int fd)
{
	static char bytes[4096];
	size_t count = 0;
	ssize_t n;

	while ((n = read(fd, bytes + count, sizeof bytes - 1 - count)) > 0)
		count += (size_t)n;
	bytes[count] = '\0';
	(void)close(fd);
	return bytes;
}

static const char *request(const char *line, const char *headers)
{
	char text[512];
	int fd = connect_to(), length = snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: a\r\n%s\r\n", line, headers);

	cr_assert_eq(write(fd, text, (size_t)length), length);
	return read_all(fd);
}

Test(manager_metrics_server, a_scrape_gets_the_format_that_it_asks_for_and_the_connection_ends)
{
	const char *answer = request("GET /metrics", "");

	cr_expect_eq(strncmp(answer, "HTTP/1.1 200 ", 13), 0, "%s", answer);
	cr_expect_not_null(strstr(answer, "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "%s", answer);
	cr_expect_not_null(strstr(answer, "\r\n\r\nolder\n"), "%s", answer);
	answer = request("GET /metrics", "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n");
	cr_expect_not_null(strstr(answer, "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "%s", answer);
	cr_expect_not_null(strstr(answer, "\r\n\r\nopen\n"), "%s", answer);
}

Test(manager_metrics_server, what_is_no_scrape_is_refused_without_asking_the_manager)
{
	static const char *const lines[] = {"POST /metrics", "PUT /metrics", "GET /other", "GET /metrics/", "DELETE /"};
	static const char *const codes[] = {"405", "405", "404", "404", "405"};

	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		cr_expect_eq(strncmp(request(lines[i], "") + 9, codes[i], 3), 0, "%s", lines[i]);
	/* [T3] relaxed: every request was answered. */
	cr_expect_eq(atomic_load_explicit(&asked, memory_order_relaxed), 0);
}

Test(manager_metrics_server, a_manager_that_does_not_answer_is_said_to_be_unavailable)
{
	/* [T4] relaxed: before the request. */
	atomic_store_explicit(&is_silent, 1, memory_order_relaxed);
	cr_expect_eq(strncmp(request("GET /metrics", ""), "HTTP/1.1 503 ", 13), 0);
}

Test(manager_metrics_server, a_request_that_is_too_long_is_not_kept)
{
	static char line[2 * METRICS_CONNECTION_BYTES];
	int fd = connect_to();

	memset(line, 'a', sizeof line);
	memcpy(line, "GET /", 5);
	(void)!send(fd, line, sizeof line, MSG_NOSIGNAL);
	cr_expect_neq(strncmp(read_all(fd), "HTTP/1.1 200 ", 13), 0);
}

/*
 * Goal: who sends a byte now and then does not keep a place. Method: every place is taken, and a byte sent whenever the server
 * has not hung up for a while; a scrape behind them is answered.
 */
Test(manager_metrics_server, slow_scrapers_lose_their_places)
{
	struct pollfd slow[METRICS_CONNECTIONS_MAX + 2];
	const char *answer;
	uint32_t ended = 0;

	for (uint32_t i = 0; i < METRICS_CONNECTIONS_MAX + 2; i++)
		slow[i] = (struct pollfd){.fd = connect_to(), .events = POLLIN};
	while (ended < METRICS_CONNECTIONS_MAX) {
		ended = 0;
		(void)poll(slow, METRICS_CONNECTIONS_MAX, 200);
		for (uint32_t i = 0; i < METRICS_CONNECTIONS_MAX; i++) {
			ended += slow[i].revents != 0;
			if (slow[i].revents == 0)
				(void)!send(slow[i].fd, "G", 1, MSG_NOSIGNAL);
		}
	}
	answer = request("GET /metrics", "");
	cr_expect_eq(strncmp(answer, "HTTP/1.1 200 ", 13), 0, "%s", answer);
	for (uint32_t i = 0; i < METRICS_CONNECTIONS_MAX + 2; i++)
		(void)close(slow[i].fd);
}

Test(manager_metrics_server, an_end_waits_for_nobody)
{
	int fd = connect_to();

	server = metrics_server_close(server);
	cr_expect_str_eq(read_all(fd), "");
}
