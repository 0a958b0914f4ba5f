/* SPDX-License-Identifier: Apache-2.0 */
/* The stamp of a generated checkpoint; see stamp.h. */
#include "tools/gen/stamp.h"

#include "base/file.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAMP_BYTES_MAX (1u << 20)
#define PAYLOAD_VERSION 1 /* goes up whenever the same model would get other bytes */

static json_t *formats_to_json(const struct gen_model *model)
{
	json_t *formats = json_array();
	uint32_t layer;

	for (layer = 0; layer < model->layers; layer++)
		(void)json_array_append_new(formats,
					    json_string(gen_format_name((enum gen_format)model->expert_format[layer])));
	return formats;
}

char *gen_stamp_make(const struct gen_model *model)
{
	json_t *stamp;
	char *text;

	stamp = json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:b, s:o}",
			  "payload_version", PAYLOAD_VERSION, "family", model->family, "layers",
			  (json_int_t)model->layers, "experts", (json_int_t)model->experts, "top_k",
			  (json_int_t)model->top_k, "hidden", (json_int_t)model->hidden, "intermediate",
			  (json_int_t)model->intermediate, "vocab", (json_int_t)model->vocab, "heads",
			  (json_int_t)model->heads, "seed", (json_int_t)model->seed, "shard_bytes",
			  (json_int_t)model->shard_bytes, "dense_format", gen_format_name(model->dense_format),
			  "popularity", gen_popularity_name(model->popularity), "unaligned", model->unaligned,
			  "expert_formats", formats_to_json(model));
	if (stamp == NULL)
		return NULL;
	text = json_dumps(stamp, JSON_INDENT(1) | JSON_ENSURE_ASCII);
	json_decref(stamp);
	return text;
}

static int read_formats(const json_t *formats, struct gen_model *model)
{
	enum gen_format format = GEN_INT8_ROW;
	const char *name;
	uint32_t layer;

	if (json_array_size(formats) != model->layers)
		return -EBADMSG;
	for (layer = 0; layer < model->layers; layer++) {
		name = json_string_value(json_array_get(formats, layer));
		if (name == NULL || gen_format_parse(name, &format) < 0)
			return -EBADMSG;
		model->expert_format[layer] = (uint8_t)format;
	}
	return 0;
}

/* Everything is input: the same ranges as on the command line. */
static int from_json(const json_t *stamp, struct gen_model *model)
{
	json_int_t version, layers, experts, top_k, hidden, intermediate, vocab, heads, seed, shard_bytes;
	const char *family, *dense, *popularity;
	char message[GEN_MESSAGE_BYTES];
	json_t *formats;

	if (json_unpack((json_t *)stamp, "{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:b, s:o}",
			"payload_version", &version, "family", &family, "layers", &layers, "experts", &experts, "top_k",
			&top_k, "hidden", &hidden, "intermediate", &intermediate, "vocab", &vocab, "heads", &heads,
			"seed", &seed, "shard_bytes", &shard_bytes, "dense_format", &dense, "popularity", &popularity,
			"unaligned", &model->unaligned, "expert_formats", &formats) < 0)
		return -EBADMSG;
	if (version != PAYLOAD_VERSION || strcmp(family, "olmoe") != 0 || layers < 1 || layers > GEN_LAYERS_MAX ||
	    experts < 1 || experts > GEN_EXPERTS_MAX || top_k < 1 || hidden < 1 || hidden > GEN_EXTENT_MAX ||
	    intermediate < 1 || intermediate > GEN_EXTENT_MAX || vocab < 1 || vocab > GEN_VOCAB_MAX || heads < 1 ||
	    heads > hidden || top_k > experts || shard_bytes < 1 || gen_format_parse(dense, &model->dense_format) < 0 ||
	    gen_popularity_parse(popularity, &model->popularity) < 0)
		return -EBADMSG;
	model->family = "olmoe";
	model->layers = (uint32_t)layers;
	model->experts = (uint32_t)experts;
	model->top_k = (uint32_t)top_k;
	model->hidden = (uint32_t)hidden;
	model->intermediate = (uint32_t)intermediate;
	model->vocab = (uint32_t)vocab;
	model->heads = (uint32_t)heads;
	model->seed = (uint64_t)seed;
	model->shard_bytes = (uint64_t)shard_bytes;
	if (read_formats(formats, model) < 0 || gen_model_check(model, message) < 0)
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
