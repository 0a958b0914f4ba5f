/* SPDX-License-Identifier: Apache-2.0 */
/* Memory backed by an unlinked file: nothing stays, and what cannot be had is an error before it is touched. */
#include "tools/sim/scratch.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned count_entries(const char *path)
{
	DIR *directory = opendir(path);
	unsigned count = 0;

	cr_assert_not_null(directory);
	while (readdir(directory) != NULL)
		count++;
	(void)closedir(directory);
	return count;
}

Test(sim_scratch, memory_is_zeroed_and_leaves_no_name)
{
	char directory[] = "/tmp/cnre-test-XXXXXX";
	struct sim_scratch scratch;

	cr_assert_not_null(mkdtemp(directory));
	cr_assert_eq(sim_scratch_open(&scratch, directory, 1000, 8), 0);
	cr_expect_eq(count_entries(directory), 2); /* . and .. */
	for (unsigned i = 0; i < 1000; i++)
		cr_expect_eq(((uint64_t *)scratch.memory)[i], 0);
	memset(scratch.memory, 1, 8000);
	sim_scratch_close(&scratch);
	cr_expect_null(scratch.memory);
	sim_scratch_close(&scratch);
	(void)rmdir(directory);
}

Test(sim_scratch, what_cannot_be_had_is_an_error_and_output_untouched)
{
	struct sim_scratch scratch = {.bytes = 77};

	cr_expect_eq(sim_scratch_open(&scratch, "/tmp", UINT64_MAX, 8), -EOVERFLOW);
	cr_expect_eq(sim_scratch_open(&scratch, "/nowhere at all", 1, 8), -ENOENT);
	cr_expect_eq(scratch.bytes, 77);
}
