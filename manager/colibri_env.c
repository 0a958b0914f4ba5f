/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of Colibri's engines; see colibri_env.h. */
#include "manager/colibri_env.h"

#include "base/check.h"
#include "base/message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEM_BYTES_MAX 4096u
#define SEPARATORS ";,"           /* of directories */
#define WEIGHT_SEPARATORS ", "

/* Those of one setting stand together, the one that counts first before the others. */
static const struct variable {
	const char *name, *setting;
} variables[] = {
	{"COLI_MODEL_MIRROR", "mirror"}, {"SNAP_MIRROR", "mirror"}, {"COLI_MODEL_DIRS", "dir"},
	{"K3_DIRS", "dir"},              {"MIMO_DIRS", "dir"},      {"COLI_DISK_WEIGHTS", "drive-weights"},
};

/* An empty variable is an unset one. */
static const char *value_of(const struct variable *variable)
{
	const char *value = getenv(variable->name);

	return value == NULL || value[0] == '\0' ? NULL : value;
}

/* The one of the same setting that is set and stands before; NULL: none. */
static const struct variable *before(const struct variable *variable)
{
	for (const struct variable *other = variables; other < variable; other++)
		if (strcmp(other->setting, variable->setting) == 0 && value_of(other) != NULL)
			return other;
	return NULL;
}

/* The next item of a list; 1, 0 at its end, or -E2BIG. Empty ones are passed over. */
static int next_item(const char **value, char item[ITEM_BYTES_MAX])
{
	size_t length;

	*value += strspn(*value, SEPARATORS);
	length = strcspn(*value, SEPARATORS);
	if (length == 0)
		return 0;
	if (length >= ITEM_BYTES_MAX)
		return -E2BIG;
	memcpy(item, *value, length);
	item[length] = '\0';
	*value += length;
	return 1;
}

static int read_list(struct settings *settings, const struct variable *variable, const char *value, char *message,
		     size_t message_bytes)
{
	char item[ITEM_BYTES_MAX];
	uint32_t items = 0;
	int r;

	while ((r = next_item(&value, item)) > 0) {
		if (items++ == COLIBRI_ENV_ITEMS_MAX)
			return cnre_message(message, message_bytes, -EINVAL, "%s: names more than %u: give the others with --%s",
					    variable->name, COLIBRI_ENV_ITEMS_MAX, variable->setting);
		r = settings_take_variable(settings, variable->setting, variable->name, item, message, message_bytes);
		if (r < 0)
			return r;
	}
	return r < 0 ? cnre_message(message, message_bytes, -EINVAL, "%s: the value is too long", variable->name) : 0;
}

/* Weights stand as `9,1` there and as `9:1` here. What is no weight is for the setting to refuse. */
static int read_weights(struct settings *settings, const struct variable *variable, const char *value, char *message,
			size_t message_bytes)
{
	char text[ITEM_BYTES_MAX];
	size_t used = 0;

	if (strlen(value) >= sizeof text)
		return cnre_message(message, message_bytes, -EINVAL, "%s: the value is too long", variable->name);
	for (value += strspn(value, WEIGHT_SEPARATORS); *value != '\0'; value += strspn(value, WEIGHT_SEPARATORS)) {
		size_t length = strcspn(value, WEIGHT_SEPARATORS);

		if (used > 0)
			text[used++] = ':';
		memcpy(text + used, value, length);
		used += length;
		value += length;
	}
	text[used] = '\0';
	return used == 0 ? 0 : settings_take_variable(settings, variable->setting, variable->name, text, message, message_bytes);
}

int colibri_env_read(struct settings *settings, char *message, size_t message_bytes)
{
	for (size_t i = 0; i < CNRE_COUNT_OF(variables); i++) {
		const struct variable *variable = &variables[i];
		const char *value = value_of(variable);
		int r;

		if (value == NULL || before(variable) != NULL)
			continue;
		r = settings_is_list(variable->setting)
			    ? read_list(settings, variable, value, message, message_bytes)
			    : read_weights(settings, variable, value, message, message_bytes);
		if (r < 0)
			return r;
	}
	return 0;
}

static void describe(const struct settings *settings, const struct variable *variable, struct colibri_env_line *ret_line)
{
	const struct settings_origin *origin = settings_origin_of(settings, variable->setting);
	struct colibri_env_line line = {.name = variable->name};

	line.is_used = origin->source == SETTINGS_COLIBRI && strcmp(origin->variable, variable->name) == 0;
	if (line.is_used)
		(void)snprintf(line.what, sizeof line.what, "is --%s", variable->setting);
	else if (!settings->colibri_env)
		(void)snprintf(line.what, sizeof line.what, "ignored: with --colibri-env it would be --%s", variable->setting);
	else if (before(variable) != NULL)
		(void)snprintf(line.what, sizeof line.what, "ignored: %s comes first", before(variable)->name);
	else if (origin->source == SETTINGS_DEFAULT)
		(void)snprintf(line.what, sizeof line.what, "ignored: it names nothing");
	else
		(void)snprintf(line.what, sizeof line.what, "ignored: --%s comes from the %s", variable->setting,
			       settings_source_name(settings, variable->setting));
	*ret_line = line;
}

int colibri_env_describe(const struct settings *settings, uint32_t index, struct colibri_env_line *ret_line)
{
	for (size_t i = 0; i < CNRE_COUNT_OF(variables); i++) {
		if (value_of(&variables[i]) == NULL || index-- > 0)
			continue;
		describe(settings, &variables[i], ret_line);
		return 1;
	}
	return 0;
}
