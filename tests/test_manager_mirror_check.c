/* SPDX-License-Identifier: Apache-2.0 */
/* Which files pass for copies of a shard, and with which words the others are refused. */
#include "manager/mirror_check.h"

#include "manager/mirror_sample.h"
#include "tests/support/mirrored.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct mirrored mirrored;
static struct model_catalog *catalog;
static struct mirror_shard *shard;
static uint32_t shard_count;
static struct mirror_progress progress;
static struct mirror_verdict verdict;
static char path[256], folder[256];

static void make(void)
{
	char message[MODEL_MESSAGE_BYTES];

	mirrored_open(&mirrored);
	cr_assert_eq(model_catalog_open(&catalog, mirrored.model, message), 0, "%s", message);
	cr_assert_eq(mirror_sample(catalog, mirror_sample_density(1, 1, MIRROR_SAMPLE_BYTES_MAX), &shard, &shard_count),
		     0);
	cr_assert_eq(shard_count, 2, "the dense one is never read");
	mirrored_copy(&mirrored, "copy", (const int[]){1, 2, 0}, folder);
}

static void clean(void)
{
	free(verdict.path);
	free(verdict.reason);
	mirror_sample_free(shard, shard_count);
	(void)model_catalog_close(catalog);
	mirrored_close(&mirrored);
}

TestSuite(manager_mirror_check, .init = make, .fini = clean, .timeout = 60);

/* The first shard against its copy in a folder. */
static enum mirror_finding found_in(const char *directory)
{
	free(verdict.path);
	free(verdict.reason);
	mirror_check(&shard[0], directory, &progress, &verdict);
	return verdict.finding;
}

static void expect_refused(const char *part)
{
	cr_expect_eq(found_in(folder), MIRROR_REFUSED);
	cr_assert_not_null(verdict.reason);
	cr_expect(strstr(verdict.reason, part) != NULL, "no \"%s\" in: %s", part, verdict.reason);
	cr_expect_not_null(verdict.advice);
}

static const char *copy_of_first(void)
{
	return mirrored_shard(&mirrored, "copy", 1, path);
}

Test(manager_mirror_check, a_byte_identical_copy_is_proven)
{
	struct stat status;

	cr_assert_eq(found_in(folder), MIRROR_PROVEN, "%s", verdict.reason);
	cr_assert_eq(stat(copy_of_first(), &status), 0);
	cr_expect_str_eq(verdict.path, path);
	cr_expect_eq(verdict.inode, status.st_ino);
	cr_expect(verdict.shares_disk, "the same file system");
	cr_expect_gt(progress.steps, 2 * shard[0].page_count);
}

Test(manager_mirror_check, a_folder_of_the_models_name_goes_before_the_directory_itself)
{
	char inner[256], *slash;

	mirrored_copy(&mirrored, "copy/model", (const int[]){1, 0}, inner);
	mirrored_flip(copy_of_first(), shard[0].bytes - 1, 1);
	cr_assert_eq(found_in(folder), MIRROR_PROVEN, "%s", verdict.reason);
	slash = strrchr(verdict.path, '/');
	*slash = '\0';
	cr_expect_str_eq(verdict.path, inner);
}

Test(manager_mirror_check, what_is_not_there_is_absent_and_no_fault)
{
	cr_assert_eq(unlink(copy_of_first()), 0);
	cr_expect_eq(found_in(folder), MIRROR_ABSENT);
	cr_expect_null(verdict.reason);
	cr_expect_eq(found_in("/nonexistent"), MIRROR_ABSENT);
}

/* D1 (a): the header of a copy that was cut is whole. */
Test(manager_mirror_check, a_truncated_copy_is_refused_with_both_sizes)
{
	static const uint64_t less[] = {1, 4096, 100000};
	char sizes[64];

	for (size_t i = 0; i < 3; i++) {
		cr_assert_eq(truncate(copy_of_first(), (off_t)(shard[0].bytes - less[i])), 0);
		(void)snprintf(sizes, sizeof sizes, "has %llu bytes, the shard %llu",
			       (unsigned long long)(shard[0].bytes - less[i]), (unsigned long long)shard[0].bytes);
		expect_refused(sizes);
	}
}

Test(manager_mirror_check, another_header_is_refused_at_its_first_byte)
{
	mirrored_flip(copy_of_first(), 20, 1);
	expect_refused("at byte 20, in its header");
}

