/* SPDX-License-Identifier: Apache-2.0 */
/* cnre-olmoe as a program: the tokens and the lookups of Colibri's engine, and its manners. Built in $CNRE_BUILD. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define INTERRUPTED_STEPS "4000" /* seconds of them */

struct vector {
	const char *model, *prompt;
	int token[24];
	int hits[3], misses[3]; /* at 4, 8 and 12 slots a layer */
};

static const struct vector vectors[] = {
	{"olmoe-a",
	 "95 28 14 118 36 110",
	 {102, 80, 87, 120, 115, 92, 27, 0, 106, 121, 56, 122, 20, 32, 56, 65, 39, 23, 70, 49, 41, 58, 1, 34},
	 {64, 196, 326},
	 {400, 268, 138}},
	{"olmoe-b",
	 "180 109 106 87 152 152",
	 {86, 44, 115, 111, 114, 141, 104, 129, 24, 167, 33, 155, 167, 138, 141, 175, 154, 9, 176, 50, 114, 57, 14, 22},
	 {77, 293, 485},
	 {967, 751, 559}},
};

static const char *vectors_directory(void)
{
	const char *directory = getenv("CNRE_VECTORS");

	return directory ? directory : "../shared/vectors";
}

/* Runs the program through the shell; its output (cut to fit) and its exit status. */
static int run(const char *arguments, char *ret_output, size_t bytes)
{
	const char *build = getenv("CNRE_BUILD");
	char command[1024];
	size_t length;
	int status;
	FILE *pipe;

	snprintf(command, sizeof command, "%s/cnre-olmoe %s", build ? build : "build", arguments);
	pipe = popen(command, "r");
	cr_assert_not_null(pipe);
	length = fread(ret_output, 1, bytes - 1, pipe);
	ret_output[length] = '\0';
	status = pclose(pipe);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void need_program(void)
{
	char output[256];

	if (run("--version 2>&1", output, sizeof output) != 0)
		cr_skip("cnre-olmoe is not built; make it, or name its folder in CNRE_BUILD");
}

static void need_vectors(void)
{
	char path[512];

	need_program();
	snprintf(path, sizeof path, "%s/olmoe-b/config.json", vectors_directory());
	if (access(path, R_OK) != 0)
		cr_skip("no reference vectors in %s; CNRE_VECTORS names their directory", vectors_directory());
}

static json_t *run_vector(const struct vector *vector, const char *options)
{
	char arguments[768], output[8192];
	json_t *result;

	snprintf(arguments, sizeof arguments, "--model %s/%s --tokens '%s' --steps 24 --json %s", vectors_directory(),
		 vector->model, vector->prompt, options);
	cr_assert_eq(run(arguments, output, sizeof output), 0, "%s %s", vector->model, options);
	result = json_loads(output, 0, NULL);
	cr_assert_not_null(result, "not JSON: %s", output);
	return result;
}

static int number(const json_t *result, const char *key)
{
	const json_t *value = json_object_get(result, key);

	cr_expect(json_is_number(value), "no number: %s", key);
	return (int)json_number_value(value);
}

static void expect_tokens(const struct vector *vector, const json_t *result, const char *options)
{
	const json_t *tokens = json_object_get(result, "tokens");

	cr_assert_eq(json_array_size(tokens), 24);
	for (size_t i = 0; i < 24; i++)
		cr_expect_eq(json_integer_value(json_array_get(tokens, i)), vector->token[i], "%s %s: token %zu",
			     vector->model, options, i);
}

TestSuite(engine_main, .timeout = 120);

Test(engine_main, private_caches_give_the_engines_tokens_hits_and_misses)
{
	need_vectors();
	for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++) {
		for (int i = 0; i < 3; i++) {
			char options[64];
			json_t *result;

			snprintf(options, sizeof options, "--cache private:%dslots", 4 * (i + 1));
			result = run_vector(&vectors[v], options);
			expect_tokens(&vectors[v], result, options);
			cr_expect_eq(number(result, "hits"), vectors[v].hits[i], "%s %s", vectors[v].model, options);
			cr_expect_eq(number(result, "misses"), vectors[v].misses[i], "%s %s", vectors[v].model,
				     options);
			cr_expect_gt(number(result, "bytes_read"), 0);
			json_decref(result);
		}
	}
}

Test(engine_main, every_mode_kernel_and_thread_count_gives_the_same_tokens)
{
	static const char *const options[] = {
		"--cache mmap",
		"--cache mmap --threads 1",
		"--cache mmap --threads 5",
		"--cache mmap --kernel plain",
		"--cache private:1slots",
		"--cache private:2slots --threads 3",
		"--cache private:4M --kernel plain",
	};

	need_vectors();
	for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++) {
		for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
			json_t *result = run_vector(&vectors[v], options[i]);

			expect_tokens(&vectors[v], result, options[i]);
			cr_expect_eq(number(result, "hits") + number(result, "misses"),
				     vectors[v].hits[0] + vectors[v].misses[0]);
			json_decref(result);
		}
	}
}

