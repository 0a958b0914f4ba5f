/* SPDX-License-Identifier: Apache-2.0 */
/* Where metrics may be served: this machine's own addresses and paths, and nothing that others reach. */
#include "manager/metrics_address.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

TestSuite(manager_metrics_address, .timeout = 10);

static char message[256];

static int parse(const char *text, struct metrics_address *address)
{
	message[0] = '\0';
	return metrics_address_parse(text, address, message, sizeof message);
}

Test(manager_metrics_address, loopback_addresses_and_absolute_paths_are_taken)
{
	struct metrics_address address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)&address.internet;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address.internet;

	cr_assert_eq(parse("127.0.0.1:9847", &address), 0, "%s", message);
	cr_expect(address.path == NULL && four->sin_family == AF_INET && ntohs(four->sin_port) == 9847);
	cr_expect_eq(ntohl(four->sin_addr.s_addr), INADDR_LOOPBACK);
	cr_assert_eq(parse("127.3.2.1:65535", &address), 0, "%s", message);
	cr_assert_eq(parse("[::1]:1", &address), 0, "%s", message);
	cr_expect(six->sin6_family == AF_INET6 && ntohs(six->sin6_port) == 1 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr));
	cr_assert_eq(parse("unix:/run/cnre/metrics.sock", &address), 0, "%s", message);
	cr_expect_str_eq(address.path, "/run/cnre/metrics.sock");
}

Test(manager_metrics_address, what_others_reach_or_nobody_understands_is_refused)
{
	static const char *const wrong[] = {
		"", ":", ":9847", "9847", "0.0.0.0:9847", "10.0.0.1:9847", "128.0.0.1:9847", "126.255.255.255:9847",
		"localhost:9847", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:99999999999999999999",
		"127.0.0.1:98 47", "127.0.0.1:+1", "127.0.0.1:-1", "127.1:9847", "::1:9847", "[::]:9847", "[::1:9847", "[]:1", "[:1",
		"[::ffff:127.0.0.1]:9847", "[fe80::1]:9847", "unix:", "unix:relative", "http://127.0.0.1:9847"};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct metrics_address address = {.path = "untouched"};

		cr_expect_eq(parse(wrong[i], &address), -EINVAL, "%s", wrong[i]);
		cr_expect_str_eq(address.path, "untouched", "%s", wrong[i]);
		cr_expect_not_null(strstr(message, "--metrics: "), "%s", wrong[i]);
	}
}
