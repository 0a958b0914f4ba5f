/* SPDX-License-Identifier: Apache-2.0 */
/* A family described in a file: the example that is installed, models of it, and what is refused in which words. */
#include "model/family_file.h"

#include "model/catalog.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct folder folder;
static char message[MODEL_MESSAGE_BYTES];

static void make(void)
{
	folder_make(&folder);
}

static void clean(void)
{
	folder_remove(&folder);
}

TestSuite(model_family_file, .init = make, .fini = clean, .timeout = 60);

#define GOOD                                                                                                                 \
	"[family]\nname = mine\nmodel-type = mine, mine_text\n[config]\nlayers = L\nexperts = E, N\ntop-k = K\nhidden = H\n" \
	"intermediate = I\n[experts]\nstem = x.%L.\n"
#define MATRICES "gate = %E.g\nup = %E.u\ndown = %E.d\n"

static int read_text(const char *text, struct family_file **ret_file)
{
	message[0] = '\0';
	return family_file_read(ret_file, "mine.ini", text, strlen(text), message);
}

/* ---- what is read ---- */

Test(model_family_file, the_example_describes_a_family)
{
	struct family_file *file = NULL;
	const struct family *family;
	struct family_place place;

	cr_assert_eq(family_file_open(&file, "doc/family.ini", message), 0, "%s", message);
	family = family_file_family(file);
	cr_expect_str_eq(family->name, "mixtral");
	cr_expect(family_has_type(family, "mixtral"));
	cr_expect_eq(family->state, FAMILY_STATE_ANY_TOKEN);
	cr_expect_str_eq(family->experts[1].name, "num_experts");
	cr_assert(family_match(family, "model.layers.3.block_sparse_moe.experts.7.w3.weight", &place));
	cr_expect_eq(place.number, 3);
	cr_expect_eq(place.expert, 7);
	cr_expect_eq(family->layouts[0].tensor[place.name].block[0].role, MODEL_UP);
	(void)family_file_close(file);
}

Test(model_family_file, what_may_be_left_out_has_a_meaning)
{
	struct family_file *file = NULL;
	const struct family *family;

	cr_assert_eq(read_text(GOOD MATRICES "formats = f32\n", &file), 0, "%s", message);
	family = family_file_family(file);
	cr_expect_eq(family->mtp_rows, 0);
	cr_expect_eq(family->state, FAMILY_STATE_UNKNOWN);
	cr_expect_null(family->dense_key);
	cr_expect(family_has_type(family, "mine_text"));
	cr_expect_eq(family->layouts[0].tensor[0].scale_name, FAMILY_NO_NAME);
	(void)family_file_close(file);
}

/* ---- models of it ---- */

static void write_model(const char *model_type)
{
	char config[256];

	(void)snprintf(config, sizeof config, "{\"model_type\":\"%s\",\"L\":1,\"N\":2,\"K\":1,\"H\":8,\"I\":4}",
		       model_type);
	folder_write(&folder, "config.json", config, strlen(config));
	folder_write_shard(&folder, "model.safetensors",
			   "{\"x.0.0.gud\":{\"dtype\":\"U8\",\"shape\":[48],\"data_offsets\":[0,48]},"
			   "\"x.0.0.s\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[48,112]},"
			   "\"x.0.1.gud\":{\"dtype\":\"U8\",\"shape\":[96],\"data_offsets\":[112,208]},"
			   "\"x.0.1.s\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[208,272]}}",
			   272);
}

static int open_with(const char *text, struct model_catalog **ret_catalog)
{
	char path[256];
	struct model_source source = {.directory = folder.path,
				      .family_file = folder_path(&folder, "mine.ini", path, sizeof path)};

	folder_write(&folder, "mine.ini", text, strlen(text));
	message[0] = '\0';
	return model_catalog_open_source(ret_catalog, &source, message);
}

