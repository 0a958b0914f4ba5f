/* SPDX-License-Identifier: Apache-2.0 */
/* A family's numbers from config.json; see extents.h. */
#include "model/extents.h"

#include "base/message.h"

#include <errno.h>

/* The key of the list that counts: the first that is there, or the first that could be. NULL: the list is empty. */
static const char *choose_key(const struct model_config *config, const struct family_key keys[FAMILY_KEYS_MAX])
{
	const char *first = NULL;

	for (uint32_t i = 0; i < FAMILY_KEYS_MAX && keys[i].name != NULL; i++) {
		if (keys[i].if_given != NULL && !model_config_has(config, keys[i].if_given))
			continue;
		if (model_config_has(config, keys[i].name))
			return keys[i].name;
		if (first == NULL)
			first = keys[i].name;
	}
	return first;
}

static int read_count(const struct model_config *config, const struct family_key keys[FAMILY_KEYS_MAX], uint32_t max,
		      uint32_t *ret_value, const char **ret_key, char *message)
{
	const char *key = choose_key(config, keys);

	if (key == NULL)
		return cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, -EBADMSG,
				    "config.json: it has no key that this family's numbers could stand under");
	if (ret_key != NULL)
		*ret_key = key;
	return model_config_count(config, key, 1, max, ret_value, message);
}

/* What may be missing: then *value stays as it is. */
static int read_other(const struct model_config *config, const struct family_key keys[FAMILY_KEYS_MAX], uint32_t max,
		      uint32_t *value, char *message)
{
	const char *key = choose_key(config, keys);

	if (key == NULL || !model_config_has(config, key))
		return 0;
	return model_config_count(config, key, 1, max, value, message);
}

static int read_sizes(const struct model_config *config, const struct family *family, struct family_extents *extents,
		      char *message)
{
	int result;

	result = read_count(config, family->layers, MODEL_LAYERS_MAX - family->mtp_rows, &extents->layers,
			    &extents->layers_key, message);
	if (result == 0)
		result = read_count(config, family->experts, MODEL_EXPERTS_MAX, &extents->experts,
				    &extents->experts_key, message);
	if (result == 0)
		result = read_count(config, family->top_k, extents->experts, &extents->top_k, NULL, message);
	if (result == 0)
		result = read_count(config, family->hidden, MODEL_EXTENT_MAX, &extents->hidden, NULL, message);
	if (result == 0)
		result = read_count(config, family->intermediate, MODEL_EXTENT_MAX, &extents->intermediate, NULL,
				    message);
	return result;
}

static int read_rows_after(const struct model_config *config, const struct family *family,
			   struct family_extents *extents, char *message)
{
	int result;

	extents->mtp_experts = extents->experts;
	result = read_other(config, family->mtp_experts, MODEL_EXPERTS_MAX, &extents->mtp_experts, message);
	if (result < 0)
		return result;
	extents->mtp_top_k = extents->top_k < extents->mtp_experts ? extents->top_k : extents->mtp_experts;
	return read_other(config, family->mtp_top_k, extents->mtp_experts, &extents->mtp_top_k, message);
}

static int read_dense(const struct model_config *config, const struct family *family, struct family_extents *extents,
		      char *message)
{
	extents->dense_layers = family->every_layer_is_sparse ? 0 : UINT32_MAX;
	if (family->dense_key == NULL || !model_config_has(config, family->dense_key))
		return 0;
	return model_config_count(config, family->dense_key, 0, MODEL_LAYERS_MAX, &extents->dense_layers, message);
}

static int read_group(int directory_fd, const struct family *family, struct family_extents *extents, char *message)
{
	struct model_config *file = NULL;
	int result;

	if (family->group_file == NULL)
		return 0;
	result = model_config_open_file(&file, directory_fd, family->group_file, message);
	if (result == -ENOENT)
		return 0;
	if (result < 0)
		return result;
	if (model_config_has(file, family->group_key))
		result = model_config_count(file, family->group_key, 0, MODEL_GROUP_MAX, &extents->group, message);
	if (result == 0 && family->last_group_key != NULL && model_config_has(file, family->last_group_key))
		result = model_config_count(file, family->last_group_key, 0, MODEL_GROUP_MAX, &extents->last_group,
					    message);
	(void)model_config_close(file);
	return result;
}

int extents_read(const struct model_config *config, int directory_fd, const struct family *family,
		 struct family_extents *ret_extents, char message[MODEL_CONFIG_MESSAGE_BYTES])
{
	struct family_extents extents = {0};
	uint64_t objects;
	int result = read_sizes(config, family, &extents, message);

	if (result == 0)
		result = read_rows_after(config, family, &extents, message);
	if (result == 0)
		result = read_dense(config, family, &extents, message);
	if (result == 0)
		result = read_group(directory_fd, family, &extents, message);
	if (result < 0)
		return result;
	/* Tables have room for as many experts in every row as the fullest may have. */
	objects = (uint64_t)extents_rows(family, &extents) * extents_experts_max(&extents);
	if (objects > MODEL_OBJECTS_MAX)
		return cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, -E2BIG,
				    "config.json: %s %u times %s %u, more than %u", extents.layers_key, extents.layers,
				    extents.experts_key, extents.experts, MODEL_OBJECTS_MAX);
	*ret_extents = extents;
	return 0;
}
