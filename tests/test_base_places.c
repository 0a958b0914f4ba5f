/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of one checkpoint in several directories: which are taken, and that its identity does not depend on where they lie. */
#include "base/places.h"

#include "base/payload.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER "{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}"
#define LONGER "{\"a\":{\"dtype\":\"U8\",\"shape\":[32],\"data_offsets\":[0,32]}}"

/* whole has all shards; first, second and third share them. */
static struct folder whole, first, second, third;
static char message[512];

static void add(const struct folder *folder, const char *name)
{
	char path[128];

	folder_write_shard(folder, name, HEADER, 16);
	cr_assert_eq(utimensat(AT_FDCWD, folder_path(folder, name, path, sizeof path),
			       (const struct timespec[2]){{.tv_sec = 1000}, {.tv_sec = 1000}}, 0),
		     0);
}

static void make(void)
{
	struct folder *const folders[] = {&whole, &first, &second, &third};

	for (size_t i = 0; i < 4; i++)
		folder_make(folders[i]);
	folder_write(&whole, "config.json", "{}", 2);
	folder_write(&first, "config.json", "{}", 2);
	add(&whole, "a.safetensors");
	add(&whole, "b.safetensors");
	add(&whole, "c.safetensors");
	add(&first, "b.safetensors");
	add(&second, "c.safetensors");
	add(&third, "a.safetensors");
}

static void clean(void)
{
	folder_remove(&whole);
	folder_remove(&first);
	folder_remove(&second);
	folder_remove(&third);
}

TestSuite(base_places, .init = make, .fini = clean, .timeout = 30);

static struct cnre_places *opened(const char *const *further, uint32_t count)
{
	struct cnre_places *places = NULL;

	cr_assert_eq(cnre_places_open(&places, first.path, further, count, message, sizeof message), 0, "%s", message);
	return places;
}

static struct cnre_fingerprint identity_of(const struct cnre_places *places)
{
	struct cnre_fingerprint fingerprint;

	cr_assert_eq(cnre_places_identify(places, &fingerprint, message, sizeof message), 0, "%s", message);
	return fingerprint;
}

Test(base_places, identity_and_payload_are_those_of_all_shards_in_one_directory)
{
	const char *const orders[][2] = {{second.path, third.path}, {third.path, second.path}};
	unsigned char one[CNRE_DIGEST_BYTES], several[CNRE_DIGEST_BYTES];
	struct cnre_fingerprint expected;

	cr_assert_eq(cnre_fingerprint_directory(whole.path, &expected, NULL, 0), 0);
	cr_assert_eq(cnre_payload_digest(whole.path, one), 0);
	for (size_t i = 0; i < 2; i++) {
		struct cnre_places *places = opened(orders[i], 2);
		struct cnre_fingerprint found = identity_of(places);

		cr_expect_arr_eq(found.identity, expected.identity, CNRE_DIGEST_BYTES);
		cr_expect_arr_eq(found.names, expected.names, CNRE_DIGEST_BYTES);
		cr_expect_arr_neq(found.first, expected.first, CNRE_DIGEST_BYTES);
		cr_expect_eq(found.shard_count, 3);
		cr_assert_eq(cnre_places_digest_payload(places, several), 0);
		cr_expect_arr_eq(several, one, CNRE_DIGEST_BYTES);
		(void)cnre_places_close(places);
	}
}

/* So that a manager can tell an engine that looked in the first directory only from one with another revision. */
Test(base_places, names_of_the_first_directory_are_what_it_has_alone)
{
	const char *const further[] = {second.path, third.path};
	struct cnre_places *several = opened(further, 2), *alone = opened(NULL, 0);
	struct cnre_fingerprint all = identity_of(several), one = identity_of(alone);

	cr_expect_arr_eq(all.first, one.names, CNRE_DIGEST_BYTES);
	cr_expect_arr_eq(one.first, one.names, CNRE_DIGEST_BYTES);
	cr_expect_arr_neq(all.names, one.names, CNRE_DIGEST_BYTES);
	(void)cnre_places_close(several);
	(void)cnre_places_close(alone);
}

Test(base_places, of_one_name_the_first_directory_wins_and_the_others_are_told)
{
	const char *const further[] = {second.path, third.path};
	struct cnre_places *places;
	char path[128];

	folder_write_shard(&third, "c.safetensors", LONGER, 32);
	folder_write_shard(&third, "b.safetensors", LONGER, 32);
	places = opened(further, 2);
	cr_assert_eq(places->shard_count, 3);
	cr_expect_str_eq(places->shard[0].path, folder_path(&third, "a.safetensors", path, sizeof path));
	cr_expect_str_eq(places->shard[1].path, folder_path(&first, "b.safetensors", path, sizeof path));
	cr_expect_str_eq(places->shard[2].path, folder_path(&second, "c.safetensors", path, sizeof path));
	cr_expect_eq(places->place[2].shard_count, 1);
	cr_expect_eq(places->place[2].hidden_count, 2);
	cr_expect_str_eq(places->place[2].hidden, "b.safetensors");
	cr_expect_eq(places->place[2].hidden_by, 0);
	cr_expect_eq(places->place[0].hidden_count, 0);
	(void)cnre_places_close(places);
}

