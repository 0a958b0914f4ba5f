/* SPDX-License-Identifier: Apache-2.0 */
/* The stamp of a generated checkpoint; see stamp.h. */
#include "tools/gen/stamp.h"

#include "base/file.h"
#include "tools/gen/family.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAMP_BYTES_MAX (1u << 20)
#define KEY_BYTES 32
#define PAYLOAD_VERSION 1 /* goes up whenever the same model would get other bytes */

static json_t *formats_to_json(const struct gen_model *model)
{
	json_t *formats = json_array();
	uint32_t layer;

	for (layer = 0; layer < gen_model_rows(model); layer++)
		(void)json_array_append_new(formats,
					    json_string(gen_format_name((enum gen_format)model->expert_format[layer])));
	return formats;
}

static const char *key_of(const struct gen_number *number, char key[KEY_BYTES])
{
	char *at;

	(void)snprintf(key, KEY_BYTES, "%s", number->name);
	for (at = strchr(key, '-'); at != NULL; at = strchr(at, '-'))
		*at = '_';
	return key;
}

/* What not every family has is left out when it is not used: then a stamp is as it was before there was more than one. */
static void add_numbers(json_t *stamp, const struct gen_model *model)
{
	char key[KEY_BYTES];
	uint32_t i, value;

	for (i = 0; i < GEN_NUMBERS; i++) {
		value = *gen_number_field((struct gen_model *)model, &gen_numbers[i]);
		if (value != 0 || gen_numbers[i].needs == 0)
			(void)json_object_set_new(stamp, key_of(&gen_numbers[i], key), json_integer(value));
	}
}

static void add_matrix_formats(json_t *stamp, const struct gen_model *model)
{
	json_t *formats = json_array();
	uint32_t matrix;

	for (matrix = 0; matrix < GEN_MATRICES; matrix++)
		(void)json_array_append_new(
			formats, model->matrix_format[matrix] == GEN_FORMATS
					 ? json_null()
					 : json_string(gen_format_name((enum gen_format)model->matrix_format[matrix])));
	(void)json_object_set_new(stamp, "matrix_formats", formats);
}

static void add_choices(json_t *stamp, const struct gen_model *model)
{
	const struct gen_family *family = model->family;

	(void)json_object_set_new(stamp, "dense_format", json_string(gen_format_name(model->dense_format)));
	(void)json_object_set_new(stamp, "popularity", json_string(gen_popularity_name(model->popularity)));
	(void)json_object_set_new(stamp, "unaligned", json_boolean(model->unaligned));
	if (model->scattered)
		(void)json_object_set_new(stamp, "scattered", json_true());
	if (model->shard_names != family->shard_names)
		(void)json_object_set_new(stamp, "shard_names", json_string(gen_shard_names_name(model->shard_names)));
	if (model->config != family->config)
		(void)json_object_set_new(stamp, "config", json_string(gen_config_name(model->config)));
	if (model->prefix != family->prefixes[0])
		(void)json_object_set_new(stamp, "prefix", json_string(model->prefix));
	if ((family->takes & GEN_TAKES_MATRIX_FORMAT) != 0)
		add_matrix_formats(stamp, model);
	(void)json_object_set_new(stamp, "expert_formats", formats_to_json(model));
}

char *gen_stamp_make(const struct gen_model *model)
{
	json_t *stamp = json_object();
	char *text;

	(void)json_object_set_new(stamp, "payload_version", json_integer(PAYLOAD_VERSION));
	(void)json_object_set_new(stamp, "family", json_string(model->family->name));
	add_numbers(stamp, model);
	(void)json_object_set_new(stamp, "seed", json_integer((json_int_t)model->seed));
	(void)json_object_set_new(stamp, "shard_bytes", json_integer((json_int_t)model->shard_bytes));
	add_choices(stamp, model);
	text = json_dumps(stamp, JSON_INDENT(1) | JSON_ENSURE_ASCII);
	json_decref(stamp);
	return text;
}

static int read_formats(const json_t *formats, struct gen_model *model)
{
	enum gen_format format = GEN_INT8_ROW;
	const char *name;
	uint32_t layer;

	if (json_array_size(formats) != gen_model_rows(model))
		return -EBADMSG;
	for (layer = 0; layer < gen_model_rows(model); layer++) {
		name = json_string_value(json_array_get(formats, layer));
		if (name == NULL || gen_format_parse(name, &format) < 0)
			return -EBADMSG;
		model->expert_format[layer] = (uint8_t)format;
	}
	return 0;
}

