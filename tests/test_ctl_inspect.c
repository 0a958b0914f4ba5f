/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl inspect: its words, what it finds in a checkpoint, and what a person reads of it. */
#include "tools/ctl/inspect_words.h"

#include "tests/support/folder.h"
#include "tools/ctl/options.h"
#include "tools/ctl/run.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct folder folder;
static char message[CTL_MESSAGE_BYTES];

static void make(void)
{
	folder_make(&folder);
}

static void clean(void)
{
	folder_remove(&folder);
}

TestSuite(ctl_inspect, .init = make, .fini = clean, .timeout = 60);

/* Two int4 experts and one int8 one, hidden 96, intermediate 32: fused in the way of Inkling, so that gate and up adjoin. */
static void write_inkling(void)
{
	static const char config[] = "{\"model_type\":\"inkling\",\"num_hidden_layers\":3,\"n_routed_experts\":2,"
				     "\"num_experts_per_tok\":1,\"hidden_size\":96,\"moe_intermediate_size\":32}";

	folder_write(&folder, "config.json", config, sizeof config - 1);
	folder_write_shard(&folder, "model-1.safetensors",
			   "{\"model.layers.1.mlp.experts.gate_up_proj\":{\"dtype\":\"U8\",\"shape\":[2,64,48],"
			   "\"data_offsets\":[0,6144]},"
			   "\"model.layers.1.mlp.experts.gate_up_proj.qs\":{\"dtype\":\"F32\",\"shape\":[2,64],"
			   "\"data_offsets\":[6144,6656]},"
			   "\"model.layers.1.mlp.experts.down_proj\":{\"dtype\":\"U8\",\"shape\":[2,96,16],"
			   "\"data_offsets\":[6656,9728]},"
			   "\"model.layers.1.mlp.experts.down_proj.qs\":{\"dtype\":\"F32\",\"shape\":[2,96],"
			   "\"data_offsets\":[9728,10496]}}",
			   10496);
	folder_write_shard(&folder, "model-2.safetensors",
			   "{\"model.layers.2.mlp.experts.gate_up_proj\":{\"dtype\":\"U8\",\"shape\":[2,64,96],"
			   "\"data_offsets\":[0,12288]},"
			   "\"model.layers.2.mlp.experts.gate_up_proj.qs\":{\"dtype\":\"F32\",\"shape\":[2,64],"
			   "\"data_offsets\":[12288,12800]},"
			   "\"model.layers.2.mlp.experts.down_proj\":{\"dtype\":\"U8\",\"shape\":[2,96,32],"
			   "\"data_offsets\":[12800,18944]},"
			   "\"model.layers.2.mlp.experts.down_proj.qs\":{\"dtype\":\"F32\",\"shape\":[2,96],"
			   "\"data_offsets\":[18944,19712]}}",
			   19712);
}

static json_t *answer_for(const char *directory)
{
	const struct inspect_words words = {.directory = directory};
	json_t *answer = NULL;

	message[0] = '\0';
	cr_assert_eq(inspect_model(&words, &answer, message), 0, "%s", message);
	return answer;
}

static json_int_t number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	cr_assert(json_is_integer(value), "no number %s", key);
	return json_integer_value(value);
}

static const json_t *item(const json_t *object, const char *key, size_t index)
{
	const json_t *value = json_array_get(json_object_get(object, key), index);

	cr_assert_not_null(value, "no %s[%zu]", key, index);
	return value;
}

/* ---- words ---- */

static int parse(const char *line, struct inspect_words *words)
{
	static char copy[1024];
	char *argv[64] = {"cnrectl"};
	struct options options;
	int argc = 1;

	(void)snprintf(copy, sizeof copy, "%s", line);
	for (char *word = strtok(copy, " "); word != NULL && argc < 63; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (options_parse(argc, argv, &options, message) < 0)
		return -EINVAL;
	return inspect_words_parse(options.word_count, options.word, words, message);
}

Test(ctl_inspect, words_are_one_directory_and_its_options)
{
	struct inspect_words words;

	cr_assert_eq(parse("inspect a --dir b --family=f --dir c --json", &words), 0, "%s", message);
	cr_expect_str_eq(words.directory, "a");
	cr_expect_str_eq(words.family_file, "f");
	cr_assert_eq(words.further_count, 2);
	cr_expect_str_eq(words.further[1], "c");
	cr_assert_eq(parse("inspect --dir b a", &words), 0, "%s", message);
	cr_expect_str_eq(words.directory, "a");
}

Test(ctl_inspect, other_words_are_usage_errors)
{
	static const struct {
		const char *line, *part;
	} cases[] = {
		{"inspect", "no directory: name that of a checkpoint"},
		{"inspect a b", "b: one directory at a time"},
		{"inspect a --family f --family g", "--family: given twice"},
		{"inspect a --family", "--family: needs a value"},
		{"inspect a --family=", "--family: needs a value"},
		{"inspect a --mirror b", "--mirror: no such option"},
	};
	struct inspect_words words;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		message[0] = '\0';
		cr_expect_eq(parse(cases[i].line, &words), -EINVAL, "%s", cases[i].line);
		cr_expect(strstr(message, cases[i].part) != NULL, "no \"%s\" in: %s", cases[i].part, message);
	}
}

