/* SPDX-License-Identifier: Apache-2.0 */
/* engine/options.c and tokens.c: command lines and prompts, good and bad. */
#include "engine/options.h"
#include "engine/tokens.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct options options;
static char message[ENGINE_MESSAGE_BYTES];

/* Splits a line at blanks and parses it. */
static int parse(const char *line)
{
	static char copy[256];
	char *argv[32] = {"cnre-olmoe"};
	int argc = 1;

	snprintf(copy, sizeof copy, "%s", line);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	message[0] = '\0';
	return options_parse(&options, argc, argv, message);
}

Test(engine_options, the_shared_manager_is_the_default)
{
	cr_assert_eq(parse("--model m --tokens 1 --steps 3"), 0, "%s", message);
	cr_expect_eq(options.mode, CACHE_CNRE);
	cr_expect_str_eq(options.cache, "cnre");
	cr_expect_eq(options.steps, 3);
	cr_expect_eq(options.threads, 0);
	cr_expect_not(options.json);
}

Test(engine_options, prefixes_and_serving_are_asked_for)
{
	cr_assert_eq(parse("--model m --tokens 1 --steps 3"), 0);
	cr_expect_not(options.kv);
	cr_expect_not(options.serve);
	cr_assert_eq(parse("--model m --tokens 1 --steps 3 --kv cnre --kv-namespace team --salt x"), 0, "%s", message);
	cr_expect(options.kv);
	cr_expect_str_eq(options.kv_namespace, "team");
	cr_expect_str_eq(options.salt, "x");
	cr_assert_eq(parse("--model m --tokens 1 --steps 3 --kv cnre --kv none"), 0);
	cr_expect_not(options.kv);
	cr_assert_eq(parse("--model m --serve"), 0, "%s", message);
	cr_expect(options.serve);
	cr_expect_null(options.listen);
	cr_assert_eq(parse("--model m --serve --listen /s --conversations 9 --positions 100"), 0, "%s", message);
	cr_expect_str_eq(options.listen, "/s");
	cr_expect_eq(options.conversations, 9);
	cr_expect_eq(options.positions, 100);
}

Test(engine_options, a_view_is_of_the_shared_manager)
{
	cr_assert_eq(parse("--model m --tokens 1 --steps 3"), 0);
	cr_expect_null(options.view);
	cr_assert_eq(parse("--model m --tokens 1 --steps 3 --view rows16"), 0);
	cr_expect_str_eq(options.view, "rows16");
	cr_assert_eq(parse("--model m --serve --cache cnre --view rows16"), 0);
}

Test(engine_options, private_takes_bytes_or_slots)
{
	cr_assert_eq(parse("--model m --tokens 1 --steps 3 --cache private:8slots"), 0);
	cr_expect_eq(options.mode, CACHE_PRIVATE);
	cr_expect_eq(options.private_size.slots_per_layer, 8);
	cr_expect_eq(options.private_size.bytes, 0);
	cr_assert_eq(parse("--model m --tokens 1 --steps 3 --cache private:3M"), 0);
	cr_expect_eq(options.private_size.bytes, 3u << 20);
	cr_expect_eq(options.private_size.slots_per_layer, 0);
	cr_assert_eq(parse("--model m --tokens 1 --steps 3 --cache private:2GiB --reserve 4096"), 0);
	cr_expect_eq(options.private_size.bytes, 2ull << 30);
	cr_expect_eq(options.reserve_bytes, 4096);
}

Test(engine_options, wrong_lines_are_einval_with_a_reason_and_touch_nothing)
{
	static const char *const bad[] = {
		"",
		"--model m --tokens 1",
		"--model m --steps 1",
		"--tokens 1 --steps 1",
		"--model",
		"--model m --tokens 1 --steps 0",
		"--model m --tokens 1 --steps x",
		"--model m --tokens 1 --steps 1 more",
		"--model m --tokens 1 --steps 1 --threads 0",
		"--model m --tokens 1 --steps 1 --threads 99999",
		"--model m --tokens 1 --steps 1 --cache",
		"--model m --tokens 1 --steps 1 --cache disk",
		"--model m --tokens 1 --steps 1 --cache private",
		"--model m --tokens 1 --steps 1 --cache private:",
		"--model m --tokens 1 --steps 1 --cache private:0slots",
		"--model m --tokens 1 --steps 1 --cache private:8slot",
		"--model m --tokens 1 --steps 1 --cache private:8X",
		"--model m --tokens 1 --steps 1 --cache private:-8",
		"--model m --tokens 1 --steps 1 --cache private:99999999999999999999",
		"--model m --tokens 1 --steps 1 --cache private:18446744073709551615K",
		"--model m --tokens 1 --steps 1 --reserve 1.5G",
		"--model m --tokens 1 --steps 1 --view columns16",
		"--model m --tokens 1 --steps 1 --view rows16 --cache mmap",
		"--model m --tokens 1 --steps 1 --view rows16 --cache private:8slots",
		"--model m --serve --view rows16 --cache mmap",
		"--model m --tokens 1 --steps 1 --kv disk",
		"--model m --tokens 1 --steps 1 --salt x",
		"--model m --tokens 1 --steps 1 --kv none --kv-namespace x",
		"--model m --tokens 1 --steps 1 --listen /s",
		"--model m --tokens 1 --steps 1 --positions 9",
		"--model m --serve --tokens 1",
		"--model m --serve --steps 1",
		"--model m --serve --json",
		"--model m --serve --conversations 0",
		"--model m --serve --positions 1048577",
		"--serve",
		"--unknown",
		"-x",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		memset(&options, 0x55, sizeof options);
		cr_expect_eq(parse(bad[i]), -EINVAL, "accepted: %s", bad[i]);
		cr_expect_neq(message[0], '\0', "no reason: %s", bad[i]);
		cr_expect_eq(options.steps, 0x55555555u, "touched: %s", bad[i]);
	}
}

Test(engine_options, help_and_version_need_nothing_else)
{
	cr_expect_eq(parse("--help"), 0);
	cr_expect(options.help);
	cr_expect_eq(parse("--version"), 0);
	cr_expect(options.version);
}

Test(engine_options, prompts_are_ids_between_blanks_or_commas)
{
	uint32_t *tokens, count;

	cr_assert_eq(tokens_load(" 95 28,14\n0 ", 100, &tokens, &count, message), 0, "%s", message);
	cr_assert_eq(count, 4);
	cr_expect_arr_eq(tokens, ((uint32_t[]){95, 28, 14, 0}), 16);
	free(tokens);
}

Test(engine_options, a_prompt_may_stand_in_a_file)
{
	char path[] = "/tmp/cnre-tokens-XXXXXX";
	uint32_t *tokens, count;
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, "7 8\n9\n", 6), 6);
	close(fd);
	cr_expect_eq(tokens_load(path, 100, &tokens, &count, message), 0, "%s", message);
	cr_expect_eq(count, 3);
	free(tokens);
	unlink(path);
}

Test(engine_options, bad_prompts_are_refused_with_a_reason)
{
	static const char *const bad[] = {"",    " , ",  "1 2 100",   "18446744073709551616",
					  "one", "1 -2", "/dev/null", "/"};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		uint32_t *tokens, count = 42;

		message[0] = '\0';
		cr_expect_lt(tokens_load(bad[i], 100, &tokens, &count, message), 0, "accepted: %s", bad[i]);
		cr_expect_neq(message[0], '\0', "no reason: %s", bad[i]);
		cr_expect_eq(count, 42);
	}
}