Test(engine_main, the_route_trace_is_the_engines_line_for_line)
{
	char path[] = "/tmp/cnre-trace-XXXXXX", options[128], reference[512], ours[1024], theirs[1024];

	need_vectors();
	close(mkstemp(path));
	snprintf(options, sizeof options, "--cache mmap --route-trace %s", path);
	for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++) {
		FILE *trace, *expected;
		int line = 0;

		json_decref(run_vector(&vectors[v], options));
		snprintf(reference, sizeof reference, "%s/%s/route.trace", vectors_directory(), vectors[v].model);
		trace = fopen(path, "r");
		expected = fopen(reference, "r");
		cr_assert(trace && expected);
		while (fgets(theirs, sizeof theirs, expected)) {
			line++;
			cr_assert_not_null(fgets(ours, sizeof ours, trace), "our trace ends before line %d", line);
			cr_expect_str_eq(ours, theirs, "%s line %d", vectors[v].model, line);
		}
		cr_expect_null(fgets(ours, sizeof ours, trace), "our trace goes on after line %d", line);
		fclose(trace);
		fclose(expected);
	}
	unlink(path);
}

Test(engine_main, the_result_has_every_promised_key)
{
	static const char *const numbers[] = {
		"tokens_per_second", "felt_wait_s",   "hits",  "misses",    "joins",    "bytes_read",
		"resident_bytes",    "prompt_tokens", "steps", "prefill_s", "decode_s", "load_s"};
	json_t *result;

	need_vectors();
	result = run_vector(&vectors[0], "--cache private:8slots");
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		cr_expect(json_is_number(json_object_get(result, numbers[i])), "%s", numbers[i]);
	cr_expect_eq(number(result, "prompt_tokens"), 6);
	cr_expect_eq(number(result, "steps"), 24);
	cr_expect_str_eq(json_string_value(json_object_get(result, "cache")), "private:8slots");
	cr_expect_gt(json_number_value(json_object_get(result, "tokens_per_second")), 0);
	json_decref(result);
}

Test(engine_main, wrong_usage_is_2_and_a_failure_is_1_each_with_one_line)
{
	static const struct {
		const char *arguments;
		int status;
	} cases[] = {
		{"", 2},
		{"--cache disk", 2},
		{"--model /tmp --tokens 1 --steps 1 --cache private:0", 2},
		{"--model /nonexistent --tokens 1 --steps 1 --cache mmap", 1},
		{"--model /nonexistent --tokens 1 --steps 1 --kernel sse9", 1},
		{"--help", 0},
		{"--version", 0},
	};

	need_program();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char arguments[256], output[8192];

		snprintf(arguments, sizeof arguments, "%s 2>&1", cases[i].arguments);
		cr_expect_eq(run(arguments, output, sizeof output), cases[i].status, "%s", cases[i].arguments);
		if (cases[i].status == 0)
			continue;
		cr_expect_eq(strncmp(output, "cnre-olmoe: ", 12), 0, "%s", output);
		cr_expect_eq(strchr(output, '\n'), output + strlen(output) - 1, "more than one line: %s", output);
	}
}

/* It is interrupted once its first token shows that it is at work. */
Test(engine_main, interrupt_ends_a_run_at_once_with_status_130)
{
	const char *build = getenv("CNRE_BUILD");
	char program[512], model[512], line[256];
	int ends[2], status;
	FILE *progress;
	pid_t child;

	need_vectors();
	snprintf(program, sizeof program, "%s/cnre-olmoe", build ? build : "build");
	snprintf(model, sizeof model, "%s/olmoe-a", vectors_directory());
	cr_assert_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		(void)signal(SIGINT, SIG_DFL);
		(void)dup2(ends[1], STDERR_FILENO);
		(void)close(ends[0]);
		(void)close(ends[1]);
		execl(program, program, "--model", model, "--tokens", "1", "--steps", INTERRUPTED_STEPS, "--progress",
		      "--cache", "private:1slots", (char *)NULL);
		_exit(99);
	}
	(void)close(ends[1]);
	progress = fdopen(ends[0], "r");
	cr_assert_not_null(fgets(line, sizeof line, progress));
	cr_assert_eq(kill(child, SIGINT), 0);
	while (fgets(line, sizeof line, progress))
		;
	cr_expect_eq(waitpid(child, &status, 0), child);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 130, "status %x: %s", (unsigned)status, line);
	cr_expect_not_null(strstr(line, "cnre-olmoe: interrupted in step "), "%s", line);
	(void)fclose(progress);
}

Test(engine_main, without_a_manager_the_error_says_what_to_do)
{
	char arguments[768], output[8192];

	need_vectors();
	snprintf(arguments, sizeof arguments, "--model %s/olmoe-a --tokens 1 --steps 1 --socket none 2>&1",
		 vectors_directory());
	cr_expect_eq(run(arguments, output, sizeof output), 1);
	cr_expect_not_null(strstr(output, "cnre-managerd"), "%s", output);
}
