/* SPDX-License-Identifier: Apache-2.0 */
/* cnre-olmoe --serve as a program: its answers are those of single runs, and no caller holds up the others. */
#include "engine/request.h"
#include "engine/serve.h"
#include "tests/support/tiny_olmoe.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char model[64], socket_path[96], program[512];
static pid_t child;
static FILE *output; /* of the child */

static void begin(void)
{
	const char *build = getenv("CNRE_BUILD");

	snprintf(program, sizeof program, "%s/cnre-olmoe", build ? build : "build");
	if (access(program, X_OK) != 0)
		cr_skip("cnre-olmoe is not built; make it, or name its folder in CNRE_BUILD");
	strcpy(model, "/tmp/cnre-serve-XXXXXX");
	cr_assert_not_null(mkdtemp(model));
	snprintf(socket_path, sizeof socket_path, "%s/s", model);
	cr_assert_eq(tiny_olmoe_write(model, CNRE_BF16, CNRE_BF16), 0);
}

static void finish(void)
{
	if (child > 0)
		kill(child, SIGKILL);
	if (child > 0)
		waitpid(child, NULL, 0);
	unlink(socket_path);
	tiny_olmoe_remove(model);
}

TestSuite(engine_serve, .init = begin, .fini = finish, .timeout = 60);

/* With these options; its standard input is *ret_in, its output is output. */
static void start(char *const *options, int *ret_in)
{
	char *arguments[24] = {program, "--model", model, "--serve", "--cache", "mmap", "--threads", "1"};
	int in[2], out[2], count = 8;

	while (*options)
		arguments[count++] = *options++;
	cr_assert_eq(pipe(in), 0);
	cr_assert_eq(pipe(out), 0);
	child = fork();
	if (child == 0) {
		(void)signal(SIGINT, SIG_DFL); /* a shell's background has it ignored */
		(void)dup2(in[0], STDIN_FILENO);
		(void)dup2(out[1], STDOUT_FILENO);
		for (int i = 0; i < 2; i++) {
			(void)close(in[i]);
			(void)close(out[i]);
		}
		execv(program, arguments);
		_exit(99);
	}
	close(in[0]);
	close(out[1]);
	*ret_in = in[1];
	output = fdopen(out[0], "r");
}

static void start_listening(void)
{
	char line[256];
	int in;

	start((char *[]){"--listen", socket_path, "--name", "left", NULL}, &in);
	close(in);
	cr_assert_not_null(fgets(line, sizeof line, output));
	cr_assert_eq(strncmp(line, "ready: ", 7), 0, "%s", line);
}

static int end_status(void)
{
	int status = -1;

	waitpid(child, &status, 0);
	child = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, socket_path);
	cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	return fd;
}