/* ---- what is found ---- */

Test(ctl_inspect, sizes_formats_and_layers_are_those_of_the_checkpoint)
{
	const json_t *format, *part, *layer;
	json_t *answer;

	write_inkling();
	answer = answer_for(folder.path);
	cr_expect_str_eq(json_string_value(json_object_get(answer, "family")), "inkling");
	cr_expect_str_eq(json_string_value(json_object_get(answer, "state")), "points");
	cr_expect(json_is_false(json_object_get(answer, "described")));
	cr_expect_eq(number(answer, "layers"), 3);
	cr_expect_eq(number(answer, "rows_after"), 0);
	cr_expect_eq(number(answer, "objects"), 4);
	cr_expect_eq(number(answer, "expert_bytes_min"), 64 * 48 + 96 * 16 + 4 * 160);
	cr_expect_eq(number(answer, "expert_bytes_max"), 64 * 96 + 96 * 32 + 4 * 160);
	cr_expect_eq(number(answer, "expert_bytes_total"), 10496 + 19712);
	cr_expect_eq(json_array_size(json_object_get(answer, "formats")), 2);
	format = item(answer, "formats", 1);
	cr_expect_str_eq(json_string_value(json_object_get(format, "format")), "int8-row");
	cr_expect_eq(number(format, "objects"), 2);
	cr_expect_eq(json_array_size(json_object_get(format, "parts")), 6);
	part = item(format, "parts", 5);
	cr_expect_str_eq(json_string_value(json_object_get(part, "role")), "down-scale");
	cr_expect_str_eq(json_string_value(json_object_get(part, "dtype")), "F32");
	cr_expect_eq(number(part, "rows"), 96);
	cr_expect_eq(number(part, "block_rows"), 1);
	layer = item(answer, "by_layer", 2);
	cr_expect_str_eq(json_string_value(json_object_get(layer, "name")), "2");
	cr_expect_eq(number(layer, "experts"), 2);
	cr_expect_str_eq(json_string_value(item(layer, "formats", 0)), "int8-row");
	cr_expect_eq(number(item(answer, "by_layer", 0), "experts"), 0);
	json_decref(answer);
}

/* Slices of one tensor adjoin, of the four tensors they do not. */
Test(ctl_inspect, reads_and_the_blocks_that_the_engine_wants_are_counted)
{
	const json_t *format, *unit;
	json_t *answer;

	write_inkling();
	answer = answer_for(folder.path);
	format = item(answer, "formats", 0);
	cr_expect_eq(json_array_size(json_object_get(format, "reads")), 1);
	cr_expect_eq(number(item(format, "reads", 0), "reads"), 4);
	cr_expect_eq(number(item(format, "reads", 0), "objects"), 2);
	cr_expect_eq(number(format, "with_gaps"), 2);
	cr_expect_eq(number(format, "in_several_shards"), 0);
	unit = item(format, "wanted_contiguous", 0);
	cr_expect_str_eq(json_string_value(item(unit, "parts", 1)), "up");
	/* Gate has 1,536 bytes, a multiple of 64: moved or not, up follows it. */
	cr_expect_eq(number(unit, "contiguous"), 2);
	json_decref(answer);
}

Test(ctl_inspect, a_block_that_moving_tears_apart_is_told)
{
	static const char config[] = "{\"model_type\":\"inkling\",\"num_hidden_layers\":1,\"n_routed_experts\":1,"
				     "\"num_experts_per_tok\":1,\"hidden_size\":5,\"moe_intermediate_size\":3}";
	const json_t *format;
	json_t *answer;

	folder_write(&folder, "config.json", config, sizeof config - 1);
	folder_write_shard(&folder, "model.safetensors",
			   "{\"model.layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"BF16\",\"shape\":[1,6,5],"
			   "\"data_offsets\":[0,60]},"
			   "\"model.layers.0.mlp.experts.down_proj\":{\"dtype\":\"BF16\",\"shape\":[1,5,3],"
			   "\"data_offsets\":[60,90]}}",
			   90);
	answer = answer_for(folder.path);
	format = item(answer, "formats", 0);
	cr_expect_eq(json_array_size(json_object_get(format, "wanted_contiguous")), 1, "scales that are not there");
	cr_expect_eq(number(item(format, "wanted_contiguous", 0), "contiguous"), 0);
	cr_expect_eq(number(item(format, "reads", 0), "reads"), 1);
	cr_expect_gt(number(format, "moved_parts_max"), 1);
	json_decref(answer);
}

