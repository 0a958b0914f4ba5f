/* SPDX-License-Identifier: Apache-2.0 */
/* See options.h. */
#include "tools/top/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum { OPT_SOCKET = 256, OPT_MODEL, OPT_INTERVAL, OPT_RECORD, OPT_PLAY, OPT_ONCE, OPT_SIZE, OPT_NO_COLOR, OPT_HELP, OPT_VERSION };

static const struct option table[] = {
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"model", required_argument, NULL, OPT_MODEL},
	{"interval", required_argument, NULL, OPT_INTERVAL},
	{"record", required_argument, NULL, OPT_RECORD},
	{"play", required_argument, NULL, OPT_PLAY},
	{"once", no_argument, NULL, OPT_ONCE},
	{"size", required_argument, NULL, OPT_SIZE},
	{"no-color", no_argument, NULL, OPT_NO_COLOR},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

const char *top_options_help(void)
{
	return "usage: cnre-top [option...]\n"
	       "What a running cnre-managerd holds and does, live. Press h for its keys.\n"
	       "\n"
	       "  --socket PATH      the manager to watch; default as for cnrectl\n"
	       "  --model NAME       whose experts are shown; default the first, m shows the next\n"
	       "  --interval SECONDS between two samples; default 1\n"
	       "  --record FILE      writes every sample there, too\n"
	       "  --play FILE        shows what was recorded instead of a manager\n"
	       "  --once             prints one screen and ends\n"
	       "  --size COLUMNSxROWS  of that screen; default 80x24\n"
	       "  --no-color         as for a terminal without colours\n"
	       "  --help, --version\n"
	       "\nExit status: 0 done, 1 failed, 2 wrong usage. See cnre-top(1).\n";
}

static int refuse(char *message, const char *what, const char *text)
{
	(void)snprintf(message, TOP_MESSAGE_BYTES, "%s \"%.100s\"; see --help", what, text);
	return -EINVAL;
}

static int parse_interval(const char *text, double *ret_s)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value >= TOP_INTERVAL_MIN_S && value <= TOP_INTERVAL_MAX_S))
		return -EINVAL;
	*ret_s = value;
	return 0;
}

static int parse_size(const char *text, struct top_options *options)
{
	int columns, rows;
	char rest;

	if (sscanf(text, "%4dx%4d%c", &columns, &rows, &rest) != 2 || columns < TOP_COLUMNS_MIN || columns > TOP_COLUMNS_MAX ||
	    rows < TOP_ROWS_MIN || rows > TOP_ROWS_MAX)
		return -EINVAL;
	options->columns = columns;
	options->rows = rows;
	return 0;
}

static int set_option(struct top_options *options, int option, const char *text, char *message)
{
	switch (option) {
	case OPT_SOCKET:
		options->socket = text;
		return 0;
	case OPT_MODEL:
		options->model = text;
		return 0;
	case OPT_INTERVAL:
		return parse_interval(text, &options->interval_s) == 0 ? 0 : refuse(message, "not seconds from 0.2 to 3600:", text);
	case OPT_RECORD:
		options->record = text;
		return 0;
	case OPT_PLAY:
		options->play = text;
		return 0;
	case OPT_ONCE:
		options->once = 1;
		return 0;
	case OPT_SIZE:
		return parse_size(text, options) == 0 ? 0 : refuse(message, "not a size from 40x10 to 400x200:", text);
	case OPT_NO_COLOR:
		options->no_color = 1;
		return 0;
	case OPT_HELP:
		options->help = 1;
		return 0;
	default:
		options->version = 1;
		return 0;
	}
}

int top_options_parse(int argc, char **argv, struct top_options *ret_options, char message[TOP_MESSAGE_BYTES])
{
	struct top_options options = {.interval_s = TOP_INTERVAL_S, .columns = 80, .rows = 24};
	int option;

	opterr = 0;
	optind = 0; /* glibc: start anew, for tests that parse more than once */
	while ((option = getopt_long(argc, argv, "+:", table, NULL)) != -1) {
		if (option == ':' || option == '?')
			return refuse(message, option == ':' ? "a value is needed for" : "unknown option", argv[optind - 1]);
		if (set_option(&options, option, optarg, message) < 0)
			return -EINVAL;
	}
	if (optind < argc)
		return refuse(message, "no words are taken, so not", argv[optind]);
	if (options.play != NULL && (options.record != NULL || options.socket != NULL))
		return refuse(message, "beside --play there is neither --record nor --socket:", options.play);
	*ret_options = options;
	return 0;
}
