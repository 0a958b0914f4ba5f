/* SPDX-License-Identifier: Apache-2.0 */
/* See options.h. Prints nothing: getopt's own messages are turned off. */
#include "engine/options.h"

#include "engine/matrix.h"
#include "engine/pool.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: cnre-olmoe --model DIR --tokens \"95 28 14\" --steps N [option...]\n"
	"       cnre-olmoe --model DIR --serve [--listen PATH] [option...]\n"
	"Runs an OLMoE checkpoint on the CPU, greedily, and says how its experts came into memory.\n"
	"\n"
	"  --model DIR           checkpoint directory: config.json and *.safetensors\n"
	"  --tokens IDS|FILE     prompt: token ids between blanks or commas, or a file of them\n"
	"  --steps N             tokens to generate\n"
	"  --cache MODE          where experts are kept (default cnre):\n"
	"                          cnre              the shared manager, started if none runs\n"
	"                          mmap              the page cache, through mapped shards\n"
	"                          private:SIZE      an own LRU of SIZE bytes over all layers (8G, 512M)\n"
	"                          private:Nslots    an own LRU of N experts in each layer (8slots)\n"
	"  --view NAME           cnre: experts as the manager prepares them for this engine (rows16)\n"
	"  --kv cnre|none        share computed prefixes through the manager, or not (default none)\n"
	"  --kv-namespace NAME   with whom (default: this user's own processes)\n"
	"  --salt TEXT           share only with equal salts\n"
	"  --serve               answer request lines of standard input: generate ID STEPS TOKEN...,\n"
	"                          append ID STEPS TOKEN..., end ID, identity, quit\n"
	"  --listen PATH         serve: a Unix socket instead\n"
	"  --conversations N     serve: conversations that keep their rows (default 4)\n"
	"  --positions N         serve: tokens of a conversation (default 4096)\n"
	"  --socket PATH         cnre: the manager's socket\n"
	"  --name NAME           cnre: what cnrectl shows for this process\n"
	"  --reserve SIZE        cnre: most bytes leased at once\n"
	"  --threads N           computing threads (default: the CPUs this process may use)\n"
	"  --kernel NAME         avx512, avx2 or plain; all give the same tokens (default: the best)\n"
	"  --route-trace FILE    write every routing decision: call row layer expert:gate...\n"
	"  --progress            write each token to standard error as it comes\n"
	"  --json                print the result as one JSON object\n"
	"  --help, --version\n"
	"\n"
	"example: cnre-olmoe --model olmoe --tokens \"95 28 14\" --steps 24 --cache private:8slots --json\n";

enum {
	OPT_MODEL = 256,
	OPT_TOKENS,
	OPT_STEPS,
	OPT_CACHE,
	OPT_VIEW,
	OPT_KV,
	OPT_KV_NAMESPACE,
	OPT_SALT,
	OPT_SERVE,
	OPT_LISTEN,
	OPT_CONVERSATIONS,
	OPT_POSITIONS,
	OPT_SOCKET,
	OPT_NAME,
	OPT_RESERVE,
	OPT_THREADS,
	OPT_KERNEL,
	OPT_TRACE,
	OPT_PROGRESS,
	OPT_JSON,
	OPT_HELP,
	OPT_VERSION
};

static const struct option long_options[] = {
	{"model", required_argument, NULL, OPT_MODEL},
	{"tokens", required_argument, NULL, OPT_TOKENS},
	{"steps", required_argument, NULL, OPT_STEPS},
	{"cache", required_argument, NULL, OPT_CACHE},
	{"view", required_argument, NULL, OPT_VIEW},
	{"kv", required_argument, NULL, OPT_KV},
	{"kv-namespace", required_argument, NULL, OPT_KV_NAMESPACE},
	{"salt", required_argument, NULL, OPT_SALT},
	{"serve", no_argument, NULL, OPT_SERVE},
	{"listen", required_argument, NULL, OPT_LISTEN},
	{"conversations", required_argument, NULL, OPT_CONVERSATIONS},
	{"positions", required_argument, NULL, OPT_POSITIONS},
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"name", required_argument, NULL, OPT_NAME},
	{"reserve", required_argument, NULL, OPT_RESERVE},
	{"threads", required_argument, NULL, OPT_THREADS},
	{"kernel", required_argument, NULL, OPT_KERNEL},
	{"route-trace", required_argument, NULL, OPT_TRACE},
	{"progress", no_argument, NULL, OPT_PROGRESS},
	{"json", no_argument, NULL, OPT_JSON},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

