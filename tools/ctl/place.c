/* SPDX-License-Identifier: Apache-2.0 */
/* See place.h. */
#include "tools/ctl/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int place_takes_option(int argc, char *const *argv, const char *name)
{
	(void)argc;
	(void)argv;
	return strcmp(name, "--model") == 0;
}

/* A number without sign, below 2^31. */
static int parse_number(const char *text, json_int_t *ret_number)
{
	char *end;
	unsigned long value;

	if (*text < '0' || *text > '9' || strlen(text) > 10)
		return -EINVAL;
	value = strtoul(text, &end, 10);
	if (*end != '\0' || value > INT32_MAX)
		return -EINVAL;
	*ret_number = (json_int_t)value;
	return 0;
}

static int add_words(json_t *request, int argc, char *const *argv, const char *const *keys, int key_count,
		     char message[CTL_MESSAGE_BYTES])
{
	int count = 0;

	for (int i = 1; i < argc; i++) {
		json_int_t number;

		if (strcmp(argv[i], "--model") == 0 && i + 1 < argc) {
			if (json_object_set_new(request, "model", json_string(argv[++i])) == 0)
				continue;
			(void)snprintf(message, CTL_MESSAGE_BYTES, "--model %.64s: not UTF-8", argv[i]);
			return -EINVAL;
		}
		if (count == key_count) {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: one word too many", argv[i]);
			return -EINVAL;
		}
		if (parse_number(argv[i], &number) < 0) {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: not the number of %s %s", argv[i],
				       count == 0 ? "a" : "an", keys[count]);
			return -EINVAL;
		}
		(void)json_object_set_new(request, keys[count++], json_integer(number));
	}
	return count;
}

int place_request(int argc, char *const *argv, const char *const *keys, int key_count, json_t **ret_request,
		  char message[CTL_MESSAGE_BYTES])
{
	json_t *request = json_pack("{s:s}", "verb", argv[0]);
	int r = request == NULL ? -ENOMEM : add_words(request, argc, argv, keys, key_count, message);

	if (r < 0)
		json_decref(request);
	else
		*ret_request = request;
	return r;
}
