/* SPDX-License-Identifier: Apache-2.0 */
/* The digests of payload: what is hashed, and a manifest that is taken whole or refused with one line. */
#include "manager/digest.h"

#include "model/view.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define ONES "1111111111111111111111111111111111111111111111111111111111111111"
#define TWOS "2222222222222222222222222222222222222222222222222222222222222222"
#define HEADER "cnre-digests 1 xxh3-64 "

/* Two models: layer 0 is dense, layers 1 and 2 have two experts each. Owners 0 to 3 and 4 to 7. */
static struct model_layer layers[] = {{0, 0, 0}, {0, 2, 1}, {2, 2, 1}};
static struct model_object objects[] = {
	{.layer = 1}, {.layer = 1, .expert = 1}, {.layer = 2}, {.layer = 2, .expert = 1}};
static struct model_catalog catalogs[2];
static struct manager manager;
static struct digest_table *table;
static char message[512], folder[64], path[96];

static void prepare(void)
{
	for (uint32_t i = 0; i < 2; i++) {
		catalogs[i] =
			(struct model_catalog){.layer_count = 3, .object_count = 4, .layer = layers, .object = objects};
		memset(catalogs[i].fingerprint.identity, i == 0 ? 0x11 : 0x22, CNRE_DIGEST_BYTES);
		manager.model[i] = (struct served_model){.catalog = &catalogs[i], .number = i, .first_owner = 4 * i};
	}
	manager.model_count = 2;
	manager.owner_count = 8;
	(void)snprintf(folder, sizeof folder, "/tmp/cnre-digest-XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	(void)snprintf(path, sizeof path, "%s/digests", folder);
	cr_assert_eq(digest_open(&table, &manager, NULL, message, sizeof message), 0);
}

static void finish(void)
{
	table = digest_close(table);
	(void)unlink(path);
	(void)rmdir(folder); /* fails, and is noticed, where something was left behind: see the tests */
}

TestSuite(manager_digest, .timeout = 20, .init = prepare, .fini = finish);

static int take(const char *text)
{
	return digest_read_text(table, "file", text, strlen(text), message, sizeof message);
}

static uint64_t known(uint32_t owner)
{
	uint64_t digest = 0;

	return digest_find(table, owner, &digest) ? digest : 0;
}

static void write_file(const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

static void expect_file(const char *expected)
{
	char text[1024];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	cr_assert_geq(n, 0);
	(void)close(fd);
	text[n] = '\0';
	cr_expect_str_eq(text, expected);
}

/* ---- hashing ---- */

Test(manager_digest, covers_the_parts_in_role_order_and_nothing_between_them)
{
	struct model_shape shape = {.part = {[0] = {.bytes = 100}, [2] = {.bytes = 300}, [5] = {.bytes = 7}}};
	struct model_plan plan = {.part_off = {[0] = 512, [2] = 64, [5] = 1024}}; /* role 2 lies first */
	static char slab[2048], parts[407];
	uint64_t digest;

	for (size_t i = 0; i < sizeof slab; i++)
		slab[i] = (char)(i * 7 + i / 256);
	memcpy(parts, slab + 512, 100);
	memcpy(parts + 100, slab + 64, 300);
	memcpy(parts + 400, slab + 1024, 7);
	digest = digest_compute(slab, &shape, &plan);
	cr_expect_eq(digest, XXH3_64bits(parts, sizeof parts));
	slab[0] ^= 1, slab[364] ^= 1, slab[612] ^= 1, slab[1031] ^= 1;
	cr_expect_eq(digest_compute(slab, &shape, &plan), digest, "what lies between the parts does not matter");
	slab[363] ^= 1;
	cr_expect_neq(digest_compute(slab, &shape, &plan), digest);
}

Test(manager_digest, is_the_published_hash)
{
	struct model_shape shape = {.part = {[1] = {.bytes = 3}}};
	struct model_plan plan = {0};

	cr_expect_eq(digest_compute("abc", &shape, &plan), 0x78af5f94892f3950ull, "XXH3-64 of \"abc\", seed 0");
}

/* ---- the table ---- */

Test(manager_digest, first_is_remembered_and_another_one_is_ebadmsg)
{
	uint64_t expected = 77;

	cr_expect_eq(digest_check(table, 5, 0, &expected), 0, "zero is a digest like any other");
	cr_expect_eq(digest_check(table, 5, 0, &expected), 0);
	cr_expect_eq(expected, 77, "output is untouched without a mismatch");
	cr_expect_eq(digest_check(table, 5, 9, &expected), -EBADMSG);
	cr_expect_eq(expected, 0);
	cr_expect_eq(digest_check(table, 5, 0, &expected), 0, "a mismatch is not remembered");
	expected = 77;
	cr_expect_eq(digest_find(table, 4, &expected), 0);
	cr_expect_eq(expected, 77);
}

/* ---- reading ---- */

Test(manager_digest, sections_go_to_their_models)
{
	cr_assert_eq(take(HEADER TWOS "\n1 1 00000000000000ff\n" HEADER ONES "\n2 0 fedcba9876543210\n"), 0, "%s",
		     message);
	cr_expect_eq(known(5), 0xff);
	cr_expect_eq(known(2), 0xfedcba9876543210ull);
	cr_expect_eq(known(0) + known(1) + known(3) + known(4) + known(6) + known(7), 0);
}

Test(manager_digest, an_identity_that_is_not_served_is_estale)
{
	cr_expect_eq(take(HEADER "3333333333333333333333333333333333333333333333333333333333333333\n"), -ESTALE);
	cr_expect_not_null(strstr(message, "file:1:"), "%s", message);
	cr_expect_not_null(strstr(message, "not served"), "%s", message);
}

Test(manager_digest, hostile_text_is_refused_with_its_line_and_leaves_nothing)
{
	static const struct {
		const char *text, *where;
	} cases[] = {
		{"", "file:0:"},
		{"\n", "file:1:"},
		{"1 0 0123456789abcdef\n", "file:1:"},
		{"cnre-digests 2 xxh3-64 " ONES "\n", "file:1:"},
		{"cnre-digests 1 sha256 " ONES "\n", "file:1:"},
		{HEADER ONES, "file:1:"},
		{HEADER ONES " \n", "file:1:"},
		{HEADER ONES "\r\n", "file:1:"},
		{HEADER ONES "\n1 0 0123456789abcdef", "file:2:"},
		{HEADER ONES "\n1 0 0123456789abcde\n", "file:2:"},
		{HEADER ONES "\n1 0 0123456789abcdef0\n", "file:2:"},
		{HEADER ONES "\n1 0 0123456789ABCDEF\n", "file:2:"},
		{HEADER ONES "\n1 0  123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n1 0 -123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n1  0 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n 1 0 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n01 0 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n+1 0 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n1 -1 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n4294967297 0 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n99999999999999999999999 0 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n0 0 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n1 2 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n3 0 0123456789abcdef\n", "file:2:"},
		{HEADER ONES "\n\n", "file:2:"},
		{HEADER ONES "\n1 0 0123456789abcdef\n1 0 0123456789abcdef\n", "file:3:"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		message[0] = '\0';
		cr_expect_eq(take(cases[i].text), i == 6 || i == 7 ? -ESTALE : -EBADMSG, "case %zu", i);
		cr_expect_not_null(strstr(message, cases[i].where), "case %zu: %s", i, message);
		cr_expect_null(strchr(message, '\n'), "case %zu", i);
		for (uint32_t owner = 0; owner < 8; owner++)
			cr_expect_eq(known(owner), 0, "case %zu", i);
	}
}

Test(manager_digest, zero_bytes_and_endless_lines_are_refused)
{
	static char text[4096];

	memset(text, '1', sizeof text);
	text[sizeof text - 1] = '\n';
	cr_expect_eq(digest_read_text(table, "file", text, sizeof text, message, sizeof message), -EBADMSG);
	cr_expect_eq(digest_read_text(table, "file", HEADER ONES "\n1 0\0 0123456789abcdef\n", sizeof HEADER ONES + 22,
				      message, sizeof message),
		     -EBADMSG);
}

/* ---- files ---- */

Test(manager_digest, what_was_saved_is_read_again)
{
	struct stat before, after;
	uint64_t ignored;

	table = digest_close(table);
	cr_assert_eq(digest_open(&table, &manager, path, message, sizeof message), 0,
		     "a missing file is the beginning: %s", message);
	cr_expect_eq(digest_check(table, 3, 0xabc, &ignored), 0);
	cr_expect_eq(digest_check(table, 4, 1, &ignored), 0);
	cr_assert_eq(digest_save(table, message, sizeof message), 0, "%s", message);
	expect_file(HEADER ONES "\n2 1 0000000000000abc\n" HEADER TWOS "\n1 0 0000000000000001\n");
	table = digest_close(table);
	cr_assert_eq(digest_open(&table, &manager, path, message, sizeof message), 0, "%s", message);
	cr_expect_eq(known(3), 0xabc);
	cr_expect_eq(known(4), 1);
	cr_assert_eq(stat(path, &before), 0);
	cr_expect_eq(digest_check(table, 3, 0xabc, &ignored), 0);
	cr_expect_eq(digest_check(table, 3, 0xabd, &ignored), -EBADMSG);
	cr_assert_eq(digest_save(table, message, sizeof message), 0);
	cr_assert_eq(stat(path, &after), 0);
	cr_expect_eq(before.st_ino, after.st_ino, "nothing new is not written");
	cr_expect_eq(digest_check(table, 0, 5, &ignored), 0);
	cr_assert_eq(digest_save(table, message, sizeof message), 0);
	cr_assert_eq(stat(path, &after), 0);
	cr_expect_neq(before.st_ino, after.st_ino, "a new file takes the place of the old one");
	expect_file(HEADER ONES "\n1 0 0000000000000005\n2 1 0000000000000abc\n" HEADER TWOS
				"\n1 0 0000000000000001\n");
	cr_assert_eq(unlink(path), 0);
	cr_expect_eq(rmdir(folder), 0, "no other file is left behind");
}

Test(manager_digest, a_save_that_fails_leaves_no_file_behind)
{
	uint64_t ignored;

	table = digest_close(table);
	cr_assert_eq(digest_open(&table, &manager, path, message, sizeof message), 0);
	cr_expect_eq(digest_check(table, 0, 5, &ignored), 0);
	cr_assert_eq(mkdir(path, 0755), 0); /* a rename over it must fail */
	cr_expect_lt(digest_save(table, message, sizeof message), 0);
	cr_expect_not_null(strstr(message, path), "%s", message);
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(digest_save(table, message, sizeof message), 0, "it can be tried again: %s", message);
	cr_assert_eq(unlink(path), 0);
	cr_expect_eq(rmdir(folder), 0, "no other file is left behind");
}

Test(manager_digest, a_file_that_cannot_be_used_is_refused_when_it_is_opened)
{
	struct digest_table *untouched = table, *other = untouched;
	char nowhere[128];

	write_file("something else\n");
	cr_expect_eq(digest_open(&other, &manager, path, message, sizeof message), -EBADMSG);
	cr_expect_not_null(strstr(message, path), "%s", message);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(mkfifo(path, 0644), 0);
	cr_expect_eq(digest_open(&other, &manager, path, message, sizeof message), -EINVAL, "and does not block");
	cr_assert_eq(unlink(path), 0);
	(void)snprintf(nowhere, sizeof nowhere, "%s/none/digests", folder);
	cr_expect_eq(digest_open(&other, &manager, nowhere, message, sizeof message), -ENOENT);
	cr_expect_eq(other, untouched, "output is untouched on failure");
	write_file("");
	cr_assert_eq(truncate(path, DIGEST_FILE_BYTES_MAX + 1), 0);
	cr_expect_eq(digest_open(&other, &manager, path, message, sizeof message), -EFBIG);
}

/* ---- views ---- */

/* The second model is the first one in a view: its bytes lie otherwise, so its digests are others. */
Test(manager_digest, a_view_has_a_section_of_its_own_named_with_its_version)
{
	static const struct model_view view = {.name = "packed", .version = 3};

	memset(catalogs[1].fingerprint.identity, 0x11, CNRE_DIGEST_BYTES);
	catalogs[1].view = &view;
	cr_assert_eq(take(HEADER ONES "\n1 0 0000000000000001\n" HEADER ONES " packed.3\n1 0 0000000000000002\n"), 0, "%s", message);
	cr_expect_eq(known(0), 1);
	cr_expect_eq(known(4), 2);
	cr_expect_eq(take(HEADER ONES " packed.2\n1 0 0000000000000002\n"), -ESTALE, "bytes of another version are not compared");
	cr_expect_eq(take(HEADER ONES " other.3\n1 0 0000000000000002\n"), -ESTALE);
	cr_expect_eq(take(HEADER TWOS " packed.3\n"), -ESTALE);
	cr_expect_eq(take(HEADER ONES " packed.3 \n"), -ESTALE);
}

Test(manager_digest, sections_of_views_are_written_as_they_are_read)
{
	static const struct model_view view = {.name = "a-name-of-twenty-seven-byte", .version = UINT32_MAX};
	uint64_t unused;

	memset(catalogs[1].fingerprint.identity, 0x11, CNRE_DIGEST_BYTES);
	catalogs[1].view = &view;
	table = digest_close(table);
	cr_assert_eq(digest_open(&table, &manager, path, message, sizeof message), 0);
	cr_assert_eq(digest_check(table, 0, 1, &unused), 0);
	cr_assert_eq(digest_check(table, 7, 2, &unused), 0);
	cr_assert_eq(digest_save(table, message, sizeof message), 0);
	expect_file(HEADER ONES "\n1 0 0000000000000001\n" HEADER ONES
				" a-name-of-twenty-seven-byte.4294967295\n2 1 0000000000000002\n");
	table = digest_close(table);
	cr_assert_eq(digest_open(&table, &manager, path, message, sizeof message), 0, "%s", message);
	cr_expect_eq(known(7), 2);
}
