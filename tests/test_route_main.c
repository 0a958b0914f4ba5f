/* SPDX-License-Identifier: Apache-2.0 */
/* cnre-route between two cnre-olmoe processes, without a manager: every request is answered once, by somebody. */
#include "tests/support/ready.h"
#include "tests/support/tiny_olmoe.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENGINES = 2, PATH_BYTES = 600 };

static char model[64], socket_path[ENGINES][96];
static const char *const name[ENGINES] = {"left", "right"};
static pid_t engine[ENGINES];

static const char *build(void)
{
	const char *folder = getenv("CNRE_BUILD");

	return folder ? folder : "build";
}

static void start_engine(int i)
{
	char program[PATH_BYTES];
	int ends[2];

	snprintf(program, sizeof program, "%s/cnre-olmoe", build());
	snprintf(socket_path[i], sizeof socket_path[i], "%s/%s", model, name[i]);
	cr_assert_eq(pipe(ends), 0);
	engine[i] = fork();
	if (engine[i] == 0) {
		(void)dup2(ends[1], STDOUT_FILENO);
		(void)close(ends[0]);
		(void)close(ends[1]);
		execl(program, program, "--model", model, "--cache", "mmap", "--threads", "1", "--name", name[i],
		      "--serve", "--listen", socket_path[i], (char *)NULL);
		_exit(99);
	}
	(void)close(ends[1]);
	cr_assert_eq(ready_wait(ends[0]), 1);
	(void)close(ends[0]);
}

static void end_engine(int i)
{
	if (engine[i] <= 0)
		return;
	(void)kill(engine[i], SIGKILL);
	(void)waitpid(engine[i], NULL, 0);
	engine[i] = 0;
	(void)unlink(socket_path[i]);
}

static void begin(void)
{
	char program[PATH_BYTES];

	snprintf(program, sizeof program, "%s/cnre-route", build());
	if (access(program, X_OK) != 0)
		cr_skip("cnre-route is not built; make it, or name its folder in CNRE_BUILD");
	strcpy(model, "/tmp/cnre-route-XXXXXX");
	cr_assert_not_null(mkdtemp(model));
	cr_assert_eq(tiny_olmoe_write(model, CNRE_BF16, CNRE_BF16), 0);
	for (int i = 0; i < ENGINES; i++)
		start_engine(i);
}

static void finish(void)
{
	for (int i = 0; i < ENGINES; i++)
		end_engine(i);
	tiny_olmoe_remove(model);
}

TestSuite(route_main, .init = begin, .fini = finish, .timeout = 60);

