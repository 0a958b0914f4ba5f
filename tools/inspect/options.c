/* SPDX-License-Identifier: Apache-2.0 */
/* See options.h. */
#include "tools/inspect/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum { OPT_MANAGER = 256, OPT_SOCKET, OPT_LIBRARY, OPT_SECONDS, OPT_INTERVAL, OPT_THRESHOLD, OPT_TOP, OPT_JSON, OPT_HELP, OPT_VERSION };

static const struct option table[] = {
	{"manager", required_argument, NULL, OPT_MANAGER},
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"library", required_argument, NULL, OPT_LIBRARY},
	{"seconds", required_argument, NULL, OPT_SECONDS},
	{"interval", required_argument, NULL, OPT_INTERVAL},
	{"threshold", required_argument, NULL, OPT_THRESHOLD},
	{"top", required_argument, NULL, OPT_TOP},
	{"json", no_argument, NULL, OPT_JSON},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static int refuse(char *message, const char *what, const char *text)
{
	(void)snprintf(message, OPTIONS_MESSAGE_BYTES, "%s \"%.100s\"; see --help", what, text);
	return -EINVAL;
}

static int parse_seconds(const char *text, double least, double *ret_s)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value >= least && value <= OPTIONS_SECONDS_MAX))
		return -EINVAL;
	*ret_s = value;
	return 0;
}

static int parse_number(const char *text, uint32_t most, uint32_t *ret_number)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value == 0 || value > most)
		return -EINVAL;
	*ret_number = (uint32_t)value;
	return 0;
}

static int set_option(struct options *options, int option, const char *text, char *message)
{
	switch (option) {
	case OPT_MANAGER:
		return parse_number(text, INT32_MAX, &options->manager) == 0 ? 0 : refuse(message, "not a process:", text);
	case OPT_SOCKET:
		options->socket = text;
		return 0;
	case OPT_LIBRARY:
		options->library = text;
		return 0;
	case OPT_SECONDS:
		return parse_seconds(text, 0.1, &options->seconds) == 0 ? 0 : refuse(message, "not seconds from 0.1 to 86400:", text);
	case OPT_INTERVAL:
		return parse_seconds(text, 0.2, &options->interval) == 0 ? 0 : refuse(message, "not seconds from 0.2 to 86400:", text);
	case OPT_THRESHOLD:
		return parse_seconds(text, 0, &options->threshold) == 0 ? 0 : refuse(message, "not seconds from 0 to 86400:", text);
	case OPT_TOP:
		return parse_number(text, OPTIONS_TOP_MAX, &options->top) == 0 ? 0 : refuse(message, "not a number from 1 to 100000:", text);
	case OPT_JSON:
		options->json = 1;
		return 0;
	case OPT_HELP:
		options->help = 1;
		return 0;
	default:
		options->version = 1;
		return 0;
	}
}

/* Options may stand before and after the verb. */
int inspect_options_parse(int argc, char **argv, struct options *ret_options, char message[OPTIONS_MESSAGE_BYTES])
{
	struct options options = {.threshold = 1, .top = 20};
	int option;

	opterr = 0;
	optind = 0; /* glibc: start anew, for tests that parse more than once */
	while ((option = getopt_long(argc, argv, "-:", table, NULL)) != -1) {
		if (option == ':' || option == '?')
			return refuse(message, option == ':' ? "a value is needed for" : "unknown option", argv[optind - 1]);
		if (option == 1 && options.verb != NULL)
			return refuse(message, "one verb is taken, so not", optarg);
		if (option == 1)
			options.verb = optarg;
		else if (set_option(&options, option, optarg, message) < 0)
			return -EINVAL;
	}
	if (optind < argc)
		return refuse(message, "one verb is taken, so not", argv[optind]);
	if (options.manager != 0 && options.socket != NULL)
		return refuse(message, "either --manager or --socket is given, so not", options.socket);
	*ret_options = options;
	return 0;
}