/* D1 (b): size and header are right; each part of each expert in turn has the bytes of another fine-tune. */
Test(manager_mirror_check, one_part_of_one_expert_from_another_fine_tune_is_caught)
{
	for (uint32_t e = 0; e < MIRRORED_EXPERTS; e++) {
		const struct model_object *object = &catalog->object[e];

		for (uint32_t role = 0; role < MODEL_ROLES; role++) {
			uint64_t bytes = catalog->shape[object->shape].part[role].bytes;

			if (bytes == 0)
				continue;
			mirrored_flip(copy_of_first(), object->piece[role].file_off, bytes);
			expect_refused("in its payload");
			mirrored_flip(copy_of_first(), object->piece[role].file_off, bytes);
		}
	}
	cr_expect_eq(found_in(folder), MIRROR_PROVEN, "%s", verdict.reason);
}

Test(manager_mirror_check, the_last_byte_counts)
{
	mirrored_flip(copy_of_first(), shard[0].bytes - 1, 1);
	expect_refused("in its payload");
}

/* D1 (c). */
Test(manager_mirror_check, links_to_the_primary_are_no_copies)
{
	char primary[256];

	mirrored_shard(&mirrored, "model", 1, primary);
	cr_assert_eq(unlink(copy_of_first()), 0);
	cr_assert_eq(link(primary, path), 0);
	expect_refused("is the very file");
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(symlink(primary, path), 0);
	expect_refused("is the very file");
}

Test(manager_mirror_check, the_checkpoints_own_directory_is_refused_as_a_whole_by_any_name)
{
	(void)snprintf(folder, sizeof folder, "%s", mirrored.model);
	expect_refused("own directory");
	mirrored_run(&mirrored, "ln -s model '%s/other-name'");
	(void)snprintf(folder, sizeof folder, "%s/other-name", mirrored.path);
	expect_refused("own directory");
	(void)snprintf(folder, sizeof folder, "%s", mirrored.path); /* finds path/model */
	expect_refused("own directory");
}

Test(manager_mirror_check, a_symbolic_link_to_a_true_copy_is_one)
{
	mirrored_run(&mirrored, "mkdir '%s/links'; ln -s ../copy/model-00001-of-00003.safetensors '%s/links/'");
	(void)snprintf(folder, sizeof folder, "%s/links", mirrored.path);
	cr_expect_eq(found_in(folder), MIRROR_PROVEN, "%s", verdict.reason);
}

Test(manager_mirror_check, what_is_no_regular_file_is_refused_and_not_waited_for)
{
	cr_assert_eq(unlink(copy_of_first()), 0);
	cr_assert_eq(mkfifo(path, 0600), 0);
	expect_refused("no regular file");
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(mkdir(path, 0700), 0);
	expect_refused("no regular file");
}

Test(manager_mirror_check, a_copy_that_may_not_be_read_is_refused_with_the_reason)
{
	cr_assert_eq(chmod(copy_of_first(), 0), 0);
	cr_assert_eq(chmod(mirrored.path, 0755), 0);
	if (geteuid() == 0)
		cr_assert_eq(seteuid(65534), 0);
	expect_refused("model-00001-of-00003.safetensors: Permission denied");
	(void)seteuid(0); /* fails for others */
}

/* With several models it may be another one's; then it is not this model's fault. */
Test(manager_mirror_check, only_a_file_beside_the_models_folders_may_be_another_models)
{
	char inner[256];

	cr_assert_eq(truncate(copy_of_first(), 100), 0);
	expect_refused("has 100 bytes");
	cr_expect(verdict.is_foreign);
	mirrored_copy(&mirrored, "copy/model", (const int[]){1, 0}, inner);
	cr_assert_eq(truncate(mirrored_shard(&mirrored, "copy/model", 1, path), 100), 0);
	expect_refused("has 100 bytes");
	cr_expect_not(verdict.is_foreign);
}

Test(manager_mirror_check, equal_headers_and_other_payload_are_not_another_models)
{
	mirrored_flip(copy_of_first(), shard[0].bytes - 1, 1);
	expect_refused("payload");
	cr_expect_not(verdict.is_foreign);
}

Test(manager_mirror_check, a_stop_ends_it_before_anything_is_read)
{
	progress.is_stopping = 1;
	cr_expect_eq(found_in(folder), MIRROR_CANCELLED);
	cr_expect_eq(progress.steps, 0);
	progress.is_stopping = 0;
}