Test(ctl_inspect, a_family_from_a_file_is_said_to_be_described)
{
	static const char config[] = "{\"model_type\":\"mixtral\",\"num_hidden_layers\":1,\"num_local_experts\":1,"
				     "\"num_experts_per_tok\":1,\"hidden_size\":4,\"intermediate_size\":2}";
	struct inspect_words words = {.directory = folder.path, .family_file = "doc/family.ini"};
	json_t *answer = NULL;

	folder_write(&folder, "config.json", config, sizeof config - 1);
	folder_write_shard(
		&folder, "model.safetensors",
		"{\"model.layers.0.block_sparse_moe.experts.0.w1.weight\":{\"dtype\":\"BF16\",\"shape\":[2,4],"
		"\"data_offsets\":[0,16]},\"model.layers.0.block_sparse_moe.experts.0.w2.weight\":{\"dtype\":"
		"\"BF16\",\"shape\":[4,2],\"data_offsets\":[16,32]},"
		"\"model.layers.0.block_sparse_moe.experts.0.w3.weight\":{\"dtype\":\"BF16\",\"shape\":[2,4],"
		"\"data_offsets\":[32,48]}}",
		48);
	cr_assert_eq(inspect_model(&words, &answer, message), 0, "%s", message);
	cr_expect_str_eq(json_string_value(json_object_get(answer, "family")), "mixtral");
	cr_expect(json_is_true(json_object_get(answer, "described")));
	cr_expect_null(json_object_get(answer, "engine_note"));
	json_decref(answer);
}

Test(ctl_inspect, what_cannot_be_read_is_told_as_the_manager_would)
{
	struct inspect_words words = {.directory = folder.path};
	json_t *answer = NULL;

	cr_expect_eq(inspect_model(&words, &answer, message), -ENOENT);
	cr_expect(strstr(message, "config.json") != NULL, "%s", message);
	words.family_file = "/nonexistent.ini";
	cr_expect_eq(inspect_model(&words, &answer, message), -ENOENT);
	cr_expect(strstr(message, "/nonexistent.ini") != NULL, "%s", message);
	cr_expect_null(answer);
}

/* ---- what a person reads ---- */

static char *text_of(json_t *answer)
{
	const struct run run = {.verb = verb_find("inspect"), .stop_fd = -1};
	char *output = NULL;

	cr_assert_eq(run_render(&run, answer, &output, message), 0, "%s", message);
	return output;
}

Test(ctl_inspect, a_person_reads_formats_reads_and_layers)
{
	static const char *const parts[] = {
		"family inkling, 3 layers, up to 2 experts in each, 1 a token",
		"can do     expert-cache, direct-io",
		"resumed at checkpoints only",
		"format int4-row: 2 experts of 5,248 bytes",
		"1 x all",
		"4 for 2 experts; between parts of 2 lie other tensors",
		"takes gate, up as one block: they are\n",
		"  0                   dense\n",
		"int8-row\n",
	};
	char *text;

	write_inkling();
	text = text_of(answer_for(folder.path));
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		cr_expect_not_null(strstr(text, parts[i]), "no \"%s\" in:\n%s", parts[i], text);
	free(text);
}

Test(ctl_inspect, layers_that_are_alike_are_one_line)
{
	const char *directory = getenv("CNRE_VECTORS");
	char path[4096], *text;
	struct inspect_words words = {.directory = path};
	json_t *answer = NULL;

	(void)snprintf(path, sizeof path, "%s/glm-tiny", directory != NULL ? directory : "../shared/vectors");
	if (inspect_model(&words, &answer, message) < 0)
		cr_skip("no reference vectors at %s (set CNRE_VECTORS)", path);
	text = text_of(answer);
	cr_expect_not_null(strstr(text, "0 to 1"), "%s", text);
	cr_expect_not_null(strstr(text, "2 to 5"), "%s", text);
	cr_expect_not_null(strstr(text, "1 for 64 experts\n"), "%s", text);
	free(text);
}
