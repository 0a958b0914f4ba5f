/* SPDX-License-Identifier: Apache-2.0 */
/* Residents at the start: from a list and from a file. */
#include "tools/sim/residents.h"

#include "tests/support/traces.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sim_residents, .timeout = 60);

static struct traces traces; /* layers 1 (5 experts) and 3 (8) */

static void load(void)
{
	traces_make(&traces);
	traces_add_text(&traces, "t", "0 1 4\n0 3 7\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
}

static void expect_three(const char *text)
{
	uint32_t *object = NULL, count = 0;
	char message[512] = "";

	cr_assert_eq(sim_residents_open(&object, &count, text, traces.geometry, message, sizeof message), 0, "%s",
		     message);
	cr_assert_eq(count, 3);
	cr_expect_eq(object[0], 5 + 7);
	cr_expect_eq(object[1], 0);
	cr_expect_eq(object[2], 4);
	free(object);
}

Test(sim_residents, a_list_and_a_file_say_the_same_in_their_order)
{
	static const char text[] = "# hottest first\n3 7\n\n1 0\n1 4";
	char path[128];

	load();
	expect_three("3:7,1:0,1:4");
	folder_write(&traces.folder, "r", text, strlen(text));
	expect_three(folder_path(&traces.folder, "r", path, sizeof path));
	traces_remove(&traces);
}

static void expect_refused(const char *text, int error, const char *expected)
{
	uint32_t *object = NULL, count = 77;
	char message[512] = "";
	int result = sim_residents_open(&object, &count, text, traces.geometry, message, sizeof message);

	cr_expect(result == error && strstr(message, expected) != NULL, "%s: %d %s", text, result, message);
	cr_expect(object == NULL && count == 77);
}

Test(sim_residents, what_is_no_resident_is_refused)
{
	static const char line[] = "1 2\n3 x\n";
	char path[128];

	load();
	expect_refused("2:0", -EINVAL, "residents:1: layer 2: the traces have no such layer");
	expect_refused("1:5", -EINVAL, "expert 5 of layer 1: it has 5");
	expect_refused("1:1,1:1", -EINVAL, "expert 1 of layer 1 twice");
	expect_refused("1:1,", -EINVAL, "expected layer:expert");
	expect_refused("1:", -EINVAL, "expected layer:expert");
	expect_refused("99999999999:1", -EINVAL, "expected layer:expert");
	expect_refused("absent", -ENOENT, "absent: No such file");
	folder_write(&traces.folder, "r", line, strlen(line));
	expect_refused(folder_path(&traces.folder, "r", path, sizeof path), -EINVAL, "/r:2: expected `layer expert`");
	traces_remove(&traces);
}
