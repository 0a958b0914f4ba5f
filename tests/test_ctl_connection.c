/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ctl/connection.c against a manager that behaves badly in every way that a message can. */
#include "tools/ctl/connection.h"

#include "shm/wire.h"
#include "tests/support/fake_manager.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(ctl_connection, .timeout = 20);

static char message[CTL_MESSAGE_BYTES];
static char *answer_text;
static size_t answer_bytes;

/* Asks a manager of this behaviour once; the outputs stay in the statics above. */
static int ask(enum fake_behaviour behaviour, const char *text, int status, int64_t timeout_ns)
{
	struct fake_manager manager = {.behaviour = behaviour, .text = text, .status = status};
	struct connection_question question = {"{\"verb\":\"status\"}", 17, NULL, -1, timeout_ns};
	int connected, r;

	answer_text = NULL;
	answer_bytes = 77;
	cr_assert_eq(fake_manager_start(&manager), 0);
	connected = connection_open(manager.path);
	cr_assert_geq(connected, 0);
	r = connection_ask(connected, &question, &answer_text, &answer_bytes, message);
	close(connected);
	fake_manager_stop(&manager);
	cr_expect_str_eq(manager.asked, question.text);
	return r;
}

static void expect_failure(enum fake_behaviour behaviour, int expected)
{
	cr_expect_eq(ask(behaviour, "{}", 0, CONNECTION_TIMEOUT_NS), expected, "behaviour %d", behaviour);
	cr_expect_null(answer_text);
	cr_expect_eq(answer_bytes, 77);
	cr_expect_neq(message[0], '\0');
}

Test(ctl_connection, answer_is_the_text_of_the_memfd)
{
	cr_assert_eq(ask(FAKE_ANSWERS, "{\"pid\":1}", 0, CONNECTION_TIMEOUT_NS), 0);
	cr_assert_eq(answer_bytes, 9);
	cr_expect_arr_eq(answer_text, "{\"pid\":1}", 9);
	free(answer_text);
}

Test(ctl_connection, refusal_brings_the_managers_code_and_words)
{
	cr_expect_eq(ask(FAKE_REFUSES, "below the guarantee of 1.5 GiB", -ENOSPC, CONNECTION_TIMEOUT_NS), -ENOSPC);
	cr_expect_str_eq(message, "below the guarantee of 1.5 GiB");
}

Test(ctl_connection, control_characters_of_a_refusal_become_question_marks)
{
	cr_expect_eq(ask(FAKE_REFUSES, "no\033[2J\n", -EINVAL, CONNECTION_TIMEOUT_NS), -EINVAL);
	cr_expect_str_eq(message, "no?[2J?");
}

Test(ctl_connection, refusal_with_a_status_that_is_no_error_is_ebadmsg)
{
	cr_expect_eq(ask(FAKE_REFUSES, "", 5, CONNECTION_TIMEOUT_NS), -EBADMSG);
	cr_expect_eq(ask(FAKE_REFUSES, "", INT32_MIN, CONNECTION_TIMEOUT_NS), -EBADMSG);
	cr_expect_neq(message[0], '\0');
}

Test(ctl_connection, silent_manager_costs_the_timeout_only)
{
	cr_expect_eq(ask(FAKE_IS_SILENT, "{}", 0, 30 * 1000000), -ETIMEDOUT);
	cr_expect_null(answer_text);
}

Test(ctl_connection, bad_answers_are_errors_and_leave_the_outputs_alone)
{
	expect_failure(FAKE_HANGS_UP, -ECONNRESET);
	expect_failure(FAKE_CHANGES_ID, -EBADMSG);
	expect_failure(FAKE_SENDS_NO_TEXT, -EBADMSG);
	expect_failure(FAKE_SENDS_PIPE, -EBADMSG);
	expect_failure(FAKE_PROMISES_MORE, -EBADMSG);
	expect_failure(FAKE_PROMISES_TOO_MUCH, -E2BIG);
	expect_failure(FAKE_IS_NEWER, -EPROTO);
	expect_failure(FAKE_SENDS_GARBAGE, -EBADMSG);
}

Test(ctl_connection, readable_stop_descriptor_ends_the_wait)
{
	struct fake_manager manager = {.behaviour = FAKE_IS_SILENT, .text = "{}"};
	struct connection_question question = {"{}", 2, NULL, -1, -1};
	int connected, stop[2];
	char *text = NULL;
	size_t bytes;

	cr_assert_eq(pipe(stop), 0);
	close(stop[1]);
	question.stop_fd = stop[0];
	cr_assert_eq(fake_manager_start(&manager), 0);
	connected = connection_open(manager.path);
	cr_expect_eq(connection_ask(connected, &question, &text, &bytes, message), -EINTR);
	cr_expect_null(text);
	close(connected);
	close(stop[0]);
	fake_manager_stop(&manager);
}

Test(ctl_connection, question_longer_than_a_message_is_e2big)
{
	static char text[CNRE_WIRE_CONTROL_MAX + 1];
	struct connection_question question = {text, sizeof text, NULL, -1, CONNECTION_TIMEOUT_NS};
	struct fake_manager manager = {.text = "{}"};
	char *answer = NULL;
	size_t bytes;
	int connected;

	cr_assert_eq(fake_manager_start(&manager), 0);
	connected = connection_open(manager.path);
	cr_expect_eq(connection_ask(connected, &question, &answer, &bytes, message), -E2BIG);
	close(connected);
	fake_manager_stop(&manager);
}

/* Its permissions are the input: whoever runs this could get in or not. */
Test(ctl_connection, permission_advice_names_the_group_that_may_come_in)
{
	char path[] = "/tmp/cnre-test-XXXXXX", advice[CONNECTION_ADVICE_BYTES];
	const struct group *group = getgrgid(getegid());
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	if (group == NULL)
		cr_skip("this process's group has no name");
	cr_assert_eq(fchmod(fd, 0660), 0);
	connection_advice(path, -EACCES, advice);
	cr_expect_not_null(strstr(advice, "member of the socket's group ("), "%s", advice);
	cr_expect_not_null(strstr(advice, group->gr_name), "%s", advice);
	cr_assert_eq(fchmod(fd, 0600), 0);
	connection_advice(path, -EACCES, advice);
	cr_expect_not_null(strstr(advice, "is its owner's alone"), "%s", advice);
	close(fd);
	unlink(path);
}

Test(ctl_connection, no_socket_a_dead_socket_and_a_long_path_differ)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char directory[] = "/tmp/cnre-test-XXXXXX";
	char long_path[200], advice[CONNECTION_ADVICE_BYTES];
	int dead;

	cr_assert_not_null(mkdtemp(directory));
	snprintf(address.sun_path, sizeof address.sun_path, "%s/dead.sock", directory);
	cr_expect_eq(connection_open(address.sun_path), -ENOENT);
	dead = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	cr_assert_eq(bind(dead, (struct sockaddr *)&address, sizeof address), 0);
	close(dead);
	cr_expect_eq(connection_open(address.sun_path), -ECONNREFUSED);
	connection_advice(address.sun_path, -ECONNREFUSED, advice);
	cr_expect_not_null(strstr(advice, "nobody listens"), "%s", advice);
	connection_advice("/dev/null", -ECONNREFUSED, advice);
	cr_expect_not_null(strstr(advice, "not a socket"), "%s", advice);
	memset(long_path, 'a', sizeof long_path);
	long_path[sizeof long_path - 1] = '\0';
	cr_expect_eq(connection_open(long_path), -ENAMETOOLONG);
	unlink(address.sun_path);
	rmdir(directory);
}
