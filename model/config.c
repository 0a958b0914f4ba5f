/* SPDX-License-Identifier: Apache-2.0 */
/* config.json through jansson, which stays in this file; see config.h. */
#include "model/config.h"

#include "base/file.h"
#include "base/fingerprint.h"
#include "base/message.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct model_config {
	const char *name;
	json_t *top, *nested; /* nested: text_config, borrowed, or NULL */
};

static int parse(struct model_config **ret_config, const char *name, const char *text, size_t bytes, char *message)
{
	struct model_config *config = calloc(1, sizeof *config);
	json_error_t error;

	if (config == NULL)
		return cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, -ENOMEM, "%s: out of memory", name);
	config->name = name;
	config->top = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
	if (config->top == NULL || !json_is_object(config->top)) {
		(void)cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, 0, "%s: line %d: %s", name,
				   config->top == NULL ? error.line : 1,
				   config->top == NULL ? error.text : "not an object");
		(void)model_config_close(config);
		return -EBADMSG;
	}
	config->nested = json_object_get(config->top, "text_config");
	*ret_config = config;
	return 0;
}

static int read_and_parse(struct model_config **ret_config, const char *name, int fd, uint64_t bytes, char *message)
{
	char *text;
	int64_t got;
	int result;

	if (bytes > CNRE_CONFIG_BYTES_MAX)
		return cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, -E2BIG,
				    "%s: %llu bytes, more than the bound of %u", name, (unsigned long long)bytes,
				    CNRE_CONFIG_BYTES_MAX);
	text = malloc(bytes + 1);
	if (text == NULL)
		return cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, -ENOMEM, "%s: out of memory", name);
	got = cnre_file_read(fd, text, bytes, 0);
	if (got < 0)
		result = cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, (int)got, "%s: %s", name,
				      strerror((int)-got));
	else
		result = parse(ret_config, name, text, (size_t)got, message);
	free(text);
	return result;
}

int model_config_open(struct model_config **ret_config, int directory_fd, char message[MODEL_CONFIG_MESSAGE_BYTES])
{
	return model_config_open_file(ret_config, directory_fd, "config.json", message);
}

int model_config_open_file(struct model_config **ret_config, int directory_fd, const char *name,
			   char message[MODEL_CONFIG_MESSAGE_BYTES])
{
	uint64_t bytes = 0;
	int fd, result;

	fd = cnre_file_open(directory_fd, name, &bytes);
	if (fd < 0)
		return cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, fd,
				    "%s: %s: name the directory of a checkpoint", name, strerror(-fd));
	result = read_and_parse(ret_config, name, fd, bytes, message);
	(void)close(fd);
	return result;
}

struct model_config *model_config_close(struct model_config *config)
{
	if (config == NULL)
		return NULL;
	json_decref(config->top);
	free(config);
	return NULL;
}

/* A null means what its absence does. */
static json_t *value_at(const json_t *object, const char *key)
{
	json_t *value = json_object_get(object, key);

	return json_is_null(value) ? NULL : value;
}

static json_t *look_up(const struct model_config *config, const char *key)
{
	json_t *value = value_at(config->nested, key);

	return value != NULL ? value : value_at(config->top, key);
}

const char *model_config_text(const struct model_config *config, const char *key)
{
	json_t *value = value_at(config->top, key);

	return json_string_value(value != NULL ? value : value_at(config->nested, key));
}

int model_config_has(const struct model_config *config, const char *key)
{
	return look_up(config, key) != NULL;
}

int model_config_count(const struct model_config *config, const char *key, uint32_t least, uint32_t max,
		       uint32_t *ret_value, char message[MODEL_CONFIG_MESSAGE_BYTES])
{
	json_t *value = look_up(config, key);

	if (!json_is_integer(value))
		return cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, -EBADMSG, "%s: %s is %s", config->name, key,
				    value == NULL ? "missing" : "not a whole number");
	if (json_integer_value(value) < (json_int_t)least || json_integer_value(value) > (json_int_t)max)
		return cnre_message(message, MODEL_CONFIG_MESSAGE_BYTES, -EBADMSG, "%s: %s is %lld, not from %u to %u",
				    config->name, key, (long long)json_integer_value(value), least, max);
	*ret_value = (uint32_t)json_integer_value(value);
	return 0;
}
