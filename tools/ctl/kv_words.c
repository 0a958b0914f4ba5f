/* SPDX-License-Identifier: Apache-2.0 */
/* Words and options of cnrectl kv; see kv_words.h. */
#include "tools/ctl/kv_words.h"

#include "base/check.h"
#include "kvstore/key.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEX_DIGITS (2 * KV_KEY_BYTES)

static const struct {
	const char *word;
	int plain_count;
	const char *usage;
} actions[] = {
	[KV_SHOW] = {NULL, 0, ""},
	[KV_EXPORT] = {"export", 2, "export KEY FILE"},
	[KV_IMPORT] = {"import", 1, "import FILE [--namespace NAME]"},
	[KV_CONVERT] = {"convert", 2,
			"convert COLI_FILE OUT --model DIR --position TEXT --representation TEXT [--tokenizer TEXT] "
			"[--chat-template TEXT] [--salt TEXT] [--version N] [--block-tokens N]"},
};

static const struct {
	const char *name;
	enum kv_action action;
	int is_needed;
} options[KV_OPTION_COUNT] = {
	[KV_OPTION_NAMESPACE] = {"--namespace", KV_IMPORT, 0},
	[KV_OPTION_MODEL] = {"--model", KV_CONVERT, 1},
	[KV_OPTION_POSITION] = {"--position", KV_CONVERT, 1},
	[KV_OPTION_REPRESENTATION] = {"--representation", KV_CONVERT, 1},
	[KV_OPTION_TOKENIZER] = {"--tokenizer", KV_CONVERT, 0},
	[KV_OPTION_CHAT_TEMPLATE] = {"--chat-template", KV_CONVERT, 0},
	[KV_OPTION_SALT] = {"--salt", KV_CONVERT, 0},
	[KV_OPTION_VERSION] = {"--version", KV_CONVERT, 0},
	[KV_OPTION_BLOCK_TOKENS] = {"--block-tokens", KV_CONVERT, 0},
};

/* KV_SHOW: no action is named so. */
static enum kv_action action_of(int argc, char *const *argv)
{
	for (size_t i = KV_EXPORT; argc > 1 && i < CNRE_COUNT_OF(actions); i++)
		if (strcmp(argv[1], actions[i].word) == 0)
			return (enum kv_action)i;
	return KV_SHOW;
}

/* KV_OPTION_COUNT: the action has none of that name. */
static enum kv_option option_of(enum kv_action action, const char *name)
{
	size_t i = 0;

	while (i < KV_OPTION_COUNT && (options[i].action != action || strcmp(options[i].name, name) != 0))
		i++;
	return (enum kv_option)i;
}

int kv_words_take_option(int argc, char *const *argv, const char *name)
{
	return option_of(action_of(argc, argv), name) != KV_OPTION_COUNT;
}

static int refuse_usage(enum kv_action action, char message[CTL_MESSAGE_BYTES])
{
	if (action == KV_SHOW)
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "takes nothing, or one of: export KEY FILE, import FILE, convert COLI_FILE OUT");
	else
		(void)snprintf(message, CTL_MESSAGE_BYTES, "the form is: kv %s", actions[action].usage);
	return -EINVAL;
}

static int sort_words(int argc, char *const *argv, struct kv_words *words, char message[CTL_MESSAGE_BYTES])
{
	int plain_count = 0;

	for (int i = 2; i < argc; i++) {
		enum kv_option option = option_of(words->action, argv[i]);

		if (option != KV_OPTION_COUNT && i + 1 < argc)
			words->option[option] = argv[++i];
		else if (plain_count < actions[words->action].plain_count)
			words->plain[plain_count++] = argv[i];
		else
			return refuse_usage(words->action, message);
	}
	return plain_count == actions[words->action].plain_count ? 0 : refuse_usage(words->action, message);
}

static int check_options(const struct kv_words *words, char message[CTL_MESSAGE_BYTES])
{
	for (size_t i = 0; i < KV_OPTION_COUNT; i++)
		if (options[i].action == words->action && options[i].is_needed && words->option[i] == NULL) {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "%s is needed: %s", options[i].name,
				       "a prefix has no meaning without what its state depends on");
			return -EINVAL;
		}
	return 0;
}

/* A number in [least, most]; left as it is if the option was not given. */
static int parse_number(const struct kv_words *words, enum kv_option option, uint32_t least, uint32_t most,
			uint32_t *number, char message[CTL_MESSAGE_BYTES])
{
	const char *text = words->option[option];
	unsigned long long value;
	char *end;

	if (text == NULL)
		return 0;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || value < least || value > most) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%s %.64s: not a number from %" PRIu32 " to %" PRIu32,
			       options[option].name, text, least, most);
		return -EINVAL;
	}
	*number = (uint32_t)value;
	return 0;
}

static int check_key(const char *key, char message[CTL_MESSAGE_BYTES])
{
	if (strlen(key) == HEX_DIGITS && strspn(key, "0123456789abcdef") == HEX_DIGITS)
		return 0;
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%.80s: not a key: 64 digits 0-9 a-f; cnrectl kv shows them", key);
	return -EINVAL;
}

int kv_words_parse(int argc, char *const *argv, struct kv_words *ret_words, char message[CTL_MESSAGE_BYTES])
{
	struct kv_words words = {.action = action_of(argc, argv), .block_tokens = KV_BLOCK_TOKENS_DEFAULT};
	int r;

	if (words.action == KV_SHOW && argc > 1)
		return refuse_usage(KV_SHOW, message);
	r = sort_words(argc, argv, &words, message);
	if (r == 0)
		r = check_options(&words, message);
	if (r == 0 && words.action == KV_EXPORT)
		r = check_key(words.plain[0], message);
	if (r == 0)
		r = parse_number(&words, KV_OPTION_VERSION, 0, UINT32_MAX, &words.version, message);
	if (r == 0)
		r = parse_number(&words, KV_OPTION_BLOCK_TOKENS, 1, KV_BLOCK_TOKENS_MAX, &words.block_tokens, message);
	if (r == 0)
		*ret_words = words;
	return r;
}
