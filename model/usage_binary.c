/* SPDX-License-Identifier: Apache-2.0 */
/* Histories that Inkling's engine wrote before it wrote text; see usage.h. */
#include "model/usage.h"

#include "base/message.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAGIC 0x31554B49u /* "IKU1" */
#define HEADER_WORDS 3u

static uint32_t word_at(const void *data, size_t index)
{
	uint32_t word;

	memcpy(&word, (const char *)data + index * sizeof word, sizeof word); /* a file's bytes have no alignment */
	return word;
}

int usage_is_binary(const void *data, size_t bytes)
{
	return bytes >= sizeof(uint32_t) && word_at(data, 0) == MAGIC;
}

static int check(const struct usage *usage, const void *data, size_t bytes, char *message, size_t message_bytes)
{
	uint64_t expected = ((uint64_t)usage->own_layers * usage->experts + HEADER_WORDS) * sizeof(uint32_t);

	if (usage->engine != 0 && usage->engine != usage_engine("inkling"))
		return cnre_message(message, message_bytes, -EXDEV, "engine inkling, this is %" PRIu32, usage->engine);
	if (bytes < HEADER_WORDS * sizeof(uint32_t))
		return cnre_message(message, message_bytes, -EINVAL, "cut within its header");
	if (word_at(data, 1) != usage->own_layers || word_at(data, 2) != usage->experts)
		return cnre_message(message, message_bytes, -ESTALE,
				    "%" PRIu32 " layers of %" PRIu32 " experts, the model has %" PRIu32 " of %" PRIu32,
				    word_at(data, 1), word_at(data, 2), usage->own_layers, usage->experts);
	if (bytes != expected)
		return cnre_message(message, message_bytes, -EINVAL, "%zu bytes, its dimensions need %" PRIu64, bytes,
				    expected);
	return 0;
}

int usage_read_binary(struct usage *usage, const void *data, size_t bytes, char *message, size_t message_bytes)
{
	int r = check(usage, data, bytes, message, message_bytes);
	size_t at = HEADER_WORDS;

	if (r < 0)
		return r;
	for (uint32_t layer = 0; layer < usage->own_layers; layer++)
		for (uint32_t expert = 0; expert < usage->experts; expert++)
			usage_count(usage, layer, expert, word_at(data, at++));
	usage->writer = usage_engine("inkling");
	return 0;
}
