/* SPDX-License-Identifier: Apache-2.0 */
/* See options.h. */
#include "tools/route/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { OPT_MODEL = 256, OPT_SOCKET, OPT_KV_NAMESPACE, OPT_SALT, OPT_HELP, OPT_VERSION };

static const struct option table[] = {
	{"model", required_argument, NULL, OPT_MODEL},
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"kv-namespace", required_argument, NULL, OPT_KV_NAMESPACE},
	{"salt", required_argument, NULL, OPT_SALT},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

const char *route_options_help(void)
{
	return "usage: cnre-route --model DIR [option...] NAME=SOCKET...\n"
	       "Sends request lines of standard input to whichever engine has the longest prefix of their tokens.\n"
	       "\n"
	       "  --model DIR           the checkpoint that the engines run\n"
	       "  --socket PATH         the manager's socket\n"
	       "  --kv-namespace NAME   as the engines were given\n"
	       "  --salt TEXT           as the engines were given\n"
	       "  --help, --version\n"
	       "\n"
	       "An engine: cnre-olmoe --model DIR --kv cnre --name NAME --serve --listen SOCKET\n"
	       "example: echo 'generate a 8 95 28 14' | cnre-route --model olmoe left=/tmp/left right=/tmp/right\n";
}

static int refuse(char *message, const char *what, const char *text)
{
	(void)snprintf(message, ROUTE_MESSAGE_BYTES, "%s \"%.100s\"; see --help", what, text);
	return -EINVAL;
}

static int add_place(struct route_options *options, const char *text, char *message)
{
	const char *equals = strchr(text, '=');
	struct route_place *place = &options->place[options->place_count];

	if (!equals || equals == text || equals[1] == '\0' || equals - text >= ROUTE_NAME_BYTES)
		return refuse(message, "an engine is given as NAME=SOCKET, the name of at most 31 bytes, not as", text);
	if (options->place_count == ROUTE_ENGINES_MAX)
		return refuse(message, "more than 16 engines: leave out", text);
	for (uint32_t i = 0; i < options->place_count; i++)
		if (strncmp(options->place[i].name, text, (size_t)(equals - text) + 1) == 0 ||
		    (strlen(options->place[i].name) == (size_t)(equals - text) &&
		     memcmp(options->place[i].name, text, (size_t)(equals - text)) == 0))
			return refuse(message, "this name was given before:", text);
	(void)snprintf(place->name, sizeof place->name, "%.*s", (int)(equals - text), text);
	place->socket = equals + 1;
	options->place_count++;
	return 0;
}

static void set_option(struct route_options *options, int option, const char *text)
{
	switch (option) {
	case OPT_MODEL:
		options->model = text;
		break;
	case OPT_SOCKET:
		options->socket = text;
		break;
	case OPT_KV_NAMESPACE:
		options->kv_namespace = text;
		break;
	case OPT_SALT:
		options->salt = text;
		break;
	case OPT_HELP:
		options->help = 1;
		break;
	default:
		options->version = 1;
	}
}

int route_options_parse(struct route_options *ret_options, int argc, char **argv, char message[ROUTE_MESSAGE_BYTES])
{
	struct route_options options = {0};
	int option, error;

	opterr = 0;
	optind = 0; /* glibc: start anew, for tests that parse more than once */
	while ((option = getopt_long(argc, argv, ":", table, NULL)) != -1) {
		if (option == ':' || option == '?')
			return refuse(message, option == ':' ? "a value is needed for" : "unknown option",
				      argv[optind - 1]);
		set_option(&options, option, optarg);
	}
	for (int i = optind; i < argc; i++)
		if ((error = add_place(&options, argv[i], message)) < 0)
			return error;
	if (!options.help && !options.version && (!options.model || options.place_count == 0))
		return refuse(message, "needed:", "--model DIR NAME=SOCKET...");
	*ret_options = options;
	return 0;
}
