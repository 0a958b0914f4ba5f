/* SPDX-License-Identifier: Apache-2.0 */
/* Asking for drives; see drives_said.h. */
#include "tests/support/drives_said.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

json_t *drives_said(const struct world *world)
{
	static char output[1 << 16];
	const char *const arguments[] = {"--socket", world->socket, "drives", "--json", NULL};
	json_t *answer;

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0, "cnrectl drives: %s", output);
	answer = json_loads(output, 0, NULL);
	cr_assert_not_null(answer, "%s", output);
	return answer;
}

const json_t *drives_said_of(json_t *answer, const char *directory)
{
	const json_t *drive;
	size_t i;

	json_array_foreach (json_object_get(answer, "drives"), i, drive) {
		const char *name = json_string_value(json_object_get(drive, "directory"));

		if (name != NULL && strncmp(name, directory, strlen(directory)) == 0)
			return drive;
	}
	return NULL;
}

double drives_said_number(const struct world *world, const char *directory, const char *key)
{
	json_t *answer = drives_said(world);
	const json_t *at = drives_said_of(answer, directory);
	char path[64], *rest = path, *part;
	double value;

	(void)snprintf(path, sizeof path, "%s", key);
	while ((part = strsep(&rest, ".")) != NULL)
		at = json_object_get(at, part);
	cr_assert(json_is_number(at), "no number %s of %s", key, directory);
	value = json_number_value(at);
	json_decref(answer);
	return value;
}

static int is_word(const json_t *object, const char *key, const char *word)
{
	const char *now = json_string_value(json_object_get(object, key));

	return now != NULL && strcmp(now, word) == 0;
}

int drives_said_state(const struct world *world, const char *directory, const char *state)
{
	json_t *answer = drives_said(world);
	int is = is_word(drives_said_of(answer, directory), "state", state);

	json_decref(answer);
	return is;
}

int drives_said_weights(const struct world *world, const char *weights)
{
	json_t *answer = drives_said(world);
	int is = is_word(answer, "weights", weights);

	json_decref(answer);
	return is;
}

void drives_said_expect_sum(struct world *world)
{
	json_t *answer = drives_said(world);
	json_int_t sum = json_integer_value(json_object_get(answer, "bytes_before"));
	const json_t *drive;
	size_t i;

	json_array_foreach (json_object_get(answer, "drives"), i, drive)
		sum += json_integer_value(json_object_get(drive, "bytes"));
	cr_expect_eq(sum, json_integer_value(json_object_get(answer, "bytes_read")), "drives and total differ by %lld",
		     (long long)(json_integer_value(json_object_get(answer, "bytes_read")) - sum));
	cr_expect_eq((uint64_t)sum, world_stat(world, "bytes_read"));
	json_decref(answer);
}
