/* SPDX-License-Identifier: Apache-2.0 */
/* See answer.h. */
#include "engine/answer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Takes root. */
static char *make_line(json_t *root)
{
	char *text = root ? json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9)) : NULL;
	size_t length = text ? strlen(text) : 0;
	char *line = text ? realloc(text, length + 2) : NULL;

	json_decref(root);
	if (!line) {
		free(text);
		return NULL;
	}
	memcpy(line + length, "\n", 2);
	return line;
}

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

char *answer_turn(const char *id, const struct turn_result *result, uint32_t steps)
{
	json_t *tokens = json_array();

	for (uint32_t i = 0; tokens && i < steps; i++)
		if (json_array_append_new(tokens, json_integer(result->tokens[i])) < 0) {
			json_decref(tokens);
			return NULL;
		}
	return make_line(json_pack("{s:s, s:o, s:i, s:i, s:i, s:i, s:f, s:f}", "id", id, "tokens", tokens,
				   "matched_tokens", (int)result->matched_tokens, "computed_tokens",
				   (int)result->computed_tokens, "published_blocks", (int)result->published_blocks,
				   "skipped_blocks", (int)result->skipped_blocks, "time_to_first_token_s",
				   seconds(result->first_ns), "seconds", seconds(result->total_ns)));
}

char *answer_ended(const char *id)
{
	return make_line(json_pack("{s:s, s:b}", "id", id, "ended", 1));
}

char *answer_quit(void)
{
	return make_line(json_pack("{s:b}", "quit", 1));
}

char *answer_error(const char *id, const char *reason)
{
	return make_line(id && id[0] ? json_pack("{s:s, s:s}", "id", id, "error", reason)
				     : json_pack("{s:s}", "error", reason));
}

char *answer_identity(const char *name, const struct kv_identity *identity)
{
	return make_line(json_pack("{s:s?, s:s, s:s, s:i, s:i, s:I}", "name", name, "position", identity->position,
				   "representation", identity->representation, "version", (int)KV_IDENTITY_VERSION,
				   "block_tokens", (int)KV_BLOCK_TOKENS, "block_bytes_max",
				   (json_int_t)identity->block_bytes_max));
}