const char *options_help(void)
{
	return help;
}

/* Decimal digits from the start of text, 1 .. max; *ret_rest is what follows them. */
static int parse_number(const char *text, uint64_t max, uint64_t *ret_number, const char **ret_rest)
{
	uint64_t number = 0;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	for (; *text >= '0' && *text <= '9'; text++) {
		if (__builtin_mul_overflow(number, 10u, &number) ||
		    __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
			return -EINVAL;
	}
	if (number == 0 || number > max)
		return -EINVAL;
	*ret_number = number;
	*ret_rest = text;
	return 0;
}

static int parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char suffixes[] = "KMGT";
	const char *rest, *suffix;
	uint64_t number;
	unsigned int shift;

	if (parse_number(text, UINT64_MAX, &number, &rest) < 0)
		return -EINVAL;
	if (*rest != '\0') {
		suffix = strchr(suffixes, *rest >= 'a' && *rest <= 'z' ? *rest - 'a' + 'A' : *rest);
		if (!suffix || (rest[1] != '\0' && strcmp(rest + 1, "iB") != 0 && strcmp(rest + 1, "B") != 0))
			return -EINVAL;
		shift = 10 * (unsigned int)(suffix - suffixes + 1);
		if (number > UINT64_MAX >> shift)
			return -EINVAL;
		number <<= shift;
	}
	*ret_bytes = number;
	return 0;
}

static int parse_cache(struct options *options, const char *text)
{
	const char *rest;
	uint64_t slots;

	options->cache = text;
	options->private_size = (struct private_size){0};
	if (strcmp(text, "cnre") == 0 || strcmp(text, "mmap") == 0) {
		options->mode = text[0] == 'c' ? CACHE_CNRE : CACHE_MMAP;
		return 0;
	}
	if (strncmp(text, "private:", 8) != 0)
		return -EINVAL;
	options->mode = CACHE_PRIVATE;
	if (parse_number(text + 8, UINT32_MAX, &slots, &rest) == 0 && strcmp(rest, "slots") == 0) {
		options->private_size.slots_per_layer = (uint32_t)slots;
		return 0;
	}
	return parse_size(text + 8, &options->private_size.bytes);
}

static int parse_count(const char *text, uint32_t max, uint32_t *ret_count)
{
	const char *rest;
	uint64_t number;

	if (parse_number(text, max, &number, &rest) < 0 || *rest != '\0')
		return -EINVAL;
	*ret_count = (uint32_t)number;
	return 0;
}

static void set_text(struct options *options, int option, const char *text)
{
	switch (option) {
	case OPT_MODEL:
		options->model = text;
		break;
	case OPT_TOKENS:
		options->tokens = text;
		break;
	case OPT_SOCKET:
		options->socket = text;
		break;
	case OPT_NAME:
		options->name = text;
		break;
	case OPT_KERNEL:
		options->kernel = text;
		break;
	case OPT_VIEW:
		options->view = text;
		break;
	case OPT_KV_NAMESPACE:
		options->kv_namespace = text;
		break;
	case OPT_SALT:
		options->salt = text;
		break;
	case OPT_LISTEN:
		options->listen = text;
		break;
	default:
		options->route_trace = text;
	}
}

static int parse_kv(struct options *options, const char *text)
{
	options->kv = strcmp(text, "cnre") == 0;
	return options->kv || strcmp(text, "none") == 0 ? 0 : -EINVAL;
}