static int read_matrix_formats(const json_t *formats, struct gen_model *model)
{
	enum gen_format format = GEN_FORMATS;
	const char *name;
	uint32_t matrix;

	for (matrix = 0; matrix < GEN_MATRICES; matrix++) {
		name = json_string_value(json_array_get(formats, matrix)); /* no list: as the layers */
		if (name != NULL && gen_format_parse(name, &format) < 0)
			return -EBADMSG;
		model->matrix_format[matrix] = (uint8_t)(name != NULL ? format : GEN_FORMATS);
	}
	return 0;
}

static int read_number(const json_t *stamp, const struct gen_number *number, struct gen_model *model)
{
	char key[KEY_BYTES];
	const json_t *value = json_object_get(stamp, key_of(number, key));
	json_int_t integer = json_integer_value(value);

	if (value == NULL && number->needs != 0)
		return 0;
	if (!json_is_integer(value) || integer < (json_int_t)number->min || integer > (json_int_t)number->max ||
	    (number->needs != 0 && (model->family->takes & number->needs) == 0))
		return -EBADMSG;
	*gen_number_field(model, number) = (uint32_t)integer;
	return 0;
}

/* Everything is input: the same ranges as on the command line. */
static int read_choices(const json_t *stamp, struct gen_model *model)
{
	const char *dense, *popularity, *names = NULL, *config = NULL, *prefix = NULL;
	json_int_t seed, shard_bytes;
	json_t *matrix_formats = NULL;

	model->shard_names = (enum gen_shard_names)model->family->shard_names;
	model->config = (enum gen_config)model->family->config;
	model->prefix = model->family->prefixes[0];
	if (json_unpack((json_t *)stamp, "{s:I, s:I, s:s, s:s, s:b, s?b, s?s, s?s, s?s, s?o}", "seed", &seed,
			"shard_bytes", &shard_bytes, "dense_format", &dense, "popularity", &popularity, "unaligned",
			&model->unaligned, "scattered", &model->scattered, "shard_names", &names, "config", &config,
			"prefix", &prefix, "matrix_formats", &matrix_formats) < 0)
		return -EBADMSG;
	if (shard_bytes < 1 || gen_format_parse(dense, &model->dense_format) < 0 ||
	    gen_popularity_parse(popularity, &model->popularity) < 0 ||
	    (names != NULL && gen_shard_names_parse(names, &model->shard_names) < 0) ||
	    (config != NULL && gen_config_parse(config, &model->config) < 0))
		return -EBADMSG;
	if (prefix != NULL)
		model->prefix = gen_family_prefix(model->family, prefix);
	model->seed = (uint64_t)seed;
	model->shard_bytes = (uint64_t)shard_bytes;
	return model->prefix == NULL ? -EBADMSG : read_matrix_formats(matrix_formats, model);
}

static int from_json(const json_t *stamp, struct gen_model *model)
{
	char message[GEN_MESSAGE_BYTES];
	const char *family;
	json_t *formats;
	json_int_t version;
	uint32_t i;
	int result = 0;

	if (json_unpack((json_t *)stamp, "{s:I, s:s, s:o}", "payload_version", &version, "family", &family,
			"expert_formats", &formats) < 0 ||
	    version != PAYLOAD_VERSION)
		return -EBADMSG;
	model->family = gen_family_find(family);
	if (model->family == NULL)
		return -EBADMSG;
	for (i = 0; i < GEN_NUMBERS && result == 0; i++)
		result = read_number(stamp, &gen_numbers[i], model);
	if (result < 0 || gen_model_rows(model) > GEN_LAYERS_MAX || read_choices(stamp, model) < 0 ||
	    read_formats(formats, model) < 0 || gen_model_check(model, message) < 0)
		return -EBADMSG;
	return 0;
}

static int parse(const char *text, size_t bytes, struct gen_model *ret_model)
{
	struct gen_model model = {0};
	json_t *stamp = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
	int result;

	result = stamp == NULL ? -EBADMSG : from_json(stamp, &model);
	json_decref(stamp);
	if (result == 0)
		*ret_model = model;
	return result;
}

int gen_stamp_read(int directory_fd, struct gen_model *ret_model)
{
	uint64_t bytes = 0;
	int64_t got;
	char *text;
	int fd, result;

	fd = cnre_file_open(directory_fd, GEN_STAMP_NAME, &bytes);
	if (fd < 0)
		return fd;
	text = bytes > STAMP_BYTES_MAX ? NULL : malloc(bytes + 1);
	if (text == NULL) {
		(void)close(fd);
		return bytes > STAMP_BYTES_MAX ? -EBADMSG : -ENOMEM;
	}
	got = cnre_file_read(fd, text, bytes, 0);
	result = got < 0 ? (int)got : parse(text, (size_t)got, ret_model);
	free(text);
	(void)close(fd);
	return result;
}