/* The same directory again, or the checkpoint's own: nothing is taken twice. */
Test(base_places, a_directory_that_is_given_twice_adds_nothing)
{
	const char *const further[] = {first.path, second.path, second.path};
	struct cnre_places *places = opened(further, 3);

	cr_expect_eq(places->shard_count, 2);
	cr_expect_eq(places->place[1].shard_count, 0);
	cr_expect_eq(places->place[1].hidden_count, 1);
	cr_expect_eq(places->place[3].shard_count, 0);
	(void)cnre_places_close(places);
}

/* One drive for several checkpoints, each in a folder that is called as its own directory. */
Test(base_places, a_folder_with_the_checkpoints_name_goes_before_the_directory_itself)
{
	const char *const further[] = {third.path};
	char inner[160], path[192];
	struct cnre_places *places;

	(void)snprintf(inner, sizeof inner, "%s%s", third.path, strrchr(first.path, '/'));
	cr_assert_eq(mkdir(inner, 0755), 0);
	(void)snprintf(path, sizeof path, "%s/c.safetensors", inner);
	cr_assert_eq(link(folder_path(&second, "c.safetensors", message, sizeof message), path), 0);
	places = opened(further, 1);
	cr_expect(places->place[1].is_named);
	cr_assert_eq(places->shard_count, 2);
	cr_expect_str_eq(places->shard[1].path, path);
	(void)cnre_places_close(places);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(rmdir(inner), 0);
}

Test(base_places, config_json_is_read_from_the_first_directory_only)
{
	const char *const further[] = {second.path};
	struct cnre_places *places = opened(further, 1);
	struct cnre_fingerprint before = identity_of(places), after;

	folder_write(&second, "config.json", "{\"x\":1}", 7);
	after = identity_of(places);
	cr_expect_arr_eq(before.identity, after.identity, CNRE_DIGEST_BYTES);
	(void)cnre_places_close(places);
}

static void expect_refused(int error, const char *list, const char *part)
{
	struct cnre_places *untouched = (struct cnre_places *)message, *places = untouched;

	cr_expect_eq(cnre_places_open_list(&places, first.path, list, message, sizeof message), error, "%s: %s", list,
		     message);
	cr_expect_eq(places, untouched, "output touched");
	cr_expect(strstr(message, part) != NULL, "no \"%s\" in: %s", part, message);
}

Test(base_places, lists_are_cut_at_colons_and_nothing_else_is_taken_for_none)
{
	char list[4096] = "";
	struct cnre_places *places;

	(void)snprintf(list, sizeof list, "%s:%s", second.path, third.path);
	cr_assert_eq(cnre_places_open_list(&places, first.path, list, message, sizeof message), 0, "%s", message);
	cr_expect_eq(places->place_count, 3);
	(void)cnre_places_close(places);
	cr_assert_eq(cnre_places_open_list(&places, first.path, "", NULL, 0), 0);
	cr_expect_eq(places->place_count, 1);
	(void)cnre_places_close(places);
	cr_assert_eq(cnre_places_open_list(&places, first.path, NULL, NULL, 0), 0);
	(void)cnre_places_close(places);
	expect_refused(-ENOENT, "/nonexistent", "/nonexistent");
	expect_refused(-EINVAL, ":/tmp", "empty name");
	expect_refused(-EINVAL, "/tmp::/tmp", "empty name");
	expect_refused(-ENOTDIR, "/dev/null", "/dev/null");
	list[0] = '\0';
	for (uint32_t i = 0; i <= CNRE_PLACES_FURTHER_MAX; i++)
		(void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? ":" : "", second.path);
	expect_refused(-E2BIG, list, "more than 16");
}

/* Messages name the file by the directory that it lies in. */
Test(base_places, what_is_wrong_with_a_further_shard_names_its_path)
{
	const char *const further[] = {second.path};
	struct cnre_fingerprint untouched = {.shard_count = 77};
	struct cnre_places *places;
	char path[128];

	folder_write(&second, "c.safetensors", "short", 5);
	places = opened(further, 1);
	cr_expect_eq(cnre_places_identify(places, &untouched, message, sizeof message), -EBADMSG);
	cr_expect_eq(untouched.shard_count, 77);
	cr_expect(strstr(message, folder_path(&second, "c.safetensors", path, sizeof path)) != NULL, "%s", message);
	(void)cnre_places_close(places);
}

Test(base_places, a_fifo_with_a_shards_name_is_an_error_and_not_waited_for)
{
	const char *const further[] = {second.path};
	struct cnre_fingerprint fingerprint;
	struct cnre_places *places;
	char path[128];

	cr_assert_eq(mkfifo(folder_path(&second, "d.safetensors", path, sizeof path), 0600), 0);
	places = opened(further, 1);
	cr_expect_eq(cnre_places_identify(places, &fingerprint, message, sizeof message), -EINVAL, "%s", message);
	(void)cnre_places_close(places);
}

Test(base_places, a_checkpoint_without_a_shard_has_places_and_no_identity)
{
	struct folder empty;
	struct cnre_places *places;
	struct cnre_fingerprint fingerprint;

	folder_make(&empty);
	cr_assert_eq(cnre_places_open_list(&places, empty.path, NULL, NULL, 0), 0);
	cr_expect_eq(cnre_places_identify(places, &fingerprint, message, sizeof message), -ENOENT);
	(void)cnre_places_close(places);
	folder_remove(&empty);
}
