/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a checkpoint directory: what it depends on, what it does not, and what is refused. */
#include "base/fingerprint.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER "{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}"

static struct folder folder;

static void make(void)
{
	folder_make(&folder);
	folder_write(&folder, "config.json", "{}", 2);
	folder_write_shard(&folder, "b.safetensors", HEADER, 16);
	folder_write_shard(&folder, "a.safetensors", HEADER, 16);
}

static void clean(void)
{
	folder_remove(&folder);
}

TestSuite(base_fingerprint, .init = make, .fini = clean, .timeout = 30);

static struct cnre_fingerprint identify(void)
{
	struct cnre_fingerprint fingerprint = {.shard_count = 0};
	char message[256] = "";

	cr_assert_eq(cnre_fingerprint_directory(folder.path, &fingerprint, message, sizeof message), 0, "%s", message);
	return fingerprint;
}

static int identity_differs(const struct cnre_fingerprint *a, const struct cnre_fingerprint *b)
{
	return memcmp(a->identity, b->identity, sizeof a->identity) != 0;
}

Test(base_fingerprint, identity_is_repeatable_and_counts_shards)
{
	struct cnre_fingerprint first = identify(), second = identify();

	cr_expect_not(identity_differs(&first, &second));
	cr_expect_eq(first.shard_count, 2);
}

/* The definition in fingerprint.h, computed once by an independent implementation (Python's hashlib). */
Test(base_fingerprint, identity_is_as_defined)
{
	struct cnre_fingerprint fingerprint = identify();
	char text[2 * CNRE_DIGEST_BYTES + 1];

	cr_expect_str_eq(cnre_fingerprint_hex(fingerprint.config, CNRE_DIGEST_BYTES, text),
			 "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
	cr_expect_str_eq(cnre_fingerprint_hex(fingerprint.names, CNRE_DIGEST_BYTES, text),
			 "202255b62c521bc08230567af57456d0b34e475dde8567b9fb24d000d11cb21d");
	cr_expect_str_eq(cnre_fingerprint_hex(fingerprint.identity, CNRE_DIGEST_BYTES, text),
			 "3618f80675d82951e98975e8816b2211ec7c506b96190d8be45c8846fbb2235b");
}

Test(base_fingerprint, config_header_size_and_name_each_change_the_identity)
{
	struct cnre_fingerprint before = identify(), after;

	folder_write(&folder, "config.json", "{ }", 3);
	after = identify();
	cr_expect(identity_differs(&before, &after), "another config.json");
	folder_write(&folder, "config.json", "{}", 2);

	folder_write_shard(&folder, "a.safetensors", HEADER " ", 16);
	after = identify();
	cr_expect(identity_differs(&before, &after), "another header");
	folder_write_shard(&folder, "a.safetensors", HEADER, 17);
	after = identify();
	cr_expect(identity_differs(&before, &after), "another size");
	folder_write_shard(&folder, "a.safetensors", HEADER, 16);

	folder_write_shard(&folder, "c.safetensors", HEADER, 16);
	after = identify();
	cr_expect(identity_differs(&before, &after), "one shard more");
	cr_expect_neq(memcmp(before.names, after.names, sizeof before.names), 0);
}

/* The identity covers headers, not payload: flipped bytes are found by per-object digests on load. */
Test(base_fingerprint, payload_and_other_files_do_not_change_the_identity)
{
	struct cnre_fingerprint before = identify(), after;
	char path[256];
	int fd = open(folder_path(&folder, "a.safetensors", path, sizeof path), O_WRONLY | O_CLOEXEC);

	cr_assert_eq(pwrite(fd, "\xff\xff", 2, 8 + (off_t)strlen(HEADER)), 2);
	(void)close(fd);
	folder_write(&folder, "notes.txt", "x", 1);
	folder_write(&folder, ".hidden.safetensors", "x", 1);
	after = identify();
	cr_expect_not(identity_differs(&before, &after));
}

static void expect_refusal(int error, const char *part)
{
	struct cnre_fingerprint fingerprint, before;
	char message[256] = "";

	memset(&fingerprint, 0x5a, sizeof fingerprint);
	before = fingerprint;
	cr_expect_eq(cnre_fingerprint_directory(folder.path, &fingerprint, message, sizeof message), error, "%s",
		     message);
	cr_expect(strstr(message, part) != NULL, "no \"%s\" in: %s", part, message);
	cr_expect_eq(memcmp(&fingerprint, &before, sizeof before), 0, "output touched");
}

Test(base_fingerprint, a_directory_without_config_or_shards_is_enoent)
{
	char path[256];

	(void)unlink(folder_path(&folder, "config.json", path, sizeof path));
	expect_refusal(-ENOENT, "config.json");
	folder_write(&folder, "config.json", "{}", 2);
	(void)unlink(folder_path(&folder, "a.safetensors", path, sizeof path));
	(void)unlink(folder_path(&folder, "b.safetensors", path, sizeof path));
	expect_refusal(-ENOENT, "safetensors");
	cr_expect_eq(cnre_fingerprint_directory("/nonexistent", &(struct cnre_fingerprint){0}, NULL, 0), -ENOENT);
}

Test(base_fingerprint, header_lengths_beyond_the_file_are_refused_unread)
{
	static const unsigned char lengths[][8] = {
		{200}, {0, 0, 0, 0, 0, 0, 0, 0x80}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		folder_write(&folder, "b.safetensors", lengths[i], 8);
		expect_refusal(-EBADMSG, "b.safetensors");
	}
	folder_write(&folder, "b.safetensors", "1234567", 7);
	expect_refusal(-EBADMSG, "b.safetensors");
}

Test(base_fingerprint, a_fifo_named_like_a_shard_does_not_block)
{
	char path[256];

	cr_assert_eq(mkfifo(folder_path(&folder, "c.safetensors", path, sizeof path), 0600), 0);
	expect_refusal(-EINVAL, "c.safetensors");
}

Test(base_fingerprint, control_characters_in_names_cannot_forge_lines)
{
	folder_write(&folder, "z\nfake: all is well.safetensors", "1", 1);
	expect_refusal(-EBADMSG, "z?fake");
}

Test(base_fingerprint, shards_are_listed_in_byte_order)
{
	char **names = NULL;
	int count = cnre_fingerprint_list_shards(folder.path, &names);

	cr_assert_eq(count, 2);
	cr_expect_str_eq(names[0], "a.safetensors");
	cr_expect_str_eq(names[1], "b.safetensors");
	cnre_fingerprint_free_names(names, count);
}

Test(base_fingerprint, a_long_header_is_read_in_pieces)
{
	static char header[200001];
	struct cnre_fingerprint before, after;

	memset(header, ' ', sizeof header - 1);
	header[0] = '{';
	header[sizeof header - 2] = '}';
	folder_write_shard(&folder, "a.safetensors", header, 0);
	before = identify();
	header[150000] = '\n';
	folder_write_shard(&folder, "a.safetensors", header, 0);
	after = identify();
	cr_expect(identity_differs(&before, &after));
}