#define MERGED GOOD "gate-up-down = %E.gud\ngate-up-down-scale = %E.s\nformats = int8-row,\n  int4-row\n"

Test(model_family_file, a_model_of_a_described_family_is_read)
{
	struct model_catalog *catalog = NULL;

	write_model("mine_text");
	cr_assert_eq(open_with(MERGED, &catalog), 0, "%s", message);
	cr_expect_str_eq(catalog->family, "mine");
	cr_expect_eq(catalog->object_count, 2);
	cr_expect_str_eq(catalog->shape[catalog->object[0].shape].format, "int4-row");
	cr_expect_str_eq(catalog->shape[catalog->object[1].shape].format, "int8-row");
	cr_expect_eq(catalog->object[1].piece[MODEL_DOWN].file_off, catalog->shard[0].data_off + 112 + 64);
	(void)model_catalog_close(catalog);
}

Test(model_family_file, other_models_are_what_they_would_be_without_it)
{
	struct model_catalog *catalog = NULL;

	write_model("gpt");
	cr_expect_eq(open_with(MERGED, &catalog), -ENOTSUP);
	cr_expect(strstr(message, "model_type gpt is not known") != NULL, "%s", message);
	write_model("olmoe");
	cr_expect_eq(open_with(MERGED, &catalog), -EBADMSG);
	cr_expect(strstr(message, "num_hidden_layers is missing") != NULL, "%s", message);
}

/* Somebody who describes a family that CNRE has too means it. */
Test(model_family_file, a_described_family_comes_before_one_that_is_built_in)
{
	struct model_catalog *catalog = NULL;

	write_model("olmoe");
	cr_assert_eq(open_with("[family]\nmodel-type = olmoe\n" MERGED, &catalog), 0, "%s", message);
	cr_expect_str_eq(catalog->family, "mine");
	(void)model_catalog_close(catalog);
}

/* ---- what is refused ---- */

Test(model_family_file, mistakes_are_told_with_their_line_and_what_to_do)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{"[family]\nname = a\nname = b\n", "mine.ini:3: name: given twice"},
		{"[family]\nname = 0123456789012345678901234567890123\n", "mine.ini:2: name: given twice, or longer"},
		{"[family]\nname = a b\n", "mine.ini:2: \"a b\": expected one word"},
		{"[family]\nfoo = a\n", "mine.ini:2: foo: not known in [family]"},
		{"[family]\nstate = sometimes\n", "neither any-token nor points"},
		{"[family]\nrows-after = 9\n", "not a number from 0 to 8"},
		{"[family]\nrows-after = 12\n", "not a number from 0 to 8"},
		{"[famly]\nname = a\n", "mine.ini:2: section [famly]: not known"},
		{"name = a\n", "mine.ini:1: section []: not known"},
		{"[config]\nlayers = a, b, c, d\n", "mine.ini:2: more than 3 of these"},
		{"[config]\nlayers = a\nlayers = b\n", "mine.ini:3: layers: given twice"},
		{"[config]\nwidth = a\n", "width: not known in [config]"},
		{"[experts]\nstem = x\n", "mine.ini:2: stem: x: must have one %L"},
		{"[experts]\nstem = x.%L.%M\n", "must have one %L"},
		{"[experts]\nstem = x.%L.%L\n", "must have one %L"},
		{"[experts]\nstem = x.%L.%s\n", "no other %"},
		{"[experts]\ngate = %E.%n\n", "mine.ini:2: gate: %E.%n: may have one %E"},
		{"[experts]\ngate = %E.%E\n", "may have one %E"},
		{"[experts]\ngate = w%\n", "may have one %E"},
		{"[experts]\ngate = %E0.w\n", "no digit behind it"},
		{"[experts]\nstem = x.%L\n", "some text"},
		{"[experts]\nstem = x.%L0.\n", "no digit"},
		{"[experts]\ngate = a\ngate = b\n", "mine.ini:3: gate: given twice"},
		{"[experts]\ngate = a\nup = b\ndown = c\ngate-up = d\n", "more tensors than"},
		{"[experts]\nbias = a\n", "bias: not known in [experts]"},
		{"[experts]\nformats = int5\n", "formats: int5 is not known; known are: bf16"},
		{"[experts]\nformats =\n", "formats: needs a value"},
		{"what\n", "neither `name = value` nor [section]"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct family_file *file = NULL;

		cr_expect_lt(read_text(cases[i].text, &file), 0, "%s", cases[i].text);
		cr_expect_null(file, "output touched: %s", cases[i].text);
		cr_expect(strstr(message, cases[i].part) != NULL, "no \"%s\" in: %s", cases[i].part, message);
		cr_expect_eq(strncmp(message, "mine.ini", 8), 0, "%s", message);
		cr_expect_null(strchr(message, '\n'), "%s", message);
	}
}