static void say(int fd, const char *text)
{
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

/* The next line as JSON; NULL at the end. */
static json_t *hear(FILE *file)
{
	static char line[65536];
	json_t *answer;

	if (!fgets(line, sizeof line, file))
		return NULL;
	answer = json_loads(line, 0, NULL);
	cr_assert_not_null(answer, "not JSON: %s", line);
	return answer;
}

static const char *text_of(const json_t *answer, const char *key)
{
	const char *text = json_string_value(json_object_get(answer, key));

	return text ? text : "";
}

static json_t *run_once(const char *tokens)
{
	char command[1024];
	FILE *pipe;
	json_t *result;

	snprintf(command, sizeof command, "%s --model %s --cache mmap --threads 2 --json --steps 20 --tokens '%s'",
		 program, model, tokens);
	pipe = popen(command, "r");
	result = hear(pipe);
	cr_assert_eq(pclose(pipe), 0);
	return result;
}

Test(engine_serve, answers_are_the_tokens_of_single_runs)
{
	static const char *const prompts[] = {"3 17 29", "0", "39 8 8 1 2 3 4 5 6 7 8 9 10 11 12"};
	char line[256];
	int in;

	start((char *[]){NULL}, &in);
	for (size_t i = 0; i < 3; i++) {
		snprintf(line, sizeof line, "generate c%zu 20 %s\n", i, prompts[i]);
		say(in, line);
	}
	close(in);
	for (size_t i = 0; i < 3; i++) {
		json_t *expected = run_once(prompts[i]), *answer = hear(output);

		cr_expect_eq(json_array_size(json_object_get(answer, "tokens")), 20);
		cr_expect(json_equal(json_object_get(answer, "tokens"), json_object_get(expected, "tokens")),
			  "prompt %zu", i);
		cr_expect(json_is_real(json_object_get(answer, "time_to_first_token_s")));
		cr_expect(json_is_object(json_object_get(expected, "kv")));
		json_decref(expected);
		json_decref(answer);
	}
	cr_expect_null(hear(output), "the end of input ends the engine");
	cr_expect_eq(end_status(), 0);
}

Test(engine_serve, a_line_that_is_too_long_is_one_error_and_the_next_is_served)
{
	char piece[4096];
	json_t *answer;
	int in;

	start((char *[]){NULL}, &in);
	memset(piece, '1', sizeof piece);
	for (size_t sent = 0; sent <= REQUEST_LINE_BYTES_MAX; sent += sizeof piece)
		cr_assert_eq(write(in, piece, sizeof piece), (ssize_t)sizeof piece);
	say(in, "\nend a\nquit\n");
	answer = hear(output);
	cr_expect_not_null(strstr(text_of(answer, "error"), "longer than 1 MiB"));
	json_decref(answer);
	answer = hear(output);
	cr_expect_not_null(strstr(text_of(answer, "error"), "no such conversation"));
	json_decref(answer);
	answer = hear(output);
	cr_expect(json_is_true(json_object_get(answer, "quit")));
	json_decref(answer);
	cr_expect_eq(end_status(), 0);
	close(in);
}

/* One sends a hundred lines at once, the other one line: it is served second or third, not after the hundred. */
Test(engine_serve, many_lines_of_one_connection_do_not_hold_up_another)
{
	enum { LINES = 100 };
	FILE *greedy, *modest;
	int greedy_fd, modest_fd;

	start_listening();
	greedy_fd = dial();
	modest_fd = dial();
	for (int i = 0; i < LINES; i++)
		say(greedy_fd, "generate greedy 200 1 2 3\n");
	say(modest_fd, "generate modest 1 4\n");
	modest = fdopen(modest_fd, "r");
	greedy = fdopen(greedy_fd, "r");
	json_decref(hear(modest));
	say(modest_fd, "quit\n"); /* the answers that the other would still get are lost */
	json_decref(hear(modest));
	cr_expect_eq(end_status(), 0);
	for (int i = 0;; i++) {
		json_t *answer = hear(greedy);

		if (!answer)
			break;
		json_decref(answer);
		cr_expect_lt(i, LINES / 2, "most of the greedy lines were served before the modest ones");
	}
	cr_expect_neq(access(socket_path, F_OK), 0, "the socket's file is gone");
	fclose(greedy);
	fclose(modest);
}

Test(engine_serve, callers_that_vanish_or_never_read_do_not_hold_up_others)
{
	enum { SENDS = 50000 };
	json_t *answer;
	FILE *file;
	int silent, gone, fd;

	start_listening();
	silent = dial();
	for (int i = 0; i < SENDS; i++) /* until its answers fill both buffers, and then its lines do */
		(void)send(silent, "nonsense\n", 9, MSG_DONTWAIT);
	gone = dial();
	say(gone, "generate gone 200 1 2 3\n");
	close(gone);
	fd = dial();
	say(fd, "generate a 3 1\n");
	file = fdopen(fd, "r");
	answer = hear(file);
	cr_expect_str_eq(text_of(answer, "id"), "a");
	json_decref(answer);
	say(fd, "identity\nquit\n");
	answer = hear(file);
	cr_expect_str_eq(text_of(answer, "name"), "left");
	json_decref(answer);
	json_decref(hear(file));
	cr_expect_eq(end_status(), 0);
	close(silent);
	fclose(file);
}

Test(engine_serve, more_callers_than_connections_wait_to_be_accepted)
{
	enum { CALLERS = SERVE_CONNECTIONS_MAX + 6 };
	FILE *file[CALLERS];

	start_listening();
	for (int i = 0; i < (int)CALLERS; i++) {
		int fd = dial();

		say(fd, "generate a 1 5\n");
		file[i] = fdopen(fd, "r");
	}
	for (int i = 0; i < (int)CALLERS; i++) {
		json_t *answer = hear(file[i]);

		cr_expect_str_eq(text_of(answer, "id"), "a");
		json_decref(answer);
		if (i == (int)CALLERS - 1)
			say(fileno(file[i]), "quit\n");
		else
			fclose(file[i]);
	}
	cr_expect_eq(end_status(), 0);
	fclose(file[CALLERS - 1]);
}

Test(engine_serve, a_dead_engines_socket_is_replaced_a_living_ones_is_not)
{
	char message[ENGINE_MESSAGE_BYTES] = "";
	int fd = -7;

	start_listening();
	cr_expect_eq(serve_listen(socket_path, &fd, message), -EADDRINUSE);
	cr_expect_eq(fd, -7);
	cr_expect_not_null(strstr(message, "--listen"), "%s", message);
	kill(child, SIGKILL);
	(void)end_status();
	cr_assert_eq(serve_listen(socket_path, &fd, message), 0, "%s", message);
	close(fd);
	unlink(socket_path);
	snprintf(socket_path, sizeof socket_path, "%s/config.json", model);
	cr_expect_eq(serve_listen(socket_path, &fd, message), -EEXIST, "a file of somebody else's");
	cr_expect_eq(access(socket_path, F_OK), 0);
	snprintf(socket_path, sizeof socket_path, "%s/s", model);
	cr_expect_eq(serve_listen("/tmp/0123456789012345678901234567890123456789012345678901234567890123456789012345678"
				  "90123456789012345678901234567890",
				  &fd, message),
		     -ENAMETOOLONG);
}

Test(engine_serve, interrupt_ends_it_with_status_130_and_without_its_file)
{
	start_listening();
	cr_assert_eq(kill(child, SIGINT), 0);
	cr_expect_eq(end_status(), 130);
	cr_expect_neq(access(socket_path, F_OK), 0);
}
