/* SPDX-License-Identifier: Apache-2.0 */
/* Words and options of cnrectl iobench; see iobench_words.h. */
#include "tools/ctl/iobench_words.h"

#include "base/check.h"
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int refuse(char message[CTL_MESSAGE_BYTES], const char *name, const char *value, const char *reason)
{
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%s %.64s: %s", name, value, reason);
	return -EINVAL;
}

static int take_block(struct iobench_words *words, const char *value, char message[CTL_MESSAGE_BYTES])
{
	uint64_t bytes;

	if (cnre_size_parse(value, &bytes) < 0)
		return refuse(message, "--block", value, "not a size: write bytes or a number with K or M");
	if (bytes == 0 || bytes % IOBENCH_ALIGNMENT != 0 || bytes > IOBENCH_BLOCK_MAX)
		return refuse(message, "--block", value, "not a multiple of 4K up to 256M");
	words->block_bytes = bytes;
	return 0;
}

static int parse_number(const char *name, const char *value, uint32_t most, uint32_t *ret_number,
			char message[CTL_MESSAGE_BYTES])
{
	unsigned long long number;
	char *end;

	errno = 0;
	number = strtoull(value, &end, 10);
	if (!isdigit((unsigned char)value[0]) || *end != '\0' || errno != 0 || number == 0 || number > most) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%s %.64s: not a number from 1 to %" PRIu32, name, value,
			       most);
		return -EINVAL;
	}
	*ret_number = (uint32_t)number;
	return 0;
}

static int take_count(struct iobench_words *words, const char *value, char message[CTL_MESSAGE_BYTES])
{
	return parse_number("--count", value, IOBENCH_COUNT_MAX, &words->count, message);
}

static int take_threads(struct iobench_words *words, const char *value, char message[CTL_MESSAGE_BYTES])
{
	return parse_number("--threads", value, IOBENCH_THREADS_MAX, &words->threads, message);
}

static int take_direct(struct iobench_words *words, const char *value, char message[CTL_MESSAGE_BYTES])
{
	int is_both = strcmp(value, "both") == 0;

	if (!is_both && strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
		return refuse(message, "--direct", value, "not one of yes, no, both");
	words->with_direct = is_both || strcmp(value, "yes") == 0;
	words->with_buffered = is_both || !words->with_direct;
	return 0;
}

static int take_seconds(struct iobench_words *words, const char *value, char message[CTL_MESSAGE_BYTES])
{
	double seconds;
	char *end;

	seconds = strtod(value, &end);
	/* The first character refuses what strtod takes beyond numbers: signs, blanks, words. */
	if ((!isdigit((unsigned char)value[0]) && value[0] != '.') || *end != '\0' ||
	    !(seconds >= IOBENCH_SECONDS_MIN && seconds <= IOBENCH_SECONDS_MAX))
		return refuse(message, "--seconds", value, "not a time from 0.01 to 3600");
	words->seconds = seconds;
	return 0;
}

static const struct {
	const char *name;
	int (*take)(struct iobench_words *words, const char *value, char message[CTL_MESSAGE_BYTES]);
} options[] = {
	{"--block", take_block},   {"--count", take_count},     {"--threads", take_threads},
	{"--direct", take_direct}, {"--seconds", take_seconds},
};

/* CNRE_COUNT_OF(options): there is none of that name. */
static size_t option_of(const char *name)
{
	size_t i = 0;

	while (i < CNRE_COUNT_OF(options) && strcmp(options[i].name, name) != 0)
		i++;
	return i;
}

int iobench_words_take_option(int argc, char *const *argv, const char *name)
{
	(void)argc;
	(void)argv;
	return option_of(name) < CNRE_COUNT_OF(options);
}

static int add_target(struct iobench_words *words, const char *target, char message[CTL_MESSAGE_BYTES])
{
	if (target[0] == '\0') {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "an empty word names no directory and no file");
		return -EINVAL;
	}
	if (words->target_count == IOBENCH_TARGETS_MAX) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: one more than the %u that can be compared", target,
			       IOBENCH_TARGETS_MAX);
		return -EINVAL;
	}
	words->target[words->target_count++] = target;
	return 0;
}

static int check_whole(const struct iobench_words *words, char message[CTL_MESSAGE_BYTES])
{
	uint64_t block_bytes = words->block_bytes == 0 ? 1 : words->block_bytes;

	if (words->target_count == 0) {
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "needs a directory with shards, or a large file, on each drive: iobench DIR|FILE...");
		return -EINVAL;
	}
	if (words->threads * block_bytes > IOBENCH_BUFFERS_MAX) {
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "%" PRIu32 " blocks of %" PRIu64 " bytes in flight need more than 1G of memory: "
			       "fewer --threads, or a smaller --block",
			       words->threads, block_bytes);
		return -EINVAL;
	}
	return 0;
}

int iobench_words_parse(int argc, char *const *argv, struct iobench_words *ret_words, char message[CTL_MESSAGE_BYTES])
{
	struct iobench_words words = {.with_direct = 1, .with_buffered = 1};
	int r = 0;

	for (int i = 1; i < argc && r == 0; i++) {
		size_t option = option_of(argv[i]);

		if (option < CNRE_COUNT_OF(options) && i + 1 < argc) {
			i++;
			r = options[option].take(&words, argv[i], message);
		} else {
			r = add_target(&words, argv[i], message);
		}
	}
	if (r == 0)
		r = check_whole(&words, message);
	if (r < 0)
		return r;
	if (words.seconds == 0)
		words.seconds = IOBENCH_SECONDS_PER_TARGET * words.target_count;
	*ret_words = words;
	return 0;
}
