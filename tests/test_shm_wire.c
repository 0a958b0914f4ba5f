/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair[2];
static _Alignas(16) char buffer[CNRE_WIRE_MESSAGE_MAX];
static int fds[CNRE_WIRE_FDS_MAX];

static void open_pair(void)
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
}

static void close_pair(void)
{
	(void)close(pair[0]);
	(void)close(pair[1]);
}

TestSuite(shm_wire, .timeout = 10, .init = open_pair, .fini = close_pair);

/* The lowest descriptor number that is free: shows whether a refused message left any open. */
static int next_free(void)
{
	int fd = dup(pair[0]);

	(void)close(fd);
	return fd;
}

static struct cnre_wire_segments segments_message(uint32_t id)
{
	struct cnre_wire_segments message = {.first = 3, .count = 2, .total = 5};

	cnre_wire_fill(&message.header, CNRE_WIRE_SEGMENTS, id, sizeof message);
	return message;
}

Test(shm_wire, message_without_descriptors_arrives_whole)
{
	struct cnre_wire_segments sent = segments_message(17);
	size_t count = 99;

	cr_assert_eq(cnre_wire_send(pair[0], &sent, sizeof sent, NULL, 0), 0);
	cr_assert_eq(cnre_wire_receive(pair[1], buffer, fds, &count), (int)sizeof sent);
	cr_expect_eq(count, 0);
	cr_expect_eq(memcmp(buffer, &sent, sizeof sent), 0);
	cr_expect_eq(cnre_wire_expect(buffer, sizeof sent, CNRE_WIRE_SEGMENTS, sizeof sent), 0);
	cr_expect_eq(cnre_wire_expect(buffer, sizeof sent, CNRE_WIRE_HELLO, sizeof sent), -EBADMSG);
	cr_expect_eq(cnre_wire_expect(buffer, sizeof sent, CNRE_WIRE_SEGMENTS, sizeof sent + 1), -EBADMSG);
	cr_expect_eq(cnre_wire_expect(buffer, -EAGAIN, CNRE_WIRE_SEGMENTS, sizeof sent), -EBADMSG);
}

Test(shm_wire, descriptors_arrive_in_order_and_close_on_exec)
{
	struct cnre_wire_segments sent = segments_message(1);
	int pipes[2][2];
	size_t count = 0;
	char byte = 0;

	cr_assert_eq(pipe(pipes[0]), 0);
	cr_assert_eq(pipe(pipes[1]), 0);
	cr_assert_eq(cnre_wire_send(pair[0], &sent, sizeof sent, (int[]){pipes[0][0], pipes[1][0]}, 2), 0);
	cr_assert_eq(cnre_wire_receive(pair[1], buffer, fds, &count), (int)sizeof sent);
	cr_assert_eq(count, 2);
	for (int i = 0; i < 2; i++) {
		cr_expect(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
		cr_assert_eq(write(pipes[i][1], &(char){(char)('a' + i)}, 1), 1);
		cr_assert_eq(read(fds[i], &byte, 1), 1);
		cr_expect_eq(byte, 'a' + i);
	}
}

Test(shm_wire, as_many_descriptors_as_the_bound_arrive)
{
	struct cnre_wire_segments sent = segments_message(1);
	int many[CNRE_WIRE_FDS_MAX + 1];
	size_t count = 0;

	for (size_t i = 0; i < CNRE_WIRE_FDS_MAX + 1; i++)
		many[i] = pair[0];
	cr_expect_eq(cnre_wire_send(pair[0], &sent, sizeof sent, many, CNRE_WIRE_FDS_MAX + 1), -EINVAL);
	cr_assert_eq(cnre_wire_send(pair[0], &sent, sizeof sent, many, CNRE_WIRE_FDS_MAX), 0);
	cr_assert_eq(cnre_wire_receive(pair[1], buffer, fds, &count), (int)sizeof sent);
	cr_expect_eq(count, CNRE_WIRE_FDS_MAX);
}

/* A peer that does not use this library. */
static void send_raw(const void *bytes, size_t length, size_t fd_count)
{
	union {
		char bytes[CMSG_SPACE(253 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec part = {(void *)bytes, length};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd_count > 0) {
		struct cmsghdr *first;

		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		first = CMSG_FIRSTHDR(&header);
		*first = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS,
					  .cmsg_len = CMSG_LEN(fd_count * sizeof(int))};
		for (size_t i = 0; i < fd_count; i++)
			memcpy(CMSG_DATA(first) + i * sizeof(int), &pair[0], sizeof(int));
	}
	cr_assert_eq(sendmsg(pair[0], &header, 0), (ssize_t)length);
}

Test(shm_wire, more_descriptors_than_the_bound_are_refused_and_none_stays_open)
{
	struct cnre_wire_segments sent = segments_message(1);
	int before = next_free();
	size_t count = 99;

	send_raw(&sent, sizeof sent, 253);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, fds, &count), -EBADMSG);
	cr_expect_eq(count, 99, "output is untouched");
	cr_expect_eq(next_free(), before);
}

