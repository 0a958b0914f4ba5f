/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams of the descriptor store: what is read from them, and descriptors beside them. */
#include "manager/keep_wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(manager_keep_wire, .timeout = 20);

static int parse(const char *text, struct keep_message *ret_message)
{
	return keep_parse(text, strlen(text), ret_message);
}

Test(manager_keep_wire, lines_are_read_in_any_order_and_unknown_ones_passed_over)
{
	struct keep_message message;

	cr_assert_eq(parse("FDNAME=pool3\nFDPOLL=0\nMAINPID=7\nFDSTORE=1\n", &message), 0);
	cr_expect(message.store && !message.remove && !message.ready && !message.barrier && !message.stopping);
	cr_expect_str_eq(message.name, "pool3");
	cr_assert_eq(parse("READY=1\nSTATUS=serving", &message), 0);
	cr_expect(message.ready && !message.store);
	cr_expect_str_eq(message.name, "");
	cr_assert_eq(parse("STOPPING=1", &message), 0);
	cr_expect(message.stopping);
	cr_assert_eq(parse("", &message), 0);
	cr_assert_eq(parse("READY=10\nFDSTORE=", &message), 0);
	cr_expect(!message.ready && !message.store, "only the exact lines count");
}

Test(manager_keep_wire, names_that_could_break_a_list_of_names_are_refused_and_the_output_untouched)
{
	static const char *const bad[] = {"FDNAME=",     "FDNAME=a:b",  "FDNAME=a b",
					  "FDNAME=\x01", "FDNAME=\xff", "FDNAME=0123456789012345678901234"};
	struct keep_message message = {.ready = 7}, untouched = message;

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		cr_expect_eq(parse(bad[i], &message), -EBADMSG, "%s", bad[i]);
		cr_expect_eq(memcmp(&message, &untouched, sizeof message), 0);
	}
	cr_expect_eq(parse("FDNAME=012345678901234567890123", &message), 0, "24 bytes are a name");
}

Test(manager_keep_wire, bytes_that_are_not_terminated_are_not_read_beyond_their_end)
{
	struct keep_message message;
	char text[] = {'F', 'D', 'N', 'A', 'M', 'E', '=', 'x', 'y'};

	cr_assert_eq(keep_parse(text, sizeof text - 1, &message), 0);
	cr_expect_str_eq(message.name, "x");
	cr_assert_eq(keep_parse("READY=1\0\nSTOPPING=1", 19, &message), 0);
	cr_expect(!message.ready && message.stopping);
}

Test(manager_keep_wire, descriptors_arrive_close_on_exec_and_end_of_file_is_zero)
{
	int pair[2], fds[KEEP_FDS_MAX], sent[2];
	char text[KEEP_TEXT_MAX];
	size_t count = 77;
	struct stat one, two;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	sent[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	sent[1] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	cr_assert_eq(keep_send(pair[0], "FDSTORE=1\nFDNAME=x\n", sent, 2), 0);
	cr_assert_eq(keep_receive(pair[1], text, fds, &count), 19);
	cr_assert_eq(count, 2);
	cr_assert_eq(fcntl(fds[1], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	cr_assert_eq(fstat(fds[1], &one), 0);
	cr_assert_eq(fstat(sent[1], &two), 0);
	cr_expect_eq(one.st_rdev, two.st_rdev);
	cr_expect_eq(keep_send(pair[0], "x", sent, KEEP_FDS_MAX + 1), -EINVAL);
	(void)close(pair[0]);
	cr_expect_eq(keep_receive(pair[1], text, fds, &count), 0);
	cr_expect_eq(keep_send(pair[1], "READY=1", NULL, 0), -EPIPE);
}
