/* SPDX-License-Identifier: Apache-2.0 */
/* Command line; see options.h. Not getopt_long: its optional argument would not take "--watch 2". */
#include "tools/ctl/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_NAME_BYTES 64u /* no verb's own option has a longer name */

static int parse_interval(const char *text, double *ret_interval_s)
{
	char *end;
	double value;

	if (*text != '.' && (*text < '0' || *text > '9'))
		return -EINVAL;
	value = strtod(text, &end);
	if (*end != '\0' || !(value >= OPTIONS_INTERVAL_MIN_S && value <= OPTIONS_INTERVAL_MAX_S))
		return -EINVAL;
	*ret_interval_s = value;
	return 0;
}

/* The value of "--name=value" or NULL; 1 if the argument is that option at all. */
static int is_option(const char *argument, const char *name, const char **ret_value)
{
	size_t length = strlen(name);

	if (strncmp(argument, name, length) != 0 || (argument[length] != '\0' && argument[length] != '='))
		return 0;
	*ret_value = argument[length] == '=' ? argument + length + 1 : NULL;
	return 1;
}

static int starts_number(const char *text)
{
	return text != NULL && (*text == '.' || (*text >= '0' && *text <= '9'));
}

/* 1 if the verb that was named takes this option, with or without its value behind a '='. */
static int is_verbs_own(const struct options *options, const char *argument)
{
	const struct verb *verb = options->word_count > 0 ? verb_find(options->word[0]) : NULL;
	char name[OPTIONS_NAME_BYTES];
	size_t length = strcspn(argument, "=");

	if (verb == NULL || verb->takes_option == NULL || length >= sizeof name)
		return 0;
	memcpy(name, argument, length);
	name[length] = '\0';
	return verb->takes_option(options->word_count, options->word, name);
}

/* Takes argv[*index], which is the verb's own, and its value; argv[argc] is NULL. */
static int take_verbs_own(char **argv, int *index, struct options *options, char message[CTL_MESSAGE_BYTES])
{
	char *name = argv[*index], *value = strchr(name, '=');

	if (value != NULL)
		*value++ = '\0';
	else if (argv[*index + 1] != NULL)
		value = argv[++*index];
	if (value == NULL) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: needs a value", name);
		return -EINVAL;
	}
	if (options->word_count + 2 > OPTIONS_WORDS_MAX) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: one option too many", name);
		return -EINVAL;
	}
	options->word[options->word_count++] = name;
	options->word[options->word_count++] = value;
	return 0;
}

/* Takes argv[*index] and what belongs to it; argv[argc] is NULL. */
static int take_option(char **argv, int *index, struct options *options, char message[CTL_MESSAGE_BYTES])
{
	const char *argument = argv[*index];
	const char *value;

	if (is_option(argument, "--json", &value) && value == NULL) {
		options->as_json = 1;
	} else if (is_option(argument, "--help", &value) && value == NULL) {
		options->wants_help = 1;
	} else if (is_option(argument, "--version", &value) && value == NULL) {
		options->wants_version = 1;
	} else if (is_option(argument, "--socket", &value)) {
		if (value == NULL && argv[*index + 1] != NULL)
			value = argv[++*index];
		if (value == NULL || *value == '\0') {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "--socket: needs the path of a manager's socket");
			return -EINVAL;
		}
		options->socket = value;
	} else if (is_option(argument, "--watch", &value)) {
		if (value == NULL && starts_number(argv[*index + 1]))
			value = argv[++*index];
		options->watches = 1;
		if (value != NULL && parse_interval(value, &options->interval_s) < 0) {
			(void)snprintf(message, CTL_MESSAGE_BYTES,
				       "--watch %.32s: not an interval: seconds from 0.05 to 86400", value);
			return -EINVAL;
		}
	} else {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: no such option: see --help", argument);
		return -EINVAL;
	}
	return 0;
}

int options_parse(int argc, char **argv, struct options *ret_options, char message[CTL_MESSAGE_BYTES])
{
	struct options options = {.interval_s = OPTIONS_INTERVAL_S};
	int only_words = 0;

	for (int i = 1; i < argc; i++) {
		if (!only_words && strcmp(argv[i], "--") == 0) {
			only_words = 1;
		} else if (!only_words && argv[i][0] == '-' && is_verbs_own(&options, argv[i])) {
			if (take_verbs_own(argv, &i, &options, message) < 0)
				return -EINVAL;
		} else if (!only_words && argv[i][0] == '-' && argv[i][1] != '\0') {
			if (take_option(argv, &i, &options, message) < 0)
				return -EINVAL;
		} else if (options.plain_count == OPTIONS_PLAIN_MAX || options.word_count == OPTIONS_WORDS_MAX) {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: one word too many", argv[i]);
			return -EINVAL;
		} else {
			options.word[options.word_count++] = argv[i];
			options.plain_count++;
		}
	}
	*ret_options = options;
	return 0;
}