Test(model_family_file, a_file_that_leaves_out_what_is_needed_is_told_what)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{"", "mine.ini: name in [family] is missing"},
		{"[family]\nname = a\n", "model-type in [family] is missing"},
		{"[family]\nname = a\nmodel-type = ,\n", "model-type in [family] is missing"},
		{GOOD MATRICES, "formats in [experts] is missing"},
		{GOOD "gate = %E.g\nup = %E.u\nformats = f32\n", "gate, up and down must each be named"},
		{GOOD MATRICES "formats = int4-row\n", "int4-row has scales, but a tensor has no -scale"},
		{GOOD "gate-up = a\nup = b\ndown = c\nformats = f32\n", "lies in two tensors"},
		{GOOD "gate-scale = a\nup = b\ndown = c\nformats = f32\n", "scales are named without the weights"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct family_file *file = NULL;

		cr_expect_eq(read_text(cases[i].text, &file), -EINVAL, "%s", cases[i].text);
		cr_expect(strstr(message, cases[i].part) != NULL, "no \"%s\" in: %s", cases[i].part, message);
	}
}

Test(model_family_file, what_is_too_long_or_no_text_is_refused)
{
	static char text[FAMILY_FILE_BYTES_MAX + 2];
	struct family_file *file = NULL;
	size_t used;
	char path[256];

	used = (size_t)snprintf(text, sizeof text, "[family]\nmodel-type = ");
	memset(text + used, 'x', FAMILY_FILE_WORD_BYTES);
	text[used + FAMILY_FILE_WORD_BYTES] = '\0';
	cr_expect_eq(read_text(text, &file), -E2BIG);
	cr_expect(strstr(message, "longer than 127 bytes") != NULL, "%s", message);

	used = (size_t)snprintf(text, sizeof text, "[family]\n");
	for (int i = 0; i < 40; i++)
		used += (size_t)snprintf(text + used, sizeof text - used, "model-type = m%d\n", i);
	cr_expect_eq(read_text(text, &file), -E2BIG);
	cr_expect(strstr(message, "mine.ini:18: more than 16") != NULL, "%s", message);

	cr_expect_eq(family_file_read(&file, "mine.ini", "[family]\nname = \0a\n", 19, message), -EINVAL);
	cr_expect(strstr(message, "not a text file") != NULL, "%s", message);

	memset(text, '\n', sizeof text);
	folder_write(&folder, "large.ini", text, sizeof text);
	cr_expect_eq(family_file_open(&file, folder_path(&folder, "large.ini", path, sizeof path), message), -EFBIG);
	cr_expect_eq(family_file_open(&file, "/nonexistent.ini", message), -ENOENT);
	cr_expect(strstr(message, "/nonexistent.ini") != NULL, "%s", message);
	cr_expect_eq(family_file_open(&file, "/dev/null", message), -EINVAL);
	cr_assert_eq(mkfifo(folder_path(&folder, "fifo", path, sizeof path), 0600), 0);
	cr_expect_eq(family_file_open(&file, path, message), -EINVAL);
	cr_expect_null(file);
}