Test(shm_wire, receiver_that_expects_no_descriptors_never_has_one_installed)
{
	struct cnre_wire_segments sent = segments_message(1);
	int before = next_free();

	send_raw(&sent, sizeof sent, 3);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, NULL, NULL), -EBADMSG);
	cr_expect_eq(next_free(), before);
	send_raw(&sent, sizeof sent, 0);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, NULL, NULL), (int)sizeof sent);
}

Test(shm_wire, message_whose_length_is_not_what_it_says_is_refused)
{
	struct cnre_wire_segments sent = segments_message(1);
	size_t count = 99;

	send_raw(&sent, sizeof sent - 1, 0);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, fds, &count), -EBADMSG);
	send_raw(&sent, 7, 0);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, fds, &count), -EBADMSG);
	sent.header.bytes++;
	send_raw(&sent, sizeof sent, 0);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, fds, &count), -EBADMSG);
	cr_expect_eq(count, 99);
}

Test(shm_wire, message_longer_than_the_buffer_is_refused)
{
	static char large[CNRE_WIRE_MESSAGE_MAX + 100];
	size_t count;

	cnre_wire_fill((struct cnre_wire_header *)(void *)large, CNRE_WIRE_CONTROL, 1, CNRE_WIRE_MESSAGE_MAX);
	send_raw(large, sizeof large, 0);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, fds, &count), -EBADMSG);
	cr_expect_eq(cnre_wire_send(pair[0], large, sizeof large, NULL, 0), -EINVAL);
}

Test(shm_wire, other_version_is_eproto_and_its_descriptors_are_closed)
{
	struct cnre_wire_segments sent = segments_message(1);
	int before = next_free();
	size_t count;

	sent.header.version++;
	send_raw(&sent, sizeof sent, 2);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, fds, &count), -EPROTO);
	cr_expect_eq(next_free(), before);
	sent.header.magic++;
	send_raw(&sent, sizeof sent, 0);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, fds, &count), -EBADMSG);
}

Test(shm_wire, end_of_file_is_0_and_no_message_is_eagain)
{
	size_t count;

	cr_expect_eq(cnre_wire_receive(pair[1], buffer, fds, &count), -EAGAIN);
	(void)shutdown(pair[0], SHUT_RDWR);
	cr_expect_eq(cnre_wire_receive(pair[1], buffer, fds, &count), 0);
}

Test(shm_wire, peer_that_has_gone_is_epipe_and_no_signal)
{
	struct cnre_wire_segments sent = segments_message(1);

	(void)close(pair[1]);
	pair[1] = -1;
	cr_expect_eq(cnre_wire_send(pair[0], &sent, sizeof sent, NULL, 0), -EPIPE);
}

Test(shm_wire, peer_that_does_not_read_is_eagain)
{
	struct cnre_wire_segments sent = segments_message(1);
	int r = 0;

	for (int i = 0; i < 100000 && r == 0; i++)
		r = cnre_wire_send(pair[0], &sent, sizeof sent, NULL, 0);
	cr_expect_eq(r, -EAGAIN);
}
