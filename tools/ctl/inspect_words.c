/* SPDX-License-Identifier: Apache-2.0 */
/* Words of cnrectl inspect; see inspect_words.h. */
#include "tools/ctl/inspect_words.h"

#include <errno.h>
#include <string.h>

int inspect_words_take_option(int argc, char *const *argv, const char *name)
{
	(void)argc;
	(void)argv;
	return strcmp(name, "--family") == 0 || strcmp(name, "--dir") == 0;
}

static int refuse(char *message, const char *what, const char *why)
{
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: %s", what, why);
	return -EINVAL;
}

static int take_option(struct inspect_words *words, const char *name, const char *value, char *message)
{
	if (value[0] == '\0')
		return refuse(message, name, "needs a value");
	if (strcmp(name, "--dir") == 0) {
		if (words->further_count == INSPECT_FURTHER_MAX)
			return refuse(message, name, "given too often");
		words->further[words->further_count++] = value;
		return 0;
	}
	if (words->family_file != NULL)
		return refuse(message, name, "given twice");
	words->family_file = value;
	return 0;
}

int inspect_words_parse(int argc, char *const *argv, struct inspect_words *ret_words, char message[CTL_MESSAGE_BYTES])
{
	struct inspect_words words = {0};
	int r;

	for (int i = 1; i < argc; i++) {
		if (i + 1 < argc && inspect_words_take_option(argc, argv, argv[i])) {
			r = take_option(&words, argv[i], argv[i + 1], message);
			if (r < 0)
				return r;
			i++;
		} else if (words.directory != NULL) {
			return refuse(message, argv[i], "one directory at a time");
		} else {
			words.directory = argv[i];
		}
	}
	if (words.directory == NULL)
		return refuse(message, "no directory", "name that of a checkpoint");
	*ret_words = words;
	return 0;
}
