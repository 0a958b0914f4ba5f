/* SPDX-License-Identifier: Apache-2.0 */
/* The verb plot: pictures where gnuplot is, a line that says what is missing where not. */
#include "tools/sim/verbs.h"

#include "tests/support/captured.h"
#include "tests/support/sim_files.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(sim_plot, .timeout = 60);

static struct captured plot(const struct folder *folder, const char *format)
{
	char line[1024];

	(void)snprintf(line, sizeof line, format, folder->path, folder->path);
	return captured_run(sim_plot, line);
}

Test(sim_plot, draws_three_pictures_as_svg_and_png)
{
	static const char *const names[] = {"misses.svg", "misses.png", "felt.svg",
					    "felt.png",   "layers.svg", "layers.png"};
	struct folder folder;
	struct captured captured;
	struct stat status;
	char path[256];

	if (system("command -v gnuplot >/dev/null") != 0)
		cr_skip_test("gnuplot is not installed");
	folder_make(&folder);
	sim_files_write(&folder, "a.grp", 50, 2, 0, 0, 1);
	captured = plot(&folder, "plot --trace %s/a.grp --policy lru,cost --out %s");
	cr_assert_eq(captured.status, SIM_DONE, "%s", captured.error);
	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
		cr_expect_eq(stat(folder_path(&folder, names[i], path, sizeof path), &status), 0, "%s", names[i]);
		cr_expect_gt(status.st_size, 1000, "%s", names[i]);
	}
	captured_free(&captured);
	folder_remove(&folder);
}

Test(sim_plot, without_gnuplot_it_says_which_package)
{
	struct folder folder;
	struct captured captured;

	folder_make(&folder);
	sim_files_write(&folder, "a.grp", 20, 2, 0, 0, 1);
	cr_assert_eq(setenv("PATH", folder.path, 1), 0);
	captured = plot(&folder, "plot --trace %s/a.grp --policy lru --objects 8,16 --out %s");
	cr_expect_eq(captured.status, SIM_FAILED);
	cr_expect_not_null(strstr(captured.error, "gnuplot-nox"), "%s", captured.error);
	captured_free(&captured);
	folder_remove(&folder);
}

Test(sim_plot, a_folder_that_cannot_be_made_is_said_before_anything_is_replayed)
{
	struct folder folder;
	struct captured captured;

	folder_make(&folder);
	sim_files_write(&folder, "a.grp", 20, 2, 0, 0, 1);
	captured = plot(&folder, "plot --trace %s/a.grp --policy lru --out %s/no/where");
	cr_expect_eq(captured.status, SIM_FAILED);
	cr_expect_not_null(strstr(captured.error, "--out"), "%s", captured.error);
	captured_free(&captured);
	folder_remove(&folder);
}
