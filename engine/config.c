/* SPDX-License-Identifier: Apache-2.0 */
/* Reads config.json with jansson. A checkpoint comes from a stranger: each key is checked before it is used. */
#include "engine/config.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_FILE_BYTES_MAX (16 << 20)

struct integer_key {
	const char *name;
	size_t field_off;
	uint32_t max;
};

static const struct integer_key integer_keys[] = {
	{"hidden_size", offsetof(struct config, hidden), CONFIG_HIDDEN_MAX},
	{"num_hidden_layers", offsetof(struct config, layers), CONFIG_LAYERS_MAX},
	{"num_attention_heads", offsetof(struct config, heads), CONFIG_HEADS_MAX},
	{"num_key_value_heads", offsetof(struct config, kv_heads), CONFIG_HEADS_MAX},
	{"num_experts", offsetof(struct config, experts), CONFIG_EXPERTS_MAX},
	{"num_experts_per_tok", offsetof(struct config, top_k), CONFIG_TOP_K_MAX},
	{"intermediate_size", offsetof(struct config, intermediate), CONFIG_HIDDEN_MAX},
	{"vocab_size", offsetof(struct config, vocab), CONFIG_VOCAB_MAX},
};

static int read_integers(struct config *config, const json_t *root, char *message)
{
	for (size_t i = 0; i < sizeof integer_keys / sizeof integer_keys[0]; i++) {
		const struct integer_key *key = &integer_keys[i];
		const json_t *value = json_object_get(root, key->name);
		json_int_t number = json_integer_value(value);

		if (!json_is_integer(value) || number < 1 || number > (json_int_t)key->max)
			return engine_fail(message, -EBADMSG, "config.json: %s must be an integer from 1 to %u",
					   key->name, key->max);
		*(uint32_t *)((char *)config + key->field_off) = (uint32_t)number;
	}
	return 0;
}

/* An absent or null number keeps the default. */
static int read_real(const json_t *root, const char *name, float *number, char *message)
{
	const json_t *value = json_object_get(root, name);

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_number(value) || !(json_number_value(value) > 0) || !isfinite((float)json_number_value(value)))
		return engine_fail(message, -EBADMSG, "config.json: %s must be a positive number", name);
	*number = (float)json_number_value(value);
	return 0;
}

static int read_optional(struct config *config, const json_t *root, char *message)
{
	const json_t *positions = json_object_get(root, "max_position_embeddings");
	const json_t *head_dim = json_object_get(root, "head_dim");
	int error;

	config->rope_theta = 10000.0f;
	config->rms_norm_eps = 1e-5f;
	config->norm_top_k = json_is_true(json_object_get(root, "norm_topk_prob"));
	if ((error = read_real(root, "rope_theta", &config->rope_theta, message)) < 0 ||
	    (error = read_real(root, "rms_norm_eps", &config->rms_norm_eps, message)) < 0 ||
	    (error = read_real(root, "clip_qkv", &config->clip_qkv, message)) < 0)
		return error;
	if (json_is_integer(positions) && json_integer_value(positions) > 0 &&
	    json_integer_value(positions) <= (json_int_t)UINT32_MAX)
		config->positions_max = (uint32_t)json_integer_value(positions);
	config->head_dim = config->hidden / config->heads;
	if (!head_dim || json_is_null(head_dim))
		return 0;
	if (!json_is_integer(head_dim) || json_integer_value(head_dim) < 1 ||
	    json_integer_value(head_dim) > (json_int_t)CONFIG_HIDDEN_MAX / config->heads)
		return engine_fail(message, -EBADMSG, "config.json: head_dim does not fit num_attention_heads");
	config->head_dim = (uint32_t)json_integer_value(head_dim);
	return 0;
}

/* Refuses what the forward pass would silently compute wrongly. */
static int check_variant(const json_t *root, char *message)
{
	const json_t *activation = json_object_get(root, "hidden_act");
	const json_t *scaling = json_object_get(root, "rope_scaling");

	if (json_is_string(activation) && strcmp(json_string_value(activation), "silu") != 0)
		return engine_fail(message, -ENOTSUP,
				   "config.json: hidden_act is not silu, which is all this engine has");
	if (scaling && !json_is_null(scaling))
		return engine_fail(message, -ENOTSUP, "config.json: rope_scaling is not supported");
	if (json_is_true(json_object_get(root, "attention_bias")))
		return engine_fail(message, -ENOTSUP, "config.json: attention_bias is not supported");
	return 0;
}

static int check_relations(const struct config *config, char *message)
{
	if (config->head_dim == 0 || config->head_dim % 2 != 0)
		return engine_fail(message, -EBADMSG, "config.json: the head size must be even, for rotary positions");
	if (config->heads % config->kv_heads != 0)
		return engine_fail(message, -EBADMSG,
				   "config.json: num_attention_heads must be a multiple of num_key_value_heads");
	if (config->top_k > config->experts)
		return engine_fail(message, -EBADMSG, "config.json: num_experts_per_tok exceeds num_experts");
	return 0;
}

static int parse(struct config *config, const json_t *root, char *message)
{
	const json_t *type = json_object_get(root, "model_type");
	int error;

	if (!json_is_string(type) || strcmp(json_string_value(type), "olmoe") != 0)
		return engine_fail(message, -ENOTSUP,
				   "config.json: model_type is not \"olmoe\"");
	if ((error = read_integers(config, root, message)) < 0 || (error = read_optional(config, root, message)) < 0 ||
	    (error = check_variant(root, message)) < 0)
		return error;
	return check_relations(config, message);
}

/* Before jansson takes the whole of it into memory. */
static int check_file(const char *path, char *message)
{
	struct stat status;

	if (access(path, R_OK) < 0 || stat(path, &status) < 0) {
		int error = -errno;

		return engine_fail(message, error, "cannot read %.300s: %s; --model takes a checkpoint directory", path,
				   strerror(-error));
	}
	if (!S_ISREG(status.st_mode) || status.st_size > CONFIG_FILE_BYTES_MAX)
		return engine_fail(message, -EBADMSG, "%.300s: not a file of at most %d bytes; --model takes a checkpoint "
				   "directory", path, CONFIG_FILE_BYTES_MAX);
	return 0;
}

int config_load(struct config *ret_config, const char *directory, char message[ENGINE_MESSAGE_BYTES])
{
	struct config config = {0};
	char path[PATH_MAX], why[ENGINE_MESSAGE_BYTES];
	json_error_t reason;
	json_t *root;
	int error;

	if (snprintf(path, sizeof path, "%s/config.json", directory) >= (int)sizeof path)
		return engine_fail(message, -ENAMETOOLONG, "the model directory's name is too long");
	error = check_file(path, message);
	if (error < 0)
		return error;
	root = json_load_file(path, JSON_REJECT_DUPLICATES, &reason);
	if (!root)
		return engine_fail(message, -EBADMSG, "%.200s line %d: %.160s; copy it from the checkpoint's source "
				   "again", path, reason.line, reason.text);
	error = parse(&config, root, why);
	json_decref(root);
	if (error < 0)
		return engine_fail(message, error, "%.200s/%.200s; --model takes an unchanged OLMoE checkpoint",
				   directory, why);
	*ret_config = config;
	return 0;
}