/* A router with its input in ret_in and its output, errors with it, to be read. */
static FILE *start_router(int *ret_in, pid_t *ret_pid)
{
	char program[PATH_BYTES], place[ENGINES][128];
	int in[2], out[2];
	pid_t pid;

	snprintf(program, sizeof program, "%s/cnre-route", build());
	for (int i = 0; i < ENGINES; i++)
		snprintf(place[i], sizeof place[i], "%s=%s", name[i], socket_path[i]);
	cr_assert_eq(pipe(in), 0);
	cr_assert_eq(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		(void)dup2(in[0], STDIN_FILENO);
		(void)dup2(out[1], STDOUT_FILENO);
		(void)dup2(out[1], STDERR_FILENO);
		for (int i = 0; i < 2; i++) {
			(void)close(in[i]);
			(void)close(out[i]);
		}
		execl(program, program, "--model", model, "--socket", "none", place[0], place[1], (char *)NULL);
		_exit(99);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	*ret_in = in[1];
	*ret_pid = pid;
	return fdopen(out[0], "r");
}

static void say(int fd, const char *text)
{
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static json_t *hear(FILE *file)
{
	static char line[65536];
	json_t *answer;

	cr_assert_not_null(fgets(line, sizeof line, file));
	answer = json_loads(line, 0, NULL);
	cr_assert_not_null(answer, "not JSON: %s", line);
	return answer;
}

static const char *text_of(const json_t *answer, const char *key)
{
	const char *text = json_string_value(json_object_get(answer, key));

	return text ? text : "";
}

static int status_of(pid_t pid)
{
	int status = -1;

	(void)waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The line that says why nobody can be asked. */
static void hear_warning(FILE *file)
{
	char line[512] = "";

	cr_assert_not_null(fgets(line, sizeof line, file));
	cr_expect_not_null(strstr(line, "least busy engine"), "%s", line);
}

Test(route_main, every_request_is_answered_once_and_conversations_stay)
{
	enum { REQUESTS = 20 };
	int in, seen[REQUESTS] = {0}, served[ENGINES] = {0};
	char line[128], home[REQUESTS][16];
	pid_t router;
	FILE *out = start_router(&in, &router);

	hear_warning(out);
	for (int i = 0; i < REQUESTS; i++) {
		snprintf(line, sizeof line, "generate c%d 50 1 2 %d\n", i, i);
		say(in, line);
	}
	for (int i = 0; i < REQUESTS; i++) {
		json_t *answer = hear(out);
		int id = atoi(text_of(answer, "id") + 1);

		seen[id]++;
		cr_expect_str_eq(text_of(answer, "routed_by"), "load");
		snprintf(home[id], sizeof home[id], "%s", text_of(answer, "engine"));
		for (int e = 0; e < ENGINES; e++)
			served[e] += strcmp(home[id], name[e]) == 0;
		json_decref(answer);
	}
	for (int i = 0; i < REQUESTS; i++)
		cr_expect_eq(seen[i], 1, "request %d: %d answers", i, seen[i]);
	cr_expect_gt(served[0], 0);
	cr_expect_gt(served[1], 0);
	for (int i = 0; i < REQUESTS; i++) {
		json_t *answer;

		snprintf(line, sizeof line, "append c%d 1 3\n", i);
		say(in, line);
		answer = hear(out);
		cr_expect_str_eq(text_of(answer, "engine"), home[i]);
		cr_expect_str_eq(text_of(answer, "routed_by"), "conversation");
		cr_expect_eq(json_array_size(json_object_get(answer, "tokens")), 1);
		json_decref(answer);
	}
	close(in);
	cr_expect_eq(status_of(router), 0);
	fclose(out);
}

Test(route_main, what_is_wrong_is_said_and_the_next_line_is_served)
{
	static const char *const lines[] = {"nonsense\n", "generate a 1 999\n", "append nobody 1\n", "\n"};
	pid_t router;
	int in;
	FILE *out = start_router(&in, &router);
	json_t *answer;

	hear_warning(out);
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		say(in, lines[i]);
		answer = hear(out);
		cr_expect_str_neq(text_of(answer, "error"), "", "%s", lines[i]);
		json_decref(answer);
	}
	say(in, "generate a 2 1\nquit\n");
	answer = hear(out);
	cr_expect_str_eq(text_of(answer, "id"), "a");
	json_decref(answer);
	cr_expect_eq(status_of(router), 0);
	close(in);
	fclose(out);
	for (int i = 0; i < ENGINES; i++)
		cr_expect_eq(kill(engine[i], 0), 0, "quit is not the engines'");
}

Test(route_main, when_an_engine_dies_its_requests_are_errors_and_the_other_serves)
{
	char home[16];
	int in, dead;
	pid_t router;
	FILE *out = start_router(&in, &router);
	json_t *answer;

	hear_warning(out);
	say(in, "generate a 2 1\n");
	answer = hear(out);
	snprintf(home, sizeof home, "%s", text_of(answer, "engine"));
	json_decref(answer);
	dead = strcmp(home, name[0]) == 0 ? 0 : 1;
	(void)kill(engine[dead], SIGSTOP);
	say(in, "append a 2 1\n"); /* is in its queue when it dies, or finds it dead */
	say(in, "end nobody\n");   /* its answer says that the line before was sent */
	json_decref(hear(out));
	end_engine(dead);
	answer = hear(out);
	cr_expect_str_eq(text_of(answer, "id"), "a");
	cr_expect_not_null(strstr(text_of(answer, "error"), "is gone"));
	json_decref(answer);
	for (int i = 0; i < 3; i++) {
		say(in, "generate b 2 1\n");
		answer = hear(out);
		cr_expect_str_eq(text_of(answer, "engine"), name[!dead]);
		json_decref(answer);
	}
	say(in, "append a 2 1\n");
	answer = hear(out);
	cr_expect_not_null(strstr(text_of(answer, "error"), "begin again"));
	json_decref(answer);
	end_engine(!dead);
	say(in, "end b\n"); /* an error in any case, and no hang */
	json_decref(hear(out));
	close(in);
	cr_expect_eq(status_of(router), 0);
	fclose(out);
}

Test(route_main, an_engine_that_is_not_there_is_a_failure_with_one_line)
{
	char line[512] = "";
	pid_t router;
	FILE *out;
	int in;

	end_engine(1);
	out = start_router(&in, &router);
	cr_assert_not_null(fgets(line, sizeof line, out));
	cr_expect_eq(strncmp(line, "cnre-route: cannot connect to engine right", 42), 0, "%s", line);
	cr_expect_null(fgets(line, sizeof line, out), "%s", line);
	cr_expect_eq(status_of(router), 1);
	close(in);
	fclose(out);
}