static int set_option(struct options *options, int option, const char *text, char *message)
{
	switch (option) {
	case OPT_KV:
		if (parse_kv(options, text) < 0)
			return engine_fail(message, -EINVAL, "--kv takes cnre or none, not \"%.100s\"", text);
		break;
	case OPT_CONVERSATIONS:
		if (parse_count(text, OPTIONS_CONVERSATIONS_MAX, &options->conversations) < 0)
			return engine_fail(message, -EINVAL, "--conversations takes a number from 1 to %u",
					   OPTIONS_CONVERSATIONS_MAX);
		break;
	case OPT_POSITIONS:
		if (parse_count(text, OPTIONS_POSITIONS_MAX, &options->positions) < 0)
			return engine_fail(message, -EINVAL, "--positions takes a number from 1 to %u",
					   OPTIONS_POSITIONS_MAX);
		break;
	case OPT_SERVE:
		options->serve = true;
		break;
	case OPT_STEPS:
		if (parse_count(text, OPTIONS_STEPS_MAX, &options->steps) < 0)
			return engine_fail(message, -EINVAL, "--steps takes a number from 1 to %u", OPTIONS_STEPS_MAX);
		break;
	case OPT_THREADS:
		if (parse_count(text, POOL_THREADS_MAX, &options->threads) < 0)
			return engine_fail(message, -EINVAL, "--threads takes a number from 1 to %u", POOL_THREADS_MAX);
		break;
	case OPT_RESERVE:
		if (parse_size(text, &options->reserve_bytes) < 0)
			return engine_fail(message, -EINVAL, "--reserve takes a size such as 256M or 2G");
		break;
	case OPT_CACHE:
		if (parse_cache(options, text) < 0)
			return engine_fail(message, -EINVAL,
					   "--cache takes cnre, mmap, private:SIZE or private:Nslots, not \"%.100s\"",
					   text);
		break;
	case OPT_PROGRESS:
		options->progress = true;
		break;
	case OPT_JSON:
		options->json = true;
		break;
	case OPT_HELP:
		options->help = true;
		break;
	case OPT_VERSION:
		options->version = true;
		break;
	default:
		set_text(options, option, text);
	}
	return 0;
}

/* Options of one way to run that are given with the other would do nothing. */
static int check_way(const struct options *options, char *message)
{
	if (!options->serve && (options->listen || options->positions || options->conversations))
		return engine_fail(message, -EINVAL, "--listen, --conversations and --positions belong to --serve");
	if (options->serve && (options->tokens || options->steps || options->progress || options->json))
		return engine_fail(
			message, -EINVAL,
			"--serve takes its tokens from request lines: leave --tokens, --steps, --progress and "
			"--json out");
	if (options->view && options->mode != CACHE_CNRE)
		return engine_fail(message, -EINVAL, "--view belongs to --cache cnre: nobody else prepares experts");
	if (options->view && strcmp(options->view, MATRIX_ROWS16_VIEW) != 0)
		return engine_fail(message, -EINVAL, "--view takes " MATRIX_ROWS16_VIEW ", not \"%.100s\"", options->view);
	if (!options->kv && (options->kv_namespace || options->salt))
		return engine_fail(message, -EINVAL, "--kv-namespace and --salt belong to --kv cnre");
	return 0;
}

static int check(const struct options *options, int argc, char **argv, char *message)
{
	int error;

	if (options->help || options->version)
		return 0;
	if (optind < argc)
		return engine_fail(message, -EINVAL, "unexpected argument \"%.100s\"; see --help", argv[optind]);
	if (!options->model)
		return engine_fail(message, -EINVAL, "--model DIR is needed; see --help");
	error = check_way(options, message);
	if (error < 0 || options->serve)
		return error;
	if (!options->tokens)
		return engine_fail(message, -EINVAL, "--tokens \"IDS\" is needed; see --help");
	if (options->steps == 0)
		return engine_fail(message, -EINVAL, "--steps N is needed; see --help");
	return 0;
}

int options_parse(struct options *ret_options, int argc, char **argv, char message[ENGINE_MESSAGE_BYTES])
{
	struct options options = {.cache = "cnre", .mode = CACHE_CNRE};
	int option, error;

	opterr = 0;
	optind = 0; /* glibc: start anew, for tests that parse more than once */
	while ((option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
		if (option == ':')
			return engine_fail(message, -EINVAL, "%.100s needs a value; see --help", argv[optind - 1]);
		if (option == '?')
			return engine_fail(message, -EINVAL, "unknown option \"%.100s\"; see --help", argv[optind - 1]);
		error = set_option(&options, option, optarg, message);
		if (error < 0)
			return error;
	}
	error = check(&options, argc, argv, message);
	if (error == 0)
		*ret_options = options;
	return error;
}
